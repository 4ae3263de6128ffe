//! The three verbs and every way a wait can end, from counters that start anywhere.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{
    BehindCounter, Bound, ClaimError, Ending, Found, Host, Load, Nanos, NotAnnounced, Os, Producer,
    Rank, Reason, Seq, SignalTable, Sleeper, SlotId, TableShape, Wait, WaitError,
    shim::{AtomicU32, Ordering::Relaxed},
    wait_in_order,
};
use std::{
    fmt,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// Where the counters of each test start: at zero, and just before both widths wrap.
const STARTS: [u64; 3] = [0, u32::MAX as u64 - 1, u64::MAX - 1];
const SLOT: SlotId = SlotId::new(3, 2);

fn shape(start: Seq) -> TableShape {
    TableShape::new(2, 4).first_rank(Rank(3)).starting_at(start)
}

fn each_start(test: impl Fn(SignalTable, Seq)) {
    for start in STARTS.map(Seq::new) {
        test(SignalTable::in_process(shape(start)), start);
    }
}

/// Longer than any machine should take; a test that needs it has failed.
fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn short() -> Bound {
    Bound::within(Duration::from_millis(2))
}

fn reason(code: u32) -> Reason {
    Reason::new(code).unwrap()
}

#[test]
fn a_published_target_is_reached() {
    each_start(|table, start| {
        let (mut publisher, waiter) = (table.publisher(SLOT).unwrap(), table.waiter(SLOT).unwrap());
        assert_eq!((publisher.value(), waiter.value()), (start, start));
        assert!(waiter.try_wait(start + 1).unwrap().is_none());
        let mut at = start;
        for n in [1, 2, 3, u32::MAX, 1] {
            at = at + n;
            assert_eq!(publisher.pub_release(n), at);
            let observed = waiter.wait_ge_bounded(at, patient()).unwrap();
            assert_eq!(observed.value(), at);
            assert_eq!(observed.acq_fence().value(), at);
            assert!(waiter.try_wait(at + 1).unwrap().is_none());
        }
        let seen = waiter.wait_ge_bounded(start + 1, patient()).unwrap().value();
        assert_eq!(seen, at, "a wait for the past sees the present");
    });
}

#[test]
fn another_thread_is_waited_for() {
    each_start(|table, start| {
        let (ping, pong) = (SlotId::new(3, 0), SlotId::new(4, 0));
        let rounds = 200;
        let echo = thread::spawn({
            let (waiter, mut publisher) =
                (table.waiter(ping).unwrap(), table.publisher(pong).unwrap());
            move || {
                for round in 1..=rounds {
                    let _ = waiter.wait_ge_bounded(start + round, patient()).unwrap().acq_fence();
                    publisher.pub_release(1);
                }
            }
        });
        let (mut publisher, waiter) = (table.publisher(ping).unwrap(), table.waiter(pong).unwrap());
        for round in 1..=rounds {
            publisher.pub_release(1);
            let seen = waiter.wait_ge_bounded(start + round, patient()).unwrap().acq_fence();
            assert_eq!(seen.value(), start + round);
        }
        echo.join().unwrap();
    });
}

#[test]
fn a_time_out_has_all_that_is_known() {
    each_start(|table, start| {
        let waiter = table.waiter(SLOT).unwrap();
        let error = waiter.wait_ge_bounded(start + 1, short()).unwrap_err();
        let WaitError::TimedOut { at, waited, polls } = error else { panic!("{error}") };
        let expected = Found {
            slot: SLOT,
            found: start,
            wanted: start + 1,
            producer: None,
            publishes: 0,
            last_published: None,
        };
        assert_eq!(at, expected);
        assert!(waited >= Nanos(2_000_000) && polls > 0 && error.is_timeout());

        let mut publisher = table.publisher(SLOT).unwrap();
        publisher.pub_release(1);
        let error = waiter.wait_ge_bounded(start + 3, short()).unwrap_err();
        let WaitError::TimedOut { at, waited, .. } = error else { panic!("{error}") };
        let pid = std::process::id();
        assert_eq!(at.producer, Some(Producer { rank: Rank(3), generation: 1, pid }));
        assert_eq!((at.found, at.wanted), (start + 1, start + 3));
        assert!(at.last_published.is_some_and(|ago| ago >= waited), "{at:?} {waited}");
    });
}

#[test]
fn an_undated_publisher_keeps_no_time_and_its_ending() {
    each_start(|table, start| {
        let (waiter, slot) = (table.waiter(SLOT).unwrap(), table.slot(SLOT).unwrap());
        let mut publisher = table.publisher(SLOT).unwrap().undated();
        publisher.pub_release(2);
        assert_eq!(
            (slot.value(), slot.last_publish(), waiter.last_publish()),
            (start + 2, None, None)
        );
        drop(publisher);
        let error = waiter.wait_ge_bounded(start + 3, short()).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { .. }), "{error}");
        table.publisher(SLOT).unwrap().pub_release(1);
        assert!(waiter.last_publish().is_some());
    });
}

