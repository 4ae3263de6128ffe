//! The agent: starts the ranks of one host, and ends them whatever happens to the launcher.
//!
//! It runs on the launcher's own host too, so that there is one way. One thread, one loop, and
//! nothing in it blocks: where the launcher reads slowly, the agent stops reading the ranks, and
//! still hears orders.
//!
//! - A1: when the launcher's stream ends, or it is silent for too long, the job ends here.
//! - A2: nothing is said after `Bye`, and `Bye` only when no process of a rank's group is left.
//! - A3: before `Bye` the folders are gone that dead ranks left here.

use std::{
    env,
    ffi::OsStr,
    fmt,
    fs::File,
    io, mem,
    net::{Ipv4Addr, TcpListener},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    time::{Duration, Instant},
};

use pontoon::shm::{runtime_base, sweep};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::{
    error::refusal,
    poll::{For, Got, Outbox, never_block, read, ready},
    rank::{Rank, Start, living_groups},
    signals::Signals,
    silence::Silence,
    wire::{Decoder, Frame, GREETING, How, Order, Plan, Said, Stream, WireError, message, output},
};
use crate::stdout::out;

/// The hidden command that is an agent.
pub(crate) const COMMAND: &str = "launch-agent";
/// How long an agent waits for its plan when nobody says a word.
const UNPLANNED: Duration = Duration::from_secs(60);
/// How much output waits for the launcher before ranks are no longer read.
const CROWDED: usize = 1 << 20;
/// How much of a rank's output is read at once.
const PIECE: usize = 64 << 10;
/// How often those are looked at whose end nobody tells: a rank's own children.
const LOOK: Duration = Duration::from_millis(20);
/// How often anything is looked at.
const IDLE: Duration = Duration::from_secs(1);

/// Arguments of the hidden command.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// How many files a rank may open, where the launcher has raised its own limit
    #[arg(long)]
    pub(super) files: Option<u64>,
}

/// How an agent fails.
#[derive(Debug)]
pub(crate) enum AgentError {
    /// The system refused what it cannot do without.
    System(&'static str, io::Error),
    /// The launcher's stream is not the launcher's.
    Wire(WireError),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(what, error) => write!(f, "the agent cannot {what}: {error}"),
            Self::Wire(error) => {
                write!(f, "the agent was sent something else than orders: {error}")
            }
        }
    }
}

impl std::error::Error for AgentError {}

/// Is the agent until its host has nothing of the job left.
///
/// # Errors
///
/// See [`AgentError`]; the ranks are ended.
pub(crate) fn run(args: AgentArgs) -> Result<(), AgentError> {
    let mut agent = Agent::new(args)?;
    while !agent.is_done() {
        agent.turn()?;
    }
    Ok(())
}

/// What is ready in a turn.
#[derive(Clone, Copy, Debug)]
enum Source {
    Orders,
    Room,
    Signals,
    Start(usize),
    Output(usize, Stream),
}

#[derive(Debug)]
struct Agent {
    orders: File,
    decoder: Decoder,
    /// Whether the launcher can still be heard.
    hears: bool,
    silence: Silence,
    spoke: Instant,
    replies: Outbox,
    signals: Signals,
    plan: Option<Plan>,
    ranks: Vec<Rank>,
    /// How many files a rank may open, if the agent itself may open more.
    files: Option<u64>,
    /// Whether a child ended since the ranks were looked at.
    looks: bool,
    /// When SIGKILL follows the SIGTERM that was sent.
    kill_at: Option<Instant>,
    killed: bool,
    said_bye: bool,
    buffer: Vec<u8>,
}

impl Agent {
    fn new(args: AgentArgs) -> Result<Self, AgentError> {
        let failed = |what| move |error| AgentError::System(what, error);
        let taken = [Signal::CHILD, Signal::INT, Signal::TERM, Signal::HUP];
        let signals = Signals::take(&taken).map_err(failed("handle signals"))?;
        let (orders, mut replies) =
            streams().map_err(failed("use its standard input and output"))?;
        replies.push(GREETING);
        let port = free_port().map_err(failed("find a free port"))?;
        let own_limit = may_open_more();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        replies.push(&message(&Said::Hello { version, port }));
        Ok(Self {
            orders,
            decoder: Decoder::plain(),
            hears: true,
            silence: Silence::begin(),
            spoke: Instant::now(),
            replies,
            signals,
            plan: None,
            ranks: Vec::new(),
            files: args.files.or(own_limit),
            looks: false,
            kill_at: None,
            killed: false,
            said_bye: false,
            buffer: vec![0; PIECE],
        })
    }

    fn say(&mut self, said: &Said) {
        self.replies.push(&message(said));
        self.spoke = Instant::now();
    }

    fn is_done(&self) -> bool {
        let is_idle = self.said_bye || !self.hears && self.plan.is_none();
        is_idle && (self.replies.waiting() == 0 || !self.hears)
    }

