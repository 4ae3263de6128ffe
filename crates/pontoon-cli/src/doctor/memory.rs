//! Memory: how much, in which pages, and how much of it may be shared or locked.

use rustix::process::{Resource, getrlimit};

use super::source::{Capability, Process, bytes, field, names, read};
use super::{Finding, Group, Subject};

const MEMORY: Subject = Subject {
    group: Group::Memory,
    name: "memory",
    used_for: "counters, rings and the data handed over",
    how_to_get: "set by the machine; free some, or take a larger one",
};
const PAGE_SIZE: Subject = Subject {
    group: Group::Memory,
    name: "page-size",
    used_for: "shared memory is mapped in whole pages",
    how_to_get: "set by the kernel's build",
};
const TRANSPARENT: Subject = Subject {
    group: Group::Memory,
    name: "transparent-huge-pages",
    used_for: "large buffers with fewer translation misses",
    how_to_get: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root",
};
const RESERVED: Subject = Subject {
    group: Group::Memory,
    name: "reserved-huge-pages",
    used_for: "windows of the memory client in pages of 2 MiB (not in this version)",
    how_to_get: "sysctl vm.nr_hugepages=64, as root",
};
const SHM: Subject = Subject {
    group: Group::Memory,
    name: "dev-shm",
    used_for: "memory shared under a name (pontoon itself shares memory files without one)",
    how_to_get: "mount -o remount,size=2G /dev/shm, as root; in a container docker --shm-size=2g",
};
const MEMLOCK: Subject = Subject {
    group: Group::Memory,
    name: "memlock",
    used_for: "registering memory with a network card, as UCX does, or with a GPU (not in this version)",
    how_to_get: "`* - memlock unlimited` in /etc/security/limits.conf and a new login (see ulimit -l); \
                 systemd LimitMEMLOCK=infinity; docker --ulimit memlock=-1",
};

/// Less than this in `/dev/shm` is the default of a container and too little for real buffers.
const SHM_ENOUGH: u64 = 128 << 20;
/// Registration pools start at about this much; containers are often held to 64 MiB.
const MEMLOCK_ENOUGH: u64 = 1 << 30;

pub(super) fn probe(process: &Process) -> Vec<Finding> {
    const THP: &str = "/sys/kernel/mm/transparent_hugepage";
    let limit = getrlimit(Resource::Memlock);
    vec![
        memory(&read("/proc/meminfo").unwrap_or_default()),
        PAGE_SIZE.ok(bytes(rustix::param::page_size() as u64)),
        transparent(
            read(format!("{THP}/enabled")).as_deref(),
            read(format!("{THP}/shmem_enabled")).as_deref(),
        ),
        reserved(&pools()),
        shm(rustix::fs::statvfs("/dev/shm")
            .ok()
            .map(|fs| (fs.f_blocks * fs.f_frsize, fs.f_bavail * fs.f_frsize))),
        memlock(limit.current, limit.maximum, process.can(Capability::IpcLock)),
    ]
}

/// Bytes that can be had without swapping, as the kernel estimates.
pub(crate) fn available() -> Option<u64> {
    count(&read("/proc/meminfo")?, "MemAvailable")
}

fn count(meminfo: &str, key: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, key)?.strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn memory(meminfo: &str) -> Finding {
    match (count(meminfo, "MemTotal"), count(meminfo, "MemAvailable")) {
        (Some(total), Some(available)) => {
            MEMORY.ok(format!("{}, {} available", bytes(total), bytes(available)))
        }
        (Some(total), None) => MEMORY.ok(bytes(total)),
        (None, _) => MEMORY.missing(),
    }
}

/// The choice in brackets, as in `always [madvise] never`.
fn chosen(modes: &str) -> Option<&str> {
    modes.split_once('[')?.1.split_once(']').map(|(mode, _)| mode)
}

fn transparent(private: Option<&str>, shared: Option<&str>) -> Finding {
    match (private.and_then(chosen), shared.and_then(chosen)) {
        (Some(private), Some(shared)) => {
            TRANSPARENT.ok_if(private != "never", format!("{private}; shared memory: {shared}"))
        }
        (Some(private), None) => TRANSPARENT.ok_if(private != "never", private),
        (None, _) => TRANSPARENT.missing(),
    }
}

/// Reserved pages of one size.
struct Pool {
    page_bytes: u64,
    total: u64,
    free: u64,
}

fn pools() -> Vec<Pool> {
    const ROOT: &str = "/sys/kernel/mm/hugepages";
    let mut pools: Vec<Pool> = names(ROOT)
        .iter()
        .filter_map(|folder| {
            let [total, free] = ["nr_hugepages", "free_hugepages"]
                .map(|file| read(format!("{ROOT}/{folder}/{file}"))?.parse().ok());
            Some(Pool { page_bytes: page_bytes(folder)?, total: total?, free: free? })
        })
        .collect();
    pools.sort_by_key(|pool| pool.page_bytes);
    pools
}

