//! `pontoon tune`: measures how long waits take here, chooses bounds for them, then what rings suit
//! small messages and large ones, and writes all to the profile that `Bound::tuned` and
//! `Settings::tuned` read.

mod choose;
pub(crate) mod measure;
mod rings;

use std::{
    error, fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use pontoon::signal::{Nanos, Profile, TunedRing, TunedRings};
use serde::Serialize;

use crate::{
    BAD_INPUT, FAILED,
    bench::{BenchError, pin::CpuPair},
    figures::closed_pipe_is_no_fault,
};
use choose::{Choice, choose, choose_for_one_cpu};
use measure::Measured;
use rings::{Found, Rings};

/// Arguments of `pontoon tune`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The delay after which a wait shall give up, for example 500ms
    #[arg(long, value_parser = crate::duration::bound, default_value = "2s")]
    tolerate: Duration,
    /// How long your producer works before it publishes, for example 20us
    #[arg(long, value_parser = crate::duration::pace, default_value = "0")]
    pace: Duration,
    /// Where to write the profile, instead of $PONTOON_PROFILE or the usual place
    #[arg(long)]
    profile: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Measures, chooses, prints and writes.
///
/// # Errors
///
/// See [`TuneError`].
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), TuneError> {
    let file = args.profile.clone().or_else(Profile::location).ok_or(TuneError::NoPlace)?;
    // Before the measurement, which takes long and would be for nothing.
    place(&file)
        .and_then(|place| place.open().map(drop))
        .map_err(|error| TuneError::Place { file: file.clone(), error })?;
    let cpus = CpuPair::usable()?;
    let pace = Nanos::from(args.pace);
    let mut chosen = Vec::new();
    for path in ["thread", "process"] {
        if !args.json {
            // What is being measured, before it is.
            printed(writeln!(out, "{path}").and_then(|()| out.flush()))?;
        }
        let measured = match (cpus, path) {
            (None, _) => None,
            (Some(cpus), "thread") => Some(measure::threads(cpus, pace)?),
            (Some(cpus), _) => Some(measure::processes(cpus, pace)?),
        };
        let choice = match &measured {
            Some(measured) => choose(measured, args.tolerate),
            None => choose_for_one_cpu(args.tolerate),
        };
        let report = Report::new(path, measured, &choice);
        printed(if args.json { report.json(out) } else { report.text(out) })?;
        chosen.push(choice.tuned);
    }
    let rings = match cpus {
        Some(cpus) => rings::measure(cpus)?,
        None => Err("two ranks need two CPUs; this process may use one".into()),
    };
    printed(if args.json { rings_json(&rings, out) } else { rings_text(&rings, out) })?;
    let tuned = rings
        .ok()
        .map(|Rings { small, large }| TunedRings { small: small.ring, large: large.ring });
    let profile = Profile { thread: chosen[0], process: chosen[1], rings: tuned };
    write(&file, &profile).map_err(|error| TuneError::Write { file: file.clone(), error })?;
    printed(if args.json {
        writeln!(out, "{}", serde_json::json!({ "profile": file.display().to_string() }))
    } else {
        writeln!(out, "wrote {}", file.display())
    })
}

fn rings_json(rings: &Result<Rings, String>, out: &mut impl Write) -> io::Result<()> {
    let of = |Found { ring: TunedRing { depth, batch, rings }, gain, spread }: Found| {
        serde_json::json!({
            "depth": depth, "batch": batch, "rings": rings, "is_default": gain.is_none(),
            "gain": gain, "spread": spread,
        })
    };
    let line = match rings {
        Ok(Rings { small, large }) => {
            serde_json::json!({ "path": "rings", "small": of(*small), "large": of(*large) })
        }
        Err(why) => serde_json::json!({ "path": "rings", "skipped": why }),
    };
    writeln!(out, "{line}")?;
    out.flush()
}

fn rings_text(rings: &Result<Rings, String>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "rings")?;
    match rings {
        Ok(Rings { small, large }) => {
            for (what, found) in [("small, often", small), ("large, rarely", large)] {
                let Found { ring: TunedRing { depth, batch, rings }, gain, spread } = found;
                write!(out, "  {what:<14}  depth {depth}, batch {batch}, rings {rings}: ")?;
                let percent = spread * 100.0;
                match gain {
                    Some(gain) => writeln!(
                        out,
                        "{gain:.2} times as fast as the default, which differs from itself by {percent:.0} %"
                    )?,
                    None => writeln!(
                        out,
                        "the default, which differs from itself by {percent:.0} %; nothing gains more"
                    )?,
                }
            }
        }
        Err(why) => writeln!(out, "  not measured: {why}")?,
    }
    out.flush()
}

fn printed(result: io::Result<()>) -> Result<(), TuneError> {
    closed_pipe_is_no_fault(result).map_err(TuneError::Output)
}

/// Where a profile goes: a new file beside, which then takes the place of the old one.
struct Place {
    file: PathBuf,
    new: PathBuf,
}

