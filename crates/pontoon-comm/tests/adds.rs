//! Additions to a peer's words, which nobody has to wait for.
#![cfg(not(pontoon_loom))]

mod common;

use std::{thread, time::Duration};

use common::{BYTES, Side, open, pair, patient, settings, words};
use pontoon_comm::{Comm, Mode, Port, SendError, Settings, Strong};
use pontoon_signal::{Block, Rank, Seq};

const MODES: [Mode; 2] = [Mode::Ring, Mode::Direct];

/// A port in each mode, over slots 0 and 1.
fn ports(side: &Side, comm: &Comm) -> [Port; 2] {
    let port = |slot: u32| side.port(comm, slot).in_mode(MODES[slot as usize]).expect("mapped");
    [port(0), port(1)]
}

/// Settings by which a proxy that gets little of a busy machine does not stand still.
fn unhurried() -> Settings {
    let mut settings = settings();
    (settings.stall, settings.patience) = (Duration::from_secs(60), Duration::from_secs(60));
    settings
}

/// Some fit one slot of a ring, others take four.
const AMOUNTS: [u64; 7] = [0, 1, (1 << 28) - 1, 1 << 28, 1 << 40, u64::MAX, u64::MAX - 7];

#[test]
fn an_addition_wraps_and_brings_what_was_there() {
    for start in [0, u64::MAX - 5] {
        let mut chosen = unhurried();
        (chosen.start, chosen.depth) = (Seq::new(start), 8);
        let ([zero, one], comm) = (pair(), open(0, chosen));
        for port in ports(&zero, &comm) {
            one.landed(0, 4).fill(7);
            let mut sum = 7_u64;
            for amount in AMOUNTS {
                port.atomic_add(16, amount).expect("room").wait(patient()).expect("done");
                sum = sum.wrapping_add(amount);
                let into = &mut zero.words(64, 3)[1];
                let mut ticket = port.atomic_fetch_add(16, amount, into).expect("room");
                ticket.wait(patient()).expect("done");
                drop(ticket);
                assert_eq!(zero.words(64, 3), [0, sum, 0], "{port:?}, {amount}");
                sum = sum.wrapping_add(amount);
                port.flush(patient()).expect("performed");
                assert_eq!(one.landed(0, 4), [7, 7, sum, 7], "{port:?}, {amount}");
            }
        }
        // An addition moves a word, however large it is.
        let report = comm.report();
        let by_ring = 2 * AMOUNTS.len() as u64;
        assert_eq!((report.tasks, report.bytes), (by_ring, 8 * by_ring));
    }
}

/// A port that chooses makes them by both ways, and none is lost or made twice.
#[test]
fn a_port_that_chooses_adds_by_both_ways() {
    const ROUNDS: u64 = 2_000;
    let ([zero, one], comm) = (pair(), open(0, unhurried()));
    let port = zero.port(&comm, 0);
    for round in 0..ROUNDS {
        let into = &mut zero.words(0, 1)[0];
        port.atomic_fetch_add(0, 1, into).expect("room").wait(patient()).expect("done");
        assert_eq!(zero.words(0, 1), [round]);
    }
    let by_ring = comm.report().tasks;
    assert!(by_ring > 0 && by_ring < ROUNDS, "{by_ring} of {ROUNDS} went by the ring");
    assert_eq!(one.landed(0, 1), [ROUNDS]);
}

