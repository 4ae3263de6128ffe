//! What the tests of ranks share: jobs whose ranks the test starts itself, and patience.
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod hosts;
pub(crate) mod outcome;

use std::{
    env, io,
    io::Read,
    net::TcpListener,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Mutex,
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Far beyond what any of these runs takes: it catches a hang, not a slow machine.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);
/// A job's token; what `openssl rand -hex 32` might give.
pub(crate) const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Where a job of a test meets. Each has a loopback address of its own, so that no other job, and
/// no port that the system gives out, gets in its way.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: Mutex<u32> = Mutex::new(0);
        let mut next = NEXT.lock().expect("no panic");
        *next += 1;
        let pid = std::process::id();
        let host = format!("127.{}.{}.{}", 1 + pid % 254, 1 + (*next >> 8), *next % 256);
        let port = TcpListener::bind((&*host, 0)).and_then(|listener| listener.local_addr());
        Self { host, port: port.expect("a free port").port() }
    }

    /// What tells a process that it is `rank` of `world` here.
    pub(crate) fn variables(&self, rank: u32, world: u32) -> Vec<(&'static str, String)> {
        vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", world.to_string()),
            ("MASTER_ADDR", self.host.clone()),
            ("MASTER_PORT", self.port.to_string()),
            ("PONTOON_JOB", "test".to_owned()),
            ("PONTOON_TOKEN", TOKEN.to_owned()),
        ]
    }

    /// Starts rank `rank` of `world`.
    pub(crate) fn start(&self, rank: u32, world: u32, arguments: &[&str]) -> Process {
        let mut command = rank_command(arguments);
        command.envs(self.variables(rank, world));
        Process::start(&mut command)
    }

    /// Starts all ranks of a job.
    pub(crate) fn start_all(&self, world: u32, arguments: &[&str]) -> Vec<Process> {
        (0..world).map(|rank| self.start(rank, world, arguments)).collect()
    }
}

/// The command of a rank, without the variables that say which.
pub(crate) fn rank_command(arguments: &[&str]) -> Command {
    let mut command = pontoon(&["train", "--join"]);
    command.args(arguments);
    command
}

/// The program, in an environment that says nothing of a job.
pub(crate) fn pontoon(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pontoon"));
    let of_a_job = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PONTOON_TOKEN"];
    for name in of_a_job {
        command.env_remove(name);
    }
    command.args(arguments).env("PONTOON_PROFILE", "/nonexistent/profile");
    command
}

/// A process whose output is read all the while, or it would wait for that. It ends with this value.
pub(crate) struct Process {
    child: Child,
    streams: Option<[JoinHandle<Vec<u8>>; 2]>,
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let out = all_of(child.stdout.take().expect("piped"));
        let err = all_of(child.stderr.take().expect("piped"));
        Self { child, streams: Some([out, err]) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal; whether the process was still there. It is not reaped before this value
    /// looks, so its pid is its own.
    pub(crate) fn signal(&mut self, signal: Signal) -> bool {
        if self.has_ended() {
            return false;
        }
        let pid = Pid::from_child(&self.child);
        // One that ended since then is none the worse.
        kill_process(pid, signal).is_ok()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for its end; fails if it does not come by `deadline`.
    pub(crate) fn end_by(mut self, deadline: Instant, what: &str) -> Ended {
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let [out, err] =
                    self.streams.take().expect("once").map(|stream| {
                        String::from_utf8(stream.join().expect("read")).expect("text")
                    });
                return Ended { status, out, err };
            }
            if Instant::now() > deadline {
                let wchan = std::fs::read_to_string(format!("/proc/{}/wchan", self.pid()));
                panic!("{what}: hangs (pid {}, in {wchan:?})", self.pid());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn end(self, what: &str) -> Ended {
        self.end_by(Instant::now() + WATCHDOG, what)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn all_of(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        let read: io::Result<usize> = stream.read_to_end(&mut all);
        read.expect("read");
        all
    })
}

impl Ended {
    /// What a rank 0 with `--json` printed.
    pub(crate) fn json(&self) -> Value {
        // When a process ends UCX may have a last word, which goes where it likes.
        let mut objects = self.out.lines().filter(|line| line.starts_with('{'));
        let last = objects.next_back().unwrap_or_else(|| panic!("no object: {self:?}"));
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"))
    }

    /// The line that says why it failed. It is the last one, and the only one of its kind.
    pub(crate) fn error(&self) -> &str {
        let mut errors = self.err.lines().filter(|line| line.contains("error: "));
        let error = errors.next_back().unwrap_or_else(|| panic!("no error: {self:?}"));
        assert!(errors.next().is_none(), "two errors: {self:?}");
        assert!(!self.err.contains("panicked at"), "{self:?}");
        error
    }

    /// It refused what it was asked, in one line; that line.
    #[track_caller]
    pub(crate) fn refusal(&self) -> &str {
        assert_eq!(self.status.code(), Some(2), "{self:?}");
        assert_eq!((self.out.as_str(), self.err.lines().count()), ("", 1), "{self:?}");
        self.error()
    }
}

/// Numbers that are as good as chance, and the same again for the same seed.
pub(crate) struct Chance(u64);

impl Chance {
    /// From `PONTOON_SEED`, or from the time; says which.
    pub(crate) fn new(what: &str) -> Self {
        let given = env::var("PONTOON_SEED").ok().map(|text| text.parse().expect("a number"));
        let seed = given.unwrap_or_else(|| {
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            time.map_or(1, |time| time.as_nanos() as u64)
        });
        println!("{what}: PONTOON_SEED={seed}");
        Self(seed)
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }

    /// A part of `whole`.
    pub(crate) fn part(&mut self, whole: Duration) -> Duration {
        whole.mul_f64(self.below(1 << 20) as f64 / f64::from(1 << 20))
    }
}

/// A number from the environment, or `default`.
pub(crate) fn number(name: &str, default: u32) -> u32 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
