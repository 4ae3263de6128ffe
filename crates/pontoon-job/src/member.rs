//! A rank that is, or was, in the job.

use std::fmt;

use pontoon_signal::Rank;

use crate::Process;

/// Which process a rank is, in which start of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The rank.
    pub rank: Rank,
    /// How often it was started before.
    pub epoch: u32,
    /// The process.
    pub process: Process,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ({})", self.rank, self.process)
    }
}
