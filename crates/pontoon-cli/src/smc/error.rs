//! How these commands fail.

use std::{error, fmt, io, path::PathBuf, time::Duration};

use pontoon::{
    job::EnvError,
    signal::SystemError,
    smc::{MapError, Released},
    world::{Death, WorldError},
};

use super::place::Place;
use crate::{BAD_INPUT, FAILED, bench::BenchError, counted::counted, from::from, limit};

/// How these commands fail.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// There is no token.
    NoToken,
    /// The token is none, or a place is none for a job.
    Env(EnvError),
    /// It is no address of this host.
    NotHere(Place),
    /// Somebody else listens there.
    InUse(Place),
    /// The port is one of those that the system keeps.
    Kept(Place),
    /// Nobody listens there.
    NoServer { place: Place, waited: Duration, last: Option<SystemError> },
    /// What listens there serves no memory.
    NoMemory(Place),
    /// The address has no number; why, if that was found in time.
    NoAddress { place: Place, why: Option<Box<str>> },
    /// The server has another client.
    Busy { place: Place, waited: Duration },
    /// The two did not come together.
    World(WorldError),
    /// There is no window.
    Map(MapError),
    /// There is no stack for faults.
    Stack(SystemError),
    /// The pool is too small for what comes at once.
    Pool { pages: usize, class: String, least: usize },
    /// Signals cannot be heeded.
    Signals(io::Error),
    /// There is no memory to serve.
    Nothing,
    /// The memory has no such bytes.
    Outside { at: usize, bytes: Option<usize>, all: usize },
    /// The memory is too small to be measured.
    Small { bytes: usize, least: usize },
    /// A measurement ended without its figures.
    Bench { loss: Loss, writes: bool },
    /// The host has less than a measurement takes.
    Want { error: BenchError, writes: bool },
    /// More is to be stored than there is room for.
    NoRoom { at: usize, all: usize },
    /// More comes from what is no file than is kept here.
    TooLong { path: PathBuf, most: usize },
    /// Another part of a file was stored than there was to be.
    Part { path: PathBuf, stored: u64, why: Whole },
    /// A file cannot be used.
    File { path: PathBuf, verb: &'static str, error: io::Error },
    /// What was read cannot be written.
    Output(io::Error),
    /// All is stored, and that cannot be said.
    Untold { stored: u64, error: io::Error },
    /// What was found out cannot be written.
    Report(io::Error),
    /// The memory was not written to its file.
    Save { path: PathBuf, error: io::Error },
    /// The memory is no longer to be had.
    Lost(Loss),
    /// The same, while it was read.
    Cut { loss: Loss, wrote: u64 },
    /// The same, while it was changed.
    Torn { loss: Loss, sent: Released },
}

/// Why what is stored of a file is not the whole of it.
#[derive(Debug)]
pub(crate) enum Whole {
    /// It has less than it had when its length was looked at.
    Ended,
    /// It has more.
    Grew,
    /// It cannot be read.
    Unread(io::Error),
}

/// Why the memory is no longer to be had.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(super) death: Option<Death>,
    pub(super) error: Box<dyn error::Error>,
    /// Pages that got the pattern.
    pub(super) pattern: u64,
}

