//! `pontoon launch`: starts a job of many processes, here or over hosts, and ends it as a whole.
//!
//! The launcher starts an agent on each host (itself on this one, through a remote shell on others)
//! and gives it a plan; the agent starts the ranks. Read `wire`, then `agent` and `rank`, which
//! run on each host, then `job`, `link`, `output` and `verdict`, which are the launcher's.

pub(crate) mod agent;
mod error;
mod hosts;
mod job;
mod link;
mod output;
mod poll;
pub(crate) mod rank;
mod signals;
mod silence;
mod verdict;
mod wire;

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

use rustix::{
    rand::{GetRandomFlags, getrandom},
    system::uname,
};

pub(crate) use error::LaunchError;
pub(crate) use hosts::Host;
use hosts::{Map, RANKS_MAX, place};
use job::{Job, Spec};
use link::{Link, Way};
use output::{Form, Output};
use signals::Signals;
use verdict::Tolerance;

use crate::{number::within, voice::shortened};

/// What reaches another host unless --rsh says otherwise.
const SSH: &str = "ssh -o BatchMode=yes {host}";
/// The host that needs no remote shell, whatever address it is given.
const LOCALHOST: &str = "localhost";
/// Bytes of the token that authenticates a job's connections.
const TOKEN: usize = 32;

/// Starts N processes of a command, here or over hosts, and ends them as a whole
///
/// Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
/// PONTOON_JOB and PONTOON_TOKEN in its environment, and nothing on its standard input. Its output
/// comes with its rank in front of each line.
///
/// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are handed on to the ranks; a second SIGINT kills
/// them, and so does --grace after SIGTERM or SIGHUP. When a rank fails the others are ended: SIGTERM, and SIGKILL after --grace, to all that a
/// rank started and left in its process group. They are ended too when the launcher is killed, and
/// when its host cannot be reached any more.
///
/// The status is that of the first rank that failed, 128 and the signal if one ended it, or 2 if
/// nothing could be started.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "N",
          value_parser = within(1..=RANKS_MAX))]
    ranks: u32,
    /// Where they run, such as `a,b` or `a=10.0.0.1,b=10.0.0.2`: the name is the remote shell's,
    /// the address is what ranks connect to. `localhost` needs no remote shell
    #[arg(long, value_name = "HOST[=ADDRESS],...", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// How ranks are dealt to hosts
    #[arg(long, value_enum, default_value = "block")]
    map: Map,
    /// The remote shell: words between spaces, of which {host} is replaced [default: ssh -o
    /// BatchMode=yes {host}]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    rsh: Option<String>,
    /// This program's path on other hosts [default: the same as here]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    program: Option<String>,
    /// A variable that ranks shall have as it is here, or with a value. Those that begin with
    /// PONTOON_ come along anyhow
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    variables: Vec<OsString>,
    /// The job's name [default: a random one]
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// MASTER_PORT [default: one that is free on the host of rank 0]
    #[arg(long, value_parser = within(1..=u16::MAX))]
    port: Option<u16>,
    /// How long ranks that are ended, or that SIGTERM or SIGHUP is handed on to, have until SIGKILL
    #[arg(long, value_name = "TIME", value_parser = crate::duration::bound, default_value = "2s")]
    grace: Duration,
    /// Lets the others go on when a rank fails
    #[arg(long)]
    keep_going: bool,
    /// How many ranks may fail with the job a success
    #[arg(long, value_name = "K", requires = "keep_going", default_value_t = 0)]
    tolerate: u32,
    /// How long the others have to end by themselves, and to say what they saw, when a rank fails;
    /// with --keep-going, when more fail than --tolerate allows, or when one fails and all that are
    /// left are stopped
    #[arg(long, value_name = "TIME", value_parser = crate::duration::bound)]
    last_words: Option<Duration>,
    /// Leaves lines as they are
    #[arg(long, conflicts_with = "output")]
    no_prefix: bool,
    /// Writes what rank N prints to N.out and N.err in this folder, instead of here
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// How long hosts have to answer
    #[arg(long, value_name = "TIME", value_parser = crate::duration::bound, default_value = "30s")]
    start_within: Duration,
    /// After how long without a word a host counts as lost, here and there
    #[arg(long, value_name = "TIME", value_parser = crate::duration::silence, default_value = "1min")]
    silence: Duration,
    /// What each rank runs, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs a job; its status.
