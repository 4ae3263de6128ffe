//! The suite itself, held against a link that is late: what is posted waits in line until somebody
//! makes progress, as over a network, so that bounds, depth and time-outs are met.

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use pontoon_hal::{
    conformance::link::{HEAP_BYTES, LinkSubject, Member, SLOTS, delegate_link, run_all},
    link::{
        Between, Explanation, Link, LinkCapabilities, LinkError, LinkReport, Operation, Order,
        Registered, Remote, RemoteSignal,
    },
};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{
    Bound, Ending, Nanos, Observed, Publisher, Rank, Segment, SegmentShape, Seq, SignalTable, Slot,
    SlotId, Span, TableShape, WaitError, Waiter,
    shim::{AtomicU32, Ordering::*},
};

const DEPTH: u32 = 8;
const INLINE: usize = 32;

type Work = Box<dyn FnOnce(&ShmLink) + Send>;

/// What waits in line for a peer.
#[derive(Default)]
struct Line {
    posted: u64,
    waiting: VecDeque<Work>,
    done: Option<(Publisher, Slot)>,
}

/// A link whose operations are done by [`Link::progress`] alone, and not while its peer is held.
struct Late {
    inner: ShmLink,
    lines: Mutex<BTreeMap<Rank, Line>>,
    /// Which ranks are held, by their numbers' bits.
    held: Arc<AtomicU32>,
}

/// The inner link's signal, which work in line grows later.
type Signal = Arc<Mutex<RemoteSignal>>;

impl Late {
    fn post(&self, peer: Rank, work: Work) -> Result<Seq, LinkError> {
        let mut lines = self.lines.lock().unwrap();
        let line = lines.get_mut(&peer).unwrap();
        if line.waiting.len() >= DEPTH as usize {
            return Err(LinkError::Full { peer, depth: DEPTH });
        }
        line.posted += 1;
        line.waiting.push_back(work);
        Ok(Seq::new(line.posted))
    }

    /// That the handles are good, by an operation of no bytes.
    fn check(&self, from: &Registered, range: &Range<usize>, to: &Remote) -> Result<(), LinkError> {
        from.check(self.rank(), range)?;
        self.inner.write(from, range.start..range.start, to, 0).map(drop)
    }

    fn told(&self, signal: &mut RemoteSignal, peer: Option<Rank>) -> Result<Signal, LinkError> {
        let whose = signal.peer();
        let foreign = LinkError::Foreign("a signal");
        let told = signal.data::<(Signal, Arc<AtomicU32>)>().ok_or(foreign.clone())?;
        if !Arc::ptr_eq(&told.1, &self.held) || peer.is_some_and(|peer| peer != whose) {
            return Err(foreign);
        }
        self.inner.fence(whose)?;
        Ok(Arc::clone(&told.0))
    }

    /// As a caller without a thread for it: until `done` says so, or the bound ends.
    fn until<T>(
        &self,
        peer: Rank,
        operation: Operation,
        bound: Bound,
        mut done: impl FnMut() -> Option<T>,
    ) -> Result<T, LinkError> {
        let start = Instant::now();
        loop {
            self.inner.fence(peer)?;
            if let Some(done) = done() {
                return Ok(done);
            }
            let waited = start.elapsed();
            if bound.deadline().is_some_and(|most| waited > most) {
                let lines = self.lines.lock().unwrap();
                let line = &lines[&peer];
                let (done, posted) = (line.posted - line.waiting.len() as u64, line.posted);
                let (done, posted, waited) =
                    (Seq::new(done), Seq::new(posted), Nanos::from(waited));
                return Err(LinkError::TimedOut { peer, operation, waited, done, posted });
            }
            if !self.progress() {
                thread::yield_now();
            }
        }
    }

    fn atomic(
        &self,
        to: &Remote,
        offset: usize,
        (operation, bound): (Operation, Bound),
        work: impl FnOnce(&ShmLink, &Remote) -> Result<u64, LinkError> + Send + 'static,
    ) -> Result<u64, LinkError> {
        to.check_word(offset)?;
        self.inner.write_inline(&[], to, 0)?;
        let (found, place) = (Arc::new(Mutex::new(None)), to.clone());
        let result = Arc::clone(&found);
        let mut work: Option<Work> = Some(Box::new(move |link| {
            *result.lock().unwrap() = Some(work(link, &place));
        }));
        let peer = to.peer();
        // Its turn may be late, for others' is first.
        self.until(peer, operation, bound, || {
            if let Some(mine) = work.take() {
                let mut lines = self.lines.lock().unwrap();
                let line = lines.get_mut(&peer).unwrap();
                if line.waiting.len() < DEPTH as usize {
                    line.posted += 1;
                    line.waiting.push_back(mine);
                } else {
                    work = Some(mine);
                }
            }
            found.lock().unwrap().take()
        })?
    }
}

