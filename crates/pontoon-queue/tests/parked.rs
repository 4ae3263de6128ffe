//! Batches that wait for their signal: what they mean, what holds them back, and what is refused.

use std::time::Duration;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{
    Barrier, Batch, Buffer, Kind, Patience, QueueSpec, Refusal, SemaphoreId, Session, StreamId,
    Unrecorded,
};
use pontoon_signal::Rank;

type Cpu<'d> = Session<'d, CpuDevice>;

fn device(depth: u32) -> CpuDevice {
    CpuDevice::open(Rank(0), CpuSpec { depth, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

fn streams<'d, const N: usize>(session: &mut Cpu<'d>, on: &'d CpuDevice) -> [StreamId; N] {
    std::array::from_fn(|_| session.stream(on, Engine::Compute, "stream").unwrap())
}

fn submit(
    session: &mut Cpu<'_>,
    stream: StreamId,
    fill: impl FnOnce(&mut Batch<CpuDevice>) -> &mut Batch<CpuDevice>,
) -> Result<pontoon_queue::Fence, Refusal> {
    let mut batch = session.batch();
    fill(&mut batch);
    session.submit(stream, batch.seal().unwrap()).map_err(|refused| refused.why)
}

/// Parks something on `stream` until `gate` is at 1.
fn park(session: &mut Cpu<'_>, stream: StreamId, gate: SemaphoreId) {
    submit(session, stream, |batch| batch.wait_semaphore(gate, 1)).unwrap();
}

fn nothing() -> Kernel {
    Kernel::new(|_| {})
}

fn add() -> Kernel {
    Kernel::new(|kernel| kernel.write::<u32>(0).iter_mut().for_each(|x| *x += 1))
}

#[test]
fn an_event_that_was_not_recorded_then_is_not_waited_for_later() {
    let device = device(64);
    let mut session = Session::check().with_unrecorded(Unrecorded::Pass);
    let [stream] = streams(&mut session, &device);
    let (gate, event) = (session.semaphore("gate"), session.event("later"));
    let first =
        submit(&mut session, stream, |batch| batch.wait_semaphore(gate, 1).wait_event(event))
            .unwrap();
    submit(&mut session, stream, |batch| batch.record(event)).unwrap();
    session.signal(gate, 1).unwrap();
    let _ = session.wait(&first, patience()).unwrap();
}

#[test]
fn a_refused_batch_waits_for_what_its_event_stands_for_when_it_is_submitted_again() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second, held] = streams(&mut session, &device);
    let buffer = Buffer::<_, u32>::allocate(&device, 4).unwrap();
    let (gate, event) = (session.semaphore("gate"), session.event("event"));
    park(&mut session, held, gate);
    submit(&mut session, first, |batch| batch.record(event)).unwrap();
    let add = add();
    session.launch(first, "first", &add, [buffer.write(..)], []).unwrap();
    let mut batch = session.batch();
    batch.wait_event(event).launch("second", &add, [buffer.write(..)], []);
    let refused = session.submit(second, batch.seal().unwrap()).unwrap_err();
    assert!(matches!(refused.why, Refusal::Missing(_)), "{refused}");
    submit(&mut session, first, |batch| batch.record(event)).unwrap();
    session.submit(second, refused.batch).unwrap();
    session.signal(gate, 1).unwrap();
    session.drain(second, patience()).unwrap();
}

#[test]
fn an_event_of_a_parked_batch_stands_for_what_precedes_it_and_no_more() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let buffers = [0, 1].map(|_| Buffer::<_, u32>::allocate(&device, 4).unwrap());
    let (gate, event) = (session.semaphore("gate"), session.event("event"));
    let add = add();
    submit(&mut session, first, |batch| {
        batch.wait_semaphore(gate, 1).launch("before", &add, [buffers[0].write(..)], []);
        batch.record(event).launch("after", &add, [buffers[1].write(..)], [])
    })
    .unwrap();
    session.signal(gate, 1).unwrap();
    let wait = |session: &mut Cpu<'_>, at: usize| {
        submit(session, second, |batch| {
            batch.wait_event(event).launch("reads", &nothing(), [buffers[at].read(..)], [])
        })
    };
    wait(&mut session, 0).unwrap();
    let refused = wait(&mut session, 1).unwrap_err();
    assert!(matches!(refused, Refusal::Missing(_)), "{refused}");
    session.drain(second, patience()).unwrap();
}

#[test]
fn a_collective_has_its_members_once() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second, third] = streams(&mut session, &device);
    let both = session.collective("both", 2);
    for stream in [first, second] {
        submit(&mut session, stream, |batch| batch.collective(both)).unwrap();
    }
    for stream in [first, third] {
        let late = submit(&mut session, stream, |batch| batch.collective(both)).unwrap_err();
        assert!(matches!(late, Refusal::NotAMember { members: 2 }), "{late}");
    }
}

