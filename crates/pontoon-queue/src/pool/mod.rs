//! Fences for work that is no stream's: made one by one, completed once from any thread.
//!
//! A [`FencePool`] makes pairs: the [`Completer`] goes with the work, the [`Fence`] to whoever
//! waits for it. Each is one use of a line of a [`LinePool`], whose counter is the generation, so
//! that a fence of an earlier use stays reached. The pool knows of each fence what it is for, where
//! and when it was made, and so can say at any time which ones nobody has completed.

mod report;
mod sites;

pub use report::{LeakReport, LeakSite, Outstanding, PoolReport};

use std::{fmt, panic::Location, sync::Arc};

use pontoon_signal::{Ending, Host, Lease, LinePool, Nanos, Os, Rank, Reason, Seq, SlotId};

use crate::{
    Fence,
    fence::{Point, Signal},
};
use sites::{SiteId, Sites};

/// The size of a fence pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Lines of the first growth, at least 1. Each further one has at least as many, and twice as
    /// many as can still be used of the one before.
    pub lines: u32,
    /// The most fences that may be outstanding at a time.
    pub limit: u32,
    /// Where the counters of its lines begin. Tests start near 2^64.
    pub start: Seq,
}

impl Default for PoolSpec {
    /// 64 lines at first, at most 65,536, which is 8 MiB of lines.
    fn default() -> Self {
        Self { lines: 64, limit: 1 << 16, start: Seq::new(0) }
    }
}

/// Makes one-shot fences.
///
/// One owner creates; completing goes on from any thread without it. Once the pool has as many
/// lines as are in use at a time, creating and completing allocate nothing. A fence that failed
/// costs its line, which is never used again; the memory of a growth whose lines have all failed
/// is let go with its last fence. A dropped pool leaves its completers and fences as they are.
///
/// [`Fence::later`] has no meaning for its fences: the next use of the line is somebody else's.
///
/// ```
/// use pontoon_queue::{FencePool, PoolSpec};
/// use pontoon_signal::{Bound, Rank};
///
/// let mut pool = FencePool::new(Rank(0), PoolSpec::default());
/// let (completer, fence) = pool.create("upload")?;
/// let work = std::thread::spawn(move || completer.complete(Ok(())));
/// fence.wait(Bound::default())?;
/// # work.join().unwrap();
///
/// let (_forgotten, _) = pool.create("download")?;
/// let leaks = pool.leaks().to_string();
/// assert!(leaks.starts_with("1 fence is not completed") && leaks.contains("download"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FencePool {
    device: Rank,
    spec: PoolSpec,
    growths: Vec<Growth>,
    sites: Sites,
    /// Lines made so far: the number of the next growth's first slot.
    numbered: u32,
    made: Nanos,
    counts: Counts,
}

/// What cannot be found out from the lines.
#[derive(Debug, Default)]
struct Counts {
    created: u64,
    high_water: u64,
    growths: u64,
    /// Of growths that were let go.
    failed: u64,
    dropped: u64,
    retired: u64,
}

/// The lines of one growth and, of each, its last use.
#[derive(Debug)]
struct Growth {
    lines: LinePool,
    uses: Vec<Option<Use>>,
    first: SlotId,
}

/// One fence: what it is for and which completion is its.
#[derive(Clone, Copy, Debug)]
struct Use {
    site: SiteId,
    created: Nanos,
    target: Seq,
}

/// How a use of a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Outstanding,
    Completed,
    Failed,
    Dropped,
}

impl FencePool {
    /// A pool whose fences are of the device `device`. It allocates its lines with the first fence.
    ///
    /// # Panics
    ///
    /// If the spec has no lines, or a limit of none.
    pub fn new(device: Rank, spec: PoolSpec) -> Self {
        assert!(spec.lines > 0 && spec.limit > 0, "a fence pool needs at least one line");
        let (growths, sites, counts) = (Vec::new(), Sites::default(), Counts::default());
        Self { device, spec, growths, sites, numbered: 0, made: Os.now(), counts }
    }

    /// A fence that is reached once its completer says so. `label` says in errors and reports what
    /// it is for, together with the place of this call; one record is kept for each such pair.
    ///
    /// # Errors
    ///
    /// [`CreateError::Full`] if as many fences as the spec allows are outstanding.
    ///
    /// # Panics
    ///
    /// If memory is used up.
    #[track_caller]
    pub fn create(&mut self, label: &'static str) -> Result<(Completer, Fence), CreateError> {
        self.create_at(label, Location::caller())
    }

    /// The same, made at `location`.
    pub(crate) fn create_at(
        &mut self,
        label: &'static str,
        location: &'static Location<'static>,
    ) -> Result<(Completer, Fence), CreateError> {
        let (growth, lease) = match self.take() {
            Some(taken) => taken,
            None => self.grow()?,
        };
        let (site, name) = self.sites.find(label, location);
        let (slot, target, name) = (lease.slot(), lease.target(), Arc::clone(name));
        let made = Use { site, created: Os.now(), target };
        self.growths[growth].uses[lease.line() as usize] = Some(made);
        self.counts.created += 1;
        let out = self.growths.iter().map(|growth| u64::from(growth.lines.outstanding())).sum();
        self.counts.high_water = self.counts.high_water.max(out);
        let point = Point { slot: Signal::Bare(slot), target, place: None };
        let fence = Fence::known(point, self.device, name);
        Ok((Completer { lease }, fence))
    }

