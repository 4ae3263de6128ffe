//! A vector clock: of each axis, how far somebody knows it to have come.
//!
//! An axis is anything whose events happen one after the other: a host thread, the starts of a
//! queue's commands, the ends of an in-order queue's commands. A clock that covers an event was
//! reached only after that event, so a wait for it may be left out, and an access that it made is
//! ordered. The two uses ask the same question.

/// What happens one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis(pub u32);

/// How far each axis is known to have come.
///
/// Invariant K1: `points` is sorted, without duplicates, and each of its events lies beyond the
/// first one of its axis that `prefix` does not have; so clocks with room for the same axes are
/// equal when they know the same.
///
/// Once made, a clock allocates only to grow: one that is kept and set by `clone_from` soon has room
/// for all that it is given.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Of each axis, how many events from its first are known; none beyond the end.
    prefix: Vec<u64>,
    /// Events known without those before them: commands of a queue that need not end in order.
    points: Vec<(Axis, u64)>,
}

impl Clock {
    /// A clock that covers nothing, with room for `axes` axes.
    #[must_use]
    pub fn new(axes: usize) -> Self {
        Self { prefix: vec![0; axes], points: Vec::new() }
    }

    /// Whether event number `event` of the axis is known to have happened.
    #[inline]
    #[must_use]
    pub fn covers(&self, axis: Axis, event: u64) -> bool {
        event < self.known(axis) || self.points.binary_search(&(axis, event)).is_ok()
    }

    /// Whether the first `count` events of the axis are all known to have happened.
    ///
    /// One comparison: by K1 no point adds to it.
    #[inline]
    #[must_use]
    pub fn covers_first(&self, axis: Axis, count: u64) -> bool {
        count <= self.known(axis)
    }

    /// How many events, from the first, are known without a gap.
    #[inline]
    #[must_use]
    pub fn known(&self, axis: Axis) -> u64 {
        self.prefix.get(axis.0 as usize).copied().unwrap_or(0)
    }

    /// Learns that the first `count` events of the axis have happened.
    #[inline]
    pub fn advance(&mut self, axis: Axis, count: u64) {
        let at = axis.0 as usize;
        if self.prefix.len() <= at {
            self.prefix.resize(at + 1, 0);
        }
        if self.prefix[at] < count {
            self.prefix[at] = count;
            if !self.points.is_empty() {
                self.absorb();
            }
        }
    }

    /// Learns of one event, and of none before it.
    pub fn mark(&mut self, axis: Axis, event: u64) {
        if event == self.known(axis) {
            self.advance(axis, event.saturating_add(1));
        } else if event > self.known(axis)
            && let Err(at) = self.points.binary_search(&(axis, event))
        {
            self.points.insert(at, (axis, event));
        }
    }

    /// Learns all that another knows.
    ///
    /// Without points this is one loop over the axes, without a branch in it.
    #[inline]
    pub fn join(&mut self, other: &Self) {
        if self.prefix.len() < other.prefix.len() {
            self.prefix.resize(other.prefix.len(), 0);
        }
        for (mine, theirs) in self.prefix.iter_mut().zip(&other.prefix) {
            *mine = (*mine).max(*theirs);
        }
        if !other.points.is_empty() {
            self.points.extend_from_slice(&other.points);
            self.points.sort_unstable();
            self.points.dedup();
        }
        if !self.points.is_empty() {
            self.absorb();
        }
    }

    /// Restores K1 after `prefix` or `points` grew.
    #[cold]
    fn absorb(&mut self) {
        let prefix = &mut self.prefix;
        self.points.retain(|&(axis, event)| {
            let Some(known) = prefix.get_mut(axis.0 as usize) else { return true };
            if event == *known {
                *known = known.saturating_add(1);
            }
            event >= *known
        });
    }
}

/// By hand, since a derived `clone_from` would not reuse the storage.
impl Clone for Clock {
    fn clone(&self) -> Self {
        Self { prefix: self.prefix.clone(), points: self.points.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        self.prefix.clone_from(&source.prefix);
        self.points.clone_from(&source.points);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Axis = Axis(0);
    const B: Axis = Axis(1);

    #[test]
    fn a_join_knows_what_either_knew() {
        let (mut left, mut right) = (Clock::new(2), Clock::new(2));
        left.advance(A, 3);
        right.advance(A, 1);
        right.advance(B, 2);
        left.join(&right);
        assert!(left.covers(A, 2) && left.covers(B, 1));
        assert!(!left.covers(A, 3) && !left.covers(B, 2));
    }

    #[test]
    fn a_point_covers_nothing_before_it() {
        let mut clock = Clock::new(1);
        clock.mark(A, 2);
        assert!(clock.covers(A, 2) && !clock.covers(A, 1) && !clock.covers(A, 0));
        assert!(clock.covers_first(A, 0) && !clock.covers_first(A, 1));
    }

    #[test]
    fn points_that_close_a_gap_become_a_prefix() {
        let (mut left, mut right) = (Clock::new(1), Clock::new(1));
        for event in [1, 3] {
            left.mark(A, event);
        }
        for event in [2, 0] {
            right.mark(A, event);
        }
        left.join(&right);
        let mut whole = Clock::new(1);
        whole.advance(A, 4);
        assert_eq!(left, whole);
    }

    #[test]
    fn a_join_with_a_longer_prefix_absorbs_own_points() {
        let (mut left, mut right) = (Clock::new(1), Clock::new(1));
        left.mark(A, 2);
        right.advance(A, 2);
        left.join(&right);
        right.advance(A, 3);
        assert_eq!(left, right);
    }

    #[test]
    fn events_are_counted_beyond_32_bits() {
        let far = 1 << 40;
        let (mut left, mut right) = (Clock::new(1), Clock::new(1));
        left.advance(A, far);
        right.mark(A, far);
        left.join(&right);
        assert!(left.covers_first(A, far + 1) && !left.covers(A, far + 1));
    }

    #[test]
    fn what_is_cloned_from_replaces_all() {
        let (mut left, mut right) = (Clock::new(3), Clock::new(1));
        left.advance(Axis(2), 9);
        left.mark(B, 4);
        right.mark(A, 7);
        left.clone_from(&right);
        assert_eq!(left, right);
    }

    #[test]
    fn an_axis_beyond_the_room_is_known_from_nothing() {
        let mut clock = Clock::new(0);
        assert!(!clock.covers(B, 0));
        clock.mark(B, 0);
        assert!(clock.covers(B, 0) && !clock.covers(A, 0));
    }
}
