//! The sockets of rank 0, and the one thread that serves them.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_signal::{Nanos, SystemError};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{
    hub::{Action, Counts, Hub, LinkId, Strangers},
    socket::{Gone, Socket},
    sys::{Waker, lock, now, spawn, timespec},
    wire::Pace,
};

/// How long a connection may take to see its end.
const LINGER: Nanos = Nanos(500_000_000);
/// The most connections that only have to see their end; one more drops the oldest.
const CLOSING_MAX: usize = 256;
/// How many connections are taken in one turn.
const ACCEPTS: usize = 64;
/// How long the listener rests when the system has no file for one more connection.
const ACCEPT_REST: Nanos = Nanos(100_000_000);
/// After how long without room that is told, and how often.
const FULL_TOLD: Nanos = Nanos(1_000_000_000);

/// The server of a job; dropping it ends the job.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Shared {
    /// When to end although ranks are connected.
    end: Mutex<Option<Nanos>>,
    /// Why rank 0 cannot be in the job, once it cannot.
    unable: Mutex<Option<String>>,
    waker: Waker,
}

impl Server {
    /// Serves `hub` on `listener`.
    pub(crate) fn start(listener: TcpListener, hub: Hub, pace: Pace) -> Result<Self, SystemError> {
        let failed = |error: io::Error| crate::sys::system_error("getsockname", &error);
        let address = listener.local_addr().map_err(failed)?;
        let counts = hub.counts();
        let run = Run::new(listener, hub, pace)?;
        let shared = Arc::clone(&run.shared);
        let thread = spawn("pontoon-job", move || run.run())?;
        Ok(Self { shared, thread: Some(thread), address, counts })
    }

    /// Serves `hub` on this thread, until nobody is left to serve, or `deadline`.
    pub(crate) fn serve_here(
        listener: TcpListener,
        hub: Hub,
        pace: Pace,
        deadline: Nanos,
    ) -> Result<(), SystemError> {
        let run = Run::new(listener, hub, pace)?;
        *lock(&run.shared.end) = Some(deadline);
        run.run();
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn strangers(&self) -> Strangers {
        self.counts.read()
    }

    /// Says to all who come that rank 0 cannot be in the job, until all know, or `deadline`.
    pub(crate) fn decline_by(self, why: String, deadline: Nanos) {
        *lock(&self.shared.unable) = Some(why);
        self.end_by(deadline);
    }

    /// Ends when nobody is left to serve, or at `deadline`.
    pub(crate) fn end_by(mut self, deadline: Nanos) {
        self.end(deadline);
    }

    fn end(&mut self, deadline: Nanos) {
        *lock(&self.shared.end) = Some(deadline);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "pontoon::job", "the job's server panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(now());
        }
    }
}

struct Run {
    shared: Arc<Shared>,
    listener: TcpListener,
    /// Gives its place to those who are to be told that the job does not begin.
    spare: Option<TcpListener>,
    hub: Hub,
    sockets: HashMap<LinkId, Socket>,
    /// Those that only have to see their end, and until when.
    closing: Vec<(Socket, Nanos)>,
    accept_from: Nanos,
    /// Since when there is no room, or that was told.
    full_since: Option<Nanos>,
    tick: Nanos,
    lost_after: Nanos,
}

