//! A task: what a kernel asks for, as the words of a ring's entries.
//!
//! ```text
//!           bit 63     62   61..59  58       57..42  41..28  27..0
//!          +--------+------+-------+--------+-------+-------+------+
//!  word 1  | parity | wide | op    | strong | route | n     | bytes|   one slot
//!          +--------+------+-------+--------+-------+-------+------+
//!  word 0  | to: 63..32                     | from: 31..0          |
//!          +--------------------------------+----------------------+
//!
//!           bit 63     62   61..59  58       57..42  41..32  31..0
//!          +--------+------+-------+--------+-------+-------+------+
//!  word 1  | parity | 1    | op    | strong | route | 0     | n    |   the first of four slots
//!          +--------+------+-------+--------+-------+-------+------+
//!  word 0  | from; of the second slot: to; of the third: bytes     |
//!          +-------------------------------------------------------+
//!
//!  op: 0 put, 1 put and signal, 2 signal, 3 get, 4 put a value, 5 add, 6 fetch and add; 7 is none
//! ```
//!
//! A task whose fields fit takes one slot, any other four. Nothing is ever masked: what fits in
//! neither cannot be expressed.

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes bytes of the source to the target.
    Put,
    /// Writes, then grows the route's signal.
    PutSignal,
    /// Grows the route's signal.
    Signal,
    /// Reads bytes of the target into the source.
    Get,
    /// Writes the eight bytes that are the task's `from` to the target.
    PutValue,
    /// Adds the task's `bytes` to a word of the target.
    Add,
    /// The same, and writes what the word was to the source.
    FetchAdd,
}

impl Operation {
    const ALL: [Self; 7] = [
        Self::Put,
        Self::PutSignal,
        Self::Signal,
        Self::Get,
        Self::PutValue,
        Self::Add,
        Self::FetchAdd,
    ];

    const fn code(self) -> u64 {
        self as u64
    }

    fn of_code(code: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// A task. A value: what the numbers mean is the route's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// What to do.
    pub operation: Operation,
    /// Which of the channel's routes it goes by.
    pub route: u16,
    /// Whether its signal vouches for all tasks before it in the ring, or for its own bytes alone.
    pub strong: bool,
    /// How much the signal grows.
    pub n: u32,
    /// Where the bytes begin in the source.
    pub from: u64,
    /// Where they begin in the target.
    pub to: u64,
    /// How many they are; of an addition, the amount.
    pub bytes: u64,
}

/// Slots of a task that fits in one.
pub(crate) const NARROW: usize = 1;
/// Slots of any other.
pub(crate) const WIDE: usize = 4;

const PARITY: u64 = 1 << 63;
const IS_WIDE: u64 = 1 << 62;
const OPERATION_AT: u32 = 59;
const STRONG: u64 = 1 << 58;
const ROUTE_AT: u32 = 42;
const N_AT: u32 = 28;
const N_BITS: u32 = 14;
const BYTES_BITS: u32 = 28;

/// Whether a slot's second word was written in the lap with this parity.
#[inline]
pub(crate) const fn is_of(word: u64, parity: bool) -> bool {
    (word & PARITY != 0) == parity
}

#[inline]
const fn parity_bit(parity: bool) -> u64 {
    if parity { PARITY } else { 0 }
}

/// How many slots the entry takes that begins with this second word.
#[inline]
pub(crate) const fn slots(word: u64) -> usize {
    if word & IS_WIDE == 0 { NARROW } else { WIDE }
}

impl Task {
    /// How many bytes it moves.
    #[cfg(not(pontoon_loom))]
    #[inline]
    pub(crate) const fn moved(&self) -> u64 {
        match self.operation {
            Operation::Add | Operation::FetchAdd => 8,
            _ => self.bytes,
        }
    }

    /// How many slots it takes.
    #[inline]
    pub(crate) const fn slots(&self) -> usize {
        let fits = self.from >> 32 == 0
            && self.to >> 32 == 0
            && self.bytes >> BYTES_BITS == 0
            && self.n >> N_BITS == 0;
        if fits { NARROW } else { WIDE }
    }

    #[inline]
    fn head(&self, parity: bool) -> u64 {
        let strong = if self.strong { STRONG } else { 0 };
        let route = (self.route as u64) << ROUTE_AT;
        parity_bit(parity) | self.operation.code() << OPERATION_AT | strong | route
    }

    /// The two words of its one slot. It has to [fit](Self::slots).
    #[inline]
    pub(crate) fn narrow(&self, parity: bool) -> [u64; 2] {
        let n = u64::from(self.n) << N_AT;
        [self.to << 32 | self.from, self.head(parity) | n | self.bytes]
    }

    /// The words of its four slots.
    pub(crate) fn wide(&self, parities: [bool; WIDE]) -> [[u64; 2]; WIDE] {
        let [first, rest @ ..] = parities;
        let [second, third, fourth] = rest.map(parity_bit);
        let head = self.head(first) | IS_WIDE | u64::from(self.n);
        [[self.from, head], [self.to, second], [self.bytes, third], [0, fourth]]
    }

    /// The task of an entry's words: the second of its first slot, and the first of each. `None` if
    /// nobody of this version wrote it.
    #[inline]
    pub(crate) fn read(head: u64, mut first: impl FnMut(usize) -> u64) -> Option<Self> {
        let operation = Operation::of_code(head >> OPERATION_AT & 7)?;
        let strong = head & STRONG != 0;
        let route = (head >> ROUTE_AT) as u16;
        let task = Self { operation, route, strong, n: 0, from: 0, to: 0, bytes: 0 };
        Some(if slots(head) == NARROW {
            let both = first(0);
            let n = (head >> N_AT) as u32 & ((1 << N_BITS) - 1);
            let bytes = head & ((1 << BYTES_BITS) - 1);
            Self { n, from: both & u64::from(u32::MAX), to: both >> 32, bytes, ..task }
        } else {
            Self { n: head as u32, from: first(0), to: first(1), bytes: first(2), ..task }
        })
    }
}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::{NARROW, Operation, Task, WIDE, is_of, slots};
    use proptest::prelude::*;

    fn any_task() -> impl Strategy<Value = Task> {
        let number = || prop_oneof![any::<u64>(), 0..1_u64 << 32, (0..64_u32).prop_map(|b| 1 << b)];
        let n = prop_oneof![any::<u32>(), 0..3_u32, (0..32_u32).prop_map(|bit| 1 << bit)];
        (0..7_usize, any::<u16>(), any::<bool>(), n, [number(), number(), number()]).prop_map(
            |(operation, route, strong, n, [from, to, bytes])| {
                let operation = Operation::ALL[operation];
                Task { operation, route, strong, n, from, to, bytes }
            },
        )
    }

    proptest! {
        #[test]
        fn a_task_survives_its_words(task in any_task(), parities: [bool; WIDE]) {
            let words = match task.slots() {
                NARROW => vec![task.narrow(parities[0])],
                _ => task.wide(parities).to_vec(),
            };
            prop_assert_eq!(slots(words[0][1]), words.len());
            for (word, parity) in words.iter().zip(parities) {
                prop_assert!(is_of(word[1], parity) && !is_of(word[1], !parity));
            }
            prop_assert_eq!(Task::read(words[0][1], |at| words[at][0]), Some(task));
        }
    }

    #[test]
    fn an_operation_that_is_none_is_no_task() {
        assert_eq!(Task::read(7 << 59, |_| 0), None);
    }
}
