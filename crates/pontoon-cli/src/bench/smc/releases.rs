//! What a client changes, releases, and changes back.

use pontoon::{
    hal::paging::PAGE,
    signal::{Host, Os, Span, Words, shim::Ordering::Relaxed},
    smc::{Class, on_this_thread},
};

use super::{
    changes::Changes,
    client::{CALLS, Client, LINE, LINE_WORDS, Random, median, patience, since},
};
use crate::bench::{BenchError, spawn};

/// Threads that share a page.
const THREADS: usize = 4;
/// Pages of the pool that steps of a program go through.
const SMALL: usize = 256;

impl Client {
    /// Nanoseconds a page, and bytes that were sent over those that changed.
    pub(super) fn release(&mut self, pages: usize) -> Result<(f64, f64), BenchError> {
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

    pub(super) fn place(&mut self, pages: usize) -> Result<f64, BenchError> {
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

    pub(super) fn share(&mut self, times: usize) -> Result<f64, BenchError> {
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

    pub(super) fn steps(&mut self, steps: usize) -> Result<f64, BenchError> {
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
}

/// Bytes that a release sends, with the version of each page.
fn on_the_way(bytes: u64, pages: u64) -> u64 {
    bytes + 8 * pages
}
