//! Who gets a segment's file, and who does not, and that they never disturb those who do.

mod common;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixStream,
        process::CommandExt,
    },
    path::Path,
    process::Command,
    time::Duration,
};

use common::{Base, JOB, Process, SECRET, patient, until};
use pontoon_shm::{Handover, HandoverError, HandoverReport, JobFolder, Secret, fetch};
use pontoon_signal::{Bound, Rank, Segment};

const WRONG: Secret = Secret::new(*b"a test's secre7.");
/// As long as one who is slow may be.
const SHORT: Duration = Duration::from_millis(50);
const STRANGER: &str = "PONTOON_TEST_STRANGER";

/// A file that is handed over to those who take no longer than `patience`.
fn desk(base: &Base, patience: Duration) -> (JobFolder, Handover) {
    let folder = JobFolder::join(&base.0, JOB).unwrap();
    let file = folder.create_segment(Rank(0)).unwrap();
    let handover = Handover::serve_within(&folder, Rank(0), file, SECRET, patience).unwrap();
    (folder, handover)
}

fn reads_its_end(mut stream: UnixStream) {
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    // Closed, or reset if it was not read to its end.
    let _ = stream.read_to_end(&mut bytes);
    assert_eq!(bytes, [], "something was told to a stranger");
}

fn counted(handover: &Handover, expected: HandoverReport) {
    until("all are counted", || handover.report() == expected);
}

fn report(change: impl FnOnce(&mut HandoverReport)) -> HandoverReport {
    let mut report = HandoverReport::default();
    change(&mut report);
    report
}

#[test]
fn who_has_the_secret_maps_the_segment() {
    let base = Base::new("secret");
    let here = Process::join(&base.0, 0, 0);
    let theirs = here.fetched(0);
    assert_eq!(theirs.identity(), here.segment.identity());
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    let path = here.folder.path();
    assert_eq!((mode(&base.0), mode(path)), (0o700, 0o700));
    let _segment = here.folder.create_segment(Rank(0)).unwrap();
    for name in ["rank-0.socket", "rank-0.owner", "rank-0.segment"] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
    drop(here);
    assert!(!base.0.join(JOB).exists(), "the last to leave takes the folder along");
}

#[test]
fn a_wrong_secret_and_noise_are_refused_and_counted() {
    let base = Base::new("wrong");
    let (folder, handover) = desk(&base, common::PATIENCE);
    let path = folder.socket(Rank(0));
    let refused = fetch(&path, &WRONG, patient()).unwrap_err();
    assert_eq!(refused, HandoverError::Refused { path: path.clone() });
    assert!(refused.to_string().contains("secret"), "{refused}");
    counted(&handover, report(|report| report.wrong_secret = 1));

    let noise: [&[u8]; 4] =
        [&[0xA5; 24], &[0; 4096], b"GET / HTTP/1.1\r\nHost: pontoon\r\n\r\n", b"?"];
    for bytes in noise {
        let mut stream = UnixStream::connect(&path).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        reads_its_end(stream);
    }
    counted(&handover, report(|report| (report.wrong_secret, report.garbage) = (1, 4)));
    fetch(&path, &SECRET, patient()).unwrap();
}

#[test]
fn the_slow_are_cut_off_and_hold_nobody_up() {
    let base = Base::new("slow");
    let (folder, handover) = desk(&base, SHORT);
    let path = folder.socket(Rank(0));
    let slow: Vec<_> = (0..10)
        .map(|len| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&b"pontoonf and a half"[..len]).unwrap();
            stream
        })
        .collect();
    fetch(&path, &SECRET, patient()).unwrap();
    slow.into_iter().for_each(reads_its_end);
    counted(&handover, report(|report| (report.served, report.slow) = (1, 10)));

    // One who says a byte now and then is not given time anew.
    let mut stream = UnixStream::connect(&path).unwrap();
    let start = std::time::Instant::now();
    while stream.write_all(b"p").is_ok() {
        assert!(start.elapsed() < common::PATIENCE, "a slow one is never cut off");
        // Slow on purpose.
        std::thread::sleep(SHORT / 10);
    }
}

#[test]
fn a_crowd_does_not_keep_the_job_out() {
    let base = Base::new("crowd");
    let (folder, handover) = desk(&base, common::PATIENCE);
    let path = folder.socket(Rank(0));
    let crowd: Vec<_> = (0..100).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    fetch(&path, &SECRET, patient()).unwrap();
    // It is counted after it was sent.
    until("the one who has the secret is served", || handover.report().served == 1);
    assert!(handover.report().crowded > 0, "{:?}", handover.report());
    drop((handover, crowd));
}

