//! One counter on its own pair of cache lines.

use crate::{
    Ending, Nanos, Rank, Seq,
    park::Park,
    shim::{AtomicU32, AtomicU64, Ordering::*, fence, sync, yield_now},
};

/// A counter with all that a waiter needs to know of it, in 128 bytes that no other counter shares.
///
/// The layout is an ABI: devices and processes of other languages map it. One poll reads `value`
/// and, on a miss, `abort`, which lie side by side. Publishers write; waiters write only `park`,
/// and only when about to sleep.
///
/// Invariant L1: every field is an atomic, so any bytes a foreign writer leaves are a valid line;
/// a line of zeros is a fresh one.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct SignalLine {
    value: AtomicU64,
    abort: AtomicU64,
    producer: AtomicU64,
    pid: AtomicU32,
    claim: AtomicU32,
    aside: Aside,
}

/// What a producer looks at and writes after each publish, on a cache line that nobody polls.
///
/// The polled one is on its way to a waiter by then: a load of it would wait until it is back, some
/// 70 ns from core to core, and a store would take it from the waiter again.
#[repr(C, align(64))]
#[derive(Debug)]
struct Aside {
    park: Park,
    publishes: AtomicU64,
    last_publish: AtomicU64,
}

/// Size of a line in bytes: two 64-byte cache lines, which adjacent-line prefetchers fetch as one.
pub const LINE_BYTES: usize = 128;

#[cfg(not(pontoon_loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<SignalLine>() == LINE_BYTES && align_of::<SignalLine>() == LINE_BYTES);
    assert!(offset_of!(SignalLine, value) == 0);
    assert!(offset_of!(SignalLine, abort) == 8);
    assert!(offset_of!(SignalLine, producer) == 16);
    assert!(offset_of!(SignalLine, pid) == 24);
    assert!(offset_of!(SignalLine, claim) == 28);
    assert!(offset_of!(SignalLine, aside.park) == 64);
    assert!(offset_of!(SignalLine, aside.publishes) == 72);
    assert!(offset_of!(SignalLine, aside.last_publish) == 80);
};

/// Who publishes on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The producer's rank, or a device's number inside one process.
    pub rank: Rank,
    /// How often the line was claimed before: tells a restarted producer from the one it replaces.
    pub generation: u32,
    /// The process that claimed the line.
    pub pid: u32,
}

/// How a device that polls this line reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// By a 64-bit atomic load.
    #[default]
    Native,
    /// By a compare-and-swap of zero for zero: for devices with atomic updates but no atomic load.
    /// It needs write access and takes the line from its publisher at every poll.
    CompareSwap,
}

const FREE: u32 = 0;
const SOLE: u32 = 1;
/// Somebody is taking or leaving the line: it is about to be something else.
const CHANGING: u32 = 2;
/// With the number of producers in the lower bits.
const SHARED: u32 = 1 << 31;
const LAST_SHARED: u32 = SHARED | 1;
/// So many share it, or a foreign process says so, that nobody knows who is the last: only an eviction
/// frees it.
const UNCOUNTED: u32 = u32::MAX;

/// How often a claim looks again at a line that is changing hands: some milliseconds, in which
/// only a process that was killed there does not come to an end.
const CHANGE_LOOKS: u32 = 10_000;

/// How to claim a line.
#[derive(Clone, Copy)]
pub(crate) enum Claim {
    Sole,
    Shared,
}

impl SignalLine {
    /// A line that nobody has claimed yet, with its counter at `start`.
    pub fn new(start: Seq) -> Self {
        // First, for loom: its acquire fence goes over the atomics in the order of their creation
        // and takes what an earlier one brought for read by itself, which would hide a missing
        // order between those who leave.
        let claim = AtomicU32::new(FREE);
        Self {
            value: AtomicU64::new(start.get()),
            abort: AtomicU64::new(0),
            producer: AtomicU64::new(0),
            pid: AtomicU32::new(0),
            claim,
            aside: Aside {
                park: Park::new(),
                publishes: AtomicU64::new(0),
                last_publish: AtomicU64::new(0),
            },
        }
    }

    /// Moves a line that nobody uses yet to `start`.
    #[cfg(not(pontoon_loom))]
    pub(crate) fn start_at(&self, start: Seq) {
        self.value.store(start.get(), Relaxed);
    }

