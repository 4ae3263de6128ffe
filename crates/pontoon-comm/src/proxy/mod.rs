//! The proxy: the thread that does what kernels ask for.
//!
//! - Y1: it goes round all rings, takes at most a batch or 1 MiB from each, and waits for none: what a link
//!   has no room for stays in its ring while the others go on.
//! - Y2: it beats as long as it gets on, within a batch too. Who waits for it looks at that.
//! - Y3: however it ends, its rings are closed with it, and end once links are done with what they were given;
//!   tasks that are not done by then are never told to be done.

mod heart;
mod pulse;
mod run;

pub(crate) use pulse::Pulse;

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pontoon_signal::{
    Ending, Host, Os, Publisher, Rank, Record, RecordKind, Recorder, SharedPublisher, SignalTable,
    Slot, SlotId, TableShape, fence_system,
    shim::{AtomicU64, Ordering::*, yield_now},
};

use self::run::{Finish, Run};
use crate::{CommError, Settings, channel::locked, error::reason, lane::Haul, ring::RingError};

/// What a proxy is to do.
const GO_ON: u64 = 0;
/// To do what is in the rings, and end.
const FINISH: u64 = 1;
/// For tests: to end at once, as if it had been killed. Nothing is cleared up.
const VANISH: u64 = 2;
/// For tests: to stand still.
const STAND: u64 = 3;
/// For tests: it does, and touches nothing.
const STANDS: u64 = 4;

pub(crate) use heart::{A_TASK, Heart};

const BELL: SlotId = SlotId::new(0, 0);
const BEAT: SlotId = SlotId::new(0, 1);

/// What its thread and others share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    own: Rank,
    /// Rings that it has not found yet, and whether it takes any more.
    new: Mutex<Vec<Haul>>,
    /// How many there ever were in `new`.
    announced: AtomicU64,
    order: AtomicU64,
    /// Set while it sleeps, or is about to.
    asleep: AtomicU64,
    bell: SharedPublisher,
    /// Y2.
    beat: Slot,
    bell_slot: Slot,
    /// How it ended.
    over: OnceLock<Ending>,
    /// Where kernels' records go, and those of tasks that failed.
    recorder: OnceLock<Recorder>,
    pub(crate) rounds: Rounds,
}

/// How often it went round all rings. The proxy alone counts, on a line of its own: kernels read the one
/// beside it at each push.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Rounds {
    pub(crate) busy: AtomicU64,
    pub(crate) idle: AtomicU64,
    /// Turns of rings and triggers that left a task which their link did not take.
    pub(crate) refused: AtomicU64,
    /// Rings and triggers that it goes round.
    pub(crate) lanes: AtomicU64,
}

impl Rounds {
    /// How many there were.
    pub(crate) fn sum(&self) -> u64 {
        self.busy.load(Relaxed).wrapping_add(self.idle.load(Relaxed))
    }
}

