//! A window on the memory of a server.

use std::{
    error, fmt,
    ops::Range,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Bound, Rank, World,
    hal::paging::PAGE,
    job::JoinError,
    smc::{
        AlternateStack, Class, Extent, Faults, MapError, Mapped, Pool, Settings, SmcError,
        on_this_thread,
    },
    world::{self, Transport, WorldError},
};

use super::{BYTES, DONE, LOST_AFTER, MEMORY, READY, ROUND, ToolError, error::Loss, place::Place};
use crate::{counted::counted, duration, size, voice};

/// How a server is reached, and how its pages are kept.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Reach {
    #[command(flatten)]
    pub(super) door: Door,
    /// So many pages are here at most; with a unit (K, M, G), so many bytes of them.
    #[arg(long, value_name = "PAGES|SIZE", default_value = "16M", value_parser = size::pages)]
    pub(super) pool: usize,
    /// How much comes at once where no order is known.
    #[arg(long, value_name = "4K|64K|2M", default_value = "4K")]
    pub(super) class: Group,
}

/// How a server is reached.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Door {
    /// Where the server listens.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(super) connect: Place,
    /// What the server is reached by, which has to be told the same: shared memory on one host and UCX between hosts,
    /// unless given.
    #[arg(long, value_name = "auto|shm|ucx", default_value = "auto")]
    transport: Transport,
    /// Who fetches a page that is missed.
    #[arg(long, value_name = "auto|in-thread|threads=N", default_value = "auto")]
    pub(super) faults: Served,
    /// How long an access waits for its page.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::bound)]
    pub(super) deadline: Duration,
    /// How long the server is waited for, which has one client at a time.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::bound)]
    join_bound: Duration,
}

impl Door {
    /// With a window of the usual kind, that takes little while nobody touches it.
    pub(super) fn reach(&self) -> Reach {
        Reach { door: self.clone(), pool: 64, class: Group(Class::Small) }
    }
}

/// What is not one of the names that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoSuch(&'static str);

impl fmt::Display for NoSuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl error::Error for NoSuch {}

/// A class of pages, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(Class);

impl FromStr for Group {
    type Err = NoSuch;

    fn from_str(text: &str) -> Result<Self, NoSuch> {
        Ok(Self(match text {
            "4K" => Class::Small,
            "64K" => Class::Medium,
            "2M" => Class::Large,
            _ => return Err(NoSuch("4K, 64K or 2M")),
        }))
    }
}

impl Group {
    /// How many pages come at once.
    fn pages(self) -> usize {
        match self.0 {
            Class::Small => 1,
            Class::Medium => 16,
            Class::Large => 512,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Class::Small => "4K",
            Class::Medium => "64K",
            Class::Large => "2M",
        })
    }
}

/// Who fetches pages, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served(pub(super) Faults);

/// More threads than this serve no page sooner.
const THREADS_MAX: usize = 64;

impl FromStr for Served {
    type Err = NoSuch;

    fn from_str(text: &str) -> Result<Self, NoSuch> {
        let threads = || {
            let threads = text.strip_prefix("threads=").filter(|text| !text.starts_with('+'))?;
            threads.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads))
        };
        Ok(Self(match text {
            "auto" => Faults::Auto,
            "in-thread" => Faults::InThread,
            _ => Faults::Threads(threads().ok_or(NoSuch("auto, in-thread or threads=1 to 64"))?),
        }))
    }
}

/// What work on a server's memory gave.
pub(super) struct Done<T> {
    pub(super) work: T,
    /// Why the server went before it said that it has all, if it did.
    pub(super) loss: Option<Loss>,
}

impl<T> Done<T> {
    /// Of work that stored nothing, all of which is right, then: `what` says how far it came.
    pub(super) fn of_reads(self, what: impl FnOnce(&T) -> String) -> T {
        if let Some(loss) = self.loss {
            let what = what(&self.work);
            voice::say(&format!("warning: {}; {what} before that", loss.cause()));
        }
        self.work
    }
}

/// What a client has of the server's memory.
pub(super) struct Client {
    // Dropped first: nobody touches the window any more when its pool and its link go.
    window: Mapped,
    _stack: AlternateStack,
    world: World,
    bytes: usize,
    /// Who fetches pages.
    pub(super) faults: String,
    step: usize,
    pool: Pool,
}

