//! What is under way to a peer: numbers of operations and of messages, and what is waited for.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use pontoon_hal::link::Registered;
use pontoon_signal::{Ending, Seq, SharedPublisher, Slot};

use super::key::Stretch;

/// Operations on a peer that may be under way.
pub(crate) const DEPTH: u32 = 1024;

/// What is under way to a peer.
///
/// Invariant F1: `parts` has an entry for each operation from `done + 1` to `posted`, which says how many
/// messages and answers of it are still to come, and the first is not zero. F2: the completions stand at
/// `done`. F3: after the peer's end nothing more is taken in hand, and the completions end once nothing is: only then
/// are the bytes of what was under way their owner's again.
#[derive(Debug)]
pub(crate) struct Flight {
    posted: u64,
    done: u64,
    parts: VecDeque<u32>,
    completions: SharedPublisher,
    bytes: u64,
    /// Messages numbered so far.
    messages: u64,
    reads: BTreeMap<u64, Reading>,
    adds: BTreeMap<u64, Adding>,
    asked: BTreeMap<u64, Asked>,
    /// What UCX may still touch: sends it has not ended, and fetches into memory here.
    in_hand: u64,
    /// How the completions end, once the peer has.
    gone: Option<(Slot, Ending)>,
    /// Answers that came when nobody waited any more.
    late: u64,
    /// Of the writes that the peer refused, how many were told.
    refusals_told: u64,
}

/// A read under way.
#[derive(Debug)]
struct Reading {
    operation: Seq,
    into: Stretch,
    /// Keeps the registration, as the bytes belong to the link.
    _keep: Registered,
    landing: bool,
}

/// An addition whose answer nobody waits for.
#[derive(Debug)]
pub(crate) struct Adding {
    pub(crate) operation: Seq,
    /// Where the word is in the peer's region.
    pub(crate) offset: usize,
    /// Where its old value goes, with the registration: the bytes belong to the link.
    pub(crate) reply: Option<(Stretch, Registered)>,
}

/// What a peer that has ended will never bring.
pub(crate) struct Forsaken {
    _reads: BTreeMap<u64, Reading>,
    _adds: BTreeMap<u64, Adding>,
}

/// A question that the peer answers.
#[derive(Debug)]
struct Asked {
    /// The operation that it is, if it has a number.
    operation: Option<Seq>,
    /// Whether somebody waits.
    wanted: bool,
    answer: Option<Answer>,
}

/// How a peer answers. As flags of a header.
///
/// ```text
///               first          second       nonce         offset
///   0 Done      what was there refusals     –             –
///   1 Unknown   –              –            –             –            no such region, or range
///   2 Taken     rank           generation   pid           –            of whom the slot is
///   3 NoSlot    first rank     producers    slots         –            of the table
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: u8,
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) third: u64,
}

impl Answer {
    pub(crate) const DONE: u8 = 0;
    pub(crate) const UNKNOWN: u8 = 1;
    pub(crate) const TAKEN: u8 = 2;
    pub(crate) const NO_SLOT: u8 = 3;

    pub(crate) fn done(first: u64, second: u64) -> Self {
        Self { code: Self::DONE, first, second, third: 0 }
    }

    pub(crate) fn refused(code: u8) -> Self {
        Self { code, first: 0, second: 0, third: 0 }
    }
}

impl Flight {
    pub(crate) fn new(completions: SharedPublisher) -> Self {
        Self {
            posted: 0,
            done: 0,
            parts: VecDeque::new(),
            completions,
            bytes: 0,
            messages: 0,
            reads: BTreeMap::new(),
            adds: BTreeMap::new(),
            asked: BTreeMap::new(),
            in_hand: 0,
            gone: None,
            late: 0,
            refusals_told: 0,
        }
    }

    /// Operations posted, and done on this side.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.posted, self.done)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much UCX may still touch.
    pub(crate) fn in_hand(&self) -> u64 {
        self.in_hand
    }

    /// UCX is about to be given so many messages. Whether it may be (F3).
    #[must_use]
    pub(crate) fn take(&mut self, messages: u64) -> bool {
        if self.gone.is_some() {
            return false;
        }
        self.in_hand += messages;
        true
    }

