//! A window as the hardware layer knows it: what `hal::paging` promises, by userfaultfd.

use core::{ops::Range, ptr::NonNull};
use std::sync::{Arc, OnceLock};

use pontoon_hal::{
    guard::{Guard, Storer},
    paging::{self, PAGE, PageFault, Paging, PagingError, Written},
};
use pontoon_signal::{
    Block, SystemError,
    shim::{AtomicU64, yield_now},
};

use crate::{
    Attached, Fault, Feature, Features, PageError, Pager, Placed, ReserveError, Run, ServeError,
    Served, Server, Service, Shelf, Window, attach, bits::Bits, shelves::Shelves, window::Access,
};

/// Runs of pages that the kernel is asked for at once.
const RUNS: usize = 64;

/// How often a page is put back in a place that others fill again and again.
const TRIES: u32 = 1_000;

/// A window, and shelves for the pages that are taken away.
///
/// How it keeps the clauses: P1 by SIGBUS or by threads, P2 by `UFFDIO_COPY`, P3 by write protection, P4 by
/// `UFFDIO_MOVE`, which takes a page out of the page table as it is: a store is before that, or faults.
/// P5: shelves are taken by trying each, and no more than 16 threads look at one at a time; more than that
/// are refused with `EBUSY`, as by a kernel that is. A page that was taken keeps its memory until its place on a shelf is needed
/// again, or the window goes: 16 pages a shelf.
/// P6 by `mprotect` and SIGSEGV, with a storer on x86-64 alone: a guarded page, which nobody stores to, is taken by
/// dropping it.
#[derive(Debug)]
pub struct Paged {
    window: Arc<Window>,
    shelves: Shelves,
    /// Which pages are guarded.
    guarded: OnceLock<Bits>,
}

/// Who serves a window's faults, as long as it is kept.
#[derive(Debug)]
#[must_use]
pub enum Serving {
    /// The threads that make them.
    InThread(Attached),
    /// Threads for nothing else.
    Threads(Server),
}

impl Paged {
    /// A window of so many bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; [`ReserveError::Paged`] for a kernel that cannot notice stores, or take pages away.
    pub fn reserve(
        features: &Features,
        bytes: usize,
        service: Service,
    ) -> Result<Arc<Self>, ReserveError> {
        // What there is no window at all without comes first.
        let window = Arc::new(Window::reserve(features, bytes, service)?);
        for needed in [Feature::WriteProtect, Feature::Move] {
            if !features.has(needed) {
                return Err(ReserveError::Paged(needed));
            }
        }
        let shelves = Shelves::of(&window)?;
        Ok(Arc::new(Self { window, shelves, guarded: OnceLock::new() }))
    }

    /// The window itself.
    pub fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// Has `pager` asked for its pages: in the threads that miss them, or by `threads` threads where the window was set
    /// aside for that.
    ///
    /// # Errors
    ///
    /// [`ServeError`].
    pub fn serve(
        &self,
        pager: Arc<dyn paging::Pager>,
        threads: usize,
    ) -> Result<Serving, ServeError> {
        let asked: Arc<dyn Pager> = Arc::new(Asked(pager));
        match self.window.service() {
            Service::InThread => attach(&self.window, asked).map(Serving::InThread),
            Service::Served => Server::start(&self.window, asked, threads).map(Serving::Threads),
        }
    }
}

/// A pager of the hardware layer's.
struct Asked(Arc<dyn paging::Pager>);

impl Pager for Asked {
    fn fault(&self, fault: Fault) -> Served {
        let Fault { page, write, waited, .. } = fault;
        match self.0.fault_after(PageFault { page, write }, waited) {
            paging::Served::Again => Served::Again,
            paging::Served::Refused => Served::NotMine,
        }
    }
}

impl Paging for Paged {
    fn pages(&self) -> usize {
        self.window.pages()
    }

    fn base(&self) -> NonNull<u8> {
        self.window.base()
    }

    fn asks_in_handler(&self) -> bool {
        self.window.service() == Service::InThread
    }

    fn words(&self, page: usize) -> &[AtomicU64] {
        self.window.words(page..page + 1).expect("a page of the window")
    }

    fn look(&self, page: usize, look: &mut dyn FnMut(&[AtomicU64]) -> bool) -> Option<bool> {
        // Where the threads serve it themselves it is never shut.
        let access =
            if self.asks_in_handler() { None } else { Some(self.window.access_as_it_is()?) };
        let is_open = access.as_ref().is_none_or(|access| !access.is_left);
        // Kept until it has looked.
        is_open.then(|| look(self.words(page)))
    }

    fn is_there(&self, page: usize) -> bool {
        let bytes = self.window.page_bytes();
        page < self.window.pages() && self.window.reserved().is_resident(page * bytes, bytes)
    }

