//! What the kernel offers. Calls that can be tried without effect are tried; the others are judged
//! by what the kernel publishes, or by its version, and the finding says which.

use std::path::Path;

use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use rustix::io::Errno;
use rustix::thread::ClockId;
use rustix::thread::futex::{WaitvFlags, waitv};

use pontoon::smc::{Feature, Features};

use super::source::{Capability, KernelVersion, Process, read};
use super::{Finding, Group, Subject};

const KERNEL: Subject = Subject {
    group: Group::Kernel,
    name: "kernel",
    used_for: "everything; 6.8 or newer has all that the memory client uses",
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
    used_for: "the memory client, which fetches remote pages when they are touched",
    how_to_get: "Linux 5.11 or newer with CONFIG_USERFAULTFD; for older ones sysctl \
                 vm.unprivileged_userfaultfd=1; docker --security-opt seccomp=PROFILE that allows it",
};
const UFFD_FEATURES: Subject = Subject {
    group: Group::Kernel,
    name: "userfaultfd-features",
    used_for: "page faults served in the faulting thread, dirty pages tracked without faults, pages \
               that make room",
    how_to_get: "Linux 6.8 or newer",
};
const PAGEMAP_SCAN: Subject = Subject {
    group: Group::Kernel,
    name: "pagemap-scan",
    used_for: "collecting the pages that were written, a few ns each",
    how_to_get: "Linux 6.7 or newer",
};
const PTRACE: Subject = Subject {
    group: Group::Kernel,
    name: "ptrace-scope",
    used_for: "looking into another process that hangs (not in this version)",
    how_to_get: "sysctl kernel.yama.ptrace_scope=0, as root; in a container docker \
                 --cap-add=SYS_PTRACE",
};

pub(super) fn probe(process: &Process) -> Vec<Finding> {
    let version = KernelVersion::read();
    let release = read("/proc/sys/kernel/osrelease");
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    let asked_features = Features::probe();
    vec![
        release.map_or_else(|| KERNEL.missing(), |release| KERNEL.ok(release)),
        asked(MEMFD, memfd_create("doctor", MemfdFlags::CLOEXEC).err()),
        // No futex to wait for is refused as EINVAL by a kernel that knows the call.
        asked(WAITV, waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic).err()),
        Userfaults::read(version, process).finding(),
        features(&asked_features),
        pagemap_scan(&asked_features),
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

/// What windows need, and what they are better with.
const FEATURES: [Feature; 6] = [
    Feature::SigBus,
    Feature::WriteProtect,
    Feature::WriteProtectAsync,
    Feature::Move,
    Feature::Poison,
    Feature::MinorShmem,
];

fn features(asked: &Features) -> Finding {
    if !asked.has(Feature::Missing) {
        return UFFD_FEATURES.missing();
    }
    let lacking: Vec<_> = FEATURES.iter().filter(|it| !asked.has(**it)).collect();
    if lacking.is_empty() {
        return UFFD_FEATURES.ok("tried: all");
    }
    let each =
        lacking.into_iter().map(|lacks| format!("no {}: {}", lacks.purpose(), lacks.instead()));
    UFFD_FEATURES.limited(each.collect::<Vec<_>>().join("; "))
}

fn pagemap_scan(asked: &Features) -> Finding {
    if asked.has(Feature::PagemapScan) {
        PAGEMAP_SCAN.ok("tried: there")
    } else {
        PAGEMAP_SCAN.missing()
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
    fn what_the_kernel_lacks_is_said_with_what_is_done_without() {
        let here = Features::probe();
        if here.has(Feature::Missing) {
            let lacks = features(&here.without(Feature::Move));
            assert_eq!(lacks.state, State::Limited);
            let found = lacks.found.expect("a text");
            assert!(found.contains("no pages taken away as a whole"), "{found}");
        }
        assert_eq!(features(&here.without(Feature::Missing)).state, State::Missing);
        assert_eq!(pagemap_scan(&here.without(Feature::PagemapScan)).state, State::Missing);
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
