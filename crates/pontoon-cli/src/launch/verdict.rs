//! What a job comes to: which rank failed first, whether the rest go on, and the status.

use std::{collections::BTreeSet, time::Duration};

use super::{
    signals::{is_handed_on, name},
    wire::How,
};

/// A rank that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) rank: u32,
    pub(super) what: Failed,
    pub(super) after: Duration,
}

/// How a rank failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Ended(How),
    /// Its host is gone, and nothing is known.
    Lost,
}

impl Failed {
    /// The status that a shell would give.
    fn status(self) -> u8 {
        match self {
            Self::Ended(How::Status(status)) => u8::try_from(status).unwrap_or(u8::MAX),
            Self::Ended(How::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::Lost => 1,
        }
    }
}

/// What is to be done after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The others are ended.
    EndAll,
    /// The others are ended, unless they end by themselves within [`Tolerance::last_words`].
    Expect,
    /// All that is left is stopped, and is ended unless one of it goes on within [`Tolerance::still`].
    Hurry,
    /// The others go on, whatever was expected of them.
    GoOn,
    /// Nothing: it is as it was, or this is the consequence of an end that was ordered before.
    Ignore,
}

/// How many failures are borne.
///
/// Ranks go on after a failure as long as there is something left to do, and one of them does it. They
/// are to end, and have [`last_words`](Self::last_words) for that, once
///
/// - more ranks failed than are borne, or
/// - the lead ended.
///
/// Once some rank failed, or they are to end anyhow, and every one that is left is stopped, they have
/// [`still`](Self::still). Nobody sees that but who started it: the others take it for dead, or it them. One
/// that is continued in time goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tolerance {
    pub(super) keep_going: bool,
    /// How many ranks may fail with the job still a success.
    pub(super) ranks: u32,
    /// How long the others have to end by themselves, once they are to end.
    pub(super) last_words: Duration,
    /// How long what is stopped has to go on, once nothing else is left.
    pub(super) still: Duration,
    /// A rank without which there is nothing left to do, and whose failure is borne by nobody: it
    /// tells what came of the job.
    pub(super) lead: Option<u32>,
}

/// The state of a job's outcome.
#[derive(Debug)]
pub(super) struct Verdict {
    tolerance: Tolerance,
    running: u32,
    failures: u32,
    first: Option<Failure>,
    /// How the lead failed.
    of_lead: Option<Failed>,
    /// Whether the lead ended well.
    led: bool,
    ending: bool,
    expecting: bool,
    /// Of the running ranks those that are stopped.
    still: BTreeSet<u32>,
    /// Whether they are to end only because all of them are.
    is_for_still: bool,
    /// Whether those that are to end anyhow are all stopped.
    hurries: bool,
    /// The signals by which the user asked for the end of all ranks.
    asked: BTreeSet<i32>,
    /// The signal by which the user ended what did not end by itself.
    stopped: Option<i32>,
}

impl Verdict {
    pub(super) fn new(ranks: u32, tolerance: Tolerance) -> Self {
        Self {
            tolerance,
            running: ranks,
            failures: 0,
            first: None,
            of_lead: None,
            led: false,
            ending: false,
            expecting: false,
            still: BTreeSet::new(),
            is_for_still: false,
            hurries: false,
            asked: BTreeSet::new(),
            stopped: None,
        }
    }

