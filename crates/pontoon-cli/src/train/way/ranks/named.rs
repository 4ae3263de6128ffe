//! Whose signal a rank waited for: another rank's, or that of a device of its own. Both are producers, and
//! numbered from 0.

use std::process;

use pontoon::{
    FenceError, Rank, WaitFailure,
    hal::{Cause, Fault},
    signal::{SlotId, WaitError},
};

use crate::train::error::TrainError;

/// The same error, which says whose signals they are that `rank` waited for.
pub(super) fn named(rank: Rank, error: TrainError) -> TrainError {
    match wait_of(&error) {
        Some(wait) => {
            let wait = Box::new(Named { rank, wait: *wait });
            TrainError::Named { wait, error: Box::new(error) }
        }
        None => error,
    }
}

/// A wait that failed at a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    rank: Rank,
    wait: WaitError,
}

/// The wait that failed, if one did.
fn wait_of(error: &TrainError) -> Option<&WaitError> {
    match error {
        TrainError::Fault(Fault { cause: Cause::Wait(error), .. }) => Some(error),
        TrainError::Fence(error) | TrainError::Wait(WaitFailure::Fence(error)) => of_fence(error),
        TrainError::Synchronize { error, .. } => Some(error),
        _ => None,
    }
}

fn of_fence(error: &FenceError) -> Option<&WaitError> {
    match &error.fault {
        None => Some(&error.error),
        Some(Fault { cause: Cause::Wait(error), .. }) => Some(error),
        Some(_) => None,
    }
}

impl Named {
    /// `told`, which tells of this wait, with its producers by name.
    pub(crate) fn in_words(&self, told: &str) -> String {
        let Self { rank, wait } = self;
        let SlotId { producer, slot } = wait.at().slot;
        let is_own = is_own(wait);
        let whose = if is_own {
            format!("device {producer} of rank {rank}")
        } else {
            format!("rank {producer}")
        };
        let by_number = wait.at().slot.to_string();
        let told = told.replacen(&by_number, &format!("{whose} slot {slot}"), 1);
        let WaitError::PeerDead { rank: dead, .. } = *wait else { return told };
        let who = if is_own && dead == producer { whose } else { format!("rank {dead}") };
        told.replacen(&format!("producer {dead} is dead"), &format!("{who} is dead"), 1)
    }
}

/// Whether it is a signal that this process was to give.
pub(in crate::train::way) fn is_own(error: &WaitError) -> bool {
    error.at().producer.is_some_and(|producer| producer.pid == process::id())
}

#[cfg(test)]
mod tests {
    use pontoon::{
        Bound, Seq, SignalTable, TableShape,
        signal::{Ending, SharedPublisher},
    };

    use super::*;

    #[test]
    fn a_device_of_a_rank_is_not_told_of_as_the_rank_of_its_number() {
        let table = SignalTable::in_process(TableShape::new(3, 1));
        let told = |producer: u32, dead: u32, is_claimed: bool| {
            let id = SlotId::new(producer, 0);
            let publisher: Option<SharedPublisher> =
                is_claimed.then(|| table.shared_publisher(id).expect("free"));
            table
                .end_producer(Rank(producer), Ending::PeerDead { rank: Rank(dead) })
                .expect("a row");
            let waiter = table.waiter(id).expect("a slot");
            let wait = waiter.wait_ge_bounded(Seq::new(7), Bound::default()).map(drop);
            drop(publisher);
            let error = wait.expect_err("its producer ended");
            named(Rank(5), TrainError::Synchronize { device: Rank(0), error }).to_string()
        };
        let said = told(0, 0, true);
        assert!(
            said.contains("device 0 of rank 5 is dead; waited for device 0 of rank 5 slot 0"),
            "{said}"
        );
        let said = told(1, 2, true);
        assert!(said.contains("rank 2 is dead; waited for device 1 of rank 5 slot 0"), "{said}");
        let said = told(2, 2, false);
        assert!(said.contains("rank 2 is dead; waited for rank 2 slot 0 to reach 7"), "{said}");
    }
}
