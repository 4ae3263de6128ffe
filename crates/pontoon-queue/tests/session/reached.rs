//! Waits of the host for events and semaphores, and queries.

use super::*;

#[test]
fn an_event_is_waited_for_over_all_lanes_and_the_session_learns() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let completion = Completion::Launch { lanes: 2 };
    let spec = QueueSpec { completion, ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "wide").unwrap();
    let stream = session.stream_over(queue, "wide").unwrap();
    let buffers = [0, 1].map(|_| numbers(&device, 4));
    let event = session.event("e");
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(100)));
    session.launch(stream, "slow", &slow, [buffers[0].write(..)], []).unwrap();
    let mut batch = session.batch();
    batch.launch("add", &add(), [buffers[1].write(..)], [1]).record(event);
    session.submit(stream, batch.seal().unwrap()).unwrap();
    assert!(!session.is_recorded_over(event).unwrap());
    session.wait_event(event, patience()).unwrap();
    assert!(session.is_recorded_over(event).unwrap());
    for buffer in &buffers {
        session.to_vec(buffer).unwrap();
    }
}

#[test]
fn an_event_that_was_never_recorded_is_what_the_session_says() {
    for unrecorded in [Unrecorded::Refuse, Unrecorded::Pass] {
        let mut session = Session::<CpuDevice>::check().with_unrecorded(unrecorded);
        let event = session.event("never");
        let waited = session.wait_event(event, patience());
        let asked = session.is_recorded_over(event);
        if unrecorded == Unrecorded::Pass {
            assert_eq!((waited, asked), (Ok(()), Ok(true)));
        } else {
            let refused = waited.unwrap_err();
            assert!(refused.to_string().contains("event never was never recorded"), "{refused}");
            assert_eq!(asked, Err(refused));
        }
    }
    let foreign = Session::<CpuDevice>::check().event("foreign");
    let mut session = Session::<CpuDevice>::check();
    let refused = session.wait_event(foreign, patience()).unwrap_err();
    assert!(matches!(refused, WaitFailure::Refused(Refusal::Foreign(_))), "{refused}");
}

#[test]
fn a_semaphore_is_waited_for_and_asked_for_its_value() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    let buffer = numbers(&device, 4);
    assert_eq!(session.value(x), Ok(0));
    session.signal(x, 2).unwrap();
    assert_eq!(session.value(x), Ok(2));
    session.wait_semaphore(x, 1, patience()).unwrap();
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(100)));
    let mut batch = session.batch();
    batch.launch("slow", &slow, [buffer.write(..)], []).signal(x, 5).signal(x, 7);
    session.submit(first, batch.seal().unwrap()).unwrap();
    assert_eq!(session.value(x), Ok(2));
    assert_eq!(session.has_reached(x, 4), Ok(false));
    // By a batch that is parked.
    let relayed = relay(&mut session, Some((x, 6)), Some((y, 1)), "relayed");
    session.submit(second, relayed).unwrap();
    session.wait_semaphore(y, 1, patience()).unwrap();
    assert_eq!((session.value(x), session.value(y)), (Ok(7), Ok(1)));
    assert_eq!(session.has_reached(x, 7), Ok(true));
    session.to_vec(&buffer).unwrap();
}

#[test]
fn a_value_that_only_the_host_could_bring_is_a_deadlock() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    let deadlock = |failure: WaitFailure| match failure {
        WaitFailure::Deadlock(deadlock) => deadlock.to_string(),
        other => panic!("{other}"),
    };
    let said = deadlock(session.wait_semaphore(x, 3, patience()).unwrap_err());
    assert!(said.contains("semaphore x to reach 3, which nobody has submitted"), "{said}");
    let parked = relay(&mut session, Some((x, 1)), Some((y, 1)), "parked");
    session.submit(stream, parked).unwrap();
    let said = deadlock(session.wait_semaphore(y, 1, patience()).unwrap_err());
    assert!(said.contains("parked (stream a) waits for semaphore x to reach 1"), "{said}");
    assert_eq!(session.has_reached(y, 1), Ok(false));
    session.close(x).unwrap();
    let closed = session.wait_semaphore(x, 1, patience()).unwrap_err();
    assert!(matches!(closed, WaitFailure::Refused(Refusal::Closed { at: 0, .. })), "{closed}");
    let given_up = session.wait_semaphore(y, 1, patience()).unwrap_err();
    assert!(given_up.to_string().contains("semaphore x got to 0"), "{given_up}");
}

#[test]
fn a_wait_for_what_failed_says_why() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let (event, x) = (session.event("e"), session.semaphore("x"));
    let mut batch = session.batch();
    batch.launch("fails", &Kernel::new(|_| panic!("on purpose")), [], []);
    batch.record(event).signal(x, 1);
    session.submit(stream, batch.seal().unwrap()).unwrap();
    let failures = [
        session.wait_event(event, patience()).unwrap_err(),
        session.wait_semaphore(x, 1, patience()).unwrap_err(),
        session.is_recorded_over(event).unwrap_err(),
        session.has_reached(x, 1).unwrap_err(),
    ];
    for failure in failures {
        assert!(failure.to_string().contains("on purpose"), "{failure}");
    }
    assert_eq!(session.value(x), Ok(0));
}
