//! Eight queues of two devices in a session: four produce, four consume what two of those made.

use std::{
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Buffer, CpuDevice, Edges, Fence, Kernel, Patience, Session, StreamId,
    hal::{Access, Device, Engine, Memory},
    signal::{Publisher, SignalTable, Slot, SlotId, TableShape},
};

use super::{PATIENCE, null::NullDevice};
use crate::bench::BenchError;

/// Queues that produce, and as many that consume.
pub(super) const SIDE: usize = 4;
/// Submissions that are timed together, so that two clock readings are little beside them.
pub(super) const BLOCK: usize = 32;

/// A device that can be measured by a [`Pipe`].
pub(super) trait Rigged: Device {
    /// One that writes its argument, and one that adds what it reads.
    fn kernels() -> [Self::Kernel; 2];

    /// Gives its units the time to see that everything is held back.
    fn settle();

    /// Sees to it that what was submitted gets complete.
    fn go_on(&self);

    /// How many commands its queues were given in all, if it knows.
    fn given(&self) -> Option<u64>;

    /// What two values became, if the device did anything.
    fn sum(values: [u64; 2]) -> u64;
}

impl Rigged for CpuDevice {
    fn kernels() -> [Kernel; 2] {
        let produce = Kernel::new(|kernel| kernel.write::<u64>(0)[0] = kernel.argument(0));
        let consume = Kernel::new(|kernel| {
            let sum = kernel.read::<u64>(0)[0] + kernel.read::<u64>(1)[0];
            kernel.write::<u64>(2)[0] = sum;
            kernel.write::<u64>(3)[0] = sum;
        });
        [produce, consume]
    }

    fn settle() {
        thread::sleep(Duration::from_micros(50));
    }

    fn go_on(&self) {}

    fn given(&self) -> Option<u64> {
        None
    }

    fn sum(values: [u64; 2]) -> u64 {
        values[0] + values[1]
    }
}

impl Rigged for NullDevice {
    fn kernels() -> [(); 2] {
        [(); 2]
    }

    fn settle() {}

    fn go_on(&self) {
        self.complete();
    }

    fn given(&self) -> Option<u64> {
        Some(self.submitted())
    }

    fn sum(_: [u64; 2]) -> u64 {
        0
    }
}

/// A signal that holds the queues back while they are given their commands.
pub(super) struct Gate {
    publisher: Publisher,
    pub(super) slot: Slot,
    pub(super) fence: Fence,
}

impl Gate {
    pub(super) fn new() -> Result<Self, BenchError> {
        let (table, slot) = (SignalTable::in_process(TableShape::new(1, 1)), SlotId::new(0, 0));
        let (publisher, slot) = (table.publisher(slot)?, table.slot(slot)?);
        let fence = Fence::on(slot.clone(), publisher.value(), "gate");
        Ok(Self { publisher, slot, fence })
    }

    /// Closes it: the fence is reached once it is opened.
    pub(super) fn close(&mut self) {
        self.fence = self.fence.later(1);
    }

    pub(super) fn open(&mut self) {
        self.publisher.pub_release(1);
    }
}

/// What one of the submissions reads and writes, and where.
pub(super) struct Job<M> {
    pub(super) producers: [usize; 2],
    pub(super) consumer: usize,
    pub(super) inputs: [Buffer<M, u64>; 2],
    pub(super) outputs: [Buffer<M, u64>; 2],
}

impl<M: Memory> Job<M> {
    pub(super) fn all<D: Device<Memory = M>>(devices: &[D; 2]) -> Result<Vec<Self>, BenchError> {
        let [first, second] = devices;
        let job = |at: usize| -> Result<Self, BenchError> {
            Ok(Self {
                producers: [at % SIDE, (at + 1) % SIDE],
                consumer: at % SIDE,
                inputs: [Buffer::allocate(first, 1)?, Buffer::allocate(first, 1)?],
                outputs: [Buffer::allocate(second, 1)?, Buffer::allocate(second, 1)?],
            })
        };
        (0..BLOCK).map(job).collect()
    }

    pub(super) fn accesses(&self) -> [Access<M>; 4] {
        let ([a, b], [c, d]) = (&self.inputs, &self.outputs);
        [a.read(..), b.read(..), c.write(..), d.write(..)]
    }

    /// Fails unless both outputs are `sum`.
    pub(super) fn check(&self, what: &'static str, sum: u64) -> Result<(), BenchError> {
        for output in &self.outputs {
            let found = output.to_vec()?[0];
            if found != sum {
                return Err(BenchError::Checksum { what, expected: sum, found });
            }
        }
        Ok(())
    }
}

/// What is written in a round by the producers of job `at`.
pub(super) fn values(round: u64, at: usize) -> [u64; 2] {
    [round << 32 | at as u64, round + at as u64]
}

/// The queues in a session.
pub(super) struct Pipe<'d, D: Rigged> {
    devices: &'d [D; 2],
    session: Session<'d, D>,
    producers: [StreamId; SIDE],
    consumers: [StreamId; SIDE],
    jobs: Vec<Job<D::Memory>>,
    kernels: [D::Kernel; 2],
    gate: Gate,
    /// Batches that stay parked meanwhile.
    parked: usize,
    round: u64,
}

