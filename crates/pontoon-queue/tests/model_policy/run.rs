//! Runs a program, and writes down what the session says.

use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex},
    time::Duration,
};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{
    Buffer, Fence, HostError, OnFailure, Patience, Recovery, Session, StreamId, WaitFailure,
};
use pontoon_signal::{
    Bound, Rank,
    shim::{AtomicU32, Ordering::Relaxed},
};

use crate::{
    Counts,
    program::{Act, BUFFERS, Batch, Policy, Program, STREAMS, Work},
};

pub(crate) const LEN: usize = 4;

/// Catches a hang; no healthy wait comes near it.
const PATIENCE: Duration = Duration::from_secs(20);
/// A slow kernel takes longer than a hasty wait.
const SLOW: Duration = Duration::from_millis(3);
const HASTY: Duration = Duration::from_millis(1);

type Numbers = Buffer<pontoon_cpu::Region, u32>;

/// What was taken, in order.
#[derive(Debug)]
pub(crate) enum Event {
    /// Of the act of that number.
    Batch(usize, Outcome),
    Reopened(usize),
    Read(usize, Vec<u32>),
    Write(usize, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// How often each command began.
    pub(crate) began: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Reached {
        retries: u32,
    },
    Failed,
    /// Its bytes are what they were.
    Undone,
}

struct Given {
    /// Among the events.
    at: usize,
    fence: Fence,
    end: Option<End>,
    began: Vec<Arc<AtomicU32>>,
    told: Arc<Mutex<Vec<bool>>>,
}

struct Run<'d> {
    session: Session<'d, CpuDevice>,
    streams: [StreamId; STREAMS],
    buffers: [Numbers; BUFFERS],
    given: Vec<Given>,
    events: Vec<Event>,
}

pub(crate) fn run(program: &Program, counts: &mut Counts) -> Result<Vec<Event>, String> {
    let open = |rank| {
        let start = pontoon_signal::Seq::new(u64::MAX - 20);
        CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
    };
    let devices: Vec<_> = (0..if program.apart { STREAMS as u32 } else { 1 }).map(open).collect();
    let patience = Patience::within(PATIENCE);
    let bound = Bound::within(if program.hasty { HASTY } else { PATIENCE });
    let mut session = Session::auto().with_patience(patience).with_bound(bound);
    let streams = std::array::from_fn(|at| {
        let label = ["a", "b", "c"][at];
        session.stream(&devices[at % devices.len()], Engine::Compute, label).unwrap()
    });
    let buffers = std::array::from_fn(|_| Buffer::allocate(&devices[0], LEN).unwrap());
    let mut run = Run { session, streams, buffers, given: Vec::new(), events: Vec::new() };
    for (at, act) in program.acts.iter().enumerate() {
        run.act(at, act, counts).map_err(|why| format!("act {at}: {why}"))?;
    }
    run.finish(program, counts)
}

