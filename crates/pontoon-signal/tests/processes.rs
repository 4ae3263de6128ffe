//! Tables shared by real processes: this binary starts itself again as the peer.
#![cfg(not(pontoon_loom))]

use pontoon_signal::{
    Bound, ClaimError, LINE_BYTES, OpenError, Producer, Rank, Seq, SignalTable, SlotId,
    SystemError, TableShape, WaitError,
};
use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, SealFlags},
    io::Errno,
};
use std::{
    env,
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::fd::AsRawFd,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

const ROLE: &str = "PONTOON_TEST_ROLE";
const TABLE: &str = "PONTOON_TEST_TABLE";
const STARTS: [u64; 3] = [0, u32::MAX as u64 - 1, u64::MAX - 1];
const OURS: SlotId = SlotId::new(7, 0);
const THEIRS: SlotId = SlotId::new(8, 0);
const ROUNDS: u32 = 1_000;

fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn asleep() -> Bound {
    patient().spinning(0).yielding(0)
}

fn each_start(test: impl Fn(SignalTable, Seq)) {
    for start in STARTS.map(Seq::new) {
        let shape = TableShape::new(2, 1).first_rank(Rank(7)).starting_at(start);
        test(SignalTable::shared(shape).unwrap(), start);
    }
}

/// A child process, killed when a test fails half-way.
struct Peer(Child);

impl Peer {
    /// Starts this binary as `role`, with the way to `table`'s file.
    fn start(role: &str, table: &SignalTable) -> Self {
        let fd = table.file().expect("a shared table").as_raw_fd();
        let path = format!("/proc/{}/fd/{fd}", std::process::id());
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "peer", "--nocapture"]).env(ROLE, role).env(TABLE, path);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn end(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reopen(table: &SignalTable) -> File {
    let path = format!("/proc/self/fd/{}", table.file().unwrap().as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// What the child process does; nothing in the parent.
#[test]
fn peer() {
    let Ok(role) = env::var(ROLE) else { return };
    let path = env::var(TABLE).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let table = SignalTable::open(OwnedFd::from(file)).unwrap();
    let (waiter, start) = (table.waiter(OURS).unwrap(), table.waiter(THEIRS).unwrap().value());
    let mut publisher = match table.publisher(THEIRS) {
        Ok(publisher) => publisher,
        Err(ClaimError::Taken { by, .. }) if role == "late" => {
            std::process::exit(if by.pid == std::os::unix::process::parent_id() { 9 } else { 1 })
        }
        Err(other) => panic!("{other}"),
    };
    match role.as_str() {
        "echo" | "sleepy echo" => {
            let bound = if role == "echo" { patient() } else { asleep() };
            for round in 1..=ROUNDS {
                let _ = waiter.wait_ge_bounded(start + round, bound).unwrap().acq_fence();
                publisher.pub_release(1);
            }
        }
        "hang" => {
            publisher.pub_release(1);
            let _ = waiter.wait_ge_bounded(start + 1, Bound::within(Duration::from_secs(60)));
        }
        "publish and leave" => drop(publisher.pub_release_set(start + 5)),
        other => panic!("no role {other}"),
    }
}

fn ping_pong(role: &str, bound: Bound) {
    each_start(|table, start| {
        let peer = Peer::start(role, &table);
        let waiter = table.waiter(THEIRS).unwrap();
        let mut publisher = table.publisher(OURS).unwrap();
        for round in 1..=ROUNDS {
            publisher.pub_release(1);
            let seen = waiter.wait_ge_bounded(start + round, bound).unwrap().acq_fence();
            assert_eq!(seen.value(), start + round);
        }
        assert!(peer.end().success());
        let error = waiter.wait_ge_bounded(start + ROUNDS + 1, bound).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { rank: Rank(8), .. }), "{error}");
    });
}

#[test]
fn two_processes_play_ping_pong() {
    ping_pong("echo", patient());
}

/// A wake that does not arrive costs each side the 20 ms after which a sleeper looks again: 40 s
/// a game, where all wakes take some 0.1 s.
#[test]
fn a_sleeper_in_another_process_is_woken() {
    let start = Instant::now();
    ping_pong("sleepy echo", asleep());
    let took = start.elapsed();
    println!("{} rounds asleep: {took:?}", STARTS.len() as u32 * ROUNDS);
    assert!(took < Duration::from_secs(60), "{took:?}: wakes are lost");
}

/// Nothing tells of the death yet, so the wait runs into its bound; but it names the dead.
#[test]
fn a_killed_producer_is_named_by_the_time_out() {
    each_start(|table, start| {
        let peer = Peer::start("hang", &table);
        let waiter = table.waiter(THEIRS).unwrap();
        let _ = waiter.wait_ge_bounded(start + 1, patient()).unwrap().acq_fence();
        let line = table.line(THEIRS).unwrap();
        let watchdog = Instant::now();
        while line.last_publish().is_none() {
            // The time is noted after the value.
            assert!(watchdog.elapsed() < Duration::from_secs(30), "the time is never noted");
            std::thread::yield_now();
        }
        let pid = peer.pid();
        peer.kill();
        let bound = Bound::within(Duration::from_millis(5));
        let error = waiter.wait_ge_bounded(start + 2, bound).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        let dead = Producer { rank: Rank(8), generation: 1, pid };
        assert_eq!((error.at().producer, error.at().found), (Some(dead), start + 1));
        assert!(error.to_string().contains(&format!("ago by pid {pid}")), "{error}");
        let refused = table.publisher(THEIRS).unwrap_err();
        assert_eq!(refused, ClaimError::Taken { slot: THEIRS, by: dead });
    });
}

#[test]
fn a_process_that_leaves_ends_its_line() {
    each_start(|table, start| {
        let peer = Peer::start("publish and leave", &table);
        let waiter = table.waiter(THEIRS).unwrap();
        let _ = waiter.wait_ge_bounded(start + 5, asleep()).unwrap().acq_fence();
        let error = waiter.wait_ge_bounded(start + 6, asleep()).unwrap_err();
        assert!(matches!(error, WaitError::PeerDead { .. }), "{error}");
        assert!(peer.end().success());
        let successor = table.publisher(THEIRS).unwrap();
        assert_eq!(successor.value(), start + 5);
    });
}

#[test]
fn a_claim_holds_against_other_processes() {
    each_start(|table, _| {
        let _held = table.publisher(THEIRS).unwrap();
        assert_eq!(Peer::start("late", &table).end().code(), Some(9), "it names this process");
    });
}

#[test]
fn a_payload_is_not_for_shared_tables() {
    let table = SignalTable::shared(TableShape::new(1, 1)).unwrap();
    let mut publisher = table.publisher(SlotId::new(0, 0)).unwrap();
    let promise = std::panic::AssertUnwindSafe(|| drop(publisher.promise::<u8>()));
    let sentence = *std::panic::catch_unwind(promise).unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(sentence, "a payload needs a signal table of this process alone");
}

#[test]
fn the_header_carries_the_shape() {
    let shape = TableShape::new(3, 2).first_rank(Rank(4)).starting_at(Seq::new(99)).traced(1);
    let table = SignalTable::shared(shape).unwrap();
    let theirs = SignalTable::open(OwnedFd::from(reopen(&table))).unwrap();
    let slot = SlotId::new(6, 1);
    let mut publisher = theirs.publisher(slot).unwrap();
    assert_eq!(publisher.pub_release(1), Seq::new(100));
    let _ = table.waiter(slot).unwrap().try_wait(Seq::new(100)).unwrap().unwrap().acq_fence();
    let points = table.time_points().0;
    assert!(points.len() == 1 && points[0].published.0 > 0, "the publisher knew of the trace");
    assert!(theirs.time_points().0.is_empty(), "the opener records nothing unless it asks");
    let traced = SignalTable::open_traced(OwnedFd::from(reopen(&table)), 1).unwrap();
    let _ = traced.waiter(slot).unwrap().try_wait(Seq::new(100)).unwrap().unwrap().acq_fence();
    let points = traced.time_points().0;
    assert!(points.len() == 1 && points[0].published <= points[0].observed, "{points:?}");
    assert!(theirs.waiter(SlotId::new(7, 0)).is_err() && theirs.waiter(SlotId::new(3, 0)).is_err());
}

/// The bytes of a good table, to be spoiled.
fn good() -> Vec<u8> {
    let table = SignalTable::shared(TableShape::new(2, 40)).unwrap();
    let mut bytes = Vec::new();
    reopen(&table).read_to_end(&mut bytes).unwrap();
    bytes
}

fn open(bytes: &[u8], seals: SealFlags) -> Result<SignalTable, OpenError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("spoiled", flags).unwrap();
    let mut file = File::from(file);
    file.write_all(bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    SignalTable::open(OwnedFd::from(file))
}

#[test]
fn files_that_are_no_tables_are_refused_by_name() {
    let sealed = SealFlags::SHRINK;
    assert!(open(&good(), sealed).is_ok());
    let unsealed = open(&good(), SealFlags::GROW).unwrap_err();
    assert_eq!(unsealed, OpenError::Unsealed);
    assert!(unsealed.to_string().starts_with("the file is not sealed against shrinking"));
    let empty = OpenError::Truncated { bytes: 0, wanted: LINE_BYTES };
    assert_eq!(open(&[], sealed).unwrap_err(), empty);
    let read_only = open(&good(), sealed | SealFlags::WRITE).unwrap_err();
    let code = Errno::PERM.raw_os_error();
    assert_eq!(read_only, OpenError::System(SystemError { call: "mmap", code }));

    let noise: Vec<u8> = (0..4096u32).map(|byte| (byte * 7 + 3) as u8).collect();
    let found = u64::from_ne_bytes(noise[..8].try_into().unwrap());
    assert_eq!(open(&noise, sealed).unwrap_err(), OpenError::NotATable { found });
    let short = OpenError::Truncated { bytes: 5, wanted: LINE_BYTES };
    assert_eq!(open(b"short", sealed).unwrap_err(), short);

    let spoil = |offset: usize, bytes: &[u8]| {
        let mut table = good();
        table[offset..offset + bytes.len()].copy_from_slice(bytes);
        open(&table, sealed).unwrap_err()
    };
    let magic: [u8; 8] = good()[..8].try_into().unwrap();
    let mut swapped = magic;
    swapped.reverse();
    assert_eq!(spoil(0, &swapped), OpenError::ByteOrder);
    let ours = (2, 128);
    assert_eq!(spoil(8, &9u32.to_ne_bytes()), OpenError::Version { theirs: (9, 128), ours });
    assert_eq!(spoil(12, &64u32.to_ne_bytes()), OpenError::Version { theirs: (2, 64), ours });
    assert_eq!(spoil(20, &0u32.to_ne_bytes()), OpenError::Empty);
    assert_eq!(spoil(20, &[255; 8]), OpenError::TooLarge { shape: (u32::MAX, u32::MAX) });

    let (cut, whole) = (8192, 81 * LINE_BYTES);
    let truncated = open(&good()[..cut], sealed).unwrap_err();
    assert_eq!(truncated, OpenError::Truncated { bytes: cut, wanted: whole });
    let text = "signal table of 8192 bytes is cut off: its header asks for 10368";
    assert_eq!(truncated.to_string(), text);

    let plain = File::open(env::current_exe().unwrap()).unwrap();
    assert_eq!(SignalTable::open(OwnedFd::from(plain)).unwrap_err(), OpenError::Unsealed);
}

/// Whatever a peer leaves in the lines, this side's calls return.
#[test]
fn lines_full_of_noise_break_nothing_here() {
    let shape = TableShape::new(2, 20);
    let table = SignalTable::shared(shape).unwrap();
    let mut file = reopen(&table);
    let mut state = 1u64;
    for _ in 0..50 {
        let noise: Vec<u8> = (0..40 * LINE_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if state >> 63 == 0 { (state >> 33) as u8 } else { 0 }
            })
            .collect();
        file.seek(SeekFrom::Start(LINE_BYTES as u64)).unwrap();
        file.write_all(&noise).unwrap();
        for slot in (0..40).map(|index| SlotId::new(index / 20, index % 20)) {
            let waiter = table.waiter(slot).unwrap();
            let bound = Bound::within(Duration::from_micros(50)).spinning(0).yielding(0);
            match waiter.wait_ge_bounded(waiter.value() + 1, bound) {
                Ok(observed) => drop(observed.acq_fence()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            if let Ok(mut publisher) = table.publisher(slot) {
                publisher.pub_release(1);
            }
            if let Ok(publisher) = table.shared_publisher(slot) {
                publisher.pub_release(1);
            }
        }
    }
}
