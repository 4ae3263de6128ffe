//! A place in a mailbox: a store that a thread asks for, and what became of it.
//!
//! Who asks runs in a signal handler, and waits for no lock. One that gives up while somebody else looks at its place
//! leaves a mark that it is gone: the next who looks frees the place.

use std::sync::{Mutex, MutexGuard, TryLockError};

use pontoon_hal::guard::{Change, STORE_MAX};
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

use crate::{extent::locked, stores::Undone};

/// What came of a store.
pub(super) type Made = Result<u64, Undone>;

pub(super) struct Place {
    letter: Mutex<Letter>,
    /// 1 from when who asked is gone until the place is free again.
    left: AtomicU64,
}

/// A store, and what became of it.
struct Letter {
    state: State,
    at: usize,
    what: What,
    bytes: Vec<u8>,
    made: Made,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Asked,
    /// The mailbox's thread is at it.
    Working,
    Made,
}

#[derive(Clone, Copy)]
pub(super) enum What {
    Store,
    Change { bytes: usize, change: Change },
}

/// A store that is to be made.
pub(super) struct Work {
    pub(super) at: usize,
    pub(super) what: What,
    pub(super) bytes: Vec<u8>,
}

impl Place {
    pub(super) fn new() -> Self {
        let bytes = Vec::with_capacity(STORE_MAX);
        let letter = Letter { state: State::Free, at: 0, what: What::Store, bytes, made: Ok(0) };
        Self { letter: Mutex::new(letter), left: AtomicU64::new(0) }
    }

    /// Asks for a store. Whether the place was free for it.
    pub(super) fn ask(&self, at: usize, what: What, bytes: &[u8]) -> bool {
        let Some(mut letter) = self.tried() else { return false };
        self.tidy(&mut letter);
        if letter.state != State::Free {
            return false;
        }
        letter.state = State::Asked;
        (letter.at, letter.what) = (at, what);
        letter.bytes.clear();
        letter.bytes.extend_from_slice(bytes);
        true
    }

    /// What became of it, once it is made: the place is free then.
    pub(super) fn made(&self) -> Option<Made> {
        let mut letter = self.tried()?;
        if letter.state != State::Made {
            return None;
        }
        letter.state = State::Free;
        Some(core::mem::replace(&mut letter.made, Ok(0)))
    }

    /// Who asked waits no more. What nobody has begun is not made.
    pub(super) fn leave(&self) {
        self.left.store(1, Relaxed);
        if let Some(mut letter) = self.tried() {
            self.tidy(&mut letter);
        }
    }

    /// What is to be made, for the mailbox's thread.
    pub(super) fn begin(&self) -> Option<Work> {
        let mut letter = locked(&self.letter);
        self.tidy(&mut letter);
        if letter.state != State::Asked {
            return None;
        }
        letter.state = State::Working;
        let bytes = core::mem::take(&mut letter.bytes);
        Some(Work { at: letter.at, what: letter.what, bytes })
    }

    /// It was made, or not.
    pub(super) fn end(&self, bytes: Vec<u8>, made: Made) {
        let mut letter = locked(&self.letter);
        (letter.bytes, letter.made, letter.state) = (bytes, made, State::Made);
        self.tidy(&mut letter);
    }

    /// Frees a place whose asker is gone, unless the thread is at it: it does so then.
    fn tidy(&self, letter: &mut Letter) {
        if letter.state != State::Working && self.left.load(Relaxed) != 0 {
            letter.state = State::Free;
            self.left.store(0, Relaxed);
        }
    }

    /// The letter, if nobody reads or writes it just now.
    fn tried(&self) -> Option<MutexGuard<'_, Letter>> {
        match self.letter.try_lock() {
            Ok(letter) => Some(letter),
            Err(TryLockError::Poisoned(letter)) => Some(letter.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, What, Work};

    fn work(place: &Place) -> Work {
        place.begin().expect("it was asked for")
    }

    #[test]
    fn a_store_is_asked_for_made_and_told_of_once() {
        let place = Place::new();
        assert!(place.ask(8, What::Store, &[1, 2]));
        assert!(!place.ask(9, What::Store, &[]), "another is there");
        let Work { at, bytes, .. } = work(&place);
        assert_eq!((at, &bytes[..]), (8, &[1, 2][..]));
        assert!(place.made().is_none() && place.begin().is_none());
        place.end(bytes, Ok(5));
        assert!(matches!(place.made(), Some(Ok(5))));
        assert!(place.made().is_none() && place.ask(9, What::Store, &[]));
    }

    /// At each step of a store who asked for it may give up, and somebody else may be at its place at that very moment.
    #[test]
    fn a_place_whose_asker_is_gone_is_free_again() {
        for is_busy in [false, true] {
            for step in 0..3 {
                let place = Place::new();
                assert!(place.ask(8, What::Store, &[1]));
                let begun = (step > 0).then(|| work(&place));
                let end = |begun: Option<Work>| {
                    if let Some(Work { bytes, .. }) = begun {
                        place.end(bytes, Ok(0));
                    }
                };
                let leave = || {
                    let looks = is_busy.then(|| place.letter.lock().unwrap());
                    place.leave();
                    drop(looks);
                };
                if step == 1 {
                    leave();
                    assert!(!place.ask(9, What::Store, &[]), "the thread is at it");
                    end(begun);
                } else {
                    end(begun);
                    leave();
                }
                assert!(step != 0 || place.begin().is_none(), "what nobody has begun is not made");
                assert!(place.ask(9, What::Store, &[]), "busy {is_busy}, step {step}");
                assert_eq!(work(&place).at, 9, "and who is there now is there");
            }
        }
    }
}
