//! The same commands as those of a session, given to the queues by hand.

use std::time::Instant;

use pontoon::{
    CpuDevice, Kernel,
    cpu::{CpuQueue, Region},
    hal::{Access, Accesses, Command, Device, Engine, Queue, SubmitError},
    signal::{Bound, Seq, Slot},
};

use super::{
    PATIENCE,
    pipe::{BLOCK, Gate, Job, Rigged, SIDE, values},
};
use crate::bench::BenchError;

/// The queues without a session.
pub(super) struct Bare {
    producers: Vec<CpuQueue>,
    consumers: Vec<CpuQueue>,
    jobs: Vec<Job<Region>>,
    kernels: [Kernel; 2],
    gate: Gate,
    round: u64,
}

impl Bare {
    pub(super) fn open(devices: &[CpuDevice; 2]) -> Result<Self, BenchError> {
        let open = |device: &CpuDevice, label| -> Result<Vec<CpuQueue>, BenchError> {
            (0..SIDE).map(|_| Ok(device.open_queue(Engine::Compute, label)?)).collect()
        };
        let (producers, consumers) = (open(&devices[0], "produce")?, open(&devices[1], "consume")?);
        let (jobs, kernels, gate) = (Job::all(devices)?, CpuDevice::kernels(), Gate::new()?);
        Ok(Self { producers, consumers, jobs, kernels, gate, round: 0 })
    }

    /// Nanoseconds of two waits and a launch with four accesses.
    pub(super) fn submission(&mut self) -> Result<f64, BenchError> {
        self.round += 1;
        let Self { producers, consumers, jobs, kernels, gate, .. } = self;
        gate.close();
        let opened = gate.fence.target().ok_or(BenchError::OutOfStep)?;
        for queue in producers.iter_mut().chain(&mut *consumers) {
            submit(queue, wait(&gate.slot, opened))?;
        }
        CpuDevice::settle();
        let mut made = Vec::with_capacity(BLOCK);
        for (at, job) in jobs.iter().enumerate() {
            let values = values(self.round, at);
            let mut one = |n: usize| {
                let (queue, access) = (&mut producers[job.producers[n]], job.inputs[n].write(..));
                submit(queue, launch("produce", &kernels[0], [access], &values[n..=n]))
            };
            made.push([one(0)?, one(1)?]);
        }
        let start = Instant::now();
        for (job, made) in jobs.iter().zip(&made) {
            let queue = &mut consumers[job.consumer];
            for (producer, target) in job.producers.iter().zip(made) {
                submit(queue, wait(producers[*producer].completions(), *target))?;
            }
            submit(queue, launch("consume", &kernels[1], job.accesses(), &[]))?;
        }
        let ns = start.elapsed().as_nanos() as f64 / BLOCK as f64;
        gate.open();
        for queue in producers.iter().chain(&*consumers) {
            let waiter = queue.completions().uncounted_waiter();
            match waiter.wait_ge_bounded(queue.submitted(), Bound::within(PATIENCE)) {
                Ok(observed) => drop(observed.acq_fence()),
                Err(error) => {
                    return Err(queue.fault().map_or(BenchError::Wait(error), BenchError::Fault));
                }
            }
        }
        for (at, job) in jobs.iter().enumerate() {
            job.check("a bare submission", CpuDevice::sum(values(self.round, at)))?;
        }
        Ok(ns)
    }
}

fn wait(slot: &Slot, target: Seq) -> Command<Region, Kernel> {
    Command::Wait { label: "wait", slot: slot.clone(), target, bound: Bound::within(PATIENCE) }
}

fn launch<const N: usize>(
    label: &'static str,
    kernel: &Kernel,
    accesses: [Access<Region>; N],
    arguments: &[u64],
) -> Command<Region, Kernel> {
    let accesses: Accesses<Region> = accesses.into_iter().collect();
    let arguments = arguments.iter().copied().collect();
    Command::Launch { label, kernel: kernel.clone(), accesses, arguments }
}

fn submit(queue: &mut CpuQueue, command: Command<Region, Kernel>) -> Result<Seq, BenchError> {
    queue.submit(command).map_err(|error| match error {
        SubmitError::Full(_) => BenchError::Submit("it is full"),
        SubmitError::Malformed(why) => BenchError::Submit(why),
        SubmitError::Faulted(fault) => BenchError::Fault(fault),
        _ => BenchError::Submit("for a reason this program does not know"),
    })
}