    /// A rank ended; what is to be done, and the line to print, if it failed.
    pub(super) fn ended(&mut self, who: &str, failure: Failure) -> (Next, Option<String>) {
        self.running = self.running.saturating_sub(1);
        self.still.remove(&failure.rank);
        let is_lead = self.tolerance.lead == Some(failure.rank);
        let is_success = failure.what == Failed::Ended(How::Status(0));
        if self.ending {
            return (Next::Ignore, None);
        }
        self.led |= is_lead && is_success;
        if is_success && !is_lead {
            return (self.look_at_still(), None);
        }
        self.failures += u32::from(!is_success);
        let (patience, was_expecting) = (self.tolerance.last_words, self.expecting);
        let is_over = is_lead || self.failures > self.tolerance.ranks;
        let is_patient = !patience.is_zero();
        let next = match self.tolerance.keep_going {
            _ if was_expecting => {
                self.is_for_still &= !is_over;
                self.look_at_still()
            }
            _ if self.all_are_still() && is_patient => Next::Hurry,
            _ if is_over && is_patient => Next::Expect,
            true => Next::GoOn,
            false if is_over => Next::EndAll,
            false => Next::GoOn,
        };
        self.ending |= next == Next::EndAll;
        if !was_expecting {
            self.expecting = matches!(next, Next::Expect | Next::Hurry);
            self.is_for_still = !is_over && next == Next::Hurry;
            self.hurries = is_over && next == Next::Hurry;
        }
        if is_success {
            return (next, None);
        }
        if is_lead {
            self.of_lead = Some(failure.what);
        }
        let how = match failure.what {
            Failed::Ended(How::Status(status)) => format!("failed with status {status}"),
            Failed::Ended(How::Signal(signal)) => format!("was ended by {}", name(signal)),
            Failed::Lost => "was lost with its host".to_owned(),
        };
        if matches!(failure.what, Failed::Ended(How::Signal(signal)) if self.asked.contains(&signal))
        {
            // It did as all were told.
            self.first.get_or_insert(failure);
            return (next, None);
        }
        let after = failure.after.as_secs_f64();
        let says = format!("pontoon launch: rank {}{who} {how} after {after:.1} s", failure.rank);
        if was_expecting {
            if !self.is_the_cause_of_the_first(&failure) {
                // It is a consequence, and says so itself.
                return (next, None);
            }
            self.first = Some(failure);
            return (next, Some(format!("{says}, which the others ended for")));
        }
        self.first.get_or_insert(failure);
        let still = self.tolerance.still;
        let then = match (self.running, next) {
            (0, _) => "no other rank was left".to_owned(),
            (1, Next::GoOn) => "1 other goes on".to_owned(),
            (1, Next::Hurry) => format!("the other is stopped and has {still:?} to go on"),
            (others, Next::Hurry) => {
                format!("the {others} others are stopped and have {still:?} to go on")
            }
            (1, Next::Expect) => format!("the other has {patience:?} to end"),
            (others, Next::Expect) => format!("the {others} others have {patience:?} to end"),
            (others, Next::GoOn) => format!("{others} others go on"),
            (1, _) => "ending the other".to_owned(),
            (others, _) => format!("ending the {others} others"),
        };
        (next, Some(format!("{says}; {then}")))
    }

    /// Whether the first failure that was told of followed from this one: it ended by itself, and this rank was
    /// ended by a signal that is not handed on to ranks. News of both may come in either order.
    fn is_the_cause_of_the_first(&self, failure: &Failure) -> bool {
        let is_killed = |what| match what {
            Failed::Ended(How::Signal(signal)) => !is_handed_on(signal),
            _ => false,
        };
        let ended_itself = |what| matches!(what, Failed::Ended(How::Status(_)));
        let first = self.first.as_ref();
        is_killed(failure.what) && first.is_some_and(|first| ended_itself(first.what))
    }

    /// A running rank was stopped (`still`), or goes on; what is to be done.
    pub(super) fn stands(&mut self, rank: u32, still: bool) -> Next {
        if still {
            self.still.insert(rank);
        } else {
            self.still.remove(&rank);
        }
        self.look_at_still()
    }

    fn look_at_still(&mut self) -> Next {
        if self.ending {
            return Next::Ignore;
        }
        if self.expecting && !self.is_for_still {
            let hurried = self.hurries;
            self.hurries = self.all_are_still();
            return match (hurried, self.hurries) {
                (false, true) => Next::Hurry,
                (true, false) if self.running > 0 => Next::Expect,
                _ => Next::Ignore,
            };
        }
        let was_expecting = self.expecting;
        self.expecting = self.all_are_still()
            && self.tolerance.keep_going
            && !self.tolerance.last_words.is_zero();
        self.is_for_still = self.expecting;
        match (was_expecting, self.expecting) {
            (false, true) => Next::Hurry,
            (true, false) => Next::GoOn,
            _ => Next::Ignore,
        }
    }

