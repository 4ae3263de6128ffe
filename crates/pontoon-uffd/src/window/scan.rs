//! Which pages were written.

use core::ops::Range;

use rustix::fd::AsFd;

use super::{Tracking, Window};
use crate::{Feature, PageError, abi, descriptor};

/// Pages side by side that were written.
///
/// A caller keeps an array of them: [`scan`](Window::scan) fills it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Run(abi::PageRegion);

impl Run {
    /// The pages.
    pub fn pages(&self) -> Range<usize> {
        self.0.start as usize..self.0.end as usize
    }

    /// Whether they are in memory. Others are swapped out, or poisoned: a page that is poisoned and
    /// written by nobody is told of once.
    pub fn is_resident(&self) -> bool {
        self.0.categories & abi::PAGE_IS_PRESENT != 0
    }

    fn of(pages: Range<usize>) -> Self {
        let (start, end) = (pages.start as u64, pages.end as u64);
        Self(abi::PageRegion { start, end, categories: abi::PAGE_IS_PRESENT })
    }
}

/// How far a scan came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Scanned {
    /// How many runs it found.
    pub runs: usize,
    /// Where to go on; the end of what was asked for if it is done.
    pub next: usize,
}

impl Window {
    /// Finds pages of `pages` that were written since they were protected, and protects them again, in
    /// one step a page: as many runs as `found` has room for.
    ///
    /// Who reads a page after it was found here, and scans again, misses no write: one that the
    /// reading did not see comes after the protection, and is found the next time.
    ///
    /// ```
    /// # use pontoon_uffd::{Run, Window, PageError};
    /// # fn all(window: &Window) -> Result<(), PageError> {
    /// let (mut found, mut next) = ([Run::default(); 64], 0);
    /// while next < window.pages() {
    ///     let scanned = window.scan(next..window.pages(), &mut found)?;
    ///     for run in &found[..scanned.runs] {
    ///         println!("written: {:?}", run.pages());
    ///     }
    ///     next = scanned.next;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`PageError::Lacks`] on a kernel without write protection: compare all pages then.
    pub fn scan(&self, pages: Range<usize>, found: &mut [Run]) -> Result<Scanned, PageError> {
        self.check(&pages)?;
        if pages.is_empty() || found.is_empty() {
            return Ok(Scanned { runs: 0, next: pages.start });
        }
        match &self.tracking {
            Tracking::Kernel { pagemap } => self.ask(pagemap.as_fd(), pages, found),
            Tracking::Faults(noted) => {
                let mut runs = 0;
                let (next, protected) = {
                    let runs_taken = core::cell::RefCell::new((&mut *found, &mut runs));
                    noted.take(
                        pages.clone(),
                        |run| {
                            let (found, runs) = &mut *runs_taken.borrow_mut();
                            let Some(place) = found.get_mut(**runs) else { return false };
                            *place = Run::of(run);
                            **runs += 1;
                            true
                        },
                        || {
                            let (found, runs) = &*runs_taken.borrow();
                            let mut runs = found[..**runs].iter();
                            runs.try_for_each(|run| self.protect(run.pages(), true))
                        },
                    )
                };
                let failed = match protected {
                    Some(Ok(())) => return Ok(Scanned { runs, next }),
                    Some(Err(error)) => error,
                    None => PageError::Stuck { call: "scan", pages, tries: 1 << 20 },
                };
                found[..runs].iter().for_each(|run| noted.give_back(run.pages()));
                Err(failed)
            }
            Tracking::None => Err(PageError::Lacks(Feature::WriteProtect)),
        }
    }

    fn ask(
        &self,
        pagemap: rustix::fd::BorrowedFd<'_>,
        pages: Range<usize>,
        found: &mut [Run],
    ) -> Result<Scanned, PageError> {
        let span = self.span(&pages);
        let mut argument = abi::ScanArgument {
            flags: abi::PM_SCAN_WP_MATCHING,
            start: span.start,
            end: span.start + span.len,
            category_mask: abi::PAGE_IS_WRITTEN | abi::PAGE_IS_WPALLOWED,
            // A page that is absent, beside others that are not, counts as written too.
            category_anyof_mask: abi::PAGE_IS_PRESENT | abi::PAGE_IS_SWAPPED,
            return_mask: abi::PAGE_IS_PRESENT,
            ..abi::ScanArgument::default()
        };
        let asked = descriptor::scan(pagemap, &mut argument, Run::as_regions(found));
        let runs =
            asked.map_err(|errno| PageError::refused("PAGEMAP_SCAN", pages.clone(), errno))?;
        let page = |address: u64| (address - self.addresses().start) / self.page as u64;
        for run in &mut found[..runs] {
            (run.0.start, run.0.end) = (page(run.0.start), page(run.0.end));
        }
        let next = (page(argument.walk_end) as usize).clamp(pages.start, pages.end);
        // A walk that ended for lack of room goes on behind what it told of.
        Ok(Scanned { runs, next })
    }
}

impl Run {
    /// The same memory as the kernel declares it.
    #[allow(unsafe_code)] // one type as another of the same layout
    fn as_regions(runs: &mut [Self]) -> &mut [abi::PageRegion] {
        let (first, count) = (runs.as_mut_ptr(), runs.len());
        // SAFETY: a run is transparent over a region, and the slice is borrowed for as long.
        unsafe { core::slice::from_raw_parts_mut(first.cast(), count) }
    }
}
