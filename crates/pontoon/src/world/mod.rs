//! A process among the others of its job: who is there, what is shared with them, and the way to each.
//!
//! - `open.rs` joins the job and connects everybody;
//! - `ucx.rs` connects those that are reached by UCX;
//! - `way.rs` is the way to one rank;
//! - `alive.rs` waits for what a rank is to give, as long as it lives;
//! - `watch.rs` ends the signals of whoever dies;
//! - `topology/` tells who reaches whom how, and what it takes;
//! - `error.rs` tells why it does not work.

mod alive;
mod error;
mod open;
mod team;
pub mod topology;
mod ucx;
mod watch;
mod way;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use pontoon_hal::link::{Link, Remote};
use pontoon_job::{Env, Job, Process, StoreError};
use pontoon_signal::{Block, Bound, Rank, Segment, SegmentState, Slot, SlotId};

pub use error::WorldError;
pub use open::{NoSuchTransport, Options, Transport};
pub use team::{TEAM_SLOTS, adding};
pub use watch::Death;
pub use way::{Shared, Way};

use alive::{Left, while_it_lives};
use watch::Deaths;

/// A rank's place in its job.
///
/// It owns a [segment](Self::segment): signals that others publish here, and a heap of memory that it
/// [shares](Self::share) by name. To each other rank there is a [way](Self::way): mapped memory on one
/// host, UCX between hosts. When a rank dies, every wait for its signals ends with that.
///
/// Dropping it without having [left](Self::leave) is a death to the others.
///
/// ```
/// use pontoon::world::{Options, World};
/// use pontoon::Bound;
///
/// // The job that the launcher's variables name, or one of this process alone.
/// let world = World::open(Options::default())?;
/// let numbers = world.segment().allocate(4096)?;
/// let shared = world.share("numbers", &numbers, Bound::default())?;
/// world.barrier("shared", Bound::default())?;
/// for peer in world.others() {
///     let remote = world.find(peer, "numbers", Bound::default())?;
///     let (way, mut signal) = (world.way(peer)?, world.way(peer)?.signal(0)?);
///     way.write_signal(&shared, 0..64, &remote, 0, &mut signal, 1, pontoon::hal::link::Order::Weak)?;
/// }
/// world.leave(Bound::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct World {
    job: Job,
    rank: Rank,
    size: u32,
    segment: Segment,
    links: Vec<Arc<dyn Link>>,
    /// Of each rank, which of the links leads there.
    ways: Vec<usize>,
    deaths: Arc<Deaths>,
    /// What this process offers to others for as long as it is there.
    hosting: Mutex<Vec<Box<dyn Send>>>,
    lost_after: Duration,
    /// The counter after those that the options name, for what the world does by itself.
    own_slot: u32,
    /// What measuring takes of the heap, which nothing goes back to.
    scratch: OnceLock<Block>,
}

impl World {
    /// Joins the job that the launcher's variables name; without any, a job of this process alone.
    ///
    /// # Errors
    ///
    /// [`WorldError`].
    ///
    /// # Blocks
    ///
    /// Until all ranks are there and connected, as long as the options' bound allows.
    pub fn open(options: Options) -> Result<Self, WorldError> {
        let env = Env::read()?.map_or_else(Env::alone, Ok)?;
        Self::open_in(&env, options)
    }

    /// As [`open`](Self::open), in a job that the caller names.
    ///
    /// # Errors
    ///
    /// [`WorldError`].
    ///
    /// # Blocks
    ///
    /// As [`open`](Self::open).
    pub fn open_in(env: &Env, options: Options) -> Result<Self, WorldError> {
        open::open(env, options)
    }

