//! Bounds that `pontoon tune` measured for this machine and wrote to a profile.

use core::{fmt, time::Duration};
use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::OnceLock,
    vec::Vec,
};

use crate::Bound;

/// Between whom a wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Threads of one process, devices included.
    Threads,
    /// Processes of one machine.
    Processes,
}

/// What was chosen for one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Polls back to back before a wait gives way.
    pub spin: u32,
    /// Yields of the core before it sleeps.
    pub yields: u32,
    /// The longest it lasts; above zero.
    pub deadline: Duration,
}

impl Tuned {
    /// The bound with these numbers.
    ///
    /// # Panics
    ///
    /// If the deadline is zero.
    pub fn bound(self) -> Bound {
        Bound::within(self.deadline).spinning(self.spin).yielding(self.yields)
    }
}

/// Rings of tasks to one peer, as they were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunedRing {
    /// Slots of a ring: a power of two from 4 to 2^20.
    pub depth: u32,
    /// How many tasks the proxy takes from one ring before it looks at the next; above zero.
    pub batch: u32,
    /// Rings to each peer, from 1 to 64.
    pub rings: u32,
}

/// What was chosen for rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunedRings {
    /// For messages that are small and come often.
    pub small: TunedRing,
    /// For messages that are large and come rarely.
    pub large: TunedRing,
}

/// The bounds of a machine, by path, and its rings.
///
/// As text it is a line `version 1` and then lines of a key and a number, in any order, each key
/// once: `thread.spin`, `thread.yields`, `thread.deadline_ns`, and the same for `process`. There may be
/// `small.depth`, `small.batch`, `small.rings`, and the same for `large`: all six or none. Empty
/// lines and what follows a `#` do not count.
///
/// ```
/// use pontoon_signal::{Profile, Tuned};
/// use std::{path::Path, time::Duration};
///
/// let tuned = Tuned { spin: 800, yields: 4, deadline: Duration::from_secs(2) };
/// let profile = Profile { thread: tuned, process: tuned, rings: None };
/// let text = profile.to_string();
/// assert_eq!(Profile::parse(text.as_bytes(), Path::new("profile"))?, profile);
/// # Ok::<(), pontoon_signal::ProfileError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Between threads.
    pub thread: Tuned,
    /// Between processes.
    pub process: Tuned,
    /// Of rings; older profiles have none.
    pub rings: Option<TunedRings>,
}

const VERSION: u64 = 1;
/// Far above what a profile needs: a file beyond it is something else.
const BYTES_MAX: u64 = 64 << 10;
/// A day. A profile must not make every wait of a machine as good as unbounded.
const DEADLINE_MAX_NS: u64 = 24 * 60 * 60 * 1_000_000_000;
const KEYS: [&str; 12] = [
    "thread.spin",
    "thread.yields",
    "thread.deadline_ns",
    "process.spin",
    "process.yields",
    "process.deadline_ns",
    "small.depth",
    "small.batch",
    "small.rings",
    "large.depth",
    "large.batch",
    "large.rings",
];
/// Where the keys of rings begin.
const RINGS_AT: usize = 6;

impl Profile {
    /// Reads the profile in `file`.
    ///
    /// # Errors
    ///
    /// See [`ProfileError`].
    pub fn load(file: impl AsRef<Path>) -> Result<Self, ProfileError> {
        let file = file.as_ref();
        let unreadable = |error| ProfileError::Unreadable { file: file.to_path_buf(), error };
        let mut text = Vec::new();
        let opened = File::open(file).map_err(unreadable)?;
        opened.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
        Self::parse(&text, file)
    }

