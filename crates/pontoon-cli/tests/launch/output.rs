//! What ranks print.

use std::{collections::BTreeMap, fs, io::Read, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use super::{Folder, command, finish, launch, shown, text, until};

#[test]
fn both_streams_have_prefixes_and_any_bytes_survive() {
    let print = r"printf 'a\377\000b\n\nlast'; printf 'to err\n' >&2";
    let output = launch(&["-n", "1", "--", "sh", "-c", print]);
    assert_eq!(output.stdout, b"[0] a\xff\0b\n[0] \n[0] last\n");
    assert_eq!(output.stderr, b"[0] to err\n");
    let output = launch(&["-n", "1", "--no-prefix", "--", "sh", "-c", print]);
    assert_eq!(output.stdout, b"a\xff\0b\n\nlast");
    assert_eq!(output.stderr, b"to err\n");
}

#[test]
fn each_rank_has_its_files() {
    let folder = Folder::new("files");
    let into = folder.at("not/yet/there");
    let print = r"printf 'out\377 %s' $RANK; printf 'err %s\n' $RANK >&2";
    let output = launch(&["-n", "3", "--output", shown(&into), "--", "sh", "-c", print]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""));
    for rank in 0..3_u8 {
        let read = |end: &str| fs::read(into.join(format!("{rank}.{end}"))).expect("a file");
        assert_eq!(read("out"), [b"out\xff ", &[b'0' + rank][..]].concat());
        assert_eq!(read("err"), format!("err {rank}\n").as_bytes());
    }
    assert_eq!(fs::read_dir(&into).expect("a folder").count(), 6);
}

/// Each rank writes each line in pieces, on both streams; the launcher has one pipe for both.
#[test]
fn lines_are_neither_torn_nor_mixed() {
    let write = r#"
        long=$RANK; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do long=$long$long; done
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            printf "$RANK $i "; printf "begin "; printf "$long"; printf " end\n"
            printf "$RANK $i " >&2; printf "begin $long end\n" >&2
        done"#;
    let (mut both, write_end) = std::io::pipe().expect("a pipe");
    let mut run = command(&["-n", "8", "--", "sh", "-c", write]);
    run.stdout(write_end.try_clone().expect("cloned")).stderr(write_end);
    let child = run.spawn().expect("started");
    drop(run);
    let reader = thread::spawn(move || {
        let mut all = String::new();
        both.read_to_string(&mut all).map(|_| all)
    });
    assert!(finish(child).status.success());
    let all = reader.join().expect("no panic").expect("text");
    let mut seen = BTreeMap::new();
    for line in all.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [prefix, rank, number, "begin", long, "end"] = words[..] else {
            panic!("{:?}", &line[..line.len().min(200)])
        };
        assert_eq!(prefix, format!("[{rank}]"));
        assert_eq!(long, rank.repeat(4096));
        *seen.entry((rank.to_owned(), number.to_owned())).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 160);
    assert!(seen.values().all(|&times| times == 2), "{seen:?}");
}

#[test]
fn a_line_without_an_end_goes_on_in_marked_pieces() {
    let write = "head -c 300000 /dev/zero; printf '\\nshort\\n'";
    let output = launch(&["-n", "1", "--", "sh", "-c", write]);
    let lines: Vec<_> = output.stdout.split(|&byte| byte == b'\n').collect();
    let mut zeros = 0;
    for (at, line) in lines[..lines.len() - 2].iter().enumerate() {
        let prefix: &[u8] = if at == 0 { b"[0] " } else { b"[0+] " };
        let rest = line.strip_prefix(prefix).expect("a prefix");
        assert!(rest.len() <= 16384 && rest.iter().all(|&byte| byte == 0));
        zeros += rest.len();
    }
    assert_eq!(zeros, 300_000);
    assert_eq!(lines[lines.len() - 2..], [&b"[0] short"[..], b""]);
}

/// What is read slowly is kept by the ranks, and a user who insists gets away.
#[test]
fn output_that_nobody_reads_holds_no_memory_and_no_user() {
    let mut child = command(&["-n", "4", "--", "yes"]).spawn().expect("started");
    let pid = Pid::from_child(&child);
    let number = |file: &str, name: &str| {
        let all = fs::read_to_string(format!("/proc/{}/{file}", child.id())).expect("it runs");
        let line = all.lines().find(|line| line.starts_with(name)).expect("a line").to_owned();
        line.split_whitespace().nth(1).expect("a value").parse::<u64>().expect("a number")
    };
    let mut before = 0;
    until("it has read some, and no more", || {
        thread::sleep(Duration::from_millis(300));
        let (last, now) = (before, number("io", "rchar"));
        before = now;
        assert!(number("status", "VmRSS") < 100 << 10, "{now} bytes were read");
        now == last && now > 100 << 10
    });
    until("it ends", || {
        let _ = kill_process(pid, Signal::INT);
        thread::sleep(Duration::from_millis(50));
        child.try_wait().expect("waited for").is_some()
    });
    assert_eq!(child.wait().expect("waited for").code(), Some(130));
}

#[test]
fn a_reader_that_has_gone_ends_the_job_without_a_word() {
    let mut child = command(&["-n", "2", "--", "yes"]).spawn().expect("started");
    drop(child.stdout.take());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "");
}
