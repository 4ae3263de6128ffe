//! Those who connect and do not belong to the job: counted, and logged now and then.

use std::{fmt, net::SocketAddr, sync::Arc};

use pontoon_signal::{
    Nanos,
    shim::{AtomicU64, Ordering::Relaxed},
};

/// Why a stranger was sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Garbage,
    WrongToken,
    OtherVersion(u16),
    OtherJob,
    TooSlow,
    CrowdedOut,
    GaveUp,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Garbage => f.write_str("what it sent is no message of a pontoon job"),
            Self::WrongToken => f.write_str("it does not know the job's token"),
            Self::OtherVersion(version) => write!(
                f,
                "it speaks version {version} of the job's messages, and this is version {}",
                crate::wire::VERSION
            ),
            Self::OtherJob => f.write_str("it belongs to a job of another name"),
            Self::TooSlow => f.write_str("it did not prove in time that it belongs to the job"),
            Self::CrowdedOut => f.write_str("too many strangers are connected"),
            Self::GaveUp => f.write_str("it went before it had said who it is"),
        }
    }
}

/// How many strangers were sent away, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Strangers {
    /// Sent what is no message.
    pub garbage: u64,
    /// Did not know the token.
    pub wrong_token: u64,
    /// Spoke another version.
    pub other_version: u64,
    /// Knew the token, and named another job.
    pub other_job: u64,
    /// Did not prove in time that they belong to the job.
    pub too_slow: u64,
    /// Had to make room for others.
    pub crowded_out: u64,
    /// Went by themselves.
    pub gave_up: u64,
}

impl Strangers {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { garbage, wrong_token, other_version, other_job, too_slow, crowded_out, gave_up } =
            self;
        garbage + wrong_token + other_version + other_job + too_slow + crowded_out + gave_up
    }
}

/// The counts, read from elsewhere while the hub counts.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; 7]);

impl Counts {
    pub(crate) fn read(&self) -> Strangers {
        let [garbage, wrong_token, other_version, other_job, too_slow, crowded_out, gave_up] =
            self.0.each_ref().map(|count| count.load(Relaxed));
        Strangers { garbage, wrong_token, other_version, other_job, too_slow, crowded_out, gave_up }
    }

    fn of(&self, why: Why) -> &AtomicU64 {
        &self.0[match why {
            Why::Garbage => 0,
            Why::WrongToken => 1,
            Why::OtherVersion(_) => 2,
            Why::OtherJob => 3,
            Why::TooSlow => 4,
            Why::CrowdedOut => 5,
            Why::GaveUp => 6,
        }]
    }
}

/// At most one line in this time, however many come.
const LOG_EVERY: Nanos = Nanos(1_000_000_000);

/// Counts strangers and logs them at a bounded rate.
#[derive(Debug, Default)]
pub(crate) struct Doorman {
    pub(crate) counts: Arc<Counts>,
    last_logged: Option<Nanos>,
    unlogged: u64,
}

impl Doorman {
    /// Whether it was logged.
    pub(crate) fn note(&mut self, why: Why, from: SocketAddr, now: Nanos) -> bool {
        self.counts.of(why).fetch_add(1, Relaxed);
        if self.last_logged.is_some_and(|last| now.since(last) < LOG_EVERY) {
            self.unlogged += 1;
            return false;
        }
        let unlogged = std::mem::take(&mut self.unlogged);
        self.last_logged = Some(now);
        tracing::warn!(target: "pontoon::job", %from, %why, unlogged, "refused a stranger");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Doorman, Why};
    use pontoon_signal::Nanos;

    #[test]
    fn all_are_counted_and_few_are_logged() {
        let mut doorman = Doorman::default();
        let from = ([127, 0, 0, 1], 9).into();
        let times = (0..3_000).map(|ms| Nanos(5_000_000_000 + ms * 1_000_000));
        let logged = times.filter(|&now| doorman.note(Why::Garbage, from, now)).count();
        assert_eq!(logged, 3);
        doorman.note(Why::TooSlow, from, Nanos(0));
        let counts = doorman.counts.read();
        assert_eq!((counts.garbage, counts.too_slow, counts.total()), (3_000, 1, 3_001));
    }
}