/// Kernels of one rank, by rings of their own, by one that they share, and directly, all to one word.
#[test]
fn of_many_that_add_to_one_word_none_is_lost() {
    const KERNELS: usize = 4;
    const ROUNDS: u64 = 500;
    const WINDOW: usize = 8;
    let mut chosen = unhurried();
    (chosen.rings, chosen.depth, chosen.batch) = (3, 16, 4);
    let ([zero, one], comm) = (pair(), open(0, chosen));
    let mut found: Vec<u64> = thread::scope(|scope| {
        let kernels: Vec<_> = (0..KERNELS)
            .map(|kernel| {
                let mode = if kernel == 0 { Mode::Direct } else { Mode::Ring };
                let (zero, port) = (&zero, zero.port(&comm, kernel as u32));
                let port = port.in_mode(mode).expect("mapped");
                scope.spawn(move || {
                    let mut found = Vec::new();
                    for _ in 0..ROUNDS {
                        let words = zero.words(kernel * 4096, WINDOW);
                        let places = words.iter_mut();
                        let add = |place| port.atomic_fetch_add(8, 1, place).expect("room");
                        let tickets: Vec<_> = places.map(add).collect();
                        for mut ticket in tickets {
                            ticket.wait(patient()).expect("done");
                        }
                        found.extend_from_slice(zero.words(kernel * 4096, WINDOW));
                        // Of 0: what it brings is no number of its own.
                        let none = port.atomic_add(8, 0).expect("room").detach();
                        drop(none);
                    }
                    found
                })
            })
            .collect();
        kernels.into_iter().flat_map(|kernel| kernel.join().expect("its panic was told")).collect()
    });
    found.sort_unstable();
    let all: Vec<u64> = (0..found.len() as u64).collect();
    assert_eq!(all.len(), KERNELS * ROUNDS as usize * WINDOW);
    assert!(found == all, "two found the same");
    assert_eq!(one.landed(0, 2), [0, all.len() as u64]);
}

/// A strong signal covers additions as it covers bytes.
#[test]
fn a_signal_vouches_for_the_additions_before_it() {
    let ([zero, one], comm) = (pair(), open(0, unhurried()));
    for (slot, port) in (0..).zip(ports(&zero, &comm)) {
        let heard = one.incoming(slot);
        one.landed(0, 1).fill(0);
        for round in 1..=500_u64 {
            port.atomic_add(0, 2).expect("room").detach();
            port.signal(1, Strong).expect("room").detach();
            heard.wait_ge_bounded(Seq::new(round), patient()).expect("arrives").acq_fence();
            assert_eq!(one.landed(0, 1), [2 * round], "{port:?}");
        }
    }
}