    /// The counter now. Says nothing of the payload: only a wait and its fence do.
    #[inline]
    pub fn value(&self, load: Load) -> Seq {
        let value = match load {
            Load::Native => self.value.load(Relaxed),
            Load::CompareSwap => match self.value.compare_exchange(0, 0, Relaxed, Relaxed) {
                Ok(value) | Err(value) => value,
            },
        };
        Seq::new(value)
    }

    /// Where its sleepers announce themselves.
    #[inline]
    pub(crate) fn park(&self) -> &Park {
        &self.aside.park
    }

    /// The bare counter word, for comparisons with a protocol-free ping-pong.
    #[doc(hidden)]
    pub fn word(&self) -> &AtomicU64 {
        &self.value
    }

    /// Announces by one store: for a line with one producer, whose last value was `value - n`.
    #[inline]
    pub(crate) fn publish_sole(&self, value: Seq) {
        // SYNC(slot-publish) release: all that the producer wrote before is visible to whoever
        // sees `value` and then fences. A store, not an add: nobody else publishes here.
        self.value.store(value.get(), sync("slot-publish", Release));
    }

    /// Announces by one add: for a line with several producers. Gives the counter after it.
    #[inline]
    pub(crate) fn publish_shared(&self, n: u32) -> Seq {
        // SYNC(slot-add) release: pairs with the waiter's fence. An add, not a store: two
        // producers may race, and the add of one continues the other's release sequence.
        let before = self.value.fetch_add(u64::from(n), sync("slot-add", Release));
        Seq::new(before) + n
    }

    /// Notes who published last and when, for diagnosis only: nothing is ordered by it.
    #[inline]
    pub(crate) fn note_publish_sole(&self, publishes: u64, at: Option<Nanos>) {
        self.aside.publishes.store(publishes, Relaxed);
        if let Some(at) = at {
            self.note_time(at);
        }
    }

    /// As [`note_publish_sole`](Self::note_publish_sole), where others publish too.
    #[inline]
    pub(crate) fn note_publish_shared(&self, at: Option<Nanos>) {
        self.aside.publishes.fetch_add(1, Relaxed);
        if let Some(at) = at {
            self.note_time(at);
        }
    }

    /// Notes the time of a publish.
    #[inline]
    pub(crate) fn note_time(&self, at: Nanos) {
        // Zero means never; a virtual clock may stand there.
        self.aside.last_publish.store(at.0.max(1), Relaxed);
    }

    /// Makes the producer's writes before the observed value visible to the caller.
    #[inline]
    pub(crate) fn acquire() {
        // SYNC(slot-publish) acquire: pairs with `publish_sole`, whose value a relaxed poll saw.
        // SYNC(slot-add) acquire: pairs with `publish_shared`, likewise.
        fence(sync("slot-publish", Acquire));
    }

    /// Ends the line: it will not grow again. Whether this was the first ending.
    pub(crate) fn end(&self, ending: Ending) -> bool {
        // SYNC(slot-abort) release: what the ender recorded about the fault before is visible to
        // whoever sees the ending. A swap from zero: the first ending stays.
        let order = sync("slot-abort", Release);
        self.abort.compare_exchange(0, ending.encode(), order, Relaxed).is_ok()
    }

    /// Whether the line ended, and why. One relaxed load while it has not.
    #[inline]
    pub fn ending(&self) -> Option<Ending> {
        let word = self.abort.load(Relaxed);
        if word == 0 {
            return None;
        }
        // SYNC(slot-abort) acquire: pairs with `end`.
        fence(sync("slot-abort", Acquire));
        Ending::decode(word)
    }

    /// Ends the line for a producer that is dead, and frees it, if process `pid` has it or nobody:
    /// whoever succeeds it can then have the line. Whether there was a claim.
    ///
    /// A claim of another process is a successor's, and is left as it is. Between the claim's end and
    /// the freeing nobody can claim the line, so that the ending never reaches a successor.
    pub(crate) fn evict(&self, pid: u32, ending: Ending) -> bool {
        for _ in 0..CHANGE_LOOKS {
            // SYNC(slot-claim) acquire: pairs with `open`: the pid is the one of this claim.
            let found = self.claim.load(sync("slot-claim", Acquire));
            if found == CHANGING {
                yield_now();
                continue;
            }
            if found != FREE && self.pid.load(Relaxed) != pid {
                return false;
            }
            // All that share it at once: they are of the process that is dead.
            if self.claim.compare_exchange(found, CHANGING, Relaxed, Relaxed).is_err() {
                continue;
            }
            self.end_for_all(ending);
            // SYNC(slot-claim) release: pairs with `claim`: a successor takes this ending back.
            let order = sync("slot-claim", Release);
            let _ = self.claim.compare_exchange(CHANGING, FREE, order, Relaxed);
            return found != FREE;
        }
        // Whoever is killed while it takes the line has not written its name yet: its claim stays, and
        // those who wait are told.
        self.end_for_all(ending);
        false
    }

