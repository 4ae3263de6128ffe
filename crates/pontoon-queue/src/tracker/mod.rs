//! What was done to which bytes, and what everybody knows to have happened before.
//!
//! An [`Axis`] is the host or an in-order lane of a queue; its events are numbered from 0. Each axis
//! has a clock, and a region has an interval map of its bytes. The question "does this command's
//! clock cover the last write of these bytes" is asked once, and its answer serves both uses: where
//! edges are derived, each epoch that is not covered becomes one; where they are checked, it is a
//! hazard.
//!
//! Invariant T1: what the host knows, everything submitted later knows, since it is submitted later.
//! So what an axis did up to the host's knowledge needs no record of its own.

mod cell;
mod freed;
mod lane;
mod need;
mod regions;
#[cfg(test)]
mod tests;
mod write_off;

use std::ops::Range;

use pontoon_hal::{Mode, RegionId};

use crate::{Axis, Clock};
pub(crate) use cell::Maintenance;
use freed::Freed;
use lane::Lane;
pub(crate) use need::{Need, reduce};
use regions::Regions;

/// The axis of the host.
pub(crate) const HOST: Axis = Axis(0);

/// The caches that an access goes through: the host's, or one device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Domain(pub(crate) u8);

impl Domain {
    pub(crate) const HOST: Self = Self(0);
    /// Domains are told apart up to here; the rest share one, which costs elisions only.
    const LAST: u8 = 63;

    /// The domain of a session's device number `at`.
    pub(crate) fn of_device(at: usize) -> Self {
        Self(u8::try_from(at + 1).unwrap_or(Self::LAST).min(Self::LAST))
    }

    /// Whether devices with different caches may have it.
    fn is_shared(self) -> bool {
        self.0 == Self::LAST
    }

    fn bit(self) -> u64 {
        1 << self.0
    }
}

/// An event: number `at` of its axis, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch {
    pub(crate) axis: Axis,
    pub(crate) at: u64,
}

impl Epoch {
    /// How many events of its axis have happened once it has.
    pub(crate) fn count(self) -> u64 {
        self.at + 1
    }
}

/// Bytes of a region and what is done to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) region: RegionId,
    pub(crate) range: Range<u64>,
    pub(crate) mode: Mode,
}

/// The state behind edges that are derived and edges that are checked.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// The host first.
    lanes: Vec<Lane>,
    regions: Regions,
    freed: Freed,
    /// Grows when the host learns something.
    host_version: u64,
}

impl Tracker {
    pub(crate) fn new() -> Self {
        Self {
            lanes: vec![Lane::new(Domain::HOST)],
            regions: Regions::default(),
            freed: Freed::default(),
            host_version: 0,
        }
    }

    /// Adds an axis in `domain`.
    pub(crate) fn open(&mut self, domain: Domain) -> Axis {
        self.lanes.push(Lane::new(domain));
        Axis(u32::try_from(self.lanes.len() - 1).unwrap_or(u32::MAX))
    }

    /// How many events the axis has had.
    pub(crate) fn events(&self, axis: Axis) -> u64 {
        self.lane(axis).events
    }

    /// What the host knows of an axis.
    pub(crate) fn host_knows(&self, axis: Axis) -> u64 {
        self.lanes[0].clock.known(axis)
    }

    /// Puts into `clock` what the next event of `axis` knows, if the host gives it now.
    /// Whether that is more than its last event was noted to know.
    pub(crate) fn start(&self, axis: Axis, clock: &mut Clock) -> bool {
        let (lane, news) = (self.lane(axis), self.has_news(axis));
        clock.clone_from(&lane.clock);
        if news {
            clock.join(&self.lanes[0].clock);
        }
        // The axis is in order: all its earlier events are over when the next one starts.
        clock.advance(axis, lane.events);
        news
    }

    /// Whether the host knows more than the last event of `axis` was noted to know.
    pub(crate) fn has_news(&self, axis: Axis) -> bool {
        self.lane(axis).host_version != self.host_version
    }

    /// Another one whenever the host has learnt something.
    pub(crate) fn host_version(&self) -> u64 {
        self.host_version
    }

    /// Whether `clock` covers the first `count` events of an axis.
    pub(crate) fn covers(clock: &Clock, axis: Axis, count: u64) -> bool {
        clock.covers_first(axis, count)
    }

    /// Adds to `clock` what is known once `axis` has had `count` events.
    pub(crate) fn join(&self, clock: &mut Clock, axis: Axis, count: u64) {
        if let Some(known) = self.lane(axis).clock_of(count) {
            clock.join(known);
        }
        clock.advance(axis, count);
    }

