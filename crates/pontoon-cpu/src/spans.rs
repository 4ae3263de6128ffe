//! When each command of a device ran, for whoever wants to see it.

use std::{
    mem,
    sync::{Arc, Mutex},
};

use pontoon_hal::Purpose;
use pontoon_signal::{Nanos, Seq, SlotId};

use crate::shared::lock;

/// A command of a queue, from when it was looked at to when it was over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The queue's signal: device and number.
    pub queue: SlotId,
    /// The queue's label.
    pub label: Arc<str>,
    /// The completion that the command is.
    pub position: Seq,
    /// The command's label.
    pub command: &'static str,
    /// What it did.
    pub kind: SpanKind,
    /// When it began.
    pub start: Nanos,
    /// When it was over, before its completion was published.
    pub end: Nanos,
}

/// What a command did with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// It ran: a kernel or a copy.
    Work,
    /// It held the queue back for a signal.
    Wait {
        /// What for.
        purpose: Purpose,
        /// The signal.
        signal: SlotId,
        /// Where that had to get.
        target: Seq,
    },
}

/// Commands that were over since they were last taken.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// Those that there was room for; of each queue in order.
    pub spans: Vec<Span>,
    /// How many found no room.
    pub dropped: u64,
}

/// Where the units of a device note them. Room is made once: noting one allocates nothing.
#[derive(Debug)]
pub(crate) struct SpanLog {
    room: usize,
    spans: Mutex<Spans>,
}

impl SpanLog {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, spans: Mutex::new(empty(room)) }
    }

    pub(crate) fn note(&self, span: Span) {
        let mut log = lock(&self.spans);
        if log.spans.len() < self.room {
            log.spans.push(span);
        } else {
            log.dropped += 1;
        }
    }

    pub(crate) fn take(&self) -> Spans {
        let empty = empty(self.room);
        mem::replace(&mut lock(&self.spans), empty)
    }
}

fn empty(room: usize) -> Spans {
    Spans { spans: Vec::with_capacity(room), dropped: 0 }
}
