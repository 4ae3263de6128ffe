//! What every rank has to be given alike: with different seeds or data each would train another
//! network, and the digest would be nobody's.

use std::fmt;

use pontoon::{
    Bound, Rank,
    world::{World, WorldError},
};

use super::{Given, Options, error::TrainError, model};

/// What was given to one rank otherwise than to rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unlike {
    rank: Rank,
    /// The option, with its value there.
    there: String,
    of_rank_0: String,
}

impl Unlike {
    /// An option that the ranks compared before they were connected.
    pub(super) fn of_option(rank: Rank, option: &str, there: &str, of_rank_0: &str) -> Self {
        let [there, of_rank_0] = [there, of_rank_0].map(|value| format!("--{option} {value}"));
        Self { rank, there, of_rank_0 }
    }
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, there, of_rank_0 } = self;
        write!(f, "rank {rank} has {there} and rank 0 {of_rank_0}: give all ranks the same")
    }
}

/// Shows all ranks what this one was given, and sees what they were.
///
/// # Errors
///
/// [`TrainError::Unlike`], the same in every rank; a rank is gone.
///
/// # Blocks
///
/// Until all ranks have come here, as long as `bound` allows.
pub(super) fn compare(
    world: &World,
    options: &Options,
    given: &Given,
    bound: Bound,
) -> Result<(), TrainError> {
    let own = lines(options, given);
    let all = world.job().all_gather(b"train/given", own.as_bytes(), bound);
    match unlike(&all.map_err(WorldError::from)?) {
        None => Ok(()),
        Some(unlike) => Err(TrainError::Unlike(unlike)),
    }
}

/// One line an option. What decides what others look like comes first: the seed splits the data.
fn lines(options: &Options, given: &Given) -> String {
    let Given { train, test, settings, .. } = given;
    let data: Vec<f32> = [&**train, test]
        .into_iter()
        .flat_map(|part| {
            part.features().iter().copied().chain(part.labels().iter().map(|&it| f32::from(it)))
        })
        .collect();
    [
        format!("version {}", env!("CARGO_PKG_VERSION")),
        format!("--seed {}", settings.seed),
        format!("--data of digest {}", model::digest(&data)),
        format!("--epochs {}", settings.epochs),
        format!("--batch {}", settings.batch),
        format!("--devices {}", options.devices),
        format!("--on-peer-death {}", options.ranks.on_peer_death()),
        format!("--params {}", options.ranks.params()),
    ]
    .join("\n")
}

/// The first difference of the first rank that has one.
fn unlike(all: &[Vec<u8>]) -> Option<Unlike> {
    let all: Vec<_> = all.iter().map(|lines| String::from_utf8_lossy(lines)).collect();
    let (of_rank_0, others) = all.split_first()?;
    (1..).map(Rank).zip(others).find_map(|(rank, there)| {
        let mut pairs = there.lines().zip(of_rank_0.lines());
        let (there, of_rank_0) = pairs.find(|(there, of_rank_0)| there != of_rank_0)?;
        Some(Unlike { rank, there: there.to_owned(), of_rank_0: of_rank_0.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told_with_both_ranks() {
        let of = |text: &str| text.as_bytes().to_vec();
        let same = of("--seed 1\n--batch 64");
        assert_eq!(unlike(&[same.clone(), same.clone()]), None);
        assert_eq!(unlike(std::slice::from_ref(&same)), None);
        let all = [same.clone(), same, of("--seed 1\n--batch 7"), of("--seed 2\n--batch 64")];
        let said = unlike(&all).map(|unlike| unlike.to_string());
        let wanted = "rank 2 has --batch 7 and rank 0 --batch 64: give all ranks the same";
        assert_eq!(said.as_deref(), Some(wanted));
    }
}