    /// What a fence of its is for, where it was made, and how long ago; `None` if its line has been
    /// used again or let go.
    pub(crate) fn made(
        &self,
        slot: SlotId,
        target: Seq,
    ) -> Option<(&'static str, &'static Location<'static>, Nanos)> {
        if slot.producer != self.device {
            return None;
        }
        self.growths.iter().find_map(|growth| {
            let line = slot.slot.wrapping_sub(growth.first.slot);
            let made = (*growth.uses.get(line as usize)?).filter(|made| made.target == target)?;
            let site = self.sites.site(made.site);
            Some((site.label, site.location, Os.now().since(made.created)))
        })
    }

    /// A free line and the growth it is of. The youngest first, for it is the largest.
    fn take(&mut self) -> Option<(usize, Lease)> {
        let mut growths = self.growths.iter_mut().enumerate().rev();
        growths.find_map(|(index, growth)| Some((index, growth.lines.take()?)))
    }

    #[cold]
    fn grow(&mut self) -> Result<(usize, Lease), CreateError> {
        self.let_go();
        let usable = self.growths.iter().map(Growth::usable);
        let room = self.spec.limit.saturating_sub(usable.sum());
        if room == 0 {
            return Err(self.full());
        }
        // Lines that failed are no sign of demand.
        let last = self.growths.last().map_or(0, Growth::usable);
        let lines = last.saturating_mul(2).max(self.spec.lines).min(room);
        let first = SlotId { producer: self.device, slot: self.numbered };
        let mut pool = LinePool::on(Os, first, lines, self.spec.start);
        let lease = pool.take().expect("a new pool has a free line");
        self.growths.push(Growth { lines: pool, uses: vec![None; lines as usize], first });
        self.numbered = self.numbered.wrapping_add(lines);
        self.counts.growths += 1;
        Ok((self.growths.len() - 1, lease))
    }

    /// Forgets the growths of which no line can be used again.
    fn let_go(&mut self) {
        let counts = &mut self.counts;
        self.growths.retain(|growth| {
            let standings = || growth.uses().map(|(_, _, standing)| standing);
            // The count of retired lines may be seen before their endings are: then next time.
            let is_pending = || standings().any(|standing| standing == Standing::Outstanding);
            let stays = growth.usable() > 0 || is_pending();
            if !stays {
                for standing in standings() {
                    counts.failed += u64::from(standing == Standing::Failed);
                    counts.dropped += u64::from(standing == Standing::Dropped);
                }
                counts.retired += u64::from(growth.lines.lines());
            }
            stays
        });
    }

    fn full(&self) -> CreateError {
        let (device, limit, leaks) = (self.device, self.spec.limit, self.leaks());
        let outstanding = leaks.count();
        CreateError::Full { device, limit, outstanding, most: leaks.sites.into_iter().next() }
    }
}

impl Growth {
    /// How many of its lines are in use or free.
    fn usable(&self) -> u32 {
        self.lines.lines() - self.lines.retired()
    }

    /// Of each line that was used, which slot it is, its last use, and how that stands.
    fn uses(&self) -> impl Iterator<Item = (SlotId, Use, Standing)> {
        self.uses.iter().zip(0..).filter_map(|(last, line)| {
            let last = (*last)?;
            let standing = match self.lines.outcome(line, last.target) {
                None => Standing::Outstanding,
                Some(Ok(())) => Standing::Completed,
                Some(Err(Ending::Aborted { reason: Reason::DROPPED, .. })) => Standing::Dropped,
                Some(Err(_)) => Standing::Failed,
            };
            let slot = SlotId { slot: self.first.slot.wrapping_add(line), ..self.first };
            Some((slot, last, standing))
        })
    }
}

/// The duty to say how the work of one fence ended.
///
/// Dropping it fails the fence with [`Reason::DROPPED`], so that no wait hangs.
///
/// ```compile_fail,E0382
/// # use pontoon_queue::{FencePool, PoolSpec};
/// # let mut pool = FencePool::new(pontoon_signal::Rank(0), PoolSpec::default());
/// let (completer, fence) = pool.create("upload").unwrap();
/// completer.complete(Ok(()));
/// completer.complete(Ok(())); // does not compile
/// ```
#[must_use = "dropped, it fails its fence"]
#[derive(Debug)]
pub struct Completer {
    lease: Lease,
}

impl Completer {
    /// Ends the work. `Ok` reaches the fence, and what this thread wrote before is readable after
    /// it; `Err` fails every wait for the fence at once, as an abort with that reason.
    ///
    /// Neither allocates nor locks; makes a system call only if somebody sleeps.
    pub fn complete(self, outcome: Result<(), Reason>) {
        match outcome {
            Ok(()) => {
                self.lease.complete();
            }
            Err(reason) => {
                let by = self.lease.id().producer;
                self.lease.fail(Ending::Aborted { reason, by });
            }
        }
    }

    /// Which use of its line the fence is; the fence's target.
    pub fn generation(&self) -> Seq {
        self.lease.target()
    }
}

/// Why a pool made no fence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// As many fences are outstanding as the pool's spec allows.
    Full {
        /// The device of the pool.
        device: Rank,
        /// The limit.
        limit: u32,
        /// How many are outstanding.
        outstanding: u64,
        /// The place that made most of them; `None` if all were completed while this error was
        /// put together.
        most: Option<LeakSite>,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Full { device, limit, outstanding, most } = self;
        write!(f, "{outstanding} fences of device {device} are outstanding, and {limit} may be; ")?;
        match most {
            Some(LeakSite { label, location, fences }) => write!(
                f,
                "{} of them are \"{label}\", made at {location}: complete or drop their \
                 completers, or raise the pool's limit",
                fences.len()
            ),
            None => f.write_str("all were completed meanwhile: try again"),
        }
    }
}

impl std::error::Error for CreateError {}
