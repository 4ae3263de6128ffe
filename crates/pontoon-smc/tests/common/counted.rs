//! A link whose writes and changes are counted.

use std::{fmt, ops::Range, sync::Arc, thread};

use pontoon_hal::{
    conformance::link::delegate_link,
    link::{Link, LinkError, Registered, Remote},
};
use pontoon_signal::{
    Bound, Seq,
    shim::{AtomicU64, Ordering::Relaxed},
};

/// It counts what is written to pages, and not what is said of their versions.
pub(crate) struct Counted {
    inner: Arc<dyn Link>,
    /// Where pages begin.
    data: usize,
    writes: AtomicU64,
    changes: AtomicU64,
    /// Writes and changes by other threads than those that make stores.
    elsewhere: AtomicU64,
}

impl Counted {
    pub(crate) fn over(inner: &Arc<dyn Link>, data: usize) -> Arc<Self> {
        let (writes, changes, elsewhere) = Default::default();
        Arc::new(Self { inner: Arc::clone(inner), data, writes, changes, elsewhere })
    }

    /// Writes, and changes of words.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.writes.load(Relaxed), self.changes.load(Relaxed))
    }

    pub(crate) fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Relaxed)
    }

    fn note(&self, offset: usize, counter: &AtomicU64) {
        if offset >= self.data {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// The name of a thread is no memory: it may be asked for in a handler.
    fn note_thread(&self) {
        let is_its = thread::current().name() == Some("pontoon-stores");
        self.elsewhere.fetch_add(u64::from(!is_its), Relaxed);
    }
}

impl Link for Counted {
    delegate_link!(inner: name, rank, capabilities, peer_state, end_peer, register, attach);
    delegate_link!(inner: attach_signal, owns, read, write_signal, signal, post_add, fence, flush);
    delegate_link!(inner: completions, moves_by_itself, progress, wait, explain, report);

    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        self.note(offset, &self.writes);
        self.note_thread();
        self.inner.write(from, range, to, offset)
    }

    fn write_inline(&self, bytes: &[u8], to: &Remote, offset: usize) -> Result<Seq, LinkError> {
        self.note(offset, &self.writes);
        self.note_thread();
        self.inner.write_inline(bytes, to, offset)
    }

    fn add(&self, to: &Remote, offset: usize, n: u64, bound: Bound) -> Result<u64, LinkError> {
        self.note(offset, &self.changes);
        self.note_thread();
        self.inner.add(to, offset, n, bound)
    }

    fn compare_swap(
        &self,
        to: &Remote,
        offset: usize,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, LinkError> {
        self.note(offset, &self.changes);
        self.note_thread();
        self.inner.compare_swap(to, offset, expected, new, bound)
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}
