//! How much a signal vouches for, as types: which one a kernel means stands in its source, and no call
//! looks for it.

use pontoon_hal::link::Order;

mod sealed {
    pub trait Sealed {}
}

/// What a signal vouches for: [`Strong`] or [`Weak`].
pub trait Vouches: sealed::Sealed + Copy {
    /// The same, as links take it.
    const ORDER: Order;
}

/// For all that this thread asked of ports to that peer before, by whatever ring and mode, and for the bytes
/// it goes with. What that costs on a link is told by [`Port::explain`](crate::Port::explain).
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
