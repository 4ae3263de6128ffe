//! Queues that are full, and credits.

use std::sync::Arc;

use pontoon_signal::shim::{AtomicU32, Ordering::Relaxed};

use super::*;

#[test]
fn credits_hold_back_and_one_more_unblocks() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let spec = QueueSpec { credits: Some(2), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "small").unwrap();
    let stream = session.stream_over(queue, "small").unwrap();
    let other = compute(&mut session, &device, "other");
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    for _ in 0..2 {
        let waits = relay(&mut session, Some((x, 1)), None, "waits");
        session.submit(stream, waits).unwrap();
    }
    let third = relay(&mut session, None, None, "third");
    let full = session.try_submit(stream, third).unwrap_err();
    assert!(matches!(full.why, Refusal::Full { holds: 2, .. }), "{full}");
    // Waiting for a credit would be for ever: only the host could let the first go.
    let deadlock = session.submit(stream, full.batch).unwrap_err();
    let said = circle(deadlock.why);
    assert!(said.contains("one of the 2 credits of queue small"), "{said}");
    // What another parked batch waits for gets in beyond the credits.
    let waits = relay(&mut session, Some((y, 1)), Some((x, 1)), "other");
    session.submit(other, waits).unwrap();
    let circle_closed = relay(&mut session, None, Some((y, 1)), "signals");
    let said = circle(session.submit(stream, circle_closed).unwrap_err().why);
    assert!(said.contains("behind"), "{said}");
    session.signal(y, 1).unwrap();
    session.drain(stream, patience()).unwrap();
}

#[test]
fn a_full_queue_gives_the_batch_back() {
    let device = CpuDevice::open(Rank(0), CpuSpec { depth: 2, ..CpuSpec::default() }).unwrap();
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "deep");
    let buffer = numbers(&device, 1);
    let (add, double, open) = (add(), double(), Arc::new(AtomicU32::new(0)));
    let held = Kernel::new({
        let open = Arc::clone(&open);
        move |_| {
            while open.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
        }
    });
    // The first one finds no room for two.
    session.launch(stream, "held", &held, [], []).unwrap();
    for round in 0..50 {
        let mut batch = session.batch();
        batch.launch("double", &double, [buffer.write(..)], []);
        batch.launch("add", &add, [buffer.write(..)], [1]);
        let batch = batch.seal().unwrap();
        if let Err(full) = session.try_submit(stream, batch) {
            assert!(matches!(full.why, Refusal::Full { holds: 2, .. }), "{full}");
            open.store(1, Relaxed);
            session.submit(stream, full.batch).unwrap();
        } else {
            assert!(round > 0, "a queue of two commands took three");
        }
    }
    let expected = (0..50).fold(0_u32, |x, _| x.wrapping_mul(2).wrapping_add(1));
    assert_eq!(session.to_vec(&buffer).unwrap(), [expected]);
    let mut batch = session.batch();
    for _ in 0..3 {
        batch.launch("add", &add, [buffer.write(..)], [1]);
    }
    let long = session.submit(stream, batch.seal().unwrap()).unwrap_err();
    assert!(matches!(long.why, Refusal::TooLong { commands: 3, depth: 2, .. }), "{long}");
}
