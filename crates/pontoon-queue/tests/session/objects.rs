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
