//! Which steps are measured, and which figures come of them.

use std::{io::Write, time::Instant};

use super::{
    client::BULK,
    step::{How, Step},
};
use crate::{
    bench::{BenchError, Rounds, print, print_ratio},
    figures::{Printer, Samples, Unit},
};
use pontoon::hal::paging::PAGE;

/// What there is to be measured besides the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// What is compared with home's own memory, which is mapped here.
    pub(crate) bare: bool,
    /// What changes home, and changes it back.
    pub(crate) writes: bool,
    /// The window of 1 TiB.
    pub(crate) memory: bool,
}

/// What is measured of a memory.
#[derive(Debug)]
pub(crate) struct Plan {
    name: &'static str,
    parts: Parts,
    /// Pages that are read in order.
    all: u32,
    /// Pages that are missed, and places that are read, at random.
    some: u32,
    /// Pages that are released at once.
    released: Vec<u32>,
    /// Pages that are acquired.
    acquired: u32,
}

/// Figures of a plan.
pub(crate) struct Found<'p> {
    plan: &'p Plan,
    steps: Vec<(Step, Samples)>,
    software: Vec<Samples>,
    break_even: Samples,
}

/// Steps of the program that shows what is registered.
const STEPS: u32 = 10_000;
/// How often each thread changes the shared page.
const SHARES: u32 = 100;
/// Resident pages of the large window, and how many are in a run: with a table of the kernel's for all of them, and for
/// each.
const RESIDENT: u32 = 15_360;
const RUNS: [(&str, u16); 2] = [("dense", 512), ("scattered", 1)];

impl Plan {
    /// For so many bytes of home: [`LEAST`](Self::LEAST), or more.
    pub(crate) fn new(name: &'static str, bytes: usize, parts: Parts) -> Self {
        let all = (bytes / PAGE) as u32;
        let most = |pages: u32| pages.min(all / 4);
        let mut released = vec![most(64), most(4096)];
        released.dedup();
        Self { name, parts, all, some: most(256), released, acquired: most(4096) }
    }

    /// Bytes of home that a plan needs at least: what a bulk read has.
    pub(crate) const LEAST: usize = BULK;

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    fn steps(&self) -> Vec<Step> {
        let Parts { bare, writes, memory } = self.parts;
        let mut steps = vec![Step::Miss { pages: self.some }];
        if bare {
            steps.push(Step::Bare { pages: self.some });
        }
        steps.push(Step::Prefetch { pages: self.all });
        steps.push(Step::PrefetchReadOnly { pages: self.all });
        for &pages in self.released.iter().filter(|_| writes) {
            steps.push(Step::Release { pages });
            if bare {
                steps.push(Step::Place { pages });
            }
        }
        if writes {
            steps.extend([Step::Sent { pages: self.some }, Step::Share { times: SHARES }]);
            steps.push(Step::Steps { steps: STEPS });
        }
        steps.push(Step::Acquire { pages: self.acquired });
        steps.extend(How::FETCH.map(Step::Bulk));
        steps.push(Step::Bulk(How::ReadOnly));
        steps.extend(How::FETCH.map(|how| Step::Cold { how, places: self.some }));
        steps.extend(How::ALL.map(|how| Step::Warm { how, places: self.some }));
        if memory {
            steps.extend(RUNS.map(|(_, run)| Step::Memory { pages: RESIDENT, run }));
        }
        steps
    }

    /// Has `take` do each step once a round, beginning with another in each.
    pub(crate) fn measure(
        &self,
        rounds: Rounds,
        mut take: impl FnMut(Step) -> Result<f64, BenchError>,
    ) -> Result<Found<'_>, BenchError> {
        let steps: Vec<_> =
            self.steps().into_iter().map(|step| (step, Samples::default())).collect();
        let software = self.released.iter().map(|_| Samples::default()).collect();
        let mut found = Found { plan: self, steps, software, break_even: Samples::default() };
        // What home has is mapped once it was read.
        take(Step::Prefetch { pages: self.all })?;
        let start = Instant::now();
        for round in 0.. {
            found.round(round, &mut take)?;
            if rounds.are_over(round + 1, start) {
                break;
            }
        }
        Ok(found)
    }
}

