//! Batches that will never run: who fails with them, with which root, and what stays usable.

use std::{sync::Arc, time::Duration};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{
    Batch, Buffer, Fence, HostError, Kind, Patience, QueueSpec, Refusal, Session, StreamId,
    WaitFailure,
};
use pontoon_signal::{
    Bound, Rank,
    shim::{AtomicU32, Ordering::Relaxed},
};

type Cpu<'d> = Session<'d, CpuDevice>;

fn device(depth: u32) -> CpuDevice {
    CpuDevice::open(Rank(0), CpuSpec { depth, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

fn streams<'d, const N: usize>(session: &mut Cpu<'d>, on: &'d CpuDevice) -> [StreamId; N] {
    std::array::from_fn(|at| {
        session.stream(on, Engine::Compute, ["first", "second", "third"][at]).unwrap()
    })
}

fn submit(
    session: &mut Cpu<'_>,
    stream: StreamId,
    fill: impl FnOnce(&mut Batch<CpuDevice>) -> &mut Batch<CpuDevice>,
) -> Result<Fence, Refusal> {
    let mut batch = session.batch();
    fill(&mut batch);
    session.submit(stream, batch.seal().unwrap()).map_err(|refused| refused.why)
}

fn nothing() -> Kernel {
    Kernel::new(|_| {})
}

fn add() -> Kernel {
    Kernel::new(|kernel| kernel.write::<u32>(0).iter_mut().for_each(|x| *x += 1))
}

/// A kernel that runs until it is told to end.
fn slow() -> (Kernel, Arc<AtomicU32>) {
    let ends = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&ends);
    let kernel = Kernel::new(move |_| {
        while told.load(Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    (kernel, ends)
}

/// Whether it has failed by now, and why.
fn failed(session: &mut Cpu<'_>, fence: &Fence) -> String {
    match fence.is_complete() {
        Err(_) => session.wait(fence, patience()).unwrap_err().to_string(),
        other => panic!("not failed: {other:?}"),
    }
}

#[test]
fn all_streams_over_a_queue_are_refused_after_a_parked_batch_was_given_up() {
    for depth in [1, 2, 64] {
        let device = device(depth);
        let mut session = Cpu::check().with_patience(patience());
        let queue = session.queue(&device, QueueSpec::new(Kind::Compute), "shared").unwrap();
        let [first, second] = ["first", "second"].map(|it| session.stream_over(queue, it).unwrap());
        let gate = session.semaphore("gate");
        let (kernel, ends) = slow();
        let before = session.launch(first, "before", &kernel, [], []).unwrap();
        let lost = submit(&mut session, first, |batch| {
            batch.wait_semaphore(gate, 1).launch("lost", &nothing(), [], [])
        })
        .unwrap();
        session.close(gate).unwrap();
        assert!(failed(&mut session, &lost).contains("semaphore gate got to 0"));
        ends.store(1, Relaxed);
        let _ = session.wait(&before, patience()).expect("it was given before");
        for stream in [first, second] {
            let refused = session.launch(stream, "after", &nothing(), [], []).unwrap_err();
            assert!(refused.to_string().contains("semaphore gate got to 0"), "{refused}");
        }
        let late = session.stream_over(queue, "late").unwrap();
        assert!(session.launch(late, "late", &nothing(), [], []).is_err());
        session.reopen(second).unwrap();
        for stream in [first, second, late] {
            for _ in 0..2 * depth {
                session.launch(stream, "again", &nothing(), [], []).unwrap();
            }
            session.drain(stream, patience()).unwrap();
        }
    }
}

#[test]
fn nothing_of_a_command_that_a_device_would_refuse_is_queued() {
    let device = device(64);
    let mut session = Cpu::auto().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let buffer = Buffer::<_, u32>::allocate(&device, 4).unwrap();
    let (kernel, ends) = slow();
    session.launch(first, "slow", &kernel, [buffer.write(..)], []).unwrap();
    let twice = [buffer.write(..), buffer.read(..2)];
    let refused = session.launch(second, "twice", &nothing(), twice, []).unwrap_err();
    let given = session.pending().queues[1].submitted;
    ends.store(1, Relaxed);
    assert!(matches!(refused, Refusal::Malformed(_)), "{refused}");
    assert_eq!(given, 0, "a wait for the first stream was queued");
    let copied = session.copy(second, "onto itself", buffer.read(..2), buffer.write(1..3));
    assert!(matches!(copied, Err(Refusal::Malformed(_))), "{copied:?}");
}

#[test]
fn what_is_parked_behind_a_failure_fails_at_once_and_so_do_its_waiters() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second, third] = streams(&mut session, &device);
    let (gate, done) = (session.semaphore("gate"), session.semaphore("done"));
    let (kernel, ends) = slow();
    let panics = Kernel::new(|_| panic!("on purpose"));
    session.launch(first, "slow", &kernel, [], []).unwrap();
    let fails = session.launch(first, "fails", &panics, [], []).unwrap();
    let parked =
        submit(&mut session, first, |batch| batch.wait_semaphore(gate, 1).signal(done, 1)).unwrap();
    let waits = submit(&mut session, second, |batch| batch.wait_semaphore(done, 1)).unwrap();
    // Behind what still may go on.
    submit(&mut session, third, |batch| batch.wait_semaphore(gate, 1)).unwrap();
    let behind = submit(&mut session, third, |batch| batch.wait_semaphore(done, 1)).unwrap();
    ends.store(1, Relaxed);
    assert!(fails.wait(Bound::within(Duration::from_secs(30))).is_err());
    session.progress();
    for fence in [&parked, &waits, &behind] {
        assert!(failed(&mut session, fence).contains("on purpose"));
    }
    let refused = submit(&mut session, first, |batch| batch.wait_semaphore(gate, 1)).unwrap_err();
    assert!(refused.to_string().contains("on purpose"), "{refused}");
}

#[test]
fn a_failed_queue_takes_nothing_to_be_parked() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let gate = session.semaphore("gate");
    let panics = Kernel::new(|_| panic!("on purpose"));
    let fails = session.launch(first, "fails", &panics, [], []).unwrap();
    assert!(fails.wait(Bound::within(Duration::from_secs(30))).is_err());
    let refused = submit(&mut session, first, |batch| batch.wait_semaphore(gate, 1)).unwrap_err();
    assert!(matches!(refused, Refusal::Faulted(_)), "{refused}");
    submit(&mut session, second, |batch| batch.wait_semaphore(gate, 1)).unwrap();
}

#[test]
fn a_semaphore_whose_promise_was_broken_can_be_promised_again() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second, third] = streams(&mut session, &device);
    let (x, gates) = (session.semaphore("x"), [0, 1].map(|_| session.semaphore("gate")));
    let refused = |session: &mut Cpu<'_>, value| {
        submit(session, third, |batch| batch.wait_semaphore(x, value)).is_err()
    };
    submit(&mut session, second, |it| it.wait_semaphore(gates[1], 1).signal(x, 3)).unwrap();
    submit(&mut session, first, |it| it.wait_semaphore(gates[0], 1).signal(x, 5)).unwrap();
    gates.into_iter().for_each(|gate| session.close(gate).unwrap());
    assert!(refused(&mut session, 4), "the higher promise was broken too");
    session.reopen(first).unwrap();
    let open = session.semaphore("open");
    submit(&mut session, first, |batch| batch.wait_semaphore(open, 1).signal(x, 6)).unwrap();
    let waits = submit(&mut session, third, |batch| batch.wait_semaphore(x, 5)).unwrap();
    session.signal(open, 1).unwrap();
    let _ = session.wait(&waits, patience()).unwrap();
}

