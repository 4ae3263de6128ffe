//! Who of the job is still there.
//!
//! Invariant J1: a rank's standing is one word, written under the lock of `gate` and read without
//! any. Only a rank that is alive in an epoch ends in it, so each end is reported once.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

use pontoon_signal::{
    Nanos, Rank, SystemError,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::sys::{lock, now, spawn};

/// What is known of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is there.
    Alive,
    /// It left in good order.
    Left {
        /// When that was noticed here.
        when: Nanos,
    },
    /// It is gone without having left.
    Dead {
        /// What showed it.
        how: How,
        /// When that was noticed here.
        when: Nanos,
    },
}

impl Standing {
    /// Whether it is there.
    pub fn is_alive(self) -> bool {
        self == Self::Alive
    }

    /// How it ended, if it did.
    pub fn ending(self) -> Option<Ending> {
        match self {
            Self::Alive => None,
            Self::Left { .. } => Some(Ending::Left),
            Self::Dead { how, .. } => Some(Ending::Dead(how)),
        }
    }
}

/// How a rank's time in the job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In good order.
    Left,
    /// Otherwise.
    Dead(How),
}

/// What showed that a rank is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// Its process ended.
    Exited,
    /// Its connection was closed or failed.
    ConnectionClosed,
    /// Nothing was heard of it for the time that the job allows: it is stopped, or cut off.
    HeartbeatLost,
    /// It was started again, and the new one took its place.
    Replaced,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left the job"),
            Self::Dead(how) => write!(f, "is dead: {how}"),
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exited => "its process ended",
            Self::ConnectionClosed => "its connection was closed",
            Self::HeartbeatLost => "nothing was heard of it any more",
            Self::Replaced => "it was started again",
        })
    }
}

/// A rank came, left or died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The rank.
    pub rank: Rank,
    /// Which start of it.
    pub epoch: u32,
    /// What is known of it now.
    pub standing: Standing,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.standing.ending() {
            None => write!(f, "rank {} is back", self.rank),
            Some(ending) => write!(f, "rank {} {ending}", self.rank),
        }
    }
}

/// Who of the job is still there: a handle; clones show the same.
///
/// Reading it takes no lock and makes no system call. It shows what this process has noticed; when
/// rank 0 is gone nobody relays what happens on other machines any more.
#[derive(Clone)]
pub struct Membership(Arc<Seats>);

struct Seats {
    words: Box<[AtomicU64]>,
    origin: Nanos,
    /// One change at a time, and told in the order it was made.
    gate: Mutex<Sender<Call>>,
}

type OnChange = Box<dyn FnMut(Change) + Send>;

enum Call {
    Register { on_change: OnChange, past: Vec<Change> },
    Tell(Change),
    Stop,
}

impl Membership {
    /// `world` ranks that are alive in epoch 0, and the thread that tells of changes.
    pub(crate) fn start(world: u32) -> Result<Self, SystemError> {
        let (gate, calls) = channel();
        spawn("pontoon-changes", move || tell(&calls))?;
        let words = (0..world).map(|_| AtomicU64::new(0)).collect();
        Ok(Self(Arc::new(Seats { words, origin: now(), gate: Mutex::new(gate) })))
    }

    /// How many ranks the job has, there or not.
    pub fn world(&self) -> u32 {
        self.0.words.len() as u32
    }

    /// What is known of `rank`; `None` if the job has no such rank.
    pub fn of(&self, rank: Rank) -> Option<Standing> {
        let word = self.0.words.get(rank.0 as usize)?.load(Relaxed);
        Some(Word::decode(word).standing(self.0.origin))
    }

    /// Which start of `rank` that is about, counted from 0.
    pub fn epoch(&self, rank: Rank) -> Option<u32> {
        Some(Word::decode(self.0.words.get(rank.0 as usize)?.load(Relaxed)).epoch.into())
    }

    /// Whether `rank` is there.
    pub fn is_alive(&self, rank: Rank) -> bool {
        self.of(rank).is_some_and(Standing::is_alive)
    }

