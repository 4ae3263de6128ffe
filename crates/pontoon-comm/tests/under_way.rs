//! A proxy over links on which things stay under way: what is told when, and how much is taken at once.
#![cfg(not(pontoon_loom))]

mod common;
#[path = "common/held.rs"]
mod held;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{BYTES, Side, open, pair, settings, words};
use held::{Before, Gate, Held, Line, Log, settle, until};
use pontoon_comm::{Comm, CommError, Mode, Port, SendError, Settings, Strong, Vouches, Weak};
use pontoon_hal::link::{Link, LinkError, Order, Registered, Remote};
use pontoon_shm::identity;
use pontoon_signal::{Block, Bound, Ending, Rank, Segment, SegmentShape, Seq};

/// What is under way on a link in the proxy at most.
const UNDER_WAY_MAX: usize = 4096;
/// With how many bytes a turn of a ring ends.
const TURN_BYTES: usize = 1 << 20;

/// Far beyond what anything here takes, and less than what [`patiently`] calls standing still.
fn in_time() -> Bound {
    Bound::within(Duration::from_secs(20))
}

/// Settings by which only what is told ends a wait here.
fn patiently() -> Settings {
    let mut settings = settings();
    // For what a test leaves under way when it drops its `Comm`.
    settings.patience = Duration::from_millis(500);
    settings
}

/// Keeps the proxy at a gate, within a call of a link of its own.
fn stand(zero: &Side, comm: &Comm) -> Arc<Gate> {
    let (link, gate) = (Held::over(zero, "gate", &Log::default()), Arc::<Gate>::default());
    link.before(Before::Gate { at: 1, gate: Arc::clone(&gate), panics: false });
    // Done at once, so that nothing is left of it.
    link.complete(1);
    let port = link.port(zero, comm, 63);
    drop(port.signal(1, Weak).expect("room").detach());
    gate.reached();
    gate
}

fn lines(log: &Log) -> Vec<Line> {
    log.lock().expect("whole").clone()
}

fn names(log: &Log) -> String {
    lines(log).iter().map(|(name, ..)| *name).collect()
}

/// N1: neither that it was posted nor that it was performed makes it done; the link's counter does.
#[test]
fn a_task_is_done_when_the_link_says_so_and_no_sooner() {
    let ([zero, one], comm) = (pair(), open(0, patiently()));
    let link = Held::over(&zero, "a", &Log::default());
    let port = link.port(&zero, &comm, 0);
    zero.words(0, 8).fill(7);
    let (first, second) = zero.words(0, 8).split_at(4);
    let tickets = [(first, 0), (second, 32)].map(|(bytes, to)| port.put(bytes, to).expect("room"));
    until("both posts", || link.posted() == 2);
    settle(&comm);
    assert_eq!(tickets.each_ref().map(|ticket| ticket.is_done()), [Ok(false), Ok(false)]);
    link.perform(2);
    settle(&comm);
    assert_eq!(one.landed(0, 8), [7; 8]);
    assert_eq!(tickets.each_ref().map(|ticket| ticket.is_done()), [Ok(false), Ok(false)]);
    link.complete(1);
    let [mut first, mut second] = tickets;
    first.wait(in_time()).expect("done");
    settle(&comm);
    assert_eq!(second.is_done(), Ok(false));
    assert_eq!(port.progress().taken.ahead_of(port.progress().done), 1);
    link.complete(1);
    second.wait(in_time()).expect("done");
}

/// N1: what an addition brings is the caller's once the link says so, and no sooner.
#[test]
fn an_addition_is_done_when_the_link_says_so() {
    let ([zero, one], comm) = (pair(), open(0, patiently()));
    let link = Held::over(&zero, "a", &Log::default());
    let port = link.port(&zero, &comm, 0);
    one.landed(0, 2).fill(5);
    let into = &mut zero.words(0, 1)[0];
    let mut tickets = [port.atomic_add(0, 3), port.atomic_fetch_add(8, u64::MAX, into)]
        .map(|ticket| ticket.expect("room"));
    until("both posts", || link.posted() == 2);
    link.perform(2);
    settle(&comm);
    assert_eq!(one.landed(0, 2), [8, 4]);
    assert_eq!(tickets.each_ref().map(|ticket| ticket.is_done()), [Ok(false), Ok(false)]);
    link.complete(1);
    tickets[0].wait(in_time()).expect("done");
    settle(&comm);
    assert_eq!(tickets[1].is_done(), Ok(false));
    link.complete(1);
    tickets[1].wait(in_time()).expect("done");
    drop(tickets);
    assert_eq!(zero.words(0, 1), [5]);
}

