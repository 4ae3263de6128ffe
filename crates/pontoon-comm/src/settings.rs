//! What can be tuned.

use core::time::Duration;

use pontoon_signal::{Profile, Seq, TunedRing};

use crate::{
    CommError,
    ring::{DEPTH_MAX, DEPTH_MIN},
};

/// The most rings to one peer.
pub(crate) const RINGS_MAX: u32 = 64;

/// The longest time that a setting can be. Who waits longer is told nothing, and a clock cannot hold every sum.
const TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// How a rank's rings and their proxy behave. `pontoon tune` finds depth, batch and rings for a machine:
/// [`tuned`](Self::tuned).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Slots of a ring: a power of two. A task takes one, or four if its numbers are large.
    pub depth: u32,
    /// Rings to each peer. A port goes by the one that has the fewest ports.
    pub rings: u32,
    /// How many tasks the proxy takes from one ring before it looks at the next. It looks sooner once it took
    /// 1 MiB.
    pub batch: u32,
    /// How often the proxy looks at all rings in vain before it gives way to others.
    pub spins: u32,
    /// How often it then gives way before it sleeps. The first task after that wakes it.
    pub yields: u32,
    /// How long a proxy may stand still before who waits for it is told so; time in which the whole process was
    /// stopped, or had no core, does not count. At most one hour.
    pub stall: Duration,
    /// How long a call waits for room in a full ring, and how long a ticket that is dropped waits. At most one
    /// hour.
    pub patience: Duration,
    /// The first number of each ring. Tests start near 2^64, so that the wrap is met.
    pub start: Seq,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            depth: 512,
            rings: 1,
            batch: 32,
            spins: 2_000,
            yields: 50,
            stall: Duration::from_secs(1),
            patience: Duration::from_secs(2),
            start: Seq::new(0),
        }
    }
}

/// What a rank's messages are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// Small ones that come often.
    Small,
    /// Large ones that come rarely.
    Large,
}

impl Settings {
    /// What `pontoon tune` chose for such messages on this machine, or the default if there is no
    /// profile, or none that has rings and can be used: [`Profile::active`] says why. The file is read once.
    pub fn tuned(messages: Messages) -> Self {
        let rings = Profile::active().ok().flatten().and_then(|profile| profile.rings);
        let Some(rings) = rings else { return Self::default() };
        Self::default().with(match messages {
            Messages::Small => rings.small,
            Messages::Large => rings.large,
        })
    }

    /// The same, with rings as they were tuned.
    pub fn with(self, TunedRing { depth, batch, rings }: TunedRing) -> Self {
        Self { depth, batch, rings, ..self }
    }

    /// That each is within its range.
    ///
    /// # Errors
    ///
    /// [`CommError::Setting`], naming the first that is not.
    pub(crate) fn check(&self) -> Result<(), CommError> {
        let refuse = |name, value: String, wanted| CommError::Setting { name, value, wanted };
        let depth = self.depth;
        if !depth.is_power_of_two() || !(DEPTH_MIN..=DEPTH_MAX).contains(&depth) {
            return Err(refuse("depth", depth.to_string(), "a power of two from 4 to 1048576"));
        }
        if !(1..=RINGS_MAX).contains(&self.rings) {
            return Err(refuse("rings", self.rings.to_string(), "from 1 to 64"));
        }
        if self.batch == 0 {
            return Err(refuse("batch", "0".into(), "at least 1"));
        }
        for (name, time) in [("stall", self.stall), ("patience", self.patience)] {
            if !(Duration::from_millis(1)..=TIME_MAX).contains(&time) {
                let wanted = "at least 1ms and at most one hour";
                return Err(refuse(name, format!("{time:?}"), wanted));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Settings, TIME_MAX};
    use crate::{Comm, CommError};
    use core::time::Duration;
    use pontoon_signal::Rank;

    #[test]
    fn a_time_has_its_limits_and_can_be_all_between_them() {
        type Change = fn(&mut Settings, Duration);
        let stall: Change = |it, to| it.stall = to;
        let patience: Change = |it, to| it.patience = to;
        for (setting, change) in [("stall", stall), ("patience", patience)] {
            let open = |time| {
                let mut settings = Settings::default();
                change(&mut settings, time);
                Comm::open(Rank(0), settings)
            };
            for time in [Duration::ZERO, TIME_MAX + Duration::from_nanos(1), Duration::MAX] {
                let error = open(time).expect_err("refused");
                let text = error.to_string();
                assert!(
                    matches!(error, CommError::Setting { name, .. } if name == setting),
                    "{text}"
                );
                assert!(text.ends_with("has to be at least 1ms and at most one hour"), "{text}");
            }
            for time in [Duration::from_millis(1), TIME_MAX] {
                drop(open(time).expect("within"));
            }
        }
    }
}