impl<'d, D: Rigged> Pipe<'d, D> {
    pub(super) fn open(devices: &'d [D; 2], edges: Edges) -> Result<Self, BenchError> {
        let mut session = Session::new(edges).with_patience(Patience::within(PATIENCE));
        let mut streams = |device, label| -> Result<[StreamId; SIDE], BenchError> {
            let mut all = [None; SIDE];
            for stream in &mut all {
                *stream = Some(session.stream(device, Engine::Compute, label)?);
            }
            Ok(all.map(|stream| stream.expect("each was opened")))
        };
        let (producers, consumers) =
            (streams(&devices[0], "produce")?, streams(&devices[1], "consume")?);
        let (jobs, kernels, gate) = (Job::all(devices)?, D::kernels(), Gate::new()?);
        Ok(Self {
            devices,
            session,
            producers,
            consumers,
            jobs,
            kernels,
            gate,
            parked: 0,
            round: 0,
        })
    }

    /// The same beside `count` batches that stay parked, half of them in either of two more queues.
    /// They have nothing to do with what is measured.
    pub(super) fn beside_parked(mut self, count: usize) -> Result<Self, BenchError> {
        let never = self.session.semaphore("never");
        let mut stream = |device| self.session.stream(device, Engine::Compute, "parked");
        let streams = [stream(&self.devices[0])?, stream(&self.devices[1])?];
        for at in 0..count {
            let mut batch = self.session.batch();
            batch.wait_semaphore(never, 1);
            let parked = self.session.submit(streams[at % 2], batch.seal()?);
            drop(parked.map_err(|refused| refused.why)?);
        }
        self.parked = count;
        Ok(self)
    }

    /// Nanoseconds of one of the submissions: it waits twice and makes four accesses.
    pub(super) fn submission(&mut self) -> Result<f64, BenchError> {
        self.round += 1;
        self.gate.close();
        for &stream in self.producers.iter().chain(&self.consumers) {
            drop(self.session.stream_wait(stream, &self.gate.fence)?);
        }
        D::settle();
        let mut made = Vec::with_capacity(BLOCK);
        for at in 0..BLOCK {
            made.push(self.produce(at)?);
        }
        let before = self.session.counts();
        let start = Instant::now();
        for (at, made) in made.iter().enumerate() {
            self.consume(at, made)?;
        }
        let ns = start.elapsed().as_nanos() as f64 / BLOCK as f64;
        let after = self.session.counts();
        let parked = self.session.pending().parked.len();
        BenchError::unless_equal("parked batches", self.parked as u64, parked as u64)?;
        self.gate.open();
        self.finish()?;
        let [commands, waits] = [BLOCK as u64, 2 * BLOCK as u64];
        for (what, expected, found) in [
            ("commands submitted", commands, after.commands - before.commands),
            ("edges", waits, after.edges - before.edges),
            ("waits given to devices", waits, after.waits - before.waits),
            ("edges complete at submit", 0, after.complete - before.complete),
        ] {
            BenchError::unless_equal(what, expected, found)?;
        }
        Ok(ns)
    }

    fn produce(&mut self, at: usize) -> Result<[Fence; 2], BenchError> {
        let Self { session, producers, jobs, kernels, .. } = self;
        let job = &jobs[at];
        let mut one = |n: usize| {
            let (stream, access) = (producers[job.producers[n]], job.inputs[n].write(..));
            let value = values(self.round, at)[n];
            session.launch(stream, "produce", &kernels[0], [access], [value])
        };
        Ok([one(0)?, one(1)?])
    }

    fn consume(&mut self, at: usize, made: &[Fence; 2]) -> Result<(), BenchError> {
        let Self { session, consumers, jobs, kernels, .. } = self;
        let job = &jobs[at];
        let stream = consumers[job.consumer];
        if session.edges() == Edges::Auto {
            drop(session.launch(stream, "consume", &kernels[1], job.accesses(), [])?);
            return Ok(());
        }
        let mut batch = session.batch();
        batch.wait(&made[0]).wait(&made[1]);
        batch.launch("consume", &kernels[1], job.accesses(), []);
        drop(session.submit(stream, batch.seal()?).map_err(|refused| refused.why)?);
        Ok(())
    }

    /// Waits until everything is complete, and checks what it did.
    fn finish(&mut self) -> Result<(), BenchError> {
        self.devices.iter().for_each(D::go_on);
        for &stream in self.producers.iter().chain(&self.consumers) {
            self.session.drain(stream, Patience::within(PATIENCE))?;
        }
        for (at, job) in self.jobs.iter().enumerate() {
            job.check("a submission", D::sum(values(self.round, at)))?;
        }
        let counts = self.session.counts();
        if let Some(given) = self.devices.iter().map(D::given).sum() {
            BenchError::unless_equal("commands given", counts.commands + counts.waits, given)?;
        }
        Ok(())
    }
}
