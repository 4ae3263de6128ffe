//! How long the other side of a stream has said nothing.

use std::time::{Duration, Instant};

/// Silence, as far as this side listened.
///
/// Time in which it did not counts as a quarter of what is borne at most, however long it was: who
/// was stopped, or had no processor, finds an old time of the last word before it finds what was said
/// since.
#[derive(Debug)]
pub(super) struct Silence {
    lasted: Duration,
    looked: Instant,
}

impl Silence {
    pub(super) fn begin() -> Self {
        Self { lasted: Duration::ZERO, looked: Instant::now() }
    }

    /// Something was said.
    pub(super) fn broken(&mut self) {
        *self = Self::begin();
    }

    /// Whether it is longer than `borne`. To be asked after each reading, and more often than every
    /// quarter of that.
    pub(super) fn is_longer_than(&mut self, borne: Duration) -> bool {
        self.is_longer_at(Instant::now(), borne)
    }

    fn is_longer_at(&mut self, now: Instant, borne: Duration) -> bool {
        let away = now.saturating_duration_since(self.looked).min(borne / 4);
        self.lasted = self.lasted.saturating_add(away);
        self.looked = now;
        self.lasted > borne
    }
}

#[cfg(test)]
mod tests {
    use super::Silence;
    use std::time::Duration;

    const BORNE: Duration = Duration::from_secs(4);

    #[test]
    fn silence_is_noticed_when_it_is_listened_to() {
        let mut silence = Silence::begin();
        let start = silence.looked;
        let after = |tenths: u64| start + Duration::from_millis(100 * tenths);
        assert!((1..=40).all(|tenths| !silence.is_longer_at(after(tenths), BORNE)));
        assert!(silence.is_longer_at(after(41), BORNE));
        silence.broken();
        assert!(!silence.is_longer_than(BORNE));
    }

    #[test]
    fn one_long_absence_is_no_silence_and_several_are() {
        let mut silence = Silence::begin();
        let start = silence.looked;
        let looks = (1..=5).map(|times| silence.is_longer_at(start + 100 * times * BORNE, BORNE));
        assert_eq!(looks.collect::<Vec<_>>(), [false, false, false, false, true]);
    }
}
