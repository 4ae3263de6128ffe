//! What a link, its handles and its handler share.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, OnceLock, Weak},
};

use pontoon_hal::link::LinkError;
use pontoon_signal::{
    Ending, Rank, Segment,
    shim::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use super::{
    NAME,
    key::Stretch,
    life::{Life, lock},
};
use crate::engine::Engine;

/// What a link, its handles and its handler share.
///
/// Lock order: the worker first, then one of these or of a life, which nest nothing but what ends a row of the table.
pub(crate) struct Home {
    pub(crate) segment: Segment,
    /// Where that is registered.
    pub(crate) own: Stretch,
    /// Whether UCX allocated it, so that peers of this host may map it.
    pub(crate) shared: bool,
    /// Not counted: the engine has the handler, which has this.
    pub(crate) engine: OnceLock<Weak<Engine>>,
    lives: Mutex<BTreeMap<Rank, Lives>>,
    /// Those that ended and were followed by another.
    past: Mutex<Vec<Arc<Life>>>,
    regions: Mutex<HashMap<u64, Stretch>>,
    refused: AtomicU64,
    /// How many peers were ever connected that are reached by messages.
    pub(crate) by_message: AtomicU32,
}

/// A rank's life, and the one that its next card is for.
#[derive(Default)]
pub(crate) struct Lives {
    pub(crate) now: Option<Arc<Life>>,
    pub(crate) next: Option<Arc<Life>>,
}

impl Home {
    pub(crate) fn new(segment: Segment, own: Stretch, shared: bool) -> Self {
        Self {
            segment,
            own,
            shared,
            engine: OnceLock::new(),
            lives: Mutex::default(),
            past: Mutex::default(),
            regions: Mutex::default(),
            refused: AtomicU64::new(0),
            by_message: AtomicU32::new(0),
        }
    }

    pub(crate) fn rank(&self) -> Rank {
        self.segment.identity().rank
    }

    pub(crate) fn life(&self, peer: Rank) -> Result<Arc<Life>, LinkError> {
        let lives = lock(&self.lives);
        let found = lives.get(&peer).and_then(|lives| lives.now.clone());
        found.ok_or(LinkError::NoSuchPeer { peer, link: NAME })
    }

    /// The life of `peer` whose messages carry `cookie`.
    pub(crate) fn sender(&self, peer: Rank, cookie: u64) -> Option<Arc<Life>> {
        let lives = lock(&self.lives);
        let Lives { now, next } = lives.get(&peer)?;
        let known = [now, next].into_iter().flatten().find(|life| life.cookie == cookie);
        known.cloned()
    }

    /// The same, also if another has followed it.
    pub(crate) fn whoever(&self, peer: Rank, cookie: u64) -> Option<Arc<Life>> {
        let found = self.sender(peer, cookie);
        let is_it = |life: &&Arc<Life>| life.rank == peer && life.cookie == cookie;
        found.or_else(|| lock(&self.past).iter().find(is_it).cloned())
    }

    /// Does something to what is known of `peer`.
    pub(crate) fn with_lives<R>(&self, peer: Rank, change: impl FnOnce(&mut Lives) -> R) -> R {
        change(lock(&self.lives).entry(peer).or_default())
    }

    /// Remembers a life that is followed by another.
    pub(crate) fn bury(&self, life: Arc<Life>) {
        lock(&self.past).push(life);
    }

    /// All lives there were.
    pub(crate) fn all(&self) -> Vec<Arc<Life>> {
        let mut all = lock(&self.past).clone();
        let lives = lock(&self.lives);
        all.extend(lives.values().flat_map(|lives| lives.now.iter().chain(&lives.next)).cloned());
        all
    }

    /// Ends a life of a peer, and, if it is the one of now, its row in this rank's table.
    pub(crate) fn end(&self, life: &Arc<Life>, ending: Ending, call: &'static str) {
        // No successor comes between, whose row it would be; and who is woken by the end of a row finds that of the life.
        let (first, is_now, rows) = self.with_lives(life.rank, |lives| {
            let is_now = lives.now.as_ref().is_some_and(|now| Arc::ptr_eq(now, life));
            let first = life.mark(ending, call);
            let rows = !is_now || self.segment.signals().end_producer(life.rank, ending).is_ok();
            (first, is_now, rows)
        });
        if first {
            life.finish(ending);
            if is_now {
                self.evict(life, ending);
            }
            // A table without a row for that rank has nothing to end.
            let peer = life.rank.0;
            tracing::debug!(target: "pontoon::link", peer, ?ending, call, rows, "peer ended");
        }
    }

    /// Takes away what a dead peer claimed in this rank's table by its own hand.
    pub(crate) fn evict(&self, life: &Life, ending: Ending) {
        if let (Ending::PeerDead { .. }, Some(way)) = (ending, life.way()) {
            let evicted = self.segment.signals().evict(life.rank, way.pid, ending);
            tracing::debug!(target: "pontoon::link", peer = life.rank.0, ?evicted, "claims taken");
        }
    }

    /// Makes `stretch` known, by a number that nobody can guess.
    pub(crate) fn list(&self, nonce: u64, stretch: Stretch) {
        lock(&self.regions).insert(nonce, stretch);
    }

    pub(crate) fn listed(&self, nonce: u64) -> Option<Stretch> {
        lock(&self.regions).get(&nonce).cloned()
    }

    pub(crate) fn withdraw(&self, nonce: u64) {
        // No panic while it is locked can come of dropping a stretch, but UCX is called.
        let withdrawn = lock(&self.regions).remove(&nonce);
        // Whoever has the worker may be copying to where it looked before: it is waited for. In a
        // handler that is this thread, which copies nothing now.
        if let Some(engine) = self.engine.get().and_then(Weak::upgrade) {
            let _ = engine.enter().map(drop);
        }
        drop(withdrawn);
    }

    /// Counts a message that was refused, and says so, more and more rarely.
    pub(crate) fn refuse(&self, why: &'static str, from: Option<Rank>) {
        let count = self.refused.fetch_add(1, Relaxed) + 1;
        if count.is_power_of_two() {
            let from = from.map(|rank| rank.0);
            tracing::warn!(target: "pontoon::link", count, from, "refused a message: {why}");
        }
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

/// A number that nobody can guess.
pub(crate) fn random() -> Result<u64, rustix::io::Errno> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
