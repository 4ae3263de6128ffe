//! How a training run fails.

use std::{fmt, time::Duration};

use pontoon::{
    FenceError, HostError, Rank, Refusal, StreamError, WaitFailure,
    comm::{CommError, SendError},
    cpu::OpenDeviceError,
    hal::{AllocateError, Cause, Fault, HostAccessError, OpenQueueError, link::LinkError},
    signal::{HeapFull, WaitError},
    smc::{MapError, SmcError},
    world::{Death, WorldError},
};

use super::{
    TraceError,
    data::DataError,
    given::Unlike,
    way::{Turn, ranks::Named},
};
use crate::{
    BAD_INPUT, FAILED, counted::counted, doctor::bytes, from::from, launch::LaunchError, limit,
};

/// How a training run fails.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum TrainError {
    /// The data cannot be used.
    Data(DataError),
    /// The options contradict each other.
    Options(&'static str),
    /// There is no fence of that number to drop.
    NoSuchFence { devices: u32, last: usize },
    /// A device could not be opened.
    Device(OpenDeviceError),
    /// A queue could not be opened.
    Queue(OpenQueueError),
    /// There was no memory on a device.
    Memory(AllocateError),
    /// The host met a running command.
    Host(HostAccessError),
    /// A command could not be submitted.
    Stream(StreamError),
    /// The session did not take a command.
    Refused(Refusal),
    /// The host could not use bytes.
    HostAccess(HostError),
    /// A fence was not reached.
    Fence(FenceError),
    /// A wait would never have ended.
    Wait(WaitFailure),
    /// A device did not finish what it had.
    Synchronize { device: Rank, error: WaitError },
    /// The system gave no thread.
    Thread(std::io::Error),
    /// Another device's thread failed first; its error is the one to show.
    Elsewhere,
    /// A device's thread waited too long for another.
    Turn(Turn),
    /// The job needs more memory than there is.
    TooLarge { needed: u64, available: u64 },
    /// A stream failed; all else followed from it.
    Fault(Fault),
    /// There are more ranks than rank 0 has streams for.
    TooManyRanks { world: u32, most: u32 },
    /// The host has too few CPUs for the devices of its ranks.
    Crowded { ranks: u32, devices: u32, cpus: u32, most: u32 },
    /// A launcher's variables name no job.
    NoJob,
    /// The ranks could not come together, or not stay so.
    World(WorldError),
    /// The segment has no room.
    Heap(HeapFull),
    /// The link has no signal to send by.
    Link(LinkError),
    /// There is no way for kernels to send.
    Comm(CommError),
    /// The way to send that was asked for does not exist to this peer.
    NoWay(SendError),
    /// A message could not be sent.
    Send(SendError),
    /// There is no window on the parameters.
    Map(MapError),
    /// What rank 0 has did not come, or what it is to have did not get there.
    Pages(SmcError),
    /// A rank that lives may lack parameters, which another message would not make good.
    Unsent { rank: Rank, steps: usize, error: Box<TrainError> },
    /// A wait failed at a rank, which has devices of its own and other ranks to wait for.
    Named { wait: Box<Named>, error: Box<TrainError> },
    /// A rank died, and this one ended for it.
    Death { death: Death, error: Box<TrainError> },
    /// After `error`, what ran beside it did not end: nobody can go on in its place.
    Stuck { stuck: Box<TrainError>, error: Box<TrainError> },
    /// It was before the first step, for which all ranks are needed.
    Early(Box<TrainError>),
    /// The others took this rank for dead, and it ended for that.
    Excluded { death: Death, error: Box<TrainError> },
    /// The ranks were not given the same.
    Unlike(Unlike),
    /// The ranks did not end with the same weights.
    Differ { rank: Rank, found: String, of_rank_0: String },
    /// The ranks could not be started.
    Launch(LaunchError),
    /// The digest is not that of one thread.
    Digest { found: String, reference: String },
    /// The trace could not be written.
    Trace(TraceError),
    /// The results could not be written.
    Output(std::io::Error),
}

impl TrainError {
    /// Whether the user asked for something impossible, rather than the run failing.
    pub(crate) fn is_bad_input(&self) -> bool {
        match self {
            Self::Data(_) | Self::Options(_) | Self::NoSuchFence { .. } | Self::TooLarge { .. } => {
                true
            }
            Self::NoJob | Self::Unlike(_) => true,
            Self::TooManyRanks { .. } | Self::Crowded { .. } => true,
            Self::World(error) => error.is_bad_input(),
            Self::NoWay(_) => true,
            // The kernel has no pages to give, whoever asks.
            Self::Map(MapError::Reserve(_)) => true,
            Self::Early(error) => error.is_bad_input(),
            Self::Trace(error) => error.is_bad_input(),
            _ => false,
        }
    }

