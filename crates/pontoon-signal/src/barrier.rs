//! A barrier in which every member has a slot of its own.

use alloc::boxed::Box;

use crate::{
    Bound, ClaimError, Host, Os, Publisher, Rank, SignalTable, SlotId, Wait, WaitError, Waiter,
    group::poll_until,
};

/// One member of a barrier over a column of a signal table.
///
/// Each member announces on its own slot and waits for all others, so that a missing one is named
/// and no line has two writers. All members join before the first round, with counters at the same
/// start.
///
/// ```
/// use pontoon_signal::{Barrier, Bound, Rank, SignalTable, TableShape};
///
/// let table = SignalTable::in_process(TableShape::new(2, 1));
/// let mut members =
///     [0, 1].map(|rank| Barrier::join(&table, Rank(rank), 0..2, 0).expect("a free slot"));
/// std::thread::scope(|scope| {
///     for member in &mut members {
///         scope.spawn(|| member.wait(Bound::default()).expect("both arrive"));
///     }
/// });
/// ```
#[derive(Debug)]
pub struct Barrier<H: Host = Os> {
    own: Publisher<H>,
    all: Box<[Waiter<H>]>,
    arrived: bool,
}

impl<H: Host> Barrier<H> {
    /// Joins as `me` the barrier of `members` (ranks) that uses slot `slot` of each one's row.
    ///
    /// # Errors
    ///
    /// [`ClaimError`] if the slot is taken or the table has no such row.
    ///
    /// # Panics
    ///
    /// If there are more than [`GROUP_MAX`](crate::GROUP_MAX) members, or `me` is none of them.
    pub fn join(
        table: &SignalTable<H>,
        me: Rank,
        members: core::ops::Range<u32>,
        slot: u32,
    ) -> Result<Self, ClaimError> {
        // The claim last: a publisher that is dropped again would end the line for the others.
        let count = members.len();
        assert!(count <= crate::GROUP_MAX, "a barrier of {count} members is too wide");
        assert!(members.contains(&me.0), "rank {me} joins a barrier of others");
        let all: Result<Box<[_]>, _> =
            members.map(|member| table.waiter(SlotId::new(member, slot))).collect();
        let all = all?;
        let own = table.publisher(SlotId { producer: me, slot })?;
        Ok(Self { own, all, arrived: false })
    }

    /// Arrives, and waits until all have arrived. What any member wrote before arriving is then
    /// readable here.
    ///
    /// # Errors
    ///
    /// See [`WaitError`]. After a time-out the member stays arrived: waiting again goes on with
    /// the same round.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows. Never allocates.
    pub fn wait(&mut self, bound: Bound) -> Result<(), WaitError> {
        if !self.arrived {
            self.own.pub_release(1);
            self.arrived = true;
        }
        let (round, all) = (self.own.value(), &self.all);
        poll_until(all.len(), |index| Wait::new(&all[index], round), all.len(), bound)?;
        crate::SignalLine::acquire();
        self.arrived = false;
        Ok(())
    }
}
