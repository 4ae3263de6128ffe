//! What memory this process takes, with the kernel's tables for it.

use std::fs;

use crate::bench::BenchError;

/// Where the kernel says it, and what is counted: own pages, shared ones, and page tables.
const STATUS: &str = "/proc/self/status";
const COUNTED: [&str; 3] = ["RssAnon:", "RssShmem:", "VmPTE:"];

/// Bytes.
pub(super) fn taken() -> Result<u64, BenchError> {
    let text = fs::read_to_string(STATUS);
    let text = text.map_err(|error| BenchError::System { call: STATUS, error })?;
    counted(&text).ok_or(BenchError::OutOfStep)
}

/// `None` if one of the lines is missing.
fn counted(text: &str) -> Option<u64> {
    let of = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    };
    COUNTED.into_iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn pages_and_their_tables_are_counted() {
        let text =
            "VmRSS:\t 9 kB\nRssAnon:\t 100 kB\nRssFile:\t 7 kB\nRssShmem: 20 kB\nVmPTE:\t3 kB\n";
        assert_eq!(counted(text), Some(123 << 10));
        assert_eq!(counted("RssAnon: 1 kB\nVmPTE: 1 kB\n"), None);
    }
}
