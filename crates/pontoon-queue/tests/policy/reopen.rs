//! Streams that failed, and what failed with them.

use super::*;

#[test]
fn a_reopened_stream_has_its_edges() {
    let devices = [device(0), device(1)];
    for (at, mut session) in sessions().into_iter().enumerate() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let buffer = numbers(&devices[0], 8);
        let failed = session.launch(first, "fill", &fill(1), [buffer.write(..)], [3]).unwrap();
        assert!(session.wait(&failed, patience()).is_err());
        session.reopen(first).unwrap();
        session.reopen(first).unwrap();
        let edges = session.counts().edges;
        // Over the half that was written before.
        session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
        assert_eq!(session.counts().edges, edges, "the dead queue's events are over");
        let slow = Kernel::new(|kernel| {
            std::thread::sleep(Duration::from_millis(5));
            kernel.write::<u32>(0).iter_mut().for_each(|x| *x *= 2);
        });
        let given = session.launch(first, "double", &slow, [buffer.write(..)], []);
        if at == 1 {
            assert!(matches!(given, Err(Refusal::Missing(_))), "{given:?}");
            continue;
        }
        given.unwrap();
        session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
        assert_eq!(session.counts().edges, edges + 2);
        assert_eq!(session.to_vec(&buffer).unwrap(), [9, 9, 9, 9, 3, 3, 3, 3]);
    }
}

#[test]
fn an_event_that_failed_has_learnt_nothing_from_waits_that_never_ended() {
    let devices = [device(0), device(1)];
    let mut session = Session::check().with_patience(Patience::within(Duration::from_millis(200)));
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let [gate, fails] = [(); 2].map(|()| Gate::shut());
    let running = session.launch(second, "held", &gate.held(), [y.write(..)], []).unwrap();
    let failed = session.launch(first, "fill", &fails.fill(1), [x.write(..)], [7]).unwrap();
    session.stream_wait(first, &running).unwrap();
    fails.open();
    assert!(session.wait(&failed, patience()).is_err());
    // Not while it runs: nothing would order what comes next against it.
    let reopened = session.reopen(first).unwrap_err();
    assert!(reopened.to_string().contains("in held"), "{reopened}");
    gate.open();
    let _ = session.wait(&running, patience()).unwrap();
    session.reopen(first).unwrap();
    session.launch(first, "add", &add(), [y.write(..)], [1]).unwrap();
    session.drain(first, patience()).unwrap();
}

#[test]
fn a_fence_tells_where_it_comes_from() {
    let device = device(3);
    let mut session = Session::auto();
    let stream = compute(&mut session, &device, "work");
    let buffer = numbers(&device, 8);
    let line = line!() + 1;
    let fence = session.launch(stream, "fill", &fill(0), [buffer.write(..)], [1]).unwrap();
    let batch = filling(&mut session, &fill(0), &buffer, OnFailure::Error).seal().unwrap();
    let later = session.submit(stream, batch).unwrap();
    let _ = session.wait(&later, patience()).unwrap();
    assert_eq!((fence.stream(), fence.device()), ("work", Rank(3)));
    let site = format!("{}:{line}:", file!());
    let said = session.describe(&fence);
    assert!(said.starts_with("fill (device 3 queue work) at 1, submitted at "), "{said}");
    assert!(said.contains(&site) && said.ends_with(": complete"), "{said} is not of {site}");
    let said = session.describe(&later);
    assert!(said.contains("at 2") && said.contains(&format!(":{}:", line + 2)), "{said}");
}

#[test]
fn a_reopened_stream_has_not_learnt_what_it_waited_for_in_vain() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let buffer = numbers(&devices[0], 8);
        let failed = session.launch(second, "fill", &fill(1), [buffer.write(..)], [7]).unwrap();
        let waits = session.stream_wait(first, &failed).unwrap();
        assert!(session.wait(&waits, patience()).is_err());
        session.reopen(first).unwrap();
        // Nobody said that the other queue's failure is dealt with.
        let given = session.launch(first, "add", &add(), [buffer.write(..)], [1]);
        match given {
            Ok(fence) => assert!(session.wait(&fence, patience()).is_err()),
            Err(refused) => assert!(matches!(refused, Refusal::Missing(_)), "{refused}"),
        }
    }
}

#[test]
fn a_stream_that_was_given_up_is_usable_once_reopened() {
    let device = device(0);
    for closes in [false, true] {
        let mut session = Session::auto().with_patience(patience());
        let stream = compute(&mut session, &device, "a");
        let (buffer, semaphore) = (numbers(&device, 8), session.semaphore("s"));
        let gate = Gate::shut();
        let failing = gate.fill(u32::from(!closes));
        let before = session.launch(stream, "fill", &failing, [buffer.write(..)], [7]).unwrap();
        let mut batch = session.batch();
        batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
        let parked = submit(&mut session, stream, batch);
        gate.open();
        assert_eq!(before.wait(bound()).is_ok(), closes);
        if closes {
            session.close(semaphore).unwrap();
        } else {
            session.signal(semaphore, 1).unwrap();
        }
        let refused = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
        assert!(matches!(refused, Refusal::Abandoned(_)), "{refused}");
        session.reopen(stream).unwrap();
        assert!(session.wait(&parked, patience()).is_err());
        let fence = session.launch(stream, "fill", &fill(0), [buffer.write(..)], [9]).unwrap();
        let _ = session.wait(&fence, patience()).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [9; 8]);
    }
}

#[test]
fn a_reopened_stream_does_not_hide_what_others_failed_to_write() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let buffer = numbers(&devices[0], 8);
        let gate = Gate::shut();
        let failing = gate.fill(1);
        let failed = session.launch(second, "fill", &failing, [buffer.write(..)], [7]).unwrap();
        session.stream_wait(first, &failed).unwrap();
        // Never runs, and is the last use of the bytes.
        let hides = session.launch(first, "hides", &add(), [buffer.write(..)], [1]).unwrap();
        gate.open();
        assert!(session.wait(&hides, patience()).is_err());
        session.reopen(first).unwrap();
        match session.launch(first, "add", &add(), [buffer.write(..)], [1]) {
            Ok(fence) => {
                let error = error_of(session.wait(&fence, patience()).unwrap_err());
                let Some(Root::Fault(root)) = error.root.as_deref() else { panic!("{error}") };
                assert_eq!(root.command, "fill", "{error}");
                session.reopen(first).unwrap();
            }
            Err(refused) => assert!(matches!(refused, Refusal::Missing(_)), "{refused}"),
        }
        assert!(session.to_vec(&buffer).is_err());
        session.reopen(second).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [7, 7, 7, 7, 0, 0, 0, 0]);
    }
}
