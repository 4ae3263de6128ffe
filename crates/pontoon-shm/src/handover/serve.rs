//! The owner's side: one thread that sleeps until somebody asks.

use std::{
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pontoon_signal::{Rank, SystemError};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketFlags, SocketType, accept_with, bind, listen, send, sendmsg, socket_with,
        sockopt::socket_peercred,
    },
    time::Timespec,
};

use super::{ANSWER, NO_ROOM, PATH_MAX, REQUEST_BYTES, Secret, requested};
use crate::{FolderError, HandoverError, JobFolder, error::system};

/// What became of those who asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandoverReport {
    /// They have the file.
    pub served: u64,
    /// They were other users' processes.
    pub strangers: u64,
    /// They said something else than a request, or stopped in the middle of one.
    pub garbage: u64,
    /// Their secret was another.
    pub wrong_secret: u64,
    /// They took too long.
    pub slow: u64,
    /// They were the longest there when too many asked at once.
    pub crowded: u64,
}

/// Hands a file over to whoever has the secret, until it is dropped.
#[derive(Debug)]
pub struct Handover {
    path: PathBuf,
    report: Arc<Mutex<HandoverReport>>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// How many may be asking at once.
const CROWD: usize = 16;

impl Handover {
    /// How long one who asks may take.
    pub const PATIENCE: Duration = Duration::from_secs(2);

    /// Hands `file` over as that of `rank`, at [`JobFolder::socket`].
    ///
    /// # Errors
    ///
    /// [`HandoverError::PathTooLong`], [`HandoverError::System`].
    pub fn serve(
        folder: &JobFolder,
        rank: Rank,
        file: OwnedFd,
        secret: Secret,
    ) -> Result<Self, HandoverError> {
        Self::serve_within(folder, rank, file, secret, Self::PATIENCE)
    }

    /// As [`serve`](Self::serve), with another [`PATIENCE`](Self::PATIENCE).
    ///
    /// # Errors
    ///
    /// As for [`serve`](Self::serve).
    pub fn serve_within(
        folder: &JobFolder,
        rank: Rank,
        file: OwnedFd,
        secret: Secret,
        patience: Duration,
    ) -> Result<Self, HandoverError> {
        let path = folder.socket(rank);
        let at = |call| failed(&path, call);
        let of_folder = |error| match error {
            FolderError::System { path, error } => HandoverError::System { path, error },
            _ => at("openat")(Errno::ACCESS),
        };
        let address = address(&path)?;
        folder.make_way(rank).map_err(of_folder)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(at("socket"))?;
        bind(&listener, &address).map_err(at("bind"))?;
        folder.close_to_others(rank).map_err(of_folder)?;
        listen(&listener, 64).map_err(at("listen"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).map_err(at("eventfd"))?);
        let report = Arc::new(Mutex::default());
        let desk = Desk {
            listener,
            bell: Arc::clone(&bell),
            file,
            secret,
            patience,
            report: Arc::clone(&report),
            askers: Vec::with_capacity(CROWD),
            spare: bell.try_clone().ok(),
        };
        let thread = thread::Builder::new()
            .name("pontoon-handover".into())
            .spawn(move || desk.run())
            .map_err(|error| {
                let code = error.raw_os_error().unwrap_or_default();
                let error = SystemError { call: "clone", code };
                HandoverError::System { path: path.clone(), error }
            })?;
        Ok(Self { path, report, bell, thread: Some(thread) })
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What became of those who asked so far.
    pub fn report(&self) -> HandoverReport {
        *locked(&self.report)
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // It fails if the bell has rung 2^64 times: then it is ringing.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // The file of the socket is the folder's to remove.
    }
}

/// One who asks.
struct Asker {
    socket: OwnedFd,
    since: Instant,
    bytes: [u8; REQUEST_BYTES],
    have: usize,
}

/// Why a connection is closed.
enum Verdict {
    Served,
    Stranger,
    Garbage,
    WrongSecret,
    Slow,
    Crowded,
}

struct Desk {
    listener: OwnedFd,
    bell: Arc<OwnedFd>,
    file: OwnedFd,
    secret: Secret,
    patience: Duration,
    report: Arc<Mutex<HandoverReport>>,
    askers: Vec<Asker>,
    /// Gives its place to somebody who is to be told that there is none.
    spare: Option<OwnedFd>,
}

impl Desk {
    fn run(mut self) {
        loop {
            let mut fds = Vec::with_capacity(CROWD + 2);
            fds.push(PollFd::new(&*self.bell, PollFlags::IN));
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
            fds.extend(self.askers.iter().map(|asker| PollFd::new(&asker.socket, PollFlags::IN)));
            // Asleep for good while nobody asks.
            let left = self.askers.iter().map(|asker| self.left(asker)).min();
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            if let Err(errno) = poll(&mut fds, left.as_ref())
                && errno != Errno::INTR
            {
                tracing::error!(target: "pontoon::handover", %errno, "no segment is handed over");
                return;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                return;
            }
            self.listen_to(&ready[2..]);
            if ready[1] {
                self.accept();
            }
        }
    }

