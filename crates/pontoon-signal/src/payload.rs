//! A value that is readable only through the signal that announces it.
#![allow(unsafe_code)] // The hand-over cannot be written without a shared cell.

use alloc::sync::Arc;
use core::fmt;

use crate::{
    Acquired, Host, Os, Publisher, Seq,
    shim::{AtomicU32, Ordering::*, UnsafeCell, sync},
    table::LineRef,
};

/// A value announced by the next publish of a slot.
///
/// Invariant P1: `cell` is written only by the one [`Promise`], before it sets `written`, and read
/// only by those who saw `written` set. The proof a reader brings says that the time has come; it
/// cannot be the ground to read memory on, for a proof kept while the counter goes half round, or
/// the counter moved as a bare word, covers a target that is still to be published.
///
/// ```
/// use pontoon_signal::{Bound, SignalTable, SlotId, TableShape};
///
/// let table = SignalTable::in_process(TableShape::new(1, 1));
/// let (slot, bound) = (SlotId::new(0, 0), Bound::default());
/// let (mut publisher, waiter) = (table.publisher(slot)?, table.waiter(slot)?);
/// let (promise, payload) = publisher.promise();
/// promise.publish("a result");
/// let observed = waiter.wait_ge_bounded(payload.target(), bound)?;
/// assert_eq!(payload.read(&observed.acq_fence())?, &"a result");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Without the fence it cannot be read:
///
/// ```compile_fail,E0308
/// # use pontoon_signal::{Bound, SignalTable, SlotId, TableShape};
/// # let table = SignalTable::in_process(TableShape::new(1, 1));
/// # let (slot, bound) = (SlotId::new(0, 0), Bound::default());
/// # let (mut publisher, waiter) = (table.publisher(slot)?, table.waiter(slot)?);
/// # let (promise, payload) = publisher.promise();
/// # promise.publish("a result");
/// let observed = waiter.wait_ge_bounded(payload.target(), bound)?;
/// assert_eq!(payload.read(&observed)?, &"a result");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// And while a promise is open, its publisher publishes nothing else:
///
/// ```compile_fail,E0499
/// # use pontoon_signal::{SignalTable, SlotId, TableShape};
/// # let table = SignalTable::in_process(TableShape::new(1, 1));
/// # let mut publisher = table.publisher(SlotId::new(0, 0)).unwrap();
/// let (promise, payload) = publisher.promise();
/// publisher.pub_release(1);
/// promise.publish("a result");
/// # let _ = payload;
/// ```
#[derive(Debug)]
pub struct Payload<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    cell: UnsafeCell<Option<T>>,
    written: AtomicU32,
    line: LineRef,
    target: Seq,
}

// SAFETY: P1 orders the one write before all reads, and readers get `&T` on their own threads,
// which needs `T: Sync`; the value moves from the producer's thread, which needs `T: Send`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: as for `Sync`; the cell is dropped on whichever thread is last, which needs `T: Send`.
unsafe impl<T: Send + Sync> Send for Shared<T> {}

impl<T> Clone for Payload<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Payload<T> {
    /// The value to wait for.
    pub fn target(&self) -> Seq {
        self.shared.target
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// [`NotAnnounced`] if `proof` is of another slot or short of the target, or if the promise
    /// was dropped and the target published for something else.
    pub fn read<'p>(&'p self, proof: &Acquired<'_>) -> Result<&'p T, NotAnnounced> {
        if !proof.covers(&self.shared.line, self.shared.target) {
            return Err(NotAnnounced);
        }
        // SYNC(payload-written) acquire: pairs with `Promise::publish`.
        if self.shared.written.load(sync("payload-written", Acquire)) == 0 {
            return Err(NotAnnounced);
        }
        self.shared.cell.with(|cell| {
            // SAFETY: P1, the one write is over and visible.
            unsafe { (*cell).as_ref() }.ok_or(NotAnnounced)
        })
    }
}

/// The duty to publish a payload; it holds the publisher until it does.
#[must_use = "a payload is announced only by publish()"]
#[derive(Debug)]
pub struct Promise<'p, T, H: Host = Os> {
    publisher: &'p mut Publisher<H>,
    shared: Arc<Shared<T>>,
}

impl<T, H: Host> Promise<'_, T, H> {
    /// Stores `value` and announces it. Gives the counter after it.
    pub fn publish(self, value: T) -> Seq {
        self.shared.cell.with_mut(|cell| {
            // SAFETY: P1, this call consumes the only promise, and `written` is not set yet.
            unsafe { *cell = Some(value) }
        });
        // SYNC(payload-written) release: pairs with `Payload::read`.
        self.shared.written.store(1, sync("payload-written", Release));
        self.publisher.pub_release(1)
    }
}

impl<H: Host> Publisher<H> {
    /// A payload to be announced by this slot's next publish.
    ///
    /// # Panics
    ///
    /// If the table is shared with other processes: a peer that breaks the protocol could
    /// announce memory that is still being written. Regions carry payload between processes.
    pub fn promise<T>(&mut self) -> (Promise<'_, T, H>, Payload<T>) {
        assert!(self.line().is_private(), "a payload needs a signal table of this process alone");
        let (cell, written) = (UnsafeCell::new(None), AtomicU32::new(0));
        let (line, target) = (self.line().clone(), self.value() + 1);
        let shared = Arc::new(Shared { cell, written, line, target });
        let payload = Payload { shared: Arc::clone(&shared) };
        (Promise { publisher: self, shared }, payload)
    }
}

/// The proof does not cover this payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnnounced;

impl fmt::Display for NotAnnounced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the payload was not announced by what was acquired")
    }
}

impl core::error::Error for NotAnnounced {}
