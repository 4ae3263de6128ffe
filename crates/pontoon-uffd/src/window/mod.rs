//! A range of addresses whose pages come when they are touched.

mod access;
mod alias;
mod away;
mod place;
mod reserve;
mod scan;
mod shelf;

pub use place::Placed;
pub use scan::{Run, Scanned};
pub use shelf::Shelf;

pub(crate) use access::Access;

use core::{ops::Range, ptr::NonNull};
use std::sync::{Arc, RwLock};

use pontoon_signal::{
    Block, Mapping,
    shim::{AtomicU64, Ordering::Relaxed},
};
use rustix::fd::OwnedFd;

use crate::{
    Features, PageError, abi, bits::Bits, descriptor::Descriptor, noted::Noted, reserved::Reserved,
    source::Pattern,
};

/// Who serves the faults of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The thread that made the fault, in a signal handler: [`attach`](crate::attach). A call of the
    /// kernel's that is given an absent page fails with `EFAULT`.
    InThread,
    /// The threads of a [`Server`](crate::Server), 5 to 10 times as slow. With privileges, faults that system
    /// calls make are served too: [`serves_system_calls`](Window::serves_system_calls).
    Served,
}

/// How first writes become known.
#[derive(Debug)]
pub(crate) enum Tracking {
    /// The kernel notes them, and tells.
    Kernel { pagemap: OwnedFd },
    /// Whoever serves the fault notes it.
    Faults(Noted),
    /// Not at all.
    None,
}

/// A range of addresses, set aside, whose pages live elsewhere. Nothing is behind it at first: an
/// access to an absent page is a fault, which is [served](Service) by a [`Pager`](crate::Pager).
///
/// A page is named by its number in the window, from 0 on, and several by a range of them. A window
/// of a terabyte costs what one of a page does, until pages are there.
///
/// **Its bytes change under whoever looks**: other threads store to them, and the kernel fills them.
/// So nothing here gives a reference to plain bytes. [`words`](Self::words) are atomics, for which
/// this is what they are for; [`base`](Self::base) is a pointer for programs that use plain loads and
/// stores, and answer for them; [`block`](Self::block) lets a [`Span`](pontoon_signal::Span)
/// copy. No operation of a window can make an access to it read or write other memory: the worst that
/// one meets is a signal, SIGBUS where nobody serves its fault.
///
/// Operations may be called while a fault is served: they neither allocate nor lock. A child of
/// `fork` does not have the window: an access there raises SIGSEGV, and operations fail.
#[derive(Debug)]
pub struct Window {
    reserved: Reserved,
    descriptor: Descriptor,
    pub(crate) tracking: Tracking,
    features: Features,
    service: Service,
    /// Whether faults of the kernel's own come here too.
    kernel_faults: bool,
    page: usize,
    /// Which pages are poisoned; none if the kernel cannot.
    poisoned: Option<Bits>,
    /// Whether any bit of it was ever set.
    poisons: AtomicU64,
    zeros: Pattern,
    /// What the pages are of, if it is an alias.
    home: Option<Block>,
    access: RwLock<Access>,
    /// 1 while somebody serves its faults.
    pub(crate) served: AtomicU64,
}

impl Window {
    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.reserved.bytes() / self.page
    }

    /// The bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.reserved.bytes()
    }

    /// Who serves its faults.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Whether a system call that is given an absent page waits until it is there: else it fails with
    /// `EFAULT`.
    pub fn serves_system_calls(&self) -> bool {
        self.kernel_faults
    }

    /// What the kernel had when it was set aside.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The first byte, for plain loads and stores. It stays where it is as long as the window lives.
    pub fn base(&self) -> NonNull<u8> {
        self.reserved.base()
    }

    /// The words of `pages`, or `None` if they are not all within it, or this is a child of the process that
    /// has it. A load or a store of an absent
    /// one is a fault like any.
    pub fn words(&self, pages: Range<usize>) -> Option<&[AtomicU64]> {
        let end = pages.end.checked_mul(self.page)?;
        self.reserved.words(pages.start.checked_mul(self.page)?..end)
    }

    /// All of it as a block, whose clones keep the window.
    pub fn block(self: &Arc<Self>) -> Block {
        Block::of(Mapped(Arc::clone(self)))
    }

    /// The page that `address` is of, and where in the window that is.
    pub fn page_at(&self, address: usize) -> Option<(usize, usize)> {
        let at = address.checked_sub(self.reserved.start())?;
        (at < self.bytes()).then_some((at / self.page, at))
    }

    /// Whether `page` was poisoned and not filled or dropped since.
    pub fn is_poisoned(&self, page: usize) -> bool {
        let bits = self.poisoned.as_ref().filter(|_| page < self.pages());
        bits.is_some_and(|bits| self.poisons.load(Relaxed) != 0 && bits.is_set(page))
    }

    /// Whether this is the process that has it: a child of `fork` does not.
    pub fn is_here(&self) -> bool {
        self.reserved.is_here()
    }

    pub(crate) fn addresses(&self) -> Range<u64> {
        let first = self.reserved.start() as u64;
        first..first + self.bytes() as u64
    }

    pub(crate) fn reserved(&self) -> &Reserved {
        &self.reserved
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Refuses what is not within the window.
    fn check(&self, pages: &Range<usize>) -> Result<(), PageError> {
        if !self.is_here() {
            return Err(PageError::Forked);
        }
        if pages.start <= pages.end && pages.end <= self.pages() {
            return Ok(());
        }
        Err(PageError::Outside { pages: pages.clone(), window: self.pages() })
    }

    /// The addresses of `pages`, which were checked.
    fn span(&self, pages: &Range<usize>) -> abi::Span {
        let start = (self.reserved.start() + pages.start * self.page) as u64;
        abi::Span { start, len: ((pages.end - pages.start) * self.page) as u64 }
    }

    fn byte_range(&self, pages: &Range<usize>) -> Range<usize> {
        pages.start * self.page..pages.end * self.page
    }
}

/// A window, as the mapping of a block.
#[derive(Debug)]
struct Mapped(Arc<Window>);

#[allow(unsafe_code)] // a promise about memory
// SAFETY: R1 and R2 of the reservation, which the window keeps.
unsafe impl Mapping for Mapped {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