    /// The ranks that are there.
    pub fn alive(&self) -> impl Iterator<Item = Rank> + '_ {
        (0..self.world()).map(Rank).filter(|&rank| self.is_alive(rank))
    }

    /// The first rank that died, or left, of those that are not there.
    pub fn first_gone(&self) -> Option<(Rank, Ending)> {
        let ends = |rank| Some((rank, self.of(rank)?));
        let gone = (0..self.world()).map(Rank).filter_map(ends).filter(|it| !it.1.is_alive());
        let first = gone.min_by_key(|(_, standing)| match *standing {
            Standing::Alive => Nanos(u64::MAX),
            Standing::Left { when } | Standing::Dead { when, .. } => when,
        });
        first.and_then(|(rank, standing)| Some((rank, standing.ending()?)))
    }

    /// Calls `on_change` with each change from now on, once, in the order of the changes; first
    /// with those ranks that are gone already.
    ///
    /// One thread makes all the calls, apart from those that keep the job alive: a call that does
    /// not return holds up the other calls, and nothing else.
    pub fn on_change(&self, on_change: impl FnMut(Change) + Send + 'static) {
        let gate = lock(&self.0.gate);
        let past = self.0.words.iter().zip(0..).filter_map(|(word, rank)| {
            let word = Word::decode(word.load(Relaxed));
            let standing = word.standing(self.0.origin);
            let change = Change { rank: Rank(rank), epoch: word.epoch.into(), standing };
            (!standing.is_alive()).then_some(change)
        });
        let call = Call::Register { on_change: Box::new(on_change), past: past.collect() };
        // Fails when the job is over: nothing changes any more.
        let _ = gate.send(call);
    }

    /// Notes that `rank` ended in `epoch`. Whether that was news.
    pub(crate) fn end(&self, rank: Rank, epoch: u32, ending: Ending) -> bool {
        self.change(rank, |word| {
            (word.kind == Kind::Alive && u32::from(word.epoch) == epoch)
                .then_some((word.epoch, Kind::Ended(ending)))
        })
    }

    /// Notes that `rank` is there in `epoch`. Whether that was news.
    pub(crate) fn admit(&self, rank: Rank, epoch: u32) -> bool {
        let Ok(epoch) = u16::try_from(epoch) else { return false };
        self.change(rank, |word| (epoch > word.epoch).then_some((epoch, Kind::Alive)))
    }

    /// Takes `members` for the ranks that are there, before anybody looks.
    pub(crate) fn begin(&self, members: impl Iterator<Item = (Rank, u32)>) {
        let _gate = lock(&self.0.gate);
        for (rank, epoch) in members {
            let (Some(word), Ok(epoch)) = (self.0.words.get(rank.0 as usize), epoch.try_into())
            else {
                continue;
            };
            word.store(Word { kind: Kind::Alive, epoch, micros: 0 }.encode(), Relaxed);
        }
    }

    fn change(&self, rank: Rank, next: impl FnOnce(Word) -> Option<(u16, Kind)>) -> bool {
        let Some(word) = self.0.words.get(rank.0 as usize) else { return false };
        let gate = lock(&self.0.gate);
        let Some((epoch, kind)) = next(Word::decode(word.load(Relaxed))) else { return false };
        let micros = now().since(self.0.origin).0 / 1_000;
        let changed = Word { kind, epoch, micros };
        // Relaxed: the word is all there is to see (J1).
        word.store(changed.encode(), Relaxed);
        let standing = Word::decode(changed.encode()).standing(self.0.origin);
        let change = Change { rank, epoch: epoch.into(), standing };
        let _ = gate.send(Call::Tell(change));
        true
    }

    /// Ends the thread that tells of changes, once it has told of those so far.
    pub(crate) fn stop(&self) {
        let _ = lock(&self.0.gate).send(Call::Stop);
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.world()).map(|rank| self.of(Rank(rank)))).finish()
    }
}

fn tell(calls: &Receiver<Call>) {
    let mut all: Vec<OnChange> = Vec::new();
    while let Ok(call) = calls.recv() {
        match call {
            Call::Register { mut on_change, past } => {
                past.into_iter().for_each(|change| safely(&mut on_change, change));
                all.push(on_change);
            }
            Call::Tell(change) => all.iter_mut().for_each(|it| safely(it, change)),
            Call::Stop => return,
        }
    }
}

fn safely(on_change: &mut OnChange, change: Change) {
    if catch_unwind(AssertUnwindSafe(|| on_change(change))).is_err() {
        tracing::error!(target: "pontoon::job", %change, "what a change was to call panicked");
    }
}

/// The word of a rank: kind in bits 60..64, epoch in 44..60, and in 0..44 how many microseconds
/// after the beginning the change was noticed; half a year of them, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    kind: Kind,
    epoch: u16,
    micros: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Alive,
    Ended(Ending),
}

const MICROS_MAX: u64 = (1 << 44) - 1;
/// The greatest epoch; there is no way to start a rank so often.
pub(crate) const EPOCH_MAX: u32 = u16::MAX as u32;

impl Word {
    fn encode(self) -> u64 {
        let kind: u64 = match self.kind {
            Kind::Alive => 0,
            Kind::Ended(Ending::Left) => 1,
            Kind::Ended(Ending::Dead(How::Exited)) => 2,
            Kind::Ended(Ending::Dead(How::ConnectionClosed)) => 3,
            Kind::Ended(Ending::Dead(How::HeartbeatLost)) => 4,
            Kind::Ended(Ending::Dead(How::Replaced)) => 5,
        };
        kind << 60 | u64::from(self.epoch) << 44 | self.micros.min(MICROS_MAX)
    }

