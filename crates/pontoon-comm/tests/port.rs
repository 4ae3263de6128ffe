//! Ports between two ranks of one process.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::{BYTES, hasty, open, pair, patient, settings};
use pontoon_comm::{Comm, CommError, DoubleBuffer, Mode, Port, SendError, Settings, Strong, Weak};
use pontoon_hal::link::{LinkError, Operation, Order};
use pontoon_signal::{Bound, Ending, Rank, Reason, Seq};

const MODES: [Mode; 2] = [Mode::Ring, Mode::Direct];

/// Waits until the proxy goes round so many rings.
fn wait_for_lanes(comm: &Comm, lanes: u64) {
    let started = Instant::now();
    while comm.report().lanes != lanes {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", comm.report());
        thread::yield_now();
    }
}

/// A port in each mode, over slots 0 and 1.
fn ports(side: &common::Side, comm: &Comm) -> [Port; 2] {
    let mut slot = 0;
    MODES.map(|mode| {
        let port = side.port(comm, slot).in_mode(mode).expect("mapped");
        slot += 1;
        port
    })
}

#[test]
fn what_is_put_arrives_before_its_signal() {
    for start in [0, u64::MAX - 3] {
        let mut chosen = settings();
        (chosen.start, chosen.depth) = (Seq::new(start), 8);
        let ([zero, one], comm) = (pair(), open(0, chosen));
        for (slot, port) in (0..).zip(ports(&zero, &comm)) {
            let heard = one.incoming(slot);
            for number in 1..=100_u64 {
                zero.words(0, 64).fill(number);
                let bytes = &*zero.words(0, 64);
                let mut ticket = port.put_signal(bytes, 512, 1, Weak).expect("room");
                heard.wait_ge_bounded(Seq::new(number), patient()).expect("arrives").acq_fence();
                assert!(one.landed(512, 64).iter().all(|word| *word == number), "{port:?}");
                ticket.wait(patient()).expect("done");
            }
        }
    }
}

#[test]
fn what_is_got_is_there_when_the_ticket_is_done() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    for port in ports(&zero, &comm) {
        for number in 1..=50_u64 {
            one.landed(64, 32).fill(number);
            let into = zero.words(4096, 32);
            into.fill(0);
            let mut ticket = port.get(64, into).expect("room");
            ticket.wait(patient()).expect("done");
            assert!(zero.words(4096, 32).iter().all(|word| *word == number), "{port:?}");
        }
    }
}

#[test]
fn values_reach_the_peer() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    for port in ports(&zero, &comm) {
        one.landed(0, 4).fill(0);
        for value in [7, u64::MAX, 0, 1 << 40] {
            port.put_value(value, 8).expect("room").wait(patient()).expect("done");
            port.flush(patient()).expect("performed");
            assert_eq!(one.landed(0, 4)[1], value);
        }
    }
}

/// One signal for many puts: it vouches for all of them.
#[test]
fn a_batch_is_one_hand_over() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    for (slot, port) in (0..).zip(ports(&zero, &comm)) {
        let heard = one.incoming(slot);
        for number in 1..=100_u64 {
            for part in 0..31 {
                zero.words(part * 128, 16).fill(number * 100 + part as u64);
            }
            let mut batch = port.batch();
            for part in 0..31 {
                batch.put(&*zero.words(part * 128, 16), part * 256).expect("in the port's memory");
            }
            batch.signal(1).expect("a signal");
            let more = batch.signal(1).expect_err("33 calls");
            assert_eq!(more, SendError::BatchFull);
            let mut ticket = batch.send().expect("room");
            heard.wait_ge_bounded(Seq::new(number), patient()).expect("arrives").acq_fence();
            for part in 0..31 {
                let landed = one.landed(part * 256, 16);
                assert!(landed.iter().all(|word| *word == number * 100 + part as u64), "{port:?}");
            }
            ticket.wait(patient()).expect("done");
        }
    }
}