    /// Whether a death elsewhere may be behind it. None is behind what a kernel did by itself, or what the
    /// system refused.
    pub(super) fn may_follow_from_a_death(&self) -> bool {
        let is_wait = |fault: &Fault| matches!(fault.cause, Cause::Wait(_));
        match self {
            Self::Fault(fault) => is_wait(fault),
            Self::Fence(error) => error.fault.as_ref().is_none_or(is_wait),
            Self::Device(_) | Self::Queue(_) | Self::Memory(_) | Self::Thread(_) => false,
            Self::Heap(_) | Self::Differ { .. } | Self::Digest { .. } => false,
            Self::Trace(_) | Self::Output(_) => false,
            Self::Unsent { error, .. } | Self::Stuck { error, .. } => {
                error.may_follow_from_a_death()
            }
            _ => true,
        }
    }

    /// The error as a user is told of it: with what to do about a wait that was only too short.
    pub(crate) fn told(&self) -> String {
        match self.is_slow() {
            true => format!("{self}; where that is only slow, a longer --bound gives it more time"),
            false => self.to_string(),
        }
    }

    /// Whether a wait used up its time, and nobody is known to be dead or stuck.
    fn is_slow(&self) -> bool {
        let of_fault = |fault: &Fault| match &fault.cause {
            Cause::Wait(error) => error.is_timeout(),
            _ => false,
        };
        let of_fence = |fence: &FenceError| match &fence.fault {
            Some(fault) => of_fault(fault),
            None => fence.error.is_timeout(),
        };
        match self {
            Self::Fault(fault) => of_fault(fault),
            Self::Fence(error) | Self::Wait(WaitFailure::Fence(error)) => of_fence(error),
            Self::Synchronize { error, .. } => error.is_timeout(),
            Self::Turn(_) => true,
            Self::Named { error, .. } => error.is_slow(),
            _ => false,
        }
    }

