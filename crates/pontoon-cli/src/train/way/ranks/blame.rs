//! Which death a failure followed from.

use std::time::Instant;

use pontoon::{Rank, world::Death};

use super::{OnPeerDeath, Ranks, named::named};
use crate::train::error::TrainError;

/// What a failure followed from: a death, if there was one. It is waited for, where there may be one: the
/// signals of the dead end before the news of it has come everywhere.
pub(in crate::train) fn blame(ranks: &Ranks<'_>, error: TrainError) -> TrainError {
    // What was asked for cannot be, whoever lives; and what failed here by itself is told at once.
    if error.is_bad_input() || !error.may_follow_from_a_death() {
        return error;
    }
    let world = ranks.world;
    let error = named(world.rank(), error);
    let goes_on = ranks.on_death == OnPeerDeath::Continue && ranks.began.get();
    // Where the others go on without whoever dies, only the end of rank 0 stops a rank.
    let is_cause = |death: &&Death| {
        let is_needed = !goes_on || death.rank == Rank(0);
        is_needed && death.how.is_some()
    };
    let until = Instant::now() + ranks.news;
    let mut known = 0;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let deaths = world.deaths_beyond(known, left);
        known = deaths.len();
        // Who only left early is to blame if nobody died.
        let early = deaths.first().filter(|_| left.is_zero() && !goes_on);
        // Who is left behind sees all others die.
        let own = deaths.iter().find(|death| death.rank == world.rank());
        let Some(&death) = own.or(deaths.iter().find(is_cause)).or(early) else {
            if left.is_zero() {
                return error;
            }
            continue;
        };
        let error = Box::new(error);
        let error = if death.rank == world.rank() {
            TrainError::Excluded { death, error }
        } else {
            TrainError::Death { death, error }
        };
        return if ranks.began.get() { error } else { TrainError::Early(Box::new(error)) };
    }
}