impl Found<'_> {
    fn round(
        &mut self,
        round: usize,
        take: &mut impl FnMut(Step) -> Result<f64, BenchError>,
    ) -> Result<(), BenchError> {
        let count = self.steps.len();
        let mut values = vec![0.0; count];
        for turn in 0..count {
            let at = (round + turn) % count;
            let (step, samples) = &mut self.steps[at];
            values[at] = take(*step)?;
            samples.push(values[at])?;
        }
        let value = |of: Step| {
            let at = self.steps.iter().position(|(step, _)| *step == of)?;
            values.get(at).copied()
        };
        for (&pages, software) in self.plan.released.iter().zip(&mut self.software) {
            let released = value(Step::Release { pages }).zip(value(Step::Place { pages }));
            if let Some((released, copied)) = released {
                software.push(released - copied)?;
            }
        }
        let places = self.plan.some;
        let of = |how| value(Step::Cold { how, places }).zip(value(Step::Warm { how, places }));
        if let (Some((cold, warm)), Some((_, remote))) = (of(How::Smc), of(How::Remote)) {
            self.break_even.push(((cold - warm) / (remote - warm)).max(1.0))?;
        }
        Ok(())
    }

    fn of(&self, of: Step) -> Option<&Samples> {
        self.steps.iter().find(|(step, _)| *step == of).map(|(_, samples)| samples)
    }

    /// Prints all figures.
    pub(crate) fn print<W: Write>(&self, printer: &mut Printer<W>) -> Result<(), BenchError> {
        for (what, unit, row) in self.plan.rows() {
            let name = format!("{}/{what}", self.plan.name);
            match row {
                Row::Of(step) => {
                    if let Some(samples) = self.of(step) {
                        print(printer, name, unit, samples)?;
                    }
                }
                Row::Ratio(above, below) => {
                    if let Some((above, below)) = self.of(above).zip(self.of(below)) {
                        print_ratio(printer, name, above, below)?;
                    }
                }
                Row::Software(at) if self.software[at].rounds() > 0 => {
                    print(printer, name, unit, &self.software[at])?;
                }
                Row::Software(_) => {}
                Row::BreakEven => print(printer, name, unit, &self.break_even)?,
            }
        }
        Ok(())
    }
}

/// Where a figure comes from.
enum Row {
    Of(Step),
    Ratio(Step, Step),
    /// What a release takes beyond the copy, of those of a plan.
    Software(usize),
    BreakEven,
}

impl Plan {
    /// The figures in order, whether this plan has them or not.
    fn rows(&self) -> Vec<(String, Unit, Row)> {
        let (pages, places) = (self.some, self.some);
        let (miss, bare) = (Step::Miss { pages }, Step::Bare { pages });
        let mut rows: Vec<(String, Unit, Row)> = Vec::new();
        let mut add = |name: &str, unit, row| rows.push((name.to_owned(), unit, row));
        add("miss", Unit::Ns, Row::Of(miss));
        add("miss/bare", Unit::Ns, Row::Of(bare));
        add("miss/ratio/bare", Unit::Ratio, Row::Ratio(miss, bare));
        add("prefetch/page", Unit::Ns, Row::Of(Step::Prefetch { pages: self.all }));
        let read_only = Row::Of(Step::PrefetchReadOnly { pages: self.all });
        add("prefetch/read_only/page", Unit::Ns, read_only);
        for (at, &pages) in self.released.iter().enumerate() {
            let name = format!("release/{pages}");
            add(&name, Unit::Ns, Row::Of(Step::Release { pages }));
            add(&format!("{name}/copy"), Unit::Ns, Row::Of(Step::Place { pages }));
            add(&format!("{name}/software"), Unit::Ns, Row::Software(at));
        }
        let changed = "bytes/ratio/changed";
        add(&format!("release/{changed}"), Unit::Ratio, Row::Of(Step::Sent { pages }));
        let share = Step::Share { times: SHARES };
        add(&format!("release/shared/{changed}"), Unit::Ratio, Row::Of(share));
        add("acquire/clean", Unit::Ns, Row::Of(Step::Acquire { pages: self.acquired }));
        for how in How::FETCH {
            add(&format!("bulk/{}", how.name()), Unit::Ns, Row::Of(Step::Bulk(how)));
        }
        // Of rates, so that more is better.
        let bulk = Row::Ratio(Step::Bulk(How::Copy), Step::Bulk(How::Smc));
        add("bulk/ratio/copy", Unit::Ratio, bulk);
        let read_only = Row::Ratio(Step::Bulk(How::Copy), Step::Bulk(How::ReadOnly));
        add("bulk/read_only/ratio/copy", Unit::Ratio, read_only);
        for how in How::FETCH {
            add(&format!("cold/{}", how.name()), Unit::Ns, Row::Of(Step::Cold { how, places }));
        }
        let warm = |how| Step::Warm { how, places };
        for how in How::ALL {
            add(&format!("warm/{}", how.name()), Unit::Ns, Row::Of(warm(how)));
        }
        let memory = Row::Ratio(warm(How::Smc), warm(How::Memory));
        add("warm/ratio/memory", Unit::Ratio, memory);
        add("break_even", Unit::Touches, Row::BreakEven);
        add("registrations", Unit::Registrations, Row::Of(Step::Steps { steps: STEPS }));
        for (name, run) in RUNS {
            let of = Row::Of(Step::Memory { pages: RESIDENT, run });
            add(&format!("memory/{name}/ratio/resident"), Unit::Ratio, of);
        }
        rows
    }
}
