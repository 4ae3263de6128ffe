//! Parameters, gradients and losses as memory of rank 0 that the others map.
//!
//! Rank 0 [exports](Home) them. Another rank has a [mirror](Mirror) of the parameters and of its own
//! share of the rest: it loads the ones and stores the others as any memory. A release takes the bytes
//! that it changed to rank 0 before its signal; an acquire after rank 0's brings those that the update
//! changed.

mod figures;
mod home;
mod mirror;

use std::ops::Range;

use pontoon::{hal::paging::PAGE, smc::Layout};

use crate::train::{job::IN_FLIGHT, model::Shape, places::Places};

pub(in crate::train) use figures::Figures;
pub(in crate::train) use home::Home;
pub(super) use mirror::{Mirror, PARTS};

/// How parameters and gradients come to the ranks that need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Params {
    /// Each rank has its own, and is sent what changed
    Message,
    /// They are memory of rank 0, which the others load from and store to
    Smc,
}

/// Where things are in the memory that rank 0 exports, in bytes: each begins on a page.
#[derive(Clone, Debug)]
pub(in crate::train) struct Map {
    pub(super) params: Range<usize>,
    pub(super) gradients: Range<usize>,
    pub(super) losses: Range<usize>,
}

impl Map {
    pub(in crate::train) fn of(shape: Shape, places: &Places) -> Self {
        let places = places.len();
        let after = |before: usize, elements: usize| {
            let start = before.next_multiple_of(PAGE);
            start..start + elements * size_of::<f32>()
        };
        let params = after(0, shape.parameters());
        let gradients = after(params.end, places * shape.parameters());
        let losses = after(gradients.end, IN_FLIGHT * places);
        Self { params, gradients, losses }
    }

    fn bytes(&self) -> usize {
        self.losses.end
    }

    /// What it takes of rank 0's segment.
    pub(super) fn heap_bytes(&self) -> usize {
        Layout::of(self.bytes()).region()
    }
}

/// The whole pages that have these bytes.
fn pages(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE)
}
