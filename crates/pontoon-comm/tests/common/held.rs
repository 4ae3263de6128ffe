//! A link whose operations are under way for as long as a test wants.

#![allow(dead_code, reason = "each test uses its part")]

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use pontoon_comm::{Comm, Mode, Port};
use pontoon_hal::{
    conformance::link::delegate_link,
    link::{Link, LinkCapabilities, LinkError, Operation, Order, Registered, Remote, RemoteSignal},
};
use pontoon_signal::{
    Bound, Ending, Nanos, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape,
    shim::yield_now,
};

use crate::common::Side;

/// What was posted.
#[derive(Clone, Debug, Default)]
struct Post {
    /// Where from, and where to.
    bytes: Option<(Registered, Range<usize>, Remote, usize)>,
    /// Which of the link's signals, and how much.
    signal: Option<(usize, u32, Order)>,
    add: Option<Add>,
}

/// To which word, how much, and where its old value goes.
type Add = (Remote, usize, u64, Option<(Registered, usize)>);

/// What a test reads of a post: by the link with which name, of how many bytes, and the order of its signal.
pub(crate) type Line = (&'static str, usize, Option<Order>);

/// What links posted, in order. Several may write to one.
pub(crate) type Log = Arc<Mutex<Vec<Line>>>;

/// A link that posts, and no more: what was posted is performed, and is done, when the test says so. Its
/// numbers and their counter are its own; bytes and signals go by the link of the side.
#[derive(Debug)]
pub(crate) struct Held {
    name: &'static str,
    inner: Arc<dyn Link>,
    log: Log,
    /// Of this life of the peer.
    done: Mutex<Publisher>,
    completions: Mutex<Slot>,
    is_mapped: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    posts: Vec<Post>,
    performed: usize,
    signals: Vec<RemoteSignal>,
    before: Option<Before>,
}

/// What comes before the post with a number, counted from 1.
#[derive(Clone, Debug)]
pub(crate) enum Before {
    /// It is posted.
    Nothing,
    /// It is refused.
    Refusal { at: usize },
    /// It is refused as one by handles of a peer that is dead.
    Death { at: usize },
    /// It waits until the gate is open. Then the proxy panics, if that is said.
    Gate { at: usize, gate: Arc<Gate>, panics: bool },
    /// Each takes so long.
    Pause(Duration),
}

/// Where the proxy waits until a test lets it go on.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<(bool, bool)>,
}

impl Gate {
    /// Waits until the proxy stands before it.
    pub(crate) fn reached(&self) {
        until("the proxy to reach the gate", || locked(&self.state).0);
    }

    pub(crate) fn open(&self) {
        locked(&self.state).1 = true;
    }

    pub(crate) fn pass(&self) {
        locked(&self.state).0 = true;
        until("the gate to open", || locked(&self.state).1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics under it")
}

/// Waits for what has to come.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited 30 s for {what}");
        yield_now();
    }
}

/// Waits until the proxy went round so often that it has seen all there is to see.
pub(crate) fn settle(comm: &Comm) {
    let rounds = || comm.report().busy_rounds + comm.report().idle_rounds;
    let before = rounds();
    until("the proxy to go round", || rounds() >= before + 20);
}

/// The counter of a life, from what was posted before it.
fn completions_from(posted: u64) -> (Publisher, Slot) {
    let table = SignalTable::in_process(TableShape::new(1, 1).starting_at(Seq::new(posted)));
    let slot = SlotId { producer: Rank(0), slot: 0 };
    (table.publisher(slot).expect("free"), table.slot(slot).expect("there"))
}

impl Held {
    pub(crate) fn over(side: &Side, name: &'static str, log: &Log) -> Arc<Self> {
        let (done, completions) = completions_from(0);
        let (done, completions) = (Mutex::new(done), Mutex::new(completions));
        let state = Mutex::default();
        let (inner, log) = (Arc::clone(&side.link), Arc::clone(log));
        let is_mapped = false;
        Arc::new(Self { name, inner, log, done, completions, is_mapped, state })
    }

    /// The same of memory that calls may reach directly.
    pub(crate) fn mapped(side: &Side, name: &'static str, log: &Log) -> Arc<Self> {
        let held = Arc::try_unwrap(Self::over(side, name, log)).expect("nobody else has it");
        Arc::new(Self { is_mapped: true, ..held })
    }

    /// A port over it by the ring, which grows the peer's slot `slot`.
    pub(crate) fn port(self: &Arc<Self>, side: &Side, comm: &Comm, slot: u32) -> Port {
        let link: Arc<dyn Link> = Arc::clone(self) as _;
        let signal = link.attach_signal(side.peer(), slot).expect("a free slot");
        let port = comm.port(&link, side.source.clone(), side.target.clone(), Some(signal));
        let port = port.expect("a port");
        assert_eq!(port.mode(), (!self.is_mapped).then_some(Mode::Ring));
        port
    }

    pub(crate) fn before(&self, before: Before) {
        locked(&self.state).before = Some(before);
    }

    /// How many were posted.
    pub(crate) fn posted(&self) -> usize {
        locked(&self.state).posts.len()
    }

    /// Performs the next `count` posts at the peer.
    pub(crate) fn perform(&self, count: usize) {
        let State { posts, performed, signals, .. } = &mut *locked(&self.state);
        for Post { bytes, signal, add } in &posts[*performed..*performed + count] {
            if let Some((from, range, to, offset)) = bytes {
                self.inner.write(from, range.clone(), to, *offset).expect("written");
            }
            if let Some((to, offset, n, reply)) = add {
                let reply = reply.as_ref().map(|(into, at)| (into, *at));
                self.inner.post_add(to, *offset, *n, reply).expect("added");
            }
            if let Some((which, n, order)) = signal {
                self.inner.signal(&mut signals[*which], *n, *order).expect("signalled");
            }
        }
        *performed += count;
    }