impl ToolError {
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::World(error) if !error.is_bad_input() => FAILED,
            Self::Signals(error) if limit::of(error).is_none() => FAILED,
            Self::Stack(error) if !error.is_limit() => FAILED,
            Self::Save { .. } | Self::Output(_) => FAILED,
            Self::Untold { .. } | Self::Report(_) | Self::Part { .. } => FAILED,
            Self::Lost(_) | Self::Cut { .. } | Self::Torn { .. } | Self::Bench { .. } => FAILED,
            _ => BAD_INPUT,
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoToken => f.write_str(
                "neither PONTOON_TOKEN nor PONTOON_TOKEN_FILE is set, and without a token anybody could \
                 read and change the memory: give server and clients the same, such as \
                 `export PONTOON_TOKEN=$(openssl rand -hex 32)`",
            ),
            Self::Env(error) => error.fmt(f),
            Self::InUse(place) => write!(
                f,
                "somebody else listens on {place}: choose another port, or end what uses it"
            ),
            Self::NotHere(place) => write!(
                f,
                "{place} is no address of this host: listen on one of its own, or on all by 0.0.0.0"
            ),
            Self::Kept(place) => write!(
                f,
                "this user may not listen on {place}: the system keeps low ports \
                 (net.ipv4.ip_unprivileged_port_start) for root; choose one from 1024 on"
            ),
            Self::NoServer { place, waited, last } => {
                write!(f, "nobody serves memory at {place}, waited {waited:.1?}: ")?;
                match last {
                    Some(error) => write!(f, "{error}")?,
                    None => f.write_str(
                        "no answer, as of a host that is away, of another program, or of a server that is \
                         stopped or has a client that is",
                    )?,
                }
                write!(f, "; start `pontoon smc serve --listen {place}` there, or raise --join-bound")
            }
            Self::Busy { place, waited } => write!(
                f,
                "the server at {place} has another client, waited {waited:.1?} for it to be done: \
                 raise --join-bound"
            ),
            Self::NoMemory(place) => write!(
                f,
                "what listens on {place} serves no memory: give the address and port of a \
                 `pontoon smc serve`"
            ),
            Self::NoAddress { place, why: Some(why) } => {
                write!(f, "the host of {place} has no address: {why}")
            }
            Self::NoAddress { place, why: None } => write!(
                f,
                "the address of the host of {place} was not found in time: ask the name service, \
                 or raise --join-bound"
            ),
            Self::World(error) => error.fmt(f),
            Self::Map(error) => error.fmt(f),
            Self::Stack(error) => write!(f, "there is no stack to serve faults on: {error}"),
            Self::Pool { pages, class, least } => write!(
                f,
                "a pool of {} is too small for --class {class}, which takes {least}: raise --pool",
                counted(*pages as u64, "page")
            ),
            Self::Signals(error) => write!(f, "signals cannot be heeded: {error}"),
            Self::Nothing => f.write_str("there is nothing to serve: it has no bytes"),
            Self::Outside { at, bytes: Some(bytes), all } => {
                let are = if *bytes == 1 { "is" } else { "are" };
                let bytes = counted(*bytes as u64, "byte");
                write!(f, "there {are} no {bytes} from byte {at} on in a memory of {all}")
            }
            Self::Outside { at, bytes: None, all } => {
                write!(f, "there is no byte {at} in a memory of {all}")
            }
            Self::Small { bytes, least } => write!(
                f,
                "a memory of {} is too small to be measured: serve {least} or more (--bytes)",
                counted(*bytes as u64, "byte")
            ),
            Self::Bench { loss, writes: false } => loss.fmt(f),
            Self::Bench { loss, writes: true } => {
                write!(f, "{loss}; what was changed may not have been changed back")
            }
            Self::Want { error, writes: false } => error.fmt(f),
            Self::Want { error, writes: true } => {
                write!(f, "{error}; what was changed may not have been changed back")
            }
            Self::NoRoom { at, all } => write!(
                f,
                "there is more to store than fits from byte {at} on into a memory of {all}; nothing \
                 was stored"
            ),
            Self::TooLong { path, most } => write!(
                f,
                "more than {most} bytes come from {}, which is what is kept of what is no file; nothing was \
                 stored: put it in a file, and give that by --file",
                path.display()
            ),
            Self::Part { path, stored, why } => {
                let (path, stored) = (path.display(), counted(*stored, "byte"));
                match why {
                    Whole::Ended => write!(
                        f,
                        "{path} ended after {stored}, sooner than its length was; what it had is stored"
                    ),
                    Whole::Grew => {
                        write!(f, "{path} grew while it was read; its first {stored} are stored")
                    }
                    Whole::Unread(error) => {
                        write!(f, "{stored} of {path} stored, and no more can be read: {error}")
                    }
                }
            }
            Self::File { path, verb, error } => {
                write!(f, "cannot {verb} {}: {error}", path.display())
            }
            Self::Output(error) => write!(f, "cannot write what was read: {error}"),
            Self::Untold { stored, error } => write!(
                f,
                "{} are stored, but what that changed cannot be written: {error}",
                counted(*stored, "byte")
            ),
            Self::Report(error) => write!(f, "cannot write the report: {error}"),
            Self::Save { path, error } => {
                write!(f, "what clients changed was not saved to {}: {error}", path.display())
            }
            Self::Lost(loss) => loss.fmt(f),
            Self::Cut { loss, wrote } => {
                let wrote = counted(*wrote, "byte");
                write!(f, "{loss}; before that {wrote} were read and written")
            }
            Self::Torn { loss, sent } => write!(
                f,
                "{loss}; {} of {} were sent before that",
                counted(sent.bytes, "byte"),
                counted(sent.pages, "page")
            ),
        }
    }
}