/// The place of `file`. A link stays, and what it points to is replaced; only a regular file ever is.
fn place(file: &Path) -> io::Result<Place> {
    let file = match fs::canonicalize(file) {
        Ok(existing) if fs::metadata(&existing)?.is_file() => existing,
        Ok(_) => {
            let what = "it is there and is not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Err(_) => file.to_owned(),
    };
    let mut name = file.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    Ok(Place { file, new })
}

impl Place {
    /// The new file, which is removed with what is returned unless that has [taken](New::take) its place.
    fn open(&self) -> io::Result<New<'_>> {
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            fs::create_dir_all(folder)?;
        }
        Ok(New { open: fs::File::create(&self.new)?, place: self })
    }
}

/// A new profile that is not in its place.
struct New<'p> {
    open: fs::File,
    place: &'p Place,
}

impl New<'_> {
    /// Writes it and replaces the old one in one step: whoever reads that meanwhile has the old profile or the
    /// new one.
    fn take(mut self, profile: &Profile) -> io::Result<()> {
        self.open.write_all(profile.to_string().as_bytes())?;
        self.open.sync_all()?;
        fs::rename(&self.place.new, &self.place.file)
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        // It is not there any more once it has its place.
        let _ = fs::remove_file(&self.place.new);
    }
}

fn write(file: &Path, profile: &Profile) -> io::Result<()> {
    place(file)?.open()?.take(profile)
}

/// What is told of one path.
#[derive(Debug, Serialize)]
struct Report {
    path: &'static str,
    measured: Option<Measured>,
    spin: u32,
    spin_because: String,
    yields: u32,
    deadline_ns: u64,
    deadline_because: String,
}

impl Report {
    fn new(path: &'static str, measured: Option<Measured>, choice: &Choice) -> Self {
        Self {
            path,
            measured,
            spin: choice.tuned.spin,
            spin_because: choice.spin_because.to_string(),
            yields: choice.tuned.yields,
            deadline_ns: Nanos::from(choice.tuned.deadline).0,
            deadline_because: choice.deadline_because.to_string(),
        }
    }

    fn json(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        out.flush()
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let shown = |ns: f64| Nanos(ns as u64).to_string();
        if let Some(Measured { tries, wait_ns, wake_ns, yield_ns }) = &self.measured {
            writeln!(
                out,
                "  a wait polls    {:>9} times, 99 of 100 at most {}",
                tries.p50, tries.p99
            )?;
            for (what, of) in [("a wait takes", wait_ns), ("a wake takes", wake_ns)] {
                let (p50, p99) = (shown(of.p50), shown(of.p99));
                writeln!(out, "  {what:<15} {p50:>9}, 99 of 100 at most {p99}")?;
            }
            writeln!(out, "  a yield takes   {:>9}", shown(*yield_ns))?;
        }
        writeln!(out, "  spin            {:>9} polls: {}", self.spin, self.spin_because)?;
        let yields = "for as long as a wake takes in all";
        writeln!(out, "  then yield      {:>9} times: {yields}", self.yields)?;
        let deadline = Nanos(self.deadline_ns).to_string();
        writeln!(out, "  give up after   {deadline:>9}: {}", self.deadline_because)?;
        out.flush()
    }
}

/// Why there is no new profile.
#[derive(Debug)]
pub(crate) enum TuneError {
    Bench(BenchError),
    Output(io::Error),
    /// No variable says where profiles go.
    NoPlace,
    /// There is no place for the profile where it is to go.
    Place {
        file: PathBuf,
        error: io::Error,
    },
    Write {
        file: PathBuf,
        error: io::Error,
    },
}

impl From<BenchError> for TuneError {
    fn from(error: BenchError) -> Self {
        Self::Bench(error)
    }
}

impl fmt::Display for TuneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bench(error) => error.fmt(f),
            Self::Output(error) => write!(f, "cannot write what was measured: {error}"),
            Self::NoPlace => f.write_str("no place for the profile: set HOME, or give --profile"),
            Self::Place { file, error } | Self::Write { file, error } => {
                write!(f, "cannot write the profile {}: {error}", file.display())?;
                f.write_str("; see --profile")
            }
        }
    }
}

impl error::Error for TuneError {}

impl TuneError {
    /// What the process ends with.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::NoPlace | Self::Place { .. } => BAD_INPUT,
            Self::Bench(error) => error.status(),
            _ => FAILED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pontoon::signal::Tuned;

    #[test]
    fn only_a_regular_file_is_replaced_and_a_link_stays() {
        let folder = std::env::temp_dir().join(format!("pontoon-tune-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let tuned = Tuned { spin: 1, yields: 2, deadline: Duration::from_secs(3) };
        let profile = Profile { thread: tuned, process: tuned, rings: None };
        let (real, link) = (folder.join("real"), folder.join("link"));
        fs::write(&real, "old").expect("written");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        write(&link, &profile).expect("written through the link");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(Profile::load(real).expect("read"), profile);
        // A socket stands in for a device, which a test must not risk.
        let socket = folder.join("socket");
        let _held = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        let refused = write(&socket, &profile).expect_err("not a regular file");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(!fs::symlink_metadata(&socket).expect("still there").is_file());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
