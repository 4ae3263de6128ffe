//! Waits that were given and that others imply, each with its proof.

use std::fmt;

use pontoon_hal::Device;

use super::{Session, Where};
use crate::{
    Axis, Site,
    session::{Note, Plan},
    tracker::HOST,
};

/// A wait that was given and that others imply: it can be deleted, and nothing changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedundantEdge {
    /// The queue that was to wait.
    pub waiting: Where,
    /// What for.
    pub waited_for: Site,
    /// Why it comes after that anyway.
    pub why: Implied,
    /// How often.
    pub count: u64,
}

/// What implies a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Implied {
    /// It was for an earlier command of the same queue.
    ByOwnOrder,
    /// The host knew it to be over before it submitted the wait.
    ByHost,
    /// The queue waits for this one, which comes after it or is it.
    ByWait(Site),
}

impl fmt::Display for RedundantEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiting, waited_for, why, count } = self;
        write!(f, "{waiting} need not wait for {waited_for}: ")?;
        match why {
            Implied::ByOwnOrder => f.write_str("it is earlier in the same queue")?,
            Implied::ByHost => f.write_str("the host knew it to be over")?,
            Implied::ByWait(site) => write!(f, "the wait for {site} implies it")?,
        }
        match count {
            1 => Ok(()),
            count => write!(f, " ({count} times)"),
        }
    }
}

/// Different ones that are told apart; a program gives few, again and again.
const MOST: usize = 64;

/// The redundant waits so far, and what proves them.
#[derive(Debug, Default)]
pub(in crate::session) struct Redundant {
    edges: Vec<Entry>,
    untold: u64,
    /// Of each lane, how many events of each axis it waited for.
    waited: Vec<Vec<u64>>,
    /// Of each lane and axis, the last label that was noted and its place in `edges`: what is given again
    /// and again is counted there, without another proof.
    noted: Vec<Vec<Option<Noted>>>,
}

type Noted = (Option<&'static str>, usize);

#[derive(Debug)]
struct Entry {
    what: What,
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct What {
    lane: usize,
    axis: Axis,
    label: Option<&'static str>,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Order,
    Host,
    Wait(Axis, Option<&'static str>),
}

impl Redundant {
    /// The lane waits for the first `count` events of an axis.
    pub(in crate::session) fn waits(&mut self, lane: usize, axis: Axis, count: u64) {
        if self.waited.len() <= lane {
            self.waited.resize_with(lane + 1, Vec::new);
        }
        let (waited, at) = (&mut self.waited[lane], axis.0 as usize);
        if waited.len() <= at {
            waited.resize(at + 1, 0);
        }
        waited[at] = waited[at].max(count);
    }

    /// What the lane waited for: of each axis the last, which its others are before.
    fn waited(&self, lane: usize) -> impl Iterator<Item = (Axis, u64)> {
        let waited = self.waited.get(lane).map_or(&[][..], Vec::as_slice);
        let axes = waited.iter().zip(0..).filter(|&(&count, _)| count > 0);
        axes.map(|(&count, axis)| (Axis(axis), count))
    }

    /// Counts a wait that was noted before with that label; whether it was.
    fn count_again(&mut self, lane: usize, axis: Axis, label: Option<&'static str>) -> bool {
        let noted = self.noted.get(lane).and_then(|of_lane| *of_lane.get(axis.0 as usize)?);
        match noted.filter(|&(known, _)| known == label) {
            Some((_, at)) => {
                self.edges[at].count += 1;
                true
            }
            None => false,
        }
    }

    fn note(&mut self, what: What) {
        let known = self.edges.iter().position(|entry| entry.what == what);
        let at = match known {
            Some(at) => {
                self.edges[at].count += 1;
                at
            }
            None if self.edges.len() < MOST => {
                self.edges.push(Entry { what, count: 1 });
                self.edges.len() - 1
            }
            None => {
                self.untold += 1;
                return;
            }
        };
        let What { lane, axis, label, .. } = what;
        if self.noted.len() <= lane {
            self.noted.resize_with(lane + 1, Vec::new);
        }
        let (noted, axis) = (&mut self.noted[lane], axis.0 as usize);
        if noted.len() <= axis {
            noted.resize(axis + 1, None);
        }
        noted[axis] = Some((label, at));
    }

    pub(super) fn clear(&mut self) {
        self.edges.clear();
        self.untold = 0;
        self.noted.iter_mut().for_each(Vec::clear);
    }
}

impl<D: Device> Session<'_, D> {
    /// Notes that a wait of `lane` for the first `count` events of an axis is implied, and by what:
    /// by the batch's own `plan` so far, or by what came before.
    pub(in crate::session) fn note_redundant(
        &mut self,
        lane: usize,
        plan: &Plan,
        axis: Axis,
        count: u64,
    ) {
        let label = self.label_of(axis, count);
        if self.profiler.redundant.count_again(lane, axis, label) {
            return;
        }
        let why = if axis == Self::axis(lane) {
            Why::Order
        } else if axis == HOST || self.tracker.host_knows(axis) >= count {
            Why::Host
        } else {
            let planned = plan.edges.iter().map(|edge| (edge.axis, edge.count));
            let all = planned.chain(self.profiler.redundant.waited(lane));
            let proofs = all.filter(|&edge| self.tracker.implies(edge, (axis, count)));
            // A lane knows of others by what it waited for, and by the host.
            match proofs.min_by_key(|edge| edge.0 != axis) {
                Some((by, count)) => Why::Wait(by, self.label_of(by, count)),
                None => Why::Host,
            }
        };
        self.profiler.redundant.note(What { lane, axis, label, why });
    }

    fn label_of(&self, axis: Axis, count: u64) -> Option<&'static str> {
        match self.note(axis, count.checked_sub(1)?)? {
            Note::Work(label) => Some(label),
            Note::Wait(..) | Note::Outside => Some("a wait"),
        }
    }

    pub(super) fn redundant_edges(&self) -> (Vec<RedundantEdge>, u64) {
        let redundant = &self.profiler.redundant;
        let edges = redundant.edges.iter().map(|&Entry { what, count }| RedundantEdge {
            waiting: self.place_of(what.lane),
            waited_for: self.site(what.axis, what.label),
            why: match what.why {
                Why::Order => Implied::ByOwnOrder,
                Why::Host => Implied::ByHost,
                Why::Wait(axis, label) => Implied::ByWait(self.site(axis, label)),
            },
            count,
        });
        (edges.collect(), redundant.untold)
    }
}