    /// Whether some rank failed or the lead is done, and those that are left are stopped.
    fn all_are_still(&self) -> bool {
        let are_still = u32::try_from(self.still.len()).is_ok_and(|still| still == self.running);
        (self.failures > 0 || self.led) && self.running > 0 && are_still
    }

    /// What ends from here on is ended by the launcher.
    pub(super) fn end(&mut self) {
        if self.is_for_still {
            // Those that it ends were stopped for good, which is no better than to fail.
            self.failures += self.running;
        }
        self.ending = true;
    }

    /// All ranks were handed `signal`, which asks for their end: to end by it is nobody's fault. Whether it is
    /// the first time.
    pub(super) fn asked(&mut self, signal: i32) -> bool {
        self.asked.insert(signal)
    }

    /// What ends from here on is ended because the user insists.
    pub(super) fn stop(&mut self, signal: i32) {
        self.ending = true;
        self.stopped = Some(signal);
    }

    /// How many ranks have not ended.
    pub(super) fn running(&self) -> u32 {
        self.running
    }

    /// The status of the job.
    pub(super) fn status(&self) -> u8 {
        let is_missed = self.tolerance.lead.is_some() && !self.led;
        match (&self.first, self.of_lead) {
            (Some(first), _) if self.failures > self.tolerance.ranks => first.what.status(),
            (_, Some(of_lead)) => of_lead.status(),
            (Some(first), None) if is_missed && self.stopped.is_none() => first.what.status(),
            _ => self.stopped.map_or(0, |signal| Failed::Ended(How::Signal(signal)).status()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(rank: u32, how: How) -> Failure {
        Failure { rank, what: Failed::Ended(how), after: Duration::from_millis(1240) }
    }

    const STRICT: Tolerance = Tolerance {
        keep_going: false,
        ranks: 0,
        last_words: Duration::ZERO,
        still: SOON,
        lead: None,
    };
    const SOON: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_failure_counts_and_what_follows_is_its_consequence() {
        let mut verdict = Verdict::new(4, STRICT);
        assert_eq!(verdict.ended("", failure(0, How::Status(0))), (Next::Ignore, None));
        let (next, line) = verdict.ended(" on host b", failure(2, How::Status(7)));
        assert_eq!(next, Next::EndAll);
        let wanted = "pontoon launch: rank 2 on host b failed with status 7 after 1.2 s; ending the 2 others";
        assert_eq!(line.as_deref(), Some(wanted));
        assert_eq!(verdict.ended("", failure(1, How::Signal(15))), (Next::Ignore, None));
        assert_eq!((verdict.status(), verdict.running()), (7, 1));
    }

    #[test]
    fn survivors_go_on_and_few_failures_are_tolerated() {
        for (tolerated, status) in [(0, 137), (1, 137), (2, 0)] {
            let tolerance = Tolerance { keep_going: true, ranks: tolerated, ..STRICT };
            let mut verdict = Verdict::new(3, tolerance);
            let (next, line) = verdict.ended("", failure(2, How::Signal(9)));
            assert_eq!(next, Next::GoOn);
            assert!(
                line.expect("a line").ends_with("was ended by SIGKILL after 1.2 s; 2 others go on")
            );
            let (_, line) = verdict.ended("", failure(1, How::Status(3)));
            assert!(line.expect("a line").ends_with("after 1.2 s; 1 other goes on"));
            verdict.ended("", failure(0, How::Status(0)));
            assert_eq!(verdict.status(), status, "{tolerated}");
        }
    }

    #[test]
    fn who_ends_by_what_all_were_handed_is_not_blamed() {
        let tolerance = Tolerance { last_words: Duration::from_secs(10), ..STRICT };
        let mut verdict = Verdict::new(3, tolerance);
        assert!(verdict.asked(15));
        assert!(!verdict.asked(15), "it is told of once");
        assert_eq!(verdict.ended("", failure(2, How::Signal(15))), (Next::Expect, None));
        assert_eq!(verdict.ended("", failure(1, How::Signal(15))), (Next::Ignore, None));
        assert_eq!(verdict.status(), 143);
        let (_, line) = Verdict::new(3, tolerance).ended("", failure(2, How::Signal(15)));
        assert!(line.is_some_and(|line| line.contains("was ended by SIGTERM")));
    }

    #[test]
    fn the_others_may_say_what_they_saw_once() {
        let tolerance = Tolerance { last_words: Duration::from_secs(10), ..STRICT };
        let mut verdict = Verdict::new(3, tolerance);
        let (next, line) = verdict.ended("", failure(2, How::Signal(9)));
        assert_eq!(next, Next::Expect);
        let wanted = "was ended by SIGKILL after 1.2 s; the 2 others have 10s to end";
        assert!(line.as_deref().is_some_and(|line| line.ends_with(wanted)), "{line:?}");
        assert_eq!(verdict.ended("", failure(1, How::Status(1))), (Next::Ignore, None));
        assert_eq!((verdict.status(), verdict.running()), (137, 1));
    }

    #[test]
    fn who_was_killed_is_the_cause_of_those_that_ended_for_it_whoever_is_told_of_first() {
        let tolerance = Tolerance { last_words: Duration::from_secs(10), ..STRICT };
        for (signal, status) in [(9, 137), (11, 139), (15, 1)] {
            let mut verdict = Verdict::new(3, tolerance);
            assert_eq!(verdict.ended("", failure(0, How::Status(1))).0, Next::Expect);
            let (next, line) = verdict.ended(" (pid 7)", failure(2, How::Signal(signal)));
            assert_eq!(next, Next::Ignore);
            // By SIGTERM the user may have ended it.
            let is_cause = signal != 15;
            let wanted = format!("was ended by {} after 1.2 s, which the others", name(signal));
            assert_eq!(line.is_some_and(|line| line.contains(&wanted)), is_cause);
            assert_eq!(verdict.ended("", failure(1, How::Status(1))), (Next::Ignore, None));
            assert_eq!(verdict.status(), status);
        }
    }

    #[test]
    fn what_is_to_end_and_is_all_stopped_is_not_waited_for_as_long() {
        let tolerance = Tolerance { last_words: Duration::from_secs(10), ..STRICT };
        let mut verdict = Verdict::new(3, tolerance);
        assert_eq!(verdict.stands(2, true), Next::Ignore);
        assert_eq!(verdict.ended("", failure(0, How::Status(1))).0, Next::Expect);
        assert_eq!(verdict.ended("", failure(1, How::Status(1))), (Next::Hurry, None));
        assert_eq!(verdict.stands(2, false), Next::Expect, "it may have a last word");
    }

    #[test]
    fn without_its_lead_a_job_is_over_and_with_it_a_success() {
        let last_words = Duration::from_secs(10);
        let tolerance =
            Tolerance { keep_going: true, ranks: 2, last_words, still: SOON, lead: Some(0) };
        let mut verdict = Verdict::new(3, tolerance);
        assert_eq!(verdict.ended("", failure(2, How::Signal(9))).0, Next::GoOn);
        assert_eq!(verdict.ended("", failure(0, How::Status(0))), (Next::Expect, None));
        // One that was stopped and is ended for it.
        verdict.end();
        assert_eq!(verdict.ended("", failure(1, How::Signal(15))), (Next::Ignore, None));
        assert_eq!(verdict.status(), 0);
        let mut verdict = Verdict::new(3, tolerance);
        assert_eq!(verdict.ended("", failure(0, How::Signal(9))).0, Next::Expect);
        assert_eq!(verdict.ended("", failure(1, How::Status(1))), (Next::Ignore, None));
        assert_eq!(verdict.ended("", failure(2, How::Status(1))), (Next::Ignore, None));
        assert_eq!(verdict.status(), 137);
    }

    #[test]
    fn what_the_lead_fails_with_is_never_borne() {
        let last_words = Duration::from_secs(10);
        let tolerance =
            Tolerance { keep_going: true, ranks: 2, last_words, still: SOON, lead: Some(0) };
        // It alone, and after a death that is borne.
        for dead in [None, Some(2)] {
            let mut verdict = Verdict::new(3, tolerance);
            if let Some(dead) = dead {
                assert_eq!(verdict.ended("", failure(dead, How::Signal(9))).0, Next::GoOn);
            }
            assert_eq!(verdict.ended("", failure(1, How::Status(0))), (Next::Ignore, None));
            assert_eq!(verdict.ended("", failure(0, How::Status(3))).0, Next::Expect);
            if dead.is_none() {
                assert_eq!(verdict.ended("", failure(2, How::Status(0))), (Next::Ignore, None));
            }
            assert_eq!(verdict.status(), 3, "{dead:?}");
        }
    }

    #[test]
    fn when_all_that_is_left_is_stopped_nobody_goes_on() {
        let last_words = Duration::from_secs(10);
        let tolerance =
            Tolerance { keep_going: true, ranks: 2, last_words, still: SOON, lead: Some(0) };
        // The lead is stopped: the others take it for dead, and end.
        let mut verdict = Verdict::new(3, tolerance);
        assert_eq!(verdict.stands(0, true), Next::Ignore);
        let (next, line) = verdict.ended("", failure(2, How::Status(1)));
        assert_eq!(next, Next::GoOn);
        assert!(line.is_some_and(|line| line.ends_with("2 others go on")));
        let (next, line) = verdict.ended("", failure(1, How::Status(1)));
        assert_eq!(next, Next::Hurry);
        let wanted = "the other is stopped and has 1s to go on";
        assert!(line.as_deref().is_some_and(|line| line.ends_with(wanted)), "{line:?}");
        // It is ended for it, and that is no success.
        verdict.end();
        assert_eq!(verdict.ended("", failure(0, How::Signal(9))), (Next::Ignore, None));
        assert_eq!(verdict.status(), 1);
    }

    #[test]
    fn stops_that_come_last_count_as_well_and_who_is_continued_goes_on() {
        let last_words = Duration::from_secs(10);
        let tolerance =
            Tolerance { keep_going: true, ranks: 2, last_words, still: SOON, lead: Some(0) };
        let mut verdict = Verdict::new(4, tolerance);
        assert_eq!(verdict.ended("", failure(3, How::Signal(9))).0, Next::GoOn);
        assert_eq!(verdict.stands(0, true), Next::Ignore);
        assert_eq!(verdict.stands(2, true), Next::Ignore);
        assert_eq!(verdict.ended("", failure(1, How::Status(0))), (Next::Hurry, None));
        assert_eq!(verdict.stands(0, false), Next::GoOn);
        assert_eq!(verdict.stands(0, true), Next::Hurry);
        assert_eq!(verdict.stands(0, false), Next::GoOn);
        // Its end is what the other one is waited for then, for longer if it is not stopped.
        assert_eq!(verdict.ended("", failure(0, How::Status(0))), (Next::Hurry, None));
        assert_eq!(verdict.stands(2, false), Next::Expect);
        assert_eq!(verdict.stands(2, true), Next::Hurry);
        verdict.end();
        assert_eq!(verdict.ended("", failure(2, How::Signal(9))), (Next::Ignore, None));
        assert_eq!(verdict.status(), 0);
    }

    #[test]
    fn stops_without_a_failure_or_without_last_words_are_nobodys_business() {
        for last_words in [Duration::ZERO, Duration::from_secs(10)] {
            let tolerance =
                Tolerance { keep_going: true, ranks: 1, last_words, still: SOON, lead: None };
            let mut verdict = Verdict::new(2, tolerance);
            assert_eq!([verdict.stands(0, true), verdict.stands(1, true)], [Next::Ignore; 2]);
            let next = verdict.ended("", failure(1, How::Signal(9))).0;
            assert_eq!(next == Next::GoOn, last_words.is_zero(), "{next:?}");
        }
    }

    #[test]
    fn a_success_and_a_lost_host_have_their_status() {
        let mut verdict = Verdict::new(1, STRICT);
        verdict.ended("", failure(0, How::Status(0)));
        assert_eq!(verdict.status(), 0);
        let mut verdict = Verdict::new(1, STRICT);
        verdict.ended("", Failure { rank: 0, what: Failed::Lost, after: Duration::ZERO });
        assert_eq!(verdict.status(), 1);
    }

    #[test]
    fn what_the_user_killed_is_no_success() {
        let mut verdict = Verdict::new(1, STRICT);
        verdict.stop(2);
        assert_eq!(verdict.ended("", failure(0, How::Signal(9))), (Next::Ignore, None));
        assert_eq!(verdict.status(), 130);
    }
}
