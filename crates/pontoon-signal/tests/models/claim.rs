//! Claiming, joining and leaving a line.

use super::{Memory, Model, SLOT, check, spinning, table};
use loom::thread;
use pontoon_signal::{
    ClaimError, Ending, Publisher, Rank, Reason, Seq, SignalTable, WaitError, shim::be_of_process,
};

pub(crate) const MODELS: &[Model] = &[
    ("a_successor_goes_on", a_successor_goes_on),
    ("a_successor_of_the_dead_is_open", a_successor_of_the_dead_is_open),
    ("who_joins_finds_the_line_open", who_joins_finds_the_line_open),
    ("who_joins_keeps_the_ending", who_joins_keeps_the_ending),
    ("the_last_to_leave_ends_after_all_adds", the_last_to_leave_ends_after_all_adds),
    ("one_of_two_claims", one_of_two_claims),
    ("an_eviction_frees_for_a_successor", an_eviction_frees_for_a_successor),
    ("an_eviction_leaves_a_successor_alone", an_eviction_leaves_a_successor_alone),
];

/// Claims the slot as soon as its producer has left.
fn claim_when_free(table: &SignalTable) -> Publisher {
    loop {
        match table.publisher(SLOT) {
            Ok(publisher) => return publisher,
            Err(_) => thread::yield_now(),
        }
    }
}

/// SYNC(slot-claim): the counter goes on where the one before left it, and what that one wrote
/// can be read, even if it never published it.
fn a_successor_goes_on() {
    check(3, || {
        let (table, memory, notes) = (table(), Memory::new(), Memory::new());
        let mut publisher = table.publisher(SLOT).unwrap();
        let before = thread::spawn({
            let (memory, notes) = (memory.clone(), notes.clone());
            move || {
                memory.write(7);
                publisher.pub_release(1);
                notes.write(8);
                publisher.retire();
            }
        });
        let mut successor = claim_when_free(&table);
        assert_eq!((successor.value(), memory.read(), notes.read()), (Seq::new(1), 7, 8));
        assert_eq!(successor.pub_release(1), Seq::new(2));
        before.join().unwrap();
    });
}

/// SYNC(slot-claim): the ending of the one before never comes down on its successor.
fn a_successor_of_the_dead_is_open() {
    check(3, || {
        let table = table();
        let publisher = table.publisher(SLOT).unwrap();
        let before = thread::spawn(move || drop(publisher));
        let successor = claim_when_free(&table);
        let waiter = table.waiter(SLOT).unwrap();
        assert!(waiter.try_wait(Seq::new(1)).unwrap().is_none());
        before.join().unwrap();
        assert!(waiter.try_wait(Seq::new(1)).unwrap().is_none());
        drop(successor);
        assert!(waiter.try_wait(Seq::new(1)).is_err());
    });
}

/// SYNC(slot-claim): of two that come to share a dead line, neither finds the old ending.
fn who_joins_finds_the_line_open() {
    check(3, || {
        let table = table();
        drop(table.shared_publisher(SLOT).unwrap());
        let claim = |table: &SignalTable| {
            let publisher = table.shared_publisher(SLOT).unwrap();
            let waiter = table.waiter(SLOT).unwrap();
            assert!(waiter.try_wait(Seq::new(1)).expect("no ending").is_none());
            publisher
        };
        let other = thread::spawn({
            let table = table.clone();
            move || claim(&table)
        });
        let mine = claim(&table);
        let theirs = other.join().unwrap();
        drop((mine, theirs));
    });
}

/// SYNC(slot-claim), SYNC(slot-abort): joining a shared line does not undo an abort.
fn who_joins_keeps_the_ending() {
    check(3, || {
        let table = table();
        let first = table.shared_publisher(SLOT).unwrap();
        let ender = thread::spawn({
            let table = table.clone();
            let ending = Ending::Aborted { reason: Reason::new(1).unwrap(), by: Rank(1) };
            move || assert!(table.end(SLOT, ending).unwrap())
        });
        let second = table.shared_publisher(SLOT).unwrap();
        let waiter = table.waiter(SLOT).unwrap();
        let error = waiter.wait_ge_bounded(Seq::new(1), spinning()).unwrap_err();
        assert!(matches!(error, WaitError::Aborted { .. }), "{error}");
        ender.join().unwrap();
        drop((first, second));
    });
}