    /// Says that `count` more are done on this side.
    pub(crate) fn complete(&self, count: u32) {
        locked(&self.done).pub_release(count);
    }

    /// Whether the completions have ended.
    pub(crate) fn has_ended(&self) -> bool {
        locked(&self.completions).ending().is_some()
    }

    /// Ends the completions.
    pub(crate) fn end(&self, ending: Ending) {
        locked(&self.completions).end(ending);
    }

    /// The peer is started again: gives the completions of its former life, which the test may end.
    pub(crate) fn start_again(&self) -> Slot {
        let (done, completions) = completions_from(self.posted() as u64);
        // Dropped, it would end what the test is to end.
        std::mem::replace(&mut *locked(&self.done), done).retire();
        std::mem::replace(&mut *locked(&self.completions), completions)
    }

    fn post(&self, post: Post) -> Result<Seq, LinkError> {
        let before = locked(&self.state).before.clone();
        match before {
            Some(Before::Gate { at, gate, panics }) if at == self.posted() + 1 => {
                gate.pass();
                assert!(!panics, "on purpose");
            }
            Some(Before::Refusal { at }) if at == self.posted() + 1 => {
                return Err(LinkError::Foreign("what a test refuses"));
            }
            Some(Before::Death { at }) if at == self.posted() + 1 => {
                return Err(LinkError::PeerDead { peer: Rank(1) });
            }
            Some(Before::Pause(time)) => std::thread::sleep(time),
            _ => {}
        }
        let bytes = post.bytes.as_ref().map_or(0, |(_, range, ..)| range.len());
        locked(&self.log).push((self.name, bytes, post.signal.map(|(.., order)| order)));
        let posts = &mut locked(&self.state).posts;
        posts.push(post);
        Ok(Seq::new(posts.len() as u64))
    }
}

impl Link for Held {
    fn name(&self) -> &'static str {
        self.name
    }
    delegate_link!(inner: rank);
    fn capabilities(&self, peer: Rank) -> Result<LinkCapabilities, LinkError> {
        let mut capabilities = self.inner.capabilities(peer)?;
        capabilities.mapped = self.is_mapped;
        Ok(capabilities)
    }
    delegate_link!(inner: peer_state);
    fn end_peer(&self, _: Rank, ending: Ending) {
        self.end(ending);
    }
    delegate_link!(inner: register, attach);
    /// Memory that a test made up is as good as any.
    fn owns(
        &self,
        _: &Registered,
        _: &Remote,
        _: Option<&mut RemoteSignal>,
    ) -> Result<(), LinkError> {
        Ok(())
    }
    /// Keeps the signal of the link below, for signals are sent when the caller's is no longer at hand.
    fn attach_signal(&self, peer: Rank, slot: u32) -> Result<RemoteSignal, LinkError> {
        let below = self.inner.attach_signal(peer, slot)?;
        let (id, value) = (below.slot(), below.value());
        let signals = &mut locked(&self.state).signals;
        signals.push(below);
        Ok(RemoteSignal::new(peer, id, value, Box::new(signals.len() - 1)))
    }
    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        let bytes = Some((from.clone(), range, to.clone(), offset));
        self.post(Post { bytes, ..Post::default() })
    }
    fn write_inline(&self, _: &[u8], _: &Remote, _: usize) -> Result<Seq, LinkError> {
        self.post(Post::default())
    }
    fn read(
        &self,
        _: &Remote,
        _: usize,
        _: &Registered,
        _: Range<usize>,
    ) -> Result<Seq, LinkError> {
        self.post(Post::default())
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
        let signal = Some((*signal.data::<usize>().expect("its own"), n, order));
        let bytes = Some((from.clone(), range, to.clone(), offset));
        self.post(Post { bytes, signal, add: None })
    }
    fn signal(&self, signal: &mut RemoteSignal, n: u32, order: Order) -> Result<Seq, LinkError> {
        let signal = Some((*signal.data::<usize>().expect("its own"), n, order));
        self.post(Post { signal, ..Post::default() })
    }
    fn post_add(
        &self,
        to: &Remote,
        offset: usize,
        n: u64,
        reply: Option<(&Registered, usize)>,
    ) -> Result<Seq, LinkError> {
        let reply = reply.map(|(into, at)| (into.clone(), at));
        self.post(Post { add: Some((to.clone(), offset, n, reply)), ..Post::default() })
    }
    delegate_link!(inner: add, compare_swap);
    fn fence(&self, _: Rank) -> Result<(), LinkError> {
        Ok(())
    }
    /// Does not wait: there is nobody who would perform what is left meanwhile.
    fn flush(&self, peer: Rank, _: Bound) -> Result<(), LinkError> {
        let State { posts, performed, .. } = &*locked(&self.state);
        if *performed == posts.len() {
            return Ok(());
        }
        let (done, posted) = (Seq::new(*performed as u64), Seq::new(posts.len() as u64));
        let (operation, waited) = (Operation::Flush, Nanos(0));
        Err(LinkError::TimedOut { peer, operation, waited, done, posted })
    }
    fn completions(&self, _: Rank) -> Result<Slot, LinkError> {
        Ok(locked(&self.completions).clone())
    }
    delegate_link!(inner: explain, report);
}