    /// Reads a profile from `text`; errors name `file`.
    ///
    /// # Errors
    ///
    /// See [`ProfileError`].
    pub fn parse(text: &[u8], file: &Path) -> Result<Self, ProfileError> {
        if text.len() as u64 > BYTES_MAX {
            return Err(ProfileError::TooLong { file: file.to_path_buf() });
        }
        let mut version = None;
        let mut values = [None; KEYS.len()];
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let bad = |expected| ProfileError::Line {
                file: file.to_path_buf(),
                line: index + 1,
                expected,
            };
            let line = core::str::from_utf8(line).map_err(|_| bad("UTF-8 text"))?;
            let line = line.split('#').next().unwrap_or(line).trim();
            if line.is_empty() {
                continue;
            }
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let value = value.trim_start().parse::<u64>();
            if version.is_none() {
                version = Some(value == Ok(VERSION));
                if key != "version" || value != Ok(VERSION) {
                    return Err(bad("version 1 before all else"));
                }
                continue;
            }
            let Some(known) = KEYS.iter().position(|&known| known == key) else {
                return Err(bad(
                    "thread or process, a dot, then spin, yields or deadline_ns; or small or \
                     large, a dot, then depth, batch or rings",
                ));
            };
            let value = value.map_err(|_| bad("a key, a space and a whole number"))?;
            if key.ends_with("deadline_ns") {
                if !(1..=DEADLINE_MAX_NS).contains(&value) {
                    return Err(bad("a deadline above 0 ns and of at most a day"));
                }
            } else if key.ends_with("depth") {
                if !value.is_power_of_two() || !(4..=1 << 20).contains(&value) {
                    return Err(bad("a depth that is a power of two from 4 to 1048576"));
                }
            } else if key.ends_with("rings") {
                if !(1..=64).contains(&value) {
                    return Err(bad("from 1 to 64 rings"));
                }
            } else if key.ends_with("batch") && value == 0 {
                return Err(bad("a batch of at least 1"));
            } else if u32::try_from(value).is_err() {
                return Err(bad("a number below 4294967296"));
            }
            if values[known].replace(value).is_some() {
                return Err(bad("each key once"));
            }
        }
        if version.is_none() {
            return Err(ProfileError::Missing { file: file.to_path_buf(), key: "version" });
        }
        let of = |index: usize| {
            let missing = || ProfileError::Missing { file: file.to_path_buf(), key: KEYS[index] };
            values[index].ok_or_else(missing)
        };
        // The numbers were seen to fit.
        let tuned = |first| {
            let (spin, yields) = (of(first)? as u32, of(first + 1)? as u32);
            Ok(Tuned { spin, yields, deadline: Duration::from_nanos(of(first + 2)?) })
        };
        let ring = |first| {
            let (depth, batch) = (of(first)? as u32, of(first + 1)? as u32);
            Ok(TunedRing { depth, batch, rings: of(first + 2)? as u32 })
        };
        let rings = match values[RINGS_AT..].iter().any(Option::is_some) {
            false => None,
            true => Some(TunedRings { small: ring(RINGS_AT)?, large: ring(RINGS_AT + 3)? }),
        };
        Ok(Self { thread: tuned(0)?, process: tuned(3)?, rings })
    }

    /// Where the profile of this user is: `$PONTOON_PROFILE`, else
    /// `$XDG_CONFIG_HOME/pontoon/profile`, else `~/.config/pontoon/profile`. `None` if none of the
    /// three variables is set.
    pub fn location() -> Option<PathBuf> {
        location_by(|name| env::var_os(name))
    }

    /// The profile in use, read once for the whole process; `None` if there is none.
    ///
    /// # Errors
    ///
    /// There is one, but it cannot be used: [`Bound::tuned`] then gives the default.
    pub fn active() -> Result<Option<Self>, &'static ProfileError> {
        static ACTIVE: OnceLock<Result<Option<Profile>, ProfileError>> = OnceLock::new();
        let active = ACTIVE.get_or_init(|| match Self::location().map(Self::load) {
            Some(Err(error)) if error.is_absent() => Ok(None),
            Some(loaded) => loaded.map(Some),
            None => Ok(None),
        });
        active.as_ref().copied()
    }

    /// What was chosen for waits between `whom`.
    pub fn of(&self, whom: Between) -> Tuned {
        match whom {
            Between::Threads => self.thread,
            Between::Processes => self.process,
        }
    }
}

fn location_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = set("PONTOON_PROFILE") {
        return Some(file);
    }
    // The XDG base directory specification has a relative path ignored.
    let config = set("XDG_CONFIG_HOME").filter(|config| config.is_absolute());
    let config = config.or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("pontoon").join("profile"))
}