    fn left(&self, asker: &Asker) -> Duration {
        self.patience.saturating_sub(asker.since.elapsed())
    }

    /// Reads what those who are `ready` say, and closes on all with whom it is over.
    fn listen_to(&mut self, ready: &[bool]) {
        let askers = std::mem::take(&mut self.askers);
        for (at, mut asker) in askers.into_iter().enumerate() {
            let said = ready.get(at).is_some_and(|ready| *ready);
            match if said { self.hear(&mut asker) } else { None } {
                Some(verdict) => self.close(&asker.socket, verdict),
                None if self.left(&asker).is_zero() => self.close(&asker.socket, Verdict::Slow),
                None => self.askers.push(asker),
            }
        }
    }

    /// Says to the next in line that there is no room, unless somebody is about to go.
    fn refuse_one(&mut self, errno: Errno) {
        if self.askers.is_empty() && self.spare.take().is_some() {
            let error = system("accept")(errno);
            tracing::warn!(target: "pontoon::handover", "no segment is handed over: {error}");
            if let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
                // Of a new connection the buffer is empty: the byte fits.
                let _ = send(&socket, &[NO_ROOM], SendFlags::NOSIGNAL);
                let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
                locked(&self.report).crowded += 1;
            }
            self.spare = self.bell.try_clone().ok();
            return;
        }
        // Who asks stays in line, and the core is not burnt.
        thread::sleep(Duration::from_millis(20));
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(errno) => return self.refuse_one(errno),
        };
        let us = rustix::process::geteuid();
        if !socket_peercred(&socket).is_ok_and(|them| them.uid == us) {
            return self.close(&socket, Verdict::Stranger);
        }
        if self.askers.len() >= CROWD {
            let mut longest = self.askers.remove(0);
            // Its request may have come since it was heard last.
            let verdict = self.hear(&mut longest).unwrap_or(Verdict::Crowded);
            self.close(&longest.socket, verdict);
        }
        self.askers.push(Asker {
            socket,
            since: Instant::now(),
            bytes: [0; REQUEST_BYTES],
            have: 0,
        });
    }

    /// Reads on; what became of it, once that is known.
    fn hear(&self, asker: &mut Asker) -> Option<Verdict> {
        match rustix::io::read(&asker.socket, &mut asker.bytes[asker.have..]) {
            Ok(0) => return Some(Verdict::Garbage),
            Ok(len) => asker.have += len,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(_) => return Some(Verdict::Garbage),
        }
        if asker.have < REQUEST_BYTES {
            return None;
        }
        Some(match requested(&asker.bytes) {
            None => Verdict::Garbage,
            Some(secret) if !self.secret.is(secret) => Verdict::WrongSecret,
            Some(_) => self.answer(&asker.socket),
        })
    }

    fn answer(&self, socket: &OwnedFd) -> Verdict {
        let files = [self.file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(&files));
        // The connection's buffer is empty, so one byte always fits.
        let sent = sendmsg(socket, &[IoSlice::new(&[ANSWER])], &mut ancillary, SendFlags::NOSIGNAL);
        if fits && sent == Ok(1) { Verdict::Served } else { Verdict::Garbage }
    }

    /// Counts and logs; the connection ends with its asker.
    fn close(&self, socket: &OwnedFd, verdict: Verdict) {
        let mut report = locked(&self.report);
        let (count, why) = match verdict {
            Verdict::Served => (&mut report.served, None),
            Verdict::Stranger => (&mut report.strangers, Some("another user's process")),
            Verdict::Garbage => (&mut report.garbage, Some("not a request")),
            Verdict::WrongSecret => (&mut report.wrong_secret, Some("a wrong secret")),
            Verdict::Slow => (&mut report.slow, Some("too slow")),
            Verdict::Crowded => (&mut report.crowded, Some("too many at once")),
        };
        *count += 1;
        drop(report);
        let pid = socket_peercred(socket).map_or(0, |them| them.pid.as_raw_nonzero().get());
        match why {
            None => tracing::debug!(target: "pontoon::handover", pid, "segment handed over"),
            Some(why) => tracing::warn!(target: "pontoon::handover", pid, why, "refused"),
        }
        // One that is crowded out may have sent its request in this moment: left unread, that resets
        // the connection when it is closed, which tells the asker to come again.
        if !matches!(verdict, Verdict::Crowded) {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

pub(super) fn address(path: &Path) -> Result<SocketAddrUnix, HandoverError> {
    let too_long = || HandoverError::PathTooLong { path: path.into(), most: PATH_MAX };
    if path.as_os_str().len() > PATH_MAX {
        return Err(too_long());
    }
    SocketAddrUnix::new(path).map_err(|_| too_long())
}

pub(super) fn failed(path: &Path, call: &'static str) -> impl Fn(Errno) -> HandoverError {
    let path = path.to_path_buf();
    move |errno| HandoverError::System { path: path.clone(), error: system(call)(errno) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
