//! Which pages are resident, in which slots: tables whose size is that of the pool, whatever that of the
//! windows.
//!
//! ```text
//!  bucket:  lock | 7 entries of  page + 1 << 24 | slot      (one cache line)
//!  slot:    state | page | version | next free, or home     (32 bytes)
//! ```
//!
//! - T1: a page has one entry at most: entries come and go under their bucket's lock, which nobody holds
//!   for longer than it takes to look at seven words, nobody while he touches a window, and nobody on a thread that
//!   a handler of the program's may interrupt there ([`undisturbed`](pontoon_signal::undisturbed)).
//! - T2: what is done with a slot is for whoever turned its state from *resident* to *busy* or *leaving*, or took
//!   it from the free ones. All others look on.
//! - T3: an entry goes before its slot is free, so who finds an entry and then a slot with that page has found it.

mod page;

pub use page::{Claim, PageId, SlotIndex, State, Version};

use pontoon_signal::{
    Seq, SystemError, Words,
    shim::{AtomicU64, Ordering::*, spin_loop, sync, yield_now},
};

/// Entries of a bucket.
const WAYS: usize = 7;
/// Words of a bucket: its lock and its entries.
const BUCKET: usize = 8;
/// Slots for each bucket, on average: then few buckets are ever full.
const LOAD: usize = 2;
const SLOT_BITS: u32 = 24;
/// Words of a slot.
const WORDS: usize = 4;
const STATE: usize = 0;
const PAGE: usize = 1;
const VERSION: usize = 2;
const NEXT: usize = 3;
/// The most slots that there can be.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Looks at a lock before the processor is given away.
const LOOKS: u32 = 100;
/// Looks at a lock before somebody who may do without gives up: of a thread that does not get a processor.
const LOOKS_MAX: u32 = 100_000;

/// The tables of a pool.
#[derive(Debug)]
pub struct Table {
    buckets: Words,
    count: usize,
    slots: Words,
    len: usize,
    /// The first free slot, plus one, below a number that changes each time.
    free: AtomicU64,
    free_count: AtomicU64,
    /// How many slots are *poisoned*, and *stuck*: one more at most while they become or cease to be so.
    poisoned_count: AtomicU64,
    stuck_count: AtomicU64,
}