///
/// # Errors
///
/// See [`LaunchError`].
///
/// # Blocks
///
/// As long as the job runs.
pub(crate) fn run(options: &Options) -> Result<u8, LaunchError> {
    run_led_by(options, None, None)
}

/// As [`run`]; once rank `lead` ended the others have their last words, and for as long as `still` what is
/// stopped may stay so when nothing else is left.
fn run_led_by(
    options: &Options,
    lead: Option<u32>,
    still: Option<Duration>,
) -> Result<u8, LaunchError> {
    if options.command.first().is_some_and(|command| command.is_empty()) {
        let why = "it is empty: name a program after --".to_owned();
        return Err(LaunchError::Option { option: "COMMAND", why });
    }
    can_meet(&options.hosts)?;
    let words = shell(options.rsh.as_deref().unwrap_or(SSH))?;
    let placed = if options.hosts.is_empty() {
        vec![(None, (0..options.ranks).collect())]
    } else {
        let ranks = place(&options.hosts, options.ranks, options.map)?;
        options.hosts.iter().cloned().map(Some).zip(ranks).collect()
    };
    let spec = spec(options, lead, still)?;
    // Files of each rank, and three of each host.
    let files = agent::may_open_more();
    let form = match &options.output {
        Some(folder) => Form::Files(folder.clone()),
        None if options.no_prefix => Form::Plain,
        None => Form::Prefixed,
    };
    let output = Output::open(form, options.ranks).map_err(|error| match error.at {
        Some(at) if options.output.as_ref() == Some(&at) && at.exists() && !at.is_dir() => {
            let why =
                format!("{} is no folder: name one, or a path where none is yet", at.display());
            LaunchError::Option { option: "--output", why }
        }
        Some(at) => {
            let why = format!("cannot write {}: {}", at.display(), error.error);
            LaunchError::Option { option: "--output", why }
        }
        None => error.into(),
    })?;
    let signals =
        Signals::forwarded().map_err(|error| LaunchError::System("handle signals", error))?;
    let program = program(options)?;
    let mut links = Vec::new();
    for (host, ranks) in placed {
        let way = match &host {
            Some(host) if !is_here(&host.name, options.rsh.is_some()) => {
                Way::Shell { words: &words, program: &program }
            }
            _ => Way::Here { files },
        };
        links.push(Link::open(&way, host, ranks)?);
    }
    Job::new(spec, links, output, signals).run()
}

/// A job of this same command with other arguments.
pub(crate) struct Again<'a> {
    pub(crate) ranks: u32,
    pub(crate) hosts: &'a [Host],
    pub(crate) rsh: Option<&'a str>,
    /// How many ranks may fail with the rest going on.
    pub(crate) tolerate: u32,
    /// How long ranks have to end by themselves once there is nothing left to do for them.
    pub(crate) last_words: Duration,
    /// How long what is stopped has to go on, once nothing else is left.
    pub(crate) still: Duration,
    pub(crate) arguments: Vec<OsString>,
}

/// Runs a job whose ranks, unlike those of a command of the user's, are trusted to end when rank 0
/// did, or one that they cannot do without; its status.
///
/// # Errors
///
/// See [`LaunchError`].
///
/// # Blocks
///
/// As long as the job runs.
pub(crate) fn again(job: Again<'_>) -> Result<u8, LaunchError> {
    let program =
        env::current_exe().map_err(|error| LaunchError::System("find this program", error))?;
    let mut command = vec![program.into_os_string()];
    command.extend(job.arguments);
    let options = Options {
        ranks: job.ranks,
        hosts: job.hosts.to_vec(),
        map: Map::Block,
        rsh: job.rsh.map(str::to_owned),
        program: None,
        variables: Vec::new(),
        job: None,
        port: None,
        grace: Duration::from_secs(2),
        keep_going: true,
        tolerate: job.tolerate,
        last_words: Some(job.last_words),
        no_prefix: true,
        output: None,
        start_within: Duration::from_secs(30),
        silence: Duration::from_secs(60),
        command,
    };
    run_led_by(&options, Some(0), Some(job.still))
}

