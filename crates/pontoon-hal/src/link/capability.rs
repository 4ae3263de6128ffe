//! What a link can do on the way to a peer, and how it says what it does.

use core::fmt;

use arrayvec::ArrayVec;
use pontoon_signal::Rank;

use super::Order;

/// What a link can do on the way to one peer. Layers above choose by it; they never ask which link
/// it is. It stays as it is while the peer is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCapabilities {
    /// The peer's memory is mapped here: operations are loads and stores, and done when they return.
    pub mapped: bool,
    /// The peer's processors take no part in an operation: it is performed even while the peer's
    /// process stands still.
    pub one_sided: bool,
    /// L7: its atomic operations are atomic against the peer's own processors as well.
    pub system_atomics: bool,
    /// What has to be put between a write and the signal for it.
    pub between: Between,
    /// The most bytes of an inline write.
    pub inline_bytes: usize,
    /// L10: how many operations on the peer may be under way.
    pub depth: u32,
    /// The link itself notices that the peer died; if not, somebody has to tell it
    /// ([`end_peer`](super::Link::end_peer)).
    pub notices_death: bool,
}

impl LinkCapabilities {
    /// The least a link can do. Links raise what they have.
    pub const fn least(depth: u32) -> Self {
        Self {
            mapped: false,
            one_sided: false,
            system_atomics: false,
            between: Between::Flush,
            inline_bytes: 0,
            depth,
            notices_death: false,
        }
    }
}

/// What keeps a signal behind the write it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// A release store: both go through the same memory.
    Release,
    /// Nothing: both are one message, and the peer announces when the bytes are in place.
    OneMessage,
    /// A fence of the transport.
    Fence,
    /// Waiting until the write is performed.
    Flush,
}

/// An operation of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A write.
    Write,
    /// A read.
    Read,
    /// A write and a signal for it.
    WriteSignal(Order),
    /// A signal alone.
    Signal(Order),
    /// An atomic addition that is waited for.
    Add,
    /// An atomic addition that is not.
    PostAdd,
    /// A compare-and-swap.
    CompareSwap,
    /// A fence.
    Fence,
    /// A flush.
    Flush,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::WriteSignal(Order::Strong) => "strong write-then-signal",
            Self::WriteSignal(Order::Weak) => "weak write-then-signal",
            Self::Signal(Order::Strong) => "strong signal",
            Self::Signal(Order::Weak) => "weak signal",
            Self::Add => "add",
            Self::PostAdd => "posted add",
            Self::CompareSwap => "compare-and-swap",
            Self::Fence => "fence",
            Self::Flush => "flush",
        })
    }
}

/// The most steps that an operation is made of.
pub const STEPS_MAX: usize = 6;

/// What a link does for an operation, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The operation.
    pub operation: Operation,
    /// On whom.
    pub peer: Rank,
    /// The link's name.
    pub link: &'static str,
    /// The steps, in their order.
    pub steps: ArrayVec<&'static str, STEPS_MAX>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, peer, link, steps } = self;
        write!(f, "{operation} to rank {peer} over {link}: ")?;
        for (at, step) in steps.iter().enumerate() {
            let before = if at == 0 { "" } else { "; " };
            write!(f, "{before}{step}")?;
        }
        Ok(())
    }
}