/// Several kernels on several rings, and a signal that several share.
#[test]
fn many_kernels_send_at_once() {
    const KERNELS: usize = 4;
    const EACH: u64 = 2_000;
    let mut chosen = settings();
    (chosen.rings, chosen.depth, chosen.batch) = (3, 16, 4);
    chosen.patience = Duration::from_secs(60);
    let ([zero, one], comm) = (pair(), open(0, chosen));
    let shared = zero.port(&comm, 63).in_mode(Mode::Ring).expect("always");
    thread::scope(|scope| {
        for kernel in 0..KERNELS {
            let port = zero.port(&comm, kernel as u32).in_mode(Mode::Ring).expect("always");
            let (zero, shared) = (&zero, shared.clone());
            scope.spawn(move || {
                let place = kernel * 4096;
                for number in 1..=EACH {
                    let words = zero.words(place, 8);
                    words.fill(number);
                    port.put_signal(&*words, place, 1, Weak)
                        .expect("room")
                        .wait(patient())
                        .expect("done");
                    shared.signal(1, Weak).expect("room").wait(patient()).expect("done");
                }
            });
        }
    });
    for kernel in 0..KERNELS {
        let heard = one.incoming(kernel as u32);
        heard.wait_ge_bounded(Seq::new(EACH), patient()).expect("arrives").acq_fence();
        assert!(one.landed(kernel * 4096, 8).iter().all(|word| *word == EACH));
    }
    assert_eq!(one.incoming(63).value(), Seq::new(KERNELS as u64 * EACH));
    let report = comm.report();
    assert_eq!((report.rings, report.tasks, report.queued), (3, 2 * KERNELS as u64 * EACH, 0));
}

#[test]
fn the_report_tells_of_the_deepest_queue_and_of_the_proxys_rounds() {
    const TASKS: u64 = 40;
    let mut eight = settings();
    eight.batch = 8;
    let ([zero, _one], comm) = (pair(), open(0, eight));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    port.put_value(1, 0).expect("room").wait(patient()).expect("done");
    assert_eq!(comm.report().deepest, 1);
    comm.stop_proxy(true);
    for _ in 0..TASKS {
        std::mem::forget(port.put_value(1, 0).expect("room"));
    }
    assert_eq!((comm.report().deepest, comm.report().queued), (1, TASKS));
    comm.stop_proxy(false);
    port.quiet(patient()).expect("done");
    let report = comm.report();
    assert_eq!((report.deepest, report.queued), (TASKS, 0));
    assert!(report.busy_rounds >= 1 && report.idle_rounds >= 1, "{report:?}");
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_sent() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let foreign = [0_u64; 8];
    for port in ports(&zero, &comm) {
        let words = zero.words(0, 8);
        let past = BYTES - 56;
        for (error, part) in [
            (port.put(&foreign, 0).map(drop), "64 bytes are not in the memory"),
            (port.put_signal(&*words, past, 1, Weak).map(drop), "1048520..1048584 are not within"),
            (port.put(&*words, usize::MAX).map(drop), "of 1048576 bytes of rank 1"),
            (port.put_value(1, BYTES - 7).map(drop), "are not within the region"),
            (port.get(BYTES, words).map(drop), "are not within the region"),
        ] {
            let error = error.expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(port.signal(0, Weak).map(drop), Err(SendError::Zero));
        assert_eq!(port.put_signal(&*zero.words(0, 8), 0, 0, Weak).map(drop), Err(SendError::Zero));
        assert_eq!(port.batch().signal(0), Err(SendError::Zero));
    }
    let without =
        comm.port(&zero.link, zero.source.clone(), zero.target.clone(), None).expect("a port");
    for mode in MODES {
        let without = without.in_mode(mode).expect("mapped");
        let error = without.put_signal(&*zero.words(0, 8), 0, 1, Weak).expect_err("no signal");
        assert_eq!(error, SendError::NoSignal);
        assert_eq!(without.signal(1, Weak).map(drop), Err(SendError::NoSignal));
    }
    assert_eq!(comm.report().tasks, 0);
    // A port of one peer with the signal of another.
    let signal = one.link.attach_signal(Rank(0), 9).expect("a slot");
    let mixed = comm.port(&zero.link, zero.source.clone(), zero.target.clone(), Some(signal));
    assert_eq!(mixed.expect_err("mixed"), CommError::Link(LinkError::Foreign("a signal")));
}

#[test]
fn settings_out_of_range_are_named() {
    let one_off = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        Comm::open(Rank(0), settings).expect_err("refused").to_string()
    };
    for (error, part) in [
        (one_off(|it| it.depth = 0), "depth is 0, and has to be a power of two"),
        (one_off(|it| it.depth = 48), "depth is 48"),
        (one_off(|it| it.rings = 0), "rings is 0, and has to be from 1 to 64"),
        (one_off(|it| it.batch = 0), "batch is 0"),
        (one_off(|it| it.stall = Duration::ZERO), "stall is 0ns, and has to be at least 1ms"),
        (one_off(|it| it.patience = Duration::ZERO), "patience is 0ns"),
    ] {
        assert!(error.contains(part), "{error}");
    }
}

