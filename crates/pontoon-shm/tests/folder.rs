//! A job's folder: whose it may be, and what becomes of one whose job died.

mod common;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    thread,
};

use common::{Base, Peer, role, say, told};
use pontoon_shm::{FolderError, JobFolder, Swept, identity, sweep};
use pontoon_signal::{Nanos, Rank, Record, RecordKind, Segment, SegmentShape};

/// What the child process does; nothing in the parent.
#[test]
fn peer() {
    let Some((job, base, rank)) = role() else { return };
    let folder = JobFolder::join(&base, &job).unwrap();
    let whose = identity(*b"a job of a test.", Rank(rank), 1, 0);
    folder.own(&whose).unwrap();
    let file = folder.create_segment(Rank(rank)).unwrap();
    let segment = Segment::create_on(file, SegmentShape::new(1, 1, 4096), whose).unwrap();
    let record = Record { at: Nanos(7), kind: RecordKind::JOINED, rank: Rank(rank), data: [1; 3] };
    segment.recorder().add(record);
    say("ready");
    told();
}

fn started(base: &Base, job: &str, rank: u32) -> Peer {
    let mut peer = Peer::start(job, &base.0, rank);
    assert_eq!(peer.hear(), "ready");
    peer
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).into()).collect()
}

#[test]
fn the_dead_are_swept_and_nobody_else() {
    let base = Base::new("sweep");
    let nothing = sweep(&base.0).unwrap();
    assert_eq!(nothing, Swept::default());
    let here = JobFolder::join(&base.0, "here").unwrap();
    let (dead, lives) = (started(&base, "dead", 3), started(&base, "lives", 0));
    // Of one job a rank is dead, another not.
    let (half, other) = (started(&base, "half", 0), started(&base, "half", 1));
    let foreign = started(&base, "foreign", 0);
    let notes = base.0.join("foreign").join("notes");
    fs::write(&notes, "a user's").unwrap();
    symlink(base.0.join("lives"), base.0.join("link")).unwrap();
    fs::write(base.0.join("file"), "").unwrap();
    fs::create_dir(base.0.join("open")).unwrap();
    fs::set_permissions(base.0.join("open"), fs::Permissions::from_mode(0o755)).unwrap();
    // As of one that ended between making its folder and filling it.
    fs::create_dir(base.0.join("empty")).unwrap();
    fs::set_permissions(base.0.join("empty"), fs::Permissions::from_mode(0o700)).unwrap();

    let swept = sweep(&base.0).unwrap();
    assert_eq!(swept.removed, names(&["empty"]));
    assert_eq!(swept.live, names(&["dead", "foreign", "half", "here", "lives"]));
    assert_eq!(swept.foreign, names(&["file", "link", "open"]));

    // Killed, it leaves what can be looked at until it is swept.
    drop((dead, half, foreign));
    let path = base.0.join("dead").join("rank-3.segment");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let segment = Segment::view(fs::File::open(&path).unwrap().into()).unwrap();
    assert_eq!((segment.identity().rank, segment.recorder().read().len()), (Rank(3), 1));
    assert_eq!(segment.recorder().read()[0].kind, RecordKind::JOINED);

    let swept = sweep(&base.0).unwrap();
    assert_eq!(swept.removed, names(&["dead"]));
    assert_eq!(swept.live, names(&["half", "here", "lives"]));
    assert_eq!(swept.foreign, names(&["file", "foreign", "link", "open"]));
    assert!(notes.exists() && !base.0.join("dead").exists());
    assert!(base.0.join("half").join("rank-0.owner").exists());
    drop((other, lives));
    assert_eq!(sweep(&base.0).unwrap().removed, names(&["half", "lives"]));
    assert!(here.path().exists());
}

#[test]
fn sweeps_at_once_and_jobs_that_start_do_each_other_no_harm() {
    const JOBS: usize = 8;
    let base = Base::new("races");
    for _ in 0..3 {
        let peers: Vec<_> = (0..JOBS).map(|at| started(&base, &format!("job-{at}"), 0)).collect();
        drop(peers);
        thread::scope(|scope| {
            let sweeps = [(); 3].map(|()| scope.spawn(|| sweep(&base.0).unwrap()));
            // One that starts under the name of a dead job, meanwhile.
            let joined: Vec<_> = (0..JOBS / 2)
                .map(|at| JobFolder::join(&base.0, &format!("job-{at}")).unwrap())
                .collect();
            for folder in &joined {
                folder.own(&identity([0; 16], Rank(0), 1, 0)).unwrap();
                assert!(folder.path().join("rank-0.owner").exists());
            }
            for swept in sweeps.map(|sweep| sweep.join().unwrap()) {
                assert_eq!(swept.foreign, names(&[]));
            }
            let swept = sweep(&base.0).unwrap();
            assert!(swept.removed.is_empty() || swept.removed.len() <= JOBS, "{swept:?}");
            for folder in &joined {
                assert!(folder.path().join("rank-0.owner").exists(), "{swept:?}");
            }
        });
        // A job that took a dead one's folder over leaves what is not its own.
        sweep(&base.0).unwrap();
        assert_eq!(fs::read_dir(&base.0).unwrap().count(), 0, "something is left");
    }
}

#[test]
fn a_folder_that_is_not_ours_alone_is_refused() {
    let base = Base::new("refused");
    let elsewhere = Base::new("elsewhere");
    fs::create_dir(&elsewhere.0).unwrap();
    symlink(&elsewhere.0, &base.0).unwrap();
    let refused = |job: &str| JobFolder::join(&base.0, job).unwrap_err();
    assert_eq!(refused("job"), FolderError::NotAFolder { path: base.0.clone() });
    assert!(matches!(sweep(&base.0), Err(FolderError::NotAFolder { .. })));
    fs::remove_file(&base.0).unwrap();
    fs::create_dir(&base.0).unwrap();
    for mode in [0o755, 0o701, 0o770] {
        fs::set_permissions(&base.0, fs::Permissions::from_mode(mode)).unwrap();
        let told = refused("job");
        assert!(matches!(told, FolderError::NotOurs { found: (_, found), .. } if found == mode));
        assert!(told.to_string().contains(&format!("{mode:04o}")), "{told}");
    }
    fs::set_permissions(&base.0, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&elsewhere.0, base.0.join("job")).unwrap();
    assert_eq!(refused("job"), FolderError::NotAFolder { path: base.0.join("job") });
    for name in ["", "..", "a/b", ".x"] {
        assert_eq!(refused(name), FolderError::Name { name: name.into() });
    }
    if rustix::process::geteuid().is_root() {
        let other = base.0.join("others");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&other, Some(65534), None).unwrap();
        let told = refused("others");
        assert!(matches!(told, FolderError::NotOurs { found: (65534, 0o700), .. }), "{told}");
    } else {
        println!("skipped: another user's folder needs root");
    }
    let _ = fs::remove_file(base.0.join("job"));
}

/// A folder that was just made has nobody in it, so a sweep may take it away under whoever made it.
#[test]
fn a_job_that_starts_beside_sweeps_has_its_folder() {
    let base = Base::new("race");
    drop(JobFolder::join(&base.0, "first").unwrap());
    let done = std::sync::Mutex::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !*done.lock().unwrap() {
                    sweep(&base.0).unwrap();
                }
            });
        }
        let joined: Result<Vec<_>, _> = (0..3000)
            .map(|round| JobFolder::join(&base.0, &format!("job-{round}")).map(drop))
            .collect();
        *done.lock().unwrap() = true;
        joined.unwrap();
    });
}
