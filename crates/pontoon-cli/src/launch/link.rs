//! The launcher's end of an agent: the process that leads to it, and what is said both ways.

use std::{
    env,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{
    agent,
    error::LaunchError,
    hosts::Host,
    poll::{Got, Outbox, never_block, read},
    silence::Silence,
    wire::{Decoder, Frame, Order, WireError, message},
};

/// How long a remote shell may take to end after its agent has.
pub(super) const SHELL_ENDS: Duration = Duration::from_secs(2);

/// How to reach an agent.
#[derive(Debug)]
pub(super) enum Way<'a> {
    /// On this host, as a child, whose ranks may open `files` files.
    Here { files: Option<u64> },
    /// Through a remote shell, whose words hold `{host}`, to the program of that name there.
    Shell { words: &'a [String], program: &'a str },
}

/// An agent as the launcher has it.
#[derive(Debug)]
pub(super) struct Link {
    /// `None` for this host, where nobody needs to be told.
    pub(super) host: Option<Host>,
    pub(super) ranks: Vec<u32>,
    /// Whether it is on another host, where only silence tells that this one is lost.
    pub(super) is_remote: bool,
    child: Child,
    orders: Option<Outbox>,
    pub(super) replies: Option<File>,
    decoder: Decoder,
    pub(super) complaints: Option<File>,
    complaint: Vec<u8>,
    /// Complaints from before the job ran.
    pub(super) early: Vec<String>,
    /// The port that was free there, once it said hello.
    pub(super) port: Option<u16>,
    pub(super) silence: Silence,
    pub(super) said_bye: bool,
    leaving: Leaving,
}

/// Whether what leads to an agent is still needed.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// It is.
    No,
    /// It may end by itself until then.
    Until(Instant),
    /// It has ended, and was waited for.
    Gone,
}