    /// The status of the command.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Launch(error) => error.status(),
            error if error.is_bad_input() || error.is_limit() => BAD_INPUT,
            _ => FAILED,
        }
    }

    /// Whether the host has less than the run takes.
    fn is_limit(&self) -> bool {
        match self {
            Self::Device(error) => limit::of_device(error),
            Self::Memory(error) => limit::of_memory(error),
            Self::Thread(error) => limit::of(error).is_some(),
            _ => false,
        }
    }

    /// Whether there is nobody to tell.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Self::Launch(error) if error.is_silent())
    }

    /// Whether it is a wait that used up its time, after which waiting again may help.
    pub(super) fn is_timeout(&self) -> bool {
        match self {
            Self::Fence(FenceError { error, .. }) | Self::Synchronize { error, .. } => {
                error.is_timeout()
            }
            _ => false,
        }
    }

    /// The same time-out, at the end of a wait that lasted for `so_far` in all.
    pub(super) fn after(mut self, so_far: Duration) -> Self {
        if let Self::Fence(FenceError { error, .. }) | Self::Synchronize { error, .. } = &mut self
            && let WaitError::TimedOut { waited, .. } = error
        {
            *waited = so_far.into();
        }
        self
    }

    /// Whether it says no more than that something else failed before.
    pub(super) fn is_consequence(&self) -> bool {
        matches!(self, Self::Elsewhere)
    }
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(error) => error.fmt(f),
            Self::Options(why) => f.write_str(why),
            Self::NoSuchFence { devices, last } => write!(
                f,
                "--inject drop-fence=K: with {} the fences are 0 to {last}",
                counted(*devices as u64, "device")
            ),
            Self::Device(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Host(error) => write!(f, "the host came too early: {error}"),
            Self::Stream(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::HostAccess(error) => error.fmt(f),
            Self::Fence(error) => error.fmt(f),
            Self::Wait(failure) => failure.fmt(f),
            Self::Synchronize { device, error } => {
                write!(f, "device-wide synchronise of device {device}: {error}")
            }
            Self::Thread(error) => {
                write!(f, "no thread for a device's host: {error}; see ulimit -u")
            }
            Self::Elsewhere => f.write_str("another device's thread failed"),
            Self::Turn(turn) => turn.fmt(f),
            Self::TooLarge { needed, available } => write!(
                f,
                "this run needs {} of memory and {} are available: take a smaller --batch or less \
                 --data",
                bytes(*needed),
                bytes(*available)
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::NoJob => f.write_str(
                "--join needs a launcher's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or \
                 those of Open MPI or Slurm): start it by `pontoon launch`, or use --procs",
            ),
            Self::TooManyRanks { world, most } => write!(
                f,
                "WORLD_SIZE is {world}, and train takes at most {most} ranks: rank 0 has a stream for \
                 each of the others on its first device"
            ),
            Self::Crowded { ranks, devices, cpus, most } => {
                let all = counted(u64::from(*ranks) * u64::from(*devices), "device");
                let (ranks_of, cpus) = (counted(*ranks, "rank"), counted(*cpus, "CPU"));
                write!(
                    f,
                    "{ranks_of} here with --devices {devices} are {all} on {cpus}, which can carry {most}: "
                )?;
                match most / (*ranks).max(1) {
                    0 => write!(f, "give at most {}", counted(*most, "rank")),
                    each => write!(f, "give --devices {each} at most, or fewer ranks"),
                }
            }
            Self::World(error) => f.write_str(&once(&error.to_string())),
            Self::Heap(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
            Self::Comm(error) => error.fmt(f),
            Self::Send(error @ SendError::Stalled { .. }) => {
                write!(f, "{error}; this machine may have too much to do: a longer --bound bears more of that")
            }
            Self::NoWay(error) | Self::Send(error) => error.fmt(f),
            Self::Map(error) => {
                write!(f, "no window on the memory of rank 0: {error}; --params message needs none")
            }
            Self::Pages(SmcError::Unavailable { home, .. }) => write!(
                f,
                "the memory of rank {home} does not answer; nothing was computed from what was read \
                 instead"
            ),
            Self::Pages(error) => error.fmt(f),
            Self::Unsent { rank, steps, error } => write!(
                f,
                "rank {rank} lives, but may lack the parameters of the {} that are done: {error}; sent \
                 again they could count twice, so the run ends: a longer --bound gives it more time",
                counted(*steps as u64, "step")
            ),
            Self::Named { wait, error } => f.write_str(&wait.in_words(&error.to_string())),
            Self::Death { death, error } => {
                let error = followed(&error.to_string(), &format!("rank {}", death.rank));
                f.write_str(&once(&format!("{death}; {error}")))
            }
            Self::Stuck { stuck, error } => {
                write!(f, "what runs here does not end after a failure: {stuck}; it was: {error}")
            }
            Self::Early(error) => {
                write!(f, "before the first step, for which all ranks are needed, {error}")
            }
            Self::Excluded { death, error } => {
                f.write_str("the others took this rank for dead")?;
                if let Some(how) = death.how {
                    write!(f, ": {how}")?;
                }
                let error = followed(&error.to_string(), "");
                write!(f, "; it was stopped or cut off for too long; {error}")
            }
            Self::Unlike(unlike) => unlike.fmt(f),
            Self::Differ { rank, found, of_rank_0 } => write!(
                f,
                "rank {rank} ended with weights of digest {found}, rank 0 with {of_rank_0}: a \
                 dependency is missing"
            ),
            Self::Launch(error) => error.fmt(f),
            Self::Digest { found, reference } => write!(
                f,
                "the weights' digest is {found}, but one thread gets {reference}: a dependency \
                 is missing"
            ),
            Self::Trace(error) => error.fmt(f),
            Self::Output(error) => write!(f, "cannot write the results: {error}"),
        }
    }
}

impl std::error::Error for TrainError {}

/// A text whose clauses, between semicolons, are each said once: what failed by a death, and what
/// failed by that, often tells of the same death.
fn once(text: &str) -> String {
    let mut clauses: Vec<&str> = Vec::new();
    for clause in text.split("; ") {
        if !clauses.iter().any(|said| says(said, clause)) {
            clauses.push(clause);
        }
    }
    clauses.join("; ")
}

/// Whether `said` tells all of `clause`: the same, or with a reason.
fn says(said: &str, clause: &str) -> bool {
    said.strip_prefix(clause).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// `told`, which followed from the death of `cause` (`rank 1`). All ranks end for that, and the devices of this
/// one: what it says to be dead besides was alive.
fn followed(told: &str, cause: &str) -> String {
    let is_another = |who: &str| {
        let is_named = who.starts_with("rank ") || who.starts_with("device ");
        is_named && who != cause
    };
    let clauses = told.split("; ").map(|clause| {
        let (what, last) = clause.rsplit_once(": ").unwrap_or(("", clause));
        match last.strip_suffix(" is dead").filter(|who| is_another(who)) {
            Some(_) if what.is_empty() => "given up for that".to_owned(),
            Some(_) => format!("{what}: given up for that"),
            None => clause.to_owned(),
        }
    });
    clauses.collect::<Vec<_>>().join("; ")
}

from! {
    TrainError:
    DataError => Data,
    TraceError => Trace,
    OpenQueueError => Queue,
    AllocateError => Memory,
    HostAccessError => Host,
    StreamError => Stream,
    FenceError => Fence,
    HostError => HostAccess,
    Refusal => Refused,
    WorldError => World,
    LinkError => Link,
    CommError => Comm,
    SendError => Send,
    HeapFull => Heap,
    MapError => Map,
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let dead = "rank 1 is dead: its process ended";
        for (text, wanted) in [
            (format!("{dead}; {dead}"), dead.to_owned()),
            (format!("{dead}; rank 1 is dead"), dead.to_owned()),
            (
                format!("{dead}; rank 11 is dead; waited"),
                format!("{dead}; rank 11 is dead; waited"),
            ),
            (format!("{dead}; waited; {dead}; x"), format!("{dead}; waited; x")),
        ] {
            assert_eq!(once(&text), wanted);
        }
        let how = Some(pontoon::job::How::Exited);
        let death = Death { rank: Rank(1), how, noticed: pontoon::signal::Nanos(0) };
        let [inner, outer] = [(); 2].map(|()| death);
        let error =
            Box::new(TrainError::Death { death: inner, error: Box::new(TrainError::Elsewhere) });
        let said = TrainError::Death { death: outer, error }.to_string();
        assert_eq!(said, format!("{dead}; another device's thread failed"));
    }

    #[test]
    fn nobody_is_told_of_as_dead_but_the_cause() {
        let death = Death {
            rank: Rank(1),
            how: Some(pontoon::job::How::HeartbeatLost),
            noticed: pontoon::signal::Nanos(0),
        };
        let lost = |peer| {
            let error = LinkError::PeerDead { peer };
            Box::new(TrainError::Send(SendError::Link(error)))
        };
        let said = |peer| TrainError::Death { death, error: lost(Rank(peer)) }.to_string();
        let how = "rank 1 is dead: nothing was heard of it any more";
        assert_eq!(said(0), format!("{how}; given up for that"));
        assert_eq!(said(1), how);
        let said = TrainError::Excluded { death, error: lost(Rank(0)) }.to_string();
        assert!(said.ends_with("for too long; given up for that"), "{said}");
        for (told, wanted) in [
            ("wait failed: rank 0 is dead; waited", "wait failed: given up for that; waited"),
            ("queue q: device 1 of rank 3 is dead; w", "queue q: given up for that; w"),
            ("wait failed: rank 1 is dead; waited", "wait failed: rank 1 is dead; waited"),
            ("wait failed: rank 11 is dead", "wait failed: given up for that"),
            ("what is dead; rank 0 is dead: why", "what is dead; rank 0 is dead: why"),
        ] {
            assert_eq!(followed(told, "rank 1"), wanted);
        }
    }

    #[test]
    fn a_stand_still_says_what_to_do() {
        let (done, wanted) = (pontoon::Seq::new(171), pontoon::Seq::new(172));
        let silent = Duration::from_millis(1300);
        let error = SendError::Stalled { peer: Rank(0), silent, done, wanted };
        let said = TrainError::Send(error).to_string();
        assert!(said.starts_with("the proxy has stood still for 1.3"), "{said}");
        assert!(said.ends_with("a longer --bound bears more of that"), "{said}");
    }

    /// What the user chose cannot be had, or something of the run's own was not there.
    #[test]
    fn only_what_was_asked_for_is_bad_input() {
        let lacks = |what| SendError::Impossible { peer: Rank(1), what };
        let early = |error| TrainError::Early(Box::new(error));
        for (error, status) in [
            (TrainError::NoWay(lacks("mapped memory")), 2),
            (early(TrainError::NoWay(lacks("mapped memory"))), 2),
            (TrainError::Send(lacks("trigger of that number")), 1),
            (early(TrainError::Send(lacks("port"))), 1),
        ] {
            assert_eq!(error.status(), status, "{error}");
        }
    }

    #[test]
    fn a_launch_that_failed_has_its_own_status() {
        let system = LaunchError::System("make a token", io::ErrorKind::Other.into());
        let broken = LaunchError::Output { at: None, error: io::ErrorKind::BrokenPipe.into() };
        let option = LaunchError::Option { option: "--rsh", why: String::new() };
        for (error, status, is_silent) in [
            (LaunchError::Stopped(15), 143, false),
            (system, 1, false),
            (broken, 141, true),
            (option, 2, false),
        ] {
            let error = TrainError::Launch(error);
            assert_eq!((error.status(), error.is_silent()), (status, is_silent), "{error}");
        }
        assert_eq!(TrainError::NoJob.status(), 2);
        assert_eq!(TrainError::Elsewhere.status(), 1);
    }
}