impl Link for Late {
    fn name(&self) -> &'static str {
        "late"
    }

    delegate_link!(inner: rank);

    fn capabilities(&self, peer: Rank) -> Result<LinkCapabilities, LinkError> {
        self.inner.capabilities(peer)?;
        let mut can = LinkCapabilities::least(DEPTH);
        (can.inline_bytes, can.between) = (INLINE, Between::Flush);
        Ok(can)
    }

    delegate_link!(inner: peer_state);

    fn end_peer(&self, peer: Rank, ending: Ending) {
        self.inner.end_peer(peer, ending);
        if let Some(line) = self.lines.lock().unwrap().get_mut(&peer) {
            line.waiting.clear();
            if let Some((_, slot)) = &line.done {
                slot.end(ending);
            }
        }
    }

    delegate_link!(inner: register, attach);

    fn owns(
        &self,
        from: &Registered,
        to: &Remote,
        signal: Option<&mut RemoteSignal>,
    ) -> Result<(), LinkError> {
        let Some(signal) = signal else { return self.inner.owns(from, to, None) };
        let told = self.told(signal, Some(to.peer()))?;
        self.inner.owns(from, to, Some(&mut told.lock().unwrap()))
    }

    fn attach_signal(&self, peer: Rank, slot: u32) -> Result<RemoteSignal, LinkError> {
        let signal = self.inner.attach_signal(peer, slot)?;
        let (slot, value) = (signal.slot(), signal.value());
        let data: (Signal, _) = (Arc::new(Mutex::new(signal)), Arc::clone(&self.held));
        Ok(RemoteSignal::new(peer, slot, value, Box::new(data)))
    }

    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        self.check(from, &range, to)?;
        to.check(offset, range.len())?;
        let (from, place) = (from.clone(), to.clone());
        let work = move |link: &ShmLink| drop(link.write(&from, range, &place, offset));
        self.post(to.peer(), Box::new(work))
    }

    fn write_inline(&self, bytes: &[u8], to: &Remote, offset: usize) -> Result<Seq, LinkError> {
        if bytes.len() > INLINE {
            return Err(LinkError::TooLong { bytes: bytes.len(), most: INLINE });
        }
        self.inner.write_inline(&[], to, 0)?;
        to.check(offset, bytes.len())?;
        let (bytes, place) = (bytes.to_vec(), to.clone());
        let work = move |link: &ShmLink| drop(link.write_inline(&bytes, &place, offset));
        self.post(to.peer(), Box::new(work))
    }

    fn read(
        &self,
        from: &Remote,
        offset: usize,
        into: &Registered,
        range: Range<usize>,
    ) -> Result<Seq, LinkError> {
        self.check(into, &range, from)?;
        from.check(offset, range.len())?;
        let (place, into) = (from.clone(), into.clone());
        let work = move |link: &ShmLink| drop(link.read(&place, offset, &into, range));
        self.post(from.peer(), Box::new(work))
    }

    fn write_signal(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
        signal: &mut RemoteSignal,
        n: u32,
        order: Order,
    ) -> Result<Seq, LinkError> {
        self.check(from, &range, to)?;
        to.check(offset, range.len())?;
        let told = self.told(signal, Some(to.peer()))?;
        let (from, place) = (from.clone(), to.clone());
        let work = move |link: &ShmLink| {
            let signal = &mut *told.lock().unwrap();
            drop(link.write_signal(&from, range, &place, offset, signal, n, order));
        };
        let number = self.post(to.peer(), Box::new(work))?;
        signal.set_value(signal.value() + n);
        Ok(number)
    }

    fn signal(&self, signal: &mut RemoteSignal, n: u32, order: Order) -> Result<Seq, LinkError> {
        let told = self.told(signal, None)?;
        let work = move |link: &ShmLink| drop(link.signal(&mut told.lock().unwrap(), n, order));
        let number = self.post(signal.peer(), Box::new(work))?;
        signal.set_value(signal.value() + n);
        Ok(number)
    }

    fn post_add(
        &self,
        to: &Remote,
        offset: usize,
        n: u64,
        reply: Option<(&Registered, usize)>,
    ) -> Result<Seq, LinkError> {
        to.check_word(offset)?;
        self.inner.write_inline(&[], to, 0)?;
        if let Some((into, at)) = reply {
            into.check_word(self.rank(), at)?;
            self.check(into, &(at..at + 8), to)?;
            if Span::of(into.block(), at..at + 8).and_then(|span| span.word(0)).is_none() {
                return Err(LinkError::Misaligned { offset: at });
            }
        }
        let (place, reply) = (to.clone(), reply.map(|(into, at)| (into.clone(), at)));
        let work = move |link: &ShmLink| {
            let reply = reply.as_ref().map(|(into, at)| (into, *at));
            drop(link.post_add(&place, offset, n, reply));
        };
        self.post(to.peer(), Box::new(work))
    }

    fn add(&self, to: &Remote, offset: usize, n: u64, bound: Bound) -> Result<u64, LinkError> {
        let add = move |link: &ShmLink, to: &Remote| link.add(to, offset, n, bound);
        self.atomic(to, offset, (Operation::Add, bound), add)
    }

    fn compare_swap(
        &self,
        to: &Remote,
        offset: usize,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, LinkError> {
        let swap =
            move |link: &ShmLink, to: &Remote| link.compare_swap(to, offset, expected, new, bound);
        self.atomic(to, offset, (Operation::CompareSwap, bound), swap)
    }

    // What waits in line keeps its order.
    delegate_link!(inner: fence);

    fn flush(&self, peer: Rank, bound: Bound) -> Result<(), LinkError> {
        self.inner.fence(peer)?;
        let empty = || self.lines.lock().unwrap()[&peer].waiting.is_empty().then_some(());
        self.until(peer, Operation::Flush, bound, empty)
    }

    fn completions(&self, peer: Rank) -> Result<Slot, LinkError> {
        self.inner.fence(peer)?;
        let lines = self.lines.lock().unwrap();
        let (_, slot) = lines[&peer].done.as_ref().unwrap();
        Ok(slot.clone())
    }

    /// One piece of work for each peer that is not held. The lock is kept: what is in line is done in
    /// its order.
    fn progress(&self) -> bool {
        let mut did = false;
        for (peer, line) in &mut *self.lines.lock().unwrap() {
            if self.held.load(Relaxed) >> peer.0 & 1 == 1 {
                continue;
            }
            if let Some(work) = line.waiting.pop_front() {
                work(&self.inner);
                line.done.as_mut().unwrap().0.pub_release(1);
                did = true;
            }
        }
        did
    }

    fn wait<'w>(
        &self,
        waiter: &'w Waiter,
        target: Seq,
        bound: Bound,
    ) -> Result<Observed<'w>, WaitError> {
        let start = Instant::now();
        loop {
            if let Some(observed) = waiter.try_wait(target)? {
                return Ok(observed);
            }
            let waited = start.elapsed();
            if bound.deadline().is_some_and(|most| waited > most) {
                return waiter.give_up(target, waited.into());
            }
            if !self.progress() {
                thread::yield_now();
            }
        }
    }

    fn explain(&self, peer: Rank, operation: Operation) -> Result<Explanation, LinkError> {
        let told = self.inner.explain(peer, operation)?;
        Ok(Explanation { link: self.name(), ..told })
    }

    fn report(&self) -> LinkReport {
        let mut report = self.inner.report();
        report.posted = self.lines.lock().unwrap().values().map(|line| line.posted).sum();
        report
    }
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

