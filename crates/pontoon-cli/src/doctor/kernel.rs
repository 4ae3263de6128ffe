//! What the kernel offers. Calls that can be tried without effect are tried; the others are judged
//! by what the kernel publishes, or by its version, and the finding says which.

use std::path::Path;

use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use rustix::io::Errno;
use rustix::thread::ClockId;
use rustix::thread::futex::{WaitvFlags, waitv};

use super::source::{Capability, KernelVersion, Process, read};
use super::{Finding, Group, Subject};

const KERNEL: Subject = Subject {
    group: Group::Kernel,
    name: "kernel",
    used_for: "everything; 6.7 or newer has all that the memory client will use",
    how_to_get: "the distribution's newer kernel; Debian 12 has one in bookworm-backports",
};
/// Memory files carry the counters of processes: without them there are no signals between any.
pub(super) const MEMFD: Subject = Subject {
    group: Group::Kernel,
    name: "memfd",
    used_for: "memory shared between processes",
    how_to_get: "Linux 3.17 or newer, in a container with a seccomp profile that allows \
                 memfd_create",
};
const WAITV: Subject = Subject {
    group: Group::Kernel,
    name: "futex-waitv",
    used_for: "one blocking wait for several signals",
    how_to_get: "Linux 5.16 or newer, in a container with a seccomp profile that allows futex_waitv",
};
const UFFD: Subject = Subject {
    group: Group::Kernel,
    name: "userfaultfd",
    used_for: "the memory client, which fetches remote pages when they are touched (not in this \
               version)",
    how_to_get: "Linux 5.11 or newer with CONFIG_USERFAULTFD; for older ones sysctl \
                 vm.unprivileged_userfaultfd=1; docker --security-opt seccomp=PROFILE that allows it",
};
const UFFD_FEATURES: Subject = Subject {
    group: Group::Kernel,
    name: "userfaultfd-features",
    used_for: "page faults served in the faulting thread, dirty pages tracked without faults (not \
               in this version)",
    how_to_get: "Linux 6.7 or newer",
};
const PAGEMAP_SCAN: Subject = Subject {
    group: Group::Kernel,
    name: "pagemap-scan",
    used_for: "collecting the pages that were written, a few ns each (not in this version)",
    how_to_get: "Linux 6.7 or newer",
};
const PTRACE: Subject = Subject {
    group: Group::Kernel,
    name: "ptrace-scope",
    used_for: "looking into another process that hangs (not in this version)",
    how_to_get: "sysctl kernel.yama.ptrace_scope=0, as root; in a container docker \
                 --cap-add=SYS_PTRACE",
};

/// Features of userfaultfd that the memory client will ask for, by the kernel that brought them.
const FEATURES: [(KernelVersion, &str); 6] = [
    (KernelVersion(4, 14), "SIGBUS"),
    (KernelVersion(5, 14), "MINOR_SHMEM"),
    (KernelVersion(6, 4), "WP_UNPOPULATED"),
    (KernelVersion(6, 6), "POISON"),
    (KernelVersion(6, 7), "WP_ASYNC"),
    (KernelVersion(6, 8), "MOVE"),
];
/// With this one the memory client has all that it needs; MOVE is a gain, no need.
const FEATURES_ENOUGH: KernelVersion = KernelVersion(6, 7);

pub(super) fn probe(process: &Process) -> Vec<Finding> {
    let version = KernelVersion::read();
    let release = read("/proc/sys/kernel/osrelease");
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    vec![
        release.map_or_else(|| KERNEL.missing(), |release| KERNEL.ok(release)),
        asked(MEMFD, memfd_create("doctor", MemfdFlags::CLOEXEC).err()),
        // No futex to wait for is refused as EINVAL by a kernel that knows the call.
        asked(WAITV, waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic).err()),
        Userfaults::read(version, process).finding(),
        features(version),
        pagemap_scan(version),
        // Without /proc nothing is known of Yama, and its absence would say the contrary.
        version.map_or_else(
            || PTRACE.missing(),
            |_| ptrace(scope.as_deref(), process.can(Capability::SysPtrace)),
        ),
    ]
}

/// Judges a call by what the kernel answered when it was tried.
fn asked(subject: Subject, error: Option<Errno>) -> Finding {
    match error {
        None | Some(Errno::INVAL) => subject.ok("tried: there"),
        Some(Errno::NOSYS) => subject.missing(),
        Some(error) => subject.limited(format!("tried: refused ({error})")),
    }
}

/// What decides who may be told of page faults.
#[derive(Clone, Copy, Debug)]
struct Userfaults {
    version: Option<KernelVersion>,
    /// `vm.unprivileged_userfaultfd`; absent if the kernel was built without userfaultfd.
    sysctl: Option<bool>,
    device_open_to_us: bool,
    can_trace: bool,
    filtered: bool,
}

impl Userfaults {
    fn read(version: Option<KernelVersion>, process: &Process) -> Self {
        let device = Path::new("/dev/userfaultfd");
        Self {
            version,
            sysctl: read("/proc/sys/vm/unprivileged_userfaultfd").map(|text| text == "1"),
            device_open_to_us: access(device, Access::READ_OK | Access::WRITE_OK).is_ok(),
            can_trace: process.can(Capability::SysPtrace),
            filtered: process.filtered,
        }
    }

