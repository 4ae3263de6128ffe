//! Queues of several lanes.

use super::*;

#[test]
fn a_launch_queue_needs_a_barrier_between_its_lanes() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let spec =
        QueueSpec { completion: Completion::Launch { lanes: 2 }, ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "wide").unwrap();
    let stream = session.stream_over(queue, "wide").unwrap();
    let buffer = numbers(&device, 4);
    let (add, double) = (add(), double());
    session.launch(stream, "double", &double, [buffer.write(..)], []).unwrap();
    let refused = session.launch(stream, "add", &add, [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(refused, Refusal::Missing(_)), "{refused}");
    for barrier in [Barrier::Streams(vec![stream]), Barrier::Device] {
        for _ in 0..2 {
            let mut batch = session.batch();
            batch.barrier(barrier.clone()).launch("add", &add, [buffer.write(..)], [1]);
            session.submit(stream, batch.seal().unwrap()).unwrap();
        }
    }
    session.drain(stream, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [4; 4]);
}

fn wide<'d>(session: &mut Session<'d, CpuDevice>, on: &'d CpuDevice, lanes: u32) -> StreamId {
    let completion = Completion::Launch { lanes };
    let spec = QueueSpec { completion, ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(on, spec, "wide").unwrap();
    session.stream_over(queue, "wide").unwrap()
}

/// Submits what reads `buffer` to each lane.
fn read_on_each(
    session: &mut Session<'_, CpuDevice>,
    stream: StreamId,
    buffer: &Buffer<Region, u32>,
) -> Result<(), Refusal> {
    let nothing = Kernel::new(|_| {});
    for _ in 0..3 {
        session.launch(stream, "reads", &nothing, [buffer.read(..)], [])?;
    }
    Ok(())
}

#[test]
fn a_wait_holds_for_each_lane() {
    let device = device(0);
    let buffer = numbers(&device, 4);
    for way in 0..5 {
        let mut session = Session::check().with_patience(patience());
        let stream = wide(&mut session, &device, 3);
        let other = compute(&mut session, &device, "other");
        let (event, semaphore) = (session.event("e"), session.semaphore("s"));
        let mut batch = session.batch();
        batch.launch("double", &double(), [buffer.write(..)], []);
        batch.signal(semaphore, 1).record(event);
        let fence = session.submit(other, batch.seal().unwrap()).unwrap();
        read_on_each(&mut session, stream, &buffer).unwrap_err();
        let mut batch = session.batch();
        match way {
            0 => batch.wait(&fence),
            1 => batch.wait_event(event),
            2 => batch.wait_semaphore(semaphore, 1),
            3 => batch.barrier(Barrier::Streams(vec![other])),
            _ => batch.barrier(Barrier::Device),
        };
        session.submit(stream, batch.seal().unwrap()).unwrap();
        read_on_each(&mut session, stream, &buffer).unwrap();
        session.drain(stream, patience()).unwrap();
    }
}

#[test]
fn a_wait_for_what_is_parked_or_outside_holds_for_each_lane() {
    let device = device(0);
    let buffer = numbers(&device, 4);
    for parked in [true, false] {
        let mut session = Session::new(Edges::Trust).with_patience(patience());
        let stream = wide(&mut session, &device, 3);
        let semaphore = session.semaphore("s");
        let (completer, outside) = session.completer("outside").unwrap();
        let mut batch = session.batch();
        match parked {
            true => batch.wait_semaphore(semaphore, 1),
            false => batch.wait(&outside),
        };
        session.submit(stream, batch.seal().unwrap()).unwrap();
        let nothing = Kernel::new(|_| {});
        let fences = [0, 1, 2]
            .map(|_| session.launch(stream, "reads", &nothing, [buffer.read(..)], []).unwrap());
        for fence in &fences {
            let early = fence.wait(Bound::within(Duration::from_millis(20)));
            assert!(early.is_err(), "it came before what its stream waits for");
        }
        session.signal(semaphore, 1).unwrap();
        completer.complete(Ok(()));
        session.drain(stream, patience()).unwrap();
    }
}

#[test]
fn a_record_stands_for_all_lanes() {
    let device = device(0);
    let buffers = [0, 1, 2].map(|_| numbers(&device, 4));
    let mut session = Session::check().with_patience(patience());
    let stream = wide(&mut session, &device, 3);
    let other = compute(&mut session, &device, "other");
    let event = session.event("e");
    for buffer in &buffers {
        session.launch(stream, "double", &double(), [buffer.write(..)], []).unwrap();
    }
    let mut batch = session.batch();
    batch.record(event);
    session.submit(stream, batch.seal().unwrap()).unwrap();
    let mut batch = session.batch();
    batch.wait_event(event);
    session.submit(other, batch.seal().unwrap()).unwrap();
    for buffer in &buffers {
        read_on_each(&mut session, other, buffer).unwrap();
    }
    session.drain(other, patience()).unwrap();
}

