//! What a wait command is for, and what waits cost a queue.

use pontoon_signal::{Nanos, SlotId};

use crate::Times;

/// What a wait command is for. Its label says it, so that faults do too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// What follows uses what another queue's command left.
    Dependency,
    /// What follows comes after all that some queues were given.
    Barrier,
    /// All queues of the device stop.
    FullSync,
}

impl Purpose {
    /// Each once, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Dependency, Self::Barrier, Self::FullSync];

    /// The label of a wait command with that purpose.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dependency => "wait",
            Self::Barrier => "barrier",
            Self::FullSync => "full sync",
        }
    }

    /// What a wait command with that label is for: a dependency unless it says otherwise.
    pub fn of(label: &str) -> Self {
        match label {
            "barrier" => Self::Barrier,
            "full sync" => Self::FullSync,
            _ => Self::Dependency,
        }
    }
}

/// How many signals a queue tells apart by the time that it waited for each.
pub const SOURCES_MAX: usize = 8;

/// What waits cost a queue. It has a fixed size: noting a wait allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitReport {
    times: [Times; Purpose::ALL.len()],
    sources: [Option<(SlotId, Nanos)>; SOURCES_MAX],
}

impl WaitReport {
    /// Notes a wait of `held` for the signal `source`; it was there at once if that is zero.
    pub fn record(&mut self, purpose: Purpose, source: SlotId, held: Nanos) {
        self.times[purpose as usize].record(held);
        let room = self.sources.iter_mut().find(|at| at.is_none_or(|(known, _)| known == source));
        if let Some(at) = room {
            let before = at.map_or(Nanos(0), |(_, before)| before);
            *at = Some((source, before.saturating_add(held)));
        }
    }

    /// The waits of that purpose which completed.
    pub fn times(&self, purpose: Purpose) -> &Times {
        &self.times[purpose as usize]
    }

    /// For which signals the queue waited, and how long in all. Of more than [`SOURCES_MAX`] the
    /// first ones.
    pub fn sources(&self) -> impl Iterator<Item = (SlotId, Nanos)> {
        self.sources.iter().copied().flatten()
    }

    /// How long the queue waited for one signal.
    pub fn held_by(&self, source: SlotId) -> Nanos {
        self.sources().find(|(known, _)| *known == source).map_or(Nanos(0), |(_, held)| held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_the_purpose() {
        for (at, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!((Purpose::of(purpose.label()), purpose as usize), (purpose, at));
        }
        assert_eq!(Purpose::of("stream-wait"), Purpose::Dependency);
    }

    #[test]
    fn waits_are_counted_by_purpose_and_by_source() {
        let mut report = WaitReport::default();
        for slot in 0..2 * SOURCES_MAX as u32 {
            for _ in 0..2 {
                report.record(Purpose::Barrier, SlotId::new(1, slot), Nanos(10));
            }
        }
        assert_eq!(report.times(Purpose::Barrier).count(), 4 * SOURCES_MAX as u64);
        assert_eq!(report.times(Purpose::Dependency).count(), 0);
        assert_eq!(report.sources().count(), SOURCES_MAX);
        assert_eq!(report.held_by(SlotId::new(1, 3)), Nanos(20));
        assert_eq!(report.held_by(SlotId::new(1, SOURCES_MAX as u32)), Nanos(0));
    }
}
