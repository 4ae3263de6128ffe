//! Signals as a stream that can be polled, and their names.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::process::Signal;
use signal_hook::{
    iterator::{backend::SignalDelivery, exfiltrator::SignalOnly},
    low_level::signal_name,
};

use crate::counted::counted;

/// What the launcher hands on to the ranks.
const FORWARDED: [Signal; 5] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2];

/// Signals that no longer do what they did by default, but are told here.
#[derive(Debug)]
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Takes over what the launcher hands on, except what its parent made it ignore: so a job
    /// survives the end of a terminal under `nohup`, as any program does.
    ///
    /// # Errors
    ///
    /// See [`Signals::take`].
    pub(super) fn forwarded() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let is_heard = |signal: &Signal| ignored >> (signal.as_raw() - 1) & 1 == 0;
        Self::take(&FORWARDED.into_iter().filter(is_heard).collect::<Vec<_>>())
    }

    /// Takes `signals` over.
    ///
    /// # Errors
    ///
    /// The kernel has no sockets left, or refuses a handler.
    pub(super) fn take(signals: &[Signal]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let raw = signals.iter().map(|signal| signal.as_raw());
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, raw)?;
        Ok(Self { delivery })
    }

    /// Readable when there are some.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// Those that came since. One that came twice is told once.
    pub(super) fn pending(&mut self) -> Vec<Signal> {
        self.delivery.pending().filter_map(Signal::from_named_raw).collect()
    }
}

/// Whether `signal` asks for the end of the job.
pub(super) fn asks_for_the_end(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP)
}

/// That `signal`, which asks for the end, went to so many ranks, and what comes of it.
pub(super) fn handed_on(signal: Signal, ranks: u32, grace: Duration) -> String {
    let is_one = ranks == 1;
    let then = match (signal, is_one) {
        (Signal::INT, true) => "once more kills it".to_owned(),
        (Signal::INT, false) => "once more kills them".to_owned(),
        (_, true) => format!("it has {grace:?} to end"),
        (_, false) => format!("they have {grace:?} to end"),
    };
    let (name, ranks) = (name(signal.as_raw()), counted(ranks, "rank"));
    format!("pontoon launch: {name} went to {ranks}; {then}")
}

/// Whether the launcher hands `signal` on, so that whoever it ends was asked to.
pub(super) fn is_handed_on(signal: i32) -> bool {
    FORWARDED.iter().any(|forwarded| forwarded.as_raw() == signal)
}

/// `SIGKILL`, or `signal 42` for one without a name.
pub(super) fn name(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// The set of ignored signals in a `/proc/PID/status`: bit 0 is signal 1.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names() {
        assert_eq!(name(9), "SIGKILL");
        assert_eq!(name(64), "signal 64");
    }

    #[test]
    fn what_is_ignored_is_known() {
        // A Rust program ignores SIGPIPE.
        assert_eq!(ignored("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored(""), 0);
    }
}