    fn place(
        &self,
        page: usize,
        from: &Block,
        there: &mut dyn FnMut(usize),
    ) -> Result<(), PagingError> {
        let bytes = from.bytes() / PAGE * PAGE;
        let source = crate::Source::of(from, 0..bytes).ok_or(EMPTY)?;
        self.window.copy_in_telling(page, source, there).map_err(told)
    }

    fn written(
        &self,
        pages: Range<usize>,
        found: &mut [Range<usize>],
    ) -> Result<Written, PagingError> {
        let mut runs = [Run::default(); RUNS];
        let most = found.len().min(RUNS);
        let scanned = self.window.scan(pages, &mut runs[..most]).map_err(told)?;
        for (found, run) in found.iter_mut().zip(&runs[..scanned.runs]) {
            *found = run.pages();
        }
        Ok(Written { ranges: scanned.runs, next: scanned.next })
    }

    fn take(
        &self,
        page: usize,
        last: &mut dyn FnMut(&[AtomicU64]) -> bool,
    ) -> Result<bool, PagingError> {
        let access = self.window.access_as_it_is().ok_or(BUSY)?;
        let opened = access.is_shut.then(|| Opened::page(&self.window, &access, page));
        let _opened = opened.transpose()?;
        if self.is_guarded(page) {
            let gone = !self.is_there(page) || last(self.words(page));
            if gone {
                self.discard(page..page + 1)?;
            }
            return Ok(gone);
        }
        let mut room = self.shelves.room(1).ok_or(BUSY)?;
        match self.window.move_out(page..page + 1, room.shelf(), room.at) {
            Ok(()) => {}
            // There was none.
            Err(PageError::Refused { code, .. }) if code == libc::ENOENT => return Ok(true),
            Err(error) => return Err(told(error)),
        }
        room.took(1);
        self.let_go(page, room.shelf(), room.at, last)
    }

    fn take_run(
        &self,
        pages: Range<usize>,
        last: &mut dyn FnMut(usize, &[AtomicU64]) -> bool,
        taken: &mut dyn FnMut(usize, Result<bool, PagingError>),
    ) {
        let mut left = pages;
        while !left.is_empty() {
            let run = left.start..left.end.min(left.start + Shelves::RUN);
            left.start += self.take_together(run.clone(), last, taken);
            if left.start < run.end {
                // One that goes by itself, or is not there.
                let page = left.start;
                taken(page, self.take(page, &mut |words| last(page, words)));
                left.start += 1;
            }
        }
    }

    fn discard(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.window.drop_pages(pages).map_err(told)
    }

    #[cfg(target_arch = "x86_64")]
    fn guard(
        &self,
        pages: Range<usize>,
        storer: Arc<dyn Storer>,
    ) -> Result<Box<dyn Guard>, PagingError> {
        self.guardable(&pages)?;
        // Before: other threads may be storing to them.
        let guard = crate::trap::guard(&self.window, pages.clone(), storer);
        let guard = guard.map_err(|error| PagingError {
            call: "sigaction",
            code: match error {
                ServeError::Full { .. } => libc::ENFILE,
                ServeError::System(error) => error.code,
                _ => libc::EBUSY,
            },
            remedy: "64 ranges of a process can be guarded, behind no more than 8 handlers of SIGSEGV",
        })?;
        self.close(pages)?;
        Ok(guard)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn guard(&self, _: Range<usize>, _: Arc<dyn Storer>) -> Result<Box<dyn Guard>, PagingError> {
        Err(PagingError {
            call: "guard",
            code: libc::ENOSYS,
            remedy: "stores are decoded on x86-64 alone: use cells",
        })
    }

    fn read_only(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.guardable(&pages)?;
        self.close(pages)
    }

    fn guarded(&self, pages: Range<usize>) -> Option<Range<usize>> {
        self.guarded.get()?.first(pages)
    }
}

impl Paged {
    /// Makes room to say of `pages` that they are guarded.
    fn guardable(&self, pages: &Range<usize>) -> Result<(), PagingError> {
        if pages.is_empty() || pages.end > self.window.pages() {
            return Err(EMPTY);
        }
        if self.guarded.get().is_none() {
            let refused = |error: SystemError| PagingError {
                call: error.call,
                code: error.code,
                remedy: "there is no memory for a bit a page",
            };
            // Another that was quicker has none of its bits set yet, or all.
            let _ = self.guarded.set(Bits::new(self.window.pages()).map_err(refused)?);
        }
        Ok(())
    }

