//! Waiting on several slots at once: all of them, any, a quorum, or one after the other.

use crate::{
    Acquired, Bound, Host, Nanos, Observed, Os, Seq, WaitError, Waiter,
    bound::{Budget, Next},
    host::Sleeper,
    park::PARK_MAX,
    waiter::Poll,
};

/// One slot of a group, and where it has to get.
#[derive(Debug)]
pub struct Wait<'w, H: Host = Os> {
    /// Who waits, on which slot.
    pub waiter: &'w Waiter<H>,
    /// The value to reach.
    pub target: Seq,
}

impl<H: Host> Clone for Wait<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Wait<'_, H> {}

impl<'w, H: Host> Wait<'w, H> {
    /// Waits with `waiter` for `target`.
    pub const fn new(waiter: &'w Waiter<H>, target: Seq) -> Self {
        Self { waiter, target }
    }
}

/// The most slots one group may have: what one system call can sleep on.
pub const GROUP_MAX: usize = PARK_MAX;

/// Which members of a group had reached their targets when the wait ended.
#[must_use = "what was observed is readable only after acq_fence()"]
#[derive(Debug)]
pub struct ObservedGroup<'g, 'w, H: Host = Os> {
    waits: &'g [Wait<'w, H>],
    reached: Members,
}

impl<'g, 'w, H: Host> ObservedGroup<'g, 'w, H> {
    fn new(waits: &'g [Wait<'w, H>], reached: Members) -> Self {
        for index in reached.iter() {
            waits[index].waiter.count_reached();
        }
        Self { waits, reached }
    }

    /// Makes everything that the reached members' producers wrote before readable here.
    pub fn acq_fence(self) -> AcquiredGroup<'g, 'w, H> {
        crate::SignalLine::acquire();
        for index in self.reached.iter() {
            self.waits[index].waiter.trace_at_once();
        }
        AcquiredGroup { waits: self.waits, reached: self.reached }
    }
}

/// Proof for each reached member of a group.
#[derive(Debug)]
pub struct AcquiredGroup<'g, 'w, H: Host = Os> {
    waits: &'g [Wait<'w, H>],
    reached: Members,
}

impl<'w, H: Host> AcquiredGroup<'_, 'w, H> {
    /// The proof for member `index`, or `None` if it had not reached its target.
    pub fn member(&self, index: usize) -> Option<Acquired<'w>> {
        let wait = self.waits.get(index).filter(|_| self.reached.has(index))?;
        Some(wait.waiter.acquired(wait.target))
    }

    /// The indices of the reached members, ascending.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        self.reached.iter()
    }
}

/// Waits until every member has reached its target.
///
/// # Errors
///
/// The first member that ended short of its target, as soon as it is seen, even if others are
/// still to come; or a time-out naming the first member that is missing.
///
/// # Panics
///
/// If there are more than [`GROUP_MAX`] members.
///
/// # Blocks
///
/// As long as `bound` allows. Never allocates.
pub fn wait_all<'g, 'w, H: Host>(
    waits: &'g [Wait<'w, H>],
    bound: Bound,
) -> Result<ObservedGroup<'g, 'w, H>, WaitError> {
    wait_quorum(waits, waits.len(), bound)
}

/// Waits until at least `quorum` members have reached their targets.
///
/// # Errors
///
/// The first ended member, once so many have ended that the quorum cannot be met; or a time-out
/// naming the first member that is missing.
///
/// # Panics
///
/// If there are more than [`GROUP_MAX`] members, or fewer than `quorum`.
///
/// # Blocks
///
/// As long as `bound` allows. Never allocates.
pub fn wait_quorum<'g, 'w, H: Host>(
    waits: &'g [Wait<'w, H>],
    quorum: usize,
    bound: Bound,
) -> Result<ObservedGroup<'g, 'w, H>, WaitError> {
    assert!(quorum <= waits.len(), "a quorum of {quorum} needs as many members");
    let reached = poll_until(waits.len(), |index| waits[index], quorum, bound)?.reached;
    Ok(ObservedGroup::new(waits, reached))
}

/// Waits until one member has reached its target, and gives its index.
///
/// Fair: each call prefers the member after the one that was served last, so that a busy slot
/// cannot starve a quiet one. Keep `turn` from call to call.
///
/// # Errors
///
/// The first ended member, once all have ended; or a time-out naming the first member.
///
/// # Panics
///
/// If the group is empty or has more than [`GROUP_MAX`] members.
///
/// # Blocks
///
/// As long as `bound` allows. Never allocates.
pub fn wait_any<'w, H: Host>(
    waits: &[Wait<'w, H>],
    turn: &mut Turn,
    bound: Bound,
) -> Result<(usize, Observed<'w, H>), WaitError> {
    assert!(!waits.is_empty(), "waiting for any of nothing would never end");
    let index = turn.next(poll_until(waits.len(), |index| waits[index], 1, bound)?.reached);
    let waiter = waits[index].waiter;
    Ok((index, waiter.observed(waiter.value())))
}

/// Whose turn it is in a fair [`wait_any`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    next: usize,
}

impl Turn {
    /// The first of `reached` from the turn on, round and round.
    fn next(&mut self, reached: Members) -> usize {
        let from_turn = reached.0 >> (self.next % GROUP_MAX) << (self.next % GROUP_MAX);
        let chosen = if from_turn == 0 { reached.0 } else { from_turn }.trailing_zeros() as usize;
        self.next = chosen + 1;
        chosen
    }
}

