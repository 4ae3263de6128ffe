//! What is tried of a device and a link works, or says where it stops.

use std::time::Duration;

use pontoon::{
    Bound,
    hal::conformance::part,
    ucx::Library,
    verify::{By, Outcome, Over, Sabotage, Stage, verify, verify_with},
};

fn links() -> Vec<Over> {
    match part::needed("ucx", Library::open()) {
        Some(_) => Over::ALL.to_vec(),
        None => vec![Over::Shm],
    }
}

#[test]
fn every_way_works_that_there_is() {
    let patient = Bound::within(Duration::from_secs(60));
    for over in links() {
        for by in By::ALL {
            let outcome = verify(over, by, patient).expect("devices and memory");
            match outcome {
                Outcome::Works(took) => assert!(took < Duration::from_secs(60), "{over} {by}"),
                Outcome::Absent(why) => {
                    assert_eq!((over, by), (Over::UcxTcp, By::Direct), "{why}");
                    assert!(why.contains("no mapped memory"), "{why}");
                }
                Outcome::Stopped { at, why } => panic!("{over} {by} stopped, {at}: {why}"),
            }
        }
    }
}

/// Each is found, at the stage where it stops, within the bound.
#[test]
fn what_stops_is_found_where_it_stops() {
    let short = Bound::within(Duration::from_millis(300));
    let stopped = |over, by, sabotage| match verify_with(over, by, short, sabotage).expect("tried")
    {
        Outcome::Stopped { at, why } => (at, why),
        other => panic!("{over} {by} {sabotage:?}: {other:?}"),
    };
    for (over, by, sabotage, at, part) in [
        (Over::Shm, By::Ring, Sabotage::Silent, Stage::Nothing, "to reach 1"),
        (Over::Shm, By::Direct, Sabotage::Silent, Stage::Nothing, "to reach 1"),
        (Over::Shm, By::Trigger, Sabotage::Silent, Stage::Nothing, "to reach 1"),
        (Over::Shm, By::Ring, Sabotage::Proxy, Stage::Posted, "waited"),
        (Over::Shm, By::Trigger, Sabotage::Proxy, Stage::Posted, "waited"),
        (Over::Shm, By::Ring, Sabotage::Closed, Stage::Nothing, "the Comm was dropped"),
        (Over::Shm, By::Trigger, Sabotage::Closed, Stage::Nothing, "the Comm was dropped"),
        (Over::Shm, By::Ring, Sabotage::Peer, Stage::SeenByProxy, "rank 1 is dead"),
        (Over::Shm, By::Trigger, Sabotage::Peer, Stage::SeenByProxy, "rank 1 is dead"),
        (Over::Shm, By::Direct, Sabotage::Peer, Stage::Nothing, "rank 1 is dead"),
        (Over::Shm, By::Direct, Sabotage::Bytes, Stage::Arrived, "1 of 512 words are not"),
        (Over::Shm, By::Ring, Sabotage::Bytes, Stage::Arrived, "1 of 512 words are not"),
    ] {
        let (found, why) = stopped(over, by, sabotage);
        assert_eq!(found, at, "{over} {by} {sabotage:?}: {why}");
        assert!(why.contains(part), "{over} {by} {sabotage:?}: {why}");
    }
}