impl Link {
    /// Starts what leads to the agent of `host`.
    ///
    /// # Errors
    ///
    /// The remote shell, or a process at all, is not to be had.
    pub(super) fn open(
        way: &Way<'_>,
        host: Option<Host>,
        ranks: Vec<u32>,
    ) -> Result<Self, LaunchError> {
        let system = |error| LaunchError::System("start an agent", error);
        let mut words = match (way, &host) {
            (Way::Shell { words, program }, Some(host)) => {
                let mut words: Vec<_> =
                    words.iter().map(|word| word.replace("{host}", &host.name)).collect();
                words.push((*program).to_owned());
                words.into_iter()
            }
            _ => Vec::new().into_iter(),
        };
        let shell = words.next();
        let mut command = match &shell {
            Some(shell) => Command::new(shell),
            None => Command::new(env::current_exe().map_err(system)?),
        };
        // A group of its own: the terminal's signals are the launcher's to hand on.
        command.args(words).arg(agent::COMMAND).process_group(0);
        if let Way::Here { files: Some(files) } = way {
            command.arg("--files").arg(files.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match shell {
            Some(shell) => LaunchError::Shell { shell, error },
            None => system(error),
        })?;
        let streams = streams(&mut child).and_then(|(orders, replies, complaints)| {
            never_block(&replies)?;
            never_block(&complaints)?;
            Ok((Outbox::new(orders)?, File::from(replies), File::from(complaints)))
        });
        let (orders, replies, complaints) = streams.map_err(system)?;
        Ok(Self {
            host,
            ranks,
            is_remote: matches!(way, Way::Shell { .. }),
            child,
            orders: Some(orders),
            replies: Some(replies),
            decoder: Decoder::greeted(),
            complaints: Some(complaints),
            complaint: Vec::new(),
            early: Vec::new(),
            port: None,
            silence: Silence::begin(),
            said_bye: false,
            leaving: Leaving::No,
        })
    }

    /// ` on host b`, or nothing for this host.
    pub(super) fn on_host(&self) -> String {
        self.host.as_ref().map_or_else(String::new, |host| format!(" on host {}", host.name))
    }

    pub(super) fn order(&mut self, order: &Order) {
        if let Some(orders) = &mut self.orders {
            orders.push(&message(order));
        }
    }

    /// Reads what the agent said.
    ///
    /// # Errors
    ///
    /// It is not an agent's.
    pub(super) fn hear(&mut self, buffer: &mut [u8]) -> Result<Vec<Frame>, WireError> {
        let Some(file) = &mut self.replies else { return Ok(Vec::new()) };
        match read(file, buffer) {
            Got::NothingYet => return Ok(Vec::new()),
            Got::End => {
                self.replies = None;
                return Ok(Vec::new());
            }
            Got::Bytes(bytes) => self.decoder.feed(&buffer[..bytes]),
        }
        self.silence.broken();
        let mut frames = Vec::new();
        while let Some(frame) = self.decoder.next()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Reads what the remote shell or the agent complains of, as whole lines.
    pub(super) fn complaints(&mut self, buffer: &mut [u8]) -> Vec<String> {
        let Some(file) = &mut self.complaints else { return Vec::new() };
        match read(file, buffer) {
            Got::NothingYet => return Vec::new(),
            Got::Bytes(bytes) => self.complaint.extend_from_slice(&buffer[..bytes]),
            Got::End => {
                self.complaints = None;
                if !self.complaint.is_empty() {
                    self.complaint.push(b'\n');
                }
            }
        }
        // A line that does not end is cut: nothing there says more than that in one line.
        if self.complaint.len() > buffer.len() {
            self.complaint.push(b'\n');
        }
        let Some(end) = self.complaint.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let lines: Vec<u8> = self.complaint.drain(..=end).collect();
        let text = String::from_utf8_lossy(&lines);
        text.lines().filter(|line| !line.trim().is_empty()).map(crate::voice::on_one_line).collect()
    }

    /// Lets go of the agent. It ends its ranks because this end is gone, and then itself; what leads to
    /// it is killed if it has not ended after `within`.
    pub(super) fn leave(&mut self, within: Duration) {
        (self.orders, self.replies) = (None, None);
        if matches!(self.leaving, Leaving::No) {
            self.leaving = Leaving::Until(Instant::now() + within);
        }
    }

    /// Whether what led to an agent that was [left](Self::leave) has ended.
    pub(super) fn has_left(&mut self) -> bool {
        let Leaving::Until(until) = self.leaving else {
            return matches!(self.leaving, Leaving::Gone);
        };
        match self.child.try_wait() {
            Ok(None) if Instant::now() < until => return false,
            Ok(None) => {
                // Not reaped, as `try_wait` has just said, so the number is its own.
                let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
                let _ = self.child.wait();
            }
            Ok(Some(_)) | Err(_) => {}
        }
        self.leaving = Leaving::Gone;
        true
    }

    /// How it ended, where its streams say that it has or will at once.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + SHELL_ENDS;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// Sends on what orders wait.
    pub(super) fn flush(&mut self) {
        if let Some(orders) = &mut self.orders {
            orders.flush();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.replies.is_some()
    }

    pub(super) fn room(&self) -> Option<BorrowedFd<'_>> {
        self.orders.as_ref().filter(|orders| orders.waiting() > 0).map(Outbox::fd)
    }
}

impl Drop for Link {
    /// Kills what leads to the agent, unless it was left and is gone.
    fn drop(&mut self) {
        if matches!(self.leaving, Leaving::Until(_)) {
            self.leaving = Leaving::No;
        }
        self.leave(Duration::ZERO);
        self.has_left();
    }
}

fn streams(child: &mut Child) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(orders), Some(replies), Some(complaints)) => {
            Ok((orders.into(), replies.into(), complaints.into()))
        }
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// What can be polled of a link.
pub(super) fn files(link: &Link) -> [Option<BorrowedFd<'_>>; 3] {
    [link.replies.as_ref().map(AsFd::as_fd), link.complaints.as_ref().map(AsFd::as_fd), link.room()]
}