    fn end_for_all(&self, ending: Ending) {
        if self.end(ending) {
            self.park().notify();
        }
    }

    /// Who publishes here, or `None` before the first claim.
    pub fn producer(&self) -> Option<Producer> {
        let word = self.producer.load(Relaxed);
        let generation = (word >> 32) as u32;
        let pid = self.pid.load(Relaxed);
        // A claim makes the generation 1 or more.
        (generation != 0).then_some(Producer { rank: Rank(word as u32), generation, pid })
    }

    /// How many publishes there were, over all generations.
    pub fn publishes(&self) -> u64 {
        self.aside.publishes.load(Relaxed)
    }

    /// When the last publish was, or `None` if there was none.
    pub fn last_publish(&self) -> Option<Nanos> {
        match self.aside.last_publish.load(Relaxed) {
            0 => None,
            at => Some(Nanos(at)),
        }
    }

    /// Takes the line for `rank`, or joins those who share it; `Err` names who has it.
    pub(crate) fn claim(&self, rank: Rank, pid: u32, claim: Claim) -> Result<(), Producer> {
        // SYNC(slot-claim) acquire: pairs with `unclaim` and `open`: the new producer goes on from
        // the last value of the one before, and who joins finds the line opened.
        let order = sync("slot-claim", Acquire);
        for _ in 0..CHANGE_LOOKS {
            let found = self.claim.fetch_update(order, Relaxed, |now| match (now, claim) {
                (FREE, _) => Some(CHANGING),
                (SHARED.., Claim::Shared) => now.checked_add(1),
                _ => None,
            });
            match found {
                Ok(FREE) => {
                    self.open(rank, pid, claim);
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(CHANGING) => yield_now(),
                Err(_) => break,
            }
        }
        let nobody = Producer { rank, generation: 0, pid: 0 };
        Err(self.producer().unwrap_or(nobody))
    }

    /// Begins the next generation of a line that the caller just took. Only here is an ending
    /// taken back: who joins a shared line must not undo one that came meanwhile.
    fn open(&self, rank: Rank, pid: u32, claim: Claim) {
        let generation = (self.producer.load(Relaxed) >> 32) as u32;
        let next = generation.wrapping_add(1).max(1);
        self.abort.store(0, Relaxed);
        self.producer.store(u64::from(next) << 32 | u64::from(rank.0), Relaxed);
        self.pid.store(pid, Relaxed);
        let opened = match claim {
            Claim::Sole => SOLE,
            Claim::Shared => LAST_SHARED,
        };
        // SYNC(slot-claim) release: pairs with the `claim` of those who join.
        self.claim.store(opened, sync("slot-claim", Release));
    }

    /// Counts one more producer on a line that the caller shares already.
    pub(crate) fn join(&self) {
        let _ = self.claim.fetch_update(Relaxed, Relaxed, |now| now.checked_add(1));
    }

    /// Gives up one claim; with `ending`, the last producer to leave ends the line.
    ///
    /// Between its leaving and its freeing the line nobody can claim it, so an ending never
    /// reaches a successor.
    pub(crate) fn unclaim(&self, ending: Option<Ending>) {
        // SYNC(slot-claim) release: pairs with `claim`. Updates, not stores: each continues the
        // release sequence of the producers that left before.
        // SYNC(slot-claim) acquire: pairs with the others' leaving, so that the ending of the last
        // brings along what all of them published.
        let order = sync("slot-claim", AcqRel);
        let left = self.claim.fetch_update(order, Relaxed, |now| match now {
            UNCOUNTED => Some(UNCOUNTED),
            _ if now > LAST_SHARED => Some(now - 1),
            _ => Some(CHANGING),
        });
        if matches!(left, Ok(now) if now > LAST_SHARED) {
            return;
        }
        if let Some(ending) = ending {
            self.end_for_all(ending);
        }
        let _ = self.claim.compare_exchange(CHANGING, FREE, order, Relaxed);
    }
}