    /// Which rank this process is.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks the job began with.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// All ranks but this one.
    pub fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let own = self.rank;
        (0..self.size).map(Rank).filter(move |&rank| rank != own)
    }

    /// What this rank shares with others.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The job: its store, barriers, and who is there.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The way to `peer`.
    ///
    /// # Errors
    ///
    /// [`WorldError::NoSuchRank`].
    pub fn way(&self, peer: Rank) -> Result<Way, WorldError> {
        let no_such = WorldError::NoSuchRank { rank: peer, size: self.size };
        let at = self.ways.get(peer.0 as usize).copied().filter(|_| peer != self.rank);
        let at = at.ok_or(no_such)?;
        Ok(Way::new(peer, Arc::clone(&self.links[at]), at, self.segment.clone()))
    }

    /// Shares `block` with all ranks under `name`; see [`find`](Self::find). Without others it is
    /// registered all the same.
    ///
    /// # Errors
    ///
    /// [`WorldError`]: the links' reasons, or the store's.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn share(&self, name: &str, block: &Block, bound: Bound) -> Result<Shared, WorldError> {
        let of_links = self.links.iter().map(|link| link.register(block));
        let shared = Shared::new(of_links.collect::<Result<Vec<_>, _>>()?);
        for peer in self.others() {
            let at = self.ways[peer.0 as usize];
            let key = shared.key(at).ok_or(WorldError::NotShareable {
                name: name.into(),
                link: self.links[at].name(),
            })?;
            self.job().set(&key_of(self.rank, peer, name), key.as_bytes(), bound)?;
        }
        Ok(shared)
    }

    /// What `peer` shares under `name`, once it does.
    ///
    /// # Errors
    ///
    /// [`WorldError`]; [`Gone`](WorldError::Gone) as soon as the peer is.
    ///
    /// # Blocks
    ///
    /// Until the peer has shared it, as long as `bound` allows.
    pub fn find(&self, peer: Rank, name: &str, bound: Bound) -> Result<Remote, WorldError> {
        let way = self.way(peer)?;
        way.attach(self.get_from(peer, &key_of(peer, self.rank, name), &Left::of(bound))?)
    }

    /// The value of `key`, which `peer` sets, once it did.
    fn get_from(&self, peer: Rank, key: &[u8], left: &Left) -> Result<Vec<u8>, WorldError> {
        let get = |bound| self.job().get(key, bound);
        let is_late = |error: &StoreError| matches!(error, StoreError::TimedOut { .. });
        Ok(while_it_lives(self.job(), peer, left, get, is_late)??)
    }

    /// The counter `slot` that `peer` grows here.
    ///
    /// # Errors
    ///
    /// [`WorldError::Slot`].
    pub fn incoming(&self, peer: Rank, slot: u32) -> Result<Slot, WorldError> {
        Ok(self.segment.signals().slot(SlotId { producer: peer, slot })?)
    }

    /// Waits until all ranks have come to the barrier `name`.
    ///
    /// # Errors
    ///
    /// [`WorldError`], as soon as a rank is gone.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn barrier(&self, name: &str, bound: Bound) -> Result<(), WorldError> {
        Ok(self.job().barrier(name.as_bytes(), bound)?)
    }

    /// Who died so far, as this process noticed it, first first.
    pub fn deaths(&self) -> Vec<Death> {
        self.deaths.all()
    }

    /// As [`deaths`](Self::deaths), once there are more than `known`; waits for that as long as
    /// `within`: a wait can fail by a death just before its reason is known.
    ///
    /// # Blocks
    ///
    /// As long as `within`.
    pub fn deaths_beyond(&self, known: usize, within: Duration) -> Vec<Death> {
        self.deaths.beyond(known, within)
    }

    /// The process of each rank.
    fn processes(&self) -> Vec<Process> {
        let all = (0..self.size).map(Rank);
        all.map(|rank| self.job.process(rank).expect("every rank of a job that began")).collect()
    }

    /// What `error` followed from: a death, if there was one.
    fn blame(&self, error: WorldError) -> WorldError {
        alive::blame(self.job(), self.lost_after, error)
    }

    /// Keeps `guard` until this place in the job ends.
    fn host(&self, guard: Box<dyn Send>) {
        self.hosting.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
    }

    /// Leaves in good order: to the others this is no death.
    ///
    /// # Errors
    ///
    /// [`WorldError::Store`] if rank 0 does not answer.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows; rank 0 until all have left.
    pub fn leave(self, bound: Bound) -> Result<(), WorldError> {
        let Self { job, deaths, segment, hosting, links, .. } = self;
        deaths.expect_leaving();
        segment.set_state(SegmentState::Left);
        let left = job.leave(bound);
        // Until here others may have been reaching in.
        drop((segment, hosting, links));
        Ok(left?)
    }
}

/// Where `from` puts what `to` needs to reach what it shares as `name`.
fn key_of(from: Rank, to: Rank, name: &str) -> Vec<u8> {
    format!("pontoon/key/{from}/{to}/{name}").into_bytes()
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World(rank {} of {})", self.rank, self.size)
    }
}