#[test]
fn errors_say_who_what_and_how_far() {
    let producer = Some(Producer { rank: Rank(3), generation: 2, pid: 7123 });
    let (found, wanted) = (Seq::new(41), Seq::new(42));
    let last_published = Some(Nanos(4_800_000));
    let at = Found { slot: SLOT, found, wanted, producer, publishes: 1, last_published };
    let timed_out = WaitError::TimedOut { at, waited: Nanos(5_000_000), polls: 9 };
    assert_eq!(
        timed_out.to_string(),
        "waited 5.0 ms for producer 3 slot 2 to reach 42; it is at 41, last published 4.8 ms ago \
         by pid 7123"
    );
    let never = Found { publishes: 0, last_published: None, ..at };
    assert_eq!(
        WaitError::PeerDead { at: never, rank: Rank(3) }.to_string(),
        "producer 3 is dead; waited for producer 3 slot 2 to reach 42; it is at 41, never \
         published by pid 7123"
    );
    let unnoted = Found { publishes: 41, last_published: None, ..at };
    let dropped = WaitError::Aborted { at: unnoted, reason: Reason::DROPPED, by: Rank(3) };
    assert_eq!(
        dropped.to_string(),
        "what should complete it was dropped; waited for producer 3 slot 2 to reach 42; it is at \
         41, published 41 times by pid 7123, which notes no time"
    );
    let unclaimed = Found { producer: None, ..never };
    assert_eq!(
        WaitError::LinkFailed { at: unclaimed, code: -5 }.to_string(),
        "the link failed (code -5); waited for producer 3 slot 2 to reach 42; it is at 41, and \
         nobody has claimed it"
    );
    assert_eq!(
        WaitError::Aborted { at, reason: reason(7), by: Rank(1) }.to_string(),
        "rank 1 aborted (reason 7) the wait for producer 3 slot 2 to reach 42; it is at 41, last \
         published 4.8 ms ago by pid 7123"
    );
}

#[test]
fn each_ending_is_an_outcome_of_its_own() {
    each_start(|table, start| {
        let waiter = table.waiter(SLOT).unwrap();
        for ending in [
            Ending::Aborted { reason: reason(Reason::MAX), by: Rank(9) },
            Ending::PeerDead { rank: Rank(3) },
            Ending::LinkFailed { code: i32::MIN },
        ] {
            let publisher = table.publisher(SLOT).unwrap();
            assert!(publisher.end(ending), "the first ending");
            let error = waiter.wait_ge_bounded(start + 1, patient()).unwrap_err();
            let seen = match error {
                WaitError::Aborted { reason, by, .. } => Ending::Aborted { reason, by },
                WaitError::PeerDead { rank, .. } => Ending::PeerDead { rank },
                WaitError::LinkFailed { code, .. } => Ending::LinkFailed { code },
                other => panic!("{other}"),
            };
            assert_eq!(seen, ending);
            assert_eq!((error.at().found, error.at().wanted), (start, start + 1));
            assert!(!error.is_timeout());
            assert!(waiter.try_wait(start + 1).is_err(), "and stays one");
        }
    });
}

