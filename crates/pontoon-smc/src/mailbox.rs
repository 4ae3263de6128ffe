//! Stores that cannot be made where they are trapped, over a link that no signal handler can use: a thread makes
//! them, and the one whose store it is waits.

use core::fmt;
use std::{
    sync::{Arc, Mutex, MutexGuard, TryLockError},
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_hal::{
    guard::{Change, Refusal, STORE_MAX, Storer, Unmade},
    paging::PagingError,
};
use pontoon_signal::{
    Bound, SharedPublisher, SignalTable, Slot as Bell, SlotId, SystemError, TableShape,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    SmcError,
    clock::Clock,
    extent::locked,
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
    places: [Mutex<Letter>; PLACES],
    bell: SharedPublisher,
    bell_slot: Bell,
    stop: AtomicU64,
}

/// A store, and what became of it.
struct Letter {
    state: State,
    at: usize,
    what: What,
    bytes: Vec<u8>,
    made: Result<u64, Undone>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Asked,
    /// The thread is at it.
    Working,
    Made,
    /// The thread is at it, and nobody waits any more.
    Left,
}

#[derive(Clone, Copy)]
enum What {
    Store,
    Change { bytes: usize, change: Change },
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
        let places = core::array::from_fn(|_| {
            let bytes = Vec::with_capacity(STORE_MAX);
            Mutex::new(Letter { state: State::Free, at: 0, what: What::Store, bytes, made: Ok(0) })
        });
        let post = Arc::new(Post { stores, places, bell, bell_slot, stop: AtomicU64::new(0) });
        let thread = thread::Builder::new().name("pontoon-stores".into()).spawn({
            let post = Arc::clone(&post);
            move || post.run()
        });
        let thread = thread.map_err(|error| {
            refused(SystemError { call: "clone", code: error.raw_os_error().unwrap_or_default() })
        })?;
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

    fn make(&self, place: &Mutex<Letter>) {
        let mut letter = locked(place);
        if letter.state != State::Asked {
            return;
        }
        letter.state = State::Working;
        let (at, what, bytes) = (letter.at, letter.what, core::mem::take(&mut letter.bytes));
        drop(letter);
        let made = match what {
            What::Store => self.stores.make(at, &bytes).map(|()| 0),
            What::Change { bytes, change } => self.stores.alter(at, bytes, change),
        };
        let mut letter = locked(place);
        letter.bytes = bytes;
        letter.made = made;
        letter.state = if letter.state == State::Left { State::Free } else { State::Made };
    }

    /// Asks for a store and waits for it. It runs in a signal handler.
    fn ask(&self, at: usize, what: What, bytes: &[u8]) -> Result<u64, Undone> {
        // The thread begins no later than its store before this one is over.
        let deadline = self.stores.pool.settings.deadline;
        let mut clock = Clock::of(deadline.saturating_mul(PLACES as u32).saturating_add(MORE));
        let place = loop {
            let free = self.places.iter().find_map(|place| {
                let letter = tried(place)?;
                (letter.state == State::Free).then_some((place, letter))
            });
            if let Some((place, mut letter)) = free {
                letter.state = State::Asked;
                (letter.at, letter.what) = (at, what);
                letter.bytes.clear();
                letter.bytes.extend_from_slice(bytes);
                break place;
            }
            if !clock.pause() {
                return Err(self.stores.not_made(at, clock.waited()));
            }
        };
        self.bell.pub_release(1);
        loop {
            let is_over = !clock.pause();
            let Some(mut letter) = tried(place) else {
                if is_over {
                    return Err(self.stores.not_made(at, clock.waited()));
                }
                continue;
            };
            match letter.state {
                State::Made => {
                    letter.state = State::Free;
                    return core::mem::replace(&mut letter.made, Ok(0));
                }
                State::Asked if is_over => letter.state = State::Free,
                State::Working if is_over => letter.state = State::Left,
                _ => {}
            }
            if is_over {
                drop(letter);
                return Err(self.stores.not_made(at, clock.waited()));
            }
        }
    }
}

/// A letter that nobody reads or writes just now.
fn tried(place: &Mutex<Letter>) -> Option<MutexGuard<'_, Letter>> {
    match place.try_lock() {
        Ok(letter) => Some(letter),
        Err(TryLockError::Poisoned(letter)) => Some(letter.into_inner()),
        Err(TryLockError::WouldBlock) => None,
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
