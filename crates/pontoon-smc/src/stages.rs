//! Stages: parts of the pool's memory that bytes are sent from and read into, each by one call at a time.
//!
//! A call that gives up leaves its stage to what may yet be sent from it or come to it. A home that does not answer
//! so keeps one for each call that was on it, and gets no other until it answers: the rest is for other homes.

use std::sync::{Mutex, MutexGuard, TryLockError};

use arrayvec::ArrayVec;
use pontoon_signal::{
    Seq,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    Home, SmcError,
    clock::Clock,
    extent::{Held, Place},
    release::late,
};

/// Bytes of a stage.
pub(crate) const STAGE: usize = 64 * 1024;
/// So many calls send or read at the same time.
pub(crate) const STAGES: usize = 16;
/// So many of them on one home.
const EACH: usize = 4;
/// Homes that a stage may remember before the keeper lets go of them.
const OVER: usize = 4;

/// The stages of a pool.
#[derive(Default)]
pub(crate) struct Stages([One; STAGES]);

#[derive(Default)]
struct One {
    /// Whose it is, by the home's key; 0 if it is free. Changed by who has the lock.
    of: AtomicU64,
    /// Whether something may yet touch it that nobody waits for: 0 or 1. Changed likewise.
    is_late: AtomicU64,
    /// Only ever tried: whoever runs in a handler must not wait.
    late: Mutex<Late>,
}

#[derive(Default)]
struct Late {
    /// What may yet touch it, of a call that did not wait for it.
    under_way: Option<(Home, Seq)>,
    /// Homes of which nothing is under way any more. The keeper drops them: the last handle of one may free what it
    /// was reached by, which a handler must not.
    over: ArrayVec<Home, OVER>,
}

/// A stage, the caller's alone.
pub(crate) struct Stage<'p> {
    pub(crate) words: &'p [AtomicU64],
    /// Where it begins in the pool's memory.
    pub(crate) at: usize,
    one: &'p One,
    late: MutexGuard<'p, Late>,
}

impl Stage<'_> {
    /// Some of it is on its way, up to that number, and nobody waits for it: nobody has the stage until then.
    pub(crate) fn leave(&mut self, home: &Home, number: Seq) {
        self.late.under_way = Some((home.clone(), number));
    }

    /// As [`leave`](Self::leave), of a home that has not answered in time.
    pub(crate) fn keep(&mut self, home: &Home, number: Seq) {
        self.leave(home, number);
        self.one.is_late.store(1, Relaxed);
    }
}

impl Stage<'_> {
    /// Waits until what was posted of it to that home of an extent is done. If that is not known in time it is kept.
    pub(crate) fn wait(
        &mut self,
        extent: &Held,
        place: &Place,
        number: Seq,
        clock: &mut Clock,
    ) -> Result<(), SmcError> {
        loop {
            let failed = match place.home.is_done(number) {
                Ok(true) => return Ok(()),
                Ok(false) if clock.pause() => continue,
                Ok(false) => late(extent, clock.waited()),
                Err(error) => error.into(),
            };
            self.keep(&place.home, number);
            return Err(failed);
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if self.late.under_way.is_none() {
            self.one.of.store(0, Relaxed);
        }
    }
}

impl Stages {
    /// One for a call on the home with that key, if it may have one: they follow each other in `memory` from the word
    /// `first` on.
    pub(crate) fn take<'p>(
        &'p self,
        key: u64,
        memory: &'p [AtomicU64],
        first: usize,
    ) -> Option<Stage<'p>> {
        let mut free = None;
        for (index, one) in self.0.iter().enumerate() {
            let Some(mut late) = attempt(&one.late) else { continue };
            if late.over.is_full() {
                continue;
            }
            match late.under_way.take() {
                Some((home, number)) if !home.is_over(number) => {
                    late.under_way = Some((home, number));
                    continue;
                }
                Some((home, _)) => {
                    late.over.push(home);
                    one.is_late.store(0, Relaxed);
                    one.of.store(0, Relaxed);
                }
                None => {}
            }
            if free.is_none() {
                free = Some((index, one, late));
            }
        }
        let (index, one, late) = free?;
        one.of.store(key, Relaxed);
        let is_late = |one: &One| one.is_late.load(Relaxed) != 0;
        if self.of(key).count() > EACH || self.of(key).any(is_late) {
            one.of.store(0, Relaxed);
            return None;
        }
        let at = first + index * STAGE / 8;
        let words = &memory[at..at + STAGE / 8];
        Some(Stage { words, at: at * 8, one, late })
    }

    /// Whether calls on that home have any.
    pub(crate) fn are_of(&self, key: u64) -> bool {
        self.of(key).next().is_some()
    }

    /// Lets go of homes of which nothing is under way: of the keeper.
    pub(crate) fn sweep(&self) {
        for one in &self.0 {
            let over = attempt(&one.late).map(|mut late| core::mem::take(&mut late.over));
            // Not under the lock.
            drop(over);
        }
    }

    fn of(&self, key: u64) -> impl Iterator<Item = &One> {
        self.0.iter().filter(move |one| one.of.load(Relaxed) == key)
    }
}

fn attempt<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