#[test]
fn a_waiter_that_another_promise_is_enough_for_goes_on() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second, third] = streams(&mut session, &device);
    let (x, gate, open) =
        (session.semaphore("x"), session.semaphore("gate"), session.semaphore("o"));
    submit(&mut session, first, |it| it.wait_semaphore(gate, 1).signal(x, 1)).unwrap();
    submit(&mut session, second, |it| it.wait_semaphore(open, 1).signal(x, 2)).unwrap();
    let waits = submit(&mut session, third, |batch| batch.wait_semaphore(x, 1)).unwrap();
    session.close(gate).unwrap();
    session.signal(open, 1).unwrap();
    let _ = session.wait(&waits, patience()).expect("the second signals more");
}

#[test]
fn a_broken_promise_that_leaves_a_circle_fails_it() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second, third] = streams(&mut session, &device);
    let [x, y, gate] = ["x", "y", "gate"].map(|label| session.semaphore(label));
    submit(&mut session, first, |it| it.wait_semaphore(gate, 1).signal(x, 1)).unwrap();
    let waits =
        submit(&mut session, third, |batch| batch.wait_semaphore(x, 1).signal(y, 1)).unwrap();
    let more =
        submit(&mut session, second, |batch| batch.wait_semaphore(y, 1).signal(x, 2)).unwrap();
    // What the third waits for now is what waits for it.
    session.close(gate).unwrap();
    for fence in [&waits, &more] {
        assert!(failed(&mut session, fence).contains("deadlock"));
    }
}