/// A wait through a proxy that is gone ends within its bound, or sooner with the reason.
#[test]
fn a_proxy_that_vanishes_is_an_outcome() {
    let mut chosen = hasty();
    chosen.patience = Duration::from_secs(20);
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    let words = &*zero.words(0, 8);
    port.put(words, 0).expect("room").wait(patient()).expect("it lives");
    comm.kill_proxy();
    for bound in [Duration::from_millis(5), Duration::from_millis(100)] {
        let mut ticket = port.signal(1, Weak).expect("room");
        let started = Instant::now();
        let error = ticket.wait(Bound::within(bound)).expect_err("nobody does it");
        let took = started.elapsed();
        assert!(matches!(error, SendError::TimedOut { .. }), "{error}");
        assert!(took >= bound && took < bound + Duration::from_secs(5), "{took:?}");
    }
    let mut ticket = port.signal(1, Weak).expect("room");
    let error = ticket.wait(patient()).expect_err("nobody does it");
    assert!(matches!(error, SendError::Stalled { .. }), "{error}");
    assert!(error.to_string().starts_with("the proxy has stood still for "), "{error}");
    assert!(matches!(port.quiet(patient()), Err(SendError::Stalled { .. })));
    // The ring fills up, and who finds no room is told the cause.
    let refused = (0..600).find_map(|_| port.put_value(1, 0).map(drop).err());
    let refused = refused.expect("512 slots").to_string();
    assert!(refused.starts_with("the proxy has stood still for "), "{refused}");
}

#[test]
fn a_proxy_that_stands_still_is_told_of_and_goes_on() {
    let ([zero, one], comm) = (pair(), open(0, hasty()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    comm.stop_proxy(true);
    let error = port.signal(1, Weak).expect("room").wait(patient()).expect_err("it stands");
    assert!(matches!(error, SendError::Stalled { peer: Rank(1), .. }), "{error}");
    assert_eq!(one.incoming(0).value(), Seq::new(0));
    comm.stop_proxy(false);
    port.signal(1, Weak).expect("room").wait(patient()).expect("it goes on");
    // What was asked for meanwhile was late, and not lost.
    one.incoming(0).wait_ge_bounded(Seq::new(2), patient()).expect("both").acq_fence();
}

#[test]
fn a_peer_that_ends_is_an_outcome_of_what_is_under_way_and_of_all_after_it() {
    let ([zero, _one], comm) = (pair(), open(0, settings()));
    let [ring, direct] = ports(&zero, &comm);
    let words = &*zero.words(0, 8);
    ring.put(words, 0).expect("room").wait(patient()).expect("alive");
    zero.link.end_peer(Rank(1), Ending::PeerDead { rank: Rank(1) });
    let error = ring.put(words, 0).and_then(|mut ticket| ticket.wait(patient())).expect_err("dead");
    assert!(error.is_peer_lost(), "{error}");
    let error = ring.put(words, 0).map(drop).expect_err("dead");
    assert!(error.is_peer_lost() && error.to_string().contains("rank 1 is dead"), "{error}");
    let error = direct.put(words, 0).map(drop).expect_err("dead");
    assert!(error.is_peer_lost() && error.to_string().contains("rank 1 is dead"), "{error}");
}

/// What is in the rings is done before the proxy ends, and what comes after is refused.
#[test]
fn dropping_finishes_and_refuses() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    for _ in 0..200 {
        let sent = port.signal(1, Weak).expect("room").detach();
        drop(sent);
    }
    drop(comm);
    assert_eq!(one.incoming(0).value(), Seq::new(200));
    let error = port.signal(1, Weak).map(drop).expect_err("over");
    let closed = Ending::Aborted { reason: Reason::small(0x203), by: Rank(0) };
    assert!(format!("{error:?}").contains(&format!("{closed:?}")), "{error:?}");
    assert!(error.to_string().contains("the Comm was dropped"), "{error}");
}

/// An idle proxy sleeps, and a task that comes then is done all the same.
#[test]
fn a_proxy_that_sleeps_is_woken() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    let heard = one.incoming(0);
    for number in 1..=20 {
        thread::sleep(Duration::from_millis(15));
        let mut ticket = port.signal(1, Weak).expect("room");
        heard.wait_ge_bounded(Seq::new(number), patient()).expect("arrives").acq_fence();
        ticket.wait(patient()).expect("done");
    }
}