#[test]
fn a_collective_does_not_wait_for_what_its_members_do_after_it() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let both = session.collective("both", 2);
    let (x, done) = (session.semaphore("x"), session.semaphore("done"));
    submit(&mut session, first, |batch| {
        batch.collective(both).launch("work", &nothing(), [], []).wait_semaphore(x, 1);
        batch.signal(done, 1)
    })
    .unwrap();
    let last =
        submit(&mut session, second, |batch| batch.collective(both).signal(x, 1).signal(done, 2));
    let _ = session.wait(&last.unwrap(), patience()).unwrap();
    session.drain(first, patience()).unwrap();
}

#[test]
fn a_refused_member_leaves_no_wait_behind() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let (both, x) = (session.collective("both", 2), session.semaphore("x"));
    submit(&mut session, first, |batch| batch.collective(both)).unwrap();
    submit(&mut session, second, |batch| batch.wait_semaphore(x, 1)).unwrap();
    let circle = submit(&mut session, second, |batch| batch.collective(both).signal(x, 1));
    assert!(matches!(circle, Err(Refusal::Deadlock(_))), "{circle:?}");
    // Behind the collective, which waits for nothing of the second stream any more.
    submit(&mut session, first, |batch| batch.signal(x, 1)).unwrap();
}

#[test]
fn a_wait_that_the_host_has_met_is_in_no_circle() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [stream] = streams(&mut session, &device);
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    let waits =
        submit(&mut session, stream, |batch| batch.wait_semaphore(x, 1).wait_semaphore(y, 1))
            .unwrap();
    session.signal(x, 1).unwrap();
    submit(&mut session, stream, |batch| batch.signal(x, 2)).unwrap();
    session.signal(y, 1).unwrap();
    let _ = session.wait(&waits, patience()).unwrap();
}

#[test]
fn a_signal_goes_before_one_that_waits_for_its_turn() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    submit(&mut session, first, |batch| batch.wait_semaphore(x, 1).signal(y, 3)).unwrap();
    let last = submit(&mut session, second, |batch| batch.signal(x, 1).signal(y, 5));
    let _ = session.wait(&last.unwrap(), patience()).unwrap();
}

#[test]
fn signals_of_one_batch_have_to_grow() {
    let device = device(64);
    let mut session = Session::check();
    let [stream] = streams(&mut session, &device);
    let x = session.semaphore("x");
    let falls = submit(&mut session, stream, |batch| batch.signal(x, 2).signal(x, 1));
    assert!(matches!(falls, Err(Refusal::NotGrowing { at: 2, to: 1, .. })), "{falls:?}");
}

#[test]
fn a_barrier_comes_after_what_is_parked_before_it() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second, third] = streams(&mut session, &device);
    let buffer = Buffer::<_, u32>::allocate(&device, 4).unwrap();
    let add = add();
    for (round, barrier) in [Barrier::Streams(vec![first]), Barrier::Device].into_iter().enumerate()
    {
        let gate = session.semaphore("gate");
        submit(&mut session, first, |batch| {
            batch.wait_semaphore(gate, 1).launch("parked", &add, [buffer.write(..)], [])
        })
        .unwrap();
        let is_global = matches!(barrier, Barrier::Device);
        submit(&mut session, second, |batch| {
            batch.barrier(barrier).launch("after", &add, [buffer.write(..)], [])
        })
        .unwrap();
        if is_global {
            // It comes after the barrier, since all of its device does.
            session.launch(third, "third", &nothing(), [buffer.read(..)], []).unwrap();
        }
        session.signal(gate, 1).unwrap();
        for stream in [first, second, third] {
            session.drain(stream, patience()).unwrap();
        }
        assert_eq!(session.to_vec(&buffer).unwrap(), [2 * (round as u32 + 1); 4]);
    }
}

#[test]
fn a_batch_without_steps_comes_after_a_global_barrier() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let buffer = Buffer::<_, u32>::allocate(&device, 4).unwrap();
    session.launch(first, "add", &add(), [buffer.write(..)], []).unwrap();
    submit(&mut session, first, |batch| batch.barrier(Barrier::Device)).unwrap();
    let empty = submit(&mut session, second, |batch| batch).unwrap();
    let _ = session.wait(&empty, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [1; 4]);
}