#[test]
fn who_has_promised_to_signal_first_is_named() {
    let device = device(64);
    let mut session = Cpu::check();
    let [first] = streams(&mut session, &device);
    let (x, gate) = (session.semaphore("x"), session.semaphore("gate"));
    submit(&mut session, first, |it| {
        it.wait_semaphore(gate, 1).launch("fill", &nothing(), [], []).signal(x, 5)
    })
    .unwrap();
    let refused = session.signal(x, 7).unwrap_err().to_string();
    assert!(refused.contains("fill") && refused.contains("stream first"), "{refused}");
    assert!(refused.contains('5') && refused.contains('7'), "{refused}");
}

#[test]
fn a_collective_whose_member_was_given_up_fails() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second, third] = streams(&mut session, &device);
    let (all, gate, other) =
        (session.collective("all", 3), session.semaphore("gate"), session.semaphore("other"));
    let member = submit(&mut session, first, |batch| batch.collective(all)).unwrap();
    submit(&mut session, second, |batch| batch.wait_semaphore(gate, 1).collective(all)).unwrap();
    session.close(gate).unwrap();
    assert!(failed(&mut session, &member).contains("semaphore gate got to 0"));
    let late = submit(&mut session, third, |batch| batch.collective(all)).unwrap_err();
    assert!(late.to_string().contains("semaphore gate got to 0"), "{late}");
    // It is of no use to anybody else, and nobody else is harmed.
    submit(&mut session, third, |batch| batch.wait_semaphore(other, 1)).unwrap();
    session.signal(other, 1).unwrap();
    session.drain(third, patience()).unwrap();
}

#[test]
fn no_member_of_a_collective_goes_without_the_others() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let buffer = Buffer::<_, u32>::allocate(&device, 4).unwrap();
    let both = session.collective("both", 2);
    let write = |session: &mut Cpu<'_>, stream| {
        submit(session, stream, |batch| {
            batch.collective(both).launch("write", &add(), [buffer.write(..)], [])
        })
        .unwrap()
    };
    let fences = [write(&mut session, first), write(&mut session, second)];
    for fence in &fences {
        assert!(failed(&mut session, fence).contains("missing dependency"));
    }
    assert!(session.pending().queues.iter().all(|queue| queue.submitted == 0));
}

