//! Which dependency a program lacks, found by running it again and again.

use std::fmt;

use crate::EdgeName;

/// What a bisection found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bisection {
    /// What is missing.
    pub verdict: Verdict,
    /// How often the job was run.
    pub runs: u32,
}

/// What a program lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// These edges: with them the result is right, and with one less it is wrong. One, if one alone
    /// mends it.
    Missing(Vec<EdgeName>),
    /// No edge: the result is right without any.
    Nothing,
    /// Not an order of these: the result is wrong with all of them.
    NotTheseEdges,
}

impl Bisection {
    /// The missing edges; none if that is not what is wrong.
    pub fn edges(&self) -> &[EdgeName] {
        match &self.verdict {
            Verdict::Missing(edges) => edges,
            _ => &[],
        }
    }
}

impl fmt::Display for Bisection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Missing(edges) => {
                f.write_str("missing: ")?;
                for (at, edge) in edges.iter().enumerate() {
                    write!(f, "{}{edge}", if at == 0 { "" } else { ", " })?;
                }
            }
            Verdict::Nothing => f.write_str("nothing is missing: the result is right as it is")?,
            Verdict::NotTheseEdges => {
                f.write_str("not an ordering of these: the result is wrong with all of the edges")?;
            }
        }
        write!(f, "; {} run{}", self.runs, if self.runs == 1 { "" } else { "s" })
    }
}

/// Finds which of `candidates` a job lacks. `run` runs it with the edges it is given
/// [added](crate::Session::with_added_edges) and says whether the result is right; that has to be
/// the same each time. Candidates are the edges that a session
/// [observed](crate::Session::observed) when it derived them.
///
/// One edge of n is found with at most ⌈log₂ n⌉ + 3 runs. If no single one mends the job, the edges
/// found are fewest in the sense that none of them can be left out, by the minimising delta
/// debugging of Zeller and Hildebrandt ("Simplifying and isolating failure-inducing input", IEEE
/// Transactions on Software Engineering 28(2), 2002), with at most in the order of n² runs.
///
/// ```
/// use pontoon_queue::{EdgeName, Site, bisect};
///
/// let site = |label| Site { label, queue: None, device: None };
/// let names = ["load", "copy", "normalise", "store"];
/// let edges: Vec<_> = names
///     .windows(2)
///     .map(|pair| EdgeName { earlier: site(pair[0]), later: site(pair[1]) })
///     .collect();
/// let lacking = edges[1].clone();
/// let found = bisect(&edges, |added| Ok::<_, ()>(added.contains(&lacking)))?;
/// assert!(found.to_string().starts_with("missing: copy (host) -> normalise (host); "));
/// # Ok::<(), ()>(())
/// ```
///
/// # Errors
///
/// The first error of `run`.
pub fn bisect<E>(
    candidates: &[EdgeName],
    run: impl FnMut(&[EdgeName]) -> Result<bool, E>,
) -> Result<Bisection, E> {
    let mut job = Job { run, runs: 0 };
    let verdict = job.verdict(candidates)?;
    Ok(Bisection { verdict, runs: job.runs })
}

/// The job, and how often it ran.
struct Job<R> {
    run: R,
    runs: u32,
}

impl<E, R: FnMut(&[EdgeName]) -> Result<bool, E>> Job<R> {
    fn is_right(&mut self, edges: &[EdgeName]) -> Result<bool, E> {
        self.runs += 1;
        (self.run)(edges)
    }

    fn verdict(&mut self, candidates: &[EdgeName]) -> Result<Verdict, E> {
        if self.is_right(&[])? {
            return Ok(Verdict::Nothing);
        }
        if candidates.is_empty() || !self.is_right(candidates)? {
            return Ok(Verdict::NotTheseEdges);
        }
        let one = self.halve(candidates)?;
        if self.is_right(one)? {
            return Ok(Verdict::Missing(one.to_vec()));
        }
        self.minimise(candidates.to_vec()).map(Verdict::Missing)
    }