#[test]
fn a_batch_that_is_parked_needs_a_credit() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let spec = QueueSpec { credits: Some(1), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "small").unwrap();
    let stream = session.stream_over(queue, "small").unwrap();
    let gate = session.semaphore("gate");
    let started = std::sync::Arc::new(std::sync::Barrier::new(2));
    let ends = std::sync::Arc::clone(&started);
    let slow = Kernel::new(move |_| {
        ends.wait();
    });
    session.launch(stream, "slow", &slow, [], []).unwrap();
    let mut batch = session.batch();
    batch.wait_semaphore(gate, 1);
    let full = session.try_submit(stream, batch.seal().unwrap()).unwrap_err();
    assert!(matches!(full.why, Refusal::Full { holds: 1, .. }), "{full}");
    started.wait();
    session.submit(stream, full.batch).unwrap();
    session.signal(gate, 1).unwrap();
    session.drain(stream, patience()).unwrap();
}

#[test]
fn handles_of_another_session_are_refused_while_something_is_parked() {
    let device = device(64);
    let mut other = Cpu::check();
    let foreign = (0..3).map(|_| other.semaphore("foreign")).last().unwrap();
    let event = (0..3).map(|_| other.event("foreign")).last().unwrap();
    let mut session = Session::check();
    let [stream] = streams(&mut session, &device);
    let gate = session.semaphore("gate");
    park(&mut session, stream, gate);
    let wait = submit(&mut session, stream, |batch| batch.wait_semaphore(foreign, 1));
    assert!(matches!(wait, Err(Refusal::Foreign(_))), "{wait:?}");
    let record = submit(&mut session, stream, |batch| batch.record(event));
    assert!(matches!(record, Err(Refusal::Foreign(_))), "{record:?}");
}

#[test]
fn who_waits_for_a_batch_that_waits_for_room_is_in_no_deadlock() {
    let device = device(2);
    let mut session = Session::check().with_patience(patience());
    let spec = QueueSpec { credits: Some(3), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "full").unwrap();
    let full = session.stream_over(queue, "full").unwrap();
    let [other] = streams(&mut session, &device);
    let (gate, done) = (session.semaphore("gate"), session.semaphore("done"));
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(50)));
    for _ in 0..2 {
        session.launch(full, "slow", &slow, [], []).unwrap();
    }
    submit(&mut session, full, |batch| {
        batch.wait_semaphore(gate, 1).launch("last", &nothing(), [], []).signal(done, 1)
    })
    .unwrap();
    let waits = submit(&mut session, other, |batch| batch.wait_semaphore(done, 1)).unwrap();
    // It has all that it waits for now, but for room.
    session.signal(gate, 1).unwrap();
    let _ = session.wait(&waits, patience()).unwrap();
}

#[test]
fn a_credit_that_comes_when_there_is_room_is_waited_for() {
    let device = device(1);
    let mut session = Session::check().with_patience(patience());
    let spec = QueueSpec { credits: Some(1), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "small").unwrap();
    let stream = session.stream_over(queue, "small").unwrap();
    let (gate, x) = (session.semaphore("gate"), session.semaphore("x"));
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(50)));
    submit(&mut session, stream, |batch| {
        batch.wait_semaphore(gate, 1).launch("first", &slow, [], []);
        batch.signal(x, 1).signal(x, 2).launch("second", &slow, [], [])
    })
    .unwrap();
    // The second has the credit and waits for the first.
    session.signal(gate, 1).unwrap();
    session.launch(stream, "last", &nothing(), [], []).unwrap();
    session.drain(stream, patience()).unwrap();
}

#[test]
fn a_wait_is_for_the_first_signal_that_is_enough() {
    let device = device(64);
    let mut session = Session::check().with_patience(patience());
    let signallers: [StreamId; 3] = streams(&mut session, &device);
    let [reader] = streams(&mut session, &device);
    let buffers = [0, 1, 2].map(|_| Buffer::<_, u32>::allocate(&device, 4).unwrap());
    let x = session.semaphore("x");
    for (value, (stream, own)) in (1..).zip(signallers.into_iter().zip(&buffers)) {
        submit(&mut session, stream, |batch| {
            batch.launch("add", &add(), [own.write(..)], []).signal(x, value)
        })
        .unwrap();
    }
    for (at, other) in [(0, 1), (1, 2)] {
        let wait = |session: &mut Cpu<'_>, read: usize| {
            submit(session, reader, |batch| {
                batch.wait_semaphore(x, at as u64 + 1);
                batch.launch("reads", &nothing(), [buffers[read].read(..)], [])
            })
        };
        let refused = wait(&mut session, other).unwrap_err();
        assert!(matches!(refused, Refusal::Missing(_)), "{refused}");
        wait(&mut session, at).unwrap();
    }
    session.drain(reader, patience()).unwrap();
}
