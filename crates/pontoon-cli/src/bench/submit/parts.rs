//! Parts of a submission by themselves: waits that others imply, the search for a circle, fences.

use std::{array, time::Instant};

use pontoon::{
    Edges, Fence, Patience, Session, StreamId,
    hal::Engine,
    queue::{Acyclic, Buffer, FencePool, Node, PoolSpec},
    signal::{LinePool, Rank},
};

use super::{
    PATIENCE,
    null::{NullDevice, NullMemory},
    pipe::SIDE,
};
use crate::bench::BenchError;

/// Implied waits of a batch.
const WAITS: usize = 16;
/// Batches that are timed together.
const BATCHES: usize = 16;
/// How often they are timed in a round, of which the shortest counts: a difference shows whatever
/// else took the processor.
const TIMES: usize = 4;
/// Repetitions that are timed together of what takes some nanoseconds.
const MANY: usize = 1000;
/// Batches that are parked.
pub(super) const PARKED: usize = 64;

/// Batches with waits that are implied, and without.
pub(super) struct Elided<'d> {
    device: &'d NullDevice,
    session: Session<'d, NullDevice>,
    producers: [StreamId; SIDE],
    consumer: StreamId,
    buffers: Vec<Buffer<NullMemory, u64>>,
    own: Buffer<NullMemory, u64>,
}

impl<'d> Elided<'d> {
    pub(super) fn open(device: &'d NullDevice) -> Result<Self, BenchError> {
        let mut session = Session::new(Edges::Check);
        let mut streams = array::from_fn(|_| None);
        for stream in &mut streams {
            *stream = Some(session.stream(device, Engine::Compute, "produce")?);
        }
        let producers = streams.map(|stream| stream.expect("each was opened"));
        let consumer = session.stream(device, Engine::Compute, "consume")?;
        let buffers = (0..WAITS).map(|_| Buffer::allocate(device, 1)).collect::<Result<_, _>>()?;
        let own = Buffer::allocate(device, 1)?;
        Ok(Self { device, session, producers, consumer, buffers, own })
    }

    /// Nanoseconds of an implied wait.
    pub(super) fn wait(&mut self) -> Result<f64, BenchError> {
        let mut fences = Vec::with_capacity(WAITS);
        for (at, buffer) in self.buffers.iter().enumerate() {
            let stream = self.producers[at % SIDE];
            fences.push(self.session.launch(stream, "produce", &(), [buffer.write(..)], [])?);
        }
        self.batches(&fences, 1)?;
        let before = self.session.counts();
        let (mut with, mut without) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..TIMES {
            with = with.min(self.batches(&fences, BATCHES)?);
            without = without.min(self.batches(&[], BATCHES)?);
        }
        let after = self.session.counts();
        self.device.complete();
        for stream in self.producers.into_iter().chain([self.consumer]) {
            self.session.drain(stream, Patience::within(PATIENCE))?;
        }
        let implied = (WAITS * BATCHES * TIMES) as u64;
        BenchError::unless_equal("implied waits", implied, after.redundant - before.redundant)?;
        BenchError::unless_equal("waits given to devices", 0, after.waits - before.waits)?;
        Ok((with - without) / WAITS as f64)
    }

    /// Nanoseconds of a batch with these waits and a launch.
    fn batches(&mut self, fences: &[Fence], count: usize) -> Result<f64, BenchError> {
        let start = Instant::now();
        for _ in 0..count {
            let mut batch = self.session.batch();
            for fence in fences {
                batch.wait(fence);
            }
            batch.launch("consume", &(), [self.own.write(..)], []);
            let submitted = self.session.submit(self.consumer, batch.seal()?);
            drop(submitted.map_err(|refused| refused.why)?);
        }
        Ok(start.elapsed().as_nanos() as f64 / count as f64)
    }
}

/// The graph of parked batches.
pub(super) struct Circles {
    graph: Acyclic,
    before: [Node; 2],
    live: usize,
}

impl Circles {
    /// With nothing parked: what the batch waits for is in the graph no longer. A session does not
    /// even ask the graph then.
    pub(super) fn with_nothing_parked() -> Self {
        let mut graph = Acyclic::new();
        let before = array::from_fn(|_| graph.add());
        before.iter().for_each(|&node| graph.remove(node));
        Self { graph, before, live: 0 }
    }

    /// With batches parked, each behind the one before it, half of them in either of two queues.
    pub(super) fn with_many_parked() -> Result<Self, BenchError> {
        let mut graph = Acyclic::new();
        let nodes: Vec<Node> = (0..PARKED).map(|_| graph.add()).collect();
        for pair in nodes.windows(3) {
            graph.order(pair[0], pair[2]).map_err(|_| BenchError::OutOfStep)?;
        }
        let before = [nodes[PARKED - 2], nodes[PARKED - 1]];
        Ok(Self { graph, before, live: PARKED })
    }

    /// Nanoseconds of adding a batch that waits for two others, and taking it out.
    pub(super) fn look(&mut self) -> Result<f64, BenchError> {
        let start = Instant::now();
        for _ in 0..MANY {
            let node = self.graph.add();
            for before in self.before {
                self.graph.order(before, node).map_err(|_| BenchError::OutOfStep)?;
            }
            self.graph.remove(node);
        }
        let ns = start.elapsed().as_nanos() as f64 / MANY as f64;
        // It found what it looks for, and left nothing behind.
        let node = self.graph.add();
        for before in self.before {
            self.graph.order(before, node).map_err(|_| BenchError::OutOfStep)?;
        }
        let closes = self.graph.order(node, self.before[0]).is_err();
        self.graph.remove(node);
        BenchError::unless_equal("circles found", u64::from(self.live > 0), u64::from(closes))?;
        BenchError::unless_equal("parked batches", self.live as u64, self.graph.len() as u64)?;
        Ok(ns)
    }
}

/// Fences that are made, completed and made again.
pub(super) struct Fences {
    lines: LinePool,
    named: FencePool,
}

impl Fences {
    pub(super) fn new() -> Self {
        let spec = PoolSpec::default();
        Self { lines: LinePool::new(Rank(0), spec.lines), named: FencePool::new(Rank(0), spec) }
    }

    /// Nanoseconds from taking a line to having it back.
    pub(super) fn bare(&mut self) -> Result<f64, BenchError> {
        let mut completed = 0;
        let start = Instant::now();
        for _ in 0..MANY {
            let Some(lease) = self.lines.take() else { break };
            let target = lease.target();
            completed += u64::from(lease.complete() == target);
        }
        let ns = start.elapsed().as_nanos() as f64 / MANY as f64;
        BenchError::unless_equal("fences completed", MANY as u64, completed)?;
        BenchError::unless_equal("fences out", 0, u64::from(self.lines.outstanding()))?;
        Ok(ns)
    }

    /// The same with a fence that knows what it is for, and since when.
    pub(super) fn named(&mut self) -> Result<f64, BenchError> {
        let created = self.named.report().created;
        let start = Instant::now();
        for _ in 0..MANY {
            let (completer, fence) = self.named.create("bench")?;
            completer.complete(Ok(()));
            drop(fence);
        }
        let ns = start.elapsed().as_nanos() as f64 / MANY as f64;
        let report = self.named.report();
        BenchError::unless_equal("fences made", MANY as u64, report.created - created)?;
        BenchError::unless_equal("fences out", 0, self.named.leaks().count())?;
        Ok(ns)
    }
}
