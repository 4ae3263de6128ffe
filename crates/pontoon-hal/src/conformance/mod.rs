//! The suite that holds a backend to the clauses of [`Device`], [`Queue`], [`Memory`] and
//! [`Capabilities`](crate::Capabilities).
//!
//! A backend's tests implement [`Subject`] and call [`run_all`], once for each kind of device they
//! can open: one unit and several, short queues and long ones, counters that start at zero and
//! counters that wrap. Each function checks one clause and panics with a sentence that names it.
//! Every wait is bounded: a device that hangs fails.

pub mod capability;
pub mod device;
pub mod link;
pub mod memory;
pub mod metering;
pub mod part;
pub mod queue;
pub mod waiting;

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::{
    Bound, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape, WaitError,
};

use crate::{
    Access, Accesses, Command, CommandOf, Device, Engine, Memory, Purpose, Queue, SubmitError,
};

/// A kind of device under test.
pub trait Subject {
    /// The device.
    type Device: Device;

    /// Opens one with rank `rank`.
    fn open(&self, rank: Rank) -> Self::Device;

    /// A kernel that does `work` on `device`.
    fn kernel(&self, device: &Self::Device, work: Work) -> KernelOf<Self>;

    /// Loses `device` as if it had died. Whether the backend can: where it cannot, D4 is left out
    /// and [`run_all`] says so.
    fn lose(&self, device: &Self::Device) -> bool;
}

/// What the kernels of a [`Subject`] do. Elements are `u32`s in the device's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sets every element of access 0 (written) to argument 0.
    Fill,
    /// Sets each element of access 1 (written) to that of access 0 (read) plus argument 0, both
    /// of one length.
    Add,
    /// Fails as kernels of this backend fail.
    Fail,
    /// Keeps its unit busy for argument 0 nanoseconds, off the core if the backend can, and
    /// touches none of its accesses.
    Hold,
}

/// A kernel of a subject's device.
pub type KernelOf<S> = <<S as Subject>::Device as Device>::Kernel;
type MemoryOf<S> = <<S as Subject>::Device as Device>::Memory;
type Check<S> = fn(&S) -> Checked;
type QueueOf<S> = <<S as Subject>::Device as Device>::Queue;

/// Longer than anything here takes on a machine that is busy with other things: only what hangs
/// uses it up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A time that is certain to run out.
pub(crate) const MOMENT: Duration = Duration::from_millis(20);

/// Checks every clause and prints which; goes on past a broken one.
///
/// # Panics
///
/// If the device breaks a clause.
pub fn run_all<S: Subject>(subject: &S) {
    let clauses: [(&str, Check<S>); 25] = [
        ("C1, C4", capability::c1_c4_the_host_sees_what_kernels_wrote),
        ("C2", capability::c2_kernels_reach_other_devices),
        ("C3, C5, C6", capability::c3_c5_c6_the_report_makes_sense),
        ("C7", capability::c7_all_units_run_at_once),
        ("C8", capability::c8_copy_engines_copy),
        ("C9", capability::c9_all_queues_can_be_open),
        ("D1", device::d1_queues_are_independent),
        ("D2", device::d2_every_queue_makes_progress),
        ("D3", device::d3_synchronize_waits_for_all_queues),
        ("D4", device::d4_a_lost_device_ends_its_signals),
        ("D5", device::d5_dropping_ends_what_does_not_run),
        ("D6", metering::d6_a_device_reports_its_time),
        ("Q1", queue::q1_commands_complete_in_order),
        ("Q2", queue::q2_a_full_queue_gives_the_command_back),
        ("Q3", queue::q3_what_was_written_is_readable),
        ("Q4", waiting::q4_a_wait_holds_back_its_own_queue),
        ("Q4 progress", waiting::q4_a_deadline_starts_anew_when_the_signal_moves),
        ("Q5", queue::q5_a_fault_stops_the_queue),
        ("Q5 after it", queue::q5_a_failed_queue_stays_failed_when_dropped),
        ("Q6", queue::q6_unordered_accesses_are_a_hazard),
        ("Q7", queue::q7_dropping_waits_for_nothing),
        ("Q8", metering::q8_waits_are_reported_by_purpose_and_source),
        ("M1, M2", memory::m1_m2_new_regions),
        ("M3", memory::m3_host_accesses_meet_commands),
        ("M4", memory::m4_clones_name_the_same_memory),
    ];
    let mut broken = Vec::new();
    for (clause, check) in clauses {
        // One broken clause hides no other.
        match catch_unwind(AssertUnwindSafe(|| check(subject))) {
            Ok(Checked::Yes) => println!("checked {clause}"),
            Ok(Checked::Partly(missing)) => println!("checked {clause} in part: no {missing}"),
            Ok(Checked::No(missing)) => println!("skipped: {clause} needs {missing}"),
            Err(_) => broken.push(clause),
        }
    }
    assert!(broken.is_empty(), "the device breaks {}", broken.join(", "));
}

