//! How a wait passes the time while it makes progress itself.
#![allow(unsafe_code)] // a file descriptor of UCX's is borrowed

use std::time::Duration;

use pontoon_signal::{Bound, Host, Nanos, Os};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::BorrowedFd,
};

use crate::engine::{Core, Engine, FromHandler};

/// Polls between two looks at the clock.
const POLLS_A_LOOK: u64 = 16;
/// Yields of the core before a wait first sleeps.
const YIELDS: u32 = 16;
/// The first and the longest sleep. UCX wakes a sleeper by its event, but not for what a peer stores
/// into shared memory, nor always else (rapidsai/ucxx#15 hung for 20 s): so a sleep lasts about as
/// long as all those before it, and 50 ms at most. A wake costs up to 100 us where UCX
/// has several transports to look at, so 20 a second take 0.2 % of a core.
const SLEEP: Duration = Duration::from_millis(1);
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Rounds of progress in one go, while others may want the worker.
const ROUNDS: u32 = 8;

/// How a wait ended.
pub(crate) enum Waited {
    Done,
    TimedOut(Nanos),
}

/// Makes progress until `done`, as long as `bound` allows. `done` is called with the worker in
/// hand; it is called once at least.
pub(crate) fn wait(
    engine: &Engine,
    bound: Bound,
    mut done: impl FnMut(&mut Core) -> bool,
) -> Result<Waited, FromHandler> {
    use pontoon_signal::shim::Ordering::Relaxed;
    let mut started = None;
    let (mut polls, mut yields, mut sleep) = (0u64, 0, SLEEP);
    loop {
        // A count that only one adds to at a time would do; a lost one does no harm.
        engine.polls.store(engine.polls.load(Relaxed).wrapping_add(1), Relaxed);
        let progress = engine.progress(ROUNDS, &mut done)?;
        if progress.is_done {
            return Ok(Waited::Done);
        }
        polls += 1;
        let spinning = polls < u64::from(bound.spin());
        let last = bound.tries().is_some_and(|tries| polls >= tries);
        if !last && spinning && !polls.is_multiple_of(POLLS_A_LOOK) {
            continue;
        }
        let now = Os.now();
        let waited = now.since(*started.get_or_insert(now));
        let left = bound.deadline().map(|deadline| Nanos::from(deadline).since(waited));
        if last || left == Some(Nanos(0)) {
            return Ok(Waited::TimedOut(waited));
        }
        if spinning {
            continue;
        }
        if progress.events > 0 || yields < YIELDS {
            yields += 1;
            std::thread::yield_now();
            continue;
        }
        let left = left.map_or(sleep, Nanos::as_duration);
        if engine.arm()? {
            sleep_on([engine.event_fd], sleep.min(left));
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        } else if engine.dying() > 0 {
            // What is being closed makes no event, and may take as long as a peer stands still.
            sleep_on([], SLEEP.min(left));
        }
    }
}

/// Sleeps until one of `files` is readable, and at most `longest`. A signal may end it early.
pub(crate) fn sleep_on<const N: usize>(files: [i32; N], longest: Duration) {
    // SAFETY: an engine's descriptors are open as long as it lives, and whoever sleeps holds it.
    let borrowed = files.map(|file| unsafe { BorrowedFd::borrow_raw(file) });
    let mut polled = borrowed.each_ref().map(|file| PollFd::new(file, PollFlags::IN));
    let longest = Timespec {
        tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // Whatever it says, the caller looks again.
    let _ = poll(&mut polled, Some(&longest));
}
