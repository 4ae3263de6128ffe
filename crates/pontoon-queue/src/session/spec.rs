//! How a session and its queues are opened.

/// Who sees to it that commands which touch the same bytes are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// The session derives the fewest edges.
    Auto,
    /// The caller gives them, and a submission that lacks one is refused.
    Check,
    /// The caller gives them, and nobody looks. Commands that then meet on the same bytes fail with
    /// a hazard (`Queue` Q6); where they do not meet, they run in the wrong order.
    Trust,
}

/// In which order the commands of a queue are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Each after the one before it.
    InOrder,
    /// Over this many lanes, which run side by side: batch n is on lane n modulo their number, and
    /// only what is on one lane is in order by itself, starts included.
    ///
    /// A wait or a barrier holds for all that the queue is given after it, on each lane, and an event
    /// that is recorded stands for all lanes. A fence, a signal and a collective are of the one
    /// lane that has their batch.
    Launch {
        /// How many batches run side by side.
        lanes: u32,
    },
}

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kernels and copies, on the compute units.
    Compute,
    /// Copies, on the copy engine.
    Copy,
    /// Communication: copies to and from others, on the copy engine, where they never wait behind a
    /// kernel.
    Comm,
}

/// How a queue is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// What it is for.
    pub kind: Kind,
    /// In which order its commands are over.
    pub completion: Completion,
    /// The most batches under way on a lane; without it, as many commands as the device holds. One
    /// more may be, if another batch waits for it.
    pub credits: Option<u32>,
}

impl QueueSpec {
    /// An in-order queue without a limit of its own.
    pub fn new(kind: Kind) -> Self {
        Self { kind, completion: Completion::InOrder, credits: None }
    }
}

/// What a wait for an event that was never recorded means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unrecorded {
    /// A mistake, which is refused.
    #[default]
    Refuse,
    /// Nothing, as in CUDA: there is nothing to wait for.
    Pass,
}
