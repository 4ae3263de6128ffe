//! What ranks ask of rank 0: values by key, numbers that are added to, gatherings.
//!
//! Invariant H1: nothing waits here for a rank that is gone: when a rank ends, all gatherings that
//! need it are answered, and its own questions are forgotten.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use pontoon_signal::Rank;

use super::LinkId;
use crate::{
    membership::Ending,
    wire::{Answer, GATHERED_MAX, Parts, Question, Request},
};

/// The most bytes that all keys and values have together.
pub(crate) const STORE_MAX: usize = 256 << 20;
/// The most questions of one rank that are not answered yet.
pub(crate) const OPEN_MAX: usize = 1024;
/// What an entry costs besides its bytes, about.
const ENTRY: usize = 128;

type Key = Box<[u8]>;
type Asker = (LinkId, Request);
type Group = (Key, Box<[Rank]>);

/// An answer and whom to send it.
pub(crate) type Reply = (Asker, Answer);

#[derive(Debug, Default)]
pub(crate) struct Store {
    values: HashMap<Key, Box<[u8]>>,
    /// Of all keys, values and parts.
    bytes: usize,
    waiting: HashMap<Key, Vec<Asker>>,
    gathers: HashMap<Arc<Group>, Gather>,
    open: HashMap<LinkId, HashMap<Request, Place>>,
}

/// Where an open question waits.
#[derive(Debug)]
enum Place {
    Key(Key),
    Gather(Arc<Group>),
}

#[derive(Debug, Default)]
struct Gather {
    /// By rank.
    parts: HashMap<Rank, (Asker, Box<[u8]>)>,
    bytes: usize,
}

impl Store {
    /// Takes a question of `rank`; the answers that are due now.
    pub(crate) fn ask(
        &mut self,
        asker: Asker,
        rank: Rank,
        question: Question,
        ended: impl Fn(Rank) -> Result<Option<Ending>, ()>,
    ) -> Vec<Reply> {
        if !matches!(question, Question::Forget) {
            let open = self.open.get(&asker.0);
            if open.is_some_and(|open| open.len() >= OPEN_MAX || open.contains_key(&asker.1)) {
                return vec![(asker, Answer::TooMany)];
            }
        }
        match question {
            Question::Set { key, value } => self.set(asker, key, value),
            Question::Get { key } => self.get(asker, key),
            Question::Add { key, delta } => self.add(asker, key, delta),
            Question::Gather { name, ranks, part } => {
                self.gather(asker, rank, (name, ranks), part, ended)
            }
            // If it is not open, its answer is on the way already.
            Question::Forget if self.forget(asker) => vec![(asker, Answer::Forgotten)],
            Question::Forget => Vec::new(),
        }
    }

    fn set(&mut self, asker: Asker, key: Key, value: Box<[u8]>) -> Vec<Reply> {
        if !self.put(&key, value) {
            return vec![(asker, Answer::Full)];
        }
        let mut replies = vec![(asker, Answer::Done)];
        self.wake(&key, &mut replies);
        replies
    }

    fn put(&mut self, key: &Key, value: Box<[u8]>) -> bool {
        let (old, overhead) = match self.values.get(key) {
            Some(old) => (old.len(), 0),
            None => (0, key.len() + ENTRY),
        };
        let bytes = self.bytes - old + overhead + value.len();
        if bytes > STORE_MAX {
            return false;
        }
        self.bytes = bytes;
        self.values.insert(key.clone(), value);
        true
    }

    fn wake(&mut self, key: &Key, replies: &mut Vec<Reply>) {
        let Some(value) = self.values.get(key) else { return };
        for asker in self.waiting.remove(key).unwrap_or_default() {
            replies.push((asker, Answer::Value(value.clone())));
            if let Some(open) = self.open.get_mut(&asker.0) {
                open.remove(&asker.1);
            }
        }
    }

