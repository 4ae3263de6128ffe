//! Sizes as options: a number, and perhaps a unit.

use std::{
    error, fmt,
    num::{IntErrorKind, ParseIntError},
};

use pontoon::hal::paging::PAGE;

/// Not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSize {
    /// It is not a number, perhaps with a unit.
    Form,
    /// There are no numbers as large.
    TooLarge,
}

impl fmt::Display for NoSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str(
                "expected a number, perhaps with one of the units K, M, G, T, such as 64M",
            ),
            Self::TooLarge => write!(f, "it is too large: {} is the most", usize::MAX),
        }
    }
}

impl error::Error for NoSize {}

/// So many bytes; `64M` are 64 MiB.
pub(crate) fn bytes(text: &str) -> Result<usize, NoSize> {
    let (number, unit) = parts(text)?;
    number.checked_mul(unit.unwrap_or(1)).ok_or(NoSize::TooLarge)
}

/// So many pages: as a number of them, or as bytes with a unit.
pub(crate) fn pages(text: &str) -> Result<usize, NoSize> {
    match parts(text)? {
        (pages, None) => Ok(pages),
        (number, Some(unit)) => Ok(number.checked_mul(unit).ok_or(NoSize::TooLarge)? / PAGE),
    }
}

fn parts(text: &str) -> Result<(usize, Option<usize>), NoSize> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text[..text.len() - unit.len()].parse();
    let number = number.map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => NoSize::TooLarge,
        _ => NoSize::Form,
    });
    let shift = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" if unit.is_empty() => return Ok((number?, None)),
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(NoSize::Form),
    };
    Ok((number?, Some(1 << shift)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        let cases = [("0", 0), ("7", 7), ("4K", 4096), ("64MiB", 64 << 20), ("3G", 3 << 30)];
        for (text, size) in cases {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        assert_eq!((pages("64"), pages("64K"), pages("1M")), (Ok(64), Ok(16), Ok(256)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", "-1", "+1", "1.5M", "1 M", "1B", "iB", "1iB", "0x10"] {
            assert_eq!(bytes(text), Err(NoSize::Form), "{text:?}");
            assert_eq!(pages(text), Err(NoSize::Form), "{text:?}");
        }
        for text in ["18446744073709551616", "16777216T", "99999999999999999999G"] {
            assert_eq!(bytes(text), Err(NoSize::TooLarge), "{text:?}");
            assert_eq!(pages(text), Err(NoSize::TooLarge), "{text:?}");
        }
        assert_eq!(bytes("18446744073709551615"), Ok(usize::MAX));
        let told = NoSize::TooLarge.to_string();
        assert_eq!(told, "it is too large: 18446744073709551615 is the most");
    }
}
