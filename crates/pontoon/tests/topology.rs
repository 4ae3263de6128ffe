//! A topology of several ranks, each in a thread of its own.

mod common;

use std::time::Duration;

use common::{bound, ranks, room};

use pontoon::{
    Rank, World,
    hal::conformance::part,
    ucx::Library,
    world::{
        Options, Transport, WorldError,
        topology::{Effort, Kind, Topology, Unmeasured},
    },
};

fn of(world: &World, effort: Effort) -> Topology {
    let mut topology = Topology::discover(world, bound()).expect("discovered");
    assert!(topology.pairs().iter().all(|pair| pair.figures() == Err(&Unmeasured::NotAsked)));
    topology.measure(world, effort, bound()).expect("measured");
    topology
}

/// All ranks have the same; that.
fn common(all: Vec<Topology>) -> Topology {
    assert!(all.iter().all(|one| *one == all[0]), "{all:#?}");
    all[0].clone()
}

#[test]
fn all_ranks_have_the_whole_table_and_may_measure_again() {
    twice("again", "shm", room());
}

#[test]
fn the_same_over_ucx() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    twice("ucx", "ucx", room().with_transport(Transport::Ucx));
}

fn twice(name: &str, link: &str, options: Options) {
    let effort = Effort::default().with_blocks(6).with_time(Duration::from_secs(60));
    let all = ranks(
        name,
        3,
        |_| options,
        |world| {
            // The caller's own counters are left to it.
            let signal = |peer| world.way(peer).expect("a way").signal(0).expect("free");
            let signals: Vec<_> = world.others().map(signal).collect();
            let mut topology = of(&world, effort);
            let first = topology.clone();
            topology.measure(&world, effort, bound()).expect("measured again");
            drop(signals);
            world.leave(bound()).expect("left");
            (first, topology)
        },
    );
    let (first, again): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let (first, again) = (common(first), common(again));
    assert_ne!(first, again, "the figures of the first are not those of the second");
    for topology in [first, again] {
        let ranks: Vec<_> = topology.pairs().iter().map(|it| it.ranks().map(|it| it.0)).collect();
        assert_eq!(ranks, [[0, 1], [0, 2], [1, 2]]);
        for pair in topology.pairs() {
            let figures = pair.figures().expect("measured");
            assert!(figures.latency.0 > 0 && figures.bandwidth.0 > 1_000_000, "{figures:?}");
            assert_eq!((pair.kind(), pair.link(), figures.blocks), (Kind::SameProcess, link, 6));
        }
        assert!(topology.estimate(Rank(1), 1 << 20).flat().is_some());
    }
}

#[test]
fn a_rank_without_room_is_left_out_and_named() {
    let all = ranks(
        "room",
        3,
        |rank| if rank == 1 { room().with_heap(8192) } else { room() },
        |world| {
            let topology = of(&world, Effort::default());
            world.leave(bound()).expect("left");
            topology
        },
    );
    let topology = common(all);
    for pair in topology.pairs() {
        match (pair.ranks().contains(&Rank(1)), pair.figures()) {
            (false, Ok(_)) => {}
            (true, Err(Unmeasured::Lacks { rank: Rank(1), why })) => {
                assert!(why.contains("larger heap"), "{why}");
            }
            other => panic!("{pair:?}: {other:?}"),
        }
    }
    assert!(topology.explain(Rank(0), 8).contains("the pair 0-1 is not measured"), "{topology}");
}

#[test]
fn a_pair_whose_turn_comes_too_late_is_not_measured() {
    let all = ranks(
        "late",
        3,
        |_| room(),
        |world| {
            let topology = of(&world, Effort::default().with_time(Duration::ZERO));
            world.leave(bound()).expect("left");
            topology
        },
    );
    let topology = common(all);
    let [first, rest @ ..] = topology.pairs() else { panic!("{topology}") };
    assert!(first.figures().is_ok(), "{topology}");
    assert!(rest.iter().all(|it| it.figures() == Err(&Unmeasured::TimeUp)), "{topology}");
}

#[test]
fn a_rank_that_goes_meanwhile_is_named_by_all_others() {
    let all = ranks(
        "gone",
        3,
        |_| room(),
        |world| {
            let mut topology = Topology::discover(&world, bound()).expect("discovered");
            if world.rank() == Rank(2) {
                return None;
            }
            Some(topology.measure(&world, Effort::default(), bound()).expect_err("one is gone"))
        },
    );
    let errors: Vec<WorldError> = all.into_iter().flatten().collect();
    assert_eq!(errors.len(), 2);
    for error in errors {
        // Who hears of the other's leaving first may name that: it followed.
        assert!(error.to_string().starts_with("rank 2 is dead: "), "{error}");
    }
}

#[test]
fn one_rank_alone_has_an_empty_table() {
    let [topology] = &ranks("alone", 1, |_| room(), |world| of(&world, Effort::default()))[..]
    else {
        panic!()
    };
    assert_eq!((topology.pairs().len(), topology.places().len()), (0, 1));
    assert_eq!(topology.to_string(), "pair  kind  link  latency  bandwidth\n");
}
