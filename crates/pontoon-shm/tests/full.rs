//! What is said where a process has no file descriptor left for a hand-over: the asker, or the owner.

mod common;

use std::{
    fs::File,
    io::{IoSlice, Read},
    mem::MaybeUninit,
    os::{fd::AsFd, unix::net::UnixListener},
    path::Path,
    thread,
};

use common::{Base, JOB, SECRET, patient};
use pontoon_shm::{Handover, HandoverError, JobFolder, fetch};
use pontoon_signal::{Rank, SystemError};
use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// All descriptors of this process, taken.
fn take_all() -> Vec<File> {
    let most = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, most).unwrap();
    let mut all = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => all.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{error}");
                return all;
            }
        }
    }
}

fn full(path: &Path, call: &'static str) -> HandoverError {
    let error = SystemError { call, code: Errno::MFILE.raw_os_error() };
    HandoverError::System { path: path.into(), error }
}

fn told(path: &Path, expected: &HandoverError) {
    let error = fetch(path, &SECRET, patient()).unwrap_err();
    assert_eq!(error, *expected);
    assert!(error.is_of_setup() && error.to_string().contains("ulimit -n"), "{error}");
}

/// Hands `file` over to one, and stays connected until that one goes.
fn hand_over(listener: &UnixListener, file: &File) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 24]).unwrap();
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(&stream, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::empty()).unwrap();
    let _ = stream.read(&mut [0]);
}

/// Asker and owner are one process here, so that each descriptor that is free is for one of them.
#[test]
fn a_want_of_descriptors_is_told_as_that_and_at_once() {
    let base = Base::new("full");
    let folder = JobFolder::join(&base.0, JOB).unwrap();
    let file = folder.create_segment(Rank(0)).unwrap();
    let handover = Handover::serve(&folder, Rank(0), file, SECRET).unwrap();
    let path = folder.socket(Rank(0));
    let other = base.0.join("other");
    let listener = UnixListener::bind(&other).unwrap();
    let mut taken = take_all();
    told(&path, &full(&path, "connect"));
    // One for the asker, and none for the owner's end.
    let file = taken.pop().unwrap();
    drop(taken.pop());
    told(&path, &HandoverError::NoRoom { path: path.clone() });
    // One for each end, and none for the file that comes.
    drop(taken.pop());
    thread::scope(|scope| {
        scope.spawn(|| hand_over(&listener, &file));
        told(&other, &full(&other, "recvmsg"));
    });
    // The owner kept its place for the next.
    drop(taken.pop());
    fetch(&path, &SECRET, patient()).unwrap();
    // Who was sent away before it had asked came again.
    assert!(handover.report().crowded >= 1, "{:?}", handover.report());
    let _ = std::fs::remove_file(other);
}