    fn decode(word: u64) -> Self {
        let kind = match word >> 60 {
            0 => Kind::Alive,
            1 => Kind::Ended(Ending::Left),
            2 => Kind::Ended(Ending::Dead(How::Exited)),
            3 => Kind::Ended(Ending::Dead(How::ConnectionClosed)),
            4 => Kind::Ended(Ending::Dead(How::HeartbeatLost)),
            _ => Kind::Ended(Ending::Dead(How::Replaced)),
        };
        Self { kind, epoch: (word >> 44) as u16, micros: word & MICROS_MAX }
    }

    fn standing(self, origin: Nanos) -> Standing {
        let when = origin.saturating_add(Nanos(self.micros * 1_000));
        match self.kind {
            Kind::Alive => Standing::Alive,
            Kind::Ended(Ending::Left) => Standing::Left { when },
            Kind::Ended(Ending::Dead(how)) => Standing::Dead { how, when },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};

    const PATIENCE: Duration = Duration::from_secs(10);
    const KILLED: Ending = Ending::Dead(How::Exited);

    fn told(membership: &Membership) -> mpsc::Receiver<Change> {
        let (tell, told) = channel();
        membership.on_change(move |change| tell.send(change).unwrap());
        told
    }

    #[test]
    fn every_word_reads_as_it_was_written() {
        let hows = [How::Exited, How::ConnectionClosed, How::HeartbeatLost, How::Replaced];
        let endings = hows.map(Ending::Dead).into_iter().chain([Ending::Left]);
        for kind in endings.map(Kind::Ended).chain([Kind::Alive]) {
            for (epoch, micros) in [(0, 0), (u16::MAX, MICROS_MAX), (1, 7)] {
                let word = Word { kind, epoch, micros };
                assert_eq!(Word::decode(word.encode()), word);
            }
        }
        let late = Word { kind: Kind::Alive, epoch: 3, micros: u64::MAX };
        assert_eq!(Word::decode(late.encode()), Word { micros: MICROS_MAX, ..late });
    }

    #[test]
    fn an_end_is_reported_once_whoever_sees_it() {
        let membership = Membership::start(3).unwrap();
        let told = told(&membership);
        let news = std::thread::scope(|scope| {
            let see = |how| membership.end(Rank(1), 0, Ending::Dead(how));
            let all = [How::Exited, How::ConnectionClosed, How::HeartbeatLost]
                .map(|how| scope.spawn(move || see(how)));
            all.into_iter().map(|it| it.join().unwrap()).filter(|&it| it).count()
        });
        assert_eq!(news, 1);
        assert!(membership.end(Rank(2), 0, Ending::Left));
        let first = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!((first.rank, Some(first.standing)), (Rank(1), membership.of(Rank(1))));
        assert_eq!(told.recv_timeout(PATIENCE).unwrap().rank, Rank(2));
        assert_eq!(membership.alive().collect::<Vec<_>>(), [Rank(0)]);
        membership.stop();
        assert!(told.recv_timeout(PATIENCE).is_err(), "the end of the calls");
    }

    #[test]
    fn who_registers_late_is_told_of_the_past() {
        let membership = Membership::start(2).unwrap();
        membership.end(Rank(1), 0, KILLED);
        let change = told(&membership).recv_timeout(PATIENCE).unwrap();
        assert_eq!(change.standing.ending(), Some(KILLED));
        assert_eq!(change.to_string(), "rank 1 is dead: its process ended");
        assert_eq!(membership.first_gone(), Some((Rank(1), KILLED)));
    }

    #[test]
    fn an_end_is_of_one_epoch() {
        let membership = Membership::start(2).unwrap();
        membership.begin([(Rank(0), 0), (Rank(1), 4)].into_iter());
        assert_eq!(membership.epoch(Rank(1)), Some(4));
        assert!(!membership.end(Rank(1), 3, KILLED), "that of an earlier start");
        assert!(membership.is_alive(Rank(1)));
        assert!(membership.end(Rank(1), 4, KILLED));
        assert!(!membership.admit(Rank(1), 4), "the same start");
        assert!(membership.admit(Rank(1), 5));
        assert!(!membership.end(Rank(1), 4, KILLED), "the end of the one before");
        assert!(membership.is_alive(Rank(1)));
        assert!(!membership.end(Rank(9), 0, KILLED) && membership.of(Rank(9)).is_none());
        assert!(!membership.admit(Rank(1), EPOCH_MAX + 6), "an epoch is never cut to fit");
    }

    #[test]
    fn a_call_that_panics_or_asks_back_holds_up_nothing() {
        let membership = Membership::start(2).unwrap();
        membership.on_change(|_| panic!("on purpose"));
        let inner = membership.clone();
        membership.on_change(move |_| inner.on_change(|_| ()));
        let told = told(&membership);
        membership.end(Rank(0), 0, KILLED);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap().rank, Rank(0));
        // Also one that panics at the past, which it is told of first.
        membership.on_change(|_| panic!("on purpose"));
        membership.end(Rank(1), 0, KILLED);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap().rank, Rank(1));
    }
}