impl Run<'_> {
    fn act(&mut self, at: usize, act: &Act, counts: &mut Counts) -> Result<(), String> {
        match act {
            Act::Submit(batch) => self.submit(at, batch, counts),
            &Act::Wait(back) => match self.given.len().checked_sub(back + 1) {
                Some(given) => self.wait(given).map(drop),
                None => Ok(()),
            },
            &Act::Reopen(stream) => {
                self.session.reopen(self.streams[stream]).map_err(|error| error.to_string())?;
                self.events.push(Event::Reopened(stream));
                counts.reopened += 1;
                Ok(())
            }
            &Act::Read(buffer) => {
                let read = self.session.to_vec(&self.buffers[buffer]);
                if let Some(read) = unless_failed(read)? {
                    self.events.push(Event::Read(buffer, read));
                }
                Ok(())
            }
            &Act::Write(buffer, with) => {
                let written = self.session.write(&self.buffers[buffer], 0, &[with; LEN]);
                if unless_failed(written)?.is_some() {
                    self.events.push(Event::Write(buffer, with));
                }
                Ok(())
            }
            Act::Progress => {
                self.session.progress();
                Ok(())
            }
            &Act::Drain(stream) => {
                match self.session.drain(self.streams[stream], Patience::within(PATIENCE)) {
                    Err(failure) if failure.is_timeout() => Err(format!("hangs: {failure}")),
                    _ => Ok(()),
                }
            }
        }
    }

    fn submit(&mut self, at: usize, given: &Batch, counts: &mut Counts) -> Result<(), String> {
        let mut batch = self.session.batch();
        let mut began = Vec::new();
        for work in &given.works {
            let begins = Arc::new(AtomicU32::new(0));
            let to = self.buffers[work.to].write(..);
            let from = work.from.map(|from| self.buffers[from].read(..));
            let accesses = std::iter::once(to).chain(from);
            batch.launch("work", &kernel(*work, &begins), accesses, []);
            began.push(begins);
        }
        match given.policy {
            Policy::Error => {}
            Policy::Retry(times) => {
                batch.idempotent().on_failure(OnFailure::Retry(times));
            }
            Policy::Rollback => {
                let mut written: Vec<_> = given.works.iter().map(|work| work.to).collect();
                written.sort_unstable();
                written.dedup();
                let ranges = written.iter().map(|&to| self.buffers[to].write(..LEN));
                batch.on_failure(OnFailure::Rollback(ranges.collect()));
            }
        }
        let batch = batch.seal().map_err(|malformed| malformed.to_string())?;
        let Ok(fence) = self.session.submit(self.streams[given.stream], batch) else {
            counts.refused += 1;
            return Ok(());
        };
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        self.session
            .on_complete(&fence, move |outcome| tells.lock().unwrap().push(outcome.is_ok()));
        let outcome = Outcome { end: End::Failed, began: Vec::new() };
        self.given.push(Given { at: self.events.len(), fence, end: None, began, told });
        self.events.push(Event::Batch(at, outcome));
        Ok(())
    }

    /// Waits for a batch; it has to say the same as before.
    fn wait(&mut self, given: usize) -> Result<Option<WaitFailure>, String> {
        let fence = self.given[given].fence.clone();
        let waited = self.session.wait(&fence, Patience::within(PATIENCE));
        let end = match &waited {
            Ok(done) => End::Reached { retries: done.retries },
            Err(failure) if failure.is_timeout() => return Err(format!("hangs: {failure}")),
            Err(WaitFailure::Fence(error)) => match error.recovery.as_deref() {
                Some(Recovery::RolledBack(_) | Recovery::Untouched(_)) => End::Undone,
                Some(Recovery::NotRolledBack { why, .. }) => {
                    return Err(format!("could not be undone: {why}"));
                }
                _ => End::Failed,
            },
            Err(_) => End::Failed,
        };
        let before = self.given[given].end.replace(end);
        if before.is_some_and(|before| before != end) {
            return Err(format!("ended as {before:?}, and then as {end:?}"));
        }
        Ok(waited.err())
    }

    fn finish(mut self, program: &Program, counts: &mut Counts) -> Result<Vec<Event>, String> {
        for given in 0..self.given.len() {
            let failure = self.wait(given).map_err(|why| format!("in the end: {why}"))?;
            let Some(WaitFailure::Fence(error)) = failure else { continue };
            counts.timed_out += u64::from(error.to_string().contains("waited"));
            match error.recovery.as_deref() {
                Some(Recovery::RolledBack(_)) => counts.rolled_back += 1,
                Some(Recovery::Untouched(_)) => counts.untouched += 1,
                Some(Recovery::NotRetried { .. }) => counts.not_retried += 1,
                _ => {}
            }
        }
        for (at, stream) in self.streams.into_iter().enumerate() {
            self.session.reopen(stream).map_err(|error| error.to_string())?;
            self.events.push(Event::Reopened(at));
        }
        for buffer in 0..BUFFERS {
            let read = self.session.to_vec(&self.buffers[buffer]);
            let read = read.map_err(|error| format!("buffer {buffer} in the end: {error}"))?;
            self.events.push(Event::Read(buffer, read));
        }
        for given in &self.given {
            let Event::Batch(act, outcome) = &mut self.events[given.at] else { continue };
            let Act::Submit(batch) = &program.acts[*act] else { continue };
            outcome.end = given.end.unwrap_or(End::Failed);
            outcome.began = given.began.iter().map(|began| began.load(Relaxed)).collect();
            let reached = matches!(outcome.end, End::Reached { .. });
            if *given.told.lock().unwrap() != [reached] {
                return Err(format!("act {act}: a callback was told {:?}", given.told));
            }
            let allowed = if let Policy::Retry(times) = batch.policy { times } else { 0 };
            if outcome.began.iter().any(|&began| began > allowed + 1) {
                return Err(format!("act {act}: it began {:?} times", outcome.began));
            }
            if let End::Reached { retries } = outcome.end {
                counts.succeeded += 1;
                counts.retried += u64::from(retries > 0);
                if retries > allowed {
                    return Err(format!("act {act}: {retries} retries"));
                }
            } else {
                counts.failed += 1;
            }
        }
        Ok(self.events)
    }
}

/// A failure that is told is fine; one that is none of the devices' is not.
fn unless_failed<T>(outcome: Result<T, HostError>) -> Result<Option<T>, String> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(HostError::Wait(error)) if !error.error.is_timeout() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn kernel(work: Work, begins: &Arc<AtomicU32>) -> Kernel {
    let begins = Arc::clone(begins);
    Kernel::new(move |kernel| {
        let began = begins.fetch_add(1, Relaxed);
        if work.slow {
            std::thread::sleep(SLOW);
        }
        let from = work.from.map(|_| kernel.read::<u32>(1).to_vec());
        let to = kernel.write::<u32>(0);
        for at in 0..LEN {
            if at == LEN / 2 && began < work.panics {
                // Without the hook, which would write it down.
                resume_unwind(Box::new("half way"));
            }
            to[at] = work.result(to[at], from.as_ref().map_or(0, |from| from[at]));
        }
    })
}
