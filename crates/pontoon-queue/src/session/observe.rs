//! Edges by the names of what they order: those a session made, and those it was told to add.

use std::{collections::HashSet, fmt};

use pontoon_hal::{Device, Purpose};

use super::{HostError, Lane, Note, Plan, Session, Site};
use crate::{Axis, Clock};

/// A dependency, by the names of the commands that it orders. The same in every run of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeName {
    /// What comes first.
    pub earlier: Site,
    /// What waits for it.
    pub later: Site,
}

impl fmt::Display for EdgeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.earlier, self.later)
    }
}

/// The edges that were made.
#[derive(Debug, Default)]
pub(super) struct Observer {
    seen: HashSet<EdgeName>,
    edges: Vec<EdgeName>,
    /// Lanes that were given a wait, and no command since to be named as who waits.
    open: Vec<(usize, Site)>,
}

impl Observer {
    fn note(&mut self, earlier: Site, later: Site) {
        let edge = EdgeName { earlier, later };
        if self.seen.insert(edge.clone()) {
            self.edges.push(edge);
        }
    }
}

/// An edge to be added wherever its names meet.
#[derive(Debug)]
pub(super) struct Added {
    name: EdgeName,
    /// The last command named as the earlier one, by the position that it reaches.
    last: Option<(Axis, u64)>,
}

impl<D: Device> Session<'_, D> {
    /// From now on notes the edges that are made.
    pub fn observe_edges(&mut self) {
        self.aids.observer.get_or_insert_default();
    }

    /// Each distinct edge between queues, or from a queue to an access of the host, that was derived
    /// or given since [`observe_edges`](Self::observe_edges), in the order in which they were first
    /// made. An edge that others implied was not made. A [`wait`](Self::wait) of the host is none:
    /// it orders all that follows.
    pub fn observed(&self) -> Vec<EdgeName> {
        self.aids.observer.as_ref().map(|observer| observer.edges.clone()).unwrap_or_default()
    }

    /// The same session, with edges added: whenever a device is given a command named as the later
    /// of one, or the host makes an access so named, that comes after the last command named as the
    /// earlier one that a device was given by then.
    pub fn with_added_edges(mut self, edges: Vec<EdgeName>) -> Self {
        self.aids.added = edges.into_iter().map(|name| Added { name, last: None }).collect();
        self
    }

    /// The lane is given a wait for the first `count` events of another axis.
    pub(super) fn observe_wait(&mut self, lane: usize, axis: Axis, count: u64) {
        let earlier = self.work_before(axis, count);
        if let Some(observer) = &mut self.aids.observer {
            observer.open.push((lane, earlier));
        }
    }

    /// The lane was given a command, which reaches position `count`.
    pub(super) fn observe_work(&mut self, lane: usize, label: &'static str, count: u64) {
        let axis = Self::axis(lane);
        let this = &self.lanes[lane];
        for added in &mut self.aids.added {
            if is_of(&added.name.earlier, label, Some(this)) {
                added.last = Some((axis, count));
            }
        }
        let later = self.site(axis, Some(label));
        let Some(observer) = &mut self.aids.observer else { return };
        let mut open = std::mem::take(&mut observer.open);
        for (_, earlier) in open.extract_if(.., |(waits, _)| *waits == lane) {
            observer.note(earlier, later.clone());
        }
        observer.open = open;
    }

    /// An access of the host waits for the first `count` events of an axis.
    pub(super) fn observe_host(&mut self, label: &'static str, axis: Axis, count: u64) {
        let earlier = self.work_before(axis, count);
        let later = self.site(crate::tracker::HOST, Some(label));
        if let Some(observer) = &mut self.aids.observer {
            observer.note(earlier, later);
        }
    }

    /// Whether somebody wants to know of each command and each wait.
    pub(super) fn is_observed(&self) -> bool {
        self.aids.observer.is_some() || !self.aids.added.is_empty()
    }

    /// Plans the added edges of a command.
    pub(super) fn plan_added(
        &self,
        lane: usize,
        step: usize,
        label: &'static str,
        plan: &mut Plan,
        clock: &mut Clock,
    ) {
        let this = Some(&self.lanes[lane]);
        let own = self.aids.added.iter().filter(|added| is_of(&added.name.later, label, this));
        for (axis, count) in own.filter_map(|added| added.last) {
            self.plan_edge(plan, clock, step, (axis, count), Purpose::Dependency);
        }
    }

    /// Waits for what an access of the host was told to come after.
    pub(super) fn meet_added(&mut self, label: &'static str) -> Result<(), HostError> {
        for at in 0..self.aids.added.len() {
            let added = &self.aids.added[at];
            let Some((axis, count)) = added.last else { continue };
            if is_of::<D>(&added.name.later, label, None) {
                self.reach(axis, count, self.patience).map_err(HostError::Wait)?;
                self.tracker.host_learns(axis, count);
            }
        }
        Ok(())
    }

    /// The last command among the first `count` events of an axis.
    fn work_before(&self, axis: Axis, count: u64) -> Site {
        let mut notes = (0..count).rev().map_while(|at| self.note(axis, at));
        let label = notes.find_map(|note| match note {
            Note::Work(label) => Some(label),
            _ => None,
        });
        self.site(axis, label)
    }
}

/// Whether a command of that label is what the site names; without a lane it is the host's.
fn is_of<D: Device>(site: &Site, label: &str, lane: Option<&Lane<'_, D>>) -> bool {
    site.label == label
        && site.device == lane.map(|lane| lane.device.rank())
        && site.queue.as_deref() == lane.map(|lane| &*lane.label)
}