    fn turn(&mut self) -> Result<(), AgentError> {
        let failed = |error| AgentError::System("wait for its ranks", error);
        for source in ready(&self.sources(), self.patience()).map_err(failed)? {
            match source {
                Source::Orders => self.hear()?,
                Source::Room => self.replies.flush(),
                Source::Signals => {
                    for signal in self.signals.pending() {
                        match signal {
                            Signal::CHILD => self.looks = true,
                            _ => self.end(),
                        }
                    }
                }
                Source::Start(at) => self.started(at),
                Source::Output(at, stream) => {
                    self.pass_on(at, stream);
                }
            }
        }
        self.watch_the_launcher();
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.kill();
        }
        self.look_after_ranks();
        Ok(())
    }

    fn sources(&self) -> Vec<(Source, std::os::fd::BorrowedFd<'_>, For)> {
        let mut sources = vec![(Source::Signals, self.signals.fd(), For::Input)];
        if self.hears {
            sources.push((Source::Orders, self.orders.as_fd(), For::Input));
        }
        if self.replies.waiting() > 0 {
            sources.push((Source::Room, self.replies.fd(), For::Room));
        }
        let is_crowded = self.replies.waiting() > CROWDED;
        for (at, rank) in self.ranks.iter().enumerate() {
            if let Some(file) = rank.starting() {
                sources.push((Source::Start(at), file.as_fd(), For::Input));
            }
            for stream in Stream::BOTH.into_iter().filter(|_| !is_crowded) {
                if let Some(file) = &rank.streams[stream.index()] {
                    sources.push((Source::Output(at, stream), file.as_fd(), For::Input));
                }
            }
        }
        sources
    }

    fn patience(&self) -> Duration {
        if self.ranks.iter().any(Rank::is_leaving) {
            return LOOK;
        }
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        self.kill_at.map_or(IDLE, |at| until(at).min(IDLE)).min(self.borne() / 8)
    }

    /// After how long a silence the other side counts as lost.
    fn borne(&self) -> Duration {
        self.plan.as_ref().map_or(UNPLANNED, |plan| Duration::from_nanos(plan.silence_ns))
    }

    fn grace(&self) -> Duration {
        self.plan.as_ref().map_or(Duration::ZERO, |plan| Duration::from_nanos(plan.grace_ns))
    }

    /// Reads orders and carries them out.
    fn hear(&mut self) -> Result<(), AgentError> {
        match read(&mut self.orders, &mut self.buffer) {
            Got::NothingYet => return Ok(()),
            Got::End => {
                self.lose_the_launcher();
                return Ok(());
            }
            Got::Bytes(bytes) => self.decoder.feed(&self.buffer[..bytes]),
        }
        self.silence.broken();
        while let Some(frame) = self.decoder.next().map_err(AgentError::Wire)? {
            let Frame::Message(payload) = frame else {
                return Err(AgentError::Wire(WireError::Message));
            };
            match super::wire::read(&payload).map_err(AgentError::Wire)? {
                Order::Plan(plan) => self.start(plan),
                Order::Signal(signal) => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        self.ranks.iter().for_each(|rank| rank.signal(signal));
                    }
                }
                Order::End => self.end(),
                Order::Kill => self.kill(),
                Order::Alive => {}
            }
        }
        Ok(())
    }

    /// Keeps A1 where no end of a stream tells, and lets the launcher know the same of this side.
    fn watch_the_launcher(&mut self) {
        let borne = self.borne();
        let is_borne = self.plan.as_ref().is_some_and(|plan| !plan.is_remote);
        if self.hears && !is_borne && self.silence.is_longer_than(borne) {
            self.lose_the_launcher();
        }
        if self.hears && self.spoke.elapsed() > borne / 4 {
            self.say(&Said::Alive);
        }
    }

    fn lose_the_launcher(&mut self) {
        self.hears = false;
        self.end();
    }

    /// Starts every rank, or none: those that were started before one that could not be are killed.
    fn start(&mut self, plan: Plan) {
        if self.plan.is_some() {
            return;
        }
        let folder = OsStr::from_bytes(&plan.folder);
        let entered = env::set_current_dir(folder)
            .map_err(|error| format!("cannot enter the folder {}: {error}", folder.display()));
        let plan = self.plan.insert(plan);
        let started = entered.and_then(|()| {
            for local in 0..plan.ranks.len() {
                let rank = Rank::start(plan, local, self.files).map_err(|error| {
                    let rank = plan.ranks[local];
                    refusal(format_args!("cannot start a process for rank {rank}"), &error)
                })?;
                self.ranks.push(rank);
            }
            Ok(())
        });
        if let Err(why) = started {
            self.say(&Said::Refused { why });
            self.kill();
        }
    }

    fn started(&mut self, at: usize) {
        let rank = &mut self.ranks[at];
        let said = match rank.started() {
            Start::Pending => return,
            Start::Runs => Said::Started { rank: rank.rank, pid: rank.pid() },
            Start::Failed(error) => {
                let command = self.plan.as_ref().and_then(|plan| plan.command.first());
                let command = command.map_or("".into(), |name| String::from_utf8_lossy(name));
                Said::Refused { why: format!("cannot start {command}: {error}") }
            }
        };
        self.say(&said);
    }

    /// Sends on a piece of what a rank wrote; whether there was any.
    fn pass_on(&mut self, at: usize, stream: Stream) -> bool {
        let rank = &mut self.ranks[at];
        let Some(bytes) = rank.read(stream, &mut self.buffer) else { return false };
        self.replies.push(&output(rank.rank, stream, &self.buffer[..bytes]));
        self.spoke = Instant::now();
        true
    }

    /// What a rank has written so far, before its end is told. A pipe holds 1 MiB at most, so what
    /// comes after that is written by somebody who has not ended.
    fn drain(&mut self, at: usize) {
        for stream in Stream::BOTH {
            for _ in 0..(2 << 20) / PIECE {
                if !self.pass_on(at, stream) {
                    break;
                }
            }
        }
    }

    fn look_after_ranks(&mut self) {
        let grace = self.grace();
        // Each look asks the kernel, so there is none without a reason.
        let looked_at = if mem::take(&mut self.looks) { self.ranks.len() } else { 0 };
        for at in 0..looked_at {
            if let Some(stopped) = self.ranks[at].stopped() {
                let rank = self.ranks[at].rank;
                self.say(&if stopped { Said::Stopped { rank } } else { Said::Continued { rank } });
            }
        }
        if looked_at > 0 {
            for (at, how, after) in causes_first(|| {
                let ended = self.ranks.iter_mut().enumerate();
                ended.filter_map(|(at, rank)| Some((at, rank.ended(grace)?))).collect()
            }) {
                self.started(at);
                self.drain(at);
                let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
                self.say(&Said::Ended { rank: self.ranks[at].rank, how, after_ns });
            }
        }
        if self.ranks.iter().any(Rank::is_leaving) {
            let living = living_groups();
            for at in 0..self.ranks.len() {
                if self.ranks[at].leave(&living, self.killed) {
                    self.drain(at);
                    self.ranks[at].streams = [None, None];
                }
            }
        }
        if self.plan.is_some() && !self.said_bye && self.ranks.iter().all(Rank::is_gone) {
            sweep_what_ranks_left();
            self.say(&Said::Bye);
            self.said_bye = true;
        }
    }

    fn end(&mut self) {
        if self.kill_at.is_none() && !self.killed {
            for rank in &self.ranks {
                rank.signal(Signal::TERM);
                // What is stopped hears of it only then.
                rank.signal(Signal::CONT);
            }
            self.kill_at = Some(Instant::now() + self.grace());
        }
    }

    fn kill(&mut self) {
        self.ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
        self.killed = true;
        self.kill_at = None;
    }
}

