//! What a run prints when it is done.

use std::{
    io::{self, Write},
    time::Duration,
};

use pontoon::{
    Counts, Edges,
    queue::{Iteration, Profile},
};
use serde::Serialize;

use super::{
    profile::ProfileSummary,
    trace::Written,
    way::{Waits, Way, ranks::Figures},
};
use crate::{counted::counted, figures::closed_pipe_is_no_fault, stdout::stdout};

/// What came of a run.
pub(super) struct Report<'r> {
    pub(super) way: Way,
    /// Of all ranks.
    pub(super) devices: u32,
    /// How many ranks there were, if the job was spread over any.
    pub(super) ranks: Option<u32>,
    /// Ranks that died, and the first step without each.
    pub(super) lost: &'r [(u32, usize)],
    pub(super) steps: usize,
    pub(super) steps_an_epoch: usize,
    pub(super) samples: usize,
    /// One a shard of the last epoch.
    pub(super) losses: &'r [f32],
    pub(super) accuracy: f64,
    pub(super) tested: usize,
    pub(super) digest: &'r str,
    /// What one thread gets, if it was asked.
    pub(super) reference: Option<&'r str>,
    /// Which dependency is missing, if that was looked for.
    pub(super) missing: Option<&'r str>,
    pub(super) wall: Duration,
    pub(super) waits: &'r Waits,
    pub(super) edges: Edges,
    /// What the session did, if there was one.
    pub(super) counts: Option<&'r Counts>,
    /// What synchronisation cost, if there was a session.
    pub(super) profile: Option<&'r Profile>,
    /// The step that took longest.
    pub(super) slowest: Option<&'r Iteration>,
    pub(super) trace: Option<&'r Written>,
    /// What the ranks did with memory of rank 0, if they map it.
    pub(super) pages: Option<Figures>,
}

#[derive(Serialize)]
struct Summary<'r> {
    sync: &'static str,
    devices: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<u32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    lost_ranks: &'r [(u32, usize)],
    epochs: usize,
    steps: usize,
    train_samples: usize,
    test_samples: usize,
    train_loss: f32,
    test_accuracy: f64,
    weights_digest: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_digest: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_dependency: Option<&'r str>,
    seconds: f64,
    step_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    edges: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edges_a_step: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commands: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redundant_edges_a_step: Option<f64>,
    sync_points_a_step: f64,
    wait_mean_us: f64,
    wait_p99_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_p99_us: Option<f64>,
    timeouts: u64,
    sync_share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceSummary<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    smc: Option<Figures>,
}

#[derive(Serialize)]
struct TraceSummary<'r> {
    file: &'r str,
    spans: usize,
    dropped: u64,
}

impl Report<'_> {
    pub(super) fn print(&self, json: bool) -> io::Result<()> {
        let summary = self.summary();
        let mut out = stdout();
        let printed = if json {
            serde_json::to_writer(&mut out, &summary)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
        } else {
            summary.print(&mut out)
        };
        closed_pipe_is_no_fault(printed.and_then(|()| out.flush()))
    }

    fn summary(&self) -> Summary<'_> {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let steps = self.steps as f64;
        let seconds = self.wall.as_secs_f64();
        let available = seconds * f64::from(self.devices);
        Summary {
            sync: match self.way {
                Way::Signals => "signals",
                Way::Lock => "lock",
                Way::Device => "device",
            },
            devices: self.devices,
            ranks: self.ranks,
            lost_ranks: self.lost,
            epochs: self.steps / self.steps_an_epoch,
            steps: self.steps,
            train_samples: self.samples,
            test_samples: self.tested,
            train_loss: super::model::mean_loss(self.losses, self.samples),
            test_accuracy: self.accuracy,
            weights_digest: self.digest,
            reference_digest: self.reference,
            missing_dependency: self.missing,
            seconds,
            step_ms: seconds * 1e3 / steps,
            edges: self.counts.map(|_| match self.edges {
                Edges::Auto => "auto",
                Edges::Check => "check",
                Edges::Trust => "trust",
            }),
            edges_a_step: self.counts.map(|counts| counts.edges as f64 / steps),
            commands: self.counts.map(|counts| counts.commands),
            redundant_edges_a_step: self.counts.map(|counts| counts.redundant as f64 / steps),
            sync_points_a_step: self.waits.count as f64 / steps,
            wait_mean_us: us(self.waits.mean),
            wait_p99_us: us(self.waits.p99),
            delivery_median_us: self.waits.delivery.map(|(median, _)| us(median)),
            delivery_p99_us: self.waits.delivery.map(|(_, p99)| us(p99)),
            timeouts: self.waits.timeouts,
            sync_share: self
                .profile
                .and_then(|profile| profile.figures.sync_share())
                .unwrap_or(self.waits.stalled.as_secs_f64() / available),
            profile: self.profile.map(|profile| ProfileSummary::new(profile, self.slowest)),
            trace: self.trace.map(|written| {
                let Written { file, spans, dropped } = written;
                TraceSummary { file, spans: *spans, dropped: *dropped }
            }),
            smc: self.pages,
        }
    }
}

