//! Random sequences of operations on a table, against an oracle of a few lines.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{
    Ending, Publisher, Rank, Reason, Seq, SharedPublisher, SignalTable, SlotId, TableShape,
    WaitError, Waiter,
};
use proptest::prelude::*;

const SLOTS: usize = 3;
const SHARERS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Claim,
    Publish(u32),
    /// To so far past the counter; behind it if negative.
    Set(i64),
    Retire,
    Drop,
    /// Of the producer itself.
    End(Ending),
    Share,
    Clone(usize),
    Add(usize, u32),
    RetireShared(usize),
    DropShared(usize),
    /// Of somebody else.
    EndSlot(Ending),
    EndAll(Ending),
    /// For so far past the counter.
    TryWait(i64),
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        (0..=Reason::MAX, any::<u32>()).prop_map(|(code, by)| Ending::Aborted {
            reason: Reason::new(code).expect("in range"),
            by: Rank(by),
        }),
        any::<u32>().prop_map(|rank| Ending::PeerDead { rank: Rank(rank) }),
        any::<i32>().prop_map(|code| Ending::LinkFailed { code }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let n = || prop_oneof![4 => 0u32..4, 1 => Just(u32::MAX)];
    let distance = || prop_oneof![4 => -3i64..4, 1 => any::<i64>()];
    prop_oneof![
        3 => Just(Op::Claim),
        4 => n().prop_map(Op::Publish),
        3 => distance().prop_map(Op::Set),
        1 => Just(Op::Retire),
        1 => Just(Op::Drop),
        1 => ending().prop_map(Op::End),
        3 => Just(Op::Share),
        1 => (0..SHARERS).prop_map(Op::Clone),
        4 => (0..SHARERS, n()).prop_map(|(who, n)| Op::Add(who, n)),
        1 => (0..SHARERS).prop_map(Op::RetireShared),
        2 => (0..SHARERS).prop_map(Op::DropShared),
        1 => ending().prop_map(Op::EndSlot),
        1 => ending().prop_map(Op::EndAll),
        6 => distance().prop_map(Op::TryWait),
    ]
}

/// What a line ought to be.
#[derive(Default)]
struct Oracle {
    value: u64,
    ending: Option<Ending>,
    generation: u32,
    publishes: u64,
    reached: u64,
    ended: u64,
}

impl Oracle {
    fn open(&mut self) {
        self.generation += 1;
        self.ending = None;
    }

    fn end(&mut self, ending: Ending) -> bool {
        let first = self.ending.is_none();
        self.ending.get_or_insert(ending);
        first
    }
}

/// One slot: the real thing, its users, and the oracle.
struct Line {
    slot: SlotId,
    waiter: Waiter,
    sole: Option<Publisher>,
    shared: Vec<SharedPublisher>,
    oracle: Oracle,
}

impl Line {
    fn new(table: &SignalTable, slot: SlotId, start: u64) -> Self {
        let oracle = Oracle { value: start, ..Oracle::default() };
        let waiter = table.waiter(slot).unwrap();
        Self { slot, waiter, sole: None, shared: Vec::new(), oracle }
    }

    fn dead(&self) -> Ending {
        Ending::PeerDead { rank: self.slot.producer }
    }

