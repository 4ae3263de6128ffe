//! Edges that are derived, and edges that are checked.

use super::*;

#[test]
fn derived_edges_keep_two_devices_in_the_order_of_submission() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let streams = [0, 1].map(|at| compute(&mut session, &devices[at], "stream"));
    let buffer = numbers(&devices[0], 16);
    let (add, double) = (add(), double());
    let mut expected = 0_u32;
    for step in 0..40 {
        let stream = streams[step % 2];
        session.launch(stream, "add", &add, [buffer.write(..)], [3]).unwrap();
        session.launch(streams[(step + 1) % 2], "double", &double, [buffer.write(..)], []).unwrap();
        expected = expected.wrapping_add(3).wrapping_mul(2);
    }
    assert_eq!(session.to_vec(&buffer).unwrap(), [expected; 16]);
    session.write(&buffer, 0, &[7; 16]).unwrap();
    session.launch(streams[1], "add", &add, [buffer.write(..)], [1]).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 16]);
    // Every other command follows one of its own stream.
    let counts = session.counts();
    assert_eq!((counts.commands, counts.edges), (81, 40), "{counts:?}");
}

#[test]
fn a_missing_edge_is_refused_with_both_ends_and_nothing_is_queued() {
    let devices = [device(0), device(1)];
    let mut session = Session::check().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let buffer = numbers(&devices[0], 16);
    let (add, double) = (add(), double());
    let added = session.launch(first, "add", &add, [buffer.write(..)], [3]).unwrap();
    let refused = session.launch(second, "double", &double, [buffer.write(4..6)], []).unwrap_err();
    let Refusal::Missing(edge) = &refused else { panic!("{refused}") };
    assert_eq!((edge.kind, edge.range.clone()), (HazardKind::WriteAfterWrite, 16..24));
    assert_eq!((edge.earlier.label, edge.later.label), ("add", "double"));
    let said = "missing dependency add (device 0 queue a) -> double (device 1 queue b): double \
                would write bytes 16..24 of region";
    assert!(refused.to_string().starts_with(said), "{refused}");
    let host = session.to_vec(&buffer).unwrap_err();
    assert!(matches!(host, HostError::Refused(Refusal::Missing(_))), "{host}");

    session.stream_wait(second, &added).unwrap();
    let doubled = session.launch(second, "double", &double, [buffer.write(..)], []).unwrap();
    let _ = session.wait(&doubled, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [6; 16]);
    assert_eq!(session.counts().commands, 2, "a refused command was queued");
}

#[test]
fn readers_are_waited_for_by_a_writer_and_not_by_each_other() {
    let devices = [device(0), device(1), device(2)];
    let mut session = Session::auto().with_patience(patience());
    let [a, b, c] = [0, 1, 2].map(|at| compute(&mut session, &devices[at], "stream"));
    let (from, to) = (numbers(&devices[0], 8), [0, 1, 2].map(|at| numbers(&devices[at], 8)));
    session.write(&from, 0, &[5; 8]).unwrap();
    for (stream, to) in [a, b].into_iter().zip(&to) {
        session.copy(stream, "copy", from.read(..), to.write(..)).unwrap();
    }
    assert_eq!(session.counts().edges, 0, "readers waited for each other");
    session.launch(c, "add", &add(), [from.write(..)], [1]).unwrap();
    let counts = session.counts();
    assert_eq!((counts.edges, counts.execution_only), (2, 2));
    assert_eq!(session.to_vec(&to[1]).unwrap(), [5; 8]);
    assert_eq!(session.to_vec(&from).unwrap(), [6; 8]);
}

#[test]
fn an_edge_that_another_implies_is_not_made() {
    let devices = [device(0), device(1), device(2)];
    let mut session = Session::auto().with_patience(patience());
    let streams = [0, 1, 2].map(|at| compute(&mut session, &devices[at], "stream"));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let add = add();
    session.launch(streams[0], "x", &add, [x.write(..)], [1]).unwrap();
    session.launch(streams[1], "xy", &add, [y.write(..), x.read(..)], [1]).unwrap();
    session.launch(streams[2], "both", &add, [x.write(..), y.read(..)], [1]).unwrap();
    assert_eq!(session.counts().edges, 2, "the second implies the first");
    assert_eq!(session.to_vec(&x).unwrap(), [2; 8]);
}

#[test]
fn what_is_refused_does_not_depend_on_what_is_over() {
    let device = device(0);
    for over in [false, true] {
        let mut session = Session::check().with_patience(patience());
        let streams = ["a", "b", "c"].map(|label| compute(&mut session, &device, label));
        let buffer = numbers(&device, 4);
        let event = session.event("passed on");
        let slow = double();
        let first = session.launch(streams[0], "first", &slow, [buffer.write(..)], []).unwrap();
        if over {
            first.wait(Bound::within(Duration::from_secs(30))).unwrap();
        }
        let mut batch = session.batch();
        let nothing = Kernel::new(|_| {});
        batch.wait(&first).record(event).launch("other", &nothing, [], []);
        session.submit(streams[1], batch.seal().unwrap()).unwrap();
        let mut batch = session.batch();
        batch.wait_event(event).launch("last", &nothing, [buffer.read(..)], []);
        session.submit(streams[2], batch.seal().unwrap()).unwrap();
        session.drain(streams[2], patience()).unwrap();
    }
}

#[test]
fn what_was_over_is_known_from_then_on() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let [first, second, third] = ["a", "b", "c"].map(|at| compute(&mut session, &device, at));
    let buffer = numbers(&device, 4);
    let (add, nothing) = (add(), Kernel::new(|_| {}));
    let added = session.launch(first, "add", &add, [buffer.write(..)], [1]).unwrap();
    added.wait(Bound::within(Duration::from_secs(30))).unwrap();
    for _ in 0..2 {
        session.launch(second, "reads", &nothing, [buffer.read(..)], []).unwrap();
    }
    let counts = session.counts();
    assert_eq!((counts.edges, counts.complete, counts.waits), (1, 1, 0), "{counts:?}");
    // Nothing follows in its batch that could know it: so it is given to the device.
    session.stream_wait(third, &added).unwrap();
    session.launch(third, "reads", &nothing, [buffer.read(..)], []).unwrap();
    let counts = session.counts();
    assert_eq!((counts.edges, counts.complete, counts.waits), (2, 1, 1), "{counts:?}");
    session.drain(third, patience()).unwrap();
}

#[test]
fn freed_memory_is_not_used_and_not_freed_under_a_command() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = session.allocate::<u32>(&device, 4).unwrap();
    let doubled = session.launch(stream, "double", &double(), [buffer.write(..)], []).unwrap();
    let early = session.free(&buffer).unwrap_err();
    assert!(matches!(early, HostError::Refused(Refusal::Missing(_))), "{early}");
    let _ = session.wait(&doubled, patience()).unwrap();
    session.free(&buffer).unwrap();
    let used = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(used, Refusal::Freed { label: "add", .. }), "{used}");
    assert!(session.to_vec(&buffer).is_err());
}

#[test]
fn trust_looks_at_nothing() {
    let devices = [device(0), device(1)];
    let mut session = Session::new(Edges::Trust);
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], "stream"));
    let buffer = numbers(&devices[0], 16);
    let nothing = Kernel::new(|_| {});
    session.launch(first, "a", &nothing, [buffer.read(..)], []).unwrap();
    session.launch(second, "b", &nothing, [buffer.read(..)], []).unwrap();
    session.drain(first, patience()).unwrap();
    session.drain(second, patience()).unwrap();
    assert_eq!(session.counts().edges, 0);
}