    fn get(&mut self, asker: Asker, key: Key) -> Vec<Reply> {
        if let Some(value) = self.values.get(&key) {
            return vec![(asker, Answer::Value(value.clone()))];
        }
        self.waiting.entry(key.clone()).or_default().push(asker);
        self.open.entry(asker.0).or_default().insert(asker.1, Place::Key(key));
        Vec::new()
    }

    fn add(&mut self, asker: Asker, key: Key, delta: i64) -> Vec<Reply> {
        let old = match self.values.get(&key).map(|value| <[u8; 8]>::try_from(&**value)) {
            None => 0,
            Some(Ok(bytes)) => i64::from_le_bytes(bytes),
            Some(Err(_)) => return vec![(asker, Answer::NoNumber)],
        };
        let sum = old.wrapping_add(delta);
        if !self.put(&key, Box::from(sum.to_le_bytes())) {
            return vec![(asker, Answer::Full)];
        }
        let mut replies = vec![(asker, Answer::Sum(sum))];
        self.wake(&key, &mut replies);
        replies
    }

    fn gather(
        &mut self,
        asker: Asker,
        rank: Rank,
        group: Group,
        part: Box<[u8]>,
        ended: impl Fn(Rank) -> Result<Option<Ending>, ()>,
    ) -> Vec<Reply> {
        let ascending = group.1.is_sorted_by(|a, b| a < b);
        if !ascending || !group.1.contains(&rank) {
            return vec![(asker, Answer::NoGroup)];
        }
        for &rank in &group.1 {
            match ended(rank) {
                Err(()) => return vec![(asker, Answer::NoGroup)],
                Ok(Some(ending)) => return vec![(asker, Answer::Ended { rank, ending })],
                Ok(None) => {}
            }
        }
        let group = match self.gathers.get_key_value(&group) {
            Some((group, _)) => Arc::clone(group),
            None => Arc::new(group),
        };
        let size = part.len() + ENTRY;
        let gather = self.gathers.entry(Arc::clone(&group)).or_default();
        if gather.parts.contains_key(&rank) {
            return vec![(asker, Answer::NoGroup)];
        }
        if gather.bytes + part.len() > GATHERED_MAX || self.bytes + size > STORE_MAX {
            self.drop_if_empty(&group);
            return vec![(asker, Answer::Full)];
        }
        gather.bytes += part.len();
        self.bytes += size;
        gather.parts.insert(rank, (asker, part));
        if gather.parts.len() < group.1.len() {
            self.open.entry(asker.0).or_default().insert(asker.1, Place::Gather(group));
            return Vec::new();
        }
        let mut all = self.take_gather(&group);
        all.sort_by_key(|(rank, ..)| *rank);
        let parts = Parts::of(&all.iter().map(|(_, _, part)| &**part).collect::<Vec<_>>());
        all.into_iter().map(|(_, asker, _)| (asker, Answer::Parts(parts.clone()))).collect()
    }

    /// Takes a gathering out, with all that refers to it.
    fn take_gather(&mut self, group: &Arc<Group>) -> Vec<(Rank, Asker, Box<[u8]>)> {
        let Some(gather) = self.gathers.remove(group) else { return Vec::new() };
        let parts = gather.parts.into_iter().map(|(rank, (asker, part))| {
            self.bytes -= part.len() + ENTRY;
            if let Some(open) = self.open.get_mut(&asker.0) {
                open.remove(&asker.1);
            }
            (rank, asker, part)
        });
        parts.collect()
    }

    fn drop_if_empty(&mut self, group: &Arc<Group>) {
        if self.gathers.get(group).is_some_and(|gather| gather.parts.is_empty()) {
            self.gathers.remove(group);
        }
    }

    /// Whether it was open.
    fn forget(&mut self, asker: Asker) -> bool {
        let place = self.open.get_mut(&asker.0).and_then(|open| open.remove(&asker.1));
        match place {
            None => return false,
            Some(Place::Key(key)) => {
                if let Entry::Occupied(mut waiting) = self.waiting.entry(key) {
                    waiting.get_mut().retain(|it| *it != asker);
                    if waiting.get().is_empty() {
                        waiting.remove();
                    }
                }
            }
            Some(Place::Gather(group)) => {
                if let Some(gather) = self.gathers.get_mut(&group) {
                    gather.parts.retain(|_, (it, part)| {
                        let keep = *it != asker;
                        if !keep {
                            gather.bytes -= part.len();
                            self.bytes -= part.len() + ENTRY;
                        }
                        keep
                    });
                }
                self.drop_if_empty(&group);
            }
        }
        true
    }

