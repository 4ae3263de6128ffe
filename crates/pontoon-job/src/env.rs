//! Who this process is, by the variables that launchers set.

mod error;
mod slurm;

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::Path,
};

use pontoon_signal::Rank;

use crate::{Token, membership::EPOCH_MAX};
pub use error::EnvError;

/// The most ranks a job can have.
pub const WORLD_MAX: u32 = 4096;

/// A process's place in a job, and where the others are to be met.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Env {
    /// Which rank it is.
    pub rank: Rank,
    /// How many ranks there are.
    pub world: u32,
    /// Which of the ranks of its machine it is, if the launcher said.
    pub local_rank: Option<u32>,
    /// How many ranks its machine has, if the launcher said.
    pub local_world: Option<u32>,
    /// Where rank 0 listens.
    pub master: Master,
    /// The name of the job; all ranks must agree on it.
    pub job: Box<str>,
    /// How often this rank was started before. A rank that comes back must say more than the last.
    pub epoch: u32,
    /// What proves that a process belongs to the job.
    pub token: Token,
    /// Who set the variables.
    pub launcher: Launcher,
}

/// Where rank 0 listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// A name or an address.
    pub host: Box<str>,
    /// The TCP port; 0 is any, which only a job of one can use.
    pub port: u16,
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Whose variables they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `RANK` and `WORLD_SIZE`, as torchrun and `pontoon launch` set them.
    Torchrun,
    /// `OMPI_COMM_WORLD_RANK` and its kin: Open MPI's `mpirun`.
    OpenMpi,
    /// `SLURM_PROCID` and its kin: Slurm's `srun`.
    Slurm,
    /// None: the process is a job of its own.
    Alone,
}

/// The names one launcher uses.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    world: &'static [&'static str],
    local_rank: &'static str,
    local_world: &'static str,
    jobs: &'static [&'static str],
}

const LAUNCHERS: [Names; 3] = [
    Names {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        world: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_world: "LOCAL_WORLD_SIZE",
        jobs: &["TORCHELASTIC_RUN_ID"],
    },
    Names {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
        jobs: &["PMIX_NAMESPACE"],
    },
    Names {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        // `SLURM_NTASKS` counts the tasks of the allocation, of which a batch script itself is none.
        world: &["SLURM_STEP_NUM_TASKS"],
        local_rank: "SLURM_LOCALID",
        local_world: "SLURM_NTASKS_PER_NODE",
        jobs: &["SLURM_JOB_ID"],
    },
];

const JOB: &str = "PONTOON_JOB";
const EPOCH: [&str; 2] = ["PONTOON_EPOCH", "TORCHELASTIC_RESTART_COUNT"];
const TOKEN: &str = "PONTOON_TOKEN";
const TOKEN_FILE: &str = "PONTOON_TOKEN_FILE";
const PORT: &str = "PONTOON_PORT";
/// The longest job name, in bytes.
pub(crate) const JOB_MAX: usize = 128;

impl Env {
    /// What the environment of this process says; `None` if it says nothing about a job.
    ///
    /// # Errors
    ///
    /// [`EnvError`]: the variable, its value and what is expected.
    pub fn read() -> Result<Option<Self>, EnvError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// What the variables that `lookup` finds say. One set to nothing counts as not set.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn from_lookup(
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, EnvError> {
        let found = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let vars = Vars { found: &found };
        for names in &LAUNCHERS {
            let has_world = names.world.iter().any(|name| found(name).is_some());
            let is_named = match names.launcher {
                // A batch script is rank 0 of its allocation by these variables, and no rank of
                // anything.
                Launcher::Slurm => {
                    has_world && found("SLURM_STEP_ID").is_some_and(|id| slurm::is_step(&id))
                }
                _ => has_world || found(names.rank).is_some(),
            };
            if is_named {
                return vars.read(names).map(Some);
            }
        }
        match slurm::without_a_step(&found) {
            Some((set, missing)) => Err(EnvError::NoStep { set, missing }),
            None => Ok(None),
        }
    }