#[test]
fn the_value_comes_before_the_ending() {
    each_start(|table, start| {
        let (mut publisher, waiter) = (table.publisher(SLOT).unwrap(), table.waiter(SLOT).unwrap());
        publisher.pub_release(2);
        drop(publisher);
        assert_eq!(waiter.wait_ge_bounded(start + 2, short()).unwrap().value(), start + 2);
        let error = waiter.wait_ge_bounded(start + 3, patient()).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { rank: Rank(3), .. }), "{error}");
        assert_eq!(error.at().found, start + 2);
        assert_eq!(waiter.try_wait(start + 1).unwrap().unwrap().value(), start + 2);
    });
}

#[test]
fn the_first_ending_stays() {
    each_start(|table, start| {
        let publisher = table.publisher(SLOT).unwrap();
        assert_eq!(table.end(SLOT, Ending::LinkFailed { code: 1 }), Ok(true));
        assert_eq!(table.end(SLOT, Ending::LinkFailed { code: 2 }), Ok(false));
        table.end_all(Ending::LinkFailed { code: 3 });
        assert!(!publisher.end(Ending::LinkFailed { code: 4 }));
        let waiter = table.waiter(SLOT).unwrap();
        let error = waiter.try_wait(start + 1).unwrap_err();
        assert!(matches!(error, WaitError::LinkFailed { code: 1, .. }), "{error}");
        let other = table.waiter(SlotId::new(4, 3)).unwrap().try_wait(start + 1).unwrap_err();
        assert!(matches!(other, WaitError::LinkFailed { code: 3, .. }), "{other}");
    });
}

#[test]
fn a_counter_is_never_set_back() {
    each_start(|table, start| {
        let (mut publisher, waiter) = (table.publisher(SLOT).unwrap(), table.waiter(SLOT).unwrap());
        publisher.pub_release_set(start + 5).unwrap();
        publisher.pub_release_set(start + 5).unwrap();
        let (slot, counter, asked) = (SLOT, start + 5, start + 4);
        let refused = publisher.pub_release_set(asked).unwrap_err();
        assert_eq!(refused, BehindCounter { slot, counter, asked });
        let text = format!("producer 3 slot 2 is at {counter}, cannot go back to {asked}");
        assert_eq!(refused.to_string(), text);
        assert_eq!((publisher.value(), waiter.value()), (counter, counter));
    });
}

#[test]
fn a_claim_is_refused_by_name() {
    each_start(|table, _| {
        let publisher = table.publisher(SLOT).unwrap();
        let error = table.publisher(SLOT).unwrap_err();
        let pid = std::process::id();
        let by = Producer { rank: Rank(3), generation: 1, pid };
        assert_eq!(error, ClaimError::Taken { slot: SLOT, by });
        assert_eq!(error.to_string(), format!("producer 3 slot 2 is taken by pid {pid}"));
        assert!(matches!(table.shared_publisher(SLOT), Err(ClaimError::Taken { .. })));
        publisher.retire();
        let shared = table.shared_publisher(SLOT).unwrap();
        assert!(matches!(table.publisher(SLOT), Err(ClaimError::Taken { .. })));
        let another = table.shared_publisher(SLOT).unwrap();
        drop(shared);
        assert!(matches!(table.publisher(SLOT), Err(ClaimError::Taken { .. })));
        drop(another);
        assert!(table.publisher(SLOT).is_ok());
        for outside in [SlotId::new(2, 0), SlotId::new(5, 0), SlotId::new(3, 4)] {
            let error = table.waiter(outside).unwrap_err();
            assert!(matches!(error, ClaimError::NoSuchSlot { .. }));
            let text = format!(
                "there is no {outside}: the table has 2 producers from 3 on, with 4 slots each"
            );
            assert_eq!(error.to_string(), text);
        }
    });
}

