//! What the host did when, for whoever draws it beside what the devices did.

use pontoon_hal::{Device, Queue};
use pontoon_signal::{Host, Nanos, Os, Seq, SlotId};

use super::{Cause, Lane, Session};

/// Something that a session did, or decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// The host waited until a queue's signal was at `target`.
    Waited {
        /// Why.
        cause: Cause,
        /// For which queue.
        queue: SlotId,
        /// Up to where.
        target: Seq,
        /// From when.
        start: Nanos,
        /// Until when.
        end: Nanos,
    },
    /// The host used bytes.
    Accessed {
        /// How.
        label: &'static str,
        /// From when, what it had to wait for being over.
        start: Nanos,
        /// Until when.
        end: Nanos,
    },
    /// A queue was given a command.
    Submitted {
        /// The queue.
        queue: SlotId,
        /// The completion that the command is.
        position: Seq,
        /// When, before it could run.
        at: Nanos,
    },
    /// A command comes after another, which was over: no wait was needed.
    Ordered {
        /// The queue and position that come first.
        earlier: (SlotId, Seq),
        /// The queue and position that come after.
        later: (SlotId, Seq),
    },
}

/// What a session did since it was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// What there was room for, in order.
    pub moments: Vec<Moment>,
    /// How many moments found no room.
    pub dropped: u64,
}

/// Where a session notes it. Room is made once.
pub(super) struct TimelineLog {
    room: usize,
    timeline: Timeline,
    /// The host uses bytes since then.
    accesses_since: Nanos,
}

impl TimelineLog {
    fn new(room: usize) -> Self {
        let timeline = Timeline { moments: Vec::with_capacity(room), dropped: 0 };
        Self { room, timeline, accesses_since: Nanos(0) }
    }

    fn note(&mut self, moment: Moment) {
        if self.timeline.moments.len() < self.room {
            self.timeline.moments.push(moment);
        } else {
            self.timeline.dropped += 1;
        }
    }

    pub(super) fn waited(
        &mut self,
        cause: Cause,
        queue: SlotId,
        target: Seq,
        start: Nanos,
        waited: Nanos,
    ) {
        let end = start.saturating_add(waited);
        self.note(Moment::Waited { cause, queue, target, start, end });
    }
}

impl<'d, D: Device> Session<'d, D> {
    /// The same session, keeping up to `moments` for [`take_timeline`](Self::take_timeline).
    /// With none it keeps nothing, and does not look at the clock.
    pub fn with_timeline(mut self, moments: usize) -> Self {
        self.profiler.timeline = (moments > 0).then(|| TimelineLog::new(moments));
        self
    }

    /// What the session did since it was opened or since the last call, if it keeps that.
    pub fn take_timeline(&mut self) -> Timeline {
        let Some(log) = &mut self.profiler.timeline else { return Timeline::default() };
        let room = log.room;
        std::mem::replace(log, TimelineLog::new(room)).timeline
    }

    /// The host is about to use bytes.
    pub(super) fn access_starts(&mut self) {
        if let Some(log) = &mut self.profiler.timeline {
            log.accesses_since = Os.now();
        }
    }

    /// The host used bytes.
    pub(super) fn access_ends(&mut self, label: &'static str) {
        if let Some(log) = &mut self.profiler.timeline {
            log.note(Moment::Accessed { label, start: log.accesses_since, end: Os.now() });
        }
    }

    /// When a command is handed over, if that is kept.
    pub(super) fn submitting(&self) -> Option<Nanos> {
        self.profiler.timeline.as_ref().map(|_| Os.now())
    }

    /// A lane was given a command.
    pub(super) fn submitted(&mut self, lane: usize, position: Seq, at: Option<Nanos>) {
        if let (Some(log), Some(at)) = (&mut self.profiler.timeline, at) {
            let queue = self.lanes[lane].queue.completions().id();
            log.note(Moment::Submitted { queue, position, at });
        }
    }

    /// The next event of `lane` comes after the first `count` of another, which are over.
    pub(super) fn ordered(&mut self, lane: usize, other: usize, count: u64) {
        let Some(log) = &mut self.profiler.timeline else { return };
        let at = |lane: &Lane<'d, D>, count| (lane.queue.completions().id(), lane.target(count));
        let next = self.tracker.events(Self::axis(lane)) + 1;
        let (earlier, later) = (at(&self.lanes[other], count), at(&self.lanes[lane], next));
        log.note(Moment::Ordered { earlier, later });
    }
}
