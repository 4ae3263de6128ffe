//! Bytes that get back what they held.

use super::*;

#[test]
fn what_cannot_fail_as_a_whole_does_not_seal() {
    let device = device(0);
    let mut session = Session::auto();
    let buffer = numbers(&device, 8);
    let kernel = fill(0);
    let mut batch = Batch::<CpuDevice>::new();
    batch.launch("fill", &kernel, [buffer.write(..)], [7]).on_failure(OnFailure::Retry(1));
    let why = "only a batch declared idempotent can be retried";
    assert_eq!(batch.seal().unwrap_err(), Malformed { label: "batch", why, beyond: None });
    let (semaphore, collective) = (session.semaphore("s"), session.collective("c", 2));
    let mut batch = filling(&mut session, &kernel, &buffer, OnFailure::Retry(1));
    batch.signal(semaphore, 1).wait_semaphore(semaphore, 2);
    assert!(batch.seal().unwrap_err().why.contains("after a signal"));
    let mut batch = filling(&mut session, &kernel, &buffer, OnFailure::Rollback(vec![]));
    batch.collective(collective);
    assert!(batch.seal().unwrap_err().why.contains("collective"));
}

#[test]
fn a_rollback_gives_the_bytes_back() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        session.write(&buffer, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let kernel = fill(1);
        let region = buffer.memory().id();
        // The middle only: the rest stays as the kernel left it.
        let policy = || OnFailure::Rollback(vec![buffer.write(1..7)]);
        let batch = filling(&mut session, &kernel, &buffer, policy());
        let fence = submit(&mut session, stream, batch);
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert_eq!(error.recovery.as_deref(), Some(&Recovery::RolledBack(vec![(region, 4..28)])));
        let said = format!("bytes 4..28 of {region} hold again what they held before it");
        assert!(
            error.to_string().contains(&said) && error.to_string().contains("half way"),
            "{error}"
        );
        assert_eq!(session.to_vec(&buffer).unwrap(), [7, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(session.counts().rollbacks, 1);
        // The stream goes on.
        let batch = filling(&mut session, &kernel, &buffer, policy());
        let fence = submit(&mut session, stream, batch);
        let _ = session.wait(&fence, patience()).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
    }
}

#[test]
fn a_batch_that_did_not_begin_has_nothing_to_give_back() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let gate = Gate::shut();
    session.launch(stream, "held", &gate.held(), [], []).unwrap();
    session.launch(stream, "other", &fill(1), [numbers(&device, 8).write(..)], [1]).unwrap();
    let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
    let batch = filling(&mut session, &fill(0), &buffer, policy);
    let fence = submit(&mut session, stream, batch);
    let batch = filling(&mut session, &fill(0), &buffer, OnFailure::Retry(5));
    let retried = submit(&mut session, stream, batch);
    gate.open();
    let error = error_of(session.wait(&fence, patience()).unwrap_err());
    assert!(matches!(error.recovery.as_deref(), Some(Recovery::Untouched(_))), "{error}");
    let error = error_of(session.wait(&retried, patience()).unwrap_err());
    assert_eq!((error.recovery, session.counts().retries), (None, 0), "another batch's failure");
    assert_eq!(error.fault.unwrap().command, "other");
}

#[test]
fn a_lost_device_is_not_tried_again() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let gate = Gate::shut();
    let batch = filling(&mut session, &gate.held(), &buffer, OnFailure::Retry(3));
    let retried = submit(&mut session, stream, batch);
    let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
    let batch = filling(&mut session, &fill(0), &buffer, policy);
    let rolled = submit(&mut session, stream, batch);
    device.kill();
    gate.open();
    let error = error_of(session.wait(&retried, patience()).unwrap_err());
    assert_eq!((error.recovery, session.counts().retries), (None, 0), "{:?}", error.fault);
    let error = error_of(session.wait(&rolled, patience()).unwrap_err());
    let Some(Recovery::NotRolledBack { why: Obstacle::Reopen(_), .. }) = error.recovery.as_deref()
    else {
        panic!("{error}")
    };
    assert!(session.reopen(stream).is_err());
}

#[test]
fn a_rollback_gives_nothing_back_that_it_has_not_copied() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        session.write(&buffer, 0, &[3; 8]).unwrap();
        let (completer, ready) = session.completer("ready").unwrap();
        let mut batch = session.batch();
        batch.wait(&ready).launch("fill", &fill(0), [buffer.write(..)], [7]);
        batch.on_failure(OnFailure::Rollback(vec![buffer.write(0..8)]));
        let fence = submit(&mut session, stream, batch);
        drop(completer);
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::Untouched(_))), "{error}");
        assert!(matches!(error.root.as_deref(), Some(Root::Completer { .. })), "{error}");
        assert_eq!(session.to_vec(&buffer).unwrap(), [3; 8]);
        session.launch(stream, "fill", &fill(0), [buffer.write(..)], [7]).unwrap();
    }
}

