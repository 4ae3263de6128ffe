use pontoon_hal::{
    Mode::{self, Read, Write},
    RegionId,
};

use super::{Domain, Epoch, HOST, Lane, Maintenance, Need, Touch, Tracker, cell::Cell, reduce};
use crate::{Axis, Clock};

const A: Axis = Axis(1);
const B: Axis = Axis(2);
const C: Axis = Axis(3);

fn clock(known: &[(Axis, u64)]) -> Clock {
    let mut clock = Clock::default();
    known.iter().for_each(|&(axis, count)| clock.advance(axis, count));
    clock
}

/// A tracker with the axes A, B and C, each on its own device.
fn three() -> Tracker {
    let mut tracker = Tracker::new();
    let axes = [0, 1, 2].map(|device| tracker.open(Domain::of_device(device)));
    assert_eq!(axes, [A, B, C]);
    tracker
}

fn touch(mode: Mode) -> Touch {
    Touch { region: RegionId(1), range: 0..8, mode }
}

/// An event of `axis` that comes after `waits` and touches a region.
fn event(tracker: &mut Tracker, axis: Axis, waits: &[(Axis, u64)], mode: Mode) -> Maintenance {
    let mut clock = Clock::default();
    tracker.start(axis, &mut clock);
    waits.iter().for_each(|&(other, count)| tracker.join(&mut clock, other, count));
    tracker.learn(axis, &clock);
    tracker.commit(axis, [(&touch(mode), 8)].into_iter())
}

fn needs(tracker: &mut Tracker, axis: Axis, mode: Mode) -> Vec<(Axis, u64)> {
    let (mut clock, mut needs, mut edges) = (Clock::default(), Vec::new(), Vec::new());
    tracker.start(axis, &mut clock);
    tracker.needs(&clock, &touch(mode), &mut needs);
    reduce(tracker, &needs, &mut edges);
    edges
}

#[test]
fn each_event_knows_what_its_lane_knew_then() {
    let mut lane = Lane::new(Domain::of_device(0));
    lane.learn(&clock(&[(B, 1)]), 0);
    lane.events = 3;
    lane.learn(&clock(&[(B, 5)]), 0);
    lane.events = 4;
    // Again before an event: it replaces what nobody has seen.
    lane.learn(&clock(&[(B, 6)]), 0);
    lane.learn(&clock(&[(B, 7)]), 0);
    lane.events = 5;
    let known = |count| lane.clock_of(count).map(|clock| clock.known(B));
    assert_eq!(known(0), None, "no event");
    assert_eq!([1, 2, 3].map(known), [Some(1); 3]);
    assert_eq!([4, 5].map(known), [Some(5), Some(7)]);
}

#[test]
fn a_lane_forgets_what_the_host_knows_and_nothing_after_it() {
    let build = || {
        let mut lane = Lane::new(Domain::of_device(0));
        for (events, known) in [(0, 1), (2, 3), (4, 5)] {
            lane.events = events;
            lane.learn(&clock(&[(B, known)]), 0);
        }
        lane.events = 6;
        lane
    };
    for over in 0..=6 {
        let mut lane = build();
        lane.forget(over);
        for count in over + 1..=6 {
            let known = lane.clock_of(count).map(|clock| clock.known(B));
            assert_eq!(known, Some((count - 1) / 2 * 2 + 1), "{count} after {over} are over");
        }
        // What is kept: what the first event that is not over knew, and later clocks.
        assert_eq!(lane.history.len() as u64, 3 - (over / 2).min(2), "{over} over");
    }
    let mut lane = build();
    lane.forget(u64::MAX);
    assert_eq!(lane.history.len(), 1, "the next event still knows it");
    assert_eq!(lane.spare.len(), 2);
}

#[test]
fn what_the_host_knows_everybody_knows_from_then_on() {
    let mut tracker = three();
    event(&mut tracker, A, &[], Write);
    event(&mut tracker, B, &[(A, 1)], Read);
    assert_eq!(needs(&mut tracker, C, Write), [(B, 1)]);
    tracker.host_learns(B, 1);
    assert_eq!((tracker.host_knows(A), tracker.host_knows(B)), (1, 1), "and what that one knew");
    assert_eq!(needs(&mut tracker, C, Write), []);
    let mut clock = Clock::default();
    assert!(tracker.start(C, &mut clock), "it is news");
    tracker.learn(C, &clock);
    assert!(!tracker.start(C, &mut clock), "and then is none");
    assert_eq!(clock.known(A), 1);
}

#[test]
fn the_host_learns_no_more_than_the_event_it_waited_for_knew() {
    let mut tracker = three();
    event(&mut tracker, A, &[], Write);
    tracker.pass(B);
    let mut clock = Clock::default();
    tracker.start(B, &mut clock);
    tracker.join(&mut clock, A, 1);
    tracker.learn(B, &clock);
    tracker.pass(B);
    tracker.host_learns(B, 1);
    assert_eq!(tracker.host_knows(A), 0);
    tracker.host_learns(B, 2);
    assert_eq!(tracker.host_knows(A), 1);
}

#[test]
fn a_wait_that_another_implies_is_left_out() {
    let mut tracker = three();
    event(&mut tracker, A, &[], Write);
    event(&mut tracker, A, &[], Read);
    event(&mut tracker, B, &[(A, 1)], Read);
    let need = |axis, at| Need {
        epoch: Epoch { axis, at },
        earlier: Write,
        later: Write,
        region: RegionId(1),
        range: 0..8,
    };
    let reduced = |needs: &[Need]| {
        let mut edges = Vec::new();
        reduce(&tracker, needs, &mut edges);
        edges
    };
    assert_eq!(reduced(&[need(A, 0), need(B, 0)]), [(B, 1)]);
    assert_eq!(reduced(&[need(B, 0), need(A, 0)]), [(B, 1)], "in any order");
    assert_eq!(reduced(&[need(A, 1), need(B, 0)]), [(A, 2), (B, 1)], "B came after the first only");
    assert_eq!(reduced(&[need(A, 0), need(A, 1)]), [(A, 2)], "the last of an axis");
    assert_eq!(reduced(&[]), []);
}