impl Table {
    /// Tables for so many slots, all free.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn new(len: usize) -> Result<Self, SystemError> {
        let len = len.clamp(1, SLOTS_MAX);
        // Odd, so that pages a power of two apart are spread over all buckets.
        let count = (len / LOAD).max(1) | 1;
        let buckets = Words::zeroed(count * BUCKET)?;
        let slots = Words::zeroed(len * WORDS)?;
        let [free, free_count, poisoned_count, stuck_count] = [0; 4].map(AtomicU64::new);
        let table =
            Self { buckets, count, slots, len, free, free_count, poisoned_count, stuck_count };
        for slot in (0..len).rev() {
            table.push_free(SlotIndex(slot));
        }
        Ok(table)
    }

    /// How many slots there are.
    #[expect(clippy::len_without_is_empty, reason = "it has one at least")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many slots are free, more or less while others take and give.
    pub fn free(&self) -> usize {
        self.free_count.load(Relaxed) as usize
    }

    /// The slots that are *poisoned*, as they are just now. If there are none, none is looked at.
    pub fn poisoned(&self) -> impl Iterator<Item = SlotIndex> + '_ {
        self.those(State::Poisoned, &self.poisoned_count)
    }

    /// The slots that are *stuck*, in the same way.
    pub fn stuck(&self) -> impl Iterator<Item = SlotIndex> + '_ {
        self.those(State::Stuck, &self.stuck_count)
    }

    fn those(&self, state: State, count: &AtomicU64) -> impl Iterator<Item = SlotIndex> + '_ {
        let len = if count.load(Relaxed) == 0 { 0 } else { self.len };
        (0..len).map(SlotIndex).filter(move |&slot| self.state(slot) == state)
    }

    /// Bytes of the tables.
    pub fn bytes(&self) -> usize {
        (self.buckets.len() + self.slots.len()) * 8
    }

    fn bucket(&self, id: PageId) -> &[AtomicU64] {
        // Windows begin apart, so that the first pages of many do not meet.
        let spread = id.page() + id.window() * 0x9E37_79B1;
        let at = spread % self.count * BUCKET;
        &self.buckets[at..at + BUCKET]
    }

    fn word(&self, slot: SlotIndex, word: usize) -> &AtomicU64 {
        &self.slots[slot.0 * WORDS + word]
    }

    /// The slot of a page. It may be another's when this returns: see [`is_of`](Self::is_of).
    pub fn find(&self, id: PageId) -> Option<SlotIndex> {
        let entries = &self.bucket(id)[1..];
        entries.iter().find_map(|entry| Self::slot_of(entry.load(Relaxed), id))
    }

    fn slot_of(entry: u64, id: PageId) -> Option<SlotIndex> {
        let is_it = entry >> SLOT_BITS == id.0 + 1;
        is_it.then_some(SlotIndex((entry & (SLOTS_MAX as u64 - 1)) as usize))
    }

    /// The slot of a page, or a free one for it, which is then *fetching*.
    pub fn claim(&self, id: PageId) -> Claim {
        if let Some(slot) = self.find(id) {
            return Claim::Found(slot);
        }
        let Some(slot) = self.pop_free() else { return Claim::NoSlot };
        let bucket = self.bucket(id);
        let Some(_locked) = Locked::tried(&bucket[0]) else {
            self.push_free(slot);
            return Claim::Locked;
        };
        let mut room = None;
        for entry in &bucket[1..=WAYS] {
            let value = entry.load(Relaxed);
            if let Some(found) = Self::slot_of(value, id) {
                self.push_free(slot);
                return Claim::Found(found);
            }
            if value == 0 {
                room = room.or(Some(entry));
            }
        }
        let Some(room) = room else {
            self.push_free(slot);
            return Claim::Crowded;
        };
        self.word(slot, PAGE).store(id.0, Relaxed);
        self.word(slot, VERSION).store(0, Relaxed);
        // T2: who finds the entry does nothing with the slot before its state has turned.
        self.word(slot, STATE).store(State::Fetching as u64, Relaxed);
        room.store((id.0 + 1) << SLOT_BITS | slot.0 as u64, Relaxed);
        Claim::Mine(slot)
    }

    /// The slots of the pages in the bucket of `id`, as they are just now.
    pub fn beside(&self, id: PageId) -> impl Iterator<Item = SlotIndex> + '_ {
        let entries = self.bucket(id)[1..=WAYS].iter().map(|entry| entry.load(Relaxed));
        let slots = entries.filter(|&entry| entry != 0).map(|entry| entry & (SLOTS_MAX as u64 - 1));
        slots.map(|slot| SlotIndex(slot as usize))
    }

    /// T3: removes a page's entry. The slot stays the caller's.
    pub fn forget(&self, id: PageId, slot: SlotIndex) {
        let bucket = self.bucket(id);
        let _locked = Locked::of(&bucket[0]);
        for entry in &bucket[1..=WAYS] {
            if Self::slot_of(entry.load(Relaxed), id) == Some(slot) {
                entry.store(0, Relaxed);
            }
        }
    }

    /// Gives a slot back whose page was forgotten.
    pub fn give_back(&self, slot: SlotIndex) {
        let was = self.state(slot);
        self.word(slot, STATE).store(State::Free as u64, Relaxed);
        if let Some(count) = self.count_of(was) {
            count.fetch_sub(1, Relaxed);
        }
        self.push_free(slot);
    }

    fn count_of(&self, state: State) -> Option<&AtomicU64> {
        match state {
            State::Poisoned => Some(&self.poisoned_count),
            State::Stuck => Some(&self.stuck_count),
            _ => None,
        }
    }

    /// What a slot was just now; who does anything by it turns it.
    pub fn state(&self, slot: SlotIndex) -> State {
        State::of(self.word(slot, STATE).load(Relaxed))
    }

    /// Whether it is the slot of that page.
    pub fn is_of(&self, slot: SlotIndex, id: PageId) -> bool {
        self.word(slot, PAGE).load(Relaxed) == id.0
    }

    /// The page that a slot is or was last of.
    pub fn page(&self, slot: SlotIndex) -> PageId {
        PageId(self.word(slot, PAGE).load(Relaxed))
    }

    /// T2: turns a slot of `id` from one state to another, if it is in the one.
    pub fn turn(&self, slot: SlotIndex, id: PageId, from: State, to: State) -> bool {
        let word = self.word(slot, STATE);
        // SYNC(smc-slot) acquire: pairs with set: what the last holder did to the twin is seen.
        let acquire = sync("smc-slot", Acquire);
        if word.compare_exchange(from as u64, to as u64, acquire, Relaxed).is_err() {
            return false;
        }
        if self.is_of(slot, id) {
            if let Some(count) = self.count_of(from) {
                count.fetch_sub(1, Relaxed);
            }
            return true;
        }
        // It was another's by then: as it was.
        self.store(slot, from);
        false
    }

    /// Turns the caller's slot to another state.
    pub fn set(&self, slot: SlotIndex, to: State) {
        if let Some(count) = self.count_of(to) {
            count.fetch_add(1, Relaxed);
        }
        self.store(slot, to);
    }

    fn store(&self, slot: SlotIndex, to: State) {
        // SYNC(smc-slot) release: pairs with turn.
        self.word(slot, STATE).store(to as u64, sync("smc-slot", Release));
    }

    /// Which version of its page a slot holds.
    pub fn version(&self, slot: SlotIndex) -> Version {
        let [number, generation] = [VERSION, NEXT].map(|word| self.word(slot, word).load(Relaxed));
        Version { number, generation }
    }

    /// Notes that of the caller's slot.
    pub fn set_version(&self, slot: SlotIndex, version: Version) {
        self.word(slot, VERSION).store(version.number, Relaxed);
        // It is in no list of free ones.
        self.word(slot, NEXT).store(version.generation, Relaxed);
    }

    /// The holder has said at home that the page has changed, whose version was `before`. If the slot held that one it
    /// holds the next; else somebody else has changed the page too, and it is to be merged.
    pub fn has_announced(&self, slot: SlotIndex, before: Version) {
        if before == self.version(slot) {
            let number = before.number.wrapping_add(1);
            self.set_version(slot, Version { number, ..before });
        }
    }

    /// Notes of a slot that was given up which transfer of which home was late for it.
    pub fn set_late(&self, slot: SlotIndex, number: Seq, generation: u64) {
        self.set_version(slot, Version { number: number.get(), generation });
        self.set(slot, State::Stuck);
    }

    /// What [`set_late`](Self::set_late) noted.
    pub fn late(&self, slot: SlotIndex) -> (Seq, u64) {
        let Version { number, generation } = self.version(slot);
        (Seq::new(number), generation)
    }

    /// All slots.
    pub fn slots(&self) -> impl Iterator<Item = SlotIndex> {
        (0..self.len).map(SlotIndex)
    }

    fn pop_free(&self) -> Option<SlotIndex> {
        // SYNC(smc-free) acquire: pairs with push_free: the next one is what it was when this was pushed.
        let mut head = self.free.load(sync("smc-free", Acquire));
        loop {
            let first = head as u32;
            let slot = SlotIndex((first as usize).checked_sub(1)?);
            let next = self.word(slot, NEXT).load(Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            // The number tells a slot that came back from one that never left.
            // SYNC(smc-free) acquire: pairs with push_free, as above.
            match self.free.compare_exchange(head, new, Relaxed, sync("smc-free", Acquire)) {
                Ok(_) => {
                    self.free_count.fetch_sub(1, Relaxed);
                    return Some(slot);
                }
                Err(now) => head = now,
            }
        }
    }

    fn push_free(&self, slot: SlotIndex) {
        let mut head = self.free.load(Relaxed);
        loop {
            self.word(slot, NEXT).store(head & u64::from(u32::MAX), Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | (slot.0 as u64 + 1);
            // SYNC(smc-free) release: pairs with pop_free: the next one is seen, and all that was done to the slot.
            match self.free.compare_exchange(head, new, sync("smc-free", Release), Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.free_count.fetch_add(1, Relaxed);
    }
}

/// The lock of a bucket.
struct Locked<'b>(&'b AtomicU64);

impl<'b> Locked<'b> {
    /// Whoever has the lock is on its way out of it: T1.
    fn of(lock: &'b AtomicU64) -> Self {
        loop {
            if let Some(locked) = Self::tried(lock) {
                return locked;
            }
        }
    }

    fn tried(lock: &'b AtomicU64) -> Option<Self> {
        for look in 0..LOOKS_MAX {
            // SYNC(smc-bucket) acquire: pairs with the drop: the entries that the last one made are seen.
            if lock.compare_exchange(0, 1, sync("smc-bucket", Acquire), Relaxed).is_ok() {
                return Some(Self(lock));
            }
            if look < LOOKS { spin_loop() } else { yield_now() }
        }
        None
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SYNC(smc-bucket) release: pairs with of.
        self.0.store(0, sync("smc-bucket", Release));
    }
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::{Claim, PageId, SlotIndex, State, Table};
    use std::collections::{HashMap, HashSet};

    #[test]
    fn pages_come_and_go_and_slots_are_never_shared() {
        let table = Table::new(64).unwrap();
        let mut model: HashMap<usize, SlotIndex> = HashMap::new();
        let mut at: usize = 1;
        for _ in 0..20_000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = at >> 40 & 0xFF;
            let id = PageId::new(at >> 60 & 3, page);
            let key = id.0 as usize;
            match (table.claim(id), model.get(&key)) {
                (Claim::Found(slot), Some(known)) => {
                    assert_eq!(slot, *known);
                    assert!(table.is_of(slot, id));
                    if at >> 30 & 1 == 0 {
                        table.forget(id, slot);
                        table.give_back(slot);
                        model.remove(&key);
                    }
                }
                (Claim::Mine(slot), None) => {
                    assert_eq!((table.state(slot), table.page(slot)), (State::Fetching, id));
                    model.insert(key, slot);
                }
                (Claim::NoSlot, None) => {
                    assert_eq!((model.len(), table.free()), (64, 0));
                    for (_, slot) in model.drain() {
                        table.forget(table.page(slot), slot);
                        table.give_back(slot);
                    }
                }
                (Claim::Crowded, None) => {
                    let beside: Vec<_> = table.beside(id).collect();
                    assert_eq!(beside.len(), super::WAYS);
                    let (slot, id) = (beside[at % 7], table.page(beside[at % 7]));
                    assert_eq!(model.remove(&(id.0 as usize)), Some(slot));
                    table.forget(id, slot);
                    table.give_back(slot);
                }
                (claim, known) => panic!("{claim:?} where {known:?} was known"),
            }
            assert_eq!(
                model.values().map(|slot| slot.0).collect::<HashSet<_>>().len(),
                model.len()
            );
            assert_eq!(table.free() + model.len(), 64);
        }
    }

    #[test]
    fn a_state_turns_only_from_what_it_was_and_for_its_page() {
        let table = Table::new(2).unwrap();
        let (id, other) = (PageId::new(3, 17), PageId::new(3, 18));
        assert_eq!((id.window(), id.page()), (3, 17));
        let Claim::Mine(slot) = table.claim(id) else { panic!("there is room") };
        table.set(slot, State::Resident);
        assert!(!table.turn(slot, id, State::Poisoned, State::Busy));
        assert!(!table.turn(slot, other, State::Resident, State::Busy));
        assert_eq!(table.state(slot), State::Resident);
        assert!(table.turn(slot, id, State::Resident, State::Busy));
        assert_eq!(table.state(slot), State::Busy);
    }

    /// Threads that claim the same pages at once have one slot for each.
    #[test]
    fn a_page_is_claimed_once_by_many_threads() {
        let table = Table::new(32).unwrap();
        for round in 0..200 {
            let mine: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let claims = (0..16).map(|page| table.claim(PageId::new(0, page)));
                            claims.filter(|claim| matches!(claim, Claim::Mine(_))).count()
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(mine, 16, "round {round}");
            for page in 0..16 {
                let id = PageId::new(0, page);
                let slot = table.find(id).unwrap();
                table.forget(id, slot);
                table.give_back(slot);
            }
            assert_eq!(table.free(), 32);
        }
    }
}