#[test]
fn a_successor_goes_on_where_the_one_before_stopped() {
    each_start(|table, start| {
        let waiter = table.waiter(SLOT).unwrap();
        let mut first = table.publisher(SLOT).unwrap();
        first.pub_release(3);
        first.retire();
        assert!(waiter.try_wait(start + 4).unwrap().is_none(), "retired is not dead");
        let mut second = table.publisher(SLOT).unwrap();
        assert_eq!((second.value(), second.pub_release(1)), (start + 3, start + 4));
        drop(second);
        assert!(waiter.try_wait(start + 5).is_err());
        let shared = table.shared_publisher(SLOT).unwrap();
        assert!(waiter.try_wait(start + 5).unwrap().is_none(), "a new generation is open");
        assert_eq!(shared.pub_release(1), start + 5);
        let line = table.line(SLOT).unwrap();
        assert_eq!(line.producer().map(|producer| producer.generation), Some(3));
        assert_eq!(line.publishes(), 3);
    });
}

#[test]
fn shared_producers_add_and_the_last_one_ends() {
    each_start(|table, start| {
        let waiter = table.waiter(SLOT).unwrap();
        let first = table.shared_publisher(SLOT).unwrap();
        let producers: Vec<_> = (0..4)
            .map(|_| {
                let publisher = first.clone();
                thread::spawn(move || {
                    for _ in 0..100 {
                        publisher.pub_release(2);
                    }
                })
            })
            .collect();
        let all = waiter.wait_ge_bounded(start + 800, patient()).unwrap().acq_fence();
        assert_eq!(all.value(), start + 800);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert!(waiter.try_wait(start + 801).unwrap().is_none(), "one is left");
        assert_eq!(table.line(SLOT).unwrap().publishes(), 400);
        drop(first);
        assert!(matches!(waiter.try_wait(start + 801), Err(WaitError::PeerDead { .. })));
    });
}

#[test]
fn the_last_to_retire_leaves_the_line_open() {
    each_start(|table, start| {
        let waiter = table.waiter(SLOT).unwrap();
        let (first, second) =
            (table.shared_publisher(SLOT).unwrap(), table.shared_publisher(SLOT).unwrap());
        drop(first);
        second.retire();
        assert!(waiter.try_wait(start + 1).unwrap().is_none());
        assert!(table.publisher(SLOT).is_ok());
    });
}

#[test]
fn joining_a_shared_line_keeps_its_ending() {
    each_start(|table, start| {
        let first = table.shared_publisher(SLOT).unwrap();
        table.end(SLOT, Ending::LinkFailed { code: 8 }).unwrap();
        let second = table.shared_publisher(SLOT).unwrap();
        let error = table.waiter(SLOT).unwrap().try_wait(start + 1).unwrap_err();
        assert!(matches!(error, WaitError::LinkFailed { code: 8, .. }), "{error}");
        drop((first, second));
    });
}

#[test]
fn a_device_without_loads_waits_too() {
    each_start(|table, start| {
        let mut publisher = table.publisher(SLOT).unwrap();
        let waiter = table.waiter(SLOT).unwrap().reading_by(Load::CompareSwap);
        assert_eq!(waiter.value(), start);
        assert!(waiter.wait_ge_bounded(start + 1, short()).unwrap_err().is_timeout());
        let producer = thread::spawn(move || {
            for _ in 0..100 {
                publisher.pub_release(1);
            }
            publisher
        });
        let seen = waiter.wait_ge_bounded(start + 100, patient()).unwrap().acq_fence();
        assert_eq!((seen.value(), producer.join().unwrap().value()), (start + 100, start + 100));
    });
}

