//! Reading and the small formats that several probes share.

use std::fmt;
use std::fs;
use std::path::Path;

/// The text of a file of `/proc` or `/sys`, without space around it; `None` if it cannot be read
/// or is empty.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n', '\t']).to_owned();
    (!text.is_empty()).then_some(text)
}

/// The names in a folder, sorted; none if it cannot be read.
pub(super) fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The value of the line `key: value`, of a file of such lines.
pub(super) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

/// How many are in a list of ranges such as `0-3,8`.
pub(super) fn count_ranges(list: &str) -> Option<usize> {
    let mut count = 0usize;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// A number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        if count >> shift > 0 {
            #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
            let value = count as f64 / (1u64 << shift) as f64;
            let decimals = usize::from(value.fract() >= 0.05 && value < 100.0);
            return format!("{value:.decimals$} {unit}");
        }
    }
    format!("{count} B")
}

/// Major and minor version of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KernelVersion(pub(super) u32, pub(super) u32);

impl KernelVersion {
    pub(super) fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    pub(super) fn read() -> Option<Self> {
        Self::parse(&read("/proc/sys/kernel/osrelease")?)
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A capability, by its bit (`capabilities(7)`).
#[derive(Clone, Copy, Debug)]
pub(super) enum Capability {
    IpcLock = 14,
    SysPtrace = 19,
}

/// What the kernel says of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    /// Processors that its threads may run on.
    pub(super) usable_cpus: Option<usize>,
    /// System calls go through a seccomp filter, as in most containers.
    pub(super) filtered: bool,
    capabilities: u64,
}

impl Process {
    pub(super) fn read() -> Self {
        let [status, uid_map] =
            ["/proc/self/status", "/proc/self/uid_map"].map(|path| read(path).unwrap_or_default());
        Self::parse(&status, &uid_map)
    }

    fn parse(status: &str, uid_map: &str) -> Self {
        // The limits asked about here are lifted for the first user namespace only, so that a
        // capability held inside another one counts for nothing.
        let first_namespace = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
        let capabilities =
            field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        Self {
            usable_cpus: field(status, "Cpus_allowed_list").and_then(count_ranges),
            filtered: field(status, "Seccomp") == Some("2"),
            capabilities: capabilities.filter(|_| first_namespace).unwrap_or(0),
        }
    }

    pub(super) fn can(self, capability: Capability) -> bool {
        self.capabilities >> (capability as u32) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tcat\nUmask:\t0022\nCapInh:\t0000000000000000\n\
        CapEff:\t0000000000084000\nSeccomp:\t2\nSeccomp_filters:\t1\nCpus_allowed:\tf\n\
        Cpus_allowed_list:\t0-2,5\n";

    #[test]
    fn ranges_are_counted_and_nonsense_is_refused() {
        assert_eq!(count_ranges("0"), Some(1));
        assert_eq!(count_ranges("0-1\n"), Some(2));
        assert_eq!(count_ranges("0-3,8,10-11"), Some(7));
        for bad in ["", "a", "3-1", "0-", "0-18446744073709551615", "1,,2"] {
            assert_eq!(count_ranges(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn bytes_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(8 << 20), "8 MiB");
        assert_eq!(bytes(24_684_092 << 10), "23.5 GiB");
        assert_eq!(bytes(251 << 30 | 1 << 29), "252 GiB");
        assert_eq!(bytes(u64::MAX), "16777216 TiB");
    }

    #[test]
    fn versions_of_distributions_parse_and_order() {
        assert_eq!(KernelVersion::parse("6.18.44-fc-v657"), Some(KernelVersion(6, 18)));
        assert_eq!(KernelVersion::parse("6.7-rc1"), Some(KernelVersion(6, 7)));
        assert_eq!(KernelVersion::parse("5.10.0-28-amd64\n"), Some(KernelVersion(5, 10)));
        assert_eq!(KernelVersion::parse(""), None);
        assert_eq!(KernelVersion::parse("six.seven"), None);
        assert!(KernelVersion(6, 18) > KernelVersion(6, 7));
        assert!(KernelVersion(5, 16) < KernelVersion(6, 1));
    }

    #[test]
    fn a_process_is_read_and_counts_capabilities_of_the_first_namespace_only() {
        let process = Process::parse(STATUS, "         0          0 4294967295");
        assert_eq!(process.usable_cpus, Some(4));
        assert!(process.filtered);
        assert!(process.can(Capability::IpcLock) && process.can(Capability::SysPtrace));
        let inside = Process::parse(STATUS, "         0     100000      65536");
        assert!(!inside.can(Capability::IpcLock) && !inside.can(Capability::SysPtrace));
        assert_eq!(Process::parse("", ""), Process::default());
        assert_eq!(
            Process::parse("CapEff:\tzz\nSeccomp:\nCpus_allowed_list", ""),
            Process::default()
        );
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        assert_eq!(field("Cpus_allowed:\tf\nCpus:\t 1 \n", "Cpus"), Some("1"));
        assert_eq!(field("Cpus:\n", "Cpus"), None);
        assert_eq!(field("no colon", "no colon"), None);
    }

    #[test]
    fn what_is_not_there_reads_as_nothing() {
        assert_eq!(read("/proc/no such file"), None);
        assert_eq!(read("/proc"), None);
        assert!(names("/proc/no such folder").is_empty());
    }
}
