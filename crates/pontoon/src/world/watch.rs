//! Ends the signals of whoever dies.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use pontoon_hal::link::Link;
use pontoon_job::{Change, Ending as Departure, How, Membership};
use pontoon_signal::{
    Ending, Host, Nanos, Os, Rank, Record, RecordKind, Segment,
    shim::{AtomicU32, Ordering::Relaxed},
};

/// A rank that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The rank.
    pub rank: Rank,
    /// What showed it; `None` if it left while others still needed it.
    pub how: Option<How>,
    /// When this process noticed it.
    pub noticed: Nanos,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.how {
            Some(how) => write!(f, "rank {} is dead: {how}", self.rank),
            None => write!(f, "rank {} left before the others were done", self.rank),
        }
    }
}

/// Who died.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    all: Mutex<Vec<Death>>,
    news: Condvar,
    /// Set once ranks may leave.
    leaving: AtomicU32,
}

impl Deaths {
    fn lock(&self) -> MutexGuard<'_, Vec<Death>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> Vec<Death> {
        self.lock().clone()
    }

    /// All, once there are more than `known`; those there are if that is not so `within` that time.
    pub(super) fn beyond(&self, known: usize, within: Duration) -> Vec<Death> {
        // None is for ever.
        let until = Instant::now().checked_add(within);
        let mut all = self.lock();
        loop {
            let left =
                until.map_or(within, |until| until.saturating_duration_since(Instant::now()));
            if all.len() > known || left.is_zero() {
                return all.clone();
            }
            let waited = self.news.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn expect_leaving(&self) {
        self.leaving.store(1, Relaxed);
    }

    fn add(&self, death: Death) {
        self.lock().push(death);
        self.news.notify_all();
    }
}

/// What ends when a rank dies.
pub(super) struct Ends {
    pub(super) segment: Segment,
    pub(super) links: Vec<Arc<dyn Link>>,
    pub(super) deaths: Arc<Deaths>,
}

/// Watches over all ranks from now on.
pub(super) fn watch(membership: &Membership, ends: Ends) {
    membership.on_change(move |change| ends.on(change));
}

impl Ends {
    fn on(&self, change: Change) {
        let Some(departure) = change.standing.ending() else { return };
        let (rank, noticed) = (change.rank, Os.now());
        let how = match departure {
            Departure::Dead(how) => Some(how),
            Departure::Left => None,
        };
        let kind = if how.is_some() { RecordKind::DIED } else { RecordKind::LEFT };
        let record = Record { at: noticed, kind, rank, data: [0; 3] };
        self.segment.recorder().add(record);
        // Who left in order has nothing to send any more, and nobody may wait for it in vain.
        let ending = Ending::PeerDead { rank };
        if how.is_some() || self.deaths.leaving.load(Relaxed) == 0 {
            self.deaths.add(Death { rank, how, noticed });
        }
        for link in &self.links {
            link.end_peer(rank, ending);
        }
        if let Err(error) = self.segment.signals().end_producer(rank, ending) {
            tracing::warn!(target: "pontoon::world", "{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_that_is_known_is_told_however_long_one_would_wait() {
        let deaths = Deaths::default();
        deaths.add(Death { rank: Rank(3), how: None, noticed: Nanos(7) });
        assert_eq!(deaths.beyond(0, Duration::MAX), deaths.all());
        assert_eq!(deaths.beyond(1, Duration::from_millis(1)).len(), 1);
    }
}