#[test]
fn tries_bound_a_wait_by_its_polls() {
    each_start(|table, start| {
        let waiter = table.waiter(SLOT).unwrap();
        for tries in [1, 2, 63, 64, 65, 5_000] {
            let bound = Bound::fixed(tries, Duration::ZERO, Duration::from_secs(3600)).unwrap();
            let error = waiter.wait_ge_bounded(start + 1, bound).unwrap_err();
            assert!(matches!(error, WaitError::TimedOut { polls, .. } if polls == tries));
        }
    });
}

#[test]
fn waits_are_counted_by_how_they_end() {
    each_start(|table, start| {
        let (mut publisher, waiter) = (table.publisher(SLOT).unwrap(), table.waiter(SLOT).unwrap());
        let counters = waiter.counters().unwrap();
        publisher.pub_release(1);
        let _ = waiter.wait_ge_bounded(start + 1, patient()).unwrap();
        let _ = waiter.try_wait(start + 1).unwrap();
        assert!(waiter.try_wait(start + 2).unwrap().is_none(), "which counts as nothing");
        waiter.wait_ge_bounded(start + 2, short()).unwrap_err();
        drop(publisher);
        waiter.wait_ge_bounded(start + 2, patient()).unwrap_err();
        waiter.try_wait(start + 2).unwrap_err();
        let all = [counters.reached_count(), counters.timed_out_count(), counters.ended_count()];
        assert_eq!(all, [2, 1, 2]);
    });
}

#[test]
fn a_slot_is_a_handle_to_wait_by() {
    each_start(|table, start| {
        let mut publisher = table.publisher(SLOT).unwrap();
        let slot = table.slot(SLOT).unwrap();
        let waiter = slot.uncounted_waiter();
        assert!(waiter.counters().is_none() && slot.waiter().counters().is_some());
        assert!(waiter.slot().is(&slot) && !slot.is(&table.slot(SlotId::new(4, 2)).unwrap()));
        assert_eq!((slot.id(), slot.value(), slot.last_publish()), (SLOT, start, None));
        publisher.pub_release(1);
        assert!(slot.last_publish().is_some());
        assert_eq!(waiter.wait_ge_bounded(start + 1, patient()).unwrap().value(), start + 1);
        assert!(waiter.wait_ge_bounded(start + 2, short()).unwrap_err().is_timeout());
        assert!(slot.end(Ending::LinkFailed { code: 1 }) && waiter.try_wait(start + 2).is_err());
    });
}

#[test]
fn giving_up_takes_one_more_look() {
    for start in STARTS.map(Seq::new) {
        let host = Meddler::default();
        let table = SignalTable::in_process_on(host.clone(), shape(start));
        let waiter = table.waiter(SLOT).unwrap();
        let error = waiter.give_up(start + 1, Nanos(77)).unwrap_err();
        assert!(matches!(error, WaitError::TimedOut { waited: Nanos(77), polls: 1, .. }));
        let mut publisher = table.publisher(SLOT).unwrap();
        publisher.pub_release(1);
        assert_eq!(waiter.give_up(start + 1, Nanos(77)).unwrap().value(), start + 1);
        host.at_next_look(move || publisher.pub_release_set(start + 2).unwrap());
        assert_eq!(waiter.give_up(start + 2, Nanos(77)).unwrap().value(), start + 2);
        let error = waiter.give_up(start + 3, Nanos(77)).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { .. }), "{error}");
    }
}

/// What the first member's wait used up is gone for the second.
#[test]
fn waits_in_order_share_one_bound() {
    for start in STARTS.map(Seq::new) {
        let host = Meddler::default();
        let table = SignalTable::in_process_on(host.clone(), shape(start));
        let waiters = [0, 1].map(|slot| table.waiter(SlotId::new(3, slot)).unwrap());
        let mut publisher = table.publisher(SlotId::new(3, 0)).unwrap();
        host.at_next_look(move || publisher.pub_release_set(start + 1).unwrap());
        let waits = [0, 1].map(|index| Wait::new(&waiters[index], start + 1));
        let bound = Bound::fixed(10, Duration::ZERO, Duration::from_secs(1)).unwrap();
        let error = wait_in_order(&waits, bound.spinning(0)).unwrap_err();
        assert!(matches!(error, WaitError::TimedOut { polls: 10, .. }), "{error:?}");
        assert_eq!(host.pauses.load(Relaxed), 9, "one between two polls");
    }
}

