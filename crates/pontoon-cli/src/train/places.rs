//! Where the gradients and losses of a shard are kept: in places that only its rank ever writes.
//!
//! Which shards a rank has depends on the batch, whose last one of an epoch may be smaller. A rank
//! that was taken for dead and runs again sends what it had to send all the same, steps later.
//!
//! - P1: the places of two ranks are apart, for any two steps: whoever is late spoils what nobody
//!   reads any more.
//! - P2: every rank has the same places, so that a sender needs no other rank's to know where to
//!   write.

use std::{ops::Range, sync::Arc};

use super::{
    job::Among,
    plan::{Part, Plan, Present},
};

/// Where the shards of each rank are. A handle: clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Devices a rank.
    each: usize,
    devices: usize,
    /// The first place of each rank, and how many places there are.
    starts: Arc<[usize]>,
}

impl Places {
    /// Each rank has as many as it needs in the step that gives it most.
    pub(super) fn new(among: Among, plan: &Plan) -> Self {
        let (each, devices) = (among.here as usize, among.all);
        let most = |rank: usize| {
            let of = |samples| shards_of(rank * each..(rank + 1) * each, devices, samples).len();
            plan.batch_sizes().map(of).max().unwrap_or(0)
        };
        let mut starts = vec![0];
        for rank in 0..devices / each {
            starts.push(starts[rank] + most(rank));
        }
        Self { each, devices, starts: starts.into() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Those that `rank` uses in any step.
    pub(super) fn all_of_rank(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    /// Those that `rank` uses in a step of `samples` samples.
    pub(super) fn of_rank(&self, rank: usize, samples: usize) -> Range<usize> {
        self.of(rank, rank * self.each..(rank + 1) * self.each, samples)
    }

    /// Those that `device` uses in a step of `samples` samples.
    pub(super) fn of_device(&self, device: usize, samples: usize) -> Range<usize> {
        self.of(device / self.each, device..device + 1, samples)
    }

    /// Shards of a step of `samples` samples and their places, in the order of shards, without those
    /// that are not `present`.
    pub(super) fn in_order(
        &self,
        samples: usize,
        present: &Present,
    ) -> impl Iterator<Item = (usize, usize)> {
        let ranks = 0..self.devices / self.each;
        let places = ranks.flat_map(move |rank| self.of_rank(rank, samples));
        places.enumerate().filter(|(shard, _)| present.has(*shard))
    }

    fn of(&self, rank: usize, devices: Range<usize>, samples: usize) -> Range<usize> {
        let first =
            shards_of(rank * self.each..(rank + 1) * self.each, self.devices, samples).start;
        let shards = shards_of(devices, self.devices, samples);
        let place = |shard: usize| self.starts[rank] + shard - first;
        place(shards.start)..place(shards.end)
    }
}

/// The shards of neighbouring devices.
fn shards_of(devices: Range<usize>, all: usize, samples: usize) -> Range<usize> {
    let of = |device| Part::of(device, all, samples).shards;
    of(devices.start).start..of(devices.end - 1).end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{model, reference::Settings};

    /// Ranks, devices each, samples a batch, samples in all.
    const JOBS: [(usize, u32, usize, usize); 7] = [
        (1, 4, 64, 1348),
        (2, 1, 1000, 1348),
        (3, 2, 64, 1348),
        (3, 1, 1000, 1348),
        (4, 3, 7, 90),
        (4, 16, 30, 90),
        (5, 2, 3, 4),
    ];

    fn places(ranks: usize, each: u32, plan: &Plan) -> Places {
        let among = Among { first: 0, here: each, all: ranks * each as usize };
        Places::new(among, plan)
    }

    #[test]
    fn no_two_ranks_ever_use_the_same_place() {
        for (ranks, each, batch, samples) in JOBS {
            let plan = Plan::new(&Settings { batch, epochs: 2, ..Settings::DEFAULT }, samples);
            let places = places(ranks, each, &plan);
            let mut users = vec![None; places.len()];
            for step in (0..plan.steps()).map(|index| plan.step(index)) {
                for rank in 0..ranks {
                    for place in places.of_rank(rank, step.samples().len()) {
                        let user = *users[place].get_or_insert(rank);
                        assert_eq!(user, rank, "{ranks} x {each}, {batch}: place {place}");
                    }
                }
            }
            assert!(users.iter().all(Option::is_some), "a place for nobody: {users:?}");
        }
    }

    #[test]
    fn all_shards_have_a_place_each_and_keep_their_order() {
        for (ranks, each, batch, samples) in JOBS {
            let plan = Plan::new(&Settings { batch, epochs: 1, ..Settings::DEFAULT }, samples);
            let places = places(ranks, each, &plan);
            for samples in plan.batch_sizes() {
                let all = Present::of(0, samples, ranks * each as usize, &[]);
                let found: Vec<_> = places.in_order(samples, &all).collect();
                let shards: Vec<_> = found.iter().map(|(shard, _)| *shard).collect();
                assert_eq!(shards, (0..model::shards(samples)).collect::<Vec<_>>());
                assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].1), "{found:?}");
                // What the devices write is what is read of each shard.
                for device in 0..ranks * each as usize {
                    let part = Part::of(device, ranks * each as usize, samples);
                    let of_device: Vec<_> = places.of_device(device, samples).collect();
                    let read: Vec<_> = found[part.shards].iter().map(|(_, place)| *place).collect();
                    assert_eq!(of_device, read, "{ranks} x {each}: device {device}");
                }
            }
        }
    }

    #[test]
    fn one_rank_needs_no_more_places_than_shards() {
        let plan = Plan::new(&Settings::DEFAULT, 1348);
        assert_eq!(places(1, 4, &plan).len(), model::shards(plan.largest_batch()));
    }
}
