//! Times as options: a number and a unit, such as `500ms` or `2s`.

use std::{error, fmt, time::Duration};

/// The longest bound that makes sense; sums and multiples of it stay far from overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest pace that can be measured: beyond, a wait is a sleep and a wake, whatever the pace.
const SLOWEST: Duration = Duration::from_millis(100);
/// The shortest silence that says anything: words come every tenth of it, and not faster than every
/// millisecond.
const SHORTEST: Duration = Duration::from_millis(10);

/// Why a time on the command line was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DurationError {
    /// It is not a number and a unit.
    Form,
    /// It is nothing, or so little that it rounds to nothing.
    Zero,
    /// It is more than this.
    Longer(Duration),
    /// It is less than this.
    Shorter(Duration),
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str(
                "expected a number and one of the units ns, us, ms, s, min, such as 500ms",
            ),
            Self::Zero => f.write_str("expected more than zero"),
            Self::Longer(most) if *most == LONGEST => f.write_str("expected at most a day"),
            Self::Longer(most) => write!(f, "expected at most {most:?}"),
            Self::Shorter(least) => write!(f, "expected at least {least:?}"),
        }
    }
}

impl error::Error for DurationError {}

/// The bound of a wait: above zero, at most a day.
pub(crate) fn bound(text: &str) -> Result<Duration, DurationError> {
    match at_most(text, LONGEST)? {
        Duration::ZERO => Err(DurationError::Zero),
        time => Ok(time),
    }
}

/// After how long a silence somebody counts as lost: at least 10 ms, at most a day.
pub(crate) fn silence(text: &str) -> Result<Duration, DurationError> {
    match bound(text)? {
        time if time < SHORTEST => Err(DurationError::Shorter(SHORTEST)),
        time => Ok(time),
    }
}

/// How long a producer works: at most 100 ms, `0` for not at all.
pub(crate) fn pace(text: &str) -> Result<Duration, DurationError> {
    if text == "0" { Ok(Duration::ZERO) } else { at_most(text, SLOWEST) }
}

fn at_most(text: &str, most: Duration) -> Result<Duration, DurationError> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text[..text.len() - unit.len()].parse().map_err(|_| DurationError::Form)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(DurationError::Form),
    };
    // A number is not negative here, so what does not fit is too long.
    let time = Duration::try_from_secs_f64(number * seconds);
    time.ok().filter(|&time| time <= most).ok_or(DurationError::Longer(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        for (text, ns) in [
            ("7ns", 7),
            ("20us", 20_000),
            ("500ms", 500_000_000),
            ("2s", 2_000_000_000),
            ("1.5min", 90_000_000_000),
        ] {
            assert_eq!(bound(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        assert_eq!(bound("1440min"), Ok(LONGEST));
        assert_eq!(pace("0"), Ok(Duration::ZERO));
        assert_eq!(pace("0ms"), Ok(Duration::ZERO));
        assert_eq!(pace("100ms"), Ok(SLOWEST));
    }

    #[test]
    fn nonsense_is_refused_alike() {
        for text in ["", "2", "s", "-1s", "1.2.3s", "1e9s", "inf", "nans", "2 s", "1h", "."] {
            assert_eq!(bound(text), Err(DurationError::Form), "{text:?}");
            assert_eq!(pace(text), Err(DurationError::Form), "{text:?}");
        }
    }

    #[test]
    fn each_option_has_its_range() {
        for text in ["0s", "0.0ms", "0.1ns"] {
            assert_eq!(bound(text), Err(DurationError::Zero), "{text:?}");
        }
        assert_eq!(bound("0"), Err(DurationError::Form));
        for text in ["86401s", "18446744073709551615s", "99999999999999999999999s"] {
            assert_eq!(bound(text), Err(DurationError::Longer(LONGEST)), "{text:?}");
            assert_eq!(pace(text), Err(DurationError::Longer(SLOWEST)), "{text:?}");
        }
        assert_eq!(pace("101ms"), Err(DurationError::Longer(SLOWEST)));
        assert_eq!(silence("9.9ms"), Err(DurationError::Shorter(SHORTEST)));
        assert_eq!(silence("10ms"), Ok(SHORTEST));
        assert_eq!(DurationError::Shorter(SHORTEST).to_string(), "expected at least 10ms");
        assert_eq!(DurationError::Longer(SLOWEST).to_string(), "expected at most 100ms");
    }
}