/// How much of a clause could be checked on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// All of it.
    Yes,
    /// All but the part that needs what is said to be missing.
    Partly(&'static str),
    /// Nothing, for want of what is said to be missing.
    No(&'static str),
}

/// A device under test, with the commands that the checks are made of.
pub(crate) struct Bench<'s, S: Subject + ?Sized> {
    subject: &'s S,
    pub(crate) device: S::Device,
    clause: &'static str,
}

impl<'s, S: Subject> Bench<'s, S> {
    pub(crate) fn new(subject: &'s S, clause: &'static str, rank: u32) -> Self {
        Self { subject, device: subject.open(Rank(rank)), clause }
    }

    #[track_caller]
    pub(crate) fn queue(&self, label: &str) -> QueueOf<S> {
        self.device
            .open_queue(Engine::Compute, label)
            .unwrap_or_else(|error| panic!("{}: no queue {label}: {error}", self.clause))
    }

    /// A region of `count` elements.
    #[track_caller]
    pub(crate) fn region(&self, count: usize) -> MemoryOf<S> {
        self.device
            .allocate(4 * count)
            .unwrap_or_else(|error| panic!("{}: no region: {error}", self.clause))
    }

    pub(crate) fn fill(&self, to: &MemoryOf<S>, value: u32) -> CommandOf<QueueOf<S>> {
        self.fill_part(to, 0..to.bytes(), value)
    }

    pub(crate) fn fill_part(
        &self,
        to: &MemoryOf<S>,
        bytes: Range<usize>,
        value: u32,
    ) -> CommandOf<QueueOf<S>> {
        self.launch("fill", Work::Fill, &[Access::write(to, bytes)], u64::from(value))
    }

    pub(crate) fn add(
        &self,
        from: &MemoryOf<S>,
        to: &MemoryOf<S>,
        value: u32,
    ) -> CommandOf<QueueOf<S>> {
        let accesses = [Access::read(from, 0..from.bytes()), Access::write(to, 0..to.bytes())];
        self.launch("add", Work::Add, &accesses, u64::from(value))
    }

    pub(crate) fn fail(&self) -> CommandOf<QueueOf<S>> {
        self.launch("fail", Work::Fail, &[], 0)
    }

    pub(crate) fn hold(
        &self,
        time: Duration,
        accesses: &[Access<MemoryOf<S>>],
    ) -> CommandOf<QueueOf<S>> {
        self.launch("hold", Work::Hold, accesses, time.as_nanos() as u64)
    }

    fn launch(
        &self,
        label: &'static str,
        work: Work,
        accesses: &[Access<MemoryOf<S>>],
        argument: u64,
    ) -> CommandOf<QueueOf<S>> {
        let kernel = self.subject.kernel(&self.device, work);
        let accesses: Accesses<_> = accesses.iter().cloned().collect();
        Command::Launch { label, kernel, accesses, arguments: [argument].into_iter().collect() }
    }

    pub(crate) fn copy(&self, from: &MemoryOf<S>, to: &MemoryOf<S>) -> CommandOf<QueueOf<S>> {
        let (from, to) = (Access::read(from, 0..from.bytes()), Access::write(to, 0..to.bytes()));
        Command::Copy { label: "copy", from, to }
    }

    pub(crate) fn wait(&self, slot: &Slot, target: Seq) -> CommandOf<QueueOf<S>> {
        self.wait_within(slot, target, PATIENCE)
    }

