//! What is said of an extent before it is opened.

use core::ops::Range;

use crate::Home;

/// How many pages come at once, at a miss without a known run. Aligned runs of them are fetched together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// One page: for accesses at random.
    #[default]
    Small,
    /// 64 KiB: for a mixture.
    Medium,
    /// 2 MiB: for what is used as a whole. At one miss 256 KiB of it come, which costs the least a page.
    Large,
}

impl Class {
    pub(super) fn pages(self) -> usize {
        match self {
            Self::Small => 1,
            Self::Medium => 16,
            Self::Large => 512,
        }
    }
}

/// A part of a window, to be opened.
#[derive(Clone, Debug)]
pub struct Extent {
    pub(crate) bytes: Range<usize>,
    pub(super) homes: Vec<(Home, usize)>,
    pub(super) class: Class,
    pub(super) pattern: u64,
    pub(super) uncached: bool,
    pub(super) read_only: bool,
}

impl Extent {
    /// The bytes `bytes` of a window are those of `home`, from `from` on.
    pub fn new(bytes: Range<usize>, home: Home, from: usize) -> Self {
        let class = Class::default();
        let (homes, pattern) = (vec![(home, from)], POISON);
        Self { bytes, homes, class, pattern, uncached: false, read_only: false }
    }

    /// The bytes of a window that it maps.
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }

    /// Whether the memory of all its homes is mapped in this process: then pages can be fetched where accesses fault.
    pub fn is_mapped(&self) -> bool {
        self.homes.iter().all(|(home, _)| home.in_handler())
    }

    /// With pages of that class.
    pub fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// With that word, over and over, where a home did not answer.
    pub fn pattern(self, pattern: u64) -> Self {
        Self { pattern, ..self }
    }

    /// With none of it kept here: for flags and queues that others change all the time. Its bytes are read and written
    /// at home by [cells](crate::Window::cell) and [slices](crate::Window::slice); a plain load or store raises a signal, as outside
    /// any mapping, since what it would find is old from then on.
    pub fn uncached(self) -> Self {
        Self { uncached: true, ..self }
    }

    /// With none of it stored to by this process: for weights, tables, and whatever others make. A store raises SIGSEGV, as
    /// outside any mapping, and calls that write are [refused](crate::SmcError::ReadOnly). What others released is
    /// seen after an acquire, as ever: a page that home has another version of goes, and the next access, or a
    /// [prefetch](crate::Window::prefetch), brings it again.
    ///
    /// It saves the copy that is kept to find stores by: where home's memory is mapped in this process, a page comes by one copy
    /// of the kernel's instead of two, and a pool that has none but such pages and is not [locked](crate::Settings::lock)
    /// takes their memory once instead of twice. One that is [uncached](Self::uncached) too is read by cells alone.
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Whether its pages are put in place from the memory of whichever home it has.
    pub(crate) fn is_direct(&self) -> bool {
        self.read_only && self.homes.iter().all(|(home, _)| home.is_direct())
    }

    /// If what came before is unavailable, these bytes are those of `home`, from `from` on: a replica, the same
    /// memory over another link, or a copy on this side. What was written and not released goes there.
    pub fn or(mut self, home: Home, from: usize) -> Self {
        self.homes.push((home, from));
        self
    }
}

/// The pattern unless another is given: no float and no pointer that is of any use.
const POISON: u64 = 0xFFF8_DEAD_DEAD_DEAD;