/// The page size in the name of a folder such as `hugepages-2048kB`.
fn page_bytes(folder: &str) -> Option<u64> {
    let kib: u64 = folder.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

fn reserved(pools: &[Pool]) -> Finding {
    let held: Vec<String> = pools
        .iter()
        .filter(|pool| pool.total > 0)
        .map(|pool| format!("{} of {} free of {}", pool.free, pool.total, bytes(pool.page_bytes)))
        .collect();
    match (held.is_empty(), pools.iter().any(|pool| pool.free > 0)) {
        (true, _) => RESERVED.missing(),
        (false, some_free) => RESERVED.ok_if(some_free, held.join(", ")),
    }
}

/// Judges the size of `/dev/shm` and what is free of it.
fn shm(size: Option<(u64, u64)>) -> Finding {
    match size {
        Some((total, free)) => {
            SHM.ok_if(free >= SHM_ENOUGH, format!("{}, {} free", bytes(total), bytes(free)))
        }
        None => SHM.missing(),
    }
}

/// Judges the soft and the hard limit; `None` is no limit.
fn memlock(soft: Option<u64>, hard: Option<u64>, lifted: bool) -> Finding {
    let words = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), bytes);
    let mut found = words(soft);
    if hard != soft {
        found += &format!(", may be raised to {}", words(hard));
    }
    let enough = soft.is_none_or(|limit| limit >= MEMLOCK_ENOUGH);
    if lifted && !enough {
        found += ", but CAP_IPC_LOCK lifts it for this user";
    }
    MEMLOCK.ok_if(enough || lifted, found)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn memory_is_read_in_kibibytes() {
        let meminfo = "MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n";
        assert_eq!(memory(meminfo).found.as_deref(), Some("23.5 GiB, 8 GiB available"));
        assert_eq!(memory("MemTotal: 1024 kB\n").found.as_deref(), Some("1 MiB"));
        assert_eq!(memory("MemTotal: many kB\n").state, State::Missing);
        assert_eq!(memory("MemTotal: 18446744073709551615 kB\n").state, State::Missing);
    }

    #[test]
    fn the_mode_of_transparent_pages_is_the_one_in_brackets() {
        let modes = Some("always [madvise] never");
        assert_eq!(transparent(modes, None).found.as_deref(), Some("madvise"));
        let both = transparent(modes, Some("always within_size advise [never] deny force"));
        assert_eq!(both.found.as_deref(), Some("madvise; shared memory: never"));
        assert_eq!(both.state, State::Ok);
        assert_eq!(transparent(Some("always madvise [never]"), None).state, State::Limited);
        assert_eq!(transparent(Some("]["), None).state, State::Missing);
        assert_eq!(transparent(None, None).state, State::Missing);
    }

    #[test]
    fn reserved_pages_are_listed_by_size() {
        assert_eq!(page_bytes("hugepages-1048576kB"), Some(1 << 30));
        assert_eq!(page_bytes("hugepages-kB"), None);
        let pool = |total, free| Pool { page_bytes: 2 << 20, total, free };
        let found = reserved(&[pool(64, 10), pool(0, 0)]);
        assert_eq!(
            (found.state, found.found.as_deref()),
            (State::Ok, Some("10 of 64 free of 2 MiB"))
        );
        assert_eq!(reserved(&[pool(64, 0)]).state, State::Limited);
        assert_eq!(reserved(&[pool(0, 0)]).state, State::Missing);
        assert_eq!(reserved(&[]).state, State::Missing);
    }

    #[test]
    fn a_containers_default_shm_is_limited() {
        let found = shm(Some((64 << 20, 64 << 20)));
        assert_eq!(
            (found.state, found.found.as_deref()),
            (State::Limited, Some("64 MiB, 64 MiB free"))
        );
        assert_eq!(shm(Some((1 << 30, 512 << 20))).state, State::Ok);
        assert_eq!(shm(None).state, State::Missing);
    }

    #[test]
    fn a_memlock_limit_says_what_it_is_and_what_lifts_it() {
        let plain = memlock(Some(8 << 20), Some(8 << 20), false);
        assert_eq!((plain.state, plain.found.as_deref()), (State::Limited, Some("8 MiB")));
        let soft = memlock(Some(8 << 20), None, false);
        assert_eq!(soft.found.as_deref(), Some("8 MiB, may be raised to unlimited"));
        let lifted = memlock(Some(8 << 20), Some(8 << 20), true);
        assert_eq!(lifted.state, State::Ok);
        assert!(lifted.found.is_some_and(|text| text.contains("CAP_IPC_LOCK")));
        let none = memlock(None, None, true);
        assert_eq!((none.state, none.found.as_deref()), (State::Ok, Some("unlimited")));
    }
}
