//! The progress thread: it makes progress while nobody else does, and sleeps while none is due.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_signal::{
    SystemError,
    shim::{AtomicU32, Ordering::Relaxed},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsRawFd, OwnedFd},
    io::Errno,
};

use crate::{
    engine::Engine,
    patience::{LONGEST_SLEEP, sleep_on},
};

/// How long the thread stays away after somebody else polled. A wake costs some 5 us, so a poller
/// that goes on and on is disturbed by less than a hundredth of a core.
const AWAY: Duration = Duration::from_millis(1);
/// No more polls than these since its last look are those of one who sleeps between them, and whom
/// the thread disturbs by nothing: to stay away for him would be one wake more for each look.
const FEW: u64 = 8;
/// Rounds of progress in one go, while others may want the worker.
const ROUNDS: u32 = 32;

/// A running progress thread, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Thread {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Not zero once the thread is to end.
    stop: AtomicU32,
    /// Readable once it is to end.
    wake: OwnedFd,
}

impl Thread {
    pub(crate) fn start(engine: Arc<Engine>) -> Result<Self, SystemError> {
        let failed = |call| move |errno: Errno| SystemError { call, code: errno.raw_os_error() };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(failed("eventfd"))?;
        let shared = Arc::new(Shared { stop: AtomicU32::new(0), wake });
        let theirs = Arc::clone(&shared);
        let spawned = thread::Builder::new()
            .name("pontoon-ucx".into())
            .spawn(move || run(&engine, &theirs))
            .map_err(|error| SystemError {
                call: "clone",
                code: error.raw_os_error().unwrap_or_default(),
            })?;
        Ok(Self { shared, handle: Some(spawned) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.stop.store(1, Relaxed);
        // A full counter is readable as well.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(handle) = self.handle.take() {
            // It does not panic; and if it did, it has ended, which is what is wanted.
            let _ = handle.join();
        }
    }
}

fn run(engine: &Engine, shared: &Shared) {
    let wake = shared.wake.as_raw_fd();
    let mut seen = engine.polls.load(Relaxed);
    while shared.stop.load(Relaxed) == 0 {
        let polls = engine.polls.load(Relaxed);
        let others = polls.wrapping_sub(seen);
        seen = polls;
        if others > FEW {
            sleep_on([wake], AWAY);
            continue;
        }
        engine.rounds.fetch_add(1, Relaxed);
        // This thread runs no handler but within `progress`, so both always come in.
        let Ok(progress) = engine.progress(ROUNDS, |_| false) else { return };
        if progress.events > 0 {
            continue;
        }
        match engine.arm() {
            Ok(true) => sleep_on([engine.event_fd, wake], LONGEST_SLEEP),
            Ok(false) if engine.dying() > 0 => sleep_on([wake], AWAY),
            Ok(false) => {}
            Err(_) => return,
        }
    }
}
