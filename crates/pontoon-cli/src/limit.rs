//! What a host or a shell refuses: files, memory, threads. It is told with what to raise, and whoever asked for more than
//! there is ends with [`BAD_INPUT`](crate::BAD_INPUT), whatever command it was.

use std::io;

use pontoon::{cpu::OpenDeviceError, hal::AllocateError, signal::SystemError};

/// The limit of this process, or of the system, that `error` is of. Of what these commands call, only the start of a
/// thread or a process is to be tried again.
pub(crate) fn of(error: &io::Error) -> Option<SystemError> {
    let limit = SystemError { call: "clone", code: error.raw_os_error()? };
    limit.is_limit().then_some(limit)
}

/// Whether a device was not opened for one.
pub(crate) fn of_device(error: &OpenDeviceError) -> bool {
    match error {
        OpenDeviceError::Thread(_) => true,
        OpenDeviceError::Memory(error) => of_memory(error),
        _ => false,
    }
}

/// Whether memory was not had for one.
pub(crate) fn of_memory(error: &AllocateError) -> bool {
    match error {
        AllocateError::TooLarge { .. } => true,
        AllocateError::System { call, code, .. } => SystemError { call, code: *code }.is_limit(),
        _ => false,
    }
}