impl Run {
    fn new(listener: TcpListener, hub: Hub, pace: Pace) -> Result<Self, SystemError> {
        let failed = |error: io::Error| crate::sys::system_error("ioctl", &error);
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            shared: Arc::new(Shared {
                end: Mutex::default(),
                unable: Mutex::default(),
                waker: Waker::new()?,
            }),
            spare: listener.try_clone().ok(),
            listener,
            hub,
            sockets: HashMap::new(),
            closing: Vec::new(),
            accept_from: Nanos(0),
            full_since: None,
            // A beat is late by half of one at most, and a loss is seen in time.
            tick: Nanos(pace.beat.0 / 2),
            lost_after: pace.lost_after,
        })
    }

    fn run(mut self) {
        let mut over_since = None;
        loop {
            let ready = self.wait();
            let end = *lock(&self.shared.end);
            self.shared.waker.clear();
            let unable = lock(&self.shared.unable).take();
            if let Some(why) = unable {
                self.hub.decline(&why);
                self.act();
            }
            if self.hub.has_failed() && self.spare.take().is_some() {
                self.accept_from = now();
            }
            self.serve(&ready);
            // Once it is over nobody is let in: strangers that keep coming must not keep it.
            if over_since.is_none() {
                self.accept();
            }
            self.hub.tick(now());
            self.act();
            self.let_go();
            if end.is_some_and(|end| now() >= end || self.hub.is_done()) {
                let since = *over_since.get_or_insert_with(now);
                self.accept_from = Nanos(u64::MAX);
                if self.closing.is_empty() || now() >= since.saturating_add(LINGER) {
                    return;
                }
            }
        }
    }

    /// Sleeps until something can be done; which sockets have something.
    fn wait(&self) -> Vec<LinkId> {
        let ids: Vec<LinkId> = self.sockets.keys().copied().collect();
        let mut fds = vec![self.shared.waker.poll_fd()];
        fds.extend(ids.iter().filter_map(|id| self.sockets.get(id)).map(Socket::poll_fd));
        fds.extend(self.closing.iter().map(|(socket, _)| socket.poll_fd()));
        if now() >= self.accept_from {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        if poll(&mut fds, Some(&timespec(self.tick))).is_err() {
            // Interrupted, or no memory: all are looked at.
            thread::sleep(Duration::from_millis(1));
            return ids;
        }
        let ready = fds[1..].iter().zip(ids).filter(|(fd, _)| !fd.revents().is_empty());
        let mut ready: Vec<LinkId> = ready.map(|(_, id)| id).collect();
        // That a process ended comes by its own one, and what that process said last before that.
        ready.sort_by_key(|&id| self.hub.is_own(id));
        ready
    }

    fn serve(&mut self, ready: &[LinkId]) {
        for &id in ready {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let flushed = socket.flush();
            let received = socket.receive();
            self.read_frames(id);
            if flushed.is_err() || received.is_err() {
                self.lose(id);
            }
            self.act();
        }
    }

    /// Frames that came before an end count: a rank may say that it leaves, and go.
    fn read_frames(&mut self, id: LinkId) {
        while let Some(socket) = self.sockets.get_mut(&id) {
            let frame = match socket.next_frame(self.hub.frame_max(id)) {
                Ok(None) => return,
                Ok(Some(frame)) => Ok(frame),
                Err(malformed) => Err(malformed),
            };
            let is_end = frame.is_err();
            self.hub.received(id, frame, now());
            self.act();
            if is_end {
                return;
            }
        }
    }

    fn lose(&mut self, id: LinkId) {
        if self.sockets.remove(&id).is_some() {
            self.hub.closed(id, now());
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    self.full_since = None;
                    // One that cannot be set up is dropped, and is not of the hub's concern.
                    let Ok(socket) = Socket::new(stream) else { continue };
                    socket.give_up_after(self.lost_after);
                    let id = self.hub.connected(from, now());
                    self.sockets.insert(id, socket);
                    self.act();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let error = crate::sys::system_error("accept", &error);
                    if error.is_limit() || error.code == Errno::NOBUFS.raw_os_error() {
                        return self.rest(&error);
                    }
                }
            }
        }
    }

    /// Accepts nobody for a while. A job that gathers ends for want of room, unless some go.
    fn rest(&mut self, error: &SystemError) {
        let at = now();
        self.accept_from = at.saturating_add(ACCEPT_REST);
        let ends = self.closing.is_empty() && self.hub.no_room(error);
        let since = *self.full_since.get_or_insert(at);
        if !ends && !self.hub.has_failed() && at.since(since) >= FULL_TOLD {
            self.full_since = Some(at);
            tracing::warn!(target: "pontoon::job", "rank 0 has no room for a connection: {error}");
        }
        self.act();
    }

    fn act(&mut self) {
        loop {
            let actions = self.hub.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Send(id, frame) => {
                        let Some(socket) = self.sockets.get_mut(&id) else { continue };
                        if socket.send(frame).is_err() {
                            self.lose(id);
                        }
                    }
                    Action::Close(id) => {
                        if let Some(socket) = self.sockets.remove(&id) {
                            if socket.is_flushed() {
                                socket.finish();
                            }
                            if self.closing.len() == CLOSING_MAX {
                                self.closing.remove(0);
                            }
                            self.closing.push((socket, now().saturating_add(LINGER)));
                        }
                    }
                }
            }
        }
    }

    /// Drops those that saw their end, or had time enough to.
    fn let_go(&mut self) {
        let at = now();
        self.closing.retain_mut(|(socket, until)| {
            let was_flushed = socket.is_flushed();
            let end = socket.flush().and_then(|()| socket.discard());
            if !was_flushed && socket.is_flushed() {
                socket.finish();
            }
            !matches!(end, Err(Gone)) && at < *until
        });
    }
}