    /// Has each store to `pages` raise SIGSEGV.
    fn close(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.window.refuse_stores(pages.clone()).map_err(|errno| PagingError {
            call: "mprotect",
            code: errno.raw_os_error(),
            remedy: "raise vm.max_map_count: a guarded range splits the window's mapping",
        })?;
        // After: until then a page that is taken may be stored to.
        if let Some(guarded) = self.guarded.get() {
            guarded.set(pages, pontoon_signal::shim::Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes away the first of those pages, as many as go together. How many those were.
    fn take_together(
        &self,
        pages: Range<usize>,
        last: &mut dyn FnMut(usize, &[AtomicU64]) -> bool,
        taken: &mut dyn FnMut(usize, Result<bool, PagingError>),
    ) -> usize {
        // Kept until they are back or gone.
        let access = self.window.access_as_it_is();
        let is_open = access.as_ref().is_some_and(|access| !access.is_shut);
        if pages.len() < 2 || !is_open || pages.clone().any(|page| self.is_guarded(page)) {
            return 0;
        }
        let Some(mut room) = self.shelves.room(pages.len()) else { return 0 };
        let moved = match self.window.move_out(pages.clone(), room.shelf(), room.at) {
            Ok(()) => pages.len(),
            Err(PageError::Refused { pages: left, .. } | PageError::Stuck { pages: left, .. }) => {
                left.start - pages.start
            }
            Err(_) => 0,
        };
        room.took(moved);
        for (place, page) in (room.at..).zip(pages.start..pages.start + moved) {
            let mut last = |words: &[AtomicU64]| last(page, words);
            taken(page, self.let_go(page, room.shelf(), place, &mut last));
        }
        moved
    }

    /// Shows what is in a page that was moved to a shelf, and puts it back if it is not to go. Whether it is gone.
    fn let_go(
        &self,
        page: usize,
        shelf: &Shelf,
        place: usize,
        last: &mut dyn FnMut(&[AtomicU64]) -> bool,
    ) -> Result<bool, PagingError> {
        let words = shelf.words(place).ok_or(EMPTY)?;
        let gone = last(words);
        let back = if gone { Ok(()) } else { self.put_back(page, words) };
        back.map(|()| gone)
    }

    /// Puts a page back as it was, in place of whatever was put there meanwhile.
    fn put_back(&self, page: usize, words: &[AtomicU64]) -> Result<(), PagingError> {
        let lost = |error| PagingError::loss(told(error).code);
        for _ in 0..TRIES {
            // Not protected: what is in it is not what it was placed with.
            match self.window.copy_in(page, words, false) {
                Ok(Placed::All) => return Ok(()),
                Ok(Placed::AlreadyThere { .. }) => {
                    self.window.drop_pages(page..page + 1).map_err(lost)?;
                }
                // The page that this one has is on its way back to the kernel, or another.
                Err(PageError::Refused { code: libc::ENOMEM, .. }) => yield_now(),
                Err(error) => return Err(lost(error)),
            }
        }
        Err(PagingError::loss(libc::ENOMEM))
    }

    fn is_guarded(&self, page: usize) -> bool {
        self.guarded.get().is_some_and(|guarded| guarded.is_set(page))
    }
}

/// A page of a window that is shut, which is open as long as this is kept.
struct Opened<'w> {
    window: &'w Window,
    page: usize,
}

impl<'w> Opened<'w> {
    fn page(window: &'w Window, access: &Access, page: usize) -> Result<Self, PagingError> {
        let (bytes, reserved) = (Self::bytes(window, page), window.reserved());
        // What is read only is let be stored to at no time.
        let opened = if access.is_read_only(page) {
            reserved.read_only(bytes)
        } else {
            reserved.open(bytes)
        };
        opened.map_err(|errno| PagingError {
            call: "mprotect",
            code: errno.raw_os_error(),
            remedy: "raise vm.max_map_count: a page that is open splits the window's mapping",
        })?;
        Ok(Self { window, page })
    }

    fn bytes(window: &Window, page: usize) -> Range<usize> {
        page * window.page_bytes()..(page + 1) * window.page_bytes()
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let _ = self.window.reserved().close(Self::bytes(self.window, self.page));
        // Who touched it meanwhile waits for nobody: the next try raises SIGSEGV.
        let _ = self.window.wake(self.page..self.page + 1);
    }
}

const BUSY: PagingError = PagingError {
    call: "UFFDIO_MOVE",
    code: libc::EBUSY,
    remedy: "other threads take pages away; it is tried again",
};

const EMPTY: PagingError = PagingError {
    call: "UFFDIO_COPY",
    code: libc::EINVAL,
    remedy: "there are no bytes to put in place",
};

/// It allocates nothing: this is where faults are served.
fn told(error: PageError) -> PagingError {
    let remedy = error.meaning().unwrap_or("see the kernel's documentation of userfaultfd");
    match error {
        PageError::Refused { call, code, .. } => PagingError { call, code, remedy },
        PageError::Stuck { call, .. } => PagingError {
            call,
            code: libc::EAGAIN,
            remedy: "this process changes its mappings all the time; it is tried again",
        },
        PageError::Lacks(_) => PagingError {
            call: "userfaultfd",
            code: libc::ENOSYS,
            remedy: "pontoon doctor says what this kernel lacks",
        },
        _ => EMPTY,
    }
}
