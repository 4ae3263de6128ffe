//! A dependency that is left out of a job is named by bisection, and a full sync makes up for it.

use std::{convert::Infallible, time::Duration};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{
    Buffer, EdgeName, Edges, Fence, FullSync, Patience, Session, StreamId, bisect,
};
use pontoon_signal::{Rank, Seq};

type Devices = [CpuDevice; 2];

fn devices() -> Devices {
    [0, 1].map(|rank| {
        let start = Seq::new(u64::MAX - 2);
        CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
    })
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

fn trust<'d>() -> Session<'d, CpuDevice> {
    Session::new(Edges::Trust).with_patience(patience())
}

/// The stages that wait for the one before.
const WAITING: [&str; 3] = ["copy", "normalise", "a host read"];

/// Loads on one device, copies and normalises on another, each in a queue of its own, and reads the
/// result. `left_out` does not wait for the stage before it, which is late. Whether the result is
/// right.
fn job<'d>(session: &mut Session<'d, CpuDevice>, on: &'d Devices, left_out: &str) -> bool {
    let names = ["load", "copy", "normalise"];
    let streams = [0, 1, 2]
        .map(|stage| session.stream(&on[stage.min(1)], Engine::Compute, names[stage]).unwrap());
    if let Some(stage) = WAITING.iter().position(|&waiting| waiting == left_out) {
        let sleep = Kernel::new(|_| std::thread::sleep(Duration::from_millis(300)));
        session.launch(streams[stage], "delay", &sleep, [], []).unwrap();
    }
    let [from, to] = [0, 1].map(|at| Buffer::<_, u32>::allocate(&on[at], 64).unwrap());
    let load = Kernel::new(|kernel| kernel.write::<u32>(0).fill(20));
    let normalise =
        Kernel::new(|kernel| kernel.write::<u32>(0).iter_mut().for_each(|x| *x = *x * 2 + 1));

    let loaded = session.launch(streams[0], "load", &load, [from.write(..)], []).unwrap();
    come_after(session, 1, left_out, &loaded, &streams);
    let copied = session.copy(streams[1], "copy", from.read(..), to.write(..)).unwrap();
    come_after(session, 2, left_out, &copied, &streams);
    let normalised = session.launch(streams[2], "normalise", &normalise, [to.write(..)], []);
    let normalised = normalised.unwrap();
    if session.edges() != Edges::Auto && left_out != "a host read" {
        let _ = session.wait(&normalised, patience());
    }
    let read = session.to_vec(&to);
    // What came too early may have failed with a hazard.
    let over = streams.map(|stream| session.drain(stream, patience()).is_ok());
    read.is_ok_and(|elements| elements == [41; 64]) && over == [true; 3]
}

fn come_after(
    session: &mut Session<'_, CpuDevice>,
    stage: usize,
    left_out: &str,
    earlier: &Fence,
    streams: &[StreamId; 3],
) {
    if session.edges() != Edges::Auto && left_out != WAITING[stage - 1] {
        session.stream_wait(streams[stage], earlier).unwrap();
    }
}

/// The edges of the job, in the order in which they were made.
fn observed(edges: Edges) -> Vec<String> {
    candidates(edges).iter().map(EdgeName::to_string).collect()
}

fn candidates(edges: Edges) -> Vec<EdgeName> {
    let devices = devices();
    let mut session = Session::new(edges).with_patience(patience());
    session.observe_edges();
    assert!(job(&mut session, &devices, ""));
    session.observed()
}

#[test]
fn the_edges_of_a_job_are_observed_by_name() {
    let between = [
        "load (device 0 queue load) -> copy (device 1 queue copy)",
        "copy (device 1 queue copy) -> normalise (device 1 queue normalise)",
    ];
    let to_host = "normalise (device 1 queue normalise) -> a host read (host)";
    assert_eq!(observed(Edges::Auto), [between[0], between[1], to_host]);
    // A wait of the host is no edge.
    assert_eq!(observed(Edges::Check), between);
    assert_eq!(observed(Edges::Trust), between);
}

#[test]
fn an_edge_is_observed_once_and_only_after_it_is_asked_for() {
    let devices = devices();
    let mut session = Session::auto().with_patience(patience());
    assert!(job(&mut session, &devices, ""));
    assert_eq!(session.observed(), []);
    session.observe_edges();
    assert!(job(&mut session, &devices, ""));
    assert!(job(&mut session, &devices, ""));
    assert_eq!(session.observed().len(), 3, "{:?}", session.observed());
}

#[test]
fn each_edge_that_is_left_out_is_named() {
    let candidates = candidates(Edges::Auto);
    for (left_out, missing) in WAITING.into_iter().zip(&candidates) {
        let found = bisect(&candidates, |added| {
            let devices = devices();
            let mut session = trust().with_added_edges(added.to_vec());
            Ok::<_, Infallible>(job(&mut session, &devices, left_out))
        });
        let found = found.unwrap();
        assert_eq!(found.edges(), std::slice::from_ref(missing), "{found}");
        assert_eq!(found.to_string(), format!("missing: {missing}; {} runs", found.runs));
    }
}

#[test]
fn a_full_sync_makes_up_for_each_edge_that_is_left_out() {
    for left_out in WAITING {
        let devices = devices();
        assert!(!job(&mut trust(), &devices, left_out), "{left_out} was in time");
        for full_sync in [FullSync::Queue, FullSync::Device] {
            let mut session = trust().with_full_sync(full_sync);
            assert!(job(&mut session, &devices, left_out), "{left_out} with {full_sync:?}");
        }
    }
}

#[test]
fn a_full_sync_waits_for_a_parked_batch_when_it_goes() {
    let devices = devices();
    let mut session = trust().with_full_sync(FullSync::Queue);
    let [first, second] =
        ["a", "b"].map(|label| session.stream(&devices[0], Engine::Compute, label).unwrap());
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(20)));
    let all = session.collective("all", 2);
    let fences = [first, second].map(|stream| {
        let mut batch = session.batch();
        batch.collective(all).launch("slow", &slow, [], []);
        session.submit(stream, batch.seal().unwrap()).unwrap()
    });
    for fence in fences {
        assert_eq!(fence.is_complete(), Ok(true));
    }
}

#[test]
fn a_failure_under_a_full_sync_is_told_by_the_fence() {
    let devices = devices();
    let mut session = trust().with_full_sync(FullSync::Queue);
    let stream = session.stream(&devices[0], Engine::Compute, "a").unwrap();
    let panics = Kernel::new(|_| panic!("on purpose"));
    let fence = session.launch(stream, "panics", &panics, [], []).unwrap();
    assert!(fence.is_complete().is_err(), "the submit did not wait");
    let failed = session.wait(&fence, patience()).unwrap_err();
    assert!(failed.to_string().contains("panics"), "{failed}");
}
