//! Pages that are put into a window, protected and poisoned.

use core::ops::Range;

use pontoon_signal::shim::{Ordering::Relaxed, yield_now};
use rustix::io::Errno;

use super::{Service, Tracking, Window};
use crate::{
    Feature, PageError, abi,
    descriptor::Stopped,
    source::{Pattern, Source},
};

/// What became of pages that were put into a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Placed {
    /// All were absent, and are there now.
    All,
    /// So many were there before and stayed as they were; the others are there now. A page comes
    /// when it is put in or written first, whoever does it: to come second is no error.
    AlreadyThere {
        /// How many.
        pages: usize,
    },
}

impl Placed {
    fn of(there: usize) -> Self {
        if there == 0 { Self::All } else { Self::AlreadyThere { pages: there } }
    }
}

/// What became of pages that `place` puts in, telling of those that were there.
pub(super) fn counted(
    place: impl FnOnce(&mut dyn FnMut(usize)) -> Result<(), PageError>,
) -> Result<Placed, PageError> {
    let mut there = 0;
    place(&mut |_| there += 1)?;
    Ok(Placed::of(there))
}

/// How often a call that gets no further is tried again: the kernel asks for it while the addresses
/// of this process are being changed.
const TRIES: u32 = 10_000;

impl Window {
    /// Puts pages in, from `first` on as many as `source` has, protected if `write_protected` says so:
    /// then the first write to one is noted, and else it counts as written from the start. Others see of
    /// a page all or nothing.
    ///
    /// A page that is there stays as it is, and a [poisoned](Self::poison) one is filled: it is healed.
    ///
    /// # Errors
    ///
    /// [`PageError`]: the source is no whole number of pages, they are not within the window, or the
    /// kernel refused; [`PageError::Stuck`] if it got no further in many tries.
    pub fn copy_in<'a>(
        &self,
        first: usize,
        source: impl Into<Source<'a>>,
        write_protected: bool,
    ) -> Result<Placed, PageError> {
        let source = source.into();
        let count = source.bytes() / self.page;
        if count == 0 || !source.bytes().is_multiple_of(self.page) {
            let wanted = count.max(1) * self.page;
            return Err(PageError::Source { bytes: source.bytes(), wanted });
        }
        let pages = first..first.saturating_add(count);
        self.check(&pages)?;
        counted(|there| self.copy_pages(pages, source, write_protected, there))
    }

    /// As [`copy_in`](Self::copy_in), and tells of each page that was there.
    ///
    /// # Errors
    ///
    /// As [`copy_in`](Self::copy_in).
    pub(crate) fn copy_in_telling<'a>(
        &self,
        first: usize,
        source: impl Into<Source<'a>>,
        there: &mut dyn FnMut(usize),
    ) -> Result<(), PageError> {
        let source = source.into();
        let pages = first..first.saturating_add(source.bytes() / self.page);
        self.check(&pages)?;
        self.copy_pages(pages, source, true, there)
    }

    /// Puts pages of `pattern` in, as [`copy_in`](Self::copy_in) does.
    ///
    /// # Errors
    ///
    /// As [`copy_in`](Self::copy_in).
    pub fn fill(
        &self,
        pages: Range<usize>,
        pattern: &Pattern,
        write_protected: bool,
    ) -> Result<Placed, PageError> {
        self.check(&pages)?;
        let mut there = 0;
        for page in pages {
            let source = pattern.into();
            self.copy_pages(page..page + 1, source, write_protected, &mut |_| there += 1)?;
        }
        Ok(Placed::of(there))
    }

    /// Puts pages of zeros in, as [`copy_in`](Self::copy_in) does.
    ///
    /// # Errors
    ///
    /// As [`copy_in`](Self::copy_in).
    pub fn zero(&self, pages: Range<usize>, write_protected: bool) -> Result<Placed, PageError> {
        self.fill(pages, &self.zeros, write_protected)
    }

    /// Has the first write to each of `pages` that is there noted from now on; or, with `on` false, has
    /// them count as written until they are protected again. To protect absent pages makes tables for
    /// them, and helps nothing: [`copy_in`](Self::copy_in) protects a page as it puts it in.
    ///
    /// # Errors
    ///
    /// [`PageError`].
    pub fn write_protect(&self, pages: Range<usize>, on: bool) -> Result<(), PageError> {
        self.check(&pages)?;
        if matches!(self.tracking, Tracking::None) {
            return Err(PageError::Lacks(Feature::WriteProtect));
        }
        if pages.is_empty() {
            return Ok(());
        }
        match &self.tracking {
            // What is open without a fault is noted as written, as the kernel does.
            Tracking::Faults(noted) if !on => {
                noted.note(pages.clone(), || self.protect(pages, false))
            }
            _ => self.protect(pages, on),
        }
    }

    /// Has each access to `pages` raise SIGBUS, until they are filled. Those that are there go first.
    ///
    /// # Errors
    ///
    /// [`PageError::Lacks`] on a kernel without it: [`replace`](Self::replace) them then.
    pub fn poison(&self, pages: Range<usize>) -> Result<(), PageError> {
        self.check(&pages)?;
        let Some(bits) = &self.poisoned else { return Err(PageError::Lacks(Feature::Poison)) };
        if pages.is_empty() {
            return Ok(());
        }
        self.poisons.store(1, Relaxed);
        // Before, so that whoever meets the first of them knows.
        bits.set(pages.clone(), Relaxed);
        let mode = self.dont_wake(abi::UFFDIO_POISON_MODE_DONTWAKE);
        let poisoned = self.empty(pages.clone()).and_then(|()| {
            self.steps("UFFDIO_POISON", pages.clone(), |left| {
                match self.descriptor.poison(self.span(&left), mode) {
                    // Somebody filled it after it was dropped, or it is poisoned already.
                    Err(stopped) if stopped.errno == Errno::EXIST && stopped.done == 0 => {
                        let next = left.start..left.start + 1;
                        self.empty(next).map_err(|_| stopped)?;
                        Err(Stopped { done: 0, errno: Errno::AGAIN })
                    }
                    other => other,
                }
            })
        });
        if let Err(PageError::Refused { pages, .. } | PageError::Stuck { pages, .. }) = &poisoned {
            bits.clear(pages.clone());
        }
        poisoned
    }

    /// Drops `pages` so that nothing is left of them: of a file's, the kernel keeps that they were protected.
    fn empty(&self, pages: Range<usize>) -> Result<(), PageError> {
        if self.home.is_some() && !matches!(self.tracking, Tracking::None) {
            self.protect(pages.clone(), false)?;
        }
        self.drop_resident(pages)
    }

    /// Wakes the threads that wait at `pages`, to try again. Only those of a window that is
    /// [`Served`](Service::Served) wait.
    ///
    /// # Errors
    ///
    /// [`PageError`].
    pub fn wake(&self, pages: Range<usize>) -> Result<(), PageError> {
        self.check(&pages)?;
        if pages.is_empty() {
            return Ok(());
        }
        let woken = self.descriptor.wake(self.span(&pages));
        woken.map_err(|errno| PageError::refused("UFFDIO_WAKE", pages, errno))
    }

    /// Fills `pages`, which were checked, and tells of those that were there.
    fn copy_pages(
        &self,
        pages: Range<usize>,
        source: Source<'_>,
        write_protected: bool,
        there: &mut dyn FnMut(usize),
    ) -> Result<(), PageError> {
        let mode = self.dont_wake(abi::UFFDIO_COPY_MODE_DONTWAKE);
        match &self.tracking {
            Tracking::None => self.copy_steps(pages, source, mode, there),
            _ if write_protected => {
                self.copy_steps(pages, source, mode | abi::UFFDIO_COPY_MODE_WP, there)
            }
            Tracking::Faults(noted) => {
                noted.note(pages.clone(), || self.copy_steps(pages, source, mode, there))
            }
            Tracking::Kernel { .. } => self.copy_steps(pages, source, mode, there),
        }
    }

    fn copy_steps(
        &self,
        pages: Range<usize>,
        source: Source<'_>,
        mode: u64,
        there: &mut dyn FnMut(usize),
    ) -> Result<(), PageError> {
        let first = pages.start;
        self.place_steps("UFFDIO_COPY", pages, there, |left| {
            let at = (left.start - first) * self.page;
            let part = source.part(at, (left.end - left.start) * self.page);
            self.descriptor.copy(self.span(&left).start as usize, part, mode)
        })
    }

    /// Calls `step` as [`steps`](Self::steps) does, passes over pages that are there, and tells of each.
    pub(super) fn place_steps(
        &self,
        call: &'static str,
        pages: Range<usize>,
        there: &mut dyn FnMut(usize),
        mut step: impl FnMut(Range<usize>) -> Result<(), Stopped>,
    ) -> Result<(), PageError> {
        self.steps(call, pages, |left| {
            let placed = step(left.clone());
            let done = placed.map_or_else(|stopped| stopped.done / self.page, |()| left.len());
            self.healed(left.start..left.start + done);
            match placed {
                Err(Stopped { done: 0, errno: Errno::EXIST }) => {
                    there(left.start);
                    Err(Stopped { done: self.page, errno: Errno::AGAIN })
                }
                other => other,
            }
        })
    }

    /// Protects or opens `pages`, which were checked.
    pub(crate) fn protect(&self, pages: Range<usize>, on: bool) -> Result<(), PageError> {
        let mode = match (on, self.service) {
            (true, _) => abi::UFFDIO_WRITEPROTECT_MODE_WP,
            (false, Service::InThread) => abi::UFFDIO_WRITEPROTECT_MODE_DONTWAKE,
            (false, Service::Served) => 0,
        };
        self.steps("UFFDIO_WRITEPROTECT", pages, |left| {
            let done = self.descriptor.write_protect(self.span(&left), mode);
            done.map_err(|errno| Stopped { done: 0, errno })
        })
    }

    /// Serves a write to a protected page: notes it and opens the page. `false` if the page is absent.
    pub(crate) fn note_if_resident(&self, page: usize) -> bool {
        let Tracking::Faults(noted) = &self.tracking else { return false };
        let resident = self.reserved.is_resident(page * self.page, self.page);
        let pages = page..page + 1;
        resident && noted.note(pages.clone(), || self.protect(pages, false)).is_ok()
    }

    /// Forgets that `pages` were poisoned.
    pub(super) fn healed(&self, pages: Range<usize>) {
        if let Some(bits) = self.poisoned.as_ref().filter(|_| self.poisons.load(Relaxed) != 0) {
            bits.clear(pages);
        }
    }

    /// `mode` where no thread can wait.
    pub(super) fn dont_wake(&self, mode: u64) -> u64 {
        match self.service {
            Service::InThread => mode,
            Service::Served => 0,
        }
    }

    /// Calls `step` with the pages that are left until none is, at most [`TRIES`] times in a row
    /// without any progress.
    pub(super) fn steps(
        &self,
        call: &'static str,
        pages: Range<usize>,
        mut step: impl FnMut(Range<usize>) -> Result<(), Stopped>,
    ) -> Result<(), PageError> {
        let (mut left, mut tries) = (pages, 0);
        while !left.is_empty() {
            let Err(stopped) = step(left.clone()) else { return Ok(()) };
            let done = stopped.done / self.page;
            left.start += done;
            if !matches!(stopped.errno, Errno::AGAIN | Errno::INTR) && done == 0 {
                return Err(PageError::refused(call, left, stopped.errno));
            }
            tries = if done == 0 { tries + 1 } else { 0 };
            if tries > TRIES {
                return Err(PageError::Stuck { call, pages: left, tries });
            }
            if done == 0 {
                yield_now();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Stopped, TRIES};
    use crate::{Features, PageError, Service, Window};
    use pontoon_hal::conformance::part;
    use rustix::io::Errno;

    #[test]
    fn a_call_that_gets_no_further_is_given_up_and_one_that_does_is_not() {
        let window = Window::reserve(&Features::probe(), 1 << 20, Service::Served);
        let Some(window) = part::needed("userfaultfd", window) else { return };
        let page = window.page_bytes();
        let mut calls = 0;
        let stuck = window.steps("call", 3..9, |left| {
            calls += 1;
            let done = if calls == 1 { 2 * page } else { 0 };
            assert_eq!(left, if calls == 1 { 3..9 } else { 5..9 });
            Err(Stopped { done, errno: Errno::AGAIN })
        });
        assert_eq!(stuck, Err(PageError::Stuck { call: "call", pages: 5..9, tries: TRIES + 1 }));
        let mut calls = 0;
        let slow = window.steps("call", 0..3, |_| {
            calls += 1;
            let done = if calls % TRIES == 0 { page } else { 0 };
            Err(Stopped { done, errno: Errno::INTR })
        });
        assert_eq!((slow, calls), (Ok(()), 3 * TRIES));
        let refused = window.steps("call", 0..3, |_| Err(Stopped { done: 0, errno: Errno::NOMEM }));
        assert_eq!(refused, Err(PageError::refused("call", 0..3, Errno::NOMEM)));
    }
}