impl Loss {
    /// What happened first, as far as is known.
    pub(super) fn cause(&self) -> &dyn fmt::Display {
        self.death.as_ref().map_or(&self.error, |death| death)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)?;
        if self.death.is_some() {
            f.write_str("; the memory is its")?;
        }
        let are = if self.pattern == 1 { "is" } else { "are" };
        write!(f, ", and {} {are} the pattern", counted(self.pattern, "page"))
    }
}

impl error::Error for ToolError {}

from! {
    ToolError:
    WorldError => World,
    MapError => Map,
    Loss => Lost,
}

#[cfg(test)]
mod tests {
    use super::*;
    use pontoon::smc::{Feature, Features, OpenError};

    #[test]
    fn a_kernel_that_lacks_something_is_bad_input_and_says_what_to_do() {
        for feature in [Feature::Missing, Feature::SigBus] {
            let features = Features::probe().without(feature);
            assert!(!features.has(feature));
            let error = MapError::Reserve(pontoon::smc::ReserveError::Lacks(feature));
            let error = ToolError::from(error);
            assert_eq!(error.status(), BAD_INPUT);
            let text = error.to_string();
            assert!(text.contains(feature.since()) && text.contains(feature.instead()), "{text}");
        }
    }

    #[test]
    fn what_the_host_has_not_is_bad_input_and_what_fails_is_not() {
        let system = |code| SystemError { call: "mmap", code };
        for (code, status) in [(12, BAD_INPUT), (24, BAD_INPUT), (5, FAILED)] {
            assert_eq!(ToolError::Stack(system(code)).status(), status);
            assert_eq!(BenchError::Memory(system(code)).status(), status);
            let signals = ToolError::Signals(io::Error::from_raw_os_error(code));
            assert_eq!(signals.status(), status);
        }
        let want = ToolError::Want { error: BenchError::Memory(system(12)), writes: true };
        assert_eq!(want.status(), BAD_INPUT);
        assert!(want.to_string().ends_with("may not have been changed back"), "{want}");
    }

    #[test]
    fn what_is_lost_is_counted() {
        let loss =
            |pattern| Loss { death: None, error: Box::new(io::Error::other("gone")), pattern };
        let cut = ToolError::Cut { loss: loss(1), wrote: 8192 };
        assert_eq!(cut.status(), FAILED);
        let text = "gone, and 1 page is the pattern; before that 8192 bytes were read and written";
        assert_eq!(cut.to_string(), text);
        let torn = ToolError::Torn { loss: loss(0), sent: Released::default() };
        assert!(torn.to_string().contains("0 pages are the pattern; 0 bytes of 0 pages"), "{torn}");
        assert_eq!(
            ToolError::from(MapError::Open(OpenError::Pages { asked: 3 })).status(),
            BAD_INPUT
        );
    }
}
