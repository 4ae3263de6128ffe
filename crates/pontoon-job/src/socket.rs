//! One connection that never blocks: frames in, frames out.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use pontoon_signal::Nanos;
use rustix::{
    event::{PollFd, PollFlags},
    net::sockopt,
};

use crate::wire::{FrameReader, Malformed};

/// As much as one connection may take of one turn.
const TURN: usize = 64 << 10;
/// The most that is kept for a peer that does not read.
const UNSENT_MAX: usize = 64 << 20;

/// A connection, its unread bytes and what is still to be sent.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    frames: FrameReader,
    out: VecDeque<Arc<[u8]>>,
    /// How much of the first of `out` is sent.
    sent: usize,
    unsent: usize,
}

/// The other side is gone, or does not read what it is sent.
#[derive(Debug)]
pub(crate) struct Gone;

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Each message is one that somebody waits for.
        stream.set_nodelay(true)?;
        let (frames, out) = Default::default();
        Ok(Self { stream, frames, out, sent: 0, unsent: 0 })
    }

    /// Has the kernel give up on a peer that does not acknowledge for so long. Heartbeats would
    /// notice it too; this also ends a connection that waits only to be closed.
    pub(crate) fn give_up_after(&self, time: Nanos) {
        let millis = u32::try_from(time.0 / 1_000_000).unwrap_or(u32::MAX).max(1);
        let seconds = Duration::from_secs(u64::from(millis / 1_000).clamp(1, 3_600));
        // A kernel that refuses one of these leaves the heartbeats.
        let _ = sockopt::set_tcp_user_timeout(&self.stream, millis);
        let _ = sockopt::set_socket_keepalive(&self.stream, true);
        let _ = sockopt::set_tcp_keepidle(&self.stream, seconds);
        let _ = sockopt::set_tcp_keepintvl(&self.stream, Duration::from_secs(1));
        let _ = sockopt::set_tcp_keepcnt(&self.stream, 3);
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        let out = if self.out.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.stream, PollFlags::IN | out)
    }

    /// Takes in what has arrived, up to a turn's worth. Bytes that came before an end are kept.
    pub(crate) fn receive(&mut self) -> Result<(), Gone> {
        let mut bytes = [0; 16 << 10];
        let mut left = TURN;
        while left > 0 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Gone),
                Ok(count) => {
                    self.frames.push(&bytes[..count]);
                    left = left.saturating_sub(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// The next whole frame that has arrived.
    pub(crate) fn next_frame(&mut self, max: usize) -> Result<Option<&[u8]>, Malformed> {
        self.frames.next(max)
    }

    /// Lets what arrives go by.
    pub(crate) fn discard(&mut self) -> Result<(), Gone> {
        let end = self.receive();
        self.frames = FrameReader::default();
        end
    }

    /// Sends a frame, or as much as the network takes now; the rest with [`flush`](Self::flush).
    pub(crate) fn send(&mut self, frame: Arc<[u8]>) -> Result<(), Gone> {
        self.unsent += frame.len();
        if self.unsent > UNSENT_MAX {
            return Err(Gone);
        }
        self.out.push_back(frame);
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> Result<(), Gone> {
        while let Some(frame) = self.out.front() {
            match self.stream.write(&frame[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.unsent -= count;
                    if self.sent == frame.len() {
                        self.out.pop_front();
                        self.sent = 0;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Tells the other side that nothing more comes. Its own end is to be waited for before the
    /// connection is dropped: to drop it with bytes unread would take back what was sent.
    pub(crate) fn finish(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}