impl fmt::Display for Profile {
    /// The text that [`load`](Self::load) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Bounds of waits on this machine, and its rings, by `pontoon tune`.")?;
        writeln!(f, "version {VERSION}")?;
        for (name, tuned) in [("thread", self.thread), ("process", self.process)] {
            let deadline = u64::try_from(tuned.deadline.as_nanos()).unwrap_or(u64::MAX);
            writeln!(f, "{name}.spin {}", tuned.spin)?;
            writeln!(f, "{name}.yields {}", tuned.yields)?;
            writeln!(f, "{name}.deadline_ns {deadline}")?;
        }
        let Some(rings) = self.rings else { return Ok(()) };
        for (name, ring) in [("small", rings.small), ("large", rings.large)] {
            writeln!(f, "{name}.depth {}", ring.depth)?;
            writeln!(f, "{name}.batch {}", ring.batch)?;
            writeln!(f, "{name}.rings {}", ring.rings)?;
        }
        Ok(())
    }
}

impl Bound {
    /// What `pontoon tune` chose for waits on `path` on this machine, or [`Bound::default`] if
    /// there is no profile, or none that can be used: [`Profile::active`] says why. The file is
    /// read once.
    pub fn tuned(whom: Between) -> Self {
        match Profile::active() {
            Ok(Some(profile)) => profile.of(whom).bound(),
            _ => Self::default(),
        }
    }
}

/// Why a profile cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is far longer than a profile.
    TooLong {
        /// The file.
        file: PathBuf,
    },
    /// A line is not what it should be.
    Line {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A line is missing.
    Missing {
        /// The file.
        file: PathBuf,
        /// The line's key.
        key: &'static str,
    },
}

impl ProfileError {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = "run pontoon tune again";
        match self {
            Self::Unreadable { file, error } => {
                write!(f, "cannot read the profile {}: {error}", file.display())
            }
            Self::TooLong { file } => {
                let kib = BYTES_MAX >> 10;
                write!(f, "{}: expected a profile of at most {kib} KiB; {again}", file.display())
            }
            Self::Line { file, line, expected } => {
                write!(f, "{}, line {line}: expected {expected}; {again}", file.display())
            }
            Self::Missing { file, key } => {
                write!(f, "{}: expected a line with {key}; {again}", file.display())
            }
        }
    }
}

impl core::error::Error for ProfileError {}

