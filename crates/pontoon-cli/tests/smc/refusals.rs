//! What cannot be done is said to be so, in one line, with the status that goes with it.

use std::{fs, io::Write, net::TcpListener, process::Command, thread};

use rustix::process::Signal;

use crate::{
    Bench, PAGE,
    common::{Process, TOKEN, pontoon},
    ended_well,
};

#[test]
fn what_cannot_be_told_is_not_called_a_loss() {
    let bench = Bench::new("untold");
    let mut server = bench.serve(&["--bytes", "1M"]);
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
    let told = |what: &str, arguments: &[&str], part: &str| {
        let mut command = bench.command(what, arguments);
        let output = command.args(["--join-bound", "60s"]).stdout(full()).output().expect("run");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(part) && said.contains("No space left"), "{what}: {said}");
    };
    told("fill", &["--byte", "7", "--bytes", "3"], "error: 3 bytes are stored, but ");
    told("stat", &[], "error: cannot write the report: ");
    told("cat", &[], "error: cannot write what was read: ");
    assert!(server.signal(Signal::INT), "the server was there");
    ended_well(&server.end("the server"));
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let bench = Bench::new("bad");
    let (small, empty) = (bench.file("small", b"x"), bench.file("empty", b""));
    let large = bench.file("large", &[1; 2 * PAGE]);
    let long = bench.file("long", &vec![1; 2 << 20]);
    let folder = bench.folder.to_str().unwrap();
    let refused = |what: &str, arguments: &[&str], part: &str| {
        let ended = Process::start(&mut bench.command(what, arguments)).end(what);
        let line = ended.refusal();
        assert!(line.contains(part), "{what} {arguments:?} without {part:?}: {line}");
    };
    let at = bench.at();
    for (what, arguments, part) in [
        ("cat", &["--join-bound", "150ms"][..], &*format!("nobody serves memory at {at}, waited ")),
        ("cat", &["--pool", "1"], "a pool of 1 page is too small for --class 4K, which takes 64"),
        ("cat", &["--pool", "1T"], "it has 64 to 16777216"),
        ("cat", &["--pool", "2M", "--class", "2M"], "512 pages is too small for --class 2M"),
        ("cat", &["--at", "1.5M"], "units K, M, G, T"),
        ("cat", &["--at", "18446744073709551616"], "it is too large: 18446744073709551615 is the"),
        ("fill", &["--byte", "1", "--bytes", "16777216T"], "it is too large: "),
        ("serve", &["--clients", "18446744073709551616"], "is not in 1..=4294967295"),
        ("cat", &["--class", "8K"], "4K, 64K or 2M"),
        ("cat", &["--faults", "threads=0"], "threads=1 to 64"),
        ("cat", &["--transport", "tcp"], "auto, shm or ucx"),
        ("bench", &["--join-bound", "150ms"], &*format!("nobody serves memory at {at}, waited ")),
        ("bench", &["--pool", "64"], "--pool"),
        ("fill", &["--file", "/nowhere"], "cannot read /nowhere"),
        ("fill", &["--byte", "256"], "0 to 255"),
        ("fill", &["--byte", "1", "--file", &small], "cannot be used with"),
        ("fill", &["--bytes", "1"], "--byte <BYTE>"),
        ("serve", &["--file", "/nowhere"], "cannot read /nowhere"),
        ("serve", &["--file", folder], "no regular file"),
        ("serve", &["--file", &empty], "nothing to serve"),
        ("serve", &["--bytes", "0"], "nothing to serve"),
        ("serve", &["--bytes", "100T"], "no shared memory for a segment"),
        ("serve", &["--bytes", "9223372036854775808"], "more than memory can hold"),
        ("serve", &["--bytes", "18446744073709551615"], "more than memory can hold"),
        ("serve", &["--save"], "--file"),
        ("serve", &["--clients", "0"], "0 is not in"),
    ] {
        refused(what, arguments, part);
    }
    // Nobody writes to it, and nobody waits for that.
    let fifo = bench.folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = ["--file", fifo.to_str().unwrap(), "--join-bound", "150ms"];
    refused("fill", &fifo, "nobody serves memory");
    refused("serve", &fifo[..2], "no regular file");
    let mut elsewhere = pontoon(&["smc", "serve", "--listen", "192.0.2.7:4000"]);
    let ended = Process::start(elsewhere.env("PONTOON_TOKEN", TOKEN)).end("one elsewhere");
    assert!(ended.refusal().contains("192.0.2.7:4000 is no address of this host"), "{ended:?}");
    for what in ["cat", "fill", "stat", "bench"] {
        let mut command = pontoon(&["smc", what, "--connect", "nowhere.invalid:4000"]);
        command.env("PONTOON_TOKEN", TOKEN).args(["--join-bound", "150ms"]);
        let ended = Process::start(&mut command).end(what);
        let line = ended.refusal();
        assert!(line.contains("the host of nowhere.invalid:4000"), "{what}: {line}");
        assert!(!line.contains("MASTER"), "{what}: {line}");
    }
    for place in ["127.0.0.1", "127.0.0.1:0", ":1"] {
        let ended = Process::start(&mut pontoon(&["smc", "cat", "--connect", place])).end(place);
        assert!(ended.refusal().contains("an address and a port"), "{place}");
    }
    for what in ["serve", "cat", "bench"] {
        let mut command = bench.command(what, &[]);
        let ended = Process::start(command.env_remove("PONTOON_TOKEN")).end(what);
        assert!(ended.refusal().contains("PONTOON_TOKEN"), "{what}");
    }
    {
        let place = (&*bench.place.host, bench.place.port);
        let taken = TcpListener::bind(place).expect("free");
        refused("serve", &[], "somebody else listens");
        let answer = thread::spawn(move || {
            for stream in taken.incoming().take(4) {
                let _ = stream.expect("called").write_all(&[b'x'; 512]);
            }
        });
        for what in ["cat", "fill", "stat", "bench"] {
            let arguments = ["--join-bound", "60s"];
            refused(what, &arguments, &format!("what listens on {at} serves no memory"));
        }
        answer.join().expect("answered");
    }

    // Those that take a server to be found out.
    let mut server = bench.serve(&["--file", &small]);
    for (what, arguments, part) in [
        ("cat", &["--at", "2"][..], "no byte 2 in a memory of 1"),
        (
            "cat",
            &["--at", "1", "--bytes", "1"],
            "there is no 1 byte from byte 1 on in a memory of 1",
        ),
        ("cat", &["--at", "1", "--bytes", "16777215T"], "bytes from byte 1 on"),
        ("cat", &["--output", folder], "cannot write"),
        ("fill", &["--file", &large], "more to store than fits"),
        ("fill", &["--file", &long], "more to store than fits"),
        ("fill", &["--byte", "7", "--bytes", "2"], "no 2 bytes from byte 0 on"),
        ("bench", &[], "a memory of 1 byte is too small to be measured: serve 4194304 or more"),
        ("cat", &["--transport", "shm"], "rank 1 has transport shm and rank 0 transport auto"),
    ] {
        let arguments = [arguments, &["--join-bound", "60s"]].concat();
        refused(what, &arguments, part);
    }
    assert_eq!(ended_well(&bench.client("cat", &[])), "x");
    assert!(server.signal(Signal::INT), "the server was there");
    let server = server.end("the server");
    assert!(ended_well(&server).contains("and gave up"), "{server:?}");
    assert!(server.out.starts_with("serving 1 B (1 byte) at "), "{server:?}");
    assert!(server.err.contains("warning: a client was not served: rank 1 has transport shm"));
}
