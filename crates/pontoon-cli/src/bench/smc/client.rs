//! The client of a measurement: a rank that has windows on the memory of another, and whatever they are compared with.

use std::{hint::black_box, time::Duration};

use pontoon::{
    Bound, Rank,
    hal::{
        link::{Registered, Remote},
        paging::PAGE,
    },
    signal::{
        Host, Nanos, Os, Slot, Words,
        shim::{AtomicU64, Ordering::Relaxed},
    },
    smc::{
        AlternateStack, Class, Extent, Faults, Layout, MapError, Mapped, Pool, Settings, SmcError,
        on_this_thread,
    },
    world::Way,
};

use super::{bare::Bare, memory, step::Step};
use crate::bench::BenchError;

/// Bytes of a bulk read.
pub(super) const BULK: usize = 4 << 20;
/// Bytes of a read at random, and its words.
pub(super) const LINE: usize = 64;
pub(super) const LINE_WORDS: usize = LINE / 8;
/// Calls of which the median counts, where many fit into a step.
pub(super) const CALLS: usize = 5;
/// Pages that are read in order at a time: the median of these counts.
const BLOCK: usize = 256;
/// The longest that anything waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// The window whose tables are measured: so many extents of one region.
const EXTENTS: usize = 1024;

/// Word `at` of what home is filled with.
pub(super) fn word_of(at: u64) -> u64 {
    let mixed = (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// See the module.
pub(crate) struct Client {
    pub(super) way: Way,
    pub(super) remote: Remote,
    pub(super) layout: Layout,
    pub(super) done: Slot,
    /// Bytes of home that are used.
    pub(super) bytes: usize,
    pub(super) bare: Option<Bare>,
    /// Where reads come to: first the memory that is copied from, then the memory that is used.
    pub(super) memory: Words,
    pub(super) registered: Registered,
    served: Served,
    pub(super) turn: u64,
    _stack: AlternateStack,
}

/// Who serves the faults of windows, and how long an access waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) faults: Faults,
    pub(crate) deadline: Duration,
}

impl Default for Served {
    fn default() -> Self {
        Self { faults: Faults::Auto, deadline: PATIENCE }
    }
}

/// A window and its pool.
pub(super) struct Opened {
    // Dropped first: nobody touches it any more when its pool goes.
    pub(super) window: Mapped,
    pub(super) pool: Pool,
    home: Rank,
}

impl Opened {
    /// That all that was read is home's.
    pub(super) fn is_sound(&self) -> Result<(), BenchError> {
        let bytes = 0..self.window.bytes();
        self.window.check(bytes.clone())?;
        match self.window.statistics().poisoned {
            0 => Ok(()),
            // A page that held the pattern has made room for another since.
            poisoned => Err(SmcError::Unavailable { home: self.home, bytes, poisoned }.into()),
        }
    }

    /// The words of a page, without touching it.
    pub(super) fn page(&self, page: usize) -> Result<&[AtomicU64], BenchError> {
        let words = self.window.pages(page * PAGE..(page + 1) * PAGE)?.next();
        words.ok_or(BenchError::OutOfStep)
    }
}

impl Client {
    /// A client of the first `bytes` bytes that `remote` has for pages.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    pub(crate) fn open(
        way: Way,
        remote: Remote,
        bytes: usize,
        served: Served,
    ) -> Result<Self, BenchError> {
        let layout = Layout::of_region(remote.bytes()).ok_or(BenchError::OutOfStep)?;
        let memory = Words::zeroed(2 * BULK / 8)?;
        let registered = way.link().register(memory.block())?;
        let (done, _stack) = (way.completions()?, on_this_thread()?);
        let (bare, turn) = (None, 0);
        Ok(Self {
            way,
            remote,
            layout,
            done,
            bytes,
            bare,
            memory,
            registered,
            served,
            turn,
            _stack,
        })
    }

    /// Compared with that, too.
    pub(super) fn beside(self, bare: Option<Bare>) -> Self {
        Self { bare, ..self }
    }

    /// Does a step.
    ///
    /// # Errors
    ///
    /// See [`BenchError`].
    pub(crate) fn take(&mut self, step: Step) -> Result<f64, BenchError> {
        self.turn += 1;
        match step {
            Step::Verify => self.verify(),
            Step::Miss { pages } => self.miss(pages as usize),
            Step::Bare { pages } => self.bare_miss(pages as usize),
            Step::Prefetch { pages } => {
                self.in_order(&self.open_for(pages as usize, Class::Small)?, pages as usize)
            }
            Step::PrefetchReadOnly { pages } => {
                self.in_order(&self.open_to_read(pages as usize, Class::Small)?, pages as usize)
            }
            Step::Release { pages } => Ok(self.release(pages as usize)?.0),
            Step::Sent { pages } => Ok(self.release(pages as usize)?.1),
            Step::Place { pages } => self.place(pages as usize),
            Step::Share { times } => self.share(times as usize),
            Step::Acquire { pages } => self.acquire(pages as usize),
            Step::Bulk(how) => self.bulk(how),
            Step::Cold { how, places } => self.at_random(how, places as usize, false),
            Step::Warm { how, places } => self.at_random(how, places as usize, true),
            Step::Steps { steps } => self.steps(steps as usize),
            Step::Memory { pages, run } => self.memory(pages as usize, run.into()),
            Step::End => Ok(0.0),
        }
    }

    /// A window with room for so many pages.
    pub(super) fn open_for(&self, pages: usize, class: Class) -> Result<Opened, BenchError> {
        self.open_with(roomy(pages), class)
    }

    /// The same, which is read only.
    pub(super) fn open_to_read(&self, pages: usize, class: Class) -> Result<Opened, BenchError> {
        self.open_as(roomy(pages), |extent| extent.class(class).read_only())
    }

    pub(super) fn open_with(&self, pool: usize, class: Class) -> Result<Opened, BenchError> {
        self.open_as(pool, |extent| extent.class(class))
    }

    fn open_as(
        &self,
        pool: usize,
        with: impl FnOnce(Extent) -> Extent,
    ) -> Result<Opened, BenchError> {
        let mut settings = Settings::for_pages(pool);
        settings.deadline = self.served.deadline;
        let pool = Pool::new(settings).map_err(MapError::from)?;
        let home = pool.home(self.way.link(), self.remote.clone()).map_err(MapError::from)?;
        let home = home.ok_or(BenchError::OutOfStep)?;
        let extent = with(Extent::new(0..self.bytes, home, 0));
        Ok(Opened {
            window: Mapped::open(&pool, vec![extent], self.served.faults)?,
            pool,
            home: self.remote.peer(),
        })
    }

    fn verify(&mut self) -> Result<f64, BenchError> {
        let opened = self.open_for(self.bytes / PAGE, Class::Large)?;
        let words = opened.window.pages(0..self.bytes)?.flatten();
        let wrong = (0..).zip(words).filter(|(at, word)| word.load(Relaxed) != word_of(*at));
        BenchError::unless_equal("wrong words", 0, wrong.count() as u64)?;
        if let Some(bare) = &self.bare {
            // So that home is mapped as it is for windows.
            for at in (0..self.bytes).step_by(PAGE) {
                bare.bytes(at, PAGE).map(|span| span.word(0).map(|word| word.load(Relaxed)));
            }
        }
        Ok(0.0)
    }

    fn miss(&mut self, pages: usize) -> Result<f64, BenchError> {
        let opened = self.open_for(pages, Class::Small)?;
        let at = self.some_of(self.bytes / PAGE, pages);
        let words = at.into_iter().map(|page| opened.page(page)).collect::<Result<Vec<_>, _>>()?;
        let start = Os.now();
        for words in &words {
            words[0].load(Relaxed);
        }
        let took = since(start);
        let misses = opened.window.statistics().misses;
        opened.is_sound()?;
        Ok(took / misses.max(1) as f64)
    }

    fn bare_miss(&mut self, pages: usize) -> Result<f64, BenchError> {
        let at = self.some_of(self.bytes / PAGE, pages);
        let bare = self.bare.as_ref().ok_or(BenchError::OutOfStep)?;
        let copied = bare.window(self.bytes)?;
        let words = copied.window.words(0..self.bytes / PAGE).ok_or(BenchError::OutOfStep)?;
        let start = Os.now();
        for &page in &at {
            words[page * PAGE / 8].load(Relaxed);
        }
        Ok(since(start) / at.len() as f64)
    }

    fn in_order(&self, opened: &Opened, pages: usize) -> Result<f64, BenchError> {
        let mut took = Vec::new();
        for first in (0..pages).step_by(BLOCK) {
            let block = first..pages.min(first + BLOCK);
            let bytes = block.start * PAGE..block.end * PAGE;
            let start = Os.now();
            black_box(sum(opened.window.pages(bytes)?.flatten()));
            took.push(since(start) / block.len() as f64);
        }
        opened.is_sound()?;
        Ok(median(&mut took))
    }

    fn acquire(&mut self, pages: usize) -> Result<f64, BenchError> {
        let opened = self.open_for(pages, Class::Large)?;
        let (window, all) = (&opened.window, 0..pages * PAGE);
        window.prefetch(all.clone())?;
        let mut took = Vec::new();
        for _ in 0..=CALLS {
            let start = Os.now();
            let report = window.acquire(all.clone(), patience())?;
            took.push(since(start) / pages as f64);
            BenchError::unless_equal("checked pages", pages as u64, report.checked)?;
        }
        Ok(median(&mut took[1..]))
    }

    fn memory(&mut self, pages: usize, run: usize) -> Result<f64, BenchError> {
        let (region, runs) = (self.layout.pages() * PAGE, pages / run.max(1));
        let before = memory::taken()?;
        let pool = Pool::new(Settings::for_pages(pages + pages / 8)).map_err(MapError::from)?;
        let home = pool.home(self.way.link(), self.remote.clone()).map_err(MapError::from)?;
        let home = home.ok_or(BenchError::OutOfStep)?;
        let extents =
            (0..EXTENTS).map(|at| Extent::new(at * region..(at + 1) * region, home.clone(), 0));
        let window = Mapped::open(&pool, extents.collect(), self.served.faults)?;
        // Runs begin 2 MiB apart, so that no two share a table of the kernel's.
        let apart = 2 << 20;
        for at in 0..runs {
            let extent = at * EXTENTS / runs;
            let first = extent * region + at * apart % self.bytes;
            let range = first..first + run * PAGE;
            window.pages(range)?.for_each(|words| {
                words[0].load(Relaxed);
            });
        }
        let taken = memory::taken()?.saturating_sub(before);
        let resident = pool.resident() * PAGE * 2;
        drop(window);
        Ok(taken as f64 / resident.max(1) as f64)
    }

    /// So many of the numbers below `below`, at random, each once.
    pub(super) fn some_of(&self, below: usize, count: usize) -> Vec<usize> {
        let (mut random, mut all) = (Random(self.turn), (0..below).collect::<Vec<_>>());
        let count = count.min(below);
        for at in 0..count {
            all.swap(at, at + random.below(below - at));
        }
        all.truncate(count);
        all
    }
}

/// Room for so many pages: more than the keeper would make.
fn roomy(pages: usize) -> usize {
    pages + pages / 4 + 64
}

pub(super) fn sum<'w>(words: impl IntoIterator<Item = &'w AtomicU64>) -> u64 {
    words.into_iter().fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
}

pub(super) fn since(start: Nanos) -> f64 {
    Os.now().since(start).0 as f64
}

pub(super) fn patience() -> Bound {
    Bound::within(PATIENCE)
}

pub(super) fn median(all: &mut [f64]) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Numbers that look random, the same for the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (word_of(self.0) >> 20) as usize % below.max(1)
    }
}