#[test]
fn a_write_waits_for_the_readers_and_a_read_for_the_writer() {
    let mut tracker = three();
    event(&mut tracker, A, &[], Write);
    assert_eq!(needs(&mut tracker, B, Read), [(A, 1)]);
    event(&mut tracker, B, &[(A, 1)], Read);
    event(&mut tracker, C, &[(A, 1)], Read);
    assert_eq!(needs(&mut tracker, A, Read), [], "its own write");
    assert_eq!(needs(&mut tracker, A, Write), [(B, 1), (C, 1)]);
}

#[test]
fn of_reads_those_are_kept_that_none_covers() {
    let mut cell = Cell::default();
    let epoch = |axis, at| Epoch { axis, at };
    let uncovered = |_: Epoch| false;
    cell.write(epoch(A, 0));
    cell.read(epoch(B, 0), uncovered);
    cell.read(epoch(B, 3), uncovered);
    cell.read(epoch(C, 0), uncovered);
    assert_eq!(cell.readers[..], [epoch(B, 3), epoch(C, 0)], "the last of an axis");
    cell.read(epoch(A, 1), |earlier| earlier == epoch(B, 3));
    assert_eq!(cell.readers[..], [epoch(C, 0), epoch(A, 1)]);
    cell.write(epoch(B, 4));
    assert!(cell.readers.is_empty() && cell.writer == Some(epoch(B, 4)));
}

/// What an access took: domains flushed, whether it invalidated, asked, elided.
fn did(maintenance: &Maintenance) -> (u32, bool, u32, u32) {
    let Maintenance { flush, invalidate, asked, elided } = *maintenance;
    (flush.count_ones(), invalidate, asked, elided)
}

#[test]
fn from_host_to_device_to_host_takes_a_flush_and_an_invalidation_each_way() {
    let mut tracker = three();
    assert_eq!(did(&event(&mut tracker, HOST, &[], Write)), (0, false, 0, 0));
    assert_eq!(did(&event(&mut tracker, A, &[], Write)), (1, true, 2, 0));
    tracker.host_learns(A, 1);
    assert_eq!(did(&event(&mut tracker, HOST, &[], Read)), (1, true, 2, 0));
    assert_eq!(did(&event(&mut tracker, HOST, &[], Read)), (0, false, 0, 2), "it has it already");
}

#[test]
fn a_flush_is_made_once_and_an_invalidation_once_a_domain() {
    let mut tracker = three();
    event(&mut tracker, A, &[], Write);
    assert_eq!(did(&event(&mut tracker, A, &[], Read)), (0, false, 0, 0), "in its own caches");
    assert_eq!(did(&event(&mut tracker, B, &[(A, 1)], Read)), (1, true, 2, 0));
    assert_eq!(did(&event(&mut tracker, C, &[(A, 1)], Read)), (0, true, 1, 1), "flushed before");
    assert_eq!(did(&event(&mut tracker, B, &[], Read)), (0, false, 0, 2));
    // A new write is in nobody else's caches.
    assert_eq!(did(&event(&mut tracker, A, &[(B, 2), (C, 1)], Write)), (0, false, 0, 0));
    assert_eq!(did(&event(&mut tracker, B, &[(A, 3)], Read)), (1, true, 2, 0));
}

#[test]
fn what_a_command_takes_is_merged_over_its_bytes() {
    let mut tracker = three();
    let part = |range, mode| Touch { region: RegionId(1), range, mode };
    let halves = [part(0..4, Write), part(4..8, Write)];
    for half in &halves {
        tracker.commit(A, [(half, 8)].into_iter());
    }
    let whole = part(0..8, Read);
    assert_eq!(did(&tracker.commit(B, [(&whole, 8)].into_iter())), (1, true, 4, 0));
}

#[test]
fn devices_beyond_the_last_domain_share_one() {
    assert_eq!(Domain::of_device(0), Domain(1));
    assert_eq!([61, 62, 63, 1_000].map(Domain::of_device), [62, 63, 63, 63].map(Domain));
    // Nobody knows whether two of them are one device.
    let mut tracker = Tracker::new();
    let [one, other] = [62, 63].map(|device| tracker.open(Domain::of_device(device)));
    event(&mut tracker, one, &[], Write);
    assert_eq!(did(&event(&mut tracker, other, &[(one, 1)], Read)), (1, true, 2, 0));
}

#[test]
fn regions_that_are_over_are_forgotten_and_others_are_not() {
    let mut tracker = three();
    let of = |region| Touch { region: RegionId(region), range: 0..8, mode: Write };
    // Never over, and never used again.
    tracker.commit(B, [(&of(u64::MAX), 8)].into_iter());
    for region in 0..100_000 {
        tracker.commit(A, [(&of(region), 8)].into_iter());
        tracker.host_learns(A, region + 1);
    }
    assert!(tracker.regions.len() < 1_000, "{} are kept", tracker.regions.len());
    let mut needs = Vec::new();
    tracker.needs(&Clock::default(), &of(u64::MAX), &mut needs);
    assert_eq!(needs.len(), 1, "what is under way is remembered");
}
