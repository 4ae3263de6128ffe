//! Why the variables make no sense.

use std::{ffi::OsStr, fmt, path::PathBuf};

use super::{Launcher, WORLD_MAX};
use crate::TokenError;

/// Why the variables make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvError {
    /// One of a pair is not set.
    Missing {
        /// The one that is not.
        name: &'static str,
        /// The one that is.
        set: &'static str,
    },
    /// A value that cannot be what the variable is for.
    Value {
        /// The variable.
        name: &'static str,
        /// Its value, or the beginning of it.
        value: Box<str>,
        /// What it should be.
        expected: &'static str,
    },
    /// No ranks, or too many.
    World {
        /// The variable.
        name: &'static str,
        /// Its value.
        world: u32,
    },
    /// A rank that the job, or the machine, does not have.
    RankBeyondWorld {
        /// The variable of the rank and that of the number of ranks.
        names: [&'static str; 2],
        /// The rank.
        rank: u32,
        /// How many there are.
        world: u32,
    },
    /// Where rank 0 is, is not said.
    NoMaster {
        /// The variable that would say it.
        name: &'static str,
        /// Who set the others.
        launcher: Launcher,
    },
    /// There is no token, and a port that anybody can connect to would be open to all.
    NoToken,
    /// What a variable gives is no token. Its value is not shown.
    Token {
        /// The variable.
        name: &'static str,
        /// Why.
        error: TokenError,
    },
    /// The file that a variable names has no token.
    TokenFile {
        /// The variable.
        name: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: TokenError,
    },
    /// The variable that names the token's file holds a token. It is not shown.
    TokenAsFile {
        /// The variable.
        name: &'static str,
    },
    /// Slurm's variables are of no step.
    NoStep {
        /// One that is set.
        set: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
}

/// As much of a wrong value as a message shows.
const SHOWN: usize = 64;

impl EnvError {
    pub(super) fn value(name: &'static str, value: &OsStr, expected: &'static str) -> Self {
        let text = value.to_string_lossy();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self::Value { name, value: shown.into(), expected }
    }
}

impl fmt::Display for EnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { name, set } => {
                write!(f, "{set} is set and {name} is not: set both, or neither")
            }
            Self::Value { name, value, expected } => {
                write!(f, "{name} is {value:?}; expected is {expected}")
            }
            Self::World { name, world } => {
                write!(f, "{name} is {world}; a job has 1 to {WORLD_MAX} ranks")
            }
            Self::RankBeyondWorld { names: [rank_name, world_name], rank, world } => write!(
                f,
                "{rank_name} is {rank} and {world_name} is {world}; ranks are 0 to {}",
                world.saturating_sub(1)
            ),
            Self::NoMaster { name, launcher } => {
                write!(f, "{name} is not set, so nothing says where rank 0 is")?;
                match launcher {
                    Launcher::OpenMpi => write!(f, ": pass it with `mpirun -x {name}=...`"),
                    _ => f.write_str(": set it to the same in all ranks"),
                }
            }
            Self::NoToken => f.write_str(
                "neither PONTOON_TOKEN nor PONTOON_TOKEN_FILE is set, and without a token anybody \
                 could join the job: put `openssl rand -hex 32` into a file of mode 0600 that all \
                 ranks can read and name it in PONTOON_TOKEN_FILE, or start the job by `pontoon \
                 launch`",
            ),
            Self::Token { name, error } => write!(f, "{name}: {error}"),
            Self::TokenFile { name, path, error } => {
                write!(f, "{name} is {}: {error}", path.display())
            }
            Self::TokenAsFile { name } => write!(
                f,
                "{name} holds a token, and should hold the path of the file that has it: give the \
                 token by PONTOON_TOKEN"
            ),
            Self::NoStep { set, missing } => write!(
                f,
                "{set} is set and {missing} is not, so these variables are of no step of Slurm's: \
                 start the ranks by `srun`, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
            ),
        }
    }
}

impl std::error::Error for EnvError {}