    fn finding(self) -> Finding {
        let Some(sysctl) = self.sysctl else { return UFFD.missing() };
        let ways: Vec<&str> = [
            (sysctl, "vm.unprivileged_userfaultfd"),
            (self.device_open_to_us, "/dev/userfaultfd"),
            (self.can_trace, "CAP_SYS_PTRACE"),
        ]
        .into_iter()
        .filter_map(|(open, way)| open.then_some(way))
        .collect();
        let user_faults = self.version.is_some_and(|version| version >= KernelVersion(5, 11));
        let mut found = match (ways.is_empty(), user_faults) {
            (false, _) => format!("user and kernel faults, by {}", ways.join(", ")),
            (true, true) => "user faults".to_owned(),
            (true, false) => return UFFD.limited("in the kernel, but closed to this user"),
        };
        // Not opened here: the call needs code that this program does without.
        if self.filtered && !self.device_open_to_us {
            found += "; a seccomp filter may still refuse it";
            return UFFD.limited(found);
        }
        UFFD.ok(found)
    }
}

fn features(version: Option<KernelVersion>) -> Finding {
    let Some(version) = version else { return UFFD_FEATURES.missing() };
    let names: Vec<&str> =
        FEATURES.iter().filter(|(since, _)| version >= *since).map(|(_, name)| *name).collect();
    if names.is_empty() {
        return UFFD_FEATURES.missing();
    }
    let found = format!("of Linux {version}, not asked: {}", names.join(", "));
    if version >= FEATURES_ENOUGH {
        UFFD_FEATURES.expected(found)
    } else {
        UFFD_FEATURES.limited(found)
    }
}

fn pagemap_scan(version: Option<KernelVersion>) -> Finding {
    match version {
        Some(version) if version >= KernelVersion(6, 7) => {
            PAGEMAP_SCAN.expected(format!("of Linux {version}, not asked"))
        }
        _ => PAGEMAP_SCAN.missing(),
    }
}

fn ptrace(scope: Option<&str>, can_trace: bool) -> Finding {
    match scope {
        None => PTRACE.ok("not restricted (no Yama)"),
        Some("0") => PTRACE.ok("not restricted"),
        Some("3") => PTRACE.limited("3: nobody may, until the next boot"),
        Some(scope) if can_trace => PTRACE.ok(format!("{scope}, but CAP_SYS_PTRACE lifts it")),
        Some("1") => PTRACE.limited("1: own children only"),
        Some(scope) => PTRACE.limited(format!("{scope}: administrators only")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    const MODERN: Userfaults = Userfaults {
        version: Some(KernelVersion(6, 18)),
        sysctl: Some(false),
        device_open_to_us: false,
        can_trace: false,
        filtered: false,
    };

    #[test]
    fn a_call_is_judged_by_its_answer() {
        assert_eq!(asked(MEMFD, None).state, State::Ok);
        assert_eq!(asked(WAITV, Some(Errno::INVAL)).state, State::Ok);
        assert_eq!(asked(WAITV, Some(Errno::NOSYS)).state, State::Missing);
        assert_eq!(asked(MEMFD, Some(Errno::PERM)).state, State::Limited);
    }

    #[test]
    fn userfaults_name_who_may_have_them() {
        let plain = MODERN.finding();
        assert_eq!((plain.state, plain.found.as_deref()), (State::Ok, Some("user faults")));
        let root = Userfaults { device_open_to_us: true, can_trace: true, ..MODERN }.finding();
        assert_eq!(
            root.found.as_deref(),
            Some("user and kernel faults, by /dev/userfaultfd, CAP_SYS_PTRACE")
        );
        let old = Userfaults { version: Some(KernelVersion(5, 10)), ..MODERN };
        assert_eq!(old.finding().state, State::Limited);
        assert_eq!(Userfaults { sysctl: Some(true), ..old }.finding().state, State::Ok);
        assert_eq!(Userfaults { version: None, ..MODERN }.finding().state, State::Limited);
        assert_eq!(Userfaults { filtered: true, ..MODERN }.finding().state, State::Limited);
        assert_eq!(Userfaults { sysctl: None, ..MODERN }.finding().state, State::Missing);
    }

    #[test]
    fn what_was_not_asked_is_said_to_be_expected() {
        let new = features(Some(KernelVersion(6, 7)));
        assert_eq!(new.state, State::Expected);
        assert_eq!(
            new.found.as_deref(),
            Some(
                "of Linux 6.7, not asked: SIGBUS, MINOR_SHMEM, WP_UNPOPULATED, POISON, \
                 WP_ASYNC"
            )
        );
        let debian_12 = features(Some(KernelVersion(6, 1)));
        assert_eq!(debian_12.state, State::Limited);
        assert!(debian_12.found.is_some_and(|text| text.ends_with("SIGBUS, MINOR_SHMEM")));
        assert_eq!(features(Some(KernelVersion(4, 13))).state, State::Missing);
        assert_eq!(features(None).state, State::Missing);
        assert_eq!(pagemap_scan(Some(KernelVersion(6, 6))).state, State::Missing);
        let scan = pagemap_scan(Some(KernelVersion(6, 7)));
        assert_eq!(scan.state, State::Expected);
        assert!(scan.found.is_some_and(|text| text.contains("not asked")));
        assert_eq!(pagemap_scan(None).state, State::Missing);
    }

    #[test]
    fn yama_is_lifted_by_the_capability_but_not_from_three() {
        assert_eq!(ptrace(None, false).state, State::Ok);
        assert_eq!(ptrace(Some("0"), false).state, State::Ok);
        assert_eq!(ptrace(Some("1"), false).state, State::Limited);
        assert_eq!(ptrace(Some("1"), true).state, State::Ok);
        assert_eq!(ptrace(Some("2"), false).state, State::Limited);
        assert_eq!(ptrace(Some("3"), true).state, State::Limited);
    }
}
