//! Lines that are handed out, used once, and come back.
#![allow(unsafe_code)] // A reference travels with each line: counting it would double the cost.

use alloc::{boxed::Box, sync::Arc};
use core::mem;

use crate::{
    Ending, Host, Load, Os, Rank, Reason, Seq, SignalLine, SignalTable, Slot, SlotId, TableShape,
    line::Claim,
    publisher,
    shim::{AtomicU32, AtomicU64, Ordering::*, sync},
};

/// A fixed number of lines, each handed out for one publish at a time.
///
/// One owner takes, any thread gives back, and neither locks. A line's counter is its generation:
/// a use ends by one count, so whoever still holds the target of an earlier use sees it reached
/// for ever. A use that fails ends its line, which is then retired for good: waits on the targets
/// reached before stay reached, and no later use inherits the ending.
///
/// Publishes here note no time, for reading the clock would take longer than all the rest; what a
/// time-out reports says so. When the pool is dropped, lines that are not handed out end as those
/// of a dropped [`Publisher`](crate::Publisher); the others do when they are given back.
///
/// ```
/// use pontoon_signal::{Bound, LinePool, Rank};
///
/// let mut pool = LinePool::new(Rank(0), 4);
/// let lease = pool.take().expect("four are free");
/// let (waiter, target) = (lease.slot().waiter(), lease.target());
/// let producer = std::thread::spawn(move || lease.complete());
/// waiter.wait_ge_bounded(target, Bound::default())?.acq_fence();
/// # producer.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Invariant N1: each line is in one place: the owner's list, the list of those given back, a
/// lease, or retired. Only who has it writes its `next`; a line given back is on top of the list.
///
/// Invariant N2: a line on either list owns one strong count of `shared`, and a lease has that of
/// its line. So neither taking nor completing changes the count.
#[derive(Debug)]
pub struct LinePool<H: Host = Os> {
    shared: Arc<Shared<H>>,
    /// The owner's own list: its first line, or [`NONE`].
    free: u32,
    free_count: u32,
}

#[derive(Debug)]
struct Shared<H: Host> {
    returned: Returned,
    /// Of each line, the one below it in the list it is on.
    next: Box<[AtomicU32]>,
    retired: AtomicU32,
    table: SignalTable<H>,
    first: SlotId,
}

/// The lines given back since the owner last took them: the top one in bits 0..32, how many in
/// bits 32..64. On a line of its own, since all who give back write it.
#[repr(align(128))]
#[derive(Debug)]
struct Returned(AtomicU64);

/// No line: the end of a list.
const NONE: u32 = u32::MAX;
const EMPTY: u64 = NONE as u64;
/// The pool is gone, and lines that are given back are nobody's.
const CLOSED: u64 = EMPTY - 1;

impl LinePool {
    /// A pool of `lines` lines of the producer `producer`: its slots from 0 on.
    ///
    /// # Panics
    ///
    /// If `lines` is 0, or more than memory can hold.
    pub fn new(producer: Rank, lines: u32) -> Self {
        Self::on(Os, SlotId { producer, slot: 0 }, lines, Seq::new(0))
    }
}

impl<H: Host> LinePool<H> {
    /// A pool of `lines` lines, named `first` and on, whose counters begin at `start`, on a host
    /// of the caller's.
    ///
    /// # Panics
    ///
    /// If `lines` is 0, or more than memory can hold.
    pub fn on(host: H, first: SlotId, lines: u32, start: Seq) -> Self {
        assert!(lines > 0, "a pool needs at least one line");
        assert!(u64::from(lines) <= CLOSED, "a pool has at most 2^32 - 2 lines, not {lines}");
        let shape = TableShape::new(1, lines).first_rank(first.producer).starting_at(start);
        let table = SignalTable::in_process_on(host, shape);
        let below = |line| AtomicU32::new(if line + 1 == lines { NONE } else { line + 1 });
        let next = (0..lines).map(below).collect();
        for line in 0..lines {
            let claimed = publisher::claim(table.line_at(line), first, Claim::Sole);
            claimed.expect("the table is new, and nobody else has it");
        }
        let (returned, retired) = (Returned(AtomicU64::new(EMPTY)), AtomicU32::new(0));
        let shared = Arc::new(Shared { returned, next, retired, table, first });
        for _ in 0..lines {
            mem::forget(Arc::clone(&shared)); // N2: the line's
        }
        Self { shared, free: 0, free_count: lines }
    }

