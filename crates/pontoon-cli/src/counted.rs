//! Numbers of things, in words and from them.

/// `1 rank`, `2 ranks`.
pub(crate) fn counted(count: impl Into<u64>, thing: &str) -> String {
    let count = count.into();
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A whole number from `least` on.
///
/// # Errors
///
/// What was expected.
pub(crate) fn whole(text: &str, least: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("expected a whole number from {least} to {}", u64::MAX))
}
