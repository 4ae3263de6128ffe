//! Batches that are submitted again.

use super::*;

#[test]
fn a_retry_reaches_a_new_fence_and_the_right_bytes() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        let batch = filling(&mut session, &fill(2), &buffer, OnFailure::Retry(3));
        let first = submit(&mut session, stream, batch);
        let done = session.wait(&first, patience()).unwrap();
        assert_eq!(done.retries, 2);
        assert_ne!(done.fence.target(), None);
        assert_eq!((done.fence.is_complete(), first.is_complete().is_err()), (Ok(true), true));
        assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
        // Asked again it says the same, and others can wait for either.
        assert_eq!(session.wait(&first, patience()).unwrap().retries, 2);
        let other = compute(&mut session, &device, "b");
        session.stream_wait(other, &first).unwrap();
        session.launch(other, "add", &add(), [buffer.write(..)], [1]).unwrap();
        session.launch(stream, "add", &add(), [numbers(&device, 1).write(..)], [1]).unwrap();
        session.drain(other, patience()).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
        assert_eq!(session.counts().retries, 2);
        assert!(
            session.describe(&first).contains("retried 2 times"),
            "{}",
            session.describe(&first)
        );
    }
}

#[test]
fn retries_end_and_the_error_names_the_root_and_their_number() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let batch = filling(&mut session, &fill(100), &buffer, OnFailure::Retry(2));
    let fence = submit(&mut session, stream, batch);
    for _ in 0..2 {
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert_eq!(error.recovery.as_deref(), Some(&Recovery::Retried { times: 2 }));
        for part in ["device 0 queue a: fill", "half way", "submitted again 2 times"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    let refused = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(refused, Refusal::Faulted(_)), "{refused}");
    session.reopen(stream).unwrap();
    session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap()[..4], [8; 4]);
}

#[test]
fn who_waits_on_another_stream_names_the_root_and_stays_failed() {
    let devices = [device(0), device(1), device(2)];
    for mut session in sessions() {
        let streams = [0, 1, 2].map(|at| compute(&mut session, &devices[at], ["a", "b", "c"][at]));
        let (x, y) = (numbers(&devices[0], 8), numbers(&devices[1], 8));
        let gate = Gate::shut();
        let batch = filling(&mut session, &gate.fill(1), &x, OnFailure::Retry(1));
        let first = submit(&mut session, streams[0], batch);
        let mut follow = |stream, fence, label| {
            session.stream_wait(stream, fence).unwrap();
            let accesses = [y.write(..), x.read(..)];
            session.launch(stream, label, &add(), accesses, [1]).unwrap()
        };
        let second = follow(streams[1], &first, "second");
        let third = follow(streams[2], &second, "third");
        gate.open();
        for fence in [&third, &second] {
            let error = error_of(session.wait(fence, patience()).unwrap_err());
            let Some(Root::Fault(root)) = error.root.as_deref() else { panic!("{error}") };
            assert_eq!((root.command, &*root.queue), ("fill", "a"), "{error}");
        }
        // The waits saw the failure, so the batch has run again, over what dead queues would read.
        let done = session.wait(&first, patience()).unwrap();
        assert_eq!(done.retries, 1);
        assert_eq!(session.to_vec(&x).unwrap(), [7; 8]);
        // Who uses what a dead queue should have written still fails, whatever the order.
        let read = session.to_vec(&y).unwrap_err();
        assert!(matches!(read, HostError::Wait(_) | HostError::Refused(_)), "{read}");
        for stream in &streams[1..] {
            session.reopen(*stream).unwrap();
        }
        let refused = session.stream_wait(streams[0], &second).unwrap_err();
        assert!(matches!(refused, Refusal::Failed(_)), "{refused}");
        session.stream_wait(streams[1], &done.fence).unwrap();
        session.launch(streams[1], "second", &add(), [y.write(..), x.read(..)], [1]).unwrap();
        session.drain(streams[1], patience()).unwrap();
        assert_eq!(session.to_vec(&y).unwrap(), [1; 8]);
    }
}

#[test]
fn what_a_dead_event_hid_is_over_before_the_stream_goes_on() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let slow = Kernel::new(|kernel| {
        let to = kernel.write::<u32>(0);
        std::thread::sleep(Duration::from_millis(100));
        to.iter_mut().for_each(|x| *x += 1);
    });
    session.launch(second, "slow", &slow, [y.write(..)], []).unwrap();
    // Fails before it gets to its wait for the slow one, which its last command hides.
    let mut batch = session.batch();
    batch.launch("fill", &fill(1), [x.write(..)], [7]);
    batch.launch("hides", &add(), [y.write(..)], [10]).idempotent().on_failure(OnFailure::Retry(1));
    let fence = submit(&mut session, first, batch);
    assert_eq!(session.wait(&fence, patience()).unwrap().retries, 1);
    assert_eq!(session.to_vec(&y).unwrap(), [11; 8]);
}

