//! Events, and handles that name nothing here.

use super::*;

#[test]
fn an_event_stands_for_what_was_recorded_last() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (numbers(&device, 4), numbers(&device, 4));
    let event = session.event("ready");
    let add = add();
    let waiting = |session: &mut Session<'_, CpuDevice>, buffer: &Buffer<Region, u32>| {
        let mut batch = session.batch();
        batch.wait_event(event).launch("after", &add, [buffer.write(..)], [1]);
        session.submit(second, batch.seal().unwrap()).map_err(|refused| refused.why)
    };
    let never = waiting(&mut session, &x).unwrap_err();
    assert!(matches!(never, Refusal::NeverRecorded { .. }), "{never}");
    let mut batch = session.batch();
    batch.launch("x", &add, [x.write(..)], [1]).record(event);
    batch.launch("y", &add, [y.write(..)], [1]);
    session.submit(first, batch.seal().unwrap()).unwrap();
    let later = waiting(&mut session, &y).unwrap_err();
    assert!(matches!(later, Refusal::Missing(_)), "y came after the record: {later}");
    waiting(&mut session, &x).unwrap();
    session.drain(second, patience()).unwrap();

    let mut lenient = Session::check().with_unrecorded(Unrecorded::Pass);
    let stream = compute(&mut lenient, &device, "c");
    let event = lenient.event("never");
    let mut batch = lenient.batch();
    batch.wait_event(event).launch("after", &add, [x.write(..)], [1]);
    lenient.submit(stream, batch.seal().unwrap()).unwrap();
    lenient.drain(stream, patience()).unwrap();
}

#[test]
fn a_handle_of_another_session_is_refused_by_name() {
    let device = device(0);
    let (mut one, mut other) = (Session::auto(), Session::<CpuDevice>::auto());
    let stream = compute(&mut one, &device, "a");
    let refused = other.launch(stream, "add", &add(), [], [1]).unwrap_err();
    assert!(refused.to_string().starts_with("stream 0 is of session "), "{refused}");
    let semaphore = other.semaphore("s");
    let batch = relay(&mut one, None, Some((semaphore, 1)), "signals");
    assert!(matches!(one.submit(stream, batch).unwrap_err().why, Refusal::Foreign(_)));
}

#[test]
fn what_could_run_nowhere_is_refused_and_bytes_beyond_are_named() {
    let device = device(0);
    for edges in [Edges::Auto, Edges::Check, Edges::Trust] {
        let mut session = Session::new(edges);
        let stream = compute(&mut session, &device, "a");
        let copies = session.stream(&device, Engine::Copy, "copies").unwrap();
        let buffer = numbers(&device, 4);
        let region = pontoon_hal::Memory::id(buffer.memory());
        let said =
            format!("add cannot be submitted: bytes 8..20 are not within {region} of 16 bytes");
        let beyond = session.launch(stream, "add", &add(), [buffer.write(2..5)], [1]).unwrap_err();
        assert_eq!(beyond.to_string(), said);
        let mut batch = session.batch();
        batch.launch("add", &add(), [buffer.write(2..5)], [1]);
        assert_eq!(batch.seal().unwrap_err().to_string(), said);
        let twice = [buffer.write(..2), buffer.read(1..)];
        let refused = [
            session.launch(copies, "add", &add(), [buffer.write(..)], [1]),
            session.launch(stream, "twice", &add(), twice, []),
            session.launch(stream, "many", &add(), (0..9).map(|_| buffer.read(..)), []),
            session.copy(stream, "uneven", buffer.read(..2), buffer.write(3..)),
        ];
        for refused in refused {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Refusal::Malformed(_)), "{refused}");
        }
        assert_eq!(session.counts().commands, 0);
    }
}

#[test]
fn a_copy_that_could_run_nowhere_leaves_no_wait_behind() {
    let devices = [device(0), device(1)];
    for edges in [Edges::Auto, Edges::Trust] {
        let mut session = Session::new(edges).with_patience(patience());
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], "stream"));
        let (from, to) = (numbers(&devices[0], 8), numbers(&devices[1], 8));
        session.launch(first, "slow", &double(), [from.write(..)], []).unwrap();
        let uneven = session.copy(second, "uneven", from.read(..), to.write(..4)).unwrap_err();
        assert!(matches!(uneven, Refusal::Malformed(_)), "{uneven}");
        let twice = [from.write(..2), from.read(1..)];
        let twice = session.launch(second, "twice", &add(), twice, [1]).unwrap_err();
        assert!(matches!(twice, Refusal::Malformed(_)), "{twice}");
        assert_eq!((session.counts().waits, session.counts().edges), (0, 0));
        session.drain(first, patience()).unwrap();
    }
}

#[test]
fn a_wait_for_the_event_that_the_same_batch_recorded_is_for_that_record() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (event, semaphore) = (session.event("e"), session.semaphore("s"));
    let nothing = Kernel::new(|_| {});
    let mut batch = session.batch();
    batch.launch("one", &nothing, [], []).record(event).wait_event(event);
    batch.launch("two", &nothing, [], []);
    session.submit(first, batch.seal().unwrap()).unwrap();
    // Recorded before, for what is parked: the batch does not wait for that.
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).record(event);
    session.submit(second, batch.seal().unwrap()).unwrap();
    let mut batch = session.batch();
    batch.record(event).wait_event(event).launch("three", &nothing, [], []);
    let fence = session.submit(first, batch.seal().unwrap()).unwrap();
    let _ = session.wait(&fence, patience()).unwrap();
    session.signal(semaphore, 1).unwrap();
    session.drain(second, patience()).unwrap();
}

#[test]
fn a_position_that_nobody_has_submitted_is_not_waited_for() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let nothing = Kernel::new(|_| {});
    let fence = session.launch(first, "one", &nothing, [], []).unwrap();
    let later = fence.later(1);
    for stream in [first, second] {
        let refused = session.stream_wait(stream, &later).unwrap_err();
        let said = "it waits for position 2 of queue a, which was given 1 so far: submit what is \
                    waited for first";
        assert_eq!(refused.to_string(), said);
    }
    let waited = session.wait(&later, patience()).unwrap_err();
    let WaitFailure::Deadlock(deadlock) = waited else { panic!("{waited}") };
    assert!(deadlock.to_string().contains("position 2 of queue a"), "{deadlock}");
    session.launch(first, "two", &nothing, [], []).unwrap();
    session.stream_wait(second, &later).unwrap();
    let _ = session.wait(&later, patience()).unwrap();
    assert_eq!(session.counts().edges, 1, "it is a position like any other");
}
