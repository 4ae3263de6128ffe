//! Numbers that are given on the command line.

/// A whole number from `least` on.
///
/// # Errors
///
/// What was expected.
pub(crate) fn whole(text: &str, least: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("expected a whole number from {least} to {}", u64::MAX))
}