    /// Hands out a line that is free, if there is one. What whoever had it last wrote before
    /// completing is readable to the caller.
    ///
    /// Neither allocates, locks nor makes a system call.
    #[inline]
    pub fn take(&mut self) -> Option<Lease<H>> {
        loop {
            if self.free == NONE && !self.collect(EMPTY) {
                return None;
            }
            let (index, shared) = self.pop();
            let line = shared.table.line_at(index);
            if line.ending().is_some() {
                shared.retire(index, None);
                continue;
            }
            let target = line.value(Load::Native) + 1;
            return Some(Lease { shared, index, target, open: true });
        }
    }

    /// Takes the first line of the owner's list, which must have one, and the count it owns.
    #[inline]
    fn pop(&mut self) -> (u32, Arc<Shared<H>>) {
        let index = self.free;
        self.free = self.shared.next[index as usize].load(Relaxed);
        self.free_count -= 1;
        // SAFETY: N2, the line was on a list and is off it now: its count is the caller's.
        (index, unsafe { Arc::from_raw(Arc::as_ptr(&self.shared)) })
    }

    /// Makes the lines given back the owner's list, which must be empty, and leaves `left` in
    /// their place. Whether there were any.
    #[inline]
    fn collect(&mut self, left: u64) -> bool {
        let returned = &self.shared.returned.0;
        if returned.load(Relaxed) == left {
            return false;
        }
        // SYNC(pool-return) acquire: pairs with `give_back`. The counter, the `next` and the
        // writes of all who gave back are seen: each push goes on with the releases of those
        // below it. The whole list at once: no top can come back between a load and a swap.
        let list = returned.swap(left, sync("pool-return", Acquire));
        (self.free, self.free_count) = (list as u32, (list >> 32) as u32);
        self.free != NONE
    }

    /// How many lines it was made with.
    pub fn lines(&self) -> u32 {
        self.shared.next.len() as u32
    }

    /// How many lines ended and will not be handed out again. One that somebody ended by its
    /// [`Slot`] counts once the pool has come across it.
    pub fn retired(&self) -> u32 {
        self.shared.retired.load(Relaxed)
    }

    /// How many lines are handed out now. One that completes meanwhile may count yet.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        let returned = (self.shared.returned.0.load(Relaxed) >> 32) as u32;
        self.lines() - self.free_count - returned - self.retired()
    }

    /// How the use of a line ended that its lease's [`target`](Lease::target) tells; `None` while
    /// it has not. `line` is what [`Lease::line`] gave. It says nothing of the payload.
    ///
    /// # Panics
    ///
    /// If the pool has no such line.
    pub fn outcome(&self, line: u32, target: Seq) -> Option<Result<(), Ending>> {
        let line = self.shared.table.line_at(line);
        let is_reached = || line.value(Load::Native).is_at_or_past(target);
        if is_reached() {
            return Some(Ok(()));
        }
        let ending = line.ending()?;
        // The publish may have come between the two looks, and then the ending is of a later use.
        Some(if is_reached() { Ok(()) } else { Err(ending) })
    }
}

impl<H: Host> Drop for LinePool<H> {
    fn drop(&mut self) {
        loop {
            while self.free != NONE {
                let (index, shared) = self.pop();
                shared.retire(index, Some(shared.dead()));
            }
            if !self.collect(CLOSED) {
                return;
            }
        }
    }
}