impl Reach {
    /// Has a window on the server's memory for as long as `work` takes. What that gives.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Client) -> Result<T, ToolError>,
    ) -> Result<Done<T>, ToolError> {
        self.with_an(|extent| extent, work)
    }

    /// The same, for work that stores nothing.
    pub(super) fn to_read<T>(
        &self,
        work: impl FnOnce(&Client) -> Result<T, ToolError>,
    ) -> Result<Done<T>, ToolError> {
        self.with_an(Extent::read_only, work)
    }

    fn with_an<T>(
        &self,
        extent: fn(Extent) -> Extent,
        work: impl FnOnce(&Client) -> Result<T, ToolError>,
    ) -> Result<Done<T>, ToolError> {
        let client = self.open(extent)?;
        match work(&client) {
            Ok(work) => Ok(Done { work, loss: client.end().err() }),
            Err(error) => {
                client.give_up();
                Err(error)
            }
        }
    }

    fn open(&self, extent: fn(Extent) -> Extent) -> Result<Client, ToolError> {
        // With less the pages that come together would drive each other out before they are used.
        let least = POOL_MIN.max(2 * self.class.pages());
        if self.pool < least {
            let (pages, class) = (self.pool, self.class.to_string());
            return Err(ToolError::Pool { pages, class, least });
        }
        let mut settings = Settings::for_pages(self.pool);
        settings.deadline = self.door.deadline;
        let pool = Pool::new(settings).map_err(MapError::from)?;
        let world = self.join()?;
        match self.map(&world, &pool, extent) {
            Ok((window, bytes, faults)) => {
                let stack = on_this_thread().map_err(ToolError::Stack)?;
                // So little at once that what is looked at is here.
                let step = (self.pool / 4).clamp(1, 256) * PAGE;
                Ok(Client { window, _stack: stack, world, bytes, faults, step, pool })
            }
            Err(error) => {
                // The error is what counts.
                let _ = world.leave(Bound::within(ROUND));
                Err(error)
            }
        }
    }

    /// Becomes the server's client, once it has no other.
    fn join(&self) -> Result<World, ToolError> {
        let env = self.door.connect.env(1)?;
        let began = Instant::now();
        loop {
            // A bound is above nothing; whether any of it is left is looked at below.
            let left = self.door.join_bound.saturating_sub(began.elapsed()).max(AGAIN);
            let spec = world::Options::default()
                .with_slots(1)
                .with_heap(1 << 20)
                .with_transport(self.door.transport)
                .with_lost_after(LOST_AFTER)
                .with_bound(Bound::within(left));
            let error = match World::open_in(&env, spec) {
                Ok(world) => return Ok(world),
                Err(error) => error,
            };
            let (place, waited) = (self.door.connect.clone(), began.elapsed());
            match error {
                WorldError::Join(error) if is_busy(&error) => {
                    if waited >= self.door.join_bound {
                        return Err(ToolError::Busy { place, waited });
                    }
                    thread::sleep(AGAIN.min(self.door.join_bound - waited));
                }
                WorldError::Join(JoinError::NoMaster { last, .. }) => {
                    return Err(ToolError::NoServer { place, waited, last });
                }
                WorldError::Join(JoinError::NoAddress { why, .. }) => {
                    return Err(ToolError::NoAddress { place, why });
                }
                // Another program, or a job of which this is no part.
                WorldError::Join(
                    JoinError::NotPontoon { .. } | JoinError::Job { .. } | JoinError::World { .. },
                ) => return Err(ToolError::NoMemory(place)),
                error => return Err(error.into()),
            }
        }
    }

    fn map(
        &self,
        world: &World,
        pool: &Pool,
        with: fn(Extent) -> Extent,
    ) -> Result<(Mapped, usize, String), ToolError> {
        let round = Bound::within(ROUND);
        let bytes = world.job().get(BYTES, round).map_err(WorldError::from)?;
        let bytes = bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let home = world.home(pool, Rank(0), MEMORY, round)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(home.bytes());
        world.barrier(READY, round)?;
        let extent = with(Extent::new(0..home.bytes(), home, 0).class(self.class.0));
        let faults = match self.door.faults.0 {
            Faults::Auto if extent.is_mapped() => Faults::InThread,
            Faults::Auto => Faults::Threads(2),
            given => given,
        };
        let window = Mapped::open(pool, vec![extent], faults)?;
        Ok((
            window,
            bytes,
            match faults {
                Faults::Threads(threads) => {
                    let threads = counted(threads as u64, "thread");
                    format!("by {threads}, which an access waits for")
                }
                _ => "in the thread whose access it was (SIGBUS)".into(),
            },
        ))
    }
}

/// What a pool has at least.
const POOL_MIN: usize = 64;

