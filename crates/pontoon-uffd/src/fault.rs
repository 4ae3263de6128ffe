//! A fault, and who serves it.

use core::{fmt, time::Duration};

/// An access that a thread cannot go on with until somebody does something about its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The page, by its number in the window.
    pub page: usize,
    /// Where in the window it was, in bytes. Before Linux 5.18 a fault that a server gets is at the
    /// beginning of its page.
    pub at: usize,
    /// Whether it was a write. In the thread that made it this is known on x86-64 alone; elsewhere
    /// it counts as a read, and the write is noted when it comes, as that of a protected page.
    pub write: bool,
    /// Whether the page is [poisoned](crate::Window::poison), or its memory is broken.
    pub poisoned: bool,
    /// How long it has waited behind others since a [`Server`](crate::Server) read it. In the thread that made it nothing.
    pub waited: Duration,
}

/// What was done about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Served {
    /// The thread tries its access again. If nothing was done about the page, the fault comes again.
    Again,
    /// Nothing. In the thread that made it, whoever handled SIGBUS before is asked, which by default
    /// ends the process; a server poisons the page, so that the thread gets SIGBUS.
    NotMine,
}

/// Who serves the faults of a window.
///
/// In the thread that made the fault it is called by a **signal handler**, wherever that thread was: it
/// may have been in the middle of an allocation, or hold any lock. So there it keeps to this:
///
/// - P1. It neither allocates nor frees, takes no lock that another thread may hold while it faults, and
///   runs no code that does: no `println!`, no thread-local value that is made on first use. Operations
///   of a [`Window`](crate::Window) are fine, atomics are, and so are plain calls of the kernel.
/// - P2. It touches no absent page of any window: every signal is blocked, and the kernel would end the
///   process.
/// - P3. It comes to an end within a bound of its own: nothing else gives the thread back.
/// - P4. It does not panic: a panic in the handler ends the process by SIGABRT, with its message, as it may
///   not unwind through code that does not know of it. (In a [`Server`](crate::Server) it counts as
///   [`Served::NotMine`].)
///
/// Several threads may fault on one page at the same time, and each calls it. One of them puts the page
/// in, and the others find it [`AlreadyThere`](crate::Placed::AlreadyThere): all say [`Served::Again`].
pub trait Pager: Send + Sync {
    /// Does something about `fault`.
    fn fault(&self, fault: Fault) -> Served;
}

impl<F: Fn(Fault) -> Served + Send + Sync> Pager for F {
    fn fault(&self, fault: Fault) -> Served {
        self(fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.write { "write" } else { "read" };
        let poisoned = if self.poisoned { "poisoned " } else { "" };
        write!(f, "{kind} of {poisoned}page {} at byte {}", self.page, self.at)
    }
}
