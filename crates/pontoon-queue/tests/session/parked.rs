//! Batches that wait for what nobody has submitted, and circles of them.

use super::*;

#[test]
fn a_wait_comes_before_its_signal() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let buffer = numbers(&device, 4);
    let (add, double) = (add(), double());
    let done = session.semaphore("done");
    let mut waits = session.batch();
    waits.wait_semaphore(done, 2).launch("double", &double, [buffer.write(..)], []);
    let doubled = session.submit(second, waits.seal().unwrap()).unwrap();
    assert_eq!(doubled.is_complete(), Ok(false));
    let asked = session.wait(&doubled, patience()).unwrap_err();
    let WaitFailure::Deadlock(deadlock) = asked else { panic!("{asked}") };
    assert!(deadlock.to_string().contains("semaphore done to reach 2"), "{deadlock}");

    let mut signals = session.batch();
    signals.launch("add", &add, [buffer.write(..)], [5]).signal(done, 3);
    session.submit(first, signals.seal().unwrap()).unwrap();
    let _ = session.wait(&doubled, patience()).unwrap();
    assert_eq!(doubled.is_complete(), Ok(true));
    assert_eq!(session.to_vec(&buffer).unwrap(), [10; 4]);
}

#[test]
fn a_wait_before_the_signal_of_its_own_queue_is_a_circle() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let stream = compute(&mut session, &device, "own");
    let semaphore = session.semaphore("s");
    let waits = relay(&mut session, Some((semaphore, 1)), None, "waits");
    session.submit(stream, waits).unwrap();
    let signals = relay(&mut session, None, Some((semaphore, 1)), "signals");
    let refused = session.submit(stream, signals).unwrap_err();
    assert_eq!(refused.batch.commands(), 1, "the batch comes back");
    let said = circle(refused.why);
    assert!(said.contains("signals (stream own) is behind waits (stream own)"), "{said}");
    // Another stream may still signal.
    let other = compute(&mut session, &device, "other");
    session.submit(other, refused.batch).unwrap();
    session.drain(stream, patience()).unwrap();
}

#[test]
fn two_streams_that_wait_for_each_other_are_a_circle() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    let one = relay(&mut session, Some((y, 1)), Some((x, 1)), "one");
    session.submit(first, one).unwrap();
    let two = relay(&mut session, Some((x, 1)), Some((y, 1)), "two");
    let said = circle(session.submit(second, two).unwrap_err().why);
    assert!(said.contains("one (stream a) waits for semaphore y"), "{said}");
    assert!(said.contains("two (stream b) waits for semaphore x"), "{said}");
}

#[test]
fn two_streams_over_one_queue_share_its_order() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let queue = session.queue(&device, QueueSpec::new(Kind::Compute), "hardware").unwrap();
    let [first, second] = ["a", "b"].map(|label| session.stream_over(queue, label).unwrap());
    let semaphore = session.semaphore("s");
    let waits = relay(&mut session, Some((semaphore, 1)), None, "waits");
    session.submit(first, waits).unwrap();
    let signals = relay(&mut session, None, Some((semaphore, 1)), "signals");
    let said = circle(session.submit(second, signals).unwrap_err().why);
    assert!(said.contains("behind waits (stream a) in queue hardware"), "{said}");
}

#[test]
fn collectives_in_opposite_order_are_a_circle() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (session.collective("x", 2), session.collective("y", 2));
    let member = |session: &mut Session<'_, CpuDevice>, id, label| {
        let mut batch = session.batch();
        batch.collective(id).launch(label, &Kernel::new(|_| {}), [], []);
        batch.seal().unwrap()
    };
    let batch = member(&mut session, x, "ax");
    session.submit(first, batch).unwrap();
    let batch = member(&mut session, y, "ay");
    let last = session.submit(first, batch).unwrap();
    let batch = member(&mut session, y, "by");
    session.submit(second, batch).unwrap();
    let batch = member(&mut session, x, "bx");
    let said = circle(session.submit(second, batch).unwrap_err().why);
    assert!(said.contains("by (stream b) waits for collective y"), "{said}");
    let third = compute(&mut session, &device, "c");
    let batch = member(&mut session, x, "cx");
    session.submit(third, batch).unwrap();
    let _ = session.wait(&last, patience()).unwrap();
}

#[test]
fn a_collective_orders_its_members_both_ways() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let streams = ["a", "b", "c"].map(|label| compute(&mut session, &device, label));
    let buffers = [0, 1, 2].map(|_| numbers(&device, 4));
    let all = session.collective("all", 3);
    let double = double();
    for (stream, own) in streams.iter().zip(&buffers) {
        session.launch(*stream, "before", &double, [own.write(..)], []).unwrap();
    }
    let mut fences = Vec::new();
    for (at, stream) in streams.iter().enumerate() {
        let mut batch = session.batch();
        // Reads what another wrote before.
        let from = buffers[(at + 1) % 3].read(..);
        batch.collective(all).launch("after", &Kernel::new(|_| {}), [from], []);
        fences.push(session.submit(*stream, batch.seal().unwrap()).unwrap());
    }
    for fence in &fences {
        let _ = session.wait(fence, patience()).unwrap();
    }
}

#[test]
fn a_closed_semaphore_fails_who_waits_at_once() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (session.semaphore("x"), session.semaphore("y"));
    let one = relay(&mut session, Some((x, 1)), Some((y, 1)), "one");
    let one = session.submit(first, one).unwrap();
    let two = relay(&mut session, Some((y, 1)), None, "two");
    let two = session.submit(second, two).unwrap();
    session.close(x).unwrap();
    for fence in [one, two] {
        let failed = session.wait(&fence, patience()).unwrap_err();
        assert!(failed.to_string().contains("semaphore x got to 0"), "{failed}");
        assert!(fence.wait(Bound::within(Duration::from_secs(30))).is_err());
    }
    let refused = relay(&mut session, None, None, "later");
    let refused = session.submit(first, refused).unwrap_err();
    assert!(matches!(refused.why, Refusal::Abandoned(_)), "{refused}");
}
