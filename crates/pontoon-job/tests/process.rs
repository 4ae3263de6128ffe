//! The watcher, with real processes.

mod common;

use common::{PATIENCE, until};
use pontoon_job::Watcher;
use pontoon_signal::{Life, ProcessId};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::{
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Instant,
};

/// A child that sleeps, killed and waited for at the end.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg("300").stdin(Stdio::null()).spawn().unwrap())
    }

    fn id(&self) -> ProcessId {
        ProcessId::of(self.0.id()).unwrap().expect("it sleeps")
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watchers() -> [(&'static str, Watcher); 2] {
    [("pidfd", Watcher::start().unwrap()), ("looking", Watcher::looking().unwrap())]
}

fn watch(watcher: &Watcher, process: ProcessId) -> Receiver<Instant> {
    let (tell, told) = channel();
    watcher.watch(process, move || {
        let _ = tell.send(Instant::now());
    });
    told
}

#[test]
fn a_killed_child_is_seen_before_anybody_waits_for_it() {
    for (name, watcher) in watchers() {
        let mut child = Sleeper::start();
        let id = child.id();
        let told = watch(&watcher, id);
        assert!(told.recv_timeout(std::time::Duration::from_millis(50)).is_err(), "it lives");
        let killed = Instant::now();
        child.0.kill().unwrap();
        let seen = told.recv_timeout(PATIENCE).expect(name);
        // Nobody has waited for it: it is a zombie, and no more alive for that.
        assert_eq!(id.look(), Life::Gone, "{name}");
        assert!(std::path::Path::new(&format!("/proc/{}", id.pid)).exists(), "{name}");
        eprintln!("{name}: seen after {:?}", seen - killed);
    }
}

#[test]
fn a_zombie_and_one_that_is_gone_are_told_of_at_once() {
    for (name, watcher) in watchers() {
        let mut child = Sleeper::start();
        let id = child.id();
        child.0.kill().unwrap();
        until("it to be a zombie", || (id.look() == Life::Gone).then_some(()));
        watch(&watcher, id).recv_timeout(PATIENCE).expect(name);
        child.0.wait().unwrap();
        watch(&watcher, id).recv_timeout(PATIENCE).expect(name);
        watch(&watcher, ProcessId { pid: u32::MAX, ..id }).recv_timeout(PATIENCE).expect(name);
        watch(&watcher, ProcessId { pid: 0, ..id }).recv_timeout(PATIENCE).expect(name);
    }
}

#[test]
fn another_process_with_the_same_pid_is_not_it() {
    for (name, watcher) in watchers() {
        let child = Sleeper::start();
        let before = ProcessId { start_time: child.id().start_time - 1, ..child.id() };
        assert_eq!(before.look(), Life::Gone);
        watch(&watcher, before).recv_timeout(PATIENCE).expect(name);
        assert_eq!(child.id().look(), Life::Runs);
    }
}

#[test]
fn many_are_told_apart() {
    for (name, watcher) in watchers() {
        let mut children: Vec<_> = (0..20).map(|_| Sleeper::start()).collect();
        let told: Vec<_> = children.iter().map(|it| watch(&watcher, it.id())).collect();
        // Every third, in an order of its own.
        for index in (0..20).rev().filter(|index| index % 3 == 0) {
            children[index].0.kill().unwrap();
        }
        for (index, told) in told.iter().enumerate() {
            match index % 3 {
                0 => drop(told.recv_timeout(PATIENCE).expect(name)),
                _ => assert!(told.try_recv().is_err(), "{name}: {index} lives"),
            }
        }
    }
}

#[test]
fn a_call_that_panics_does_not_end_the_watch() {
    for (name, watcher) in watchers() {
        let mut children = [Sleeper::start(), Sleeper::start()];
        watcher.watch(children[0].id(), || panic!("on purpose"));
        let told = watch(&watcher, children[1].id());
        children[0].0.kill().unwrap();
        children[0].0.wait().unwrap();
        children[1].0.kill().unwrap();
        told.recv_timeout(PATIENCE).expect(name);
    }
}

#[test]
fn a_watcher_that_is_dropped_ends_its_thread_and_calls_nobody() {
    for (name, watcher) in watchers() {
        let child = Sleeper::start();
        let told = watch(&watcher, child.id());
        drop(watcher);
        // The callback goes with the thread.
        let end = told.recv_timeout(PATIENCE);
        assert_eq!(end, Err(RecvTimeoutError::Disconnected), "{name}");
        drop(child);
    }
}

/// Set in the process that is to run out of descriptors.
const ALONE: &str = "PONTOON_TEST_WITHOUT_DESCRIPTORS";

#[test]
fn want_of_descriptors_is_nobodys_death() {
    const NAME: &str = "want_of_descriptors_is_nobodys_death";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let ran = alone.args(["--exact", NAME, "--nocapture"]).env(ALONE, "1").output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        return;
    }
    let mut few = getrlimit(Resource::Nofile);
    few.current = Some(64);
    setrlimit(Resource::Nofile, few).unwrap();
    for (name, watcher) in watchers() {
        let mut child = Sleeper::start();
        let id = child.id();
        let before = watch(&watcher, id);
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        assert!(ProcessId::of(id.pid).is_err(), "the system still says");
        assert!(matches!(id.look(), Life::Unknown(_)), "{name}");
        let told = watch(&watcher, id);
        for told in [&told, &before] {
            let early = told.recv_timeout(std::time::Duration::from_millis(200));
            assert_eq!(early, Err(RecvTimeoutError::Timeout), "{name}: it lives");
        }
        drop(taken);
        child.0.kill().unwrap();
        for told in [told, before] {
            told.recv_timeout(PATIENCE).expect(name);
        }
    }
}
