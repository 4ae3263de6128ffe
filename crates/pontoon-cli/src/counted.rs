//! Numbers of things, in words.

/// `1 rank`, `2 ranks`.
pub(crate) fn counted(count: impl Into<u64>, thing: &str) -> String {
    let count = count.into();
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
