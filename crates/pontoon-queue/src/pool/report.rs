//! What a pool has done, and which of its fences nobody has completed.

use std::{fmt, panic::Location};

use pontoon_signal::{Host, Nanos, Os, Seq, SlotId};

use super::{FencePool, Standing};

/// What a pool has done so far. Each fence counts once: `created` is the sum of `completed`,
/// `failed`, `dropped` and `outstanding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// Fences made.
    pub created: u64,
    /// Fences reached.
    pub completed: u64,
    /// Fences whose work ended with an error, or that somebody else ended.
    pub failed: u64,
    /// Fences whose completer was dropped.
    pub dropped: u64,
    /// Fences that neither were reached nor failed yet.
    pub outstanding: u64,
    /// The most that were outstanding at a time.
    pub high_water: u64,
    /// Lines that can be used, in use or free.
    pub lines: u64,
    /// Lines that a failure has used up.
    pub retired: u64,
    /// How often the pool allocated lines; between two growths it allocates for new labels only.
    pub growths: u64,
    /// How long ago the pool was made.
    pub age: Nanos,
}

impl PoolReport {
    /// Fences made a second, over the pool's age; of two reports, the difference of `created` over
    /// that of `age` is the rate between them.
    pub fn created_per_second(&self) -> f64 {
        self.created as f64 * 1e9 / self.age.0.max(1) as f64
    }
}

impl fmt::Display for PoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { created, completed, failed, dropped, outstanding, .. } = self;
        let Self { high_water, lines, retired, growths, age, .. } = self;
        write!(
            f,
            "{created} fences in {age} ({:.0} a second): {completed} completed, {failed} failed, \
             {dropped} dropped, {outstanding} outstanding (at most {high_water}); {lines} lines \
             of {growths} growths, {retired} retired",
            self.created_per_second()
        )
    }
}

/// A fence that is not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// What it is for.
    pub label: &'static str,
    /// Where it was made.
    pub location: &'static Location<'static>,
    /// How long ago.
    pub age: Nanos,
    /// The slot that it waits for.
    pub slot: SlotId,
    /// Which use of that slot it is: the fence's target.
    pub generation: Seq,
}

/// The fences that are not completed, by what they are for and where they were made, the place
/// with the most first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakReport {
    /// The places.
    pub sites: Vec<LeakSite>,
}

/// The fences of one place that are not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakSite {
    /// What they are for.
    pub label: &'static str,
    /// Where they were made.
    pub location: &'static Location<'static>,
    /// The fences, the oldest first; at least one.
    pub fences: Vec<Outstanding>,
}

/// Fences that are shown of one place.
const SHOWN: usize = 4;

impl FencePool {
    /// What the pool has done so far. It looks at every line.
    pub fn report(&self) -> PoolReport {
        let counts = &self.counts;
        let (mut failed, mut dropped, mut outstanding) = (counts.failed, counts.dropped, 0);
        for (_, _, standing) in self.growths.iter().flat_map(|growth| growth.uses()) {
            match standing {
                Standing::Completed => {}
                Standing::Failed => failed += 1,
                Standing::Dropped => dropped += 1,
                Standing::Outstanding => outstanding += 1,
            }
        }
        let (mut lines, mut retired) = (0, counts.retired);
        for growth in &self.growths {
            let usable = growth.usable();
            retired += u64::from(growth.lines.lines() - usable);
            lines += u64::from(usable);
        }
        PoolReport {
            created: counts.created,
            completed: counts.created - failed - dropped - outstanding,
            failed,
            dropped,
            outstanding,
            high_water: counts.high_water,
            lines,
            retired,
            growths: counts.growths,
            age: Os.now().since(self.made),
        }
    }

    /// The fences that are not completed, in the order of their slots. It looks at every line.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> {
        let now = Os.now();
        let uses = self.growths.iter().flat_map(|growth| growth.uses());
        uses.filter(|(_, _, standing)| *standing == Standing::Outstanding).map(
            move |(slot, last, _)| {
                let site = self.sites.site(last.site);
                let (label, location, age) = (site.label, site.location, now.since(last.created));
                Outstanding { label, location, age, slot, generation: last.target }
            },
        )
    }

    /// The fences that are not completed, by where they were made. It looks at every line.
    pub fn leaks(&self) -> LeakReport {
        let mut fences: Vec<_> = self.outstanding().collect();
        // By the text: one place may be in the pool's list under several addresses.
        let place = |fence: &Outstanding| (fence.location, fence.label);
        fences.sort_by(|a, b| place(a).cmp(&place(b)).then(b.age.cmp(&a.age)));
        let mut sites: Vec<_> = fences
            .chunk_by(|a, b| place(a) == place(b))
            .map(|fences| {
                let Outstanding { label, location, .. } = fences[0];
                LeakSite { label, location, fences: fences.to_vec() }
            })
            .collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.fences.len()));
        LeakReport { sites }
    }
}

impl LeakReport {
    /// How many fences are not completed.
    pub fn count(&self) -> u64 {
        self.sites.iter().map(|site| site.fences.len() as u64).sum()
    }
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (are, places) = match (self.count(), self.sites.len()) {
            (0, _) => return f.write_str("every fence is completed"),
            (1, _) => ("1 fence is".to_owned(), "1 place".to_owned()),
            (count, 1) => (format!("{count} fences are"), "1 place".to_owned()),
            (count, places) => (format!("{count} fences are"), format!("{places} places")),
        };
        write!(f, "{are} not completed, made at {places}:")?;
        for LeakSite { label, location, fences } in &self.sites {
            write!(f, "\n  {} x \"{label}\" at {location}", fences.len())?;
            for Outstanding { age, slot, generation, .. } in fences.iter().take(SHOWN) {
                write!(f, "\n    {slot} generation {generation}, made {age} ago")?;
            }
            if let more @ 1.. = fences.len().saturating_sub(SHOWN) {
                write!(f, "\n    and {more} younger")?;
            }
        }
        Ok(())
    }
}
