//! Waits for what a rank is to give, as long as it lives.

use std::{thread, time::Duration};

use pontoon_job::{Ending, Job, StoreError};
use pontoon_signal::{Bound, Host, Nanos, Os, Rank};

use super::WorldError;

/// How long one look at a rank takes.
const LOOK: Duration = Duration::from_secs(1);
/// How much longer than it takes to notice a death the news of it may take.
const NEWS: Nanos = Nanos(2_000_000_000);

/// What is left of a bound since it began.
pub(super) struct Left {
    bound: Bound,
    began: Nanos,
}

impl Left {
    pub(super) fn of(bound: Bound) -> Self {
        Self { bound, began: Os.now() }
    }

    pub(super) fn now(&self) -> Bound {
        self.bound.less(Os.now().since(self.began))
    }
}

/// Has `attempt` made again and again, each time for a moment, until it ends otherwise than by
/// `is_late`, `left` is used up, or `peer` is gone: then that is the error.
pub(super) fn while_it_lives<T, E>(
    job: &Job,
    peer: Rank,
    left: &Left,
    mut attempt: impl FnMut(Bound) -> Result<T, E>,
    is_late: impl Fn(&E) -> bool,
) -> Result<Result<T, E>, WorldError> {
    loop {
        let deadline = left.now().deadline();
        let look = deadline.map_or(LOOK, |left| left.min(LOOK));
        let outcome = attempt(Bound::within(look));
        match &outcome {
            Err(error) if is_late(error) && deadline.is_none_or(|left| left > LOOK) => {}
            _ => return Ok(outcome),
        }
        if let Some(ending) = job.membership().of(peer).and_then(|standing| standing.ending()) {
            return Err(WorldError::Gone { rank: peer, ending, error: None });
        }
    }
}

/// What `error` followed from: the first death, if there was any. That is waited for: what somebody
/// dead should have done fails before all know why, which is `lost_after` later at most.
pub(super) fn blame(job: &Job, lost_after: Duration, error: WorldError) -> WorldError {
    if !error.may_follow_from_a_death() {
        return error;
    }
    let (began, patience) = (Os.now(), Nanos::from(lost_after).saturating_add(NEWS));
    loop {
        match job.membership().first_gone() {
            Some((rank, ending @ Ending::Dead(_))) => {
                // Not what says no more than that.
                let error = (!is_end_of(&error, rank)).then(|| Box::new(error));
                return WorldError::Gone { rank, ending, error };
            }
            _ if Os.now().since(began) >= patience => return error,
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn is_end_of(error: &WorldError, gone: Rank) -> bool {
    matches!(error, WorldError::Store(StoreError::Ended { rank, .. }) if *rank == gone)
}
