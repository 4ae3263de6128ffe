//! Triggers: what the host prepared, and a kernel only fires.

use core::{fmt, ops::Range};
use std::sync::Arc;

use pontoon_hal::link::Order;
use pontoon_signal::{Rank, SharedPublisher, SignalTable, SlotId, TableShape};

use crate::{
    CommError, Operation, Port, SendError, Sent, Task, Ticket,
    channel::{Channel, Route},
    fuse::Fuse,
    lane::{Haul, Lane},
    port::Parts,
    ring::RingError,
    routes::Known,
};

/// Calls that are prepared for a trigger, by the places of their bytes.
#[derive(Debug)]
pub struct Prepare<'p> {
    port: &'p Port,
    tasks: Vec<Task>,
    /// What the tasks name, which need not have a port by the time they are fired.
    routes: Vec<Arc<Route>>,
}

impl Prepare<'_> {
    pub(crate) fn new(port: &Port) -> Prepare<'_> {
        Prepare { port, tasks: Vec::new(), routes: Vec::new() }
    }

    /// Adds a task of `port`, by the number that its route has here.
    fn add(mut self, port: &Port, task: Task) -> Result<Self, SendError> {
        let route = &port.parts().route;
        let known = self.routes.iter().position(|known| Arc::ptr_eq(known, route));
        let at = known.unwrap_or(self.routes.len());
        let (peer, what) = (port.peer(), "triggers over more than 65536 ports");
        let number = u16::try_from(at).map_err(|_| SendError::Impossible { peer, what })?;
        if known.is_none() {
            self.routes.push(Arc::clone(route));
        }
        self.tasks.push(Task { route: number, ..task });
        Ok(self)
    }

    /// Adds a put of the bytes `from` of the memory of the port, to `to` of the peer's region.
    ///
    /// # Errors
    ///
    /// [`SendError::OutOfRange`].
    pub fn put(self, from: Range<usize>, to: usize) -> Result<Self, SendError> {
        let port = self.port;
        self.add(port, port.prepared(Operation::Put, &from, to, 0, Order::Weak)?)
    }

    /// As [`put`](Self::put), from the memory of another port to the same peer.
    ///
    /// # Errors
    ///
    /// [`SendError::OutOfRange`]; [`SendError::Impossible`] if that port leads elsewhere.
    pub fn put_by(self, port: &Port, from: Range<usize>, to: usize) -> Result<Self, SendError> {
        if !Arc::ptr_eq(&port.parts().channel, &self.port.parts().channel) {
            let (peer, what) = (self.port.peer(), "part in another port's calls");
            return Err(SendError::Impossible { peer, what });
        }
        self.add(port, port.prepared(Operation::Put, &from, to, 0, Order::Weak)?)
    }

    /// Adds an addition of `n` to the word at `to` of the peer's region: a firing counts there.
    ///
    /// # Errors
    ///
    /// [`SendError::OutOfRange`], [`SendError::Misaligned`].
    pub fn atomic_add(self, to: usize, n: u64) -> Result<Self, SendError> {
        let port = self.port;
        self.add(port, port.prepared_add(to, n)?)
    }

    /// Adds a signal, which vouches for all before it.
    ///
    /// # Errors
    ///
    /// [`SendError::NoSignal`].
    pub fn signal(self, n: u32) -> Result<Self, SendError> {
        let port = self.port;
        self.add(port, port.prepared(Operation::Signal, &(0..0), 0, n, Order::Strong)?)
    }

    /// The trigger.
    ///
    /// # Errors
    ///
    /// [`CommError`].
    pub fn arm(self) -> Result<Trigger, CommError> {
        let Self { port, tasks, routes } = self;
        let parts = port.parts();
        let start = parts.proxy.settings.start;
        let table = SignalTable::in_process(TableShape::new(1, 1).starting_at(start));
        let failed = |error| CommError::Ring(RingError::Claim(error));
        let slot = SlotId::new(0, 0);
        let fired = table.shared_publisher(slot).map_err(failed)?.unnoted();
        if tasks.is_empty() {
            return Err(CommError::Nothing);
        }
        let fuse = Fuse::new(tasks.into(), table.slot(slot).map_err(failed)?);
        let (lane, ends) = Lane::triggered(fuse, Known::all(routes))?;
        let channel: &Arc<Channel> = &parts.channel;
        let haul = Haul::new(Arc::clone(channel), Arc::clone(&lane), ends);
        parts.proxy.add(vec![haul])?;
        let parts = Arc::new(parts.with_lane(lane));
        Ok(Trigger { inner: Arc::new(Inner { parts, fired }) })
    }
}

/// Calls that the host prepared and any kernel fires, as often as it likes, by one addition. A handle: once the
/// last is dropped and what was fired is done, the proxy forgets it.
///
/// The bytes that were prepared are in use from a firing until its ticket is done, and no type says so: a
/// session is told by lending them.
#[derive(Clone)]
pub struct Trigger {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Arc<Parts>,
    /// Ends its counter when it is dropped, by which the proxy knows.
    fired: SharedPublisher,
}

impl Trigger {
    /// Fires: the proxy makes the calls that were prepared, once more.
    ///
    /// # Errors
    ///
    /// [`SendError::Ended`] if it makes no more calls.
    #[inline]
    pub fn fire(&self) -> Result<Ticket<'_>, SendError> {
        let Inner { parts, fired } = &*self.inner;
        parts.still_open()?;
        let round = fired.pub_release(1);
        parts.proxy.ring_the_bell();
        // What was prepared is nobody's borrow.
        Ok(Ticket::of_lane(parts, round).without_bytes())
    }

    /// When its firing number `firing` is done, counted from 1, whoever makes it: for queues to wait on, and
    /// for a session, which lends it the prepared bytes until then.
    pub fn done(&self, firing: u32) -> Sent {
        let parts = &self.inner.parts;
        Sent { slot: parts.lane().done.clone(), seq: parts.proxy.settings.start + firing }
    }

    /// Where its calls go.
    pub fn peer(&self) -> Rank {
        self.inner.parts.peer()
    }
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trigger(rank {})", self.peer())
    }
}