/// Waits until some member is settled, that is, has reached its target or ended short of it. Tells
/// nothing of which: the caller looks at each with [`Waiter::try_wait`].
///
/// # Errors
///
/// Only a time-out, naming the first member.
///
/// # Panics
///
/// If the group is empty or has more than [`GROUP_MAX`] members.
///
/// # Blocks
///
/// As long as `bound` allows. Never allocates.
pub fn wait_settled<H: Host>(waits: &[Wait<'_, H>], bound: Bound) -> Result<(), WaitError> {
    assert!(!waits.is_empty(), "waiting for any of nothing would never end");
    settle(
        waits.len(),
        |index| waits[index],
        bound,
        |round| round.reached.len() + round.ended > 0,
    )?;
    Ok(())
}

/// Waits for each member in the order given, all within one bound: a low slot first, then a high
/// one. A later member that is reached or ended early changes nothing before its turn.
///
/// # Errors
///
/// That of the first member that fails.
///
/// # Panics
///
/// If there are more than [`GROUP_MAX`] members.
///
/// # Blocks
///
/// As long as `bound` allows. Never allocates.
pub fn wait_in_order<'g, 'w, H: Host>(
    waits: &'g [Wait<'w, H>],
    bound: Bound,
) -> Result<ObservedGroup<'g, 'w, H>, WaitError> {
    assert_size(waits.len());
    let mut reached = Members::default();
    if let Some(first) = waits.first() {
        let mut budget = Budget::new(&first.waiter.host, bound);
        for (index, wait) in waits.iter().enumerate() {
            wait.waiter.reach_within(wait.target, &mut budget)?;
            reached.add(index);
        }
    }
    Ok(ObservedGroup::new(waits, reached))
}

/// A set of member indices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Members(u128);

impl Members {
    fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        (0..GROUP_MAX).filter(move |&index| self.has(index))
    }
}

fn assert_size(members: usize) {
    assert!(members <= GROUP_MAX, "a group has at most {GROUP_MAX} members, not {members}");
}

/// Polls the members `member(0..count)` until `quorum` of them are reached.
pub(crate) fn poll_until<'w, H: Host>(
    count: usize,
    member: impl Fn(usize) -> Wait<'w, H>,
    quorum: usize,
    bound: Bound,
) -> Result<Round, WaitError> {
    let round = settle(count, &member, bound, |round| {
        round.reached.len() >= quorum || count - round.ended < quorum
    })?;
    match round.first_ended {
        Some((index, error)) if round.reached.len() < quorum => {
            Err(member(index).waiter.failed(error))
        }
        _ => Ok(round),
    }
}

/// Polls the members `member(0..count)` until a round of them is `enough`.
fn settle<'w, H: Host>(
    count: usize,
    member: impl Fn(usize) -> Wait<'w, H>,
    bound: Bound,
    enough: impl Fn(&Round) -> bool,
) -> Result<Round, WaitError> {
    assert_size(count);
    if count == 0 {
        return Ok(Round::default());
    }
    let host = &member(0).waiter.host;
    let mut budget = Budget::new(host, bound);
    let mut last_look = false;
    loop {
        let round = Round::look(count, &member);
        if enough(&round) {
            return Ok(round);
        }
        if last_look {
            let Wait { waiter, target } = member(round.first_open.unwrap_or(0));
            match waiter.timed_out(target, &budget) {
                Ok(error) => return Err(waiter.failed(error)),
                // It came in the last moment, which the next round sees.
                Err(_) => continue,
            }
        }
        match budget.missed(1) {
            Next::Poll => {}
            Next::Sleep(at_most) => sleep(host, &round, &member, at_most),
            Next::GiveUp => last_look = true,
        }
    }
}

/// One look at every member.
#[derive(Default)]
pub(crate) struct Round {
    reached: Members,
    open: Members,
    first_open: Option<usize>,
    ended: usize,
    first_ended: Option<(usize, WaitError)>,
}

impl Round {
    fn look<'w, H: Host>(count: usize, member: &impl Fn(usize) -> Wait<'w, H>) -> Self {
        let mut round = Self::default();
        for index in 0..count {
            let wait = member(index);
            match wait.waiter.poll(wait.target) {
                Poll::Reached(_) => round.reached.add(index),
                Poll::NotYet => {
                    round.open.add(index);
                    round.first_open.get_or_insert(index);
                }
                Poll::Ended(error) => {
                    round.ended += 1;
                    round.first_ended.get_or_insert((index, error));
                }
            }
        }
        round
    }
}

/// Sleeps until one of the members that were open changes.
#[cold]
fn sleep<'w, H: Host>(
    host: &H,
    round: &Round,
    member: &impl Fn(usize) -> Wait<'w, H>,
    at_most: Nanos,
) {
    let mut sleepers = [None; GROUP_MAX];
    let mut count = 0;
    for index in round.open.iter() {
        let Wait { waiter, target } = member(index);
        let park = waiter.line.park();
        let seen = park.announce();
        if !matches!(waiter.poll(target), Poll::NotYet) {
            return;
        }
        sleepers[count] = Some(Sleeper { park, seen });
        count += 1;
    }
    host.sleep_any(sleepers[..count].iter().copied().flatten(), at_most);
}