    /// UCX has done with so many messages.
    pub(crate) fn let_go(&mut self, messages: u64) {
        debug_assert!(messages <= self.in_hand, "what was let go was in hand");
        self.in_hand = self.in_hand.saturating_sub(messages);
        self.end_if_free();
    }

    /// The peer has ended (F3). What is asked for and will never come is to be dropped without the lock.
    pub(crate) fn end(&mut self, completions: Slot, ending: Ending) -> Forsaken {
        self.gone = Some((completions, ending));
        self.end_if_free();
        let (landing, reads) =
            mem::take(&mut self.reads).into_iter().partition(|(_, reading)| reading.landing);
        self.reads = landing;
        Forsaken { _reads: reads, _adds: mem::take(&mut self.adds) }
    }

    fn end_if_free(&self) {
        if let (0, Some((completions, ending))) = (self.in_hand, &self.gone) {
            completions.end(*ending);
        }
    }

    /// Begins an operation of so many messages and answers; `None` if there is no room.
    pub(crate) fn begin(&mut self, parts: u32, bytes: usize) -> Option<Seq> {
        if self.posted - self.done >= u64::from(DEPTH) {
            return None;
        }
        self.posted += 1;
        self.bytes = self.bytes.wrapping_add(bytes as u64);
        self.parts.push_back(parts);
        Some(Seq::new(self.posted))
    }

    /// The number of the next message.
    pub(crate) fn next_message(&mut self) -> u64 {
        self.messages += 1;
        self.messages
    }

    /// So many messages or answers of `operation` are over.
    pub(crate) fn over(&mut self, operation: Seq, parts: u32) {
        let at = operation.get().checked_sub(self.done + 1);
        let Some(left) = at.and_then(|at| self.parts.get_mut(at as usize)) else { return };
        *left = left.saturating_sub(parts);
        let mut over = 0;
        while self.parts.front() == Some(&0) {
            self.parts.pop_front();
            over += 1;
        }
        if over > 0 {
            self.done += u64::from(over);
            self.completions.pub_release(over);
        }
    }

    /// A read that message `number` asks for.
    pub(crate) fn read(&mut self, number: u64, operation: Seq, into: Stretch, keep: Registered) {
        self.reads.insert(number, Reading { operation, into, _keep: keep, landing: false });
    }

    /// Where `bytes` bytes go that answer message `number`; `None` if nobody asked for so many.
    pub(crate) fn landing(&mut self, number: u64, bytes: usize) -> Option<Stretch> {
        let reading = self.reads.get_mut(&number)?;
        if reading.landing || reading.into.bytes != bytes || self.gone.is_some() {
            return None;
        }
        reading.landing = true;
        self.in_hand += 1;
        Some(reading.into.clone())
    }

    /// Ends a read whose bytes came, or never will. What it held is to be dropped without the lock.
    pub(crate) fn landed(&mut self, number: u64, whole: bool) -> Option<Registered> {
        let reading = self.reads.remove(&number)?;
        if whole {
            self.over(reading.operation, 1);
        }
        self.let_go(u64::from(reading.landing));
        Some(reading._keep)
    }

    /// Whether message `number` asked for a read.
    pub(crate) fn is_read(&self, number: u64) -> bool {
        self.reads.contains_key(&number)
    }

    /// An addition that message `number` asks for.
    pub(crate) fn add(&mut self, number: u64, adding: Adding) {
        self.adds.insert(number, adding);
    }

    /// The addition that message `number` asked for, if it did. It is to be dropped without the lock.
    pub(crate) fn take_add(&mut self, number: u64) -> Option<Adding> {
        self.adds.remove(&number)
    }

    /// A question that message `number` asks.
    pub(crate) fn ask(&mut self, number: u64, operation: Option<Seq>) {
        self.asked.insert(number, Asked { operation, wanted: true, answer: None });
    }

    /// The answer to message `number` has come.
    pub(crate) fn answered(&mut self, number: u64, answer: Answer) {
        let Some(asked) = self.asked.get_mut(&number) else {
            self.late += 1;
            return;
        };
        let operation = asked.operation;
        if asked.wanted {
            asked.answer = Some(answer);
        } else {
            self.late += 1;
            self.asked.remove(&number);
        }
        if let Some(operation) = operation {
            self.over(operation, 1);
        }
    }