#[test]
fn what_is_parked_on_another_lane_is_recorded_too() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let stream = wide(&mut session, &device, 2);
    let other = compute(&mut session, &device, "other");
    let (event, semaphore) = (session.event("e"), session.semaphore("s"));
    let waits = relay(&mut session, Some((semaphore, 1)), None, "waits");
    session.submit(stream, waits).unwrap();
    let mut batch = session.batch();
    batch.record(event);
    session.submit(stream, batch.seal().unwrap()).unwrap();
    let mut batch = session.batch();
    batch.wait_event(event).launch("late", &Kernel::new(|_| {}), [], []).signal(semaphore, 1);
    let refused = session.submit(other, batch.seal().unwrap()).unwrap_err();
    assert!(circle(refused.why).contains("late (stream other)"));
    session.signal(semaphore, 1).unwrap();
    session.drain(other, patience()).unwrap();
}

#[test]
fn a_barrier_keeps_its_place_when_its_batch_lets_another_go() {
    let device = device(0);
    let buffer = numbers(&device, 4);
    let mut session = Session::check().with_patience(patience());
    let stream = wide(&mut session, &device, 3);
    let other = compute(&mut session, &device, "other");
    let semaphore = session.semaphore("s");
    let nothing = Kernel::new(|_| {});
    for _ in 0..5 {
        session.launch(other, "before", &nothing, [], []).unwrap();
    }
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).barrier(Barrier::Streams(vec![other]));
    session.submit(other, batch.seal().unwrap()).unwrap();
    let mut batch = session.batch();
    batch.launch("double", &double(), [buffer.write(..)], []);
    batch.barrier(Barrier::Streams(vec![stream])).signal(semaphore, 1);
    session.submit(stream, batch.seal().unwrap()).unwrap();
    read_on_each(&mut session, stream, &buffer).unwrap();
    session.drain(stream, patience()).unwrap();
}

#[test]
fn a_stream_that_is_opened_again_owes_nothing_that_failed() {
    let device = device(0);
    let buffer = numbers(&device, 4);
    let mut session = Session::check().with_patience(patience());
    let stream = wide(&mut session, &device, 3);
    let [fails, works] = ["fails", "works"].map(|label| compute(&mut session, &device, label));
    let broken = Kernel::new(|_| panic!("on purpose"));
    let broken = session.launch(fails, "broken", &broken, [], []).unwrap();
    let doubled = session.launch(works, "double", &double(), [buffer.write(..)], []).unwrap();
    let mut batch = session.batch();
    batch.wait(&broken).wait(&doubled);
    let waits = session.submit(stream, batch.seal().unwrap()).unwrap();
    session.wait(&waits, patience()).unwrap_err();
    session.reopen(fails).unwrap();
    let refused = session.launch(stream, "reads", &add(), [], [1]).unwrap_err();
    assert!(refused.to_string().contains("on purpose"), "{refused}");
    session.reopen(stream).unwrap();
    // What did not fail is waited for as before.
    read_on_each(&mut session, stream, &buffer).unwrap();
    session.drain(stream, patience()).unwrap();
}

/// A barrier for another queue says nothing of what precedes it in its own.
#[test]
fn only_a_barrier_that_names_its_own_queue_orders_what_precedes_it_across_lanes() {
    let device = device(0);
    for (second, is_ordered) in [(1, false), (0, true)] {
        let mut session = Session::check().with_patience(patience());
        let completion = Completion::Launch { lanes: 2 };
        let spec = QueueSpec { completion, ..QueueSpec::new(Kind::Compute) };
        let queue = session.queue(&device, spec, "wide").unwrap();
        let streams =
            [session.stream_over(queue, "wide").unwrap(), compute(&mut session, &device, "b")];
        let buffer = numbers(&device, 4);
        let mut batch = session.batch();
        batch.barrier(Barrier::Streams(vec![streams[0]]));
        batch.launch("write", &add(), [buffer.write(..)], [1]);
        batch.barrier(Barrier::Streams(vec![streams[second]]));
        session.submit(streams[0], batch.seal().unwrap()).unwrap();
        let read = session.launch(streams[0], "read", &Kernel::new(|_| {}), [buffer.read(..)], []);
        assert_eq!(read.is_ok(), is_ordered, "{read:?}");
        session.drain(streams[0], patience()).unwrap();
    }
}