/// How many of so many ranks run on this host.
pub(crate) fn ranks_here(ranks: u32, hosts: &[Host], has_shell: bool) -> u32 {
    if hosts.is_empty() {
        return ranks;
    }
    // Hosts that make no sense are refused by whoever starts the job.
    let Ok(placed) = place(hosts, ranks, Map::Block) else { return 0 };
    let here = hosts.iter().zip(placed).filter(|(host, _)| is_here(&host.name, has_shell));
    here.map(|(_, ranks)| ranks.len() as u32).sum()
}

/// The words of a remote shell.
fn shell(text: &str) -> Result<Vec<String>, LaunchError> {
    let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    if words.iter().any(|word| word.contains("{host}")) {
        return Ok(words);
    }
    let why = format!("{text:?} does not say where {{host}} goes, as in {SSH:?}");
    Err(LaunchError::Option { option: "--rsh", why })
}

/// This program on other hosts. A remote shell may read the path once more, and another may not,
/// so that no way to quote it is right for both.
fn program(options: &Options) -> Result<String, LaunchError> {
    if options.hosts.is_empty() {
        return Ok(String::new());
    }
    let path = match &options.program {
        Some(path) => path.clone(),
        None => env::current_exe()
            .map_err(|error| LaunchError::System("find this program", error))?
            .to_string_lossy()
            .into_owned(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:=".contains(c);
    if path.is_empty() || path.starts_with('-') || !path.chars().all(is_plain) {
        let why = format!("a remote shell may not take {path:?} as one word; give another path");
        return Err(LaunchError::Option { option: "--program", why });
    }
    Ok(path)
}

/// Whether no remote shell is needed. This host by its own name is reached through one that is given: it
/// may lead to where that name is another's.
fn is_here(host: &str, has_shell: bool) -> bool {
    let is_own_name = || uname().nodename().to_bytes() == host.as_bytes();
    host == LOCALHOST || (!has_shell && is_own_name())
}

fn spec(
    options: &Options,
    lead: Option<u32>,
    still: Option<Duration>,
) -> Result<Spec, LaunchError> {
    let mut variables: Vec<(Vec<u8>, Vec<u8>)> = env::vars_os()
        .filter(|(name, _)| name.as_bytes().starts_with(b"PONTOON_") && !is_of_a_job(name))
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .collect();
    for text in &options.variables {
        let (name, value) = variable(text.as_bytes())?;
        if is_the_launchers(&name) {
            let name = String::from_utf8_lossy(&name);
            let why = format!("the launcher sets {name} itself: leave it out");
            return Err(LaunchError::Option { option: "-x", why });
        }
        variables.push((name, value));
    }
    // Last, so that none of the above takes their place.
    let address = options.hosts.first().map_or("127.0.0.1", |host| &host.address);
    let system = |error: rustix::io::Errno| LaunchError::System("make a token", error.into());
    let mut own = vec![
        ("WORLD_SIZE", options.ranks.to_string()),
        ("MASTER_ADDR", address.to_owned()),
        ("PONTOON_TOKEN", random_hex(TOKEN).map_err(system)?),
    ];
    let name = match &options.job {
        Some(name) => job_name(name)?,
        None => format!("job-{}", random_hex(8).map_err(system)?),
    };
    own.push(("PONTOON_JOB", name));
    variables.extend(own.into_iter().map(|(name, value)| (name.into(), value.into_bytes())));
    Ok(Spec {
        ranks: options.ranks,
        command: options.command.iter().map(|word| word.clone().into_vec()).collect(),
        folder: env::current_dir().map_err(LaunchError::Folder)?.into_os_string().into_vec(),
        variables,
        port: options.port,
        grace: options.grace,
        start_within: options.start_within,
        silence: options.silence,
        tolerance: Tolerance {
            keep_going: options.keep_going,
            ranks: options.tolerate,
            last_words: options.last_words.unwrap_or_default(),
            still: still.or(options.last_words).unwrap_or_default(),
            lead,
        },
    })
}

/// Whether a variable says which process of which job one is, so that ranks would take it for their own:
/// the launcher may run inside another job.
fn is_of_a_job(name: &OsStr) -> bool {
    let own = ["PONTOON_EPOCH", "PONTOON_PORT", "PONTOON_TOKEN_FILE"];
    own.iter().any(|own| name == *own) || name.as_bytes().starts_with(b"TORCHELASTIC_")
}

/// Whether the launcher gives each rank a value of its own, in whose place no other comes.
fn is_the_launchers(name: &[u8]) -> bool {
    const OWN: [&str; 9] = [
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PONTOON_JOB",
        "PONTOON_PORT",
        "PONTOON_TOKEN",
    ];
    OWN.iter().any(|own| name == own.as_bytes())
}

/// Refuses hosts of which some could not reach the first, where rank 0 is.
fn can_meet(hosts: &[Host]) -> Result<(), LaunchError> {
    let Some((first, others)) = hosts.split_first() else { return Ok(()) };
    if !first.is_loopback() || others.iter().all(Host::is_loopback) {
        return Ok(());
    }
    let Host { name, address } = first;
    let why = format!(
        "rank 0 is on {name}, and other hosts cannot reach it by {address}: give an address that \
         they know, as in {name}=10.0.0.1"
    );
    Err(LaunchError::Option { option: "--hosts", why })
}

/// A variable from `NAME=VALUE`, or from `NAME` and the environment.
fn variable(text: &[u8]) -> Result<(Vec<u8>, Vec<u8>), LaunchError> {
    let refused = |why: &str| {
        let why = format!("{:?} {why}", String::from_utf8_lossy(text));
        LaunchError::Option { option: "-x", why }
    };
    let end = text.iter().position(|&byte| byte == b'=');
    let name = &text[..end.unwrap_or(text.len())];
    if name.is_empty() {
        return Err(refused("has no name: expected NAME or NAME=VALUE"));
    }
    let value = match end {
        Some(end) => text[end + 1..].to_vec(),
        None => env::var_os(std::ffi::OsStr::from_bytes(name))
            .ok_or_else(|| refused("is not set here: set it, or give NAME=VALUE"))?
            .into_vec(),
    };
    Ok((name.to_vec(), value))
}

/// A job's name becomes that of files and folders.
fn job_name(name: &str) -> Result<String, LaunchError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= 64 && name.chars().all(is_plain) {
        return Ok(name.to_owned());
    }
    let name = shortened(name);
    let why = format!("{name:?} is no name: expected at most 64 letters, digits, dots and dashes");
    Err(LaunchError::Option { option: "--job", why })
}

fn random_hex(bytes: usize) -> rustix::io::Result<String> {
    let mut random = [0_u8; TOKEN];
    let mut at = 0;
    while at < bytes {
        at += getrandom(&mut random[at..bytes], GetRandomFlags::empty())?;
    }
    let mut text = String::new();
    for byte in &random[..bytes] {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_new_each_time() {
        let [first, second] = [(); 2].map(|()| random_hex(TOKEN).expect("random bytes"));
        assert_eq!(first.len(), 2 * TOKEN);
        assert_ne!(first, second);
        assert!(first.chars().all(|c| c.is_ascii_hexdigit()));
    }

    #[test]
    fn a_shell_has_a_place_for_the_host() {
        let words = shell("ip netns  exec {host}").expect("words");
        assert_eq!(words, ["ip", "netns", "exec", "{host}"]);
        shell("ssh").expect_err("no place");
        shell("").expect_err("nothing");
    }

    #[test]
    fn names_and_variables_are_checked() {
        assert_eq!(job_name("a.b-c_7").expect("a name"), "a.b-c_7");
        for bad in ["", "a/b", "..", "-a", "a b", &"x".repeat(65)] {
            job_name(bad).expect_err(bad);
        }
        let long = job_name(&"x".repeat(5000)).expect_err("too long").to_string();
        assert!(
            long.contains("xx…\" is no name: expected at most 64") && long.len() < 200,
            "{long}"
        );
        let pair = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        assert_eq!(variable(b"A=b=c\xff").expect("a pair"), pair(b"A", b"b=c\xff"));
        assert_eq!(variable(b"A=").expect("a pair"), pair(b"A", b""));
        variable(b"=b").expect_err("no name");
        variable(b"SURELY_NOT_SET_ANYWHERE").expect_err("not set");
    }
}
