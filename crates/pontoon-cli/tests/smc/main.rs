//! `pontoon smc`: what is stored by one process is read by another, and whoever dies, nobody waits for ever or takes
//! the pattern for data.

#[path = "../common/mod.rs"]
mod common;
mod refusals;

use std::{
    env, fs,
    io::{Read, Seek, SeekFrom, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

use common::{Ended, Place, Process, TOKEN, pontoon};
use pontoon::{hal::conformance::part, ucx::Library};
use rustix::process::Signal;

const PAGE: usize = 4096;

/// Where a server of a test is, and a folder for its files that goes with this value.
struct Bench {
    place: Place,
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("pontoon-smc-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Self { place: Place::new(), folder }
    }

    fn at(&self) -> String {
        format!("{}:{}", self.place.host, self.place.port)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, what: &str, arguments: &[&str]) -> Command {
        let mut command = pontoon(&["smc", what]);
        let side = if what == "serve" { "--listen" } else { "--connect" };
        command.args([side, &self.at()]).env("PONTOON_TOKEN", TOKEN).args(arguments);
        command
    }

    fn serve(&self, arguments: &[&str]) -> Process {
        Process::start(&mut self.command("serve", arguments))
    }

    /// Runs a client to its end, which waits for the server as long as it takes.
    fn client(&self, what: &str, arguments: &[&str]) -> Ended {
        let mut command = self.command(what, arguments);
        command.args(["--join-bound", "60s", "--deadline", "20s"]);
        Process::start(&mut command).end(what)
    }

    /// A client that has read something, and waits for somebody to take what else it reads.
    fn reader(&self, arguments: &[&str]) -> Child {
        let mut command = self.command("cat", arguments);
        command.args(["--join-bound", "60s", "--deadline", "20s"]).stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut first = [0];
        child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a byte");
        child
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn ended_well(ended: &Ended) -> &str {
    assert!(ended.status.success(), "{ended:?}");
    &ended.out
}

fn some_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn what_is_stored_is_read_and_saved_over_shm() {
    round("shm");
}

#[test]
fn what_is_stored_is_read_and_saved_over_ucx() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    round("ucx");
}

fn over<'a>(transport: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["--transport", transport], arguments].concat()
}

fn round(name: &str) {
    let bench = Bench::new(name);
    let mut all = some_bytes(40 * PAGE + 77);
    let file = bench.file("memory", &all);
    let server = bench.serve(&over(name, &["--file", &file, "--save", "--clients", "5"]));

    // Across pages, and over the end of a word on both sides.
    let (at, new) = (PAGE + 3, vec![0xee; 9 * PAGE + 2]);
    let source = bench.file("new", &new);
    let filled = bench.client("fill", &over(name, &["--at", "4099", "--file", &source]));
    let changed = (at..at + new.len()).filter(|&at| all[at] != 0xee).count();
    let line = format!("stored {} bytes: {changed} bytes changed in 10 pages", new.len());
    assert!(ended_well(&filled).contains(&line), "{filled:?}");
    all[at..at + new.len()].fill(0xee);

    let filled =
        bench.client("fill", &over(name, &["--at", "0", "--byte", "0x00", "--bytes", "8K"]));
    assert!(ended_well(&filled).contains("in 2 pages"), "{filled:?}");
    all[..2 * PAGE].fill(0);

    // What is more than the pool has comes through it.
    let copy = bench.folder.join("copy");
    let to = copy.to_str().unwrap();
    let threads = ["-o", to, "--pool", "64", "--class", "64K", "--faults", "threads=2"];
    ended_well(&bench.client("cat", &over(name, &threads)));
    assert!(fs::read(&copy).unwrap() == all);
    ended_well(&bench.client("cat", &over(name, &["-o", to, "--at", "8190", "--bytes", "5"])));
    assert_eq!(fs::read(&copy).unwrap(), all[8190..8195]);

    let stat = bench.client("stat", &over(name, &[]));
    for part in [
        name,
        "163917 bytes, 41 pages",
        "faults        served ",
        "faults served in the thread that made them",
        "fetched       41",
    ] {
        assert!(ended_well(&stat).contains(part), "{part}: {stat:?}");
    }

    let server = server.end("the server");
    let lines: Vec<_> = ended_well(&server).lines().filter(|line| !line.contains("UCX")).collect();
    assert_eq!((lines.len(), server.err.as_str()), (7, ""), "{server:?}");
    assert!(lines[0].contains(&format!("serving 160 KiB (163917 bytes) at {}", bench.at())));
    for (line, changed) in lines[1..].iter().zip(["10 pages", "2 pages", "0 pages", "0 pages"]) {
        assert!(line.contains(&format!("over {name}: changed {changed} of 41 and was done")));
    }
    assert!(lines[6].contains("saved 163917 bytes"), "{lines:?}");
    assert!(fs::read(&file).unwrap() == all);
}

#[test]
fn a_long_file_is_stored_from_where_it_is_read_on() {
    let bench = Bench::new("long");
    let all = some_bytes((3 << 20) + 5);
    let mut file = fs::File::open(bench.file("all", &all)).unwrap();
    let server = bench.serve(&["--bytes", "4M", "--clients", "2"]);
    // To somebody else it has lost its beginning already.
    file.seek(SeekFrom::Start(9)).unwrap();
    let mut command = bench.command("fill", &["--at", "3", "--join-bound", "60s"]);
    let filled = command.stdin(file).output().expect("run");
    let said = String::from_utf8(filled.stdout).expect("text");
    assert!(said.starts_with(&format!("stored {} bytes: ", all.len() - 9)), "{said}");

    let copy = bench.folder.join("copy");
    let to = ["-o", copy.to_str().unwrap(), "--at", "3", "--bytes", &(all.len() - 9).to_string()];
    ended_well(&bench.client("cat", &to));
    assert!(fs::read(&copy).unwrap() == all[9..]);
    ended_well(&server.end("the server"));
}

#[test]
fn a_bench_tells_its_figures_and_leaves_the_memory_as_it_was() {
    let bench = Bench::new("measured");
    let all = some_bytes((4 << 20) + 5);
    let file = bench.file("memory", &all);
    let server = bench.serve(&["--file", &file, "--save", "--clients", "2"]);
    let told = bench.client("bench", &["--quick", "--json"]);
    let reads = ["smc/miss", "smc/prefetch/page", "smc/acquire/clean", "smc/bulk/ratio/copy"];
    let writes = ["smc/release/64", "smc/release/256", "smc/registrations"];
    for (names, are_there) in [(&reads[..], true), (&writes[..], false)] {
        for name in names {
            let is_there = ended_well(&told).contains(&format!("{{\"name\": \"{name}\", "));
            assert_eq!(is_there, are_there, "{name}: {told:?}");
        }
    }
    let told = bench.client("bench", &["--quick", "--write", "--faults", "threads=1"]);
    for name in [reads, [writes[0], writes[1], writes[2], "smc/break_even"]].concat() {
        assert!(ended_well(&told).contains(&format!("{name} ")), "{name}: {told:?}");
    }
    ended_well(&server.end("the server"));
    assert!(fs::read(&file).unwrap() == all, "the memory is another");
}

#[test]
fn a_bench_whose_server_dies_has_no_figures() {
    let bench = Bench::new("unmeasured");
    let mut server = bench.serve(&["--bytes", "64M"]);
    let mut command = bench.command("bench", &["--join-bound", "60s", "--write"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    // It is at its first step when its windows have touched that much.
    let status = format!("/proc/{}/status", child.id());
    let shared = || {
        let text = fs::read_to_string(&status).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    while shared() < 16 << 10 {
        assert!(child.try_wait().expect("asked").is_none(), "it ended by itself");
        thread::yield_now();
    }
    assert!(server.signal(Signal::KILL), "the server was there");
    server.end("the server");
    let child = ended(child);
    assert_eq!((child.status.code(), child.out.as_str()), (Some(1), ""), "{child:?}");
    let error = child.err.lines().find(|line| line.starts_with("error: ")).expect("an error");
    assert!(error.starts_with("error: rank 0 is dead: "), "{error}");
    assert!(error.ends_with("may not have been changed back"), "{error}");
}

#[test]
fn a_client_that_is_killed_ends_its_own_world_only() {
    let bench = Bench::new("killed");
    let mut server = bench.serve(&["--bytes", "8M"]);
    let mut reader = bench.reader(&[]);

    // Meanwhile the server is busy, and says so.
    let refused = bench.command("cat", &["--join-bound", "1s"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("has another client, waited ") && said.lines().count() == 1, "{said}");

    reader.kill().unwrap();
    reader.wait().unwrap();
    let filled = fed(bench.command("fill", &["--at", "1M", "--join-bound", "60s"]), b"still here");
    assert!(ended_well(&filled).starts_with("stored 10 bytes: 10 bytes changed in 1 page, "));
    let read = bench.client("cat", &["--at", "1M", "--bytes", "10"]);
    assert_eq!(ended_well(&read), "still here");

    assert!(server.signal(Signal::TERM), "the server was there");
    let server = server.end("the server");
    let lines: Vec<_> = ended_well(&server).lines().collect();
    assert_eq!((lines.len(), server.err.as_str()), (4, ""), "{server:?}");
    assert!(lines[1].contains("did not end well: rank 1 is dead"), "{lines:?}");
}

/// A process that is given its standard input, to its end.
fn fed(mut command: Command, input: &[u8]) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    child.stdin.take().expect("piped").write_all(input).expect("read");
    ended(child)
}

fn ended(child: Child) -> Ended {
    let output = child.wait_with_output().expect("a child");
    let [out, err] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    Ended { status: output.status, out, err }
}

#[test]
fn who_reads_while_the_server_dies_takes_no_pattern_for_data_over_shm() {
    died("shm");
}

#[test]
fn who_reads_while_the_server_dies_takes_no_pattern_for_data_over_ucx() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    died("ucx");
}

fn died(transport: &str) {
    let bench = Bench::new(&format!("died-{transport}"));
    let file = bench.file("memory", &vec![b'z'; 16 << 20]);
    let mut server = bench.serve(&["--file", &file, "--transport", transport]);
    let reader = bench.reader(&["--transport", transport]);
    assert!(server.signal(Signal::KILL), "the server was there");
    server.end("the server");
    let reader = ended(reader);
    assert_eq!(reader.status.code(), Some(1), "{}", reader.err);
    let other = reader.out.bytes().find(|&byte| byte != b'z');
    assert!(other.is_none(), "{other:?} among {} bytes", reader.out.len());
    let error = reader.err.lines().find(|line| line.starts_with("error: ")).expect("an error");
    assert!(error.starts_with("error: rank 0 is dead: "), "{error}");
    assert!(error.contains("the pattern"), "{error}");
}

#[test]
fn who_has_read_all_before_the_server_ends_is_warned_only() {
    let bench = Bench::new("after");
    let all = some_bytes(256 << 10);
    let mut server = bench.serve(&["--file", &bench.file("memory", &all)]);
    // It reads all at once, and has more to write than a pipe holds.
    let mut reader = bench.reader(&[]);
    assert!(server.signal(Signal::TERM), "the server was there");
    let server = server.end("the server");
    assert!(ended_well(&server).contains("and was cut off"), "{server:?}");
    let mut out = reader.stdout.take().expect("piped");
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).expect("read");
    assert!(rest == all[1..], "{} bytes", rest.len());
    let reader = ended(reader);
    assert_eq!(reader.status.code(), Some(0), "{reader:?}");
    let warnings: Vec<_> = reader.err.lines().filter(|line| !line.contains("UCX")).collect();
    assert_eq!(warnings.len(), 1, "{reader:?}");
    assert!(warnings[0].starts_with("warning: rank 0 "), "{reader:?}");
    assert!(
        warnings[0].ends_with("; 262144 bytes were read and written before that"),
        "{reader:?}"
    );
}

#[test]
fn who_stores_while_the_server_ends_is_told_that_it_did_not_take_it() {
    let bench = Bench::new("ended");
    let mut server = bench.serve(&["--bytes", "1M"]);
    let mut command = bench.command("fill", &["--join-bound", "60s"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // It takes its input once it is connected, and more than a pipe holds.
    let mut input = child.stdin.take().expect("piped");
    input.write_all(&vec![7; 512 << 10]).expect("read");
    assert!(server.signal(Signal::INT), "the server was there");
    let server = server.end("the server");
    assert!(ended_well(&server).contains("changed 0 pages of 256 and was cut off"), "{server:?}");
    drop(input);
    let child = ended(child);
    assert_eq!((child.status.code(), child.out.as_str()), (Some(1), ""), "{child:?}");
    assert!(child.error().contains("rank 0 is dead"), "{child:?}");
}

#[test]
fn a_server_whose_name_leads_nowhere_is_told_to_end_all_the_same() {
    let bench = Bench::new("nowhere");
    let place = format!("nowhere.invalid:{}", bench.place.port);
    let mut command = pontoon(&["smc", "serve", "--listen", &place, "--bytes", "1M"]);
    let mut server = Process::start(command.env("PONTOON_TOKEN", TOKEN));
    // It heeds signals once it has served somebody.
    ended_well(&bench.client("stat", &[]));
    assert!(server.signal(Signal::TERM), "the server was there");
    ended_well(&server.end("the server"));
}
