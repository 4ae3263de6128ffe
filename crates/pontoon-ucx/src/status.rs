//! What UCX answered.

use std::{ffi::c_void, fmt, ptr::NonNull};

use crate::ffi::{StatusPtr, UCS_ERR_LAST, UCS_INPROGRESS, UCS_OK, UcsStatus};

/// A `ucs_status_t`: UCX's own code for how a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub i8);

impl Status {
    /// `Ok` for `UCS_OK`.
    pub(crate) fn check(self) -> Result<(), Self> {
        if self.0 == UCS_OK { Ok(()) } else { Err(self) }
    }

    /// Whether it says that the peer is gone or out of reach, and not that this one call was wrong.
    pub(crate) fn is_of_the_peer(self) -> bool {
        matches!(self.0, -6 | -25..=-23 | -89..=-41)
    }

    /// Whether no transport leads to the peer.
    pub(crate) fn is_unreachable(self) -> bool {
        self.0 == -6
    }

    /// Whether it may come of what the system refused to UCX, which tells no more than that.
    pub(crate) fn may_be_of_a_limit(self) -> bool {
        matches!(self.0, -4..=-2 | -14)
    }

    /// What it means, in words; the texts are those of UCX.
    fn text(self) -> &'static str {
        match self.0 {
            0 => "success",
            1 => "operation in progress",
            -1 => "no pending message",
            -2 => "no resources are available to initiate the operation",
            -3 => "input/output error",
            -4 => "out of memory",
            -5 => "invalid parameter",
            -6 => "destination is unreachable",
            -7 => "address not valid",
            -8 => "function not implemented",
            -9 => "message truncated",
            -10 => "no progress",
            -11 => "provided buffer is too small",
            -12 => "no such element",
            -13 => "failed to connect some of the requested endpoints",
            -14 => "no such device",
            -15 => "device is busy",
            -16 => "request canceled",
            -17 => "shared memory error",
            -18 => "element already exists",
            -19 => "index out of range",
            -20 => "operation timed out",
            -21 => "user-defined limit was reached",
            -22 => "unsupported operation",
            -23 => "operation rejected by remote peer",
            -24 => "endpoint is not connected",
            -25 => "connection reset by remote peer",
            -40..=-26 => "error of the device",
            -59..=-41 => "failure of the link",
            -80 => "endpoint timeout",
            -89..=-60 => "failure of the endpoint",
            _ => "unknown error",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (UCX status {})", self.text(), self.0)
    }
}

/// What a call that may go on in the background answered: done, a request, or a failure.
pub(crate) fn outcome(answer: StatusPtr) -> Result<Option<NonNull<c_void>>, Status> {
    let code = answer as isize;
    if (UCS_ERR_LAST as isize..0).contains(&code) {
        return Err(Status(code as i8));
    }
    Ok(NonNull::new(answer))
}

/// Whether a request is done, of what `ucp_request_check_status` answers.
pub(crate) fn finished(code: UcsStatus) -> Option<Result<(), Status>> {
    if code == UCS_INPROGRESS { None } else { Some(Status(code).check()) }
}

#[cfg(test)]
mod tests {
    use super::{Status, finished, outcome};
    use std::ptr;

    #[test]
    fn a_pointer_is_done_a_request_or_a_failure() {
        assert_eq!(outcome(ptr::null_mut()), Ok(None));
        assert_eq!(outcome(-25isize as *mut _), Err(Status(-25)));
        assert_eq!(outcome(-100isize as *mut _), Err(Status(-100)));
        assert!(outcome(-101isize as *mut _).is_ok_and(|request| request.is_some()));
        assert!(outcome(4096 as *mut _).is_ok_and(|request| request.is_some()));
    }

    #[test]
    fn a_request_in_progress_is_not_finished() {
        assert_eq!(finished(1), None);
        assert_eq!(finished(0), Some(Ok(())));
        assert_eq!(finished(-16), Some(Err(Status(-16))));
    }

    #[test]
    fn a_code_is_said_in_words() {
        let text = Status(-25).to_string();
        assert_eq!(text, "connection reset by remote peer (UCX status -25)");
        assert_eq!(Status(-101).to_string(), "unknown error (UCX status -101)");
    }
}
