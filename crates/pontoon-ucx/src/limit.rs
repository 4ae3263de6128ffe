//! The limits of this process that UCX meets: it answers with a code of its own, which tells none, or
//! ends the process.

use std::fs;

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

#[cfg(test)]
mod tests {
    use super::{free_files, met};
    use crate::Status;
    use std::fs::File;

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
