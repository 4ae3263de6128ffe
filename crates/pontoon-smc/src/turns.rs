//! Calls that may go on side by side, and one that needs to be alone.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult};

use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

use crate::clock::Clock;

/// Who waits to be alone goes before who comes later: else calls that follow each other would keep it waiting for ever.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    lock: RwLock<()>,
    /// How many wait to be alone.
    waiting: AtomicU64,
}

impl Turns {
    /// Beside others; `None` if that could not be had in time.
    pub(crate) fn beside(&self, clock: &mut Clock) -> Option<RwLockReadGuard<'_, ()>> {
        until(clock, || match self.waiting.load(Relaxed) {
            0 => self.lock.try_read(),
            _ => Err(TryLockError::WouldBlock),
        })
    }

    /// Alone; `None` if that could not be had in time.
    pub(crate) fn alone(&self, clock: &mut Clock) -> Option<RwLockWriteGuard<'_, ()>> {
        self.waiting.fetch_add(1, Relaxed);
        let alone = until(clock, || self.lock.try_write());
        self.waiting.fetch_sub(1, Relaxed);
        alone
    }
}

fn until<G>(clock: &mut Clock, attempt: impl Fn() -> TryLockResult<G>) -> Option<G> {
    loop {
        match attempt() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if clock.pause() => {}
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;
    use crate::clock::Clock;
    use pontoon_signal::shim::{Ordering::Relaxed, yield_now};
    use std::{thread, time::Duration};

    #[test]
    fn who_waits_to_be_alone_goes_before_who_comes_later() {
        let turns = Turns::default();
        let [mut short, mut long] = [1, 60_000].map(|ms| Clock::of(Duration::from_millis(ms)));
        let first = turns.beside(&mut long).unwrap();
        drop(turns.beside(&mut long).unwrap());
        assert!(turns.alone(&mut short).is_none());
        thread::scope(|scope| {
            let alone = scope.spawn(|| {
                let mut long = Clock::of(Duration::from_secs(60));
                turns.alone(&mut long).is_some()
            });
            while turns.waiting.load(Relaxed) == 0 {
                yield_now();
            }
            assert!(turns.beside(&mut Clock::of(Duration::from_millis(1))).is_none());
            drop(first);
            assert!(alone.join().unwrap());
        });
        assert!(turns.beside(&mut long).is_some());
    }
}
