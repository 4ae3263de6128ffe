//! The client of a measurement: a rank that has windows on the memory of another, and whatever they are compared with.

use std::{hint::black_box, ops::Range, time::Duration};

use pontoon::{
    Bound, Rank,
    hal::{
        link::{Registered, Remote},
        paging::PAGE,
    },
    signal::{
        Host, Nanos, Os, Seq, Slot, Span, Words,
        shim::{AtomicU64, Ordering::Relaxed},
    },
    smc::{
        AlternateStack, Class, Extent, Faults, Layout, MapError, Mapped, Pool, Settings, SmcError,
        on_this_thread,
    },
    world::Way,
};

use super::{
    bare::Bare,
    changes::Changes,
    memory,
    step::{How, Step},
};
use crate::bench::{BenchError, spawn};

/// Bytes of a bulk read.
pub(super) const BULK: usize = 4 << 20;
/// Bytes of a read at random, and its words.
const LINE: usize = 64;
const LINE_WORDS: usize = LINE / 8;
/// Calls of which the median counts, where many fit into a step.
const CALLS: usize = 5;
/// Pages that are read in order at a time: the median of these counts.
const BLOCK: usize = 256;
/// How often places are read that are here.
const PASSES: usize = 20;
/// Pages of the pool that steps of a program go through.
const SMALL: usize = 256;
/// Threads that share a page.
const THREADS: usize = 4;
/// The longest that anything waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// The window whose tables are measured: so many extents of one region.
pub(super) const EXTENTS: usize = 1024;

