//! Random programs over devices that only take notes, judged by an order that is drawn from what the
//! devices were given: every node with the set of all that come before it.
//!
//! `PONTOON_PROGRAMS=20000 cargo test --release -p pontoon-queue --test model_session` tries that many
//! programs for each question; without it 500 are tried. One in ten has up to 200 acts, the others up
//! to 40.

mod bench;
mod closed;
mod derived;
mod given;
mod graph;
mod mock;
mod offline;
mod program;
mod spec;
mod stuck;
mod trusted;
#[path = "../model_check/write.rs"]
mod write;

use std::{cell::RefCell, env};

use program::{Kind, Program, program};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// What came up.
#[derive(Debug, Default)]
struct Counts {
    programs: usize,
    edges: u64,
    elided: u64,
    parked: u64,
    full: u64,
    host_waits: u64,
    deleted: u64,
    caught: u64,
    needed: u64,
    accepted: u64,
    refused: u64,
    hazards: u64,
    circles: u64,
}

fn judge(
    name: &str,
    kind: Kind,
    judge: impl Fn(&Program, &mut Counts) -> Result<(), String>,
) -> Counts {
    let long = env::var("PONTOON_PROGRAMS").ok().map(|text| text.parse().expect("a number"));
    let (cases, acts) = (long.unwrap_or(500), 200);
    let config =
        Config { cases, max_shrink_iters: 1_000, failure_persistence: None, ..Config::default() };
    let counts = RefCell::new(Counts::default());
    let result = TestRunner::new(config).run(&program(kind, acts), |program| {
        let mut counts = counts.borrow_mut();
        counts.programs += 1;
        judge(&program, &mut counts).map_err(TestCaseError::fail)
    });
    match result {
        Err(TestError::Fail(why, program)) => panic!("{}\nin {program:?}", why.message()),
        Err(TestError::Abort(why)) => panic!("{why}"),
        Ok(()) => {}
    }
    let counts = counts.into_inner();
    println!("{name}: {counts:?}");
    counts
}

#[test]
fn derived_edges_order_all_that_meets() {
    for (name, kind) in [("given", Kind::Given), ("tight", Kind::Tight)] {
        let counts = judge(name, kind, derived::are_enough);
        let seen = [counts.edges, counts.elided, counts.parked, counts.host_waits];
        assert!(seen.iter().all(|&count| count > 0), "something never came up: {counts:?}");
    }
}

#[test]
fn a_wait_that_is_left_when_others_are_complete_is_needed() {
    let counts = judge("elided", Kind::Elided, derived::are_enough);
    let seen = [counts.edges, counts.elided, counts.needed];
    assert!(seen.iter().all(|&count| count > 0), "something never came up: {counts:?}");
}

#[test]
fn trusted_edges_keep_the_order_that_they_say() {
    for (name, kind) in [("trusted", Kind::Given), ("trusted with elisions", Kind::Tight)] {
        let counts = judge(name, kind, trusted::keep_their_order);
        let seen = [counts.accepted, counts.edges, counts.elided];
        assert!(seen.iter().all(|&count| count > 0), "something never came up: {counts:?}");
    }
}

#[test]
fn each_derived_edge_is_needed_and_its_loss_is_told() {
    let counts = judge("plain", Kind::Plain, derived::are_needed);
    println!("{} edges taken away, {} told", counts.deleted, counts.caught);
    assert!(counts.deleted > 0 && counts.deleted == counts.caught, "{counts:?}");
}

#[test]
fn given_edges_are_refused_where_they_leave_something_unordered_and_nowhere_else() {
    let counts = judge("given", Kind::Given, given::are_judged);
    let seen = [counts.accepted, counts.refused, counts.hazards, counts.deleted];
    assert!(seen.iter().all(|&count| count > 0), "something never came up: {counts:?}");
    assert_eq!(counts.deleted, counts.caught, "{counts:?}");
}

#[test]
fn circles_are_refused_and_everything_else_goes_on() {
    let counts = judge("stuck", Kind::Stuck, stuck::is_told);
    let seen = [counts.accepted, counts.refused, counts.parked, counts.circles];
    assert!(seen.iter().all(|&count| count > 0), "something never came up: {counts:?}");
}

#[test]
fn what_waits_for_a_closed_semaphore_fails_and_nothing_else_stays() {
    let counts = judge("closed", Kind::Tight, closed::leaves_nothing);
    let seen = [counts.accepted, counts.refused, counts.parked, counts.full, counts.hazards];
    assert!(seen.iter().all(|&count| count > 0), "something never came up: {counts:?}");
}