#[test]
fn a_collective_waits_for_room_for_all_its_members() {
    let device = device(2);
    let mut session = Cpu::check().with_patience(patience());
    let [first, second] = streams(&mut session, &device);
    let both = session.collective("both", 2);
    let (kernel, ends) = slow();
    for _ in 0..2 {
        session.launch(second, "slow", &kernel, [], []).unwrap();
    }
    let fences = [first, second].map(|stream| {
        submit(&mut session, stream, |batch| {
            batch.collective(both).launch("work", &nothing(), [], [])
        })
        .unwrap()
    });
    assert!(fences.iter().all(|fence| fence.target().is_none()), "one went alone");
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        ends.store(1, Relaxed);
    });
    for fence in &fences {
        let _ = session.wait(fence, patience()).expect("there is room in the end");
    }
}

#[test]
fn what_could_never_run_is_refused_before_it_is_parked() {
    let device = device(4);
    let mut session = Cpu::check().with_patience(patience());
    let copies = session.stream(&device, Engine::Copy, "copies").unwrap();
    let [work] = streams(&mut session, &device);
    let (gate, kept) = (session.semaphore("gate"), Buffer::<_, u32>::allocate(&device, 4).unwrap());
    let freed = Buffer::<_, u32>::allocate(&device, 4).unwrap();
    let region = freed.write(..);
    session.free(&freed).unwrap();
    let wrong = submit(&mut session, copies, |batch| {
        batch.wait_semaphore(gate, 1).launch("kernel", &nothing(), [], [])
    });
    assert!(matches!(wrong, Err(Refusal::Malformed(_))), "{wrong:?}");
    let freed = submit(&mut session, work, |batch| {
        batch.wait_semaphore(gate, 1).launch("uses", &add(), [region], [])
    });
    assert!(matches!(freed, Err(Refusal::Freed { .. })), "{freed:?}");
    let long = submit(&mut session, work, |batch| {
        batch.wait_semaphore(gate, 1);
        (0..5).fold(batch, |batch, _| batch.launch("work", &nothing(), [], []))
    });
    assert!(matches!(long, Err(Refusal::TooLong { commands: 5, .. })), "{long:?}");
    submit(&mut session, work, |batch| {
        batch.wait_semaphore(gate, 1).launch("holds", &add(), [kept.write(..)], [])
    })
    .unwrap();
    let copy = kept.clone();
    let named = session.free(&kept).unwrap_err();
    assert!(matches!(named, HostError::Refused(_)), "{named}");
    let text = named.to_string();
    assert!(text.contains("holds") && text.contains("stream first"), "{text}");
    session.signal(gate, 1).unwrap();
    let done = session.drain(work, patience());
    assert!(!matches!(done, Err(WaitFailure::Abandoned(_))), "{done:?}");
    session.free(&copy).expect("nothing names it any more");
}

#[test]
fn a_parked_batch_is_told_by_where_it_was_submitted() {
    let device = device(64);
    let mut session = Cpu::check();
    let [stream] = streams(&mut session, &device);
    let gate = session.semaphore("gate");
    let fence = submit(&mut session, stream, |batch| batch.wait_semaphore(gate, 1)).unwrap();
    for text in [session.leaks().to_string(), session.describe(&fence)] {
        assert!(text.contains("given_up.rs"), "{text}");
    }
}

#[test]
fn a_drain_does_not_pass_over_what_was_given_up() {
    let device = device(64);
    let mut session = Cpu::check().with_patience(patience());
    let [stream] = streams(&mut session, &device);
    let semaphore = session.semaphore("s");
    submit(&mut session, stream, |batch| batch.launch("before", &nothing(), [], [])).unwrap();
    submit(&mut session, stream, |batch| {
        batch.wait_semaphore(semaphore, 1).launch("never", &nothing(), [], [])
    })
    .unwrap();
    session.close(semaphore).unwrap();
    for _ in 0..2 {
        let failed = session.drain(stream, patience()).unwrap_err().to_string();
        assert!(failed.contains("semaphore s got to 0"), "{failed}");
    }
    session.reopen(stream).unwrap();
    session.drain(stream, patience()).unwrap();
}