/// A connection that is closed before its request was read says nothing of the secret.
#[test]
fn who_is_crowded_out_asks_again() {
    let base = Base::new("again");
    let folder = JobFolder::join(&base.0, JOB).unwrap();
    let path = folder.socket(Rank(0));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let owner = std::thread::spawn(move || {
        let (crowded, _) = listener.accept().unwrap();
        drop(crowded);
        let (mut heard, _) = listener.accept().unwrap();
        heard.read_exact(&mut [0; 24]).unwrap();
    });
    // What was read and then closed is a refusal.
    let refused = fetch(&path, &SECRET, patient()).unwrap_err();
    assert_eq!(refused, HandoverError::Refused { path });
    until("it is asked again", || owner.is_finished());
    owner.join().unwrap();
}

#[test]
fn nobody_there_and_no_answer_end_with_the_bound() {
    let base = Base::new("nobody");
    let folder = JobFolder::join(&base.0, JOB).unwrap();
    let path = folder.socket(Rank(0));
    let short = Bound::within(SHORT);
    let absent = fetch(&path, &SECRET, short).unwrap_err();
    assert!(matches!(absent, HandoverError::NobodyThere { .. }), "{absent}");
    // One that accepts and says nothing.
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let late = fetch(&path, &SECRET, short).unwrap_err();
    assert_eq!(late, HandoverError::TimedOut { path: path.clone() });
    // One that sends no file.
    let owner = std::thread::spawn(move || {
        let (silent, _) = listener.accept().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        // All of the request: what is left unread at the end resets the connection.
        stream.read_exact(&mut [0; 24]).unwrap();
        stream.write_all(&[1]).unwrap();
        drop((silent, stream));
    });
    let garbage = fetch(&path, &SECRET, patient()).unwrap_err();
    assert_eq!(garbage, HandoverError::Garbage { path: path.clone() });
    owner.join().unwrap();

    // One that comes late is waited for, in place of the socket that its predecessor left.
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| fetch(&path, &SECRET, patient()));
        let file = folder.create_segment(Rank(0)).unwrap();
        let _handover = Handover::serve(&folder, Rank(0), file, SECRET).unwrap();
        asker.join().unwrap().unwrap();
    });
}

#[test]
fn a_path_that_no_socket_can_have_is_told() {
    let base = Base::new(&"long".repeat(20));
    let folder = JobFolder::join(&base.0, &"j".repeat(60)).unwrap();
    let file = folder.create_segment(Rank(0)).unwrap();
    let told = Handover::serve(&folder, Rank(0), file, SECRET).unwrap_err();
    assert!(matches!(told, HandoverError::PathTooLong { most: 107, .. }), "{told}");
    assert!(told.to_string().contains("XDG_RUNTIME_DIR"), "{told}");
    let told = fetch(&folder.socket(Rank(0)), &SECRET, patient()).unwrap_err();
    assert!(matches!(told, HandoverError::PathTooLong { .. }), "{told}");
}

#[test]
fn what_is_handed_over_is_checked() {
    let base = Base::new("checked");
    let (folder, _handover) = desk(&base, common::PATIENCE);
    let file = fetch(&folder.socket(Rank(0)), &SECRET, patient()).unwrap();
    let refused = Segment::open(file).unwrap_err();
    assert!(refused.to_string().contains("not sealed"), "{refused}");
}

/// A link in the place of the socket leads whoever asks to where its file is, but to whose owner it
/// leads is looked at.
#[test]
fn a_stranger_gets_nothing() {
    if let Ok(path) = std::env::var(STRANGER) {
        // Cut off before anything is read.
        return reads_its_end(UnixStream::connect(path).unwrap());
    }
    let base = Base::new("stranger");
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a process of another user needs root");
        return;
    }
    // Where another user's process can run: what it is must be readable to it.
    let program = base.0.with_extension("exe");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (folder, handover) = desk(&base, common::PATIENCE);
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&base.0, 0o711);
    open(folder.path(), 0o711);
    let path = folder.socket(Rank(0));
    open(&path, 0o666);
    let mut command = Command::new(&program);
    command.args(["--exact", "a_stranger_gets_nothing"]).env(STRANGER, &path).uid(65534);
    let ended = command.current_dir("/").output();
    let _ = fs::remove_file(&program);
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    counted(&handover, report(|report| report.strangers = 1));
    let linked = base.0.join("linked");
    symlink(&path, &linked).unwrap();
    fetch(&linked, &SECRET, patient()).unwrap();
}
