//! One axis: how many events it has had, and what each of them knew.

use std::collections::VecDeque;

use super::Domain;
use crate::Clock;

/// One axis.
///
/// Invariant T2: `history` holds, in order, the number of the first event that knew a clock, for
/// every event that the host does not know to be over; the last entry is `clock`.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) domain: Domain,
    pub(super) events: u64,
    /// What its next event knows, but for what the host knows since `host_version`.
    pub(super) clock: Clock,
    pub(super) host_version: u64,
    pub(super) history: VecDeque<(u64, Clock)>,
    /// Clocks to be filled again.
    pub(super) spare: Vec<Clock>,
}

impl Lane {
    pub(super) fn new(domain: Domain) -> Self {
        let (clock, history, spare) = (Clock::default(), VecDeque::new(), Vec::new());
        Self { domain, events: 0, clock, host_version: 0, history, spare }
    }

    /// What was known when event `count - 1` started; `None` if that is nothing that the host does
    /// not know.
    pub(super) fn clock_of(&self, count: u64) -> Option<&Clock> {
        let event = count.checked_sub(1)?;
        // Most often the one asked for is among the last.
        let entry = self.history.iter().rev().find(|(from, _)| *from <= event);
        entry.map(|(_, clock)| clock)
    }

    /// From its next event on the axis knows `clock`; the host knows `over` events to be over.
    pub(super) fn learn(&mut self, clock: &Clock, over: u64) {
        self.forget(over);
        self.clock.clone_from(clock);
        let mut kept = match self.history.back_mut() {
            Some((from, kept)) if *from == self.events => {
                kept.clone_from(clock);
                return;
            }
            _ => self.spare.pop().unwrap_or_default(),
        };
        kept.clone_from(clock);
        self.history.push_back((self.events, kept));
    }

    /// The host knows all its events to be over, and what they were to know is no longer true.
    pub(super) fn restart(&mut self) {
        self.spare.extend(self.history.drain(..).map(|(_, clock)| clock));
        self.clock = Clock::default();
    }

    /// The host knows the first `count` events to be over.
    pub(super) fn forget(&mut self, count: u64) {
        while self.history.get(1).is_some_and(|(from, _)| *from <= count) {
            if let Some((_, clock)) = self.history.pop_front() {
                self.spare.push(clock);
            }
        }
    }
}
