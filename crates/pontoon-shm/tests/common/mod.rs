//! What the tests over processes share: a folder of their own, ranks, and this binary as a peer.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use pontoon_hal::link::{Link, RegionKey, Registered, Remote};
use pontoon_shm::{Handover, JobFolder, Secret, ShmLink, fetch, identity};
use pontoon_signal::{Block, Bound, Rank, Segment, SegmentShape};

pub(crate) const SECRET: Secret = Secret::new(*b"a test's secret.");
const ROLE: &str = "PONTOON_TEST_ROLE";
const BASE: &str = "PONTOON_TEST_BASE";
const RANK: &str = "PONTOON_TEST_RANK";
pub(crate) const JOB: &str = "job";
pub(crate) const WORLD: u32 = 3;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn patient() -> Bound {
    Bound::within(PATIENCE)
}

/// A folder that is gone when the test is over.
pub(crate) struct Base(pub(crate) PathBuf);

impl Base {
    pub(crate) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("pontoon-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A rank of a job of processes. Its parts end in this order.
pub(crate) struct Process {
    pub(crate) link: ShmLink,
    pub(crate) segment: Segment,
    pub(crate) handover: Handover,
    pub(crate) folder: JobFolder,
}

impl Process {
    pub(crate) fn join(base: &Path, rank: u32, epoch: u32) -> Self {
        let folder = JobFolder::join(base, JOB).unwrap();
        let whose = identity(*b"a job of a test.", Rank(rank), WORLD, epoch);
        folder.own(&whose).unwrap();
        let segment = Segment::create(SegmentShape::new(WORLD, 2, 8 << 20), whose).unwrap();
        let file = segment.file().unwrap().try_clone_to_owned().unwrap();
        let handover = Handover::serve(&folder, Rank(rank), file, SECRET).unwrap();
        let link = ShmLink::new(segment.clone());
        Self { link, segment, handover, folder }
    }

    pub(crate) fn fetched(&self, rank: u32) -> Segment {
        let file = fetch(&self.folder.socket(Rank(rank)), &SECRET, patient()).unwrap();
        Segment::open(file).unwrap()
    }

    pub(crate) fn connect(&self, rank: u32) {
        self.link.connect(Rank(rank), self.fetched(rank)).unwrap();
    }

    pub(crate) fn registered(&self, bytes: usize) -> Registered {
        self.link.register(&self.segment.allocate(bytes).unwrap()).unwrap()
    }

    pub(crate) fn attach(&self, rank: u32, hex: &str) -> Remote {
        self.link.attach(Rank(rank), &unhex(hex)).unwrap()
    }
}

/// This binary as another rank, killed when a test fails half-way.
pub(crate) struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn start(role: &str, base: &Path, rank: u32) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "peer", "--nocapture"]);
        command.env(ROLE, role).env(BASE, base).env(RANK, rank.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, to, from }
    }

    pub(crate) fn id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.id(), signal).unwrap();
    }

    /// What the peer says next by [`say`].
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "the peer has ended");
            // The test harness may have begun the line.
            if let Some((_, said)) = line.split_once(SAID) {
                return said.trim().into();
            }
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    /// Kills it, without waiting for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn end(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SAID: &str = "said: ";

/// Tells the test that started this process.
pub(crate) fn say(line: &str) {
    println!("{SAID}{line}");
}

/// What the test that started this process tells.
pub(crate) fn told() -> String {
    let mut line = String::new();
    assert_ne!(std::io::stdin().read_line(&mut line).unwrap(), 0, "the test has ended");
    line.trim().into()
}

/// Of a process that is a peer: its role, the folder, and its rank.
pub(crate) fn role() -> Option<(String, PathBuf, u32)> {
    let role = env::var(ROLE).ok()?;
    Some((role, env::var_os(BASE)?.into(), env::var(RANK).ok()?.parse().ok()?))
}

pub(crate) fn hex(region: &Registered) -> String {
    region.key().unwrap().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(hex: &str) -> RegionKey {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    RegionKey::from_bytes(bytes).unwrap()
}

pub(crate) fn put(block: &Block, at: usize, word: u64) {
    assert!(at.is_multiple_of(8) && at + 8 <= block.bytes());
    // SAFETY: within the block, as asserted.
    let place = unsafe { block.base().add(at) }.cast::<u64>();
    // SAFETY: aligned, for blocks of these tests begin on pages; volatile, as peers may read it.
    unsafe { place.write_volatile(word) };
}

pub(crate) fn get(block: &Block, at: usize) -> u64 {
    assert!(at.is_multiple_of(8) && at + 8 <= block.bytes());
    // SAFETY: within the block, as asserted.
    let place = unsafe { block.base().add(at) }.cast::<u64>();
    // SAFETY: aligned, for blocks of these tests begin on pages; volatile, as peers may write it.
    unsafe { place.read_volatile() }
}

/// Polls until `done`.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        std::thread::yield_now();
    }
}