#[test]
fn what_is_parked_follows_a_retry_and_not_a_failure() {
    for retries in [0, 1] {
        let device = device(0);
        let mut session = Session::auto().with_patience(patience());
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        let (semaphore, later) = (session.semaphore("s"), session.semaphore("t"));
        let policy = if retries == 0 { OnFailure::Error } else { OnFailure::Retry(retries) };
        let gate = Gate::shut();
        let mut batch = filling(&mut session, &gate.fill(1), &buffer, policy);
        batch.signal(later, 1);
        let failing = submit(&mut session, stream, batch);
        let mut batch = session.batch();
        batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
        let parked = submit(&mut session, stream, batch);
        gate.open();
        session.signal(semaphore, 1).unwrap();
        let outcome = session.wait(&failing, patience()).map(|done| done.retries);
        let followed = session.wait(&parked, patience());
        if retries == 0 {
            assert!(outcome.is_err() && followed.is_err());
            session.reopen(stream).unwrap();
            // Its signal was taken back.
            session.signal(later, 1).unwrap();
            continue;
        }
        // Either it was given to the queue before that failed, or it came after the retry.
        assert_eq!(outcome.unwrap(), 1);
        let expected = 7 + u32::from(followed.is_ok());
        assert_eq!(session.to_vec(&buffer).unwrap(), [expected; 8]);
        let other = compute(&mut session, &device, "b");
        let mut batch = session.batch();
        batch.wait_semaphore(later, 1).launch("add", &add(), [buffer.write(..)], [1]);
        submit(&mut session, other, batch);
        assert_eq!(session.to_vec(&buffer).unwrap(), [expected + 1; 8]);
    }
}

#[test]
fn parked_batches_follow_the_next_attempt() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let [stream, other] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let buffer = numbers(&device, 8);
    let (semaphore, gate) = (session.semaphore("s"), Gate::shut());
    let batch = filling(&mut session, &gate.fill(1), &buffer, OnFailure::Retry(1));
    let failing = submit(&mut session, stream, batch);
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
    let parked = submit(&mut session, stream, batch);
    gate.open();
    assert!(failing.wait(bound()).is_err());
    // Its turn comes while the queue is dead: it stays.
    let mut batch = session.batch();
    batch.signal(semaphore, 1);
    submit(&mut session, other, batch);
    assert_eq!(parked.is_complete(), Ok(false));
    let _ = session.wait(&parked, patience()).unwrap();
    assert_eq!(session.wait(&failing, patience()).unwrap().retries, 1);
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
}

#[test]
fn callbacks_run_once_whatever_happens() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let streams = ["a", "b", "c", "d"].map(|label| compute(&mut session, &device, label));
    let said = Said::default();
    let buffer = || numbers(&device, 8);
    let fine = session.launch(streams[0], "fill", &fill(0), [buffer().write(..)], [1]).unwrap();
    session.on_complete(&fine, tell(&said, "fine"));
    session.on_complete(&fine, |_| panic!("of a callback"));
    let failed = session.launch(streams[1], "fill", &fill(1), [buffer().write(..)], [1]).unwrap();
    session.on_complete(&failed, tell(&said, "failed"));
    let batch = filling(&mut session, &fill(1), &buffer(), OnFailure::Retry(1));
    let retried = submit(&mut session, streams[2], batch);
    session.on_complete(&retried, tell(&said, "retried"));
    let batch = filling(&mut session, &fill(9), &buffer(), OnFailure::Retry(1));
    let exhausted = submit(&mut session, streams[3], batch);
    session.on_complete(&exhausted, tell(&said, "exhausted"));
    for fence in [&fine, &failed, &retried, &exhausted] {
        let _ = session.wait(fence, patience());
    }
    assert_eq!(names(&said).len(), 4, "the waits ran them");
    let late = session.wait(&fine, patience()).unwrap().fence;
    session.on_complete(&late, tell(&said, "late"));
    assert_eq!(names(&said).len(), 4, "never by the call itself");
    session.progress();
    session.progress();
    let mut all = said.lock().unwrap().clone();
    all.sort();
    let [exhausted, failed, fine, late, retried] = &all[..] else { panic!("{all:?}") };
    assert!(exhausted.1.contains("submitted again once"), "{exhausted:?}");
    assert!(failed.1.contains("half way"), "{failed:?}");
    assert_eq!((&*fine.1, &*late.1, &*retried.1), ("ok", "ok", "ok"));
    assert_eq!(session.counts().callback_panics, 1);
}