/// How long it is until a server that has a client is asked again.
const AGAIN: Duration = Duration::from_millis(50);

/// Whether the server has a client, or just had one.
fn is_busy(error: &JoinError) -> bool {
    use JoinError as E;
    matches!(error, E::Taken { .. } | E::Stale { .. } | E::Closed { .. } | E::Lost { .. })
}

impl Client {
    /// How many bytes the memory has.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn window(&self) -> &Mapped {
        &self.window
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// So many bytes from `at` on; all that there are, unless it is said how many.
    pub(super) fn range(&self, at: usize, bytes: Option<usize>) -> Result<Range<usize>, ToolError> {
        let end = bytes.map_or(Some(self.bytes), |bytes| at.checked_add(bytes));
        match end.filter(|&end| at <= end && end <= self.bytes) {
            Some(end) => Ok(at..end),
            None => Err(ToolError::Outside { at, bytes, all: self.bytes }),
        }
    }

    /// `range` in pieces of whole pages, save the first and the last.
    pub(super) fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (step, mut at) = (self.step, range.start);
        std::iter::from_fn(move || {
            let piece = at..range.end.min((at / step + 1) * step);
            at = piece.end;
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// The bytes from `at` on, if they are the server's.
    pub(super) fn get(&self, at: usize, into: &mut [u8]) -> Result<(), Loss> {
        self.window.get(at, into).map_err(|error| self.loss(error))?;
        self.trust(at..at + into.len())
    }

    /// Stores bytes from `at` on, and releases them. What that did.
    pub(super) fn put(&self, at: usize, bytes: &[u8]) -> Result<pontoon::smc::Released, Loss> {
        let range = at..at + bytes.len();
        self.window.put(at, bytes).map_err(|error| self.loss(error))?;
        let released = self.window.release(range.clone(), Bound::within(ROUND));
        let released = released.map_err(|error| self.loss(error))?;
        self.trust(range).map(|()| released)
    }

    /// That what was read is what the server has, and what was stored went to its pages.
    pub(super) fn trust(&self, range: Range<usize>) -> Result<(), Loss> {
        self.window.check(range).map_err(|error| self.loss(error))?;
        // A page that held the pattern may have made room for another since.
        match self.window.statistics().poisoned {
            0 => Ok(()),
            poisoned => {
                let (home, bytes) = (Rank(0), 0..self.bytes);
                Err(self.loss(SmcError::Unavailable { home, bytes, poisoned }))
            }
        }
    }

    /// Why the memory is no longer to be had.
    pub(super) fn loss(&self, error: impl error::Error + 'static) -> Loss {
        // A wait can fail by a death just before its reason is known.
        let death = self.world.deaths_beyond(0, NEWS).first().copied();
        let pattern = self.window.statistics().poisoned;
        if death.is_some_and(|death| death.rank == self.world.rank()) {
            return Loss { death: None, error: Box::new(TakenForDead), pattern };
        }
        Loss { death, error: Box::new(error), pattern }
    }

    /// That the server has all that was released; then leaves it.
    fn end(self) -> Result<(), Loss> {
        let round = Bound::within(ROUND);
        self.world.barrier(DONE, round).map_err(|error| self.loss(error))?;
        // Both sides have all: what comes after changes nothing.
        let _ = self.leave();
        Ok(())
    }

    /// Leaves a server that may be gone.
    fn give_up(self) {
        let _ = self.leave();
    }

    fn leave(self) -> Result<(), WorldError> {
        let Self { window, _stack, world, pool, .. } = self;
        drop((window, pool));
        world.leave(Bound::within(ROUND))
    }
}

/// The server has heard nothing of this process for a while.
#[derive(Debug)]
struct TakenForDead;

impl fmt::Display for TakenForDead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the server took this process for dead, as it heard nothing of it for {LOST_AFTER:?}: it was stopped, \
             or had no processor; try again"
        )
    }
}

impl error::Error for TakenForDead {}

/// How long a reason may take to be known.
const NEWS: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for name in ["4K", "64K", "2M"] {
            assert_eq!(name.parse::<Group>().unwrap().to_string(), name);
        }
        assert!("2m".parse::<Group>().is_err());
        assert_eq!("threads=3".parse(), Ok(Served(Faults::Threads(3))));
        assert_eq!("in-thread".parse(), Ok(Served(Faults::InThread)));
        for name in ["", "threads", "threads=0", "threads=65", "threads=+1", "threads=-1"] {
            assert!(name.parse::<Served>().is_err(), "{name:?}");
        }
    }
}