    /// A job of one, whose store nobody else can reach.
    ///
    /// # Errors
    ///
    /// [`EnvError::Token`] if the system has no random bytes.
    pub fn alone() -> Result<Self, EnvError> {
        let refused = |error| EnvError::Token { name: TOKEN, error };
        Ok(Self {
            rank: Rank(0),
            world: 1,
            local_rank: Some(0),
            local_world: Some(1),
            master: Master { host: "127.0.0.1".into(), port: 0 },
            job: "alone".into(),
            epoch: 0,
            token: Token::random().map_err(refused)?,
            launcher: Launcher::Alone,
        })
    }
}

/// Whether a path is none but digits of a token, perhaps some too few: an error would show it.
fn looks_like_a_token(path: &OsStr) -> bool {
    let digits = path.as_encoded_bytes().trim_ascii();
    digits.len() >= Token::BYTES && digits.iter().all(u8::is_ascii_hexdigit)
}

struct Vars<'a> {
    found: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Vars<'_> {
    fn read(&self, names: &Names) -> Result<Env, EnvError> {
        let world_name = self.first(names.world).unwrap_or(names.world[0]);
        let missing = |name, set| EnvError::Missing { name, set };
        let rank = self.number(names.rank, "a rank, counted from 0")?;
        let rank = rank.ok_or(missing(names.rank, world_name))?;
        let world = self.number(world_name, "how many ranks there are")?;
        let world = world.ok_or(missing(world_name, names.rank))?;
        if !(1..=WORLD_MAX).contains(&world) {
            return Err(EnvError::World { name: world_name, world });
        }
        if rank >= world {
            return Err(EnvError::RankBeyondWorld { names: [names.rank, world_name], rank, world });
        }
        let local_rank = self.number(names.local_rank, "a rank of this machine, from 0")?;
        let local_world = self.local_world(names)?;
        if let (Some(rank), Some(world)) = (local_rank, local_world)
            && rank >= world
        {
            let names = [names.local_rank, names.local_world];
            return Err(EnvError::RankBeyondWorld { names, rank, world });
        }
        let on_one_machine = local_world == Some(world);
        Ok(Env {
            rank: Rank(rank),
            world,
            local_rank,
            local_world,
            master: self.master(names.launcher, world, on_one_machine)?,
            job: self.job(names)?,
            epoch: self.epoch()?,
            token: self.token()?,
            launcher: names.launcher,
        })
    }

    /// Slurm's says what was asked for, which a step over several nodes need not have got.
    fn local_world(&self, names: &Names) -> Result<Option<u32>, EnvError> {
        if names.launcher == Launcher::Slurm {
            return Ok(None);
        }
        self.number(names.local_world, "how many ranks this machine has")
    }

    fn master(&self, launcher: Launcher, world: u32, one: bool) -> Result<Master, EnvError> {
        let host = match self.text("MASTER_ADDR")? {
            Some(host) => host,
            None if world == 1 || (one && launcher == Launcher::OpenMpi) => "127.0.0.1".into(),
            None if launcher == Launcher::Slurm => self.slurm_node()?,
            None => return Err(EnvError::NoMaster { name: "MASTER_ADDR", launcher }),
        };
        let port = match (self.port(PORT)?, self.port("MASTER_PORT")?) {
            (Some(port), _) => port,
            // torchrun's own store listens there already, and says so; the next one is as free as
            // any, and all ranks come to the same.
            (None, Some(port)) if self.is("TORCHELASTIC_USE_AGENT_STORE", "True") => {
                port.checked_add(1).unwrap_or(port - 1)
            }
            (None, Some(port)) => port,
            (None, None) if world == 1 => 0,
            (None, None) if launcher == Launcher::Slurm => self.slurm_port()?,
            (None, None) => return Err(EnvError::NoMaster { name: "MASTER_PORT", launcher }),
        };
        Ok(Master { host, port })
    }

    fn epoch(&self) -> Result<u32, EnvError> {
        let name = self.first(&EPOCH).unwrap_or(EPOCH[0]);
        let expected = "how often the rank was started before, at most 65535";
        match self.number(name, expected)?.unwrap_or(0) {
            epoch if epoch <= EPOCH_MAX => Ok(epoch),
            epoch => Err(EnvError::value(name, OsStr::new(&epoch.to_string()), expected)),
        }
    }

    fn slurm_node(&self) -> Result<Box<str>, EnvError> {
        if let Some(address) = self.text("SLURM_LAUNCH_NODE_IPADDR")?
            && self.text("SLURM_STEP_NODELIST")?.is_none()
        {
            return Ok(address);
        }
        let name = "SLURM_STEP_NODELIST";
        let list = self.text(name)?;
        let list = list.ok_or(EnvError::NoMaster { name, launcher: Launcher::Slurm })?;
        let expected = "Slurm's list of nodes, as in node[01-03,07]";
        slurm::first_node(&list).ok_or_else(|| EnvError::value(name, OsStr::new(&*list), expected))
    }

    /// Below the ports that Linux gives out by itself (from 32768 on); the same in all ranks.
    fn slurm_port(&self) -> Result<u16, EnvError> {
        let number = |name, expected| Ok(self.number(name, expected)?.unwrap_or(0));
        let (job, step) = (
            number("SLURM_JOB_ID", "the number of Slurm's job")?,
            number("SLURM_STEP_ID", "the number of Slurm's step")?,
        );
        Ok(slurm::port(job, step))
    }

    fn job(&self, names: &Names) -> Result<Box<str>, EnvError> {
        let name = self.first(&[JOB]).or_else(|| self.first(names.jobs));
        let Some(name) = name else { return Ok("job".into()) };
        match self.text(name)? {
            Some(job) if job.len() <= JOB_MAX && !job.contains(char::is_control) => Ok(job),
            Some(job) => {
                let expected = "at most 128 bytes without control characters";
                Err(EnvError::value(name, OsStr::new(&*job), expected))
            }
            None => Ok("job".into()),
        }
    }

    fn token(&self) -> Result<Token, EnvError> {
        let refused = |name| move |error| EnvError::Token { name, error };
        match ((self.found)(TOKEN), (self.found)(TOKEN_FILE)) {
            (Some(token), _) => Token::parse(token.as_encoded_bytes()).map_err(refused(TOKEN)),
            (None, Some(path)) if looks_like_a_token(&path) => {
                Err(EnvError::TokenAsFile { name: TOKEN_FILE })
            }
            (None, Some(path)) => Token::read(Path::new(&path)).map_err(|error| {
                EnvError::TokenFile { name: TOKEN_FILE, path: path.into(), error }
            }),
            (None, None) => Err(EnvError::NoToken),
        }
    }

    /// The first of `names` that is set.
    fn first(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| (self.found)(name).is_some())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        (self.found)(name).is_some_and(|found| found == value)
    }

    fn text(&self, name: &'static str) -> Result<Option<Box<str>>, EnvError> {
        let Some(value) = (self.found)(name) else { return Ok(None) };
        match value.to_str() {
            Some(text) => Ok(Some(text.trim().into())),
            None => Err(EnvError::value(name, &value, "text in UTF-8")),
        }
    }

    fn number(&self, name: &'static str, expected: &'static str) -> Result<Option<u32>, EnvError> {
        let Some(value) = (self.found)(name) else { return Ok(None) };
        // Digits only: `parse` takes a sign too.
        let digits = value.to_str().map(str::trim).filter(|text| !text.starts_with('+'));
        match digits.and_then(|text| text.parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(EnvError::value(name, &value, expected)),
        }
    }

    fn port(&self, name: &'static str) -> Result<Option<u16>, EnvError> {
        let expected = "a TCP port, 1 to 65535";
        match self.number(name, expected)? {
            None => Ok(None),
            Some(number) => match u16::try_from(number) {
                Ok(port) if port != 0 => Ok(Some(port)),
                _ => Err(EnvError::value(name, OsStr::new(&number.to_string()), expected)),
            },
        }
    }
}

#[cfg(test)]
mod tests;