    /// The edge that is missing, if it is one.
    fn halve<'e>(&mut self, mut among: &'e [EdgeName]) -> Result<&'e [EdgeName], E> {
        while among.len() > 1 {
            let (first, second) = among.split_at(among.len() / 2);
            among = if self.is_right(first)? { first } else { second };
        }
        Ok(among)
    }

    /// Of edges with which the result is right, some of which none can be left out: ddmin, where a
    /// test fails if the result is right.
    fn minimise(&mut self, mut edges: Vec<EdgeName>) -> Result<Vec<EdgeName>, E> {
        let mut parts = 2;
        while edges.len() > 1 {
            match self.smaller(&edges, parts)? {
                Some((fewer, next)) => (edges, parts) = (fewer, next),
                None if parts >= edges.len() => break,
                None => parts = (2 * parts).min(edges.len()),
            }
        }
        Ok(edges)
    }

    /// One of `parts` parts with which the result is right, or all but one of them, and into how
    /// many parts that is to be cut.
    fn smaller(
        &mut self,
        edges: &[EdgeName],
        parts: usize,
    ) -> Result<Option<(Vec<EdgeName>, usize)>, E> {
        let size = edges.len().div_ceil(parts);
        for part in edges.chunks(size) {
            if self.is_right(part)? {
                return Ok(Some((part.to_vec(), 2)));
            }
        }
        // Of two parts, each is all but the other.
        let starts = (0..edges.len()).step_by(size).filter(|_| parts > 2);
        for start in starts {
            let end = edges.len().min(start + size);
            let rest = [&edges[..start], &edges[end..]].concat();
            if self.is_right(&rest)? {
                return Ok(Some((rest, (parts - 1).max(2))));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Site;

    fn edges(count: u32) -> Vec<EdgeName> {
        let site = |number| Site {
            label: "work",
            queue: Some("queue".into()),
            device: Some(pontoon_signal::Rank(number)),
        };
        (0..count).map(|at| EdgeName { earlier: site(at), later: site(at + 1) }).collect()
    }

    fn find(candidates: &[EdgeName], hidden: &[EdgeName]) -> Bisection {
        let run = |added: &[EdgeName]| Ok::<_, ()>(hidden.iter().all(|it| added.contains(it)));
        bisect(candidates, run).unwrap()
    }

    #[test]
    fn what_is_not_a_missing_edge_is_told() {
        let all = edges(5);
        assert_eq!(find(&all, &[]), Bisection { verdict: Verdict::Nothing, runs: 1 });
        let other = find(&all[..4], &all[4..]);
        assert_eq!(other, Bisection { verdict: Verdict::NotTheseEdges, runs: 2 });
        let nothing = "nothing is missing: the result is right as it is; 1 run";
        assert_eq!(find(&all, &[]).to_string(), nothing);
        assert_eq!(bisect(&all, |_| Err("broken")), Err("broken"));
    }

    #[test]
    fn the_edge_is_told_with_both_ends() {
        let found = find(&edges(1), &edges(1)).to_string();
        let told = "missing: work (device 0 queue queue) -> work (device 1 queue queue); 3 runs";
        assert_eq!(found, told);
    }

    proptest! {
        #[test]
        fn one_missing_edge_is_found_in_a_logarithm_of_runs(count in 1_u32..200, at: prop::sample::Index) {
            let all = edges(count);
            let hidden = &all[at.index(all.len())..][..1];
            let found = find(&all, hidden);
            prop_assert_eq!(found.edges(), hidden);
            prop_assert!(found.runs <= count.next_power_of_two().ilog2() + 3, "{} runs", found.runs);
        }

        #[test]
        fn several_missing_edges_are_all_found(
            count in 2_u32..40,
            picked in prop::collection::vec(any::<prop::sample::Index>(), 2..6),
        ) {
            let all = edges(count);
            let mut hidden: Vec<_> = picked.iter().map(|at| all[at.index(all.len())].clone()).collect();
            hidden.sort();
            hidden.dedup();
            let found = find(&all, &hidden);
            prop_assert_eq!(found.edges(), &hidden[..]);
            prop_assert!(found.runs <= count * count + 3 * count + 20, "{} runs", found.runs);
        }
    }
}
