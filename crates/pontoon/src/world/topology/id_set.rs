//! Sets of processors and of NUMA nodes, as the kernel writes them.

use std::{fmt, str::FromStr};

/// A set of numbers of processors, NUMA nodes or ranks, in the kernel's list form: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdSet {
    /// First and last of each run: ascending, and with a gap between two.
    runs: Vec<(u32, u32)>,
}

/// Not a list of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoIdSet;

impl fmt::Display for NoIdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected ascending numbers and ranges of them, such as 0-3,8")
    }
}

impl std::error::Error for NoIdSet {}

impl IdSet {
    /// Those of `ids`, which ascend.
    pub(super) fn of(ids: impl Iterator<Item = u32>) -> Self {
        let mut set = Self::default();
        for id in ids {
            set.add((id, id));
        }
        set
    }

    fn add(&mut self, (first, last): (u32, u32)) {
        match self.runs.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
            _ => self.runs.push((first, last)),
        }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many are in it.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether `id` is in it.
    pub fn contains(&self, id: u32) -> bool {
        self.runs.iter().any(|(first, last)| (*first..=*last).contains(&id))
    }

    /// The one that is in it, if it is the only one.
    pub fn single(&self) -> Option<u32> {
        match self.runs[..] {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    /// All that are in it, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Whether any is in both.
    pub fn meets(&self, other: &Self) -> bool {
        let meet = |(a, b): &(u32, u32), (c, d): &(u32, u32)| a <= d && c <= b;
        self.runs.iter().any(|run| other.runs.iter().any(|its| meet(run, its)))
    }
}

impl FromStr for IdSet {
    type Err = NoIdSet;

    fn from_str(text: &str) -> Result<Self, NoIdSet> {
        let mut set = Self::default();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        for run in text.split(',') {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let number = |digits: &str| {
                let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                digits.parse::<u32>().ok().filter(|_| plain).ok_or(NoIdSet)
            };
            let (first, last) = (number(first)?, number(last)?);
            let ascends = set.runs.last().is_none_or(|(_, end)| *end < first);
            if last < first || !ascends {
                return Err(NoIdSet);
            }
            set.add((first, last));
        }
        Ok(set)
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.runs.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> IdSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_list_reads_as_it_is_written() {
        for text in ["", "0", "0-3,8", "0-1,3-4,4294967295"] {
            assert_eq!(set(text).to_string(), text);
        }
        assert_eq!(set(" 0,1,2\n").to_string(), "0-2");
        assert_eq!(IdSet::of([0, 1, 4].into_iter()), set("0-1,4"));
        assert_eq!(set("0-3,8").iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["a", "1-", "-1", "3-1", "1,1", "2,1", "1,,2", "4294967296", "+1", "0x1"] {
            assert_eq!(text.parse::<IdSet>(), Err(NoIdSet), "{text:?}");
        }
    }

    #[test]
    fn sets_are_counted_and_compared() {
        assert_eq!((set("0-3,8").count(), set("").count()), (5, 0));
        assert_eq!(set("0-4294967295").count(), 1 << 32);
        assert_eq!(
            (set("7").single(), set("7-8").single(), set("").single()),
            (Some(7), None, None)
        );
        assert!(set("0-3,8").contains(8) && !set("0-3,8").contains(4));
        assert!(set("0-3,8").meets(&set("5-9")) && !set("0-3,8").meets(&set("4-7,9")));
        assert!(!set("").meets(&set("0")));
    }
}
