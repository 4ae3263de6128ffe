//! The asking side.

use std::{
    io::IoSliceMut,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::Bound;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send, socket_with,
        sockopt::socket_peercred,
    },
    time::Timespec,
};

use super::{
    ANSWER, NO_ROOM, Secret, request,
    serve::{address, failed},
};
use crate::{HandoverError, error::system};

/// Between two attempts at an owner that is not there yet.
const AGAIN: Duration = Duration::from_millis(2);

/// The file that its owner hands over at `path`, to who has `secret`. An owner that is not there yet
/// is waited for, and one whom too many ask at once is asked again.
///
/// # Errors
///
/// [`HandoverError`].
///
/// # Blocks
///
/// As long as the deadline of `bound` allows.
pub fn fetch(path: &Path, secret: &Secret, bound: Bound) -> Result<OwnedFd, HandoverError> {
    let (start, deadline) = (Instant::now(), bound.deadline());
    let left = || deadline.map(|deadline| deadline.saturating_sub(start.elapsed()));
    let address = address(path)?;
    loop {
        if let Some(file) = ask(path, &address, secret, &left)? {
            return Ok(file);
        }
        if left().is_some_and(|left| left.is_zero()) {
            return Err(HandoverError::Refused { path: path.into() });
        }
        thread::sleep(left().map_or(AGAIN, |left| left.min(AGAIN)));
    }
}

/// Asks once; `None` if the owner closed the connection before it had read the request, which tells
/// nothing of the secret.
fn ask(
    path: &Path,
    address: &SocketAddrUnix,
    secret: &Secret,
    left: &impl Fn() -> Option<Duration>,
) -> Result<Option<OwnedFd>, HandoverError> {
    let socket = loop {
        let error = match reach(address) {
            Ok(socket) => break socket,
            Err(errno @ (Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN)) => errno,
            Err(errno) => return Err(failed(path, "connect")(errno)),
        };
        if left().is_some_and(|left| left.is_zero()) {
            let error = system("connect")(error);
            return Err(HandoverError::NobodyThere { path: path.into(), error });
        }
        thread::sleep(left().map_or(AGAIN, |left| left.min(AGAIN)));
    };
    let owner = socket_peercred(&socket).map_err(failed(path, "getsockopt"))?.uid;
    if owner != rustix::process::geteuid() {
        return Err(HandoverError::Stranger { path: path.into(), uid: owner.as_raw() });
    }
    match send(&socket, &request(secret), SendFlags::NOSIGNAL) {
        // Of a new connection the buffer is empty: all of it fits.
        Ok(_) => {}
        Err(Errno::PIPE | Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(failed(path, "send")(errno)),
    }
    loop {
        match answer(&socket) {
            Ok(Answer::Garbage) => return Err(HandoverError::Garbage { path: path.into() }),
            Ok(Answer::NoRoom) => return Err(HandoverError::NoRoom { path: path.into() }),
            Ok(Answer::File(file)) => return Ok(Some(file)),
            Err(Errno::PIPE) => return Err(HandoverError::Refused { path: path.into() }),
            Err(Errno::CONNRESET) => return Ok(None),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(failed(path, "recvmsg")(errno)),
        }
        let left = left();
        if left.is_some_and(|left| left.is_zero()) {
            return Err(HandoverError::TimedOut { path: path.into() });
        }
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(path, "poll")(errno)),
        }
    }
}

fn reach(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, address)?;
    Ok(socket)
}

/// What an owner answered.
enum Answer {
    File(OwnedFd),
    NoRoom,
    /// Something else.
    Garbage,
}

/// The owner's answer. A connection that the owner closed after it had read all is a broken pipe, and
/// one that it closed before is reset. A file that came and found no room here is [`Errno::MFILE`].
fn answer(socket: &OwnedFd) -> Result<Answer, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    if received.bytes == 0 {
        return Err(Errno::PIPE);
    }
    // Files that are not asked for are closed as they are dropped.
    let files: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    // The kernel cuts off what it cannot install, and tells no more than that.
    if files.is_empty() && received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    Ok(match (byte[0], <[OwnedFd; 1]>::try_from(files)) {
        (ANSWER, Ok([file])) => Answer::File(file),
        (NO_ROOM, Err(_)) => Answer::NoRoom,
        _ => Answer::Garbage,
    })
}