struct Subject;

/// Holds a rank until it is dropped.
struct Held(Arc<AtomicU32>, u32);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_and(!(1 << self.1), Relaxed);
    }
}

fn late(member: &Member) -> &Late {
    member.own.downcast_ref::<Arc<Late>>().unwrap()
}

impl LinkSubject for Subject {
    fn open(&self, ranks: u32) -> Vec<Member> {
        let held = Arc::new(AtomicU32::new(0));
        let segments: Vec<_> = (0..ranks)
            .map(|at| {
                let whose = identity(*b"a job of a test.", Rank(at), ranks, 0);
                Segment::create(SegmentShape::new(ranks, SLOTS, HEAP_BYTES), whose).unwrap()
            })
            .collect();
        let member = |at: u32| {
            let segment = &segments[at as usize];
            let inner = ShmLink::new(segment.clone());
            let mut lines = BTreeMap::new();
            for peer in (0..ranks).filter(|peer| *peer != at) {
                inner.connect(Rank(peer), segments[peer as usize].clone()).unwrap();
                let table = SignalTable::in_process(TableShape::new(1, 1).first_rank(Rank(peer)));
                let slot = SlotId::new(peer, 0);
                let done = Some((table.publisher(slot).unwrap(), table.slot(slot).unwrap()));
                lines.insert(Rank(peer), Line { done, ..Line::default() });
            }
            let link = Arc::new(Late { inner, lines: Mutex::new(lines), held: Arc::clone(&held) });
            let (signals, heap) = (segment.signals().clone(), segment.heap().clone());
            Member { link: link.clone(), signals, heap, own: Box::new(link) }
        };
        (0..ranks).map(member).collect()
    }

    fn kill(&self, _: &mut [Member], _: usize) -> bool {
        false
    }

    fn restart(&self, _: &mut [Member], _: usize) -> bool {
        false
    }

    fn hold(&self, member: &Member) -> Option<Box<dyn Any>> {
        let (late, rank) = (late(member), member.link.rank().0);
        late.held.fetch_or(1 << rank, Relaxed);
        Some(Box::new(Held(Arc::clone(&late.held), rank)))
    }
}

#[test]
fn a_link_that_is_late_keeps_every_clause() {
    run_all(&Subject);
}