    /// Whether the first `count` events of `later` come after the first `earlier.1` of another.
    pub(crate) fn implies(&self, (axis, count): (Axis, u64), earlier: (Axis, u64)) -> bool {
        if axis == earlier.0 {
            return count >= earlier.1;
        }
        let known = self.lane(axis).clock_of(count);
        known.is_some_and(|known| Self::covers(known, earlier.0, earlier.1))
    }

    /// Looks for what `touch` has to come after and `clock` does not cover.
    pub(crate) fn needs(&mut self, clock: &Clock, touch: &Touch, needs: &mut Vec<Need>) {
        let Some(cells) = self.regions.get(touch.region) else { return };
        cells.update(touch.range.clone(), |range, cell| {
            let mut add = |epoch: Epoch, earlier: Mode| {
                if !Self::covers(clock, epoch.axis, epoch.count()) {
                    needs.push(Need {
                        epoch,
                        earlier,
                        later: touch.mode,
                        region: touch.region,
                        range: range.clone(),
                    });
                }
            };
            if touch.mode == Mode::Write {
                cell.readers.iter().for_each(|&reader| add(reader, Mode::Read));
            }
            // B1: whoever comes after a reader comes after the writer.
            if (touch.mode == Mode::Read || cell.readers.is_empty())
                && let Some(writer) = cell.writer
            {
                add(writer, Mode::Write);
            }
        });
    }

    /// Makes `clock` the axis's own: what its next event knows.
    pub(crate) fn learn(&mut self, axis: Axis, clock: &Clock) {
        let (version, known) = (self.host_version, self.host_knows(axis));
        let lane = self.lane_mut(axis);
        lane.host_version = version;
        lane.learn(clock, known);
    }

    /// Counts an event that touches nothing, such as a wait.
    pub(crate) fn pass(&mut self, axis: Axis) {
        self.lane_mut(axis).events += 1;
    }

    /// Counts an event that makes `touches` on regions of the given sizes, and says what cache
    /// maintenance it takes.
    pub(crate) fn commit<'t>(
        &mut self,
        axis: Axis,
        touches: impl Iterator<Item = (&'t Touch, u64)>,
    ) -> Maintenance {
        let lane = self.lane_mut(axis);
        let (epoch, domain) = (Epoch { axis, at: lane.events }, lane.domain);
        lane.events += 1;
        let mut maintenance = Maintenance::default();
        let (clock, host) = (&self.lanes[axis.0 as usize].clock, &self.lanes[0].clock);
        let is_over = |epoch: Epoch| Self::covers(host, epoch.axis, epoch.count());
        for (touch, size) in touches {
            let cells = self.regions.used(touch.region, size, is_over);
            cells.update(touch.range.clone(), |_, cell| {
                cell.bring_to(domain, touch.mode == Mode::Write, &mut maintenance);
                match touch.mode {
                    Mode::Read => cell
                        .read(epoch, |earlier| Self::covers(clock, earlier.axis, earlier.count())),
                    Mode::Write => cell.write(epoch),
                }
            });
        }
        if axis == HOST {
            let count = epoch.count();
            self.lanes[0].clock.advance(HOST, count);
            self.host_version += 1;
        }
        maintenance
    }

    /// The host has waited for the first `count` events of an axis.
    pub(crate) fn host_learns(&mut self, axis: Axis, count: u64) {
        if self.host_knows(axis) >= count {
            return;
        }
        let (host, others) = self.lanes.split_at_mut(1);
        let Some(lane) = others.get_mut((axis.0 as usize).wrapping_sub(1)) else { return };
        if let Some(known) = lane.clock_of(count) {
            host[0].clock.join(known);
        }
        host[0].clock.advance(axis, count);
        lane.forget(count);
        self.host_version += 1;
    }

    /// Whether a region was freed.
    pub(crate) fn is_freed(&self, region: RegionId) -> bool {
        self.freed.contains(region)
    }

    /// Forgets what was done to a region, and that nobody may name it again.
    pub(crate) fn free(&mut self, region: RegionId) {
        self.regions.remove(region);
        self.freed.insert(region);
    }

    fn lane(&self, axis: Axis) -> &Lane {
        &self.lanes[axis.0 as usize]
    }

    fn lane_mut(&mut self, axis: Axis) -> &mut Lane {
        &mut self.lanes[axis.0 as usize]
    }
}
