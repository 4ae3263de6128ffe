//! What the tests of the CPU device share.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use pontoon_cpu::{CpuDevice, CpuQueue, CpuSpec, Kernel, Region};
use pontoon_hal::{Access, Command, CommandOf, Fault, Memory, Queue, SubmitError};
use pontoon_signal::{
    Bound, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape, WaitError,
};

pub(crate) type CpuCommand = CommandOf<CpuQueue>;

/// Only what hangs uses it up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn device(rank: u32, units: u32, depth: u32) -> CpuDevice {
    // Every counter wraps at its third completion.
    let start = Seq::new(0u64.wrapping_sub(3));
    CpuDevice::open(Rank(rank), CpuSpec { units, depth, start, ..CpuSpec::default() }).unwrap()
}

/// A publisher that queues can be held back with.
pub(crate) fn gate(rank: u32) -> (Publisher, Slot) {
    let table = SignalTable::in_process(TableShape::new(1, 1).first_rank(Rank(rank)));
    let slot = SlotId::new(rank, 0);
    (table.publisher(slot).unwrap(), table.slot(slot).unwrap())
}

pub(crate) fn launch(
    label: &'static str,
    kernel: &Kernel,
    accesses: &[Access<Region>],
    arguments: &[u64],
) -> CpuCommand {
    let (accesses, arguments) = (accesses.iter().cloned(), arguments.iter().copied());
    let (accesses, arguments) = (accesses.collect(), arguments.collect());
    Command::Launch { label, kernel: kernel.clone(), accesses, arguments }
}

pub(crate) fn copy(label: &'static str, from: Access<Region>, to: Access<Region>) -> CpuCommand {
    Command::Copy { label, from, to }
}

pub(crate) fn wait(slot: &Slot, target: Seq) -> CpuCommand {
    wait_within(slot, target, PATIENCE)
}

pub(crate) fn wait_within(slot: &Slot, target: Seq, time: Duration) -> CpuCommand {
    Command::Wait { label: "wait", slot: slot.clone(), target, bound: Bound::within(time) }
}

/// Submits as soon as the queue has room; the queue's fault if it stopped.
#[track_caller]
pub(crate) fn try_submit(queue: &mut CpuQueue, mut command: CpuCommand) -> Result<Seq, Fault> {
    let start = Instant::now();
    loop {
        match queue.submit(command) {
            Ok(position) => return Ok(position),
            Err(SubmitError::Full(back)) => command = back,
            Err(SubmitError::Faulted(fault)) => return Err(fault),
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < PATIENCE, "a full queue never had room again");
        thread::yield_now();
    }
}

#[track_caller]
pub(crate) fn submit(queue: &mut CpuQueue, command: CpuCommand) -> Seq {
    try_submit(queue, command).unwrap_or_else(|fault| panic!("{fault}"))
}

#[track_caller]
pub(crate) fn reached(slot: &Slot, target: Seq) {
    match slot.waiter().wait_ge_bounded(target, Bound::within(PATIENCE)) {
        Ok(observed) => drop(observed.acq_fence()),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
pub(crate) fn ended(slot: &Slot, target: Seq) -> WaitError {
    let error = slot.waiter().wait_ge_bounded(target, Bound::within(PATIENCE)).unwrap_err();
    assert!(!error.is_timeout(), "nothing ended the signal: {error}");
    error
}

/// The fault of a queue of which `position` cannot complete.
#[track_caller]
pub(crate) fn fault(queue: &CpuQueue, position: Seq) -> Fault {
    ended(queue.completions(), position);
    queue.fault().expect("a fault is readable once the signal ended")
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

pub(crate) fn elements(region: &Region) -> Vec<u32> {
    let mut bytes = vec![0; region.bytes()];
    region.host_read(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Sets access 0 to argument 0.
pub(crate) fn fill() -> Kernel {
    Kernel::new(|context| {
        let value = context.argument(0) as u32;
        context.write::<u32>(0).fill(value);
    })
}

/// Holds its unit until `slot` is at argument 0. The second slot counts the times it began.
pub(crate) fn hold_until(slot: &Slot) -> (Kernel, Slot) {
    let (publisher, began) = gate(99);
    let (slot, publisher) = (slot.clone(), Mutex::new(publisher));
    let kernel = Kernel::new(move |context| {
        publisher.lock().unwrap().pub_release(1);
        let target = Seq::new(context.argument(0));
        let bound = Bound::within(PATIENCE).spinning(0).yielding(0);
        slot.uncounted_waiter().wait_ge_bounded(target, bound).expect("it is let go").acq_fence();
    });
    (kernel, began)
}