    /// The answer to message `number`, once.
    pub(crate) fn take_answer(&mut self, number: u64) -> Option<Answer> {
        let answer = self.asked.get(&number)?.answer?;
        self.asked.remove(&number);
        Some(answer)
    }

    /// Nobody waits for the answer to message `number` any more.
    pub(crate) fn give_up(&mut self, number: u64) {
        let forgotten = self.asked.get_mut(&number).is_some_and(|asked| {
            asked.wanted = false;
            // A question that is an operation is under way until its answer.
            asked.answer.is_some() || asked.operation.is_none()
        });
        if forgotten {
            self.asked.remove(&number);
        }
    }

    /// Whether the peer refused writes that were not told of yet, of so many that it has refused.
    pub(crate) fn tell_refusals(&mut self, refused: u64) -> bool {
        let news = refused != self.refusals_told;
        self.refusals_told = refused;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, DEPTH, Flight};
    use pontoon_signal::{Ending, Seq, SignalTable, Slot, SlotId, TableShape};

    fn flight() -> (Flight, Slot) {
        let table = SignalTable::in_process(TableShape::new(1, 1));
        let slot = SlotId::new(0, 0);
        (Flight::new(table.shared_publisher(slot).unwrap()), table.slot(slot).unwrap())
    }

    #[test]
    fn completions_go_in_the_order_of_the_numbers() {
        let (mut flight, completions) = flight();
        let numbers: Vec<Seq> = [1, 2, 1].map(|parts| flight.begin(parts, 8).unwrap()).into();
        assert_eq!(numbers, [1, 2, 3].map(Seq::new));
        for (number, stands_at) in [(3, 0), (2, 0), (1, 1), (2, 3)] {
            flight.over(Seq::new(number), 1);
            assert_eq!(completions.value(), Seq::new(stands_at), "after a part of {number}");
        }
        assert_eq!((flight.counts(), flight.bytes()), ((3, 3), 24));
        // What is over is so once.
        flight.over(Seq::new(2), 1);
        assert_eq!(completions.value(), Seq::new(3));
    }

    /// F3.
    #[test]
    fn completions_end_once_nothing_is_in_hand() {
        let (mut flight, completions) = flight();
        let number = flight.begin(2, 8).unwrap();
        assert!(flight.take(2));
        let ending = Ending::LinkFailed { code: -5 };
        let _ = flight.end(completions.clone(), ending);
        assert!(!flight.take(1), "after the end");
        assert_eq!((completions.ending(), flight.in_hand()), (None, 2));
        flight.let_go(1);
        assert_eq!(completions.ending(), None);
        // What came to its end is told before.
        flight.over(number, 2);
        flight.let_go(1);
        assert_eq!((completions.ending(), completions.value()), (Some(ending), Seq::new(1)));
        let (mut flight, completions) = self::flight();
        let _ = flight.end(completions.clone(), ending);
        assert_eq!(completions.ending(), Some(ending));
    }

    #[test]
    fn no_more_than_the_depth_is_under_way() {
        let (mut flight, _completions) = flight();
        for _ in 0..DEPTH {
            assert!(flight.begin(1, 0).is_some());
        }
        assert_eq!(flight.begin(1, 0), None);
        flight.over(Seq::new(1), 1);
        assert_eq!(flight.begin(1, 0), Some(Seq::new(u64::from(DEPTH) + 1)));
    }

    #[test]
    fn an_answer_that_nobody_waits_for_ends_its_operation_only() {
        let (mut flight, completions) = flight();
        let (first, answer) = (flight.begin(1, 8).unwrap(), Answer::done(7, 0));
        flight.ask(1, Some(first));
        flight.give_up(1);
        assert_eq!((flight.take_answer(1), completions.value()), (None, Seq::new(0)));
        flight.answered(1, answer);
        assert_eq!((flight.take_answer(1), completions.value(), flight.late), (None, first, 1));
        flight.ask(2, None);
        flight.answered(2, answer);
        assert_eq!((flight.take_answer(2), flight.take_answer(2)), (Some(answer), None));
        flight.answered(2, answer);
        assert_eq!(flight.late, 2);
    }
}
