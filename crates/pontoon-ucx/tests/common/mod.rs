//! Two processes: the test and a peer, which is this binary again.
#![allow(dead_code, reason = "each test uses its part")]

use std::{
    env, fmt,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, OnceLock},
    time::Duration,
};

use pontoon_hal::conformance::part::needed;
use pontoon_signal::{Bound, SharedMap, shim::Ordering::Relaxed};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use pontoon_ucx::{
    Body, Context, Endpoint, Handler, Library, OpenError, Options, Place, Region, Remote, Status,
    Worker,
};

pub(crate) const ROLE: &str = "PONTOON_TEST_ROLE";
/// Endpoints that do not notice a peer's death, for measuring.
const BLIND: &str = "PONTOON_TEST_BLIND";
pub(crate) const OVER: &str = "PONTOON_TEST_OVER";
pub(crate) const MEMORY: &str = "PONTOON_TEST_MEMORY";
/// The layout of every region: a word a signal in the first page, data from there on.
pub(crate) const SIGNAL: usize = 0;
pub(crate) const SECOND: usize = 64;
pub(crate) const DATA: usize = 4096;
pub(crate) const LARGEST: usize = 4 << 20;
/// The message that `Apply` takes.
pub(crate) const APPLY: u16 = 1;
pub(crate) const SIZES: [usize; 9] = [0, 1, 8, 255, 4096, 65_539, 1 << 18, 1 << 20, LARGEST];

pub(crate) fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

/// A transport to be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Tcp,
    Posix,
    /// Whatever UCX chooses of all there is.
    Auto,
}

impl Over {
    pub(crate) const ALL: [Self; 3] = [Self::Tcp, Self::Posix, Self::Auto];

    pub(crate) fn options(self) -> Options {
        let options = match self {
            Self::Tcp => Options::default().transports("tcp").devices("lo"),
            Self::Posix => Options::default().transports("posix"),
            Self::Auto => Options::default(),
        };
        if env::var_os(BLIND).is_some() { options.without_peer_errors() } else { options }
    }

    fn of(name: &str) -> Self {
        Self::ALL.into_iter().find(|over| over.to_string() == name).unwrap()
    }
}

/// Whose memory the regions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Allocated,
    Mapped,
}

impl Memory {
    pub(crate) const ALL: [Self; 2] = [Self::Allocated, Self::Mapped];

    pub(crate) fn region(self, context: &Context, bytes: usize) -> Region {
        match self {
            Self::Allocated => context.allocate(bytes).unwrap(),
            Self::Mapped => {
                context.map(Arc::new(SharedMap::create("ucx-test", bytes).unwrap())).unwrap()
            }
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The library, or a line why the test is skipped.
pub(crate) fn library() -> Option<&'static Library> {
    match Library::open() {
        Err(other) if !matches!(other, OpenError::LibraryAbsent { .. }) => panic!("{other}"),
        opened => needed("ucx", opened),
    }
}

/// One side: everything it needs, and nothing of the other's yet.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) worker: Worker,
    pub(crate) region: Region,
}

impl Side {
    pub(crate) fn new(over: Over, memory: Memory) -> Option<Self> {
        Self::with(over.options(), memory)
    }

    pub(crate) fn with(options: Options, memory: Memory) -> Option<Self> {
        let context = Context::open(library()?, options).unwrap();
        let region = memory.region(&context, DATA + LARGEST);
        let worker = context.worker().unwrap();
        worker.handle(APPLY, Box::new(Apply { region: region.clone() })).unwrap();
        Some(Self { context, worker, region })
    }

    pub(crate) fn signal(&self) -> u64 {
        self.region.word(SIGNAL).unwrap().load(Relaxed)
    }

