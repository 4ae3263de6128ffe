//! What a window did so far.

use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a window did so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counts {
            pub(crate) fn statistics(&self) -> Statistics {
                Statistics { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Accesses that found no page.
    misses,
    /// Pages that were fetched because of a miss on another.
    ahead,
    /// Pages that came from home.
    fetched,
    /// Pages that a release found stored to.
    dirty,
    /// Bytes that a release sent, which are those that had changed.
    sent,
    /// Writes that they took.
    writes,
    /// Pages that an acquire compared with their versions at home.
    checked,
    /// Pages of them that home had changed.
    merged,
    /// Bytes that were written here and at home between two releases, and are home's now.
    conflicts,
    /// Pages that were taken away to make room.
    evicted,
    /// Pages that got the pattern, for their home did not answer.
    poisoned,
    /// Stores that were made to the pattern, in bytes; they went nowhere.
    stray,
    /// Pages that a release was begun for that nobody asked for: see [`Triggers`](crate::Triggers).
    triggered,
    /// Raw stores to ranges that are written through.
    trapped,
    /// Writes and changes at home that they took.
    through,
    /// Those that went nowhere, or may come yet, for their home did not answer.
    lost,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Relaxed);
}
