//! What synchronisation cost, as it is printed.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use pontoon::{
    hal::Times,
    queue::{Cause, Iteration, Profile},
    signal::Nanos,
};
use serde::Serialize;

use crate::counted::counted;

/// Redundant waits that are shown to people.
const SHOWN: usize = 3;

/// What synchronisation cost, with names that stay as they are.
#[derive(Serialize)]
pub(super) struct ProfileSummary {
    iterations: u64,
    sync_points: u64,
    waits: BTreeMap<String, WaitSummary>,
    maintenance: Maintenance,
    fence_allocations: u64,
    /// All of them; what follows are the different ones.
    redundant_waits: u64,
    redundant: Vec<RedundantSummary>,
    redundant_untold: u64,
    sync_share: Option<f64>,
    stalled_us: f64,
    longest: Option<LongestSummary>,
    slowest: Option<SlowestSummary>,
    warning: Option<String>,
}

#[derive(Serialize)]
struct WaitSummary {
    count: u64,
    total_us: f64,
    mean_us: f64,
    p99_us: f64,
}

#[derive(Serialize)]
struct Maintenance {
    asked: u64,
    merged: u64,
    flushes: u64,
    invalidations: u64,
    elided: u64,
}

#[derive(Serialize)]
struct RedundantSummary {
    edge: String,
    count: u64,
}

#[derive(Serialize)]
struct LongestSummary {
    waiting: String,
    waited_for: String,
    total_us: f64,
}

#[derive(Serialize)]
struct SlowestSummary {
    step: u64,
    step_ms: f64,
    sync_share: Option<f64>,
}

impl ProfileSummary {
    pub(super) fn new(profile: &Profile, slowest: Option<&Iteration>) -> Self {
        let figures = &profile.figures;
        let waits = Cause::ALL.into_iter().map(|cause| (cause, figures.waits(cause)));
        let waits = waits.filter(|(_, times)| times.count() > 0);
        let redundant = profile
            .redundant
            .iter()
            .map(|edge| RedundantSummary { edge: edge.to_string(), count: edge.count });
        Self {
            iterations: profile.iterations,
            sync_points: figures.sync_points,
            waits: waits.map(|(cause, times)| (key(cause), WaitSummary::new(times))).collect(),
            maintenance: Maintenance {
                asked: figures.maintenance_asked,
                merged: figures.maintenance_merged,
                flushes: figures.flushes,
                invalidations: figures.invalidations,
                elided: figures.maintenance_elided,
            },
            fence_allocations: figures.fence_allocations,
            redundant_waits: figures.redundant,
            redundant: redundant.collect(),
            redundant_untold: profile.untold,
            sync_share: figures.sync_share(),
            stalled_us: us(figures.stalled),
            longest: figures.longest.as_ref().map(|pair| LongestSummary {
                waiting: pair.waiting.to_string(),
                waited_for: pair.waited_for.to_string(),
                total_us: us(pair.held),
            }),
            slowest: slowest.map(|slowest| SlowestSummary {
                step: slowest.number,
                step_ms: us(slowest.figures.time) / 1e3,
                sync_share: slowest.figures.sync_share(),
            }),
            warning: figures.warning(),
        }
    }

    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let steps = self.iterations.max(1) as f64;
        if let Some(SlowestSummary { step, step_ms, sync_share }) = &self.slowest {
            write!(out, "  slowest step    number {step}, {step_ms:.3} ms")?;
            match sync_share {
                Some(share) => writeln!(out, ", sync share {:.1} %", share * 100.0)?,
                None => writeln!(out)?,
            }
        }
        let mut title = "waits by cause";
        for (cause, WaitSummary { count, mean_us, p99_us, .. }) in &self.waits {
            let each = *count as f64 / steps;
            writeln!(
                out,
                "  {title:<15} {cause}: {each:.1} a step, mean {mean_us:.0} us, p99 {p99_us:.0} us"
            )?;
            title = "";
        }
        if let Some(LongestSummary { waiting, waited_for, total_us }) = &self.longest {
            let ms = total_us / 1e3;
            writeln!(out, "  longest         {waiting} for {waited_for}, {ms:.1} ms in all")?;
        }
        let each = |count: u64| count as f64 / steps;
        let Maintenance { flushes, invalidations, merged, elided, .. } = self.maintenance;
        writeln!(
            out,
            "  caches          {:.1} flushes and {:.1} invalidations a step, {:.1} merged, {:.1} \
             elided",
            each(flushes),
            each(invalidations),
            each(merged),
            each(elided)
        )?;
        writeln!(out, "  fences made     {:.1} a step", each(self.fence_allocations))?;
        for RedundantSummary { edge, .. } in self.redundant.iter().take(SHOWN) {
            writeln!(out, "  redundant       {edge}")?;
        }
        match self.redundant.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(out, "                  and {}", counted(more as u64, "other")),
        }
    }
}

impl WaitSummary {
    fn new(times: &Times) -> Self {
        Self {
            count: times.count(),
            total_us: us(times.total()),
            mean_us: us(times.mean()),
            p99_us: us(times.quantile(0.99)),
        }
    }
}

/// A cause as a name in JSON.
fn key(cause: Cause) -> String {
    cause.name().replace(' ', "_")
}

fn us(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}