#[test]
fn time_points_come_in_order() {
    for start in STARTS.map(Seq::new) {
        let table = SignalTable::in_process(shape(start).traced(3));
        let (mut publisher, waiter) = (table.publisher(SLOT).unwrap(), table.waiter(SLOT).unwrap());
        let before = Os.now();
        for n in 1..=4 {
            publisher.pub_release(1);
            let observed = waiter.wait_ge_bounded(start + n, patient()).unwrap();
            if n != 2 {
                let _ = observed.acq_fence();
            }
        }
        let (points, dropped) = table.time_points();
        assert_eq!((points.len(), dropped), (2, 1), "the second was never acquired");
        for (point, n) in points.iter().zip([1, 3]) {
            assert_eq!((point.slot, point.value), (SLOT, start + n));
            assert!(before <= point.published && point.published <= point.observed);
            assert!(point.observed <= point.acquired && point.acquired <= Os.now());
        }
        assert!(points[0].acquired <= points[1].published);
    }
}

#[test]
fn an_untraced_table_has_no_time_points() {
    each_start(|table, start| {
        let waiter = table.waiter(SLOT).unwrap();
        let _ = waiter.wait_ge_bounded(start, patient()).unwrap().acq_fence();
        assert_eq!(table.time_points(), (Vec::new(), 0));
    });
}

#[test]
fn a_payload_needs_its_own_proof() {
    each_start(|table, start| {
        let mut publisher = table.publisher(SLOT).unwrap();
        let waiter = table.waiter(SLOT).unwrap();
        let early = waiter.wait_ge_bounded(start, patient()).unwrap().acq_fence();
        let (promise, payload) = publisher.promise::<String>();
        assert_eq!(payload.target(), start + 1);
        assert_eq!(payload.read(&early), Err(NotAnnounced));
        assert_eq!(promise.publish("here".to_owned()), start + 1);
        assert_eq!(payload.read(&early), Err(NotAnnounced));
        let proof = waiter.wait_ge_bounded(payload.target(), patient()).unwrap().acq_fence();
        assert_eq!(payload.clone().read(&proof).unwrap(), "here");

        let other = table.waiter(SlotId::new(4, 2)).unwrap();
        let mut elsewhere = table.publisher(other.slot().id()).unwrap();
        elsewhere.pub_release(1);
        let stranger = other.wait_ge_bounded(start + 1, patient()).unwrap().acq_fence();
        assert_eq!(payload.read(&stranger), Err(NotAnnounced));

        let (promise, broken) = publisher.promise::<String>();
        drop(promise);
        publisher.pub_release(1);
        let proof = waiter.wait_ge_bounded(broken.target(), patient()).unwrap().acq_fence();
        assert_eq!(broken.read(&proof), Err(NotAnnounced));
    });
}

/// A proof kept while the counter goes half round covers a target that is still to come.
#[test]
fn a_proof_from_half_a_round_ago_reads_nothing() {
    each_start(|table, start| {
        let mut publisher = table.publisher(SLOT).unwrap();
        let waiter = table.waiter(SLOT).unwrap();
        let old = waiter.wait_ge_bounded(start, patient()).unwrap().acq_fence();
        let half = (1 << 63) - 1;
        for _ in 0..2 {
            let ahead = Seq::new(publisher.value().get().wrapping_add(half));
            publisher.pub_release_set(ahead).unwrap();
        }
        let (promise, payload) = publisher.promise::<u32>();
        assert!(old.value().is_at_or_past(payload.target()), "the proof seems to cover it");
        assert_eq!(payload.read(&old), Err(NotAnnounced));
        promise.publish(1);
    });
}

