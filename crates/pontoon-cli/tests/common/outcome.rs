//! What may come of a run in which ranks die, or are cut off.

use super::Ended;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All had ended before anybody was gone.
    TooLate,
    /// The others were done all the same.
    Complete,
    /// The others ended for it.
    Ended,
    /// The others went on without it.
    WentOn,
}

/// Who was gone, as the others see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone<'a> {
    pub(crate) ranks: &'a [u32],
    /// Whether the others were to go on.
    pub(crate) goes_on: bool,
}

/// How an error begins that none of the others could have gone on after.
const EARLY: &str = "before the first step, for which all ranks are needed, ";

/// Judges how the ranks of a run ended. `digest` is that of a run in which nobody is gone.
#[track_caller]
pub(crate) fn judge(what: &str, ended: &[Ended], gone: &Gone<'_>, digest: &str) -> Outcome {
    let is_gone = |rank: u32| gone.ranks.contains(&rank);
    let others = (0..).zip(ended).filter(|(rank, _)| !is_gone(*rank));
    let failed: Vec<_> = others.filter(|(_, ended)| !ended.status.success()).collect();
    for (rank, ended) in &failed {
        let error = ended.error();
        let is_named = gone.ranks.iter().any(|victim| names(error, *rank, *victim));
        assert!(is_named, "{what}: {gone:?} and rank {rank} says {error}");
        // Whatever else ends it is that rank 0 is gone.
        let is_early = matches!(ended.status.code(), Some(2)) || error.contains(EARLY);
        assert!(is_early || !gone.goes_on || is_gone(0), "{what}: {gone:?}: {ended:?}");
    }
    let mut lost = false;
    if ended[0].status.success() && !is_gone(0) {
        let run = ended[0].json();
        assert_eq!(run["weights_digest"], run["reference_digest"], "{what}: {run}");
        lost = !run["lost_ranks"].is_null();
        assert!(!lost || gone.goes_on, "{what}: {gone:?}: {run}");
        assert_eq!(lost, run["weights_digest"] != digest, "{what}: {run}");
    }
    match (gone.ranks.is_empty(), failed.is_empty()) {
        (true, _) => Outcome::TooLate,
        (false, false) => Outcome::Ended,
        (false, true) if lost => Outcome::WentOn,
        (false, true) => Outcome::Complete,
    }
}

/// Whether the error of `rank` says that `victim` is gone.
pub(crate) fn names(error: &str, rank: u32, victim: u32) -> bool {
    let Some(text) = error.strip_prefix(&format!("rank {rank}: error: ")) else { return false };
    let text = text.strip_prefix(EARLY).unwrap_or(text);
    let of_rank_0 = [
        "rank 0, which keeps the job's store, is dead: ".to_owned(),
        "rank 0 is dead before the job began: ".to_owned(),
        format!("rank {rank} called rank 0 at "),
    ];
    text.starts_with(&format!("rank {victim} is dead: "))
        || absent(text).any(|absent| absent == victim.to_string())
        || (victim == 0 && of_rank_0.iter().any(|start| text.starts_with(start)))
}

/// The ranks that an error lists as absent.
fn absent(text: &str) -> impl Iterator<Item = &str> {
    let of = |start| text.split_once(start).map(|(_, list)| list);
    let list = of(": absent is rank ").or_else(|| of(": absent are ranks "));
    list.into_iter().flat_map(|list| list.split(", "))
}

/// How often each came, for people.
pub(crate) fn told(outcomes: &[Outcome]) -> String {
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let [late, complete, ended, went_on] =
        [Outcome::TooLate, Outcome::Complete, Outcome::Ended, Outcome::WentOn].map(count);
    let hit = outcomes.len() - late;
    format!(
        "{hit} hit while they ran; {ended} ended by name, {went_on} went on, {complete} were complete"
    )
}