impl Shared {
    /// Wakes the proxy if it sleeps. Called after each push; one load while it does not.
    #[inline]
    pub(crate) fn ring_the_bell(&self) {
        if self.asleep.load(Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.asleep.store(0, Relaxed);
        self.bell.pub_release(1);
    }

    /// How often it was woken.
    pub(crate) fn wakes(&self) -> u64 {
        self.bell_slot.value().get()
    }

    /// Its heart: a counter that moves as long as it gets round.
    pub(crate) fn beat(&self) -> &Slot {
        &self.beat
    }

    /// Whether its thread does nothing more for any ring.
    pub(crate) fn is_gone(&self) -> bool {
        self.over.get().is_some()
    }

    /// Hands a ring to the proxy.
    pub(crate) fn add(&self, hauls: Vec<Haul>) -> Result<(), CommError> {
        let mut new = locked(&self.new);
        // Under the lock: a proxy that ends closes what it finds there, and looks but once.
        if self.over.get().is_some() {
            return Err(CommError::Over);
        }
        new.extend(hauls);
        self.announced.fetch_add(1, Relaxed);
        drop(new);
        self.ring_the_bell();
        Ok(())
    }

    /// Writes a record about `rank`, if there is anywhere to.
    pub(crate) fn record(&self, kind: RecordKind, rank: Rank, data: [u64; 3]) {
        if let Some(recorder) = self.recorder.get() {
            recorder.add(Record { at: Os.tick(), kind, rank, data });
        }
    }

    /// Has records written there. Whether nobody said where before.
    pub(crate) fn record_in(&self, recorder: Recorder) -> bool {
        self.recorder.set(recorder).is_ok()
    }

    fn order(&self, order: u64) {
        // A proxy that is to finish finds all that was pushed before.
        fence_system();
        self.order.store(order, Relaxed);
        self.wake();
    }
}

/// A proxy. Dropping it lets it finish what is in the rings, for as long as its patience.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) fn start(own: Rank, settings: Settings) -> Result<Self, CommError> {
        let failed = |error| CommError::Ring(RingError::Claim(error));
        let table = SignalTable::in_process(TableShape::new(1, 2));
        let bell = table.shared_publisher(BELL).map_err(failed)?.unnoted();
        let heart = table.publisher(BEAT).map_err(failed)?.dated_by_ticks();
        let slot = |slot| table.slot(slot).map_err(failed);
        let shared = Arc::new(Shared {
            settings,
            own,
            new: Mutex::default(),
            announced: AtomicU64::new(0),
            order: AtomicU64::new(GO_ON),
            asleep: AtomicU64::new(0),
            bell,
            beat: slot(BEAT)?,
            bell_slot: slot(BELL)?,
            over: OnceLock::new(),
            recorder: OnceLock::new(),
            rounds: Rounds::default(),
        });
        let thread = thread::Builder::new().name("pontoon-proxy".into()).spawn({
            let shared = Arc::clone(&shared);
            move || serve(shared, heart)
        });
        let thread = thread.map_err(|error| CommError::Thread(error.raw_os_error()))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// For tests: ends its thread wherever it is, as if it had been killed, and waits until it has ended.
    pub(crate) fn vanish(&self) {
        self.shared.order(VANISH);
        let has_ended = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        wait_for_a_test(has_ended);
    }

    /// For tests: lets its thread stand still, and waits until it does, or go on.
    pub(crate) fn stand_still(&self, still: bool) {
        self.shared.order(if still { STAND } else { GO_ON });
        wait_for_a_test(|| self.shared.order.load(Relaxed) != STAND);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.order(FINISH);
        let Some(thread) = self.thread.take() else { return };
        // It ends within its patience, unless a link keeps it beyond every bound: then it is left
        // alone, for nobody is helped by one more that hangs.
        let until =
            self.shared.settings.patience.saturating_mul(2).saturating_add(Duration::from_secs(1));
        let started = Instant::now();
        while !thread.is_finished() && started.elapsed() < until {
            thread::sleep(Duration::from_micros(100));
        }
        if thread.is_finished() {
            let _ = thread.join();
        } else {
            tracing::error!(target: "pontoon::comm", "the proxy does not end, and is left alone");
        }
    }
}

fn wait_for_a_test(until: impl Fn() -> bool) {
    let started = Instant::now();
    while !until() && started.elapsed() < Duration::from_secs(30) {
        yield_now();
    }
}

/// What the proxy's thread does from its start to its end.
fn serve(shared: Arc<Shared>, beat: Publisher) {
    let (own, patience) = (shared.own, shared.settings.patience);
    let mut run = Run::new(shared, beat);
    // What it has is looked at no more than to see what links have done.
    let (reason, patience) = match catch_unwind(AssertUnwindSafe(|| run.go())) {
        Ok(Finish::InOrder) => (reason::CLOSED, Duration::ZERO),
        Ok(Finish::Vanished) => return mem::forget(run),
        Err(_) => (reason::PROXY, patience),
    };
    run.end(Ending::Aborted { reason, by: own }, patience);
}