impl<H: Host> Shared<H> {
    /// Puts line `index`, whose entry is `next`, on the list of those given back; `false` if the
    /// pool is gone. After `true` both references may dangle, which those to atomics alone may.
    #[inline]
    fn give_back(returned: &AtomicU64, next: &AtomicU32, index: u32) -> bool {
        let mut top = returned.load(Relaxed);
        while top != CLOSED {
            next.store(top as u32, Relaxed);
            let pushed = ((top >> 32) + 1) << 32 | u64::from(index);
            // SYNC(pool-return) release: pairs with `collect`: the owner sees the line as it was
            // left here. If `top` was taken and came back meanwhile, it still is what is below.
            let order = sync("pool-return", Release);
            match returned.compare_exchange_weak(top, pushed, order, Relaxed) {
                Ok(_) => return true,
                Err(now) => top = now,
            }
        }
        false
    }

    /// Gives a line up for good, ending it with `ending` if nobody has ended it before.
    #[cold]
    fn retire(&self, index: u32, ending: Option<Ending>) {
        self.table.line_at(index).unclaim(ending);
        self.retired.fetch_add(1, Relaxed);
    }

    fn dead(&self) -> Ending {
        Ending::PeerDead { rank: self.first.producer }
    }
}

/// The right and the duty to end one use of a line of a [`LinePool`].
///
/// Dropping it ends the line as aborted with [`Reason::DROPPED`], so that no wait hangs.
///
/// ```compile_fail,E0382
/// # use pontoon_signal::{LinePool, Rank};
/// # let mut pool = LinePool::new(Rank(0), 1);
/// let lease = pool.take().unwrap();
/// lease.complete();
/// lease.complete(); // does not compile
/// ```
#[must_use = "dropped, it ends the line without success"]
#[derive(Debug)]
pub struct Lease<H: Host = Os> {
    shared: Arc<Shared<H>>,
    index: u32,
    target: Seq,
    open: bool,
}

impl<H: Host> Lease<H> {
    /// The slot, to be waited on anywhere in this process. Waits for it mean this use by
    /// [`target`](Self::target); ending it ends whichever use the line is at.
    pub fn slot(&self) -> Slot<H> {
        self.shared.table.slot_at(self.index, self.id())
    }

    /// Which slot it is.
    pub fn id(&self) -> SlotId {
        let first = self.shared.first;
        SlotId { slot: first.slot.wrapping_add(self.index), ..first }
    }

    /// Which line of its pool it is, counted from 0.
    #[inline]
    pub fn line(&self) -> u32 {
        self.index
    }

    /// What completing moves the counter to: the generation of this use.
    #[inline]
    pub fn target(&self) -> Seq {
        self.target
    }

    /// Makes all earlier writes of this thread visible at system scope, moves the counter to the
    /// target and gives the line back. Gives the target.
    ///
    /// Neither allocates nor locks; makes a system call only if a waiter sleeps.
    #[inline]
    pub fn complete(mut self) -> Seq {
        self.open = false;
        let line = self.line_ref();
        line.publish_sole(self.target);
        line.park().notify();
        line.note_publish_sole(line.publishes().wrapping_add(1), None);
        let (target, next) = (self.target, &self.shared.next[self.index as usize]);
        if Shared::<H>::give_back(&self.shared.returned.0, next, self.index) {
            mem::forget(self); // N2: the count is the line's again
        } else {
            self.shared.retire(self.index, Some(self.shared.dead()));
        }
        target
    }

    /// Ends the line with `ending`: waits for the target fail at once. Whether this was the first
    /// ending; one that somebody wrote by the [`Slot`] before stays.
    pub fn fail(mut self, ending: Ending) -> bool {
        self.give_up(ending)
    }

    fn give_up(&mut self, ending: Ending) -> bool {
        self.open = false;
        let first = self.line_ref().end(ending);
        if first {
            self.line_ref().park().notify();
        }
        self.shared.retire(self.index, None);
        first
    }

    #[inline]
    fn line_ref(&self) -> &SignalLine {
        self.shared.table.line_at(self.index)
    }
}

impl<H: Host> Drop for Lease<H> {
    #[inline]
    fn drop(&mut self) {
        if self.open {
            let by = self.shared.first.producer;
            self.give_up(Ending::Aborted { reason: Reason::DROPPED, by });
        }
    }
}