    /// Makes progress until the first signal is there.
    pub(crate) fn wait_for(&self, wanted: u64) {
        let word = self.region.word(SIGNAL).unwrap();
        let waited = self.worker.wait_until(patient(), || word.load(Relaxed) >= wanted).unwrap();
        assert_eq!(waited, Ok(()), "the signal is at {}, not {wanted}", word.load(Relaxed));
    }
}

/// Puts data where the header says, and then adds one to a signal.
pub(crate) struct Apply {
    pub(crate) region: Region,
}

/// The header that `Apply` reads: where the data go, and which signal grows.
pub(crate) fn apply(offset: usize, signal: usize) -> [u8; 16] {
    let mut header = [0; 16];
    header[..8].copy_from_slice(&(offset as u64).to_le_bytes());
    header[8..].copy_from_slice(&(signal as u64).to_le_bytes());
    header
}

/// The message that `Answer` takes: what is asked of the peer's memory, and answered by `APPLY`.
pub(crate) const ASK: u16 = 2;

/// Answers: a compare-and-swap (`expected`, `new`) or, without bytes to compare, a read.
pub(crate) struct Answer {
    pub(crate) region: Region,
    pub(crate) back: Arc<OnceLock<Endpoint>>,
}

/// The header that `Answer` reads.
pub(crate) fn ask(at: usize, bytes: usize, expected: u64, new: u64) -> Vec<u8> {
    [at as u64, bytes as u64, expected, new].iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Handler for Answer {
    fn arrived(&mut self, header: &[u8], _: usize) -> Option<Place> {
        let (at, bytes) = (word(header, 0)?, word(header, 8)?);
        let (expected, new) = (word(header, 16)? as u64, word(header, 24)? as u64);
        let back = self.back.get()?;
        if bytes > 0 {
            let body = Body::Of { region: &self.region, offset: at, bytes };
            back.send_later(APPLY, &apply(DATA, SIGNAL), body);
            return None;
        }
        let swapped = self.region.word(at).ok()?.compare_exchange(expected, new, Relaxed, Relaxed);
        let (Ok(found) | Err(found)) = swapped;
        back.send_later(APPLY, &apply(DATA, SIGNAL), Body::Copied(&found.to_le_bytes()));
        None
    }

    fn landed(&mut self, _: &[u8], _: Result<usize, Status>) {}
}

fn word(header: &[u8], at: usize) -> Option<usize> {
    Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?) as usize)
}

impl Handler for Apply {
    fn arrived(&mut self, header: &[u8], _: usize) -> Option<Place> {
        Some(Place { region: self.region.clone(), offset: word(header, 0)? })
    }

    fn landed(&mut self, header: &[u8], outcome: Result<usize, Status>) {
        if let (Ok(_), Some(signal)) = (outcome, word(header, 8))
            && let Ok(word) = self.region.word(signal)
        {
            word.fetch_add(1, Relaxed);
        }
    }
}

/// The other process, killed when a test fails half-way.
pub(crate) struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts this binary as `role`.
    pub(crate) fn start(role: &str, over: Over, memory: Memory) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "peer", "--nocapture"])
            .env(ROLE, role)
            .env(OVER, format!("{over:?}"))
            .env(MEMORY, format!("{memory:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Gives both sides the other's address and key, and connects them.
    pub(crate) fn connect(&mut self, side: &Side) -> (Endpoint, Remote) {
        let (address, key) = (side.worker.address().unwrap(), side.region.key().unwrap());
        self.say(&hex(&address));
        self.say(&hex(&key));
        let (address, key) = (self.hear(), self.hear());
        let name = format!("pid {}", self.pid());
        let endpoint = side.worker.connect(&name, &unhex(&address)).unwrap();
        let remote = endpoint.remote(&unhex(&key)).unwrap();
        (endpoint, remote)
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// The next line that the peer said; what the test harness prints is left out.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the peer has ended");
            if let Some((_, said)) = line.trim_end().split_once('@') {
                return said.to_owned();
            }
        }
    }

    /// Stops it, and waits until it stands still.
    pub(crate) fn stop(&self) {
        let pid = Pid::from_raw(self.pid()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap().1;
        assert!(stopped.stopped(), "{stopped:?}");
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), Signal::CONT).unwrap();
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn end(mut self) {
        self.say("end");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's end of `Peer::connect`, in the other process: its side, and the way back.
pub(crate) struct Child2 {
    pub(crate) side: Side,
    pub(crate) endpoint: Endpoint,
    pub(crate) remote: Remote,
}

/// What this process is to be, if it is a peer.
pub(crate) fn role() -> Option<(String, Child2)> {
    let role = env::var(ROLE).ok()?;
    let over = Over::of(&env::var(OVER).unwrap());
    let memory =
        if env::var(MEMORY).unwrap() == "Mapped" { Memory::Mapped } else { Memory::Allocated };
    let side = Side::new(over, memory).expect("the test has opened the library as well");
    say(&hex(&side.worker.address().unwrap()));
    say(&hex(&side.region.key().unwrap()));
    let back = Arc::new(OnceLock::new());
    let answer = Answer { region: side.region.clone(), back: Arc::clone(&back) };
    side.worker.handle(ASK, Box::new(answer)).unwrap();
    let (address, key) = (hear(), hear());
    let endpoint = side.worker.connect("the test", &unhex(&address)).unwrap();
    let remote = endpoint.remote(&unhex(&key)).unwrap();
    let _ = back.set(endpoint.clone());
    Some((role, Child2 { side, endpoint, remote }))
}

pub(crate) fn say(line: &str) {
    println!("@{line}");
}

pub(crate) fn hear() -> String {
    let mut line = String::new();
    // A test that ended left an empty line's worth.
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Bytes that tell their place and `seed`.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut filled = vec![0; bytes.next_multiple_of(8)];
    for chunk in filled.chunks_exact_mut(8) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&(state ^ state >> 31).to_le_bytes());
    }
    filled.truncate(bytes);
    filled
}
