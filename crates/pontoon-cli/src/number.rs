//! Numbers that are given on the command line.

use std::{fmt::Display, ops::RangeInclusive};

use crate::voice::shortened;

/// A whole number from `least` on.
///
/// # Errors
///
/// What was expected.
pub(crate) fn whole(text: &str, least: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("expected a whole number from {least} to {}", u64::MAX))
}

/// Takes whole numbers of a range. However long a number is, it is refused as one that is not in it.
pub(crate) fn within<T: Copy + Display + TryFrom<u64> + PartialOrd>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone
where
    // Not the type of a plain literal, which no option has.
    u64: From<T>,
{
    move |text| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (least, most) = (range.start(), range.end());
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(format!("expected a whole number from {least} to {most}"));
        }
        let number = text.parse().ok().and_then(|number: u64| T::try_from(number).ok());
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("{} is not in {least}..={most}", shortened(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_all_types_is_out_of_range_as_any_other() {
        let few = within(1..=64_u32);
        assert_eq!((few("1"), few("64")), (Ok(1), Ok(64)));
        for text in ["0", "65", "4294967296", "18446744073709551616", "-1"] {
            assert_eq!(few(text), Err(format!("{text} is not in 1..=64")));
        }
        for text in ["", "-", "+-1", "1.0", "1K", "0x1", "one"] {
            assert_eq!(few(text), Err("expected a whole number from 1 to 64".into()), "{text:?}");
        }
    }
}
