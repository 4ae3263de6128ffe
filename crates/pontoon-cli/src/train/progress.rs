//! What a person sees while the job runs: a bar on a terminal, nothing in a pipe.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::Step;
use crate::voice;

/// A bar on standard error if that is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
}

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
        Self { bar }
    }

    /// One that shows nothing.
    pub(super) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
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

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