/// Keeps A3: a rank that a signal ended took nothing away. Where it had another `XDG_RUNTIME_DIR` than the
/// agent, the next job of that folder does this.
fn sweep_what_ranks_left() {
    if let Err(error) = sweep(&runtime_base()) {
        tracing::debug!(target: "pontoon::launch", "{error}");
    }
}

/// All that a `look` finds to have ended, those first that a signal ended: the others may have ended for
/// that. The rank that one ended for had ended before it, but may have been looked at before that, so there is a
/// look after the last that found something.
fn causes_first(
    mut look: impl FnMut() -> Vec<(usize, (How, Duration))>,
) -> Vec<(usize, How, Duration)> {
    let mut all = Vec::new();
    loop {
        let found = look();
        if found.is_empty() {
            break;
        }
        all.extend(found.into_iter().map(|(at, (how, after))| (at, how, after)));
    }
    all.sort_by_key(|(_, how, _)| !matches!(how, How::Signal(_)));
    all
}

fn streams() -> io::Result<(File, Outbox)> {
    let orders = io::stdin().as_fd().try_clone_to_owned()?;
    never_block(&orders)?;
    Ok((orders.into(), Outbox::new(out().as_fd().try_clone_to_owned()?)?))
}

/// A port that was free a moment ago; another may take it before the job does.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port())
}

/// Lets this process open as many files as it may, and returns how many it could before.
pub(super) fn may_open_more() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current == limit.maximum || setrlimit(Resource::Nofile, raised).is_err() {
        return None;
    }
    limit.current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_signal_ended_comes_before_those_that_ended_for_it() {
        // Rank 0 is looked at, is killed, and rank 2 ends for it before it is looked at.
        let at = |rank, how| (rank, (how, Duration::ZERO));
        let mut looks = [
            vec![at(2, How::Status(1))],
            vec![at(0, How::Signal(9)), at(1, How::Status(1))],
            Vec::new(),
        ]
        .into_iter();
        let told = causes_first(|| looks.next().expect("none after one that finds nothing"));
        let ranks: Vec<_> = told.iter().map(|it| it.0).collect();
        assert_eq!(ranks, [0, 2, 1]);
    }
}