    pub(crate) fn wait_within(
        &self,
        slot: &Slot,
        target: Seq,
        time: Duration,
    ) -> CommandOf<QueueOf<S>> {
        let label = Purpose::Dependency.label();
        Command::Wait { label, slot: slot.clone(), target, bound: Bound::within(time) }
    }

    /// Submits, as soon as the queue has room.
    #[track_caller]
    pub(crate) fn submit(&self, queue: &mut QueueOf<S>, mut command: CommandOf<QueueOf<S>>) -> Seq {
        let start = Instant::now();
        loop {
            match queue.submit(command) {
                Ok(position) => return position,
                Err(SubmitError::Full(back)) => command = back,
                Err(error) => panic!("{}: a queue refused a good command: {error}", self.clause),
            }
            self.still_patient(start, "a full queue never had room again");
            thread::yield_now();
        }
    }

    /// Submits, and waits until it is complete.
    #[track_caller]
    pub(crate) fn finish(&self, queue: &mut QueueOf<S>, command: CommandOf<QueueOf<S>>) {
        let position = self.submit(queue, command);
        self.reached(queue.completions(), position);
    }

    #[track_caller]
    pub(crate) fn reached(&self, slot: &Slot, target: Seq) {
        match slot.waiter().wait_ge_bounded(target, Bound::within(PATIENCE)) {
            Ok(observed) => drop(observed.acq_fence()),
            Err(error) => panic!("{}: what was submitted did not complete: {error}", self.clause),
        }
    }

    /// The way `slot` ended short of `target`.
    #[track_caller]
    pub(crate) fn ended(&self, slot: &Slot, target: Seq) -> WaitError {
        match slot.waiter().wait_ge_bounded(target, Bound::within(PATIENCE)) {
            Ok(_) => panic!("{}: a completion came that could not come", self.clause),
            Err(error) if error.is_timeout() => {
                panic!("{}: the signal of a queue that is over did not end: {error}", self.clause)
            }
            Err(error) => error,
        }
    }

    /// The elements of `region`.
    #[track_caller]
    pub(crate) fn read(&self, region: &MemoryOf<S>) -> Vec<u32> {
        let mut bytes = vec![0; region.bytes()];
        region
            .host_read(0, &mut bytes)
            .unwrap_or_else(|error| panic!("{}: the host could not read: {error}", self.clause));
        bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// Every element of `region` is `value`.
    #[track_caller]
    pub(crate) fn holds(&self, region: &MemoryOf<S>, value: u32) {
        let found = self.read(region);
        let wrong = found.iter().position(|&element| element != value);
        if let Some(index) = wrong {
            panic!("{}: element {index} is {}, not {value}", self.clause, found[index]);
        }
    }

    #[track_caller]
    pub(crate) fn holds_true(&self, what: &str, truth: bool) {
        assert!(truth, "{}: {what}", self.clause);
    }

    /// Polls until `done`, as long as patience lasts.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            self.still_patient(start, what);
            thread::yield_now();
        }
    }

    #[track_caller]
    pub(crate) fn still_patient(&self, start: Instant, what: &str) {
        assert!(start.elapsed() < PATIENCE, "{}: {what} within {PATIENCE:?}", self.clause);
    }
}

/// A signal that a check holds back queues with.
pub(crate) struct Gate {
    publisher: Publisher,
    pub(crate) slot: Slot,
    pub(crate) opened: Seq,
}

impl Gate {
    /// A rank that no device under test has.
    pub(crate) const RANK: u32 = 900;

    pub(crate) fn new() -> Self {
        // It wraps in every run: position 0 opens it.
        let shape = TableShape::new(1, 1).first_rank(Rank(Self::RANK)).starting_at(Seq::new(!0));
        let (table, slot) = (SignalTable::in_process(shape), SlotId::new(Self::RANK, 0));
        let claimed = "a new table has its slot free";
        let publisher = table.publisher(slot).expect(claimed);
        let slot = table.slot(slot).expect(claimed);
        Self { opened: publisher.value() + 1, publisher, slot }
    }

    pub(crate) fn open(&mut self) {
        self.publisher.pub_release(1);
    }
}
