//! The ring: what a task brings along, and when its slots come back.

use super::{Memory, Model, check};
use loom::thread;
use pontoon_comm::{
    Operation, Task,
    ring::{Consumer, PushError, Ring, Taken},
};
use pontoon_signal::{Ending, Rank, Reason, Seq};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(crate) const MODELS: &[Model] = &[
    ("a_task_brings_what_was_written_before_it", a_task_brings_what_was_written_before_it),
    ("a_wide_task_is_whole", a_wide_task_is_whole),
    ("a_slot_is_written_after_it_was_read", a_slot_is_written_after_it_was_read),
    ("what_one_producer_learned_holds_for_another", what_one_producer_learned_holds_for_another),
    ("two_producers_share_a_ring", two_producers_share_a_ring),
    ("a_push_that_meets_a_close_is_whole", a_push_that_meets_a_close_is_whole),
    (
        "a_consumer_that_ends_in_a_batch_gives_no_credit",
        a_consumer_that_ends_in_a_batch_gives_no_credit,
    ),
];

fn task(from: u64) -> Task {
    Task { operation: Operation::Put, route: 1, strong: false, n: 2, from, to: 5, bytes: 8 }
}

fn wide(number: u64) -> Task {
    let far = number << 40;
    Task { from: far | 1, to: far | 2, bytes: far | 3, ..task(0) }
}

/// The smallest ring, whose numbers wrap after two slots.
fn open() -> (Ring, Consumer) {
    Ring::open(4, START).unwrap()
}

/// The next `count` tasks.
fn take(consumer: &mut Consumer, count: usize) -> Vec<Task> {
    let mut found = Vec::new();
    while found.len() < count {
        let most = (count - found.len()) as u32;
        let taken = consumer.drain(most, |_, task| {
            found.push(*task.expect("a task"));
            Taken::Yes
        });
        if taken == 0 {
            thread::yield_now();
        }
    }
    found
}

/// Where a ring begins here.
const START: Seq = Seq::new(u64::MAX - 1);

const CLOSED: Ending = Ending::Aborted { reason: Reason::small(7), by: Rank(0) };

fn push(ring: &Ring, task: &Task) {
    loop {
        match ring.push(task) {
            Ok(_) => return,
            Err(PushError::Full { .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// SYNC(ring-publish): who takes a task reads all that its producer wrote before it pushed.
fn a_task_brings_what_was_written_before_it() {
    check(3, || {
        let ((ring, mut consumer), memory) = (open(), Memory::new());
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                memory.write(7);
                ring.push(&task(3)).unwrap();
            }
        });
        assert_eq!(take(&mut consumer, 1), [task(3)]);
        assert_eq!(memory.read(), 7);
        producer.join().unwrap();
    });
}

/// SYNC(ring-publish): the slots behind the first are there with it.
fn a_wide_task_is_whole() {
    check(3, || {
        let (ring, mut consumer) = open();
        let producer = thread::spawn(move || {
            ring.push(&wide(3)).unwrap();
        });
        assert_eq!(take(&mut consumer, 1), [wide(3)]);
        producer.join().unwrap();
    });
}

/// The credit is a publish: a slot of the next lap is never taken for one of this.
fn a_slot_is_written_after_it_was_read() {
    check(2, || {
        let (ring, mut consumer) = open();
        let memory = Memory::new();
        ring.push(&wide(1)).unwrap();
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                push(&ring, &task(9));
                // The consumer read it before it gave the credit.
                memory.write(1);
            }
        });
        let mut found = Vec::new();
        consumer.drain(1, |_, task| {
            assert_eq!(memory.read(), 0);
            found.push(*task.expect("a task"));
            Taken::Yes
        });
        found.extend(take(&mut consumer, 1));
        assert_eq!(found, [wide(1), task(9)]);
        producer.join().unwrap();
    });
}

/// SYNC(ring-cache): who takes a free slot by another's look at the credits writes it after it was
/// read, too.
fn what_one_producer_learned_holds_for_another() {
    check(2, || {
        let (ring, mut consumer) = open();
        let memory = Memory::new();
        ring.push(&wide(1)).unwrap();
        let producers = [8, 9].map(|number| {
            let (ring, memory) = (ring.clone(), memory.clone());
            thread::spawn(move || {
                if ring.push(&task(number)).is_ok() {
                    // Read before the credit, so that both may read it now.
                    memory.read();
                    true
                } else {
                    false
                }
            })
        });
        consumer.drain(1, |_, _| {
            memory.write(1);
            Taken::Yes
        });
        let pushed = producers.map(|producer| producer.join().unwrap());
        let count = pushed.iter().filter(|pushed| **pushed).count();
        assert_eq!(take(&mut consumer, count).len(), count);
    });
}

/// Two that push at once each have a slot of their own.
fn two_producers_share_a_ring() {
    check(2, || {
        let (ring, mut consumer) = open();
        let producers = [1, 2].map(|number| {
            let ring = ring.clone();
            thread::spawn(move || ring.push(&task(number)).unwrap())
        });
        let mut found: Vec<_> = take(&mut consumer, 2).iter().map(|task| task.from).collect();
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
        let claimed = producers.map(|producer| producer.join().unwrap().first);
        assert_ne!(claimed[0], claimed[1]);
    });
}

/// R4: a push beside a close is there to be taken, or has claimed nothing; what comes after it is refused
/// by the close's ending.
fn a_push_that_meets_a_close_is_whole() {
    check(3, || {
        let (ring, mut consumer) = open();
        let closer = thread::spawn({
            let ring = ring.clone();
            move || ring.close(CLOSED)
        });
        let pushed = ring.push(&wide(3));
        closer.join().unwrap();
        let mut found = Vec::new();
        consumer.drain(4, |_, task| {
            found.push(*task.expect("a task"));
            Taken::Yes
        });
        match pushed {
            Ok(claimed) => assert_eq!((ring.head(), found), (claimed.end, vec![wide(3)])),
            Err(error) => {
                assert!(matches!(error, PushError::Ended(None | Some(CLOSED))), "{error}");
                assert_eq!((ring.head(), found), (START, vec![]));
            }
        }
        assert_eq!(ring.push(&task(4)), Err(PushError::Ended(Some(CLOSED))));
    });
}

/// R3: a consumer that is unwound between two tasks of a batch gives no credit for either, so that nobody
/// writes a slot that it may not have read; who waits for room is told.
fn a_consumer_that_ends_in_a_batch_gives_no_credit() {
    check(2, || {
        let (ring, mut consumer) = open();
        for number in 1..=4 {
            ring.push(&task(number)).unwrap();
        }
        let producer = thread::spawn({
            let ring = ring.clone();
            move || loop {
                match ring.push(&task(9)) {
                    Ok(_) => panic!("there is no room"),
                    Err(PushError::Full { .. }) => thread::yield_now(),
                    Err(error) => return error,
                }
            }
        });
        let mut taken = 0;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            consumer.drain(4, |_, _| {
                taken += 1;
                // As a panic, without its message.
                if taken == 2 { resume_unwind(Box::new(())) } else { Taken::Yes }
            })
        }));
        assert!(unwound.is_err());
        drop(consumer);
        let refused = producer.join().unwrap();
        assert!(matches!(refused, PushError::Ended(Some(Ending::PeerDead { .. }))), "{refused}");
        assert_eq!(ring.positions(), (START + 4, START));
    });
}