/// Word `at` of what home is filled with.
pub(super) fn word_of(at: u64) -> u64 {
    let mixed = (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// See the module.
pub(crate) struct Client {
    way: Way,
    remote: Remote,
    layout: Layout,
    done: Slot,
    /// Bytes of home that are used.
    bytes: usize,
    bare: Option<Bare>,
    /// Where reads come to: first the memory that is copied from, then the memory that is used.
    memory: Words,
    registered: Registered,
    served: Served,
    turn: u64,
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
struct Opened {
    // Dropped first: nobody touches it any more when its pool goes.
    window: Mapped,
    pool: Pool,
    home: Rank,
}

impl Opened {
    /// That all that was read is home's.
    fn is_sound(&self) -> Result<(), BenchError> {
        let bytes = 0..self.window.bytes();
        self.window.check(bytes.clone())?;
        match self.window.statistics().poisoned {
            0 => Ok(()),
            // A page that held the pattern has made room for another since.
            poisoned => Err(SmcError::Unavailable { home: self.home, bytes, poisoned }.into()),
        }
    }

    /// The words of a page, without touching it.
    fn page(&self, page: usize) -> Result<&[AtomicU64], BenchError> {
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
            Step::Prefetch { pages } => self.prefetch(pages as usize),
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
    fn open_for(&self, pages: usize, class: Class) -> Result<Opened, BenchError> {
        // More than the keeper would make room for.
        self.open_with(pages + pages / 4 + 64, class)
    }

    fn open_with(&self, pool: usize, class: Class) -> Result<Opened, BenchError> {
        let mut settings = Settings::for_pages(pool);
        settings.deadline = self.served.deadline;
        let pool = Pool::new(settings).map_err(MapError::from)?;
        let home = pool.home(self.way.link(), self.remote.clone()).map_err(MapError::from)?;
        let home = home.ok_or(BenchError::OutOfStep)?;
        let extent = Extent::new(0..self.bytes, home, 0).class(class);
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

    fn prefetch(&mut self, pages: usize) -> Result<f64, BenchError> {
        let opened = self.open_for(pages, Class::Small)?;
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

    /// Nanoseconds a page, and bytes that were sent over those that changed.
    fn release(&mut self, pages: usize) -> Result<(f64, f64), BenchError> {
        let opened = self.open_for(pages, Class::Large)?;
        let window = &opened.window;
        window.prefetch(0..pages * PAGE)?;
        let (mut changes, mut took, mut sent) = (Changes::of(window, pages), Vec::new(), 0);
        // The first is not timed.
        for turn in 0..=CALLS {
            changes.make(turn)?;
            let start = Os.now();
            let released = window.release(0..pages * PAGE, patience())?;
            took.push(since(start) / pages as f64);
            BenchError::unless_equal("released bytes", (pages * LINE) as u64, released.bytes)?;
            sent += on_the_way(released.bytes, released.pages);
        }
        changes.undo()?;
        window.release(0..pages * PAGE, patience())?;
        opened.is_sound()?;
        Ok((median(&mut took[1..]), sent as f64 / ((CALLS + 1) * pages * LINE) as f64))
    }

    fn place(&mut self, pages: usize) -> Result<f64, BenchError> {
        let bare = self.bare.as_ref().ok_or(BenchError::OutOfStep)?;
        let local = Words::zeroed(pages * PAGE / 8)?;
        let all = Span::of(local.block(), 0..pages * PAGE);
        let (all, home) = all.zip(bare.bytes(0, pages * PAGE)).ok_or(BenchError::OutOfStep)?;
        home.copy_to(all);
        let mut took = Vec::new();
        for turn in 0..=CALLS {
            let places = (0..pages).map(|page| Changes::place(page, turn));
            // Stored to just before, as what is released is.
            for at in places.clone() {
                local[at / 8..at / 8 + LINE_WORDS].iter().for_each(|word| {
                    word.store(word.load(Relaxed), Relaxed);
                });
            }
            let start = Os.now();
            for at in places {
                let from = Span::of(local.block(), at..at + LINE);
                if let Some((from, to)) = from.zip(bare.bytes(at, LINE)) {
                    from.copy_to(to);
                }
            }
            took.push(since(start) / pages as f64);
        }
        Ok(median(&mut took[1..]))
    }

    fn share(&mut self, times: usize) -> Result<f64, BenchError> {
        let opened = self.open_for(1, Class::Small)?;
        let window = &opened.window;
        window.prefetch(0..PAGE)?;
        let mine = |thread: usize, time: usize| {
            let line = (time * THREADS + thread) * 5 % (PAGE / LINE);
            Changes::flip(window, line * LINE)
        };
        let work = |thread| -> Result<u64, BenchError> {
            let _stack = on_this_thread()?;
            let mut sent = 0;
            for time in 0..times {
                mine(thread, time)?;
                let released = window.release(0..PAGE, patience())?;
                sent += on_the_way(released.bytes, released.pages);
            }
            Ok(sent)
        };
        let sent = std::thread::scope(|scope| {
            let threads: Result<Vec<_>, _> =
                (0..THREADS).map(|thread| spawn(scope, move || work(thread))).collect();
            let mut sent = 0;
            for thread in threads? {
                sent += thread.join().map_err(|_| BenchError::Panicked)??;
            }
            Ok::<_, BenchError>(sent)
        })?;
        for time in 0..times {
            (0..THREADS).try_for_each(|thread| mine(thread, time))?;
        }
        window.release(0..PAGE, patience())?;
        opened.is_sound()?;
        Ok(sent as f64 / (times * THREADS * LINE) as f64)
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

    fn bulk(&mut self, how: How) -> Result<f64, BenchError> {
        let at = self.turn as usize % (self.bytes / BULK).max(1) * BULK;
        let bytes = BULK.min(self.bytes);
        if how == How::Smc {
            let opened = self.open_for(bytes / PAGE, Class::Large)?;
            let start = Os.now();
            black_box(sum(opened.window.pages(at..at + bytes)?.flatten()));
            let took = since(start);
            opened.is_sound()?;
            return Ok(took);
        }
        let used = BULK..BULK + bytes;
        let start = Os.now();
        match how {
            How::Copy => {
                self.read(at, 0..bytes)?;
                self.copy(0..bytes, used.clone())?;
            }
            How::Remote => self.read(at, used.clone())?,
            How::Smc | How::Memory => {}
        }
        black_box(sum(&self.memory[used.start / 8..used.end / 8]));
        Ok(since(start))
    }

    /// Reads lines at random: where none of it is here, or again.
    fn at_random(&mut self, how: How, places: usize, again: bool) -> Result<f64, BenchError> {
        let pages = self.some_of(self.bytes / PAGE, places);
        let line = |page: usize| page * 11 % (PAGE / LINE) * LINE;
        let at: Vec<usize> = pages.iter().map(|&page| page * PAGE + line(page)).collect();
        let opened = match how {
            How::Smc => Some(self.open_for(places, Class::Small)?),
            _ => None,
        };
        let local = Words::zeroed(if how == How::Memory { self.bytes / 8 } else { 1 })?;
        let window =
            at.iter().map(|at| Some(&opened.as_ref()?.page(at / PAGE).ok()?[at % PAGE / 8..]));
        let window: Vec<_> = window.map(Option::unwrap_or_default).collect();
        let pass = || -> Result<f64, BenchError> {
            let start = Os.now();
            for (&at, window) in at.iter().zip(&window) {
                let used = match how {
                    How::Copy => {
                        self.read(at, 0..LINE)?;
                        self.copy(0..LINE, BULK..BULK + LINE)?;
                        &self.memory[BULK / 8..]
                    }
                    How::Remote => {
                        self.read(at, BULK..BULK + LINE)?;
                        &self.memory[BULK / 8..]
                    }
                    How::Smc => window,
                    How::Memory => &local[at / 8..],
                };
                black_box(sum(&used[..LINE_WORDS]));
            }
            Ok(since(start) / at.len() as f64)
        };
        let cold = pass()?;
        let mut took = Vec::new();
        if again {
            took = (0..PASSES).map(|_| pass()).collect::<Result<_, _>>()?;
        }
        opened.map_or(Ok(()), |opened| opened.is_sound())?;
        Ok(if again { median(&mut took) } else { cold })
    }

    fn steps(&mut self, steps: usize) -> Result<f64, BenchError> {
        let opened = self.open_with(SMALL, Class::Small)?;
        let before = opened.pool.registrations();
        // Each change is made twice, so that home is as it was.
        let seed = self.turn;
        for _ in 0..2 {
            let mut random = Random(seed);
            for step in 0..steps / 2 {
                let at = random.below(self.bytes / LINE) * LINE;
                Changes::flip(&opened.window, at)?;
                if step % 16 == 0 {
                    opened.window.release(at / PAGE * PAGE..at / PAGE * PAGE + PAGE, patience())?;
                }
            }
        }
        opened.window.release(0..self.bytes, patience())?;
        opened.is_sound()?;
        BenchError::unless_equal("registrations at first", 1, before)?;
        Ok((opened.pool.registrations() - before) as f64)
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

    /// Reads from byte `at` of home's on, into bytes `into` of this side's memory.
    fn read(&self, at: usize, into: Range<usize>) -> Result<(), BenchError> {
        let link = self.way.link();
        let number = link.read(&self.remote, self.layout.data() + at, &self.registered, into)?;
        self.wait(number)
    }

    fn wait(&self, number: Seq) -> Result<(), BenchError> {
        let mut looks = 0_u32;
        while !self.done.acquire().is_at_or_past(number) {
            self.way.link().progress();
            looks += 1;
            if looks.is_multiple_of(1 << 20) {
                self.way.done(number, patience())?;
            }
        }
        Ok(())
    }

    fn copy(&self, from: Range<usize>, to: Range<usize>) -> Result<(), BenchError> {
        let span = |range| Span::of(self.memory.block(), range);
        let (from, to) = span(from).zip(span(to)).ok_or(BenchError::OutOfStep)?;
        from.copy_to(to);
        Ok(())
    }

    /// So many of the numbers below `below`, at random, each once.
    fn some_of(&self, below: usize, count: usize) -> Vec<usize> {
        let (mut random, mut all) = (Random(self.turn), (0..below).collect::<Vec<_>>());
        let count = count.min(below);
        for at in 0..count {
            all.swap(at, at + random.below(below - at));
        }
        all.truncate(count);
        all
    }
}

/// Bytes that a release sends, with the version of each page.
fn on_the_way(bytes: u64, pages: u64) -> u64 {
    bytes + 8 * pages
}

fn sum<'w>(words: impl IntoIterator<Item = &'w AtomicU64>) -> u64 {
    words.into_iter().fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
}

fn since(start: Nanos) -> f64 {
    Os.now().since(start).0 as f64
}

fn patience() -> Bound {
    Bound::within(PATIENCE)
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (word_of(self.0) >> 20) as usize % below.max(1)
    }
}