    /// Forgets what came over a link that is gone.
    pub(crate) fn link_closed(&mut self, link: LinkId) {
        let requests: Vec<Request> =
            self.open.get(&link).map(|open| open.keys().copied().collect()).unwrap_or_default();
        for request in requests {
            self.forget((link, request));
        }
        self.open.remove(&link);
    }

    /// Answers the gatherings that need `rank`, which is gone.
    pub(crate) fn rank_ended(&mut self, rank: Rank, ending: Ending) -> Vec<Reply> {
        let concerned: Vec<_> =
            self.gathers.keys().filter(|group| group.1.contains(&rank)).cloned().collect();
        let mut replies = Vec::new();
        for group in concerned {
            let all = self.take_gather(&group).into_iter();
            replies.extend(all.map(|(_, asker, _)| (asker, Answer::Ended { rank, ending })));
        }
        replies
    }

    /// How much is kept for questions not answered yet: nothing, once all were.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        let open: usize = self.open.values().map(HashMap::len).sum();
        open + self.waiting.len() + self.gathers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(store: &mut Store, rank: u32, request: u64, question: Question) -> Vec<Reply> {
        let ended = |rank: Rank| if rank.0 < 4 { Ok(None) } else { Err(()) };
        store.ask((LinkId(rank.into()), request), Rank(rank), question, ended)
    }

    fn set(key: &[u8], value: &[u8]) -> Question {
        Question::Set { key: key.into(), value: value.into() }
    }

    fn get(key: &[u8]) -> Question {
        Question::Get { key: key.into() }
    }

    fn gather(name: &[u8], ranks: &[u32], part: &[u8]) -> Question {
        let ranks = ranks.iter().copied().map(Rank).collect();
        Question::Gather { name: name.into(), ranks, part: part.into() }
    }

    fn parts(parts: &[&[u8]]) -> Answer {
        Answer::Parts(Parts::of(parts))
    }

    #[test]
    fn who_asks_early_is_answered_when_the_key_is_set() {
        let mut store = Store::default();
        assert_eq!(ask(&mut store, 1, 7, get(b"k")), []);
        assert_eq!(ask(&mut store, 2, 7, get(b"k")), []);
        let value = || Answer::Value(Box::from(*b"v"));
        let replies = ask(&mut store, 0, 1, set(b"k", b"v"));
        let expected =
            [((LinkId(0), 1), Answer::Done), ((LinkId(1), 7), value()), ((LinkId(2), 7), value())];
        assert_eq!(replies, expected);
        assert_eq!(ask(&mut store, 3, 1, get(b"k")), [((LinkId(3), 1), value())]);
        assert_eq!(store.pending(), 0);
    }

    #[test]
    fn numbers_are_added_to_and_other_values_are_not() {
        let mut store = Store::default();
        for (delta, sum) in [(5, 5), (-7, -2), (i64::MIN, i64::MAX - 1)] {
            let add = Question::Add { key: Box::from(*b"n"), delta };
            assert_eq!(ask(&mut store, 0, 1, add)[0].1, Answer::Sum(sum));
        }
        ask(&mut store, 0, 2, set(b"s", b"text"));
        let add = Question::Add { key: Box::from(*b"s"), delta: 1 };
        assert_eq!(ask(&mut store, 0, 3, add)[0].1, Answer::NoNumber);
    }