/// The host prepares, and a kernel fires: three bytes ranges and one signal, each time anew.
#[test]
fn a_trigger_does_what_was_prepared_each_time_it_is_fired() {
    for start in [0, u64::MAX - 5] {
        let mut chosen = settings();
        (chosen.start, chosen.batch) = (Seq::new(start), 3);
        let ([zero, one], comm) = (pair(), open(0, chosen));
        let port = zero.port(&comm, 0);
        let prepare = port.prepare().put(0..64, 0).and_then(|it| it.put(64..128, 4096));
        let trigger = prepare.and_then(|it| it.put(0..8, 8192)?.signal(2)).expect("in range");
        let trigger = trigger.arm().expect("a proxy");
        let heard = one.incoming(0);
        for number in 1..=50_u64 {
            zero.words(0, 16).fill(number);
            let mut ticket = trigger.fire().expect("open");
            heard.wait_ge_bounded(Seq::new(2 * number), patient()).expect("arrives").acq_fence();
            for (at, len) in [(0, 8), (4096, 8), (8192, 1)] {
                assert!(one.landed(at, len).iter().all(|word| *word == number), "at {at}");
            }
            ticket.wait(patient()).expect("done");
        }
        // Fired ahead of the proxy, none is lost.
        (0..100).for_each(|_| drop(trigger.fire().expect("open").detach()));
        trigger.fire().expect("open").wait(patient()).expect("done");
        assert_eq!(one.incoming(0).value(), Seq::new(2 * 151));
        drop(comm);
        let error = trigger.fire().map(drop).expect_err("over").to_string();
        assert!(error.contains("the Comm was dropped"), "{error}");
    }
}

/// What was prepared goes by the ports that it was prepared over, though they are gone and others are there.
#[test]
fn a_trigger_outlives_its_ports() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let bulk = comm.port(&zero.link, zero.source.clone(), zero.target.clone(), None);
    let (bulk, tell) = (bulk.expect("a port"), zero.port(&comm, 0));
    let calls = tell.prepare().put_by(&bulk, 0..64, 4096).and_then(|it| it.signal(1));
    let trigger = calls.expect("in range").arm().expect("a proxy");
    drop((bulk, tell));
    let mut others = Vec::new();
    for round in 1..=20 {
        // Mostly they get the numbers of those before.
        let other = zero.port(&comm, round).in_mode(Mode::Ring).expect("always");
        other.signal(1, Weak).expect("room").wait(patient()).expect("done");
        if round.is_multiple_of(2) {
            others.push(other);
        }
        zero.words(0, 8).fill(round.into());
        trigger.fire().expect("open").wait(patient()).expect("done");
        assert_eq!(one.incoming(0).value(), Seq::new(round.into()));
        assert!(one.landed(4096, 8).iter().all(|word| *word == u64::from(round)), "{round}");
        assert_eq!(one.incoming(round).value(), Seq::new(1));
    }
}

