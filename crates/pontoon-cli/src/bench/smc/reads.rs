//! What a client reads by other ways than one: by a window, and without.

use std::{hint::black_box, ops::Range};

use pontoon::{
    hal::paging::PAGE,
    signal::{Host, Os, Seq, Span, Words},
    smc::Class,
};

use super::{
    client::{BULK, Client, LINE, LINE_WORDS, median, patience, since, sum},
    step::How,
};
use crate::bench::BenchError;

/// How often places are read that are here.
const PASSES: usize = 20;

impl Client {
    pub(super) fn bulk(&mut self, how: How) -> Result<f64, BenchError> {
        let at = self.turn as usize % (self.bytes / BULK).max(1) * BULK;
        let bytes = BULK.min(self.bytes);
        if matches!(how, How::Smc | How::ReadOnly) {
            let opened = match how {
                How::ReadOnly => self.open_to_read(bytes / PAGE, Class::Large)?,
                _ => self.open_for(bytes / PAGE, Class::Large)?,
            };
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
            How::Smc | How::ReadOnly | How::Memory => {}
        }
        black_box(sum(&self.memory[used.start / 8..used.end / 8]));
        Ok(since(start))
    }

    /// Reads lines at random: where none of it is here, or again.
    pub(super) fn at_random(
        &mut self,
        how: How,
        places: usize,
        again: bool,
    ) -> Result<f64, BenchError> {
        let pages = self.some_of(self.bytes / PAGE, places);
        let line = |page: usize| page * 11 % (PAGE / LINE) * LINE;
        let at: Vec<usize> = pages.iter().map(|&page| page * PAGE + line(page)).collect();
        let opened = match how {
            How::Smc => Some(self.open_for(places, Class::Small)?),
            How::ReadOnly => Some(self.open_to_read(places, Class::Small)?),
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
                    How::Smc | How::ReadOnly => window,
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
}
