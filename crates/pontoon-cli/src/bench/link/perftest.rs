//! The rival over UCX: `ucx_perftest`, a server and a client for each figure.

use std::{
    env,
    ffi::OsStr,
    fmt, fs, io,
    io::Read,
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{bench::pin::CpuPair, launch::rank::COMMAND};

const PROGRAM: &str = "ucx_perftest";
/// How long the server may take to listen, and how long the whole may last.
const LISTENS: Duration = Duration::from_secs(10);
const LASTS: Duration = Duration::from_secs(60);
/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Iterations that are not counted.
const WARM_UP: &str = "100";

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    /// Its name there.
    pub(super) name: &'static str,
    pub(super) bytes: u32,
    pub(super) iterations: u32,
}

/// What it says: microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Said {
    /// Of half of the iterations at most, one way.
    pub(super) median_us: f64,
    /// Of all, an iteration.
    pub(super) overall_us: f64,
}

/// Why there is no figure.
#[derive(Debug)]
pub(super) enum Refused {
    NotInstalled,
    Start(io::Error),
    NotListening,
    TooLong,
    /// It ended so, or said nothing that is a figure.
    Failed(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInstalled => write!(f, "{PROGRAM} is not installed: apt install ucx-utils"),
            Self::Start(error) => write!(f, "{PROGRAM} cannot be started: {error}"),
            Self::NotListening => {
                write!(f, "the server of {PROGRAM} did not listen within {} s", LISTENS.as_secs())
            }
            Self::TooLong => write!(f, "{PROGRAM} did not end within {} s", LASTS.as_secs()),
            Self::Failed(how) => write!(f, "{PROGRAM} gave no figure: {how}"),
        }
    }
}

/// Whether there is such a program in the folders of `path`.
pub(super) fn installed_in(path: &OsStr) -> Result<(), Refused> {
    let is_there = env::split_paths(path).any(|folder| folder.join(PROGRAM).is_file());
    if is_there { Ok(()) } else { Err(Refused::NotInstalled) }
}

/// Measures, with the same variables as the ranks have.
///
/// # Blocks
///
/// A minute or so at most.
pub(super) fn run(test: Test, cpus: CpuPair, variables: &[(&str, &str)]) -> Result<Said, Refused> {
    let free = || Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port());
    let port: u16 = free().map_err(Refused::Start)?;
    let start = |cpu: usize, arguments: &[&str]| -> Result<Running, Refused> {
        let exe = env::current_exe().map_err(Refused::Start)?;
        // By way of this program again, so that none outlives it.
        let mut command = Command::new(exe);
        command.args([COMMAND, "--parent", &std::process::id().to_string(), "--", PROGRAM]);
        command.args(["-f", "-w", WARM_UP, "-p", &port.to_string(), "-c", &cpu.to_string()]);
        command.args(arguments).envs(variables.iter().copied()).env("UCX_LOG_LEVEL", "error");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map(Running).map_err(Refused::Start)
    };
    let mut server = start(cpus.far, &[])?;
    let until = Instant::now() + LISTENS;
    // Looked up: a trial connection would pass for the client.
    while !is_listening(port) {
        if Instant::now() > until || server.ended()?.is_some() {
            return Err(Refused::NotListening);
        }
        thread::sleep(LOOK);
    }
    let (bytes, count) = (test.bytes.to_string(), test.iterations.to_string());
    let mut client = start(cpus.near, &["-t", test.name, "-s", &bytes, "-n", &count, "127.0.0.1"])?;
    let until = Instant::now() + LASTS;
    let status = loop {
        match client.ended()? {
            Some(status) => break status,
            None if Instant::now() > until => return Err(Refused::TooLong),
            None => thread::sleep(LOOK),
        }
    };
    let mut text = String::new();
    if let Some(mut out) = client.0.stdout.take() {
        out.read_to_string(&mut text).map_err(Refused::Start)?;
    }
    said(&text).filter(|_| status.success()).ok_or_else(|| Refused::Failed(status.to_string()))
}

/// A process that ends with this value.
struct Running(Child);

impl Running {
    fn ended(&mut self) -> Result<Option<std::process::ExitStatus>, Refused> {
        self.0.try_wait().map_err(Refused::Start)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_listening(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    tables.iter().flatten().any(|table| listens(table, port))
}

/// Whether a table of the kernel's says that somebody listens: local address in the second column,
/// state (0A) in the fourth.
fn listens(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let local = columns.next().is_some_and(|local| local.ends_with(&port));
        local && columns.nth(1) == Some("0A")
    })
}

/// The last line of its table: iterations, then the median, the average and the overall time.
fn said(text: &str) -> Option<Said> {
    text.lines().rev().find_map(|line| {
        let line = line.trim_start().trim_start_matches("Final:");
        let columns: Option<Vec<f64>> =
            line.split_ascii_whitespace().map(|column| column.parse().ok()).collect();
        match columns?[..] {
            [_, median_us, _, overall_us, _, _, _, _] => Some(Said { median_us, overall_us }),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{Said, listens, said};

    #[test]
    fn its_table_is_read_in_both_forms() {
        let table = "+--------------+--------------+----------+---------+---------+\n\
            |     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |\n\
            +--------------+--------------+----------+---------+---------+\n";
        let expected = Some(Said { median_us: 14.508, overall_us: 1522.284 });
        let row =
            "  1000     14.508   265.494  1522.284        0.03       0.01        3767         657";
        assert_eq!(said(&format!("{table}{row}\n")), expected);
        assert_eq!(said(&format!("{table}Final:{row}\n")), expected);
        assert_eq!((said(table), said("1 2 3\n"), said("")), (None, None, None));
    }

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 00000000:35D1 00000000:0000 0A 00000000:00000000\n\
            1: 0100007F:1F90 0100007F:A1B2 01 00000000:00000000\n";
        assert!(listens(table, 0x35D1));
        assert!(!listens(table, 0x1F90) && !listens(table, 0xA1B2) && !listens(table, 0));
    }
}
