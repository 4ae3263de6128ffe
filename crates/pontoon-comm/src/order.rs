//! How much a signal vouches for, as types: which one a kernel means stands in its source, and no call
//! looks for it.

use pontoon_hal::link::Order;

mod sealed {
    pub trait Sealed {}
}

/// What a signal vouches for: [`Strong`] or [`Weak`].
///
/// A strong one vouches for all of it or is refused. Once another ring to that peer has ended with something undone,
/// each strong call fails with what ended that ring, and does so for good, whoever asked for what is undone. A port that
/// is opened after that vouches for what is asked from then on. What was asked of another life of the peer, or of
/// another link, no strong call waits for.
pub trait Vouches: sealed::Sealed + Copy {
    /// The same, as links take it.
    const ORDER: Order;
}

/// For all that this thread asked of ports to that peer over that link before, by whatever ring and mode, and for the
/// bytes it goes with. What that costs on a link is told by [`Port::explain`](crate::Port::explain).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strong;

/// For the bytes it goes with, and for nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weak;

impl sealed::Sealed for Strong {}
impl sealed::Sealed for Weak {}

impl Vouches for Strong {
    const ORDER: Order = Order::Strong;
}

impl Vouches for Weak {
    const ORDER: Order = Order::Weak;
}