    #[test]
    fn a_gathering_gives_all_parts_in_the_order_of_ranks() {
        let mut store = Store::default();
        for round in 0..3 {
            assert_eq!(ask(&mut store, 3, round, gather(b"g", &[0, 2, 3], b"c")), []);
            assert_eq!(ask(&mut store, 0, round, gather(b"g", &[0, 2, 3], b"a")), []);
            let replies = ask(&mut store, 2, round, gather(b"g", &[0, 2, 3], b"b"));
            let to: Vec<_> = replies.iter().map(|(asker, _)| asker.0.0).collect();
            assert_eq!(to, [0, 2, 3]);
            assert!(replies.iter().all(|it| it.1 == parts(&[b"a", b"b", b"c"])), "{replies:?}");
        }
        assert_eq!((store.pending(), store.bytes), (0, 0));
    }

    #[test]
    fn groups_that_make_no_sense_are_refused() {
        let mut store = Store::default();
        for ranks in [&[][..], &[1], &[1, 0], &[0, 0, 1], &[0, 9]] {
            let replies = ask(&mut store, 0, 1, gather(b"g", ranks, b""));
            assert_eq!(replies[0].1, Answer::NoGroup, "{ranks:?}");
        }
        ask(&mut store, 0, 1, gather(b"g", &[0, 1], b""));
        assert_eq!(ask(&mut store, 0, 2, gather(b"g", &[0, 1], b""))[0].1, Answer::NoGroup);
        assert_eq!(ask(&mut store, 1, 2, gather(b"g", &[0, 1], b"")).len(), 2);
    }

    #[test]
    fn a_rank_that_is_gone_answers_those_who_wait_for_it() {
        let mut store = Store::default();
        ask(&mut store, 0, 1, gather(b"g", &[0, 1], b"x"));
        ask(&mut store, 2, 1, gather(b"h", &[2, 3], b"y"));
        ask(&mut store, 1, 9, get(b"never"));
        store.link_closed(LinkId(1));
        let ending = Ending::Left;
        let replies = store.rank_ended(Rank(1), ending);
        assert_eq!(replies, [((LinkId(0), 1), Answer::Ended { rank: Rank(1), ending })]);
        assert_eq!(store.gathers.len(), 1);
        // And who comes later is told at once.
        let ended = |rank| Ok((rank == Rank(1)).then_some(ending));
        let late = store.ask((LinkId(0), 2), Rank(0), gather(b"g", &[0, 1], b""), ended);
        assert_eq!(late, [((LinkId(0), 2), Answer::Ended { rank: Rank(1), ending })]);
    }

    #[test]
    fn what_was_given_up_leaves_nothing_behind() {
        let mut store = Store::default();
        ask(&mut store, 0, 1, gather(b"g", &[0, 1], b"old"));
        ask(&mut store, 0, 2, get(b"k"));
        for request in [1, 2] {
            let replies = ask(&mut store, 0, request, Question::Forget);
            assert_eq!(replies, [((LinkId(0), request), Answer::Forgotten)]);
        }
        assert_eq!(ask(&mut store, 0, 3, Question::Forget), []);
        assert_eq!((store.pending(), store.bytes), (0, 0));
        assert_eq!(ask(&mut store, 1, 1, gather(b"g", &[0, 1], b"b")), []);
        let replies = ask(&mut store, 0, 3, gather(b"g", &[0, 1], b"new"));
        assert_eq!(replies[0].1, parts(&[b"new", b"b"]));
    }

    #[test]
    fn what_one_rank_can_make_others_keep_is_bounded() {
        let mut store = Store::default();
        for request in 0..OPEN_MAX as u64 {
            assert_eq!(ask(&mut store, 0, request, get(b"never")), []);
        }
        assert_eq!(ask(&mut store, 0, 1 << 20, get(b"never"))[0].1, Answer::TooMany);
        assert_eq!(ask(&mut store, 1, 0, get(b"never")), [], "another rank may still ask");
        let value = vec![0; 1 << 20];
        let full = (0u32..300).find(|key| {
            ask(&mut store, 1, 5, set(&key.to_le_bytes(), &value))[0].1 == Answer::Full
        });
        assert_eq!(full, Some(255), "keys cost something too");
        assert_eq!(ask(&mut store, 1, 5, set(&0u32.to_le_bytes(), b""))[0].1, Answer::Done);
    }
}
