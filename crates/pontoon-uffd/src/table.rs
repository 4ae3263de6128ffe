//! The windows whose faults are served in their threads, found without a lock.
#![allow(unsafe_code)] // An entry is read while another thread may be about to take it out.

use core::ops::Range;

use pontoon_signal::shim::{AtomicU64, Ordering::*, UnsafeCell, fence, sync, yield_now};

/// Up to `N` values by ranges of addresses that do not overlap.
///
/// A signal handler looks for the address of its fault. A thread that faults within a range knows
/// the range, so the entry was made before, in its eyes too, and stays until its accesses are over:
/// for it the addresses alone, which are relaxed words, decide. An address of nobody's may meet the
/// words of an entry that comes or goes, one old and one new: so a reader counts itself, and then
/// looks at the state.
///
/// Invariant T1: `value` is written only by who moved `state` from `FREE` to `CLAIMED`, and by who
/// moved it from `LIVE` to `LEAVING` and then saw no reader. T2: it is read only by who counts among
/// `readers`, and saw `LIVE` after.
#[derive(Debug)]
pub struct Table<T, const N: usize> {
    entries: [Entry<T>; N],
}

#[derive(Debug)]
struct Entry<T> {
    first: AtomicU64,
    end: AtomicU64,
    state: AtomicU64,
    readers: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const LIVE: u64 = 2;
const LEAVING: u64 = 3;

/// How often whoever takes an entry out yields to its readers: only a fault at an address of
/// nobody's can be one.
const TRIES: u32 = if cfg!(pontoon_loom) { 100 } else { 1 << 20 };

// SAFETY: T1 and T2: the value moves between threads, and several may read it.
unsafe impl<T: Send + Sync> Sync for Entry<T> {}

/// A value's place in a [`Table`].
#[derive(Debug)]
pub struct Place(usize);

impl<T> Entry<T> {
    #[cfg(not(pontoon_loom))]
    const fn new() -> Self {
        Self {
            first: AtomicU64::new(0),
            end: AtomicU64::new(0),
            state: AtomicU64::new(FREE),
            readers: AtomicU64::new(0),
            value: UnsafeCell::new(None),
        }
    }

    #[cfg(pontoon_loom)]
    fn new() -> Self {
        Self {
            first: AtomicU64::new(0),
            end: AtomicU64::new(0),
            state: AtomicU64::new(FREE),
            readers: AtomicU64::new(0),
            value: UnsafeCell::new(None),
        }
    }
}

impl<T, const N: usize> Table<T, N> {
    /// An empty table.
    #[cfg(not(pontoon_loom))]
    #[allow(clippy::new_without_default, reason = "a static")]
    pub const fn new() -> Self {
        Self { entries: [const { Entry::new() }; N] }
    }

    /// An empty table.
    #[cfg(pontoon_loom)]
    #[allow(clippy::new_without_default, reason = "a static")]
    pub fn new() -> Self {
        Self { entries: core::array::from_fn(|_| Entry::new()) }
    }

    /// Puts `value` in, to be found by each address of `range`.
    ///
    /// # Errors
    ///
    /// The value, if no place is free.
    pub fn insert(&self, range: Range<u64>, value: T) -> Result<Place, T> {
        for (at, entry) in self.entries.iter().enumerate() {
            // SYNC(entry-free) acquire: the value that was here before is gone.
            let claim = sync("entry-free", Acquire);
            if entry.state.compare_exchange(FREE, CLAIMED, claim, Relaxed).is_err() {
                continue;
            }
            entry.value.with_mut(|place| {
                // SAFETY: T1.
                unsafe { *place = Some(value) };
            });
            entry.first.store(range.start, Relaxed);
            entry.end.store(range.end, Relaxed);
            // SYNC(entry-live) release: the value is there for whoever sees it live.
            entry.state.store(LIVE, sync("entry-live", Release));
            return Ok(Place(at));
        }
        Err(value)
    }

    /// Calls `with` with the value that `address` belongs to, if there is one. It neither waits nor
    /// allocates.
    pub fn find<R>(&self, address: u64, with: impl FnOnce(&T) -> R) -> Option<R> {
        let entry = self.entries.iter().find(|entry| {
            (entry.first.load(Relaxed)..entry.end.load(Relaxed)).contains(&address)
        })?;
        entry.readers.fetch_add(1, Relaxed);
        // SYNC(entry-leave) full: the count is before the look at the state. One of the two that meet
        // sees the other: whoever takes the entry out the count, or this one the state.
        fence(sync("entry-leave", SeqCst));
        // SYNC(entry-live) acquire: the value that was put in before.
        let live = entry.state.load(sync("entry-live", Acquire)) == LIVE;
        let found = live.then(|| {
            entry.value.with(|value| {
                // SAFETY: T2.
                let value = unsafe { &*value };
                value.as_ref().map(with)
            })
        });
        // SYNC(entry-read) release: what was read here was read before the value goes.
        entry.readers.fetch_sub(1, sync("entry-read", Release));
        found.flatten()
    }

    /// Takes a value out. `None` if somebody reads it on and on: then it stays, found by nobody.
    pub fn remove(&self, place: Place) -> Option<T> {
        let entry = &self.entries[place.0];
        entry.state.store(LEAVING, Relaxed);
        entry.first.store(0, Relaxed);
        entry.end.store(0, Relaxed);
        // SYNC(entry-leave) full: the state is before the look at the count.
        fence(sync("entry-leave", SeqCst));
        for _ in 0..TRIES {
            // SYNC(entry-read) acquire: the readers that are gone have read.
            if entry.readers.load(sync("entry-read", Acquire)) != 0 {
                yield_now();
                continue;
            }
            let value = entry.value.with_mut(|place| {
                // SAFETY: T1.
                let place = unsafe { &mut *place };
                place.take()
            });
            // SYNC(entry-free) release: the place is empty for whoever claims it.
            entry.state.store(FREE, sync("entry-free", Release));
            return value;
        }
        None
    }
}