#[test]
fn progress_alone_gets_a_batch_through() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let said = Said::default();
    let batch = filling(&mut session, &fill(3), &buffer, OnFailure::Retry(3));
    let fence = submit(&mut session, stream, batch);
    session.on_complete(&fence, tell(&said, "done"));
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while names(&said).is_empty() {
        assert!(std::time::Instant::now() < until, "{}", session.pending());
        session.progress();
        std::thread::yield_now();
    }
    assert_eq!(*said.lock().unwrap(), [("done", "ok".to_string())]);
    assert_eq!(session.counts().retries, 3);
}

#[test]
fn a_wait_that_took_too_long_is_tried_again() {
    let device = device(0);
    let bound = Bound::within(Duration::from_millis(30));
    let mut session = Session::auto().with_patience(patience()).with_bound(bound);
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let (completer, ready) = session.completer("ready").unwrap();
    let mut batch = session.batch();
    batch.wait(&ready).launch("fill", &fill(0), [buffer.write(..)], [7]);
    batch.idempotent().on_failure(OnFailure::Retry(1000));
    let fence = submit(&mut session, stream, batch);
    assert!(fence.wait(Bound::within(Duration::from_secs(30))).is_err());
    completer.complete(Ok(()));
    assert!(session.wait(&fence, patience()).unwrap().retries > 0);
    assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
}

#[test]
fn the_host_and_a_later_submission_meet_the_next_attempt() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let kernel = fill(2);
    let batch = filling(&mut session, &kernel, &buffer, OnFailure::Retry(2));
    submit(&mut session, stream, batch);
    assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
    let kernel = fill(1);
    let batch = filling(&mut session, &kernel, &buffer, OnFailure::Retry(1));
    let fence = submit(&mut session, stream, batch);
    assert!(fence.wait(bound()).is_err());
    session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
    session.drain(stream, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
    assert_eq!(session.counts().retries, 3);
}

#[test]
fn a_drain_waits_for_the_last_attempt_and_tells_of_what_else_failed() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let batch = filling(&mut session, &fill(2), &buffer, OnFailure::Retry(2));
    submit(&mut session, stream, batch);
    session.drain(stream, patience()).unwrap();
    let gate = Gate::shut();
    session.launch(stream, "held", &gate.held(), [], []).unwrap();
    let batch = filling(&mut session, &fill(1), &buffer, OnFailure::Retry(1));
    submit(&mut session, stream, batch);
    session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
    gate.open();
    assert!(session.drain(stream, patience()).is_err(), "the last one will not be done again");
    session.drain(stream, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
}

#[test]
fn an_event_goes_with_the_next_attempt() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [stream, other] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let buffer = numbers(&device, 8);
    let (kept, moved) = (session.event("kept"), session.event("moved"));
    let mut batch = filling(&mut session, &fill(1), &buffer, OnFailure::Retry(1));
    batch.record(kept).record(moved);
    let fence = submit(&mut session, stream, batch);
    let (third, elsewhere) = (compute(&mut session, &device, "c"), numbers(&device, 8));
    let mut batch = session.batch();
    batch.launch("add", &add(), [elsewhere.write(..)], [1]).record(moved);
    submit(&mut session, other, batch);
    assert_eq!(session.wait(&fence, patience()).unwrap().retries, 1);
    let mut batch = session.batch();
    batch.wait_event(kept).launch("add", &add(), [buffer.write(..)], [1]);
    submit(&mut session, other, batch);
    // It stands for what was recorded last, not for what ran last.
    let mut batch = session.batch();
    batch.wait_event(moved).launch("add", &add(), [elsewhere.write(..)], [1]);
    submit(&mut session, third, batch);
    session.drain(other, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
}

#[test]
fn a_hazard_is_not_tried_again() {
    let device = device(0);
    let mut session = Session::new(Edges::Trust).with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (buffer, gate, runs) = (numbers(&device, 8), Gate::shut(), Arc::new(AtomicU32::new(0)));
    let (has_begun, held) = (Arc::clone(&runs), Arc::clone(&gate.0));
    let holds = Kernel::new(move |_| {
        has_begun.store(1, Relaxed);
        while held.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
    });
    session.launch(first, "holds", &holds, [buffer.write(..)], []).unwrap();
    while runs.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    let batch = filling(&mut session, &fill(0), &buffer, OnFailure::Retry(3));
    let fence = submit(&mut session, second, batch);
    let error = error_of(session.wait(&fence, patience()).unwrap_err());
    assert_eq!((&error.recovery, session.counts().retries), (&None, 0), "{error}");
    assert!(error.to_string().contains("holds"), "{error}");
}

