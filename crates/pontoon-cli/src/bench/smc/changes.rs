//! Changes of 64 bytes here and there, that can be taken back.

use pontoon::{hal::paging::PAGE, signal::shim::Ordering::Relaxed, smc::Window};

use crate::bench::BenchError;

/// Bytes of a change: a line, and each byte of it.
const LINE: usize = 64;

/// The changes of pages, one at each turn.
pub(super) struct Changes<'w> {
    window: &'w Window,
    pages: usize,
    turns: Vec<usize>,
}

impl<'w> Changes<'w> {
    /// Of the first `pages` pages.
    pub(super) fn of(window: &'w Window, pages: usize) -> Self {
        Self { window, pages, turns: Vec::new() }
    }

    /// Where the change of a page is at a turn, in bytes of the window.
    pub(super) fn place(page: usize, turn: usize) -> usize {
        page * PAGE + (page * 7 + turn * 13) % (PAGE / LINE) * LINE
    }

    /// Changes each page once.
    pub(super) fn make(&mut self, turn: usize) -> Result<(), BenchError> {
        self.turns.push(turn);
        self.flip_all(turn)
    }

    /// Changes all of it back.
    pub(super) fn undo(&mut self) -> Result<(), BenchError> {
        while let Some(turn) = self.turns.pop() {
            self.flip_all(turn)?;
        }
        Ok(())
    }

    fn flip_all(&self, turn: usize) -> Result<(), BenchError> {
        (0..self.pages).try_for_each(|page| Self::flip(self.window, Self::place(page, turn)))
    }

    /// Changes each byte of the line at `at`; a second time, back.
    pub(super) fn flip(window: &Window, at: usize) -> Result<(), BenchError> {
        for at in (at..at + LINE).step_by(8) {
            let word = window.word(at)?;
            word.store(!word.load(Relaxed), Relaxed);
        }
        Ok(())
    }
}