    fn apply(&mut self, table: &SignalTable, op: &Op) {
        let dead = self.dead();
        let Self { slot, sole, shared, oracle, .. } = self;
        match *op {
            Op::Claim => {
                let claimed = table.publisher(*slot);
                assert_eq!(claimed.is_ok(), sole.is_none() && shared.is_empty());
                if let Ok(publisher) = claimed {
                    oracle.open();
                    assert_eq!(publisher.value(), Seq::new(oracle.value));
                    *sole = Some(publisher);
                }
            }
            Op::Publish(n) => {
                if let Some(publisher) = sole {
                    oracle.value = oracle.value.wrapping_add(n.into());
                    oracle.publishes += 1;
                    assert_eq!(publisher.pub_release(n), Seq::new(oracle.value));
                }
            }
            Op::Set(distance) => {
                if let Some(publisher) = sole {
                    let to = oracle.value.wrapping_add_signed(distance);
                    let set = publisher.pub_release_set(Seq::new(to));
                    assert_eq!(set.is_ok(), distance >= 0);
                    if set.is_ok() {
                        oracle.value = to;
                        oracle.publishes += 1;
                    }
                }
            }
            Op::Retire => sole.take().into_iter().for_each(Publisher::retire),
            Op::Drop => {
                if sole.take().is_some() {
                    oracle.end(dead);
                }
            }
            Op::End(ending) => {
                if let Some(publisher) = sole.take() {
                    assert_eq!(publisher.end(ending), oracle.end(ending));
                }
            }
            Op::Share => {
                let claimed = table.shared_publisher(*slot);
                assert_eq!(claimed.is_ok(), sole.is_none());
                if let Ok(publisher) = claimed {
                    if shared.is_empty() {
                        oracle.open();
                    }
                    shared.push(publisher);
                }
            }
            Op::Clone(who) => shared.extend(shared.get(who).cloned()),
            Op::Add(who, n) => {
                if let Some(publisher) = shared.get(who) {
                    oracle.value = oracle.value.wrapping_add(n.into());
                    oracle.publishes += 1;
                    assert_eq!(publisher.pub_release(n), Seq::new(oracle.value));
                }
            }
            Op::RetireShared(who) => {
                if who < shared.len() {
                    shared.swap_remove(who).retire();
                }
            }
            Op::DropShared(who) => {
                if who < shared.len() {
                    drop(shared.swap_remove(who));
                    if shared.is_empty() {
                        oracle.end(dead);
                    }
                }
            }
            Op::EndSlot(ending) => {
                assert_eq!(table.end(*slot, ending), Ok(oracle.end(ending)));
            }
            Op::EndAll(_) => unreachable!("an operation of the table"),
            Op::TryWait(distance) => self.try_wait(distance),
        }
    }

    fn try_wait(&mut self, distance: i64) {
        let oracle = &mut self.oracle;
        let target = oracle.value.wrapping_add_signed(distance);
        let waited = self.waiter.try_wait(Seq::new(target));
        // `distance` is that of the target from the counter: exact, for it fits 63 bits and a
        // sign, but for the one that is its own opposite.
        let ahead = oracle.value.wrapping_sub(target) as i64;
        if ahead >= 0 {
            assert_eq!(waited.unwrap().unwrap().acq_fence().value(), Seq::new(oracle.value));
            oracle.reached += 1;
            return;
        }
        let Some(ending) = oracle.ending else {
            assert!(waited.unwrap().is_none());
            return;
        };
        oracle.ended += 1;
        let error = waited.unwrap_err();
        let seen = match error {
            WaitError::Aborted { reason, by, .. } => Ending::Aborted { reason, by },
            WaitError::PeerDead { rank, .. } => Ending::PeerDead { rank },
            WaitError::LinkFailed { code, .. } => Ending::LinkFailed { code },
            other => panic!("{other}"),
        };
        assert_eq!(seen, ending);
        let at = error.at();
        assert_eq!((at.found.get(), at.wanted.get(), at.slot), (oracle.value, target, self.slot));
        assert_eq!(at.last_published.is_some(), oracle.publishes > 0);
    }

    fn check(&self, table: &SignalTable) {
        let (line, oracle) = (table.line(self.slot).unwrap(), &self.oracle);
        assert_eq!(self.waiter.value().get(), oracle.value);
        assert_eq!(line.ending(), oracle.ending);
        assert_eq!(line.publishes(), oracle.publishes);
        assert_eq!(line.producer().map_or(0, |producer| producer.generation), oracle.generation);
        let counters = self.waiter.counters().unwrap();
        assert_eq!(counters.reached_count(), oracle.reached);
        assert_eq!(counters.ended_count(), oracle.ended);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_does_what_the_oracle_says(
        start in prop_oneof![
            any::<u64>(),
            0u64..4,
            u64::MAX - 6..=u64::MAX,
            u64::from(u32::MAX) - 6..=u64::from(u32::MAX),
            (1u64 << 63) - 6..(1 << 63) + 2,
        ],
        shared in any::<bool>(),
        ops in prop::collection::vec((0..SLOTS, op()), 0..120),
    ) {
        let shape = TableShape::new(1, SLOTS as u32).first_rank(Rank(9)).starting_at(Seq::new(start));
        let table =
            if shared { SignalTable::shared(shape).unwrap() } else { SignalTable::in_process(shape) };
        let mut lines: Vec<_> =
            (0..SLOTS as u32).map(|slot| Line::new(&table, SlotId::new(9, slot), start)).collect();
        for (index, op) in &ops {
            if let Op::EndAll(ending) = op {
                table.end_all(*ending);
                for line in &mut lines {
                    line.oracle.end(*ending);
                }
            } else {
                lines[*index].apply(&table, op);
            }
            lines.iter().for_each(|line| line.check(&table));
        }
    }
}
