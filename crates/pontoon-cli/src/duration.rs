//! Times as options.

use std::time::Duration;

/// The longest bound that makes sense; sums and multiples of it stay far from overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A bound such as `500ms` or `2s`: a number and a unit, above zero.
pub(crate) fn bound(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| "a time is a number and a unit, such as 500ms or 2s".to_owned())?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err("a time needs one of the units ns, us, ms, s, min".to_owned()),
    };
    let time = Duration::try_from_secs_f64(number * seconds)
        .map_err(|_| "that time is out of range".to_owned())?;
    if time.is_zero() {
        return Err("a bound of zero would never wait".to_owned());
    }
    if time > LONGEST {
        return Err("a bound may be at most a day".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::bound;
    use std::time::Duration;

    #[test]
    fn units_are_understood() {
        assert_eq!(bound("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(bound("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(bound("1.5min"), Ok(Duration::from_secs(90)));
        assert_eq!(bound("20us"), Ok(Duration::from_micros(20)));
    }

    #[test]
    fn nonsense_and_zero_are_refused() {
        for text in [
            "",
            "2",
            "s",
            "-1s",
            "1e9s",
            "0s",
            "0ms",
            "1.2.3s",
            "inf",
            "25000min",
            "18446744073709551615s",
            "99999999999999999999s",
            "2 s",
        ] {
            assert!(bound(text).is_err(), "{text:?} passed");
        }
    }
}
