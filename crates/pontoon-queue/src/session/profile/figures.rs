//! The figures between two moments.

use std::{fmt, sync::Arc};

use pontoon_hal::{Device, Purpose, Queue, Times};
use pontoon_signal::{Nanos, Rank, SlotId};

use super::{Cause, Session, Snapshot};

/// Above this share of the devices' time, synchronisation is worth a warning.
pub const HIGH_SHARE: f64 = 0.1;

/// What synchronisation cost between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// How long it was.
    pub time: Nanos,
    /// Waits of devices, and waits of the host that did not end at once.
    pub sync_points: u64,
    waits: [Times; Cause::ALL.len()],
    /// Flushes and invalidations that accesses asked for.
    pub maintenance_asked: u64,
    /// Of these, those that went into another one of the same command.
    pub maintenance_merged: u64,
    /// Flushes that were due, after merging.
    pub flushes: u64,
    /// Invalidations that were due, after merging.
    pub invalidations: u64,
    /// Flushes and invalidations that nobody had to ask for, since earlier ones had done them.
    pub maintenance_elided: u64,
    /// Fences that had to be made: a submission that is not parked makes none.
    pub fence_allocations: u64,
    /// Waits that were given and that others imply.
    pub redundant: u64,
    /// How long devices that meter it stood still for waits, summed.
    pub stalled: Nanos,
    /// The time of the devices that meter it, summed.
    pub device_time: Nanos,
    /// Who waited longest for whom.
    pub longest: Option<Pair>,
}

/// Somebody who waited, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Who waited.
    pub waiting: Where,
    /// For whom.
    pub waited_for: Where,
    /// How long in all.
    pub held: Nanos,
}

/// A queue, or what is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// The host.
    Host,
    /// A queue of the session.
    Queue(Rank, Arc<str>),
    /// A signal that is no session's.
    Outside,
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Queue(device, queue) => write!(f, "device {device} queue {queue}"),
            Self::Outside => f.write_str("a signal from outside"),
        }
    }
}

impl Figures {
    /// The waits of a cause: of the host, those that did not end at once.
    pub fn waits(&self, cause: Cause) -> &Times {
        &self.waits[cause as usize]
    }

    /// The share of the devices' time in which they stood still for a wait; `None` if none of them
    /// meters that.
    pub fn sync_share(&self) -> Option<f64> {
        (self.device_time.0 > 0).then(|| self.stalled.0 as f64 / self.device_time.0 as f64)
    }

    /// What to look at, if the share is above [`HIGH_SHARE`]: the cause that held queues back
    /// longest, and the pair that waited longest.
    pub fn warning(&self) -> Option<String> {
        let share = self.sync_share().filter(|&share| share > HIGH_SHARE)?;
        // What the host waits for holds back no queue.
        let causes = Purpose::ALL.map(Cause::of);
        let largest = causes.into_iter().max_by_key(|&cause| self.waits(cause).total())?;
        let times = self.waits(largest);
        let mut text = format!(
            "synchronisation takes {:.1} % of the devices' time, most of it {} waits ({}, {} on \
             average, p99 {})",
            share * 100.0,
            largest.name(),
            waits(times.count()),
            times.mean(),
            times.quantile(0.99)
        );
        if let Some(Pair { waiting, waited_for, held }) = &self.longest {
            text += &format!("; {waiting} waited longest, {held} in all for {waited_for}");
        }
        Some(text)
    }
}

impl<D: Device> Session<'_, D> {
    pub(super) fn figures(&self, before: &Snapshot, after: &Snapshot) -> Figures {
        let (counts, was) = (&after.counts, &before.counts);
        let mut figures = Figures {
            time: after.at.since(before.at),
            maintenance_asked: counts.maintenance_asked - was.maintenance_asked,
            flushes: counts.flushes - was.flushes,
            invalidations: counts.invalidations - was.invalidations,
            maintenance_elided: counts.maintenance_elided - was.maintenance_elided,
            fence_allocations: after.fences - before.fences,
            redundant: counts.redundant - was.redundant,
            ..Figures::default()
        };
        let due = figures.flushes + figures.invalidations;
        figures.maintenance_merged = figures.maintenance_asked.saturating_sub(due);
        for (all, (now, was)) in figures.waits.iter_mut().zip(after.host.iter().zip(&before.host)) {
            *all = now.since(was);
        }
        let unseen = Default::default();
        let mut longest = (Nanos(0), None, None);
        for (lane, now) in after.lanes.iter().enumerate() {
            let was = before.lanes.get(lane).unwrap_or(&unseen);
            for purpose in Purpose::ALL {
                let since = now.by.times(purpose).since(was.by.times(purpose));
                figures.waits[Cause::of(purpose) as usize].merge(&since);
            }
            for (source, held) in now.by.sources() {
                let held = held.since(was.by.held_by(source));
                if held > longest.0 {
                    longest = (held, Some(lane), Some(source));
                }
            }
        }
        let unwaited = Nanos(0);
        if longest.1.is_none() {
            // Where no queue waited for one, what the host waited for is all there is.
            for (lane, held) in after.host_held.iter().enumerate() {
                let held = held.since(*before.host_held.get(lane).unwrap_or(&unwaited));
                if held > longest.0 {
                    longest = (held, None, Some(self.lanes[lane].queue.completions().id()));
                }
            }
        }
        figures.longest = longest.2.map(|source| Pair {
            waiting: longest.1.map_or(Where::Host, |lane| self.place_of(lane)),
            waited_for: self.source_of(source),
            held: longest.0,
        });
        figures.sync_points = figures.waits.iter().map(Times::count).sum();
        for (at, now) in after.devices.iter().enumerate() {
            let Some(now) = now else { continue };
            let was = before.devices.get(at).copied().flatten().unwrap_or_default();
            figures.stalled = figures.stalled.saturating_add(now.stalled.since(was.stalled));
            figures.device_time = figures.device_time.saturating_add(figures.time);
        }
        figures
    }

    pub(super) fn place_of(&self, lane: usize) -> Where {
        let lane = &self.lanes[lane];
        Where::Queue(lane.device.rank(), Arc::clone(&lane.label))
    }

    fn source_of(&self, source: SlotId) -> Where {
        let mut lanes = self.lanes.iter();
        let lane = lanes.position(|lane| lane.queue.completions().id() == source);
        lane.map_or(Where::Outside, |lane| self.place_of(lane))
    }
}

/// `1 wait`, `2 waits`.
fn waits(count: u64) -> String {
    format!("{count} wait{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(stalled: u64) -> Figures {
        let mut figures =
            Figures { stalled: Nanos(stalled), device_time: Nanos(1000), ..Figures::default() };
        for (cause, time) in [(Cause::Host, 9_000), (Cause::Barrier, 700), (Cause::FullSync, 20)] {
            figures.waits[cause as usize].record(Nanos(time));
        }
        figures
    }

    #[test]
    fn a_high_share_is_warned_of_with_the_cause_that_holds_queues_back() {
        assert_eq!(figures(100).warning(), None);
        assert_eq!(Figures::default().sync_share(), None);
        let mut high = figures(250);
        high.longest = Some(Pair {
            waiting: Where::Queue(Rank(0), "update".into()),
            waited_for: Where::Queue(Rank(3), "train".into()),
            held: Nanos(1_500),
        });
        assert_eq!(
            high.warning().unwrap(),
            "synchronisation takes 25.0 % of the devices' time, most of it barrier waits (1 wait, \
             700 ns on average, p99 700 ns); device 0 queue update waited longest, 1.5 us in all \
             for device 3 queue train"
        );
    }
}
