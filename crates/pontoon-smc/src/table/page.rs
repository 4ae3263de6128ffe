//! The words that the tables are told in: pages, slots, and what they are.

/// A page of a window of the pool: the window's number, and the page's in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId(pub(super) u64);

impl PageId {
    /// The most pages of a window: 4 TiB of them.
    pub const PAGES_MAX: usize = 1 << 30;
    /// The most windows of a pool.
    pub const WINDOWS_MAX: usize = 64;

    /// Page `page` of window `window`.
    pub const fn new(window: usize, page: usize) -> Self {
        Self((window as u64) << 30 | page as u64)
    }

    /// Both as one number, which is not 0.
    pub const fn number(self) -> u64 {
        self.0 + 1
    }

    /// The page of a [number](Self::number).
    pub const fn of_number(number: u64) -> Option<Self> {
        match number.checked_sub(1) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The window's number.
    pub fn window(self) -> usize {
        (self.0 >> 30) as usize
    }

    /// The page's number in it.
    pub fn page(self) -> usize {
        (self.0 & (Self::PAGES_MAX as u64 - 1)) as usize
    }
}

/// What a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Nobody's.
    Free,
    /// Its page is on its way from home.
    Fetching,
    /// Its page is in the window, and it holds what home has of it.
    Resident,
    /// Somebody compares or merges; the page is in the window.
    Busy,
    /// Its page was or is being taken away.
    Leaving,
    /// Home did not answer: the pattern is in the window.
    Poisoned,
    /// Its page is gone, but a transfer may yet write here.
    Stuck,
    /// A call keeps its page in the window for as long as it works with it.
    Pinned,
}

impl State {
    const ALL: [Self; 8] = [
        Self::Free,
        Self::Fetching,
        Self::Resident,
        Self::Busy,
        Self::Leaving,
        Self::Poisoned,
        Self::Stuck,
        Self::Pinned,
    ];

    pub(super) fn of(word: u64) -> Self {
        Self::ALL[(word & 7) as usize]
    }
}

/// A page's place in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotIndex(
    /// Counted from 0.
    pub usize,
);

/// Which of a page's bytes a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// How often it had changed at home.
    pub number: u64,
    /// At which home, of those that its extent had: another counts by itself.
    pub generation: u64,
}

/// What came of asking for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is, or comes, there.
    Found(SlotIndex),
    /// It is the caller's to fetch.
    Mine(SlotIndex),
    /// There is no free slot.
    NoSlot,
    /// Its bucket is full: one of [its pages](super::Table::beside) has to go.
    Crowded,
    /// Another thread is at its bucket, and has not come to an end of it in a long time.
    Locked,
}
