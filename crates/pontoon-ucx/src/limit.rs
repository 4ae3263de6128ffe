//! The limits of this process that UCX meets: it answers with a code of its own, which tells none, or
//! ends the process.

use std::fs;

use pontoon_hal::link::LinkError;
use pontoon_signal::SystemError;
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

use crate::{SetupError, Status};

/// UCX opens some fifteen files for a context and a worker, more where there are more networks. A
/// worker that gets some of them and not all ends the process (`ucp_worker.c`, "failed to set active
/// message handler").
const FILES: u64 = 24;

/// That UCX finds the files it needs.
pub(crate) fn room() -> Result<(), SetupError> {
    match free_files() {
        Some(free) if free < FILES => Err(SetupError::Files { free, needed: FILES }),
        _ => Ok(()),
    }
}

/// How many files this process may still open; `None` where there is no limit, or nobody tells.
fn free_files() -> Option<u64> {
    let most = getrlimit(Resource::Nofile).current?;
    match fs::read_dir("/proc/self/fd") {
        // One of them is that folder.
        Ok(files) => Some((most + 1).saturating_sub(files.count() as u64)),
        Err(error) => (error.raw_os_error() == Some(Errno::MFILE.raw_os_error())).then_some(0),
    }
}

/// The limit that is as good as met, if `status` may come of one.
pub(crate) fn met(status: Status) -> Option<SystemError> {
    if !status.may_be_of_a_limit() {
        return None;
    }
    // Those that UCX had open when one was refused are closed by now.
    if free_files().is_some_and(|free| free < FILES) {
        return Some(SystemError { call: "open", code: Errno::MFILE.raw_os_error() });
    }
    let no_memory = SystemError { call: "mmap", code: Errno::NOMEM.raw_os_error() };
    getrlimit(Resource::As).current.map(|_| no_memory)
}

/// Why memory is not registered, where UCX was refused it: a card that reads memory has it locked.
pub(crate) fn not_registered(
    link: &'static str,
    bytes: usize,
    error: &SetupError,
) -> Option<LinkError> {
    let &(SetupError::Refused { call, status } | SetupError::Limit { call, status, .. }) = error
    else {
        return None;
    };
    let lockable = getrlimit(Resource::Memlock).current;
    let remedy = match error {
        SetupError::Limit { .. } => "look at `ulimit -a`: files, address space and locked memory",
        _ => {
            "raise what can be locked (`ulimit -l`, LimitMEMLOCK= of systemd, docker --ulimit memlock=-1), \
             or register less"
        }
    };
    Some(LinkError::Register { link, bytes, call, code: status.0.into(), lockable, remedy })
}

#[cfg(test)]
mod tests {
    use super::{free_files, met, not_registered};
    use crate::{SetupError, Status};
    use pontoon_signal::SystemError;
    use rustix::process::{Resource, getrlimit};
    use std::fs::File;

    /// One line, with what was wanted, what is allowed, and how to get more.
    #[test]
    fn memory_that_cannot_be_locked_is_told_with_the_limit_and_the_remedy() {
        let (call, status) = ("ucp_mem_map", Status(-4));
        let refused = SetupError::Refused { call, status };
        let text = not_registered("ucx", 1 << 30, &refused).expect("of memory").to_string();
        let limit = getrlimit(Resource::Memlock).current;
        let limit = limit.map_or(String::new(), |most| format!("RLIMIT_MEMLOCK is {most} bytes"));
        for part in ["1073741824 bytes", "ucp_mem_map", "code -4", "ulimit -l", &*limit] {
            assert!(text.contains(part), "{text} without {part}");
        }
        assert!(!text.contains('\n'), "{text}");
        let error = SystemError { call: "open", code: 24 };
        let limited = SetupError::Limit { call, status, error };
        let text = not_registered("ucx", 4096, &limited).expect("of memory").to_string();
        assert!(text.contains("ulimit -a"), "{text}");
        assert_eq!(not_registered("ucx", 1, &SetupError::Files { free: 1, needed: 24 }), None);
    }

    #[test]
    fn what_ucx_refuses_by_itself_is_no_limit() {
        assert_eq!(met(Status(-5)), None);
        assert_eq!(met(Status(-25)), None);
    }

    /// Other tests open files meanwhile, but not so many.
    #[test]
    fn open_files_leave_room_for_fewer() {
        let before = free_files().expect("a limit");
        let files: Vec<_> = (0..200).map(|_| File::open("/dev/null").expect("opened")).collect();
        let after = free_files().expect("a limit");
        drop(files);
        assert!((before - 300..before - 100).contains(&after), "{before}, then {after}");
    }
}