/// A signal is had again once its port is gone and the proxy has come round.
#[test]
fn a_port_that_is_dropped_gives_its_signal_back() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    for number in 1..=200 {
        let started = Instant::now();
        let signal = loop {
            match zero.link.attach_signal(zero.peer(), 0) {
                Ok(signal) => break signal,
                Err(error) => assert!(started.elapsed() < Duration::from_secs(30), "{error}"),
            }
            thread::yield_now();
        };
        let (source, target) = (zero.source.clone(), zero.target.clone());
        let port = comm.port(&zero.link, source, target, Some(signal)).expect("a port");
        let port = port.in_mode(Mode::Ring).expect("always");
        drop(port.signal(1, Weak).expect("room").detach());
        drop(port);
        one.incoming(0).wait_ge_bounded(Seq::new(number), patient()).expect("arrives").acq_fence();
    }
}

#[test]
fn what_cannot_be_prepared_is_refused() {
    let ([zero, _one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0);
    let backwards = std::ops::Range { start: 9, end: 8 };
    for (from, to, part) in [
        (0..BYTES + 1, 0, "bytes 0..1048577 are not within the region of 1048576 bytes of rank 0"),
        (backwards, 0, "bytes 9..8 are not within"),
        (0..64, BYTES - 8, "of rank 1"),
    ] {
        let error = port.prepare().put(from, to).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(port.prepare().arm().expect_err("nothing"), CommError::Nothing);
    let without =
        comm.port(&zero.link, zero.source.clone(), zero.target.clone(), None).expect("a port");
    assert!(matches!(without.prepare().signal(1), Err(SendError::NoSignal)));
}

/// A port that chooses tries both ways, keeps the order, and can say why.
#[test]
fn a_port_that_chooses_measures_both_ways() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0);
    assert_eq!(port.mode(), None);
    assert!(port.why(64).to_string().contains("not yet measured"), "{}", port.why(64));
    let heard = one.incoming(0);
    for number in 1..=2_000_u64 {
        zero.words(0, 8).fill(number);
        let mut ticket = port.put_signal(&*zero.words(0, 8), 0, 1, Strong).expect("room");
        ticket.wait(patient()).expect("done");
        heard.wait_ge_bounded(Seq::new(number), patient()).expect("arrives").acq_fence();
        assert!(one.landed(0, 8).iter().all(|word| *word == number), "{number}");
    }
    assert!(comm.report().tasks > 0, "some went by the ring");
    let why = port.why(64);
    assert!(why.cost.iter().all(Option::is_some), "{why}");
    let fixed = port.in_mode(Mode::Ring).expect("always");
    assert_eq!((fixed.mode(), fixed.why(64).mode), (Some(Mode::Ring), Mode::Ring));
}

/// What goes directly never passes what is in the ring.
#[test]
fn a_port_that_chooses_keeps_the_order() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0);
    comm.stop_proxy(true);
    zero.words(0, 1)[0] = 1;
    let ring = port.in_mode(Mode::Ring).expect("always");
    let first = ring.put(&*zero.words(0, 1), 0).expect("room").detach();
    zero.words(8, 1)[0] = 2;
    let second = port.put_signal(&*zero.words(8, 1), 0, 1, Strong).expect("room").detach();
    assert_eq!(one.landed(0, 1)[0], 0, "both wait for the proxy");
    comm.stop_proxy(false);
    one.incoming(0).wait_ge_bounded(Seq::new(1), patient()).expect("arrives").acq_fence();
    assert_eq!(one.landed(0, 1)[0], 2);
    assert!(second.seq.is_at_or_past(first.seq));
}