#[cfg(all(test, not(pontoon_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{
        format,
        string::{String, ToString},
        vec,
    };

    const GOOD: &str = "version 1\nthread.spin 1\nthread.yields 2\nthread.deadline_ns 3\n\
                        process.spin 4\nprocess.yields 5\nprocess.deadline_ns 6\n";

    fn parse(text: impl AsRef<[u8]>) -> Result<Profile, String> {
        Profile::parse(text.as_ref(), Path::new("p")).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_come_in_any_order_between_comments() {
        let mut lines: Vec<&str> = GOOD.lines().collect();
        lines[1..].reverse();
        let text = format!("# by hand\n\n{}  # last\r\n", lines.join("\n\t"));
        assert_eq!(parse(text), parse(GOOD));
        let profile = parse(GOOD).unwrap();
        assert_eq!(
            profile.of(Between::Processes),
            Tuned { spin: 4, yields: 5, deadline: Duration::from_nanos(6) }
        );
        assert_eq!(profile.thread.bound().deadline(), Some(Duration::from_nanos(3)));
    }

    #[test]
    fn an_error_names_file_line_and_what_was_expected() {
        let replaced = |from: &str, to: &str| parse(GOOD.replace(from, to)).unwrap_err();
        for (from, to, said) in [
            ("version 1", "version 2", "p, line 1: expected version 1"),
            ("version 1", "# version 1", "p, line 2: expected version 1"),
            ("thread.spin 1", "thread.spin", "p, line 2: expected a key, a space and a whole"),
            ("thread.spin 1", "thread.spin -1", "p, line 2: expected a key, a space and a whole"),
            ("thread.spin 1", "thread.spin 1 2", "p, line 2: expected a key, a space and a whole"),
            ("thread.spin 1", "thread.spin 4294967296", "p, line 2: expected a number below"),
            ("deadline_ns 6", "deadline_ns 0", "p, line 7: expected a deadline above 0"),
            ("process.spin", "thread.spin", "p, line 5: expected each key once"),
            ("process.spin", "gpu.spin", "p, line 5: expected thread or process"),
            ("process.yields 5\n", "", "p: expected a line with process.yields"),
        ] {
            let error = replaced(from, to);
            assert!(error.starts_with(said), "{error}");
            assert!(error.ends_with("run pontoon tune again"), "{error}");
        }
        assert!(parse("").unwrap_err().starts_with("p: expected a line with version"));
        assert!(parse(b"version 1\n\xff").unwrap_err().starts_with("p, line 2: expected UTF-8"));
        let long = vec![b'#'; (BYTES_MAX + 1) as usize];
        assert!(parse(long).unwrap_err().contains("at most 64 KiB"));
    }

    #[test]
    fn rings_are_all_there_or_none_and_within_their_ranges() {
        const RINGS: &str = "small.depth 512\nsmall.batch 32\nsmall.rings 2\n\
                             large.depth 64\nlarge.batch 8\nlarge.rings 1\n";
        assert_eq!(parse(GOOD).unwrap().rings, None);
        let both = format!("{GOOD}{RINGS}");
        let small = TunedRing { depth: 512, batch: 32, rings: 2 };
        let large = TunedRing { depth: 64, batch: 8, rings: 1 };
        let profile = parse(&both).unwrap();
        assert_eq!(profile.rings, Some(TunedRings { small, large }));
        assert_eq!(parse(profile.to_string()), Ok(profile));
        for (from, to, said) in [
            ("small.depth 512", "small.depth 500", "p, line 8: expected a depth that is a power"),
            ("small.depth 512", "small.depth 2", "p, line 8: expected a depth that is a power"),
            ("small.batch 32", "small.batch 0", "p, line 9: expected a batch of at least 1"),
            ("small.batch 32", "small.batch 4294967296", "p, line 9: expected a number below"),
            ("small.rings 2", "small.rings 65", "p, line 10: expected from 1 to 64 rings"),
            ("large.rings 1\n", "", "p: expected a line with large.rings"),
        ] {
            let error = parse(both.replace(from, to)).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_absent_and_a_folder_is_not() {
        let absent = Profile::load("/nonexistent/profile").unwrap_err();
        assert!(absent.is_absent(), "{absent}");
        let folder = Profile::load("/").unwrap_err();
        assert!(!folder.is_absent(), "{folder}");
    }

    #[test]
    fn the_nearest_variable_says_where() {
        let location = |set: &[(&str, &str)]| {
            location_by(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let (mine, home) = (("PONTOON_PROFILE", "mine"), ("HOME", "/h"));
        assert_eq!(location(&[mine, home, ("XDG_CONFIG_HOME", "/x")]), Some("mine".into()));
        let xdg = location(&[home, ("XDG_CONFIG_HOME", "/x"), ("PONTOON_PROFILE", "")]);
        assert_eq!(xdg, Some("/x/pontoon/profile".into()));
        let relative = location(&[home, ("XDG_CONFIG_HOME", "x")]);
        assert_eq!(relative, Some("/h/.config/pontoon/profile".into()));
        assert_eq!(location(&[]), None);
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(text: Vec<u8>) {
            let _ = Profile::parse(&text, Path::new("p"));
        }

        #[test]
        fn near_misses_are_parsed_or_refused_without_a_panic(
            lines in prop::collection::vec(
                "(version|thread|process|small)?[.]?(spin|yields|deadline_ns|depth|rings)?[ \t]{0,2}[-0-9]{0,21}#?",
                0..10,
            ),
        ) {
            let text = format!("version 1\n{}", lines.join("\n"));
            let _ = Profile::parse(text.as_bytes(), Path::new("p"));
        }

        #[test]
        fn what_is_written_is_read(numbers: [u32; 4], deadlines in [1..=DEADLINE_MAX_NS, 1..=DEADLINE_MAX_NS]) {
            let of = |i: usize| Tuned {
                spin: numbers[2 * i],
                yields: numbers[2 * i + 1],
                deadline: Duration::from_nanos(deadlines[i]),
            };
            let profile = Profile { thread: of(0), process: of(1), rings: None };
            prop_assert_eq!(parse(profile.to_string()), Ok(profile));
        }
    }
}