#[test]
fn a_rollback_waits_for_who_reads_what_it_gives_back() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
        let gate = Gate::shut();
        session.launch(second, "held", &gate.held(), [y.read(..)], []).unwrap();
        let policy = OnFailure::Rollback(vec![y.write(0..8)]);
        let batch = filling(&mut session, &fill(1), &x, policy);
        let fence = submit(&mut session, first, batch);
        assert!(fence.wait(bound()).is_err());
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            gate.open();
        });
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
        later.join().unwrap();
    }
}

#[test]
fn the_memory_of_a_rollback_goes_from_stream_to_stream() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let streams = ["a", "b"].map(|label| compute(&mut session, &device, label));
    for stream in [streams[0], streams[1], streams[0]] {
        let buffer = numbers(&device, 8);
        let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
        let batch = filling(&mut session, &fill(0), &buffer, policy);
        let fence = submit(&mut session, stream, batch);
        fence.wait(bound()).unwrap();
        session.progress();
    }
}

#[test]
fn nobody_meets_the_middle_of_what_fails_as_a_whole() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let x = numbers(&devices[0], 8);
    let event = session.event("middle");
    let semaphore = session.semaphore("middle");
    let policies = || [OnFailure::Retry(1), OnFailure::Rollback(vec![x.write(0..8)])];
    for policy in policies() {
        for tell in 0..3 {
            let mut batch = filling(&mut session, &fill(0), &x, policy.clone());
            match tell {
                0 => batch.record(event),
                1 => batch.signal(semaphore, 1),
                _ => batch.barrier(Barrier::Device),
            };
            batch.launch("add", &add(), [x.write(..)], [1]);
            let why = batch.seal().unwrap_err().why;
            assert!(why.contains("split it"), "{why}");
        }
    }
    // Neither does who waits for a command of it because of the bytes: here for the first.
    let gate = Gate::shut();
    let open = Arc::clone(&gate.0);
    let fails = Kernel::new(move |_| {
        while open.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        panic!("after the first");
    });
    session.write(&x, 0, &[3; 8]).unwrap();
    let policy = OnFailure::Rollback(vec![x.write(0..8)]);
    let mut batch = filling(&mut session, &fill(0), &x, policy);
    batch.launch("fails", &fails, [], []);
    let failed = submit(&mut session, first, batch);
    let followed = session.launch(second, "add", &add(), [x.write(..)], [1]).unwrap();
    let early = followed.wait(Bound::within(Duration::from_millis(50)));
    gate.open();
    assert!(early.is_err(), "it ran in the middle");
    let error = error_of(session.wait(&failed, patience()).unwrap_err());
    assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
    assert!(session.wait(&followed, patience()).is_err());
    session.reopen(second).unwrap();
    assert_eq!(session.to_vec(&x).unwrap(), [3; 8]);
}

#[test]
fn the_memory_of_a_rollback_that_never_began_fails_nobody_else() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
        let other = numbers(&devices[0], 8);
        // On the same device, so that the memory could be used again.
        let third = compute(&mut session, &devices[0], "c");
        let gate = Gate::shut();
        session.launch(first, "held", &gate.held(), [], []).unwrap();
        session.launch(first, "other", &fill(1), [other.write(..)], [1]).unwrap();
        let policy = OnFailure::Rollback(vec![x.write(0..8)]);
        let batch = filling(&mut session, &fill(0), &x, policy);
        let fence = submit(&mut session, first, batch);
        gate.open();
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::Untouched(_))), "{error}");
        let policy = OnFailure::Rollback(vec![y.write(0..8)]);
        let batch = filling(&mut session, &fill(0), &y, policy);
        let healthy = submit(&mut session, third, batch);
        let _ = session.wait(&healthy, patience()).unwrap();
        session.drain(second, patience()).unwrap();
    }
}

#[test]
fn a_rollback_does_not_fail_of_its_own_victims() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (numbers(&device, 8), numbers(&device, 8));
    let gate = Gate::shut();
    let policy = OnFailure::Rollback(vec![x.write(0..8)]);
    let batch = filling(&mut session, &fill(1), &x, policy);
    let fence = submit(&mut session, first, batch);
    // It is to come after the batch, and has yet to see that it failed.
    let mut batch = session.batch();
    batch.launch("held", &gate.held(), [y.write(..)], []);
    batch.launch("add", &add(), [x.write(..)], [1]);
    let victim = submit(&mut session, second, batch);
    assert!(fence.wait(bound()).is_err());
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
    });
    let error = error_of(session.wait(&fence, patience()).unwrap_err());
    assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
    assert!(session.wait(&victim, patience()).is_err());
    assert_eq!(session.to_vec(&x).unwrap(), [0; 8]);
    later.join().unwrap();
}

#[test]
fn a_reopened_stream_has_its_batches_recovered_first() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
        let batch = filling(&mut session, &fill(1), &buffer, policy);
        let failed = submit(&mut session, stream, batch);
        assert!(failed.wait(bound()).is_err());
        session.reopen(stream).unwrap();
        let later = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
        let _ = session.wait(&later, patience()).unwrap();
        let error = error_of(session.wait(&failed, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
        assert_eq!(session.to_vec(&buffer).unwrap(), [1; 8]);
    }
}