impl Summary<'_> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let samples = counted(self.train_samples as u64, "sample");
        write!(out, "trained on {samples} across {}", counted(self.devices as u64, "device"))?;
        if let Some(ranks) = self.ranks {
            write!(out, " of {}", counted(ranks, "rank"))?;
        }
        writeln!(
            out,
            ", kept in order by {}",
            match self.sync {
                "lock" => "a lock",
                "device" => "stopping the devices",
                signals => signals,
            }
        )?;
        for (rank, step) in self.lost_ranks {
            writeln!(out, "  rank {rank} died       its part is left out from step {step} on")?;
        }
        writeln!(
            out,
            "  test accuracy   {:.4} of {}, after {} (train loss {:.4})",
            self.test_accuracy,
            counted(self.test_samples as u64, "sample"),
            counted(self.epochs as u64, "epoch"),
            self.train_loss
        )?;
        write!(out, "  weights digest  {}", self.weights_digest)?;
        match self.reference_digest {
            None => writeln!(out)?,
            Some(reference) if reference == self.weights_digest => {
                let without =
                    if self.lost_ranks.is_empty() { "" } else { " without the same parts" };
                writeln!(out, ", as on one thread{without}")?;
            }
            Some(reference) => {
                writeln!(out, ", but one thread gets {reference}: a dependency is missing")?;
            }
        }
        if let Some(missing) = self.missing_dependency {
            writeln!(out, "  {missing}")?;
        }
        writeln!(out, "  time            {:.2} s, {:.3} ms a step", self.seconds, self.step_ms)?;
        writeln!(out, "synchronisation")?;
        if let (Some(edges), Some(each)) = (self.edges, self.edges_a_step) {
            let how = match edges {
                "auto" => "derived",
                "check" => "given, and proved complete",
                _ => "given, and trusted",
            };
            let redundant = self.redundant_edges_a_step.unwrap_or_default();
            writeln!(out, "  dependencies    {each:.1} a step, {how}; {redundant:.1} redundant")?;
        }
        writeln!(out, "  sync points     {:.1} a step", self.sync_points_a_step)?;
        writeln!(
            out,
            "  wait            mean {:.0} us, p99 {:.0} us, {} timed out",
            self.wait_mean_us, self.wait_p99_us, self.timeouts
        )?;
        if let (Some(median), Some(p99)) = (self.delivery_median_us, self.delivery_p99_us) {
            writeln!(
                out,
                "  delivery        median {median:.1} us, p99 {p99:.0} us from publish to the \
                 waiting stream"
            )?;
        }
        writeln!(
            out,
            "  sync share      {:.1} % of the devices' time, in which they stood still for a wait",
            self.sync_share * 100.0
        )?;
        if let Some(profile) = &self.profile {
            profile.print(out)?;
        }
        if let Some(smc) = &self.smc {
            smc.print(out)?;
        }
        if let Some(TraceSummary { file, spans, dropped }) = &self.trace {
            writeln!(
                out,
                "  trace           {file}: {spans} commands and waits, {dropped} dropped"
            )?;
        }
        match self.profile.as_ref().and_then(ProfileSummary::warning) {
            Some(warning) => writeln!(out, "warning: {warning}"),
            None => Ok(()),
        }
    }
}