#[test]
fn a_retry_does_not_run_on_what_its_producer_never_wrote() {
    // The wait times out while the producer runs; the producer fails later, and may be reopened.
    for reopens in [false, true] {
        let device = device(0);
        let bound = Bound::within(Duration::from_millis(100));
        let mut session = Session::auto().with_patience(patience()).with_bound(bound);
        let [first, second] = ["a", "c"].map(|label| compute(&mut session, &device, label));
        let (x, y) = (numbers(&device, 8), numbers(&device, 8));
        let gate = Gate::shut();
        let open = Arc::clone(&gate.0);
        let produce = Kernel::new(move |_| {
            while open.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            panic!("not written");
        });
        let produced = session.launch(second, "produce", &produce, [x.write(..)], []).unwrap();
        let copy = Kernel::new(|kernel| {
            let from = kernel.read::<u32>(1).to_vec();
            kernel.write::<u32>(0).copy_from_slice(&from);
        });
        let mut batch = session.batch();
        batch.launch("consume", &copy, [y.write(..), x.read(..)], []);
        batch.idempotent().on_failure(OnFailure::Retry(1));
        let fence = submit(&mut session, first, batch);
        assert!(fence.wait(self::bound()).is_err(), "its wait took too long");
        gate.open();
        assert!(produced.wait(self::bound()).is_err());
        if reopens {
            session.reopen(second).unwrap();
        }
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        let Some(Recovery::NotRetried { times: 0, why }) = error.recovery.as_deref() else {
            panic!("{error}")
        };
        let Obstacle::Failed(cause) = why else { panic!("{error}") };
        assert!(cause.to_string().contains("not written"), "{error}");
        assert_eq!(session.counts().retries, 0);
    }
}

#[test]
fn a_retry_reads_what_its_producer_wrote_in_the_next_attempt() {
    let devices = [device(0), device(1)];
    let bound = Bound::within(Duration::from_millis(100));
    let mut session = Session::auto().with_patience(patience()).with_bound(bound);
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "c"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[1], 8));
    let (gate, runs) = (Gate::shut(), AtomicU32::new(0));
    let open = Arc::clone(&gate.0);
    let produce = Kernel::new(move |kernel| {
        while open.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert!(runs.fetch_add(1, Relaxed) > 0, "the first time");
        kernel.write::<u32>(0).fill(5);
    });
    let batch = filling(&mut session, &produce, &x, OnFailure::Retry(1));
    let produced = submit(&mut session, second, batch);
    let mut batch = session.batch();
    batch.copy("consume", x.read(..), y.write(..));
    batch.idempotent().on_failure(OnFailure::Retry(1));
    let consumed = submit(&mut session, first, batch);
    assert!(consumed.wait(self::bound()).is_err(), "its wait took too long");
    gate.open();
    assert!(produced.wait(self::bound()).is_err());
    assert_eq!(session.wait(&consumed, patience()).unwrap().retries, 1);
    assert_eq!(session.to_vec(&y).unwrap(), [5; 8]);
}

#[test]
fn a_look_at_a_batch_does_not_cost_it_its_retry() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let gate = Gate::shut();
    session.launch(second, "held", &gate.held(), [y.write(..)], []).unwrap();
    // What it was to come after has to be over before it runs again.
    let mut batch = filling(&mut session, &fill(1), &x, OnFailure::Retry(1));
    batch.launch("add", &add(), [y.write(..)], [1]);
    let fence = submit(&mut session, first, batch);
    assert!(fence.wait(bound()).is_err());
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
    });
    let _ = session.wait(&fence, Patience::within(Duration::ZERO));
    assert_eq!(session.wait(&fence, patience()).unwrap().retries, 1);
    later.join().unwrap();
}

#[test]
fn a_submission_has_one_deadline() {
    let device = device(0);
    let cap = Duration::from_secs(2);
    let mut session = Session::auto().with_patience(Patience::within(cap).at_most(cap));
    let queue = QueueSpec { credits: Some(1), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, queue, "a").unwrap();
    let stream = session.stream_over(queue, "a").unwrap();
    let other = compute(&mut session, &device, "b");
    let (x, y) = (numbers(&device, 8), numbers(&device, 8));
    let (gate, never) = (Gate::shut(), Gate::shut());
    session.launch(other, "held", &gate.held(), [y.write(..)], []).unwrap();
    // It runs again once the held one is over, and then there is no room.
    let mut batch = filling(&mut session, &fill(1), &x, OnFailure::Retry(1));
    batch.launch("add", &add(), [y.write(..)], [1]).launch("never", &never.held(), [], []);
    let fence = submit(&mut session, stream, batch);
    assert!(fence.wait(bound()).is_err());
    let later = std::thread::spawn(move || {
        std::thread::sleep(cap * 3 / 4);
        gate.open();
    });
    let refused = session.launch(stream, "add", &add(), [x.write(..)], [1]).unwrap_err();
    let Refusal::NoRoom(FenceError { error: WaitError::TimedOut { waited, .. }, .. }) = refused
    else {
        panic!("{refused}")
    };
    assert_eq!(session.counts().retries, 1);
    assert!(waited.as_duration() < cap * 9 / 10, "{waited}: it started anew");
    later.join().unwrap();
}
