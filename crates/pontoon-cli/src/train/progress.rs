//! What a person sees while the job runs: a bar on a terminal, nothing in a pipe.

use std::{
    fmt,
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::Step;
use crate::voice;

/// A bar on standard error if that is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    /// How long it says nothing more of what is slow, once it did.
    pause: Duration,
    /// When it last did.
    slow_at: Mutex<Option<Instant>>,
}

/// How often a job says what is slow, whoever of it does.
const PAUSE: Duration = Duration::from_secs(1);

impl Progress {
    pub(super) fn new(steps: usize) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let template = "{bar:20} step {pos} of {len}{msg}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, ..Self::hidden() }
    }

    /// One that shows nothing.
    pub(super) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), pause: PAUSE, slow_at: Mutex::default() }
    }

    /// The same in one of so many ranks, which share a terminal.
    pub(super) fn beside(self, ranks: u32) -> Self {
        Self { pause: PAUSE * ranks, ..self }
    }

    /// A step is done.
    pub(super) fn step(&self, step: &Step, loss: f32) {
        self.bar.inc(1);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!(", epoch {}, loss {loss:.3}", step.epoch + 1));
        }
    }

    /// Says something on standard error, beside the bar.
    pub(super) fn warn(&self, text: &str) {
        self.bar.suspend(|| voice::say(text));
    }

    /// Says what is waited for, unless it did so just now: an error is to stay in sight.
    pub(super) fn slow(&self, what: &dyn fmt::Display) {
        if self.is_slow_due(Instant::now()) {
            self.warn(&format!("slow: {what}"));
        }
    }

    fn is_slow_due(&self, now: Instant) -> bool {
        let mut last = self.slow_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= self.pause);
        if is_due {
            *last = Some(now);
        }
        is_due
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_is_told_at_once_and_then_once_a_second_of_all_ranks() {
        let began = Instant::now();
        for (ranks, wanted) in [(1, vec![0, 1000, 2000, 3000]), (3, vec![0, 3000])] {
            let progress = Progress::hidden().beside(ranks);
            let is_told = |ms: &u64| progress.is_slow_due(began + Duration::from_millis(*ms));
            let told: Vec<u64> = (0..4000).step_by(250).filter(is_told).collect();
            assert_eq!(told, wanted);
        }
    }
}
