//! Nothing on the path of a signal allocates: counted by the allocator itself.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{
    Barrier, Bound, DoubleBuffer, LinePool, Rank, Seq, SignalTable, SlotId, TableShape, Turn, Wait,
    WaitError, wait_all, wait_any, wait_in_order, wait_quorum,
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    thread,
    time::Duration,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static FREES: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all of it is the system allocator's doing; the count changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        FREES.with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often this thread allocates in `work`.
fn allocations<R>(work: impl FnOnce() -> R) -> (u64, R) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = work();
    (ALLOCATIONS.with(Cell::get) - before, result)
}

#[track_caller]
fn none<R>(work: impl FnOnce() -> R) -> R {
    let (count, result) = allocations(work);
    assert_eq!(count, 0, "allocated");
    result
}

const SLOTS: [SlotId; 2] = [SlotId::new(0, 0), SlotId::new(1, 0)];

fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn short() -> Bound {
    Bound::within(Duration::from_millis(2))
}

fn asleep(bound: Bound) -> Bound {
    bound.spinning(0).yielding(0)
}

fn tables() -> [SignalTable; 3] {
    let shape = TableShape::new(2, 1);
    let shared = SignalTable::shared(shape).unwrap();
    [SignalTable::in_process(shape), SignalTable::in_process(shape.traced(100)), shared]
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| vec![1u8]).0, 1);
}

#[test]
fn a_dropped_table_gives_all_back() {
    let frees = FREES.with(Cell::get);
    let (allocations, ()) = allocations(|| {
        let table = SignalTable::in_process(TableShape::new(2, 3).traced(4));
        let (publisher, waiter) = (table.publisher(SLOTS[0]), table.waiter(SLOTS[1]));
        drop((table, publisher.unwrap(), waiter.unwrap()));
        drop(DoubleBuffer::new([vec![1], vec![2]]));
    });
    assert_eq!(FREES.with(Cell::get) - frees, allocations);
}

#[test]
fn a_dropped_pool_gives_all_back_with_its_last_lease() {
    let frees = FREES.with(Cell::get);
    let (allocations, ()) = allocations(|| {
        let mut pool = LinePool::new(Rank(0), 6);
        let [done, free, late, failed, ended] = [(); 5].map(|()| pool.take().unwrap());
        let slot = ended.slot();
        drop(pool.take().unwrap());
        done.complete();
        pool.take().unwrap().complete();
        free.complete();
        drop(pool);
        late.complete();
        drop((failed, ended));
        drop(slot);
    });
    assert!(allocations > 0);
    assert_eq!(FREES.with(Cell::get) - frees, allocations);
}

#[test]
fn leases() {
    let mut pool = LinePool::new(Rank(0), 3);
    none(|| {
        for _ in 0..10 {
            let leases = [(); 3].map(|()| pool.take().unwrap());
            assert!(pool.take().is_none());
            for lease in leases {
                let (slot, target) = (lease.slot(), lease.target());
                lease.complete();
                slot.uncounted_waiter().wait_ge_bounded(target, patient()).unwrap().acq_fence();
            }
        }
        drop(pool.take().unwrap());
    });
}

#[test]
fn publishing_and_waiting() {
    for table in tables() {
        let waiter = table.waiter(SLOTS[0]).unwrap();
        let mut publisher = table.publisher(SLOTS[0]).unwrap();
        none(|| {
            publisher.pub_release(1);
            publisher.pub_release_set(Seq::new(3)).unwrap();
            waiter.wait_ge_bounded(Seq::new(3), patient()).unwrap().acq_fence();
            waiter.wait_ge_bounded(Seq::new(4), short()).unwrap_err();
            waiter.wait_ge_bounded(Seq::new(4), asleep(short())).unwrap_err();
            assert!(waiter.try_wait(Seq::new(4)).unwrap().is_none());
        });
        drop(publisher);
        none(|| waiter.wait_ge_bounded(Seq::new(4), patient()).unwrap_err());
        let shared = table.shared_publisher(SLOTS[0]).unwrap();
        none(|| shared.pub_release(1));
    }
}

#[test]
fn sleeping_until_woken() {
    for table in tables() {
        let (ping, pong) = (table.waiter(SLOTS[0]).unwrap(), table.waiter(SLOTS[1]).unwrap());
        let mut publisher = table.publisher(SLOTS[0]).unwrap();
        let mut echo = table.publisher(SLOTS[1]).unwrap();
        let other = thread::spawn(move || {
            none(|| {
                for round in 1..=20 {
                    ping.wait_ge_bounded(Seq::new(round), asleep(patient())).unwrap().acq_fence();
                    echo.pub_release(1);
                }
            });
        });
        none(|| {
            for round in 1..=20 {
                publisher.pub_release(1);
                pong.wait_ge_bounded(Seq::new(round), asleep(patient())).unwrap().acq_fence();
            }
        });
        other.join().unwrap();
    }
}

#[test]
fn groups() {
    for table in tables() {
        let waiters = SLOTS.map(|slot| table.waiter(slot).unwrap());
        let mut publishers = SLOTS.map(|slot| table.publisher(slot).unwrap());
        none(|| {
            for publisher in &mut publishers {
                publisher.pub_release(1);
            }
            let waits = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(1)));
            assert_eq!(wait_all(&waits, patient()).unwrap().acq_fence().members().count(), 2);
            let _ = wait_quorum(&waits, 1, patient()).unwrap().acq_fence();
            let _ = wait_in_order(&waits, patient()).unwrap().acq_fence();
            let _ = wait_any(&waits, &mut Turn::default(), patient()).unwrap().1.acq_fence();
            let open = [0, 1].map(|index| Wait::new(&waiters[index], Seq::new(2)));
            wait_all(&open, short()).unwrap_err();
            wait_all(&open, asleep(short())).unwrap_err();
            wait_any(&open, &mut Turn::default(), asleep(short())).unwrap_err();
            wait_in_order(&open, asleep(short())).unwrap_err();
        });
    }
}

#[test]
fn barriers() {
    for table in tables() {
        let members = [0, 1].map(|rank| Barrier::join(&table, Rank(rank), 0..2, 0).unwrap());
        let threads = members.map(|mut member| {
            thread::spawn(move || {
                none(|| {
                    for round in 0..20 {
                        let bound = if round % 2 == 0 { asleep(patient()) } else { patient() };
                        member.wait(bound).unwrap();
                    }
                });
                member
            })
        });
        let [mut first, second] = threads.map(|thread| thread.join().unwrap());
        none(|| assert!(first.wait(asleep(short())).unwrap_err().is_timeout()));
        drop(second);
    }
}

#[test]
fn buffers() {
    let (mut writer, mut reader) = DoubleBuffer::new([0, 0]);
    let producer = thread::spawn(move || {
        none(|| {
            for item in 0..50 {
                let mut buffer = writer.fill(asleep(patient())).unwrap();
                *buffer = item;
                buffer.publish();
            }
        });
    });
    none(|| {
        for item in 0..50 {
            assert_eq!(*reader.next(asleep(patient())).unwrap(), item);
        }
    });
    producer.join().unwrap();
    let error = none(|| reader.next(patient()).map(|buffer| *buffer).unwrap_err());
    assert!(matches!(error, WaitError::PeerDead { .. }));
}