#[test]
fn what_is_no_word_is_refused_and_nothing_is_added() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let mut elsewhere = 5_u64;
    for port in ports(&zero, &comm) {
        let into = &mut zero.words(0, 1)[0];
        for (error, part) in [
            (port.atomic_add(4, 1).map(drop), "no word is at offset 4"),
            (port.atomic_fetch_add(12, 1, into).map(drop), "no word is at offset 12"),
            (port.atomic_add(BYTES, 1).map(drop), "1048576..1048584 are not within"),
            (port.atomic_add(BYTES - 4, 1).map(drop), "are not within the region"),
            (port.atomic_add(usize::MAX - 3, 1).map(drop), "are not within the region"),
            (port.atomic_fetch_add(usize::MAX - 7, 1, into).map(drop), "are not within"),
            (
                port.atomic_fetch_add(0, 1, &mut elsewhere).map(drop),
                "8 bytes are not in the memory",
            ),
            (port.batch().atomic_add(4, 1), "no word is at offset 4"),
            (port.batch().atomic_add(BYTES, 1), "are not within the region"),
            (port.prepare().atomic_add(4, 1).map(drop), "no word is at offset 4"),
            (port.prepare().atomic_add(BYTES, 1).map(drop), "are not within the region"),
        ] {
            let error = error.expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
    assert_eq!((comm.report().tasks, zero.words(0, 1)[0], elsewhere), (0, 0, 5));
    assert!(one.landed(0, BYTES / 8).iter().all(|word| *word == 0));
}

/// Words are where their addresses say, also in memory and in regions that begin off a word.
#[test]
fn words_are_found_by_their_addresses() {
    let ([zero, one], comm) = (pair(), open(0, settings()));
    let [whole, theirs] = [&zero, &one]
        .map(|side| side.segment.allocate(64).expect("room").part(4..60).expect("within"));
    let source = zero.link.register(&whole).expect("registered");
    let far = one.link.register(&theirs).expect("registered");
    let target = zero.link.attach(Rank(1), far.key().expect("a key")).expect("attached");
    let port = comm.port(&zero.link, source, target, None).expect("a port");
    let [here, there] = [&whole, &theirs].map(|block: &Block| block.part(4..12).expect("within"));
    let (into, there) = (&mut words(&here, 0, 1)[0], &words(&there, 0, 1)[0]);
    for (round, mode) in (0..).zip(MODES) {
        let port = port.in_mode(mode).expect("mapped");
        for at in [0, 8] {
            let told =
                [port.atomic_add(at, 1).map(drop), port.atomic_fetch_add(at, 1, into).map(drop)];
            assert_eq!(told, [(); 2].map(|()| Err(SendError::Misaligned { offset: at })));
        }
        port.atomic_fetch_add(4, 3, into).expect("room").wait(patient()).expect("done");
        assert_eq!((*into, *there), (3 * round, 3 * round + 3));
    }
}

#[test]
fn a_batch_adds_among_its_puts() {
    let ([zero, one], comm) = (pair(), open(0, unhurried()));
    for (slot, port) in (0..).zip(ports(&zero, &comm)) {
        let heard = one.incoming(slot);
        one.landed(0, 3).fill(0);
        let mut sum = 0_u64;
        for round in 1..=100_u64 {
            let amount = AMOUNTS[round as usize % AMOUNTS.len()];
            zero.words(0, 1).fill(round);
            let mut batch = port.batch();
            batch.atomic_add(8, amount).expect("a word");
            batch.put(&*zero.words(0, 1), 0).expect("in the port's memory");
            batch.atomic_add(16, 1).expect("a word");
            batch.signal(1).expect("a signal");
            let mut ticket = batch.send().expect("room");
            heard.wait_ge_bounded(Seq::new(round), patient()).expect("arrives").acq_fence();
            sum = sum.wrapping_add(amount);
            assert_eq!(one.landed(0, 3), [round, sum, round], "{port:?}");
            ticket.wait(patient()).expect("done");
        }
    }
}

/// A trigger's additions go where the port leads that prepared them, whichever it is of its ring.
#[test]
fn a_trigger_adds_where_its_port_leads() {
    let ([zero, one], comm) = (pair(), open(0, unhurried()));
    let parts = [0, 1].map(|_| {
        let block = one.segment.allocate(64).expect("room");
        let key = one.link.register(&block).expect("registered");
        let target = zero.link.attach(Rank(1), key.key().expect("a key")).expect("attached");
        let port = comm.port(&zero.link, zero.source.clone(), target, None).expect("a port");
        (port, block, key)
    });
    let [(first, there, _), (second, elsewhere, _)] = &parts;
    let found = || [there, elsewhere].map(|block| words(block, 8, 1)[0]);
    zero.words(0, 1).fill(9);
    let fire = |prepared: Result<pontoon_comm::Prepare<'_>, SendError>| {
        let trigger = prepared.expect("in range").arm().expect("a proxy");
        trigger.fire().expect("open").wait(patient()).expect("done");
    };
    fire(second.prepare().atomic_add(8, 5));
    assert_eq!(found(), [0, 5]);
    fire(first.prepare().put_by(second, 0..8, 0).and_then(|it| it.atomic_add(8, 3)));
    assert_eq!(found(), [3, 5]);
    assert_eq!([there, elsewhere].map(|block| words(block, 0, 1)[0]), [0, 9]);
}

/// A trigger counts at the peer, beside its puts.
#[test]
fn a_trigger_adds_each_time_it_is_fired() {
    let mut chosen = unhurried();
    (chosen.start, chosen.batch) = (Seq::new(u64::MAX - 5), 2);
    let ([zero, one], comm) = (pair(), open(0, chosen));
    let port = zero.port(&comm, 0);
    let prepare = port.prepare().atomic_add(8, 3).and_then(|it| it.put(0..8, 0));
    let trigger = prepare.and_then(|it| it.atomic_add(16, 1 << 40)?.signal(1)).expect("in range");
    let trigger = trigger.arm().expect("a proxy");
    let heard = one.incoming(0);
    for number in 1..=50_u64 {
        zero.words(0, 1).fill(number);
        let mut ticket = trigger.fire().expect("open");
        heard.wait_ge_bounded(Seq::new(number), patient()).expect("arrives").acq_fence();
        assert_eq!(one.landed(0, 3), [number, 3 * number, number << 40]);
        ticket.wait(patient()).expect("done");
    }
    (0..100).for_each(|_| drop(trigger.fire().expect("open").detach()));
    trigger.fire().expect("open").wait(patient()).expect("done");
    assert_eq!(one.landed(0, 3)[1..], [3 * 151, 151 << 40]);
}
