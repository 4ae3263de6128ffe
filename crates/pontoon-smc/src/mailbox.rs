//! Stores that cannot be made where they are trapped, over a link that no signal handler can use: a thread makes
//! them, and the one whose store it is waits.

mod place;

use core::fmt;
use std::{sync::Arc, thread::JoinHandle, time::Duration};

use pontoon_hal::{
    guard::{Change, Refusal, Storer, Unmade},
    paging::PagingError,
};
use pontoon_signal::{
    Bound, SharedPublisher, SignalTable, Slot as Bell, SlotId, SystemError, TableShape,
    shim::{AtomicU64, Ordering::Relaxed},
    spawn_undisturbed,
};

use self::place::{Place, What, Work};
use crate::{
    SmcError,
    clock::Clock,
    stores::{Stores, Undone},
};

/// Stores that are asked for at the same time: others wait for a place.
const PLACES: usize = 4;
/// The longest that its thread sleeps.
const NAP: Duration = Duration::from_millis(50);
/// What a store is waited for beyond the deadline it is made within.
const MORE: Duration = Duration::from_millis(100);

/// Where threads leave their stores, and the thread that makes them.
pub(crate) struct Mailbox {
    post: Arc<Post>,
    thread: Option<JoinHandle<()>>,
}

struct Post {
    stores: Arc<Stores>,
    places: [Place; PLACES],
    bell: SharedPublisher,
    bell_slot: Bell,
    stop: AtomicU64,
}

impl Mailbox {
    pub(crate) fn over(stores: Arc<Stores>) -> Result<Self, SmcError> {
        let refused = |error: SystemError| PagingError {
            call: error.call,
            code: error.code,
            remedy: "no thread was to be had that makes stores",
        };
        let signals = SignalTable::in_process(TableShape::new(1, 1));
        let failed = |_| refused(SystemError { call: "claim", code: 0 });
        let slot = SlotId::new(0, 0);
        let bell = signals.shared_publisher(slot).map_err(failed)?.unnoted();
        let bell_slot = signals.slot(slot).map_err(failed)?;
        let places = core::array::from_fn(|_| Place::new());
        let post = Arc::new(Post { stores, places, bell, bell_slot, stop: AtomicU64::new(0) });
        let thread = spawn_undisturbed("pontoon-stores", {
            let post = Arc::clone(&post);
            move || post.run()
        });
        let thread = thread.map_err(refused)?;
        Ok(Self { post, thread: Some(thread) })
    }
}

impl Post {
    /// Makes what is asked for.
    fn run(&self) {
        let bell = self.bell_slot.uncounted_waiter();
        while self.stop.load(Relaxed) == 0 {
            let next = bell.value() + 1;
            for place in &self.places {
                self.make(place);
            }
            let _ = bell.wait_ge_bounded(next, Bound::within(NAP)).map(|_| ());
        }
    }

    fn make(&self, place: &Place) {
        let Some(Work { at, what, bytes }) = place.begin() else { return };
        let made = match what {
            What::Store => self.stores.make(at, &bytes).map(|()| 0),
            What::Change { bytes, change } => self.stores.alter(at, bytes, change),
        };
        place.end(bytes, made);
    }

    /// Asks for a store and waits for it. It runs in a signal handler.
    fn ask(&self, at: usize, what: What, bytes: &[u8]) -> Result<u64, Undone> {
        // The thread begins no later than its store before this one is over.
        let deadline = self.stores.pool.settings.deadline;
        let mut clock = Clock::of(deadline.saturating_mul(PLACES as u32).saturating_add(MORE));
        let place = loop {
            if let Some(place) = self.places.iter().find(|place| place.ask(at, what, bytes)) {
                break place;
            }
            if !clock.pause() {
                return Err(self.stores.not_made(at, clock.waited()));
            }
        };
        self.bell.pub_release(1);
        loop {
            let is_over = !clock.pause();
            if let Some(made) = place.made() {
                return made;
            }
            if is_over {
                place.leave();
                return Err(self.stores.not_made(at, clock.waited()));
            }
        }
    }
}

impl Storer for Mailbox {
    fn store(&self, at: usize, bytes: &[u8]) -> Result<(), Unmade> {
        self.post
            .ask(at, What::Store, bytes)
            .map(|_| ())
            .map_err(|undone| self.post.stores.told(undone))
    }

    fn change(&self, at: usize, bytes: usize, change: Change) -> Result<u64, Unmade> {
        self.post
            .ask(at, What::Change { bytes, change }, &[])
            .map_err(|undone| self.post.stores.told(undone))
    }

    fn refused(&self, refusal: &Refusal) {
        self.post.stores.refused(refusal);
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.post.stop.store(1, Relaxed);
        self.post.bell.pub_release(1);
        if let Some(thread) = self.thread.take() {
            // It panics nowhere, and comes back within its bounds.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}