/// Dropped before it is done, and not done within the patience: what was not begun never is.
#[test]
fn an_addition_that_is_given_up_is_not_made() {
    let ([zero, one], comm) = (pair(), open(0, patiently()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    let gate = stand(&zero, &comm);
    zero.words(0, 1).fill(7);
    let ticket = port.atomic_fetch_add(0, 1, &mut zero.words(0, 1)[0]).expect("room");
    let started = Instant::now();
    drop(ticket);
    assert!(started.elapsed() >= Duration::from_millis(250), "its ticket did not wait");
    gate.open();
    settle(&comm);
    assert_eq!((zero.words(0, 1), one.landed(0, 1)), (&mut [7][..], &mut [0][..]));
    let error = port.atomic_add(0, 1).map(drop).expect_err("its ring has ended").to_string();
    assert!(error.contains("a kernel gave up on what it had asked for"), "{error}");
}

/// An addition that brings nothing borrows nothing, so nobody waits for it.
#[test]
fn an_addition_without_a_place_is_dropped_at_once() {
    let ([zero, one], comm) = (pair(), open(0, patiently()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    let gate = stand(&zero, &comm);
    let tickets: Vec<_> = (0..8).map(|_| port.atomic_add(0, 1).expect("room")).collect();
    drop(tickets);
    assert_eq!(one.landed(0, 1), [0]);
    gate.open();
    port.flush(in_time()).expect("performed");
    assert_eq!(one.landed(0, 1), [8]);
}

/// Y3 and L9: who waits for what is under way when the link ends is told, and what was done stays done.
#[test]
fn a_link_that_ends_ends_what_is_under_way() {
    for ending in [Ending::LinkFailed { code: -5 }, Ending::PeerDead { rank: Rank(1) }] {
        let ([zero, _one], comm) = (pair(), open(0, patiently()));
        let (link, other) =
            (Held::over(&zero, "a", &Log::default()), Held::over(&zero, "b", &Log::default()));
        let (port, going_on) = (link.port(&zero, &comm, 0), other.port(&zero, &comm, 1));
        let tickets: Vec<_> =
            (0..3).map(|_| port.signal(1, Weak).expect("room").detach()).collect();
        until("the posts", || link.posted() == 3);
        let mut last = port.signal(1, Weak).expect("room");
        until("the last post", || link.posted() == 4);
        link.complete(2);
        until("two to be told of", || tickets[1].slot.value().is_at_or_past(tickets[1].seq));
        link.end(ending);
        let error = last.wait(in_time()).expect_err("never done");
        let SendError::Ended { ending: told, done, wanted, .. } = error else { panic!("{error}") };
        assert_eq!((told, done, wanted), (ending, Seq::new(2), Seq::new(4)));
        let refused = port.signal(1, Weak).map(drop).expect_err("over");
        assert!(refused.is_peer_lost(), "{refused}");
        let mut ticket = going_on.signal(1, Weak).expect("room");
        other.complete(1);
        ticket.wait(in_time()).expect("another link goes on");
    }
}

#[test]
fn what_is_under_way_has_a_limit() {
    let mut chosen = patiently();
    chosen.depth = 8192;
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let link = Held::over(&zero, "a", &Log::default());
    let port = link.port(&zero, &comm, 0);
    let all = UNDER_WAY_MAX + 1000;
    for _ in 0..all {
        drop(port.signal(1, Weak).expect("room").detach());
    }
    until("all that may be under way", || link.posted() >= UNDER_WAY_MAX);
    settle(&comm);
    assert_eq!(link.posted(), UNDER_WAY_MAX);
    link.complete(10);
    until("ten more", || link.posted() >= UNDER_WAY_MAX + 10);
    settle(&comm);
    assert_eq!(link.posted(), UNDER_WAY_MAX + 10);
    link.complete(UNDER_WAY_MAX as u32 - 10);
    until("the rest", || link.posted() == all);
    link.complete(1000);
    port.quiet(in_time()).expect("done");
}

/// What a signal vouches for is the kernel's to say, and the link is told just that.
#[test]
fn the_order_of_a_signal_reaches_the_link() {
    const WEAK: Order = Order::Weak;
    const STRONG: Order = Order::Strong;
    let ([zero, one], comm, log) = (pair(), open(0, patiently()), Log::default());
    let link = Held::over(&zero, "a", &log);
    let port = link.port(&zero, &comm, 0);
    fn both<O: Vouches>(port: &Port, bytes: &[u64], order: O) {
        drop(port.signal(1, order).expect("room").detach());
        drop(port.put_signal(bytes, 0, 1, order).expect("room").detach());
    }
    let bytes = &*zero.words(0, 4);
    both(&port, bytes, Weak);
    both(&port, bytes, Strong);
    both(&port, bytes, Weak);
    both(&port, bytes, Strong);
    both(&port, bytes, Strong);
    drop(port.put(bytes, 0).expect("room").detach());
    let mut batch = port.batch();
    batch.signal(1).expect("room");
    drop(batch.send().expect("room").detach());
    until("the posts", || link.posted() == 12);
    let orders: Vec<_> = lines(&log).iter().map(|(.., order)| *order).collect();
    let mut wanted: Vec<_> =
        [WEAK, WEAK, STRONG, STRONG, WEAK, WEAK, STRONG, STRONG, STRONG, STRONG].map(Some).into();
    wanted.extend([None, Some(STRONG)]);
    assert_eq!(orders, wanted);
    link.perform(12);
    link.complete(12);
    port.flush(in_time()).expect("performed");
    assert_eq!(one.incoming(0).value(), Seq::new(11));
}

/// The same of calls that are made directly, and of triggers, whose signal vouches for all before it.
#[test]
fn the_order_of_a_signal_reaches_the_link_whoever_makes_the_call() {
    let ([zero, _one], comm, log) = (pair(), open(0, patiently()), Log::default());
    let link = Held::mapped(&zero, "a", &log);
    let port = link.port(&zero, &comm, 0).in_mode(Mode::Direct).expect("mapped");
    let bytes = &*zero.words(0, 4);
    drop(port.signal(1, Weak).expect("made"));
    drop(port.put_signal(bytes, 0, 1, Strong).expect("made"));
    drop(port.signal(1, Strong).expect("made"));
    drop(port.put_signal(bytes, 0, 1, Weak).expect("made"));
    let mut batch = port.batch();
    batch.put(bytes, 0).and_then(|()| batch.signal(1)).expect("room");
    drop(batch.send().expect("made"));
    let trigger = port.prepare().put(0..8, 0).and_then(|it| it.signal(1)).expect("in range");
    let trigger = trigger.arm().expect("a proxy");
    drop(trigger.fire().expect("open"));
    until("the posts", || link.posted() == 8);
    let orders: Vec<_> = lines(&log).iter().map(|(.., order)| *order).collect();
    let (weak, strong) = (Some(Order::Weak), Some(Order::Strong));
    assert_eq!(orders, [weak, strong, strong, weak, None, strong, None, strong]);
}

/// A firing wakes a proxy that sleeps, too.
#[test]
fn a_firing_wakes_a_proxy_that_sleeps() {
    let mut chosen = patiently();
    (chosen.spins, chosen.yields) = (0, 0);
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let port = zero.port(&comm, 0);
    let trigger = port.prepare().signal(1).expect("it has one").arm().expect("a proxy");
    let before = comm.report().wakes;
    until("the proxy to be woken 100 times", || {
        trigger.fire().expect("open").wait(in_time()).expect("done");
        comm.report().wakes >= before + 100
    });
}

/// Y1: a ring has its batch, and then it is the next one's turn.
#[test]
fn a_turn_ends_after_its_batch() {
    let mut chosen = patiently();
    chosen.batch = 4;
    let ([zero, _one], comm, log) = (pair(), open(0, chosen), Log::default());
    let links = ["a", "b"].map(|name| Held::over(&zero, name, &log));
    let ports = [(&links[0], 0), (&links[1], 1)].map(|(link, slot)| link.port(&zero, &comm, slot));
    let gate = stand(&zero, &comm);
    for port in ports.iter().flat_map(|port| [port; 10]) {
        drop(port.signal(1, Weak).expect("room").detach());
    }
    gate.open();
    until("all posts", || links.iter().all(|link| link.posted() == 10));
    assert_eq!(names(&log), "aaaabbbbaaaabbbbaabb");
}

/// Y1 by bytes: what is small waits for one large task, and not for a batch of them.
#[test]
fn a_small_task_gets_through_between_large_ones() {
    for (bytes, wanted) in [(TURN_BYTES, "abbaaa"), (TURN_BYTES / 2, "aabbaa"), (8, "aaaabb")] {
        let ([zero, _one], comm, log) = (pair(), open(0, patiently()), Log::default());
        let (large, small) = (Held::over(&zero, "a", &log), Held::over(&zero, "b", &log));
        let ports = (large.port(&zero, &comm, 0), small.port(&zero, &comm, 1));
        let gate = stand(&zero, &comm);
        let source = &*zero.words(0, BYTES / 8);
        for _ in 0..4 {
            drop(ports.0.put(&source[..bytes / 8], 0).expect("room").detach());
        }
        for _ in 0..2 {
            drop(ports.1.put(&source[..1], 0).expect("room").detach());
        }
        gate.open();
        until("all posts", || large.posted() == 4 && small.posted() == 2);
        assert_eq!(names(&log), wanted, "in pieces of {bytes} bytes");
    }
}

/// A port of `link` between made-up memory of three turns, for bytes that are never performed.
fn wide_port(zero: &Side, comm: &Comm, link: &Arc<Held>, block: &Block) -> Port {
    let source = Registered::new(block.clone(), None, Arc::new(()));
    let target = Remote::new(zero.peer(), block.bytes(), Arc::new(()));
    let link: Arc<dyn Link> = Arc::clone(link) as _;
    comm.port(&link, source, target, None).expect("a port")
}

fn three_turns() -> Block {
    let shape = SegmentShape::new(1, 1, 4 * TURN_BYTES);
    let segment = Segment::create(shape, identity([1; 16], Rank(0), 1, 0)).expect("memory");
    segment.allocate(3 * TURN_BYTES).expect("room")
}

fn put(port: &Port, block: &Block, count: usize, bytes: usize) {
    for _ in 0..count {
        drop(port.put(&*words(block, 0, bytes / 8), 0).expect("room").detach());
    }
}

/// Y1 by bytes: rings that are never empty have the same part, however large their tasks are.
#[test]
fn what_a_large_task_takes_beyond_its_turn_is_made_up_for() {
    for (bytes, wanted) in [(TURN_BYTES, "abababbbb"), (3 * TURN_BYTES, "abbbabbba")] {
        let ([zero, _one], comm, log) = (pair(), open(0, patiently()), Log::default());
        let (block, links) = (three_turns(), ["a", "b"].map(|name| Held::over(&zero, name, &log)));
        let [large, small] = links.each_ref().map(|link| wide_port(&zero, &comm, link, &block));
        let gate = stand(&zero, &comm);
        put(&large, &block, 3, bytes);
        put(&small, &block, 6, TURN_BYTES);
        gate.open();
        until("all posts", || links[0].posted() == 3 && links[1].posted() == 6);
        assert_eq!(names(&log), wanted, "in pieces of {bytes} bytes");
    }
}

/// What waits for its part is something to do: a `Comm` that is dropped does it.
#[test]
fn dropping_finishes_what_waits_for_its_part() {
    let mut chosen = patiently();
    chosen.patience = Duration::from_secs(20);
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let (block, link) = (three_turns(), Held::over(&zero, "a", &Log::default()));
    let port = wide_port(&zero, &comm, &link, &block);
    let gate = stand(&zero, &comm);
    link.complete(3);
    put(&port, &block, 3, 3 * TURN_BYTES);
    thread::scope(|scope| {
        scope.spawn(|| drop(comm));
        // Mostly it is told to end before it goes on.
        thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    assert_eq!(link.posted(), 3);
}

/// What is large is told of once it is done, and its slots are free, though others of its batch are not
/// posted yet.
#[test]
fn the_first_of_many_large_tasks_is_told_of_before_the_last_is_posted() {
    let ([zero, _one], comm) = (pair(), open(0, patiently()));
    let (link, gate) = (Held::over(&zero, "a", &Log::default()), Arc::<Gate>::default());
    let port = link.port(&zero, &comm, 0);
    let start = stand(&zero, &comm);
    link.before(Before::Gate { at: 8, gate: Arc::clone(&gate), panics: false });
    // Those that the link is done with at once.
    link.complete(7);
    let source = &*zero.words(0, BYTES / 8);
    let mut tickets: Vec<_> = (0..8).map(|_| port.put(source, 0).expect("room")).collect();
    start.open();
    gate.reached();
    let mut last = tickets.pop().expect("eight");
    for mut ticket in tickets {
        ticket.wait(in_time()).expect("done, while the last is not posted");
    }
    assert_eq!(last.is_done(), Ok(false));
    assert_eq!(port.progress().taken, Seq::new(7));
    gate.open();
    link.complete(1);
    last.wait(in_time()).expect("done");
}

/// Y2: a proxy within one long batch is no proxy that stands still.
#[test]
fn a_proxy_beats_within_a_batch() {
    let mut chosen = patiently();
    chosen.stall = Duration::from_secs(2);
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let link = Held::over(&zero, "a", &Log::default());
    let port = link.port(&zero, &comm, 0);
    let start = stand(&zero, &comm);
    // All are one turn, of more than twice what is called standing still.
    let count = TURN_BYTES / (64 << 10);
    link.before(Before::Pause(Duration::from_millis(300)));
    let source = &*zero.words(0, (64 << 10) / 8);
    for _ in 0..count {
        drop(port.put(source, 0).expect("room").detach());
    }
    start.open();
    thread::scope(|scope| {
        scope.spawn(|| {
            until("all posts", || link.posted() == count);
            link.complete(count as u32);
        });
        port.quiet(in_time()).expect("it works all the while");
    });
}

/// L4: what is done on this side need not be performed there; flush asks the link.
#[test]
fn a_flush_is_the_links_too() {
    let ([zero, one], comm) = (pair(), open(0, patiently()));
    let link = Held::over(&zero, "a", &Log::default());
    let port = link.port(&zero, &comm, 0);
    zero.words(0, 1)[0] = 9;
    let mut ticket = port.put(&*zero.words(0, 1), 0).expect("room");
    until("the post", || link.posted() == 1);
    link.complete(1);
    ticket.wait(in_time()).expect("done");
    let error = port.flush(in_time()).expect_err("not performed");
    assert!(matches!(error, SendError::Link(LinkError::TimedOut { .. })), "{error}");
    link.perform(1);
    port.flush(in_time()).expect("performed");
    assert_eq!(one.landed(0, 1), [9]);
}

/// Y3: a ring that the proxy never came to see ends with it, for the same reason.
#[test]
fn a_proxy_that_panics_ends_rings_that_it_has_not_found_yet() {
    let ([zero, _one], comm) = (pair(), open(0, patiently()));
    let (link, gate) = (Held::over(&zero, "a", &Log::default()), Arc::<Gate>::default());
    link.before(Before::Gate { at: 1, gate: Arc::clone(&gate), panics: true });
    let port = link.port(&zero, &comm, 0);
    let ticket = port.signal(1, Weak).expect("room");
    gate.reached();
    let late = Held::over(&zero, "b", &Log::default()).port(&zero, &comm, 1);
    let waiting = late.signal(1, Weak).expect("the proxy is alive yet");
    gate.open();
    for mut ticket in [ticket, waiting] {
        let error = ticket.wait(in_time()).expect_err("nobody does it").to_string();
        assert!(error.contains("the proxy's thread is gone"), "{error}");
    }
    let refused = late.signal(1, Weak).map(drop).expect_err("nobody takes it").to_string();
    assert!(refused.contains("the proxy's thread is gone"), "{refused}");
}

/// Who pushes rings the bell: a proxy that sleeps does not have its sleep out.
#[test]
fn a_push_wakes_a_proxy_that_sleeps() {
    let mut chosen = patiently();
    (chosen.spins, chosen.yields) = (0, 0);
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let port = zero.port(&comm, 0).in_mode(pontoon_comm::Mode::Ring).expect("always");
    let before = comm.report().wakes;
    until("the proxy to be woken 100 times", || {
        port.signal(1, Weak).expect("room").wait(in_time()).expect("done");
        comm.report().wakes >= before + 100
    });
}

/// What was fired is done though nobody has the trigger any more; then the proxy forgets it, and who waits
/// for what was never fired is told.
#[test]
fn a_trigger_that_is_dropped_does_what_was_fired_and_is_forgotten() {
    let ([zero, one], comm) = (pair(), open(0, patiently()));
    let link = Held::over(&zero, "a", &Log::default());
    let port = link.port(&zero, &comm, 0);
    until("the ring to be found", || comm.report().lanes == 1);
    let prepare = || port.prepare().put(0..64, 0).and_then(|it| it.signal(1)).expect("in range");
    let (trigger, unfired) = (prepare().arm().expect("a proxy"), prepare().arm().expect("a proxy"));
    until("the triggers to be found", || comm.report().lanes == 3);
    let fired = [trigger.fire(), trigger.fire()].map(|ticket| ticket.expect("open").detach());
    let never = trigger.done(3);
    let clone = trigger.clone();
    drop((trigger, unfired));
    until("what was never fired to be forgotten", || comm.report().lanes == 2);
    until("the posts", || link.posted() == 4);
    drop(clone);
    settle(&comm);
    assert_eq!(comm.report().lanes, 2, "something is under way yet");
    assert_eq!(fired[0].slot.ending(), None);
    link.perform(4);
    link.complete(4);
    for sent in fired {
        let waiter = sent.slot.uncounted_waiter();
        waiter.wait_ge_bounded(sent.seq, in_time()).expect("done").acq_fence();
    }
    assert_eq!(one.incoming(0).value(), Seq::new(2));
    let waited = never.slot.uncounted_waiter().wait_ge_bounded(never.seq, in_time()).map(drop);
    let ending = waited.expect_err("nobody can fire it").ending();
    assert!(matches!(ending, Some(Ending::Aborted { .. })), "{ending:?}");
    until("the trigger to be forgotten", || comm.report().lanes == 1);
}

/// A port over `link` between memory here and a region, and what says whether anybody has these yet.
fn counted_port(zero: &Side, comm: &Comm, link: &Arc<Held>, block: &Block) -> (Port, Arc<()>) {
    let used = Arc::new(());
    let source = Registered::new(block.clone(), None, Arc::clone(&used) as _);
    let target = Remote::new(zero.peer(), block.bytes(), Arc::clone(&used) as _);
    let link: Arc<dyn Link> = Arc::clone(link) as _;
    (comm.port(&link, source, target, None).expect("a port"), used)
}

fn is_used(used: &Arc<()>) -> bool {
    Arc::strong_count(used) > 1
}

/// C2: what a port was opened over is in use until the link is done with the last of its tasks.
#[test]
fn a_port_that_is_dropped_is_given_back_when_what_it_asked_for_is_done() {
    for start in [0, u64::MAX - 1] {
        let mut chosen = patiently();
        (chosen.start, chosen.depth) = (Seq::new(start), 8);
        let ([zero, _one], comm) = (pair(), open(0, chosen));
        let (block, link) = (three_turns(), Held::over(&zero, "a", &Log::default()));
        let [(first, used), (second, stays)] =
            [(); 2].map(|()| counted_port(&zero, &comm, &link, &block));
        // Of the same ring, and one after the other.
        let ask = |port: &Port| drop(port.put_value(1, 0).expect("room").detach());
        [&first, &second, &first, &second].into_iter().for_each(ask);
        until("the posts", || link.posted() == 4);
        let clone = first.clone();
        drop(first);
        link.complete(1);
        settle(&comm);
        ask(&clone);
        drop(clone);
        until("the last post", || link.posted() == 5);
        settle(&comm);
        assert!(is_used(&used), "four are under way");
        link.complete(3);
        settle(&comm);
        assert!(is_used(&used), "its last is under way");
        link.complete(1);
        until("it to be given back", || !is_used(&used));
        assert!(is_used(&stays));
        ask(&second);
        until("one more post", || link.posted() == 6);
        link.complete(1);
        second.quiet(in_time()).expect("done");
    }
}

/// A ring that ends gives back what it had at once, whoever has the port yet.
#[test]
fn a_ring_that_ends_keeps_nothing_of_ports_that_are_gone() {
    let ([zero, _one], comm) = (pair(), open(0, patiently()));
    let (block, link) = (three_turns(), Held::over(&zero, "a", &Log::default()));
    let (port, used) = counted_port(&zero, &comm, &link, &block);
    drop(port.put_value(1, 0).expect("room").detach());
    until("the post", || link.posted() == 1);
    drop(port);
    settle(&comm);
    assert!(is_used(&used));
    link.end(Ending::LinkFailed { code: -5 });
    until("it to be given back", || !is_used(&used));
    let (late, used) = counted_port(&zero, &comm, &link, &block);
    let refused = late.put_value(1, 0).map(drop).expect_err("its ring has ended");
    assert!(refused.is_peer_lost(), "{refused}");
    drop(late);
    assert!(!is_used(&used), "there is nobody who would look it up");
}

/// A trigger keeps what it was prepared over, and no number of it.
#[test]
fn a_trigger_keeps_what_it_was_prepared_over() {
    let ([zero, one], comm) = (pair(), open(0, patiently()));
    let link = Held::over(&zero, "a", &Log::default());
    let [(bulk, used), (other, _)] =
        [(); 2].map(|()| counted_port(&zero, &comm, &link, zero.source.block()));
    let tell = link.port(&zero, &comm, 0);
    let prepared =
        tell.prepare().put_by(&bulk, 0..64, 0).and_then(|it| it.put_by(&bulk, 0..64, 64));
    let trigger = prepared.and_then(|it| it.signal(1)).expect("in range").arm().expect("a proxy");
    drop((bulk, tell));
    settle(&comm);
    // Their numbers are of others by now.
    let others = [1, 2].map(|slot| link.port(&zero, &comm, slot));
    others.iter().for_each(|port| drop(port.signal(1, Weak).expect("room").detach()));
    until("the posts of others", || link.posted() == 2);
    let fired = trigger.fire().expect("open").detach();
    drop(trigger);
    until("the posts", || link.posted() == 5);
    settle(&comm);
    assert!(is_used(&used), "it is under way");
    assert_eq!(one.incoming(0).value(), Seq::new(0));
    link.complete(5);
    let waiter = fired.slot.uncounted_waiter();
    waiter.wait_ge_bounded(fired.seq, in_time()).expect("done").acq_fence();
    // What the test's link keeps of the two puts.
    until("it to be given back", || Arc::strong_count(&used) == 1 + 2 * 2);
    drop(other);
}

/// As many as come and go: far more than there are numbers.
#[test]
fn ports_come_and_go_for_ever() {
    let mut chosen = patiently();
    (chosen.rings, chosen.patience) = (2, Duration::from_secs(20));
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let (block, link) = (three_turns(), Held::over(&zero, "a", &Log::default()));
    let (stays, used_yet) = counted_port(&zero, &comm, &link, &block);
    let all = Arc::new(());
    for number in 0..200_000 {
        let source = Registered::new(block.clone(), None, Arc::clone(&all) as _);
        let target = Remote::new(zero.peer(), block.bytes(), Arc::clone(&all) as _);
        let over: Arc<dyn Link> = Arc::clone(&link) as _;
        let port = comm.port(&over, source, target, None).expect("a number is to be had");
        if number % 1_000 == 0 {
            drop(port.put_value(number, 0).expect("room").detach());
            drop(stays.put_value(number, 0).expect("room").detach());
            link.complete(2);
        }
    }
    until("all posts", || link.posted() == 400);
    until("all to be given back", || !is_used(&all));
    assert!(is_used(&used_yet));
    stays.quiet(in_time()).expect("done");
}

/// Numbers that only a proxy that does not get round keeps are waited for, and not for ever.
#[test]
fn a_port_waits_for_a_number_to_be_given_back() {
    const NUMBERS: usize = 1 << 16;
    let mut chosen = patiently();
    chosen.patience = Duration::from_secs(1);
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let (block, link) = (three_turns(), Held::over(&zero, "a", &Log::default()));
    let gate = stand(&zero, &comm);
    (0..NUMBERS).for_each(|_| drop(wide_port(&zero, &comm, &link, &block)));
    let over: Arc<dyn Link> = Arc::clone(&link) as _;
    let source = Registered::new(block.clone(), None, Arc::new(()));
    let one_more = || {
        let target = Remote::new(zero.peer(), block.bytes(), Arc::new(()));
        comm.port(&over, source.clone(), target, None)
    };
    let started = Instant::now();
    let error = one_more().expect_err("all are kept");
    assert_eq!(error, CommError::TooMany { peer: zero.peer() });
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    gate.open();
    let port = one_more().expect("the proxy gets round");
    drop(port.put_value(1, 0).expect("room").detach());
    until("the post", || link.posted() == 1);
}
