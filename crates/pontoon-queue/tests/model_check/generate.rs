//! Random programs.

use pontoon_queue::check::{
    Access, Act, Buffer, BufferId, ClassId, CollectiveId, Command, Entry, EventId, FifoId,
    HostWait, LockId, Mode, Program, Queue, QueueId, Raise, Semaphore, SemaphoreId, SemaphoreWait,
    Signal, ThreadId, Work,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

const SEMAPHORES: usize = 4;
const EVENTS: usize = 3;
const LOCKS: usize = 2;
/// Sizes of the allocations, and the views as `(of, offset, size)`; some are views of views.
const ALLOCATIONS: [u64; 3] = [8, 12, 1];
const VIEWS: [(usize, u64, u64); 5] = [(0, 2, 4), (1, 0, 8), (1, 4, 8), (4, 2, 4), (3, 1, 2)];

/// Programs of 1 to `entries` entries; half of them have few queues and waits.
pub(crate) fn program(entries: usize) -> impl Strategy<Value = Program> {
    let queues = prop_oneof![vec(queue(), 1..=3), vec(queue(), 1..=8)];
    let shape = (queues, 1..=4_usize, vec(semaphore(), SEMAPHORES), vec(0..4_u8, 3));
    shape.prop_flat_map(move |(queues, threads, semaphores, mix)| {
        let entry = entry(queues.len(), threads, &mix);
        let queues = queues.clone();
        vec(entry, 1..=entries).prop_map(move |entries| Program {
            buffers: buffers(),
            queues: queues
                .iter()
                .map(|queue| Queue {
                    implicit: queue
                        .implicit
                        .iter()
                        .map(|id| QueueId(id.0 % queues.len()))
                        .collect(),
                    ..queue.clone()
                })
                .collect(),
            semaphores: semaphores.clone(),
            threads,
            locks: LOCKS,
            events: EVENTS,
            entries,
        })
    })
}

fn buffers() -> Vec<Buffer> {
    let allocations = ALLOCATIONS.iter().map(|&size| Buffer { of: None, size });
    let views =
        VIEWS.iter().map(|&(of, offset, size)| Buffer { of: Some((BufferId(of), offset)), size });
    allocations.chain(views).collect()
}

fn queue() -> impl Strategy<Value = Queue> {
    let credits = prop_oneof![4 => Just(None), 1 => (1..4_usize).prop_map(Some)];
    let hardware = prop_oneof![3 => Just(None), 1 => (0..2_usize).prop_map(|id| Some(FifoId(id)))];
    let implicit = prop_oneof![5 => Just(vec![]), 1 => vec((0..8_usize).prop_map(QueueId), 1..3)];
    (any::<bool>(), hardware, credits, implicit).prop_map(
        |(launch_order, hardware, credits, implicit)| Queue {
            launch_order,
            hardware,
            credits,
            implicit,
        },
    )
}

fn semaphore() -> impl Strategy<Value = Semaphore> {
    let initial = prop_oneof![3 => Just(0), 1 => 1..3_u64];
    (initial, prop::bool::weighted(0.1))
        .prop_map(|(initial, external)| Semaphore { initial, external })
}

fn entry(queues: usize, threads: usize, mix: &[u8]) -> impl Strategy<Value = Entry> + use<> {
    let weight = |at: usize, most: u32| 1 + most * u32::from(mix[at]) / 3;
    let submit = (0..queues, command(weight(0, 6))).prop_map(|(q, c)| Act::Submit(QueueId(q), c));
    let lock = (0..LOCKS).prop_map(LockId);
    let act = prop_oneof![
        24 => submit,
        2 => vec(access(), 1..3).prop_map(Act::Access),
        weight(1, 4) => vec(host_wait(queues), 1..3).prop_map(Act::Wait),
        2 => vec(signal(), 1..3).prop_map(Act::Signal),
        1 => (0..ALLOCATIONS.len() + VIEWS.len()).prop_map(|id| Act::Free(BufferId(id))),
        weight(2, 3) => lock.clone().prop_map(Act::Lock),
        weight(2, 3) => lock.prop_map(Act::Unlock),
        1 => (0..SEMAPHORES).prop_map(|id| Act::Drop(SemaphoreId(id))),
    ];
    ((0..threads).prop_map(ThreadId), act).prop_map(|(thread, act)| Entry { thread, act })
}

fn command(waits: u32) -> impl Strategy<Value = Command> {
    let event = (0..EVENTS).prop_map(EventId);
    prop_oneof![
        8 => work(waits).prop_map(Command::Work),
        2 => (classes(), classes()).prop_map(|(from, to)| Command::Barrier { from, to }),
        1 => event.clone().prop_map(Command::Record),
        1 => event.prop_map(Command::WaitEvent),
    ]
}

fn classes() -> impl Strategy<Value = Option<Vec<ClassId>>> {
    option::weighted(0.7, vec((0..3_usize).prop_map(ClassId), 0..3))
}

fn work(waits: u32) -> impl Strategy<Value = Work> {
    let waits = prop_oneof![
        6 => Just(vec![]),
        waits => vec(semaphore_wait(), 1..3),
    ];
    let signals = prop_oneof![1 => Just(vec![]), 1 => vec(signal(), 1..3)];
    let collective = option::weighted(0.04, (0..2_usize).prop_map(CollectiveId));
    let class = option::of((0..3_usize).prop_map(ClassId));
    (vec(access(), 0..3), waits, signals, class, prop::bool::weighted(0.05), collective).prop_map(
        |(accesses, waits, signals, class, fails, collective)| Work {
            accesses,
            waits,
            signals,
            class,
            fails,
            collective,
        },
    )
}

fn access() -> impl Strategy<Value = Access> {
    let mode = select(vec![Mode::Read, Mode::Read, Mode::Write, Mode::ReadWrite, Mode::Atomic]);
    let sizes = ALLOCATIONS.into_iter().chain(VIEWS.into_iter().map(|(_, _, size)| size));
    let sizes: Vec<_> = sizes.enumerate().collect();
    (select(sizes), any::<(u64, u64)>(), any::<bool>(), mode).prop_map(
        |((buffer, size), (a, b), whole, mode)| {
            let start = a % size;
            let range = if whole { 0..size } else { start..start + 1 + b % (size - start) };
            Access { buffer: BufferId(buffer), range, mode }
        },
    )
}

fn semaphore_wait() -> impl Strategy<Value = SemaphoreWait> {
    let value = prop_oneof![3 => Just(1), 2 => Just(2), 1 => 0..6_u64];
    (0..SEMAPHORES, value)
        .prop_map(|(id, value)| SemaphoreWait { semaphore: SemaphoreId(id), value })
}

fn host_wait(queues: usize) -> impl Strategy<Value = HostWait> {
    prop_oneof![
        1 => semaphore_wait().prop_map(HostWait::Semaphore),
        2 => (0..queues).prop_map(|id| HostWait::Queue(QueueId(id))),
        1 => (0..EVENTS).prop_map(|id| HostWait::Event(EventId(id))),
    ]
}

fn signal() -> impl Strategy<Value = Signal> {
    let raise = prop_oneof![
        3 => Just(Raise::By(1)),
        1 => (1..3_u64).prop_map(Raise::By),
        3 => (1..6_u64).prop_map(Raise::To),
    ];
    (0..SEMAPHORES, raise).prop_map(|(id, raise)| Signal { semaphore: SemaphoreId(id), raise })
}
