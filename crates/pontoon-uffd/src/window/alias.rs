//! Pages of shared memory that are mapped when they are touched.

use core::ops::Range;

use pontoon_signal::Block;

use super::{Placed, Tracking, Window, place::counted};
use crate::{Feature, PageError, abi};

impl Window {
    /// What the pages are of, if this is an [`alias`](Self::alias).
    pub fn home(&self) -> Option<&Block> {
        self.home.as_ref()
    }

    /// Maps `pages` of an [`alias`](Self::alias), which whoever fills its home has filled: without a copy.
    /// Else as [`copy_in`](Self::copy_in).
    ///
    /// # Errors
    ///
    /// [`PageError`]: it is no alias, or nothing was ever stored to one of the pages at home.
    pub fn map_in(&self, pages: Range<usize>, write_protected: bool) -> Result<Placed, PageError> {
        self.check(&pages)?;
        if self.home.is_none() {
            return Err(PageError::Lacks(Feature::MinorShmem));
        }
        let mut mode = self.dont_wake(abi::UFFDIO_CONTINUE_MODE_DONTWAKE);
        if write_protected && !matches!(self.tracking, Tracking::None) {
            mode |= abi::UFFDIO_CONTINUE_MODE_WP;
        }
        counted(|there| {
            self.place_steps("UFFDIO_CONTINUE", pages, there, |left| {
                self.descriptor.map(self.span(&left), mode)
            })
        })
    }
}