/// One half is filled while the other is on its way, and none is written before it was read.
#[test]
fn halves_take_turns() {
    let mut chosen = settings();
    (chosen.batch, chosen.patience) = (1, Duration::from_secs(60));
    let ([zero, one], comm) = (pair(), open(0, chosen));
    for (slot, port) in (0..).zip(ports(&zero, &comm)) {
        let heard = one.incoming(slot);
        let mut buffer = DoubleBuffer::over(&port, zero.words(0, 1025));
        for round in 1..=500_u64 {
            let mut half = buffer.fill(patient()).expect("sent");
            assert_eq!(half.len(), 512);
            half.fill(round);
            // Each round to a place of its own, so that it can be looked at later.
            half.send_signal(4096 * (round as usize % 64), 1).expect("room");
            heard.wait_ge_bounded(Seq::new(round), patient()).expect("arrives").acq_fence();
            let landed = one.landed(4096 * (round as usize % 64), 512);
            assert!(landed.iter().all(|word| *word == round), "{round}");
        }
        buffer.finish(patient()).expect("done");
    }
}

/// A half whose sending fails is not given out again as if it had been sent.
#[test]
fn a_half_that_cannot_be_sent_says_so() {
    let ([zero, _one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    let mut buffer = DoubleBuffer::over(&port, zero.words(0, 16));
    let half = buffer.fill(patient()).expect("free");
    let error = half.send(BYTES).expect_err("outside");
    assert!(matches!(error, SendError::OutOfRange { .. }), "{error}");
    comm.stop_proxy(true);
    for _ in 0..2 {
        buffer.fill(patient()).expect("free").send(0).expect("room");
    }
    let short = Bound::within(Duration::from_millis(20));
    assert!(matches!(buffer.fill(short).map(drop), Err(SendError::TimedOut { .. })));
    comm.stop_proxy(false);
    buffer.finish(patient()).expect("done");
}

/// A ticket that was not done in time keeps its bytes, and can be waited for again.
#[test]
fn a_ticket_that_was_late_is_waited_for_again() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    comm.stop_proxy(true);
    one.landed(0, 8).fill(9);
    let into = zero.words(0, 8);
    let mut ticket = port.get(0, into).expect("room");
    let short = Bound::within(Duration::from_millis(5));
    assert!(matches!(ticket.wait(short), Err(SendError::TimedOut { .. })));
    comm.stop_proxy(false);
    ticket.wait(patient()).expect("done at last");
    assert_eq!(zero.words(0, 8), [9; 8]);
}

/// Dropped before it is done, and not done within the patience: what was not begun never is, so that the bytes
/// are the caller's again.
#[test]
fn what_is_given_up_is_not_begun_any_more() {
    let ([zero, one], comm) = (pair(), open(0, hasty()));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    comm.stop_proxy(true);
    one.landed(0, 8).fill(9);
    drop(port.get(0, zero.words(0, 8)).expect("room"));
    zero.words(0, 8).fill(7);
    comm.stop_proxy(false);
    wait_for_lanes(&comm, 0);
    assert_eq!(zero.words(0, 8), [7; 8], "fetched after it was given up");
    let error = port.put_value(1, 0).map(drop).expect_err("its ring has ended").to_string();
    assert!(error.contains("a kernel gave up on what it had asked for"), "{error}");
    // Other rings are not touched by that.
    let other = zero.port(&comm, 1).in_mode(Mode::Direct).expect("mapped");
    other.signal(1, Weak).expect("alive").wait(patient()).expect("done");
}

/// Who opens a port after a ring was given up has one of those that are left.
#[test]
fn a_port_goes_by_a_ring_that_has_not_ended() {
    let mut chosen = hasty();
    chosen.rings = 2;
    let ([zero, one], comm) = (pair(), open(0, chosen));
    let port = |slot| zero.port(&comm, slot).in_mode(Mode::Ring).expect("always");
    let [given_up, other] = [0, 1].map(port);
    comm.stop_proxy(true);
    drop(given_up.get(0, zero.words(0, 8)).expect("room"));
    comm.stop_proxy(false);
    wait_for_lanes(&comm, 1);
    for port in [2, 3, 4].map(port).iter().chain([&other]) {
        port.signal(1, Weak).expect("it takes tasks").wait(patient()).expect("done");
    }
    assert!(given_up.signal(1, Weak).is_err());
    assert_eq!([1, 2, 3, 4].map(|slot| one.incoming(slot).value()), [Seq::new(1); 4]);
}

/// Strong vouches for all that was asked before, whatever ring and mode it went by.
#[test]
fn strong_covers_other_rings_and_modes() {
    const WORDS: usize = 32 << 10;
    let mut chosen = settings();
    chosen.rings = 2;
    let ([zero, one], comm) = (pair(), open(0, chosen));
    // Ports are dealt to rings in turn: these two have one each.
    let (bulk, tell) = (zero.port(&comm, 0), zero.port(&comm, 1));
    let bulk = bulk.in_mode(Mode::Ring).expect("always");
    let heard = one.incoming(1);
    let mut number = 0_u64;
    for mode in MODES {
        let tell = tell.in_mode(mode).expect("mapped");
        for _ in 0..100 {
            number += 1;
            zero.words(0, WORDS).fill(number);
            let mut first = bulk.put(&*zero.words(0, WORDS), 0).expect("room");
            let mut second = tell.signal(1, Strong).expect("room");
            heard.wait_ge_bounded(Seq::new(number), patient()).expect("arrives").acq_fence();
            let last = one.landed(8 * (WORDS - 1), 1)[0];
            assert_eq!(last, number, "told of before it was there, {mode:?}");
            first.wait(patient()).expect("done");
            second.wait(patient()).expect("done");
        }
    }
}

/// Threads that use one signal wait for each other, however long a copy takes.
#[test]
fn threads_that_share_a_port_wait_for_each_other() {
    let mut chosen = settings();
    chosen.patience = Duration::from_secs(60);
    let ([zero, one], comm) = (pair(), open(0, chosen));
    let port = zero.port(&comm, 0).in_mode(Mode::Direct).expect("mapped");
    thread::scope(|scope| {
        for large in [true, false] {
            let (port, zero) = (port.clone(), &zero);
            scope.spawn(move || {
                let bytes = &*zero.words(0, if large { BYTES / 8 } else { 1 });
                for _ in 0..200 {
                    drop(port.put_signal(bytes, 0, 1, Weak).expect("its turn comes"));
                }
            });
        }
    });
    assert_eq!(one.incoming(0).value(), Seq::new(400));
}

/// A full ring is waited for as long as the port's own patience, and a proxy that stands still is named.
#[test]
fn a_call_waits_for_room_as_long_as_it_is_told() {
    let mut chosen = hasty();
    (chosen.depth, chosen.patience) = (4, Duration::from_secs(60));
    let ([zero, _one], comm) = (pair(), open(0, chosen));
    let port = zero.port(&comm, 0).in_mode(Mode::Ring).expect("always");
    comm.stop_proxy(true);
    let fill = || (0..4).for_each(|_| drop(port.signal(1, Weak).expect("room")));
    fill();
    let short = port.with_patience(Duration::from_millis(10));
    let started = Instant::now();
    let error = short.signal(1, Weak).map(drop).expect_err("no room");
    assert!(matches!(error, SendError::Push { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let error = port.signal(1, Weak).map(drop).expect_err("it stands still");
    assert!(matches!(error, SendError::Stalled { .. }), "{error}");
    comm.stop_proxy(false);
}

#[test]
fn nothing_can_be_sent() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    for (slot, port) in (0..).zip(ports(&zero, &comm)) {
        let nothing: [u64; 0] = [];
        port.put(&nothing, 0).expect("nothing to do").wait(patient()).expect("done");
        port.put_signal(&nothing, BYTES, 1, Weak).expect("room").wait(patient()).expect("done");
        assert_eq!(one.incoming(slot).value(), Seq::new(1));
    }
}

#[test]
fn a_port_explains_what_its_link_inserts() {
    let ([zero, _one], comm) = (pair(), open(0, settings()));
    let port = zero.port(&comm, 0);
    for order in [Order::Strong, Order::Weak] {
        let said = port.explain(Operation::WriteSignal(order)).expect("it knows").to_string();
        let link = zero.link.explain(zero.peer(), Operation::WriteSignal(order)).expect("it knows");
        assert_eq!(said, link.to_string());
    }
}