/// A host whose clock stands still and which, when it is looked at, does something once.
#[derive(Clone, Default)]
struct Meddler {
    next: Arc<Mutex<Option<Meddling>>>,
    pauses: Arc<AtomicU32>,
}

type Meddling = Box<dyn FnOnce() + Send>;

impl Meddler {
    fn at_next_look(&self, meddling: impl FnOnce() + Send + 'static) {
        *self.next.lock().unwrap() = Some(Box::new(meddling));
    }
}

impl fmt::Debug for Meddler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddler")
    }
}

impl Host for Meddler {
    fn now(&self) -> Nanos {
        let meddling = self.next.lock().unwrap().take();
        if let Some(meddling) = meddling {
            meddling();
        }
        Nanos(0)
    }

    fn pause(&self, _time: Nanos) {
        self.pauses.fetch_add(1, Relaxed);
    }

    fn yield_now(&self) {}

    fn sleep(&self, _sleeper: Sleeper<'_>, _at_most: Nanos) {}

    fn sleep_any<'a>(&self, _sleepers: impl Iterator<Item = Sleeper<'a>>, _at_most: Nanos) {}
}

#[test]
fn what_arrives_while_the_error_is_written_is_reached() {
    for start in STARTS.map(Seq::new) {
        let host = Meddler::default();
        let table = SignalTable::in_process_on(host.clone(), shape(start));
        let waiter = table.waiter(SLOT).unwrap();
        let mut publisher = table.publisher(SLOT).unwrap();
        let once = Bound::fixed(1, Duration::ZERO, Duration::from_secs(1)).unwrap();
        host.at_next_look(move || {
            publisher.pub_release(1);
            publisher.retire();
        });
        assert_eq!(waiter.wait_ge_bounded(start + 1, once).unwrap().value(), start + 1);

        let mut publisher = table.publisher(SLOT).unwrap();
        table.end(SLOT, Ending::LinkFailed { code: 1 }).unwrap();
        host.at_next_look(move || {
            publisher.pub_release(1);
        });
        assert_eq!(waiter.wait_ge_bounded(start + 2, once).unwrap().value(), start + 2);
        assert_eq!(waiter.wait_ge_bounded(start + 3, once).unwrap_err().at().found, start + 2);
    }
}

#[test]
fn a_publish_at_time_zero_is_a_publish() {
    let table = SignalTable::in_process_on(Meddler::default(), shape(Seq::new(0)));
    let mut publisher = table.publisher(SLOT).unwrap();
    let waiter = table.waiter(SLOT).unwrap();
    let once = Bound::fixed(1, Duration::ZERO, Duration::from_secs(1)).unwrap();
    let error = waiter.wait_ge_bounded(Seq::new(1), once).unwrap_err();
    assert_eq!(error.at().last_published, None);
    publisher.pub_release(1);
    let error = waiter.wait_ge_bounded(Seq::new(2), once).unwrap_err();
    assert_eq!(error.at().last_published, Some(Nanos(0)));
}

#[test]
#[should_panic(expected = "a signal table needs 1 producer and 1 slot at least")]
fn a_table_of_nothing_panics_with_a_sentence() {
    let _ = SignalTable::in_process(TableShape::new(1, 0));
}

#[test]
#[should_panic(expected = "a signal table of 4294967295 producers with 4294967295 slots each")]
fn a_table_beyond_all_addresses_panics_with_a_sentence() {
    let _ = SignalTable::in_process(TableShape::new(u32::MAX, u32::MAX));
}

#[test]
#[should_panic(expected = "is more than memory can hold")]
fn a_table_beyond_all_memory_panics_with_a_sentence() {
    let _ = SignalTable::in_process(TableShape::new(1 << 24, 1 << 24));
}