/// SYNC(slot-claim), SYNC(slot-abort): the last to leave ends the line, and whoever sees that
/// sees the adds of those who left before.
fn the_last_to_leave_ends_after_all_adds() {
    check(2, || {
        let (table, memory) = (table(), [Memory::new(), Memory::new()]);
        let publishers = [(); 2].map(|()| table.shared_publisher(SLOT).unwrap());
        let mut index = 0;
        let producers = publishers.map(|publisher| {
            let memory = memory[index].clone();
            index += 1;
            thread::spawn(move || {
                memory.write(1);
                publisher.pub_release(1);
                drop(publisher);
            })
        });
        let waiter = table.waiter(SLOT).unwrap();
        let _both = waiter.wait_ge_bounded(Seq::new(2), spinning()).unwrap().acq_fence();
        assert_eq!((memory[0].read(), memory[1].read()), (1, 1));
        for producer in producers {
            producer.join().unwrap();
        }
        assert!(waiter.try_wait(Seq::new(3)).is_err());
    });
}

/// SYNC(slot-claim): one producer or several, never both.
fn one_of_two_claims() {
    check(3, || {
        let table = table();
        let other = thread::spawn({
            let table = table.clone();
            move || table.shared_publisher(SLOT).ok()
        });
        let mine = table.publisher(SLOT).ok();
        let theirs = other.join().unwrap();
        assert!(mine.is_some() != theirs.is_some());
    });
}

const DEAD: u32 = 7;
const SUCCESSOR: u32 = 8;

/// Claims the line of process `DEAD` in another thread, once that has been evicted.
fn succeed(table: &SignalTable) -> thread::JoinHandle<Publisher> {
    let table = table.clone();
    thread::spawn(move || {
        be_of_process(SUCCESSOR);
        claim_when_free(&table)
    })
}

/// Evicts process `DEAD` while another claims what that had. Whatever comes first, the successor has
/// the line in the end, and it is open.
fn evict_beside(table: &SignalTable, successor: thread::JoinHandle<Publisher>) -> Publisher {
    let dead = Ending::PeerDead { rank: SLOT.producer };
    table.evict(SLOT.producer, DEAD, dead).unwrap();
    let successor = successor.join().unwrap();
    let Err(ClaimError::Taken { by, .. }) = table.publisher(SLOT) else { panic!("it is free") };
    assert_eq!(by.pid, SUCCESSOR);
    let waiter = table.waiter(SLOT).unwrap();
    assert!(waiter.try_wait(Seq::new(2)).expect("no ending").is_none());
    successor
}

/// SYNC(slot-claim): what the dead had is free, its ending is not its successor's, and that goes on
/// where the dead came to. The line had ended before, so that waking nobody orders anything, and who
/// evicts learns of the death as by the kernel.
fn an_eviction_frees_for_a_successor() {
    check(2, || {
        let table = table();
        be_of_process(DEAD);
        let mut publisher = table.publisher(SLOT).unwrap();
        let successor = succeed(&table);
        let dead = thread::spawn({
            let table = table.clone();
            move || {
                publisher.pub_release(1);
                table.end(SLOT, Ending::LinkFailed { code: 1 }).unwrap();
                // As by a process that is killed: nobody gives the claim up.
                core::mem::forget(publisher);
            }
        });
        dead.join().unwrap();
        assert_eq!(evict_beside(&table, successor).value(), Seq::new(1));
    });
}

/// SYNC(slot-claim): a line that the dead gave up before still has its name, and the claim that is found
/// there is a successor's all the same.
fn an_eviction_leaves_a_successor_alone() {
    check(3, || {
        let table = table();
        be_of_process(DEAD);
        table.publisher(SLOT).unwrap().retire();
        let successor = succeed(&table);
        drop(evict_beside(&table, successor));
    });
}
