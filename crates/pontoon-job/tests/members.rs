//! Who is still there: ranks that are killed, stopped, leave and come back. Some ranks are threads
//! of the test, which can look at what they see; the others are processes: this binary again.

mod common;

use common::{PATIENCE, Place, card, join, options, patient, until, watchdog};
use pontoon_job::{
    Change, Ending, Env, How, Job, JoinError, Membership, Options, Standing, StoreError,
};
use pontoon_signal::Rank;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

const ROLE: &str = "PONTOON_TEST_ROLE";
const LOST: &str = "PONTOON_TEST_LOSING";
/// After how long a rank is lost where that is what is tested.
const LOST_AFTER: Duration = Duration::from_secs(1);

fn losing() -> Options {
    Options::default().beat_every(Duration::from_millis(50)).lost_after(LOST_AFTER)
}

/// What a process does that is a rank: it joins, tells what it sees, and does as it is told.
#[test]
fn rank_process() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let env = Env::read().unwrap().unwrap();
    let options = if env::var_os(LOST).is_some() { losing() } else { options() };
    let job = match options.allow_rejoin().join(&env, &card(env.rank.0), patient()) {
        Ok(job) => job,
        Err(error) => return println!("\n@refused {error:?}"),
    };
    job.membership().on_change(|change| println!("\n@change {change}"));
    println!("\n@joined");
    for line in std::io::stdin().lines() {
        match &*line.unwrap() {
            "leave" => return job.leave(patient()).unwrap(),
            "barrier" => println!("\n@barrier {:?}", job.barrier(b"b", patient())),
            other => panic!("told {other}"),
        }
    }
}

/// A rank that is a process; killed when a test fails half-way.
struct Peer {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Peer {
    fn start(place: &Place, rank: u32, world: u32, epoch: u32) -> Self {
        Self::start_with(place, rank, world, epoch, options())
    }

    fn start_with(place: &Place, rank: u32, world: u32, epoch: u32, options: Options) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "rank_process", "--nocapture"]).env(ROLE, "rank");
        if options == losing() {
            command.env(LOST, "");
        }
        command.envs(place.vars(rank, world)).env("PONTOON_EPOCH", epoch.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix('@') {
                    let _ = tell.send(line.to_owned());
                }
            }
        });
        Self { child, stdin, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line of the process")
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").unwrap();
    }

    fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The changes that a rank of the test sees, and when.
fn changes(membership: &Membership) -> Receiver<(Change, Instant)> {
    let (tell, told) = channel();
    membership.on_change(move |change| {
        let _ = tell.send((change, Instant::now()));
    });
    told
}

fn next(changes: &Receiver<(Change, Instant)>) -> (Change, Instant) {
    changes.recv_timeout(PATIENCE).expect("a change")
}

/// A job with `threads` in the test and the other ranks as processes.
fn mixed(place: &Place, world: u32, threads: &[u32], options: Options) -> (Vec<Job>, Vec<Peer>) {
    let is_thread = |rank: &u32| threads.contains(rank);
    let peers: Vec<_> = (0..world)
        .filter(|rank| !is_thread(rank))
        .map(|rank| Peer::start_with(place, rank, world, 0, options))
        .collect();
    let envs: Vec<Env> = threads.iter().map(|&rank| place.env(rank, world)).collect();
    let jobs = common::each(&envs, |env| options.join(env, &card(env.rank.0), patient()).unwrap());
    peers.iter().for_each(|peer| assert_eq!(peer.line(), "joined"));
    (jobs, peers)
}

#[test]
fn a_killed_rank_is_seen_by_all_others_at_once() {
    watchdog(|| {
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            let place = Place::new();
            let (jobs, mut peers) = mixed(&place, 4, &[0, 1], options());
            let seen: Vec<_> = jobs.iter().map(|job| changes(job.membership())).collect();
            let killed = Instant::now();
            peers[0].child.kill().unwrap();
            for told in &seen {
                let (change, at) = next(told);
                assert_eq!(change.rank, Rank(2));
                let Standing::Dead { how, .. } = change.standing else { panic!("{change:?}") };
                assert!(matches!(how, How::Exited | How::ConnectionClosed), "{how:?}");
                longest = longest.max(at - killed);
            }
            let line = peers[1].line();
            assert!(line.starts_with("change rank 2 is dead: its "), "{line}");
            // Once, and nobody else.
            assert_eq!(jobs[1].membership().alive().count(), 3);
            for told in &seen {
                assert!(told.try_recv().is_err());
            }
        }
        println!("a killed rank was seen by all within {longest:?} in 10 rounds");
    });
}

#[test]
fn rank_0_killed_is_seen_by_each_and_ends_what_waits_for_it() {
    watchdog(|| {
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            let place = Place::new();
            let (jobs, mut peers) = mixed(&place, 3, &[1, 2], options());
            let seen: Vec<_> = jobs.iter().map(|job| changes(job.membership())).collect();
            thread::scope(|scope| {
                let waits = scope.spawn(|| jobs[0].get(b"never", patient()));
                let killed = Instant::now();
                peers[0].child.kill().unwrap();
                for told in &seen {
                    let (change, at) = next(told);
                    let ending = change.standing.ending();
                    assert!(
                        matches!(ending, Some(Ending::Dead(How::Exited | How::ConnectionClosed))),
                        "{change:?}"
                    );
                    assert_eq!(change.rank, Rank(0));
                    longest = longest.max(at - killed);
                }
                let error = waits.join().unwrap().unwrap_err();
                assert!(matches!(error, StoreError::StoreEnded { .. }), "{error:?}");
            });
            let error = jobs[1].set(b"k", b"", patient()).unwrap_err();
            assert!(error.to_string().contains("rank 0, which keeps the job's store, is dead"));
            // Those of this machine are seen without rank 0.
            assert!(jobs[1].membership().is_alive(Rank(1)));
        }
        println!("rank 0 killed was seen by all within {longest:?} in 10 rounds");
    });
}

#[test]
fn a_death_is_seen_without_rank_0_on_one_machine() {
    watchdog(|| {
        let (jobs, mut peers) = mixed(&Place::new(), 3, &[2], options());
        let seen = changes(jobs[0].membership());
        peers[0].child.kill().unwrap();
        assert_eq!(next(&seen).0.rank, Rank(0));
        until("the connection to be over", || jobs[0].set(b"k", b"", patient()).err());
        peers[1].child.kill().unwrap();
        let (change, _) = next(&seen);
        assert_eq!(
            (change.rank, change.standing.ending()),
            (Rank(1), Some(Ending::Dead(How::Exited)))
        );
    });
}

#[test]
fn a_stopped_rank_is_lost_and_learns_it_when_it_goes_on() {
    watchdog(|| {
        let (jobs, mut peers) = mixed(&Place::new(), 3, &[0, 1], losing());
        let seen: Vec<_> = jobs.iter().map(|job| changes(job.membership())).collect();
        let stopped = Instant::now();
        peers[0].send(Signal::STOP);
        for told in &seen {
            let (change, at) = next(told);
            assert_eq!(change.rank, Rank(2));
            assert_eq!(change.standing.ending(), Some(Ending::Dead(How::HeartbeatLost)));
            // It was heard of less than a heartbeat before.
            let after = at - stopped;
            assert!(after >= LOST_AFTER - Duration::from_millis(100), "{after:?}");
            println!("a stopped rank was lost after {after:?} (parameter {LOST_AFTER:?})");
        }
        let error = jobs[1].barrier(b"b", patient()).unwrap_err();
        assert_eq!(error.to_string(), "rank 2 is dead: nothing was heard of it any more");
        peers[0].send(Signal::CONT);
        let line = peers[0].line();
        assert_eq!(line, "change rank 2 is dead: nothing was heard of it any more");
        peers[0].tell("barrier");
        let line = peers[0].line();
        assert!(line.contains("Excluded { how: HeartbeatLost }"), "{line}");
    });
}

#[test]
fn rank_0_stopped_is_lost_by_each_and_learns_it_when_it_goes_on() {
    watchdog(|| {
        let (jobs, mut peers) = mixed(&Place::new(), 3, &[1, 2], losing());
        let seen: Vec<_> = jobs.iter().map(|job| changes(job.membership())).collect();
        let stopped = Instant::now();
        peers[0].send(Signal::STOP);
        for (told, job) in seen.iter().zip(&jobs) {
            let (change, at) = next(told);
            assert_eq!(change.rank, Rank(0));
            // Rank 0's pace holds for all, whatever the others asked for.
            assert_eq!(change.standing.ending(), Some(Ending::Dead(How::HeartbeatLost)));
            println!("rank 0 stopped was lost after {:?}", at - stopped);
            let error = job.get(b"k", patient()).unwrap_err();
            let ending = Ending::Dead(How::HeartbeatLost);
            assert_eq!(error, StoreError::StoreEnded { ending });
        }
        // It is the only one left of those who took it for dead.
        peers[0].send(Signal::CONT);
        let lines: Vec<_> = (0..3).map(|_| peers[0].line()).collect();
        let own = "change rank 0 is dead: nothing was heard of it any more";
        assert!(lines.iter().any(|line| line == own), "{lines:?}");
        peers[0].tell("barrier");
        let line = peers[0].line();
        assert!(line.contains("Excluded { how: HeartbeatLost }"), "{line}");
    });
}

#[test]
fn a_machine_that_stood_still_has_lost_nobody() {
    watchdog(|| {
        let (_, mut peers) = mixed(&Place::new(), 2, &[], losing());
        peers.iter().for_each(|peer| peer.send(Signal::STOP));
        thread::sleep(LOST_AFTER + Duration::from_millis(500));
        // Rank 1 first: it has heard nothing for too long, and there is nothing to be read.
        peers[1].send(Signal::CONT);
        thread::sleep(Duration::from_millis(100));
        peers[0].send(Signal::CONT);
        peers.iter_mut().for_each(|peer| peer.tell("barrier"));
        peers.iter().for_each(|peer| assert_eq!(peer.line(), "barrier Ok(())"));
    });
}

#[test]
fn a_rank_that_leaves_and_ends_at_once_is_no_death() {
    watchdog(|| {
        for _ in 0..10 {
            let (jobs, mut peers) = mixed(&Place::new(), 5, &[0, 1], options());
            let seen: Vec<_> = jobs.iter().map(|job| changes(job.membership())).collect();
            for peer in &mut peers {
                peer.tell("leave");
            }
            for told in &seen {
                for _ in 0..3 {
                    let (change, _) = next(told);
                    assert_eq!(change.standing.ending(), Some(Ending::Left), "{change:?}");
                }
            }
            for peer in &mut peers {
                assert!(peer.child.wait().unwrap().success());
            }
            let error = jobs[0].barrier(b"b", patient()).unwrap_err();
            assert!(matches!(error, StoreError::Ended { ending: Ending::Left, .. }), "{error:?}");
        }
    });
}

#[test]
fn rank_0_leaves_last() {
    watchdog(|| {
        let mut jobs = Place::new().join_all(3, options());
        let seen = changes(jobs[1].membership());
        let zero = jobs.remove(0);
        let leaves = thread::spawn(move || zero.leave(patient()));
        assert_eq!(next(&seen).0.standing.ending(), Some(Ending::Left));
        // The others can still talk through it.
        jobs[0].set(b"k", b"v", patient()).unwrap();
        assert_eq!(jobs[1].get(b"k", patient()).unwrap(), b"v");
        assert!(!leaves.is_finished());
        jobs.into_iter().for_each(|job| job.leave(patient()).unwrap());
        leaves.join().unwrap().unwrap();
    });
}

#[test]
fn a_job_that_is_dropped_is_a_death() {
    watchdog(|| {
        let mut jobs = Place::new().join_all(3, options());
        let seen = changes(jobs[0].membership());
        let seen_too = changes(jobs[1].membership());
        drop(jobs.pop());
        for told in [&seen, &seen_too] {
            let (change, _) = next(told);
            let closed = Some(Ending::Dead(How::ConnectionClosed));
            assert_eq!((change.rank, change.standing.ending()), (Rank(2), closed));
        }
        drop(jobs.remove(0));
        let (change, _) = next(&seen_too);
        assert_eq!((change.rank, change.standing.is_alive()), (Rank(0), false));
    });
}

#[test]
fn a_rank_that_dies_ends_the_barrier_of_the_others() {
    watchdog(|| {
        let (jobs, mut peers) = mixed(&Place::new(), 3, &[0, 1], options());
        thread::scope(|scope| {
            let waits: Vec<_> = jobs
                .iter()
                .map(|job| scope.spawn(|| job.all_gather(b"g", b"part", patient())))
                .collect();
            // Both are there when a third question of theirs is answered.
            for job in &jobs {
                job.add(b"there", 1, patient()).unwrap();
            }
            peers[0].child.kill().unwrap();
            for wait in waits {
                let error = wait.join().unwrap().unwrap_err();
                assert!(matches!(error, StoreError::Ended { rank: Rank(2), .. }), "{error:?}");
            }
        });
        // Those left go on among themselves.
        let left = [Rank(0), Rank(1)];
        let parts = common::each(&jobs, |job| job.gather_among(b"g", &left, b"x", patient()));
        assert!(parts.into_iter().all(|parts| parts.unwrap() == [b"x", b"x"]));
    });
}

#[test]
fn a_rank_that_was_killed_comes_back_in_a_later_epoch() {
    watchdog(|| {
        let place = Place::new();
        let (jobs, mut peers) = mixed(&place, 3, &[0, 1], options().allow_rejoin());
        let seen: Vec<_> = jobs.iter().map(|job| changes(job.membership())).collect();
        peers[0].child.kill().unwrap();
        seen.iter().for_each(|told| assert!(!next(told).0.standing.is_alive()));

        let same = Peer::start(&place, 2, 3, 0);
        let line = same.line();
        assert!(line.contains("refused Stale { rank: Rank(2), ours: 0, last: 0 }"), "{line}");

        let mut back = Peer::start(&place, 2, 3, 1);
        assert_eq!(back.line(), "joined");
        for (told, job) in seen.iter().zip(&jobs) {
            let (change, _) = next(told);
            assert_eq!((change.rank, change.epoch), (Rank(2), 1));
            assert!(change.standing.is_alive(), "{change:?}");
            assert_eq!(job.process(Rank(2)).unwrap().id.pid, back.child.id());
        }
        back.tell("barrier");
        common::each(&jobs, |job| job.barrier(b"b", patient()).unwrap());
        assert_eq!(back.line(), "barrier Ok(())");

        // It can die again, and be replaced while it lives.
        let third = Peer::start(&place, 2, 3, 2);
        assert_eq!(third.line(), "joined");
        for told in &seen {
            let (change, _) = next(told);
            let replaced = Some(Ending::Dead(How::Replaced));
            assert_eq!((change.epoch, change.standing.ending()), (1, replaced));
            assert_eq!((next(told).0.epoch, jobs[0].membership().epoch(Rank(2))), (2, Some(2)));
        }
        assert_eq!(back.line(), "change rank 2 is dead: it was started again");
        third.send(Signal::KILL);
        for told in &seen {
            let (change, _) = next(told);
            assert_eq!((change.epoch, change.standing.is_alive()), (2, false));
        }
    });
}

#[test]
fn a_job_that_takes_nobody_back_says_so() {
    watchdog(|| {
        let place = Place::new();
        let mut jobs = place.join_all(2, options());
        let env = place.env_with(1, 2, &[("PONTOON_EPOCH", "1")]);
        // Neither in place of one that lives, nor of one that is gone.
        assert_eq!(join(&env, b"", patient()).unwrap_err(), JoinError::Closed { rank: Rank(1) });
        let seen = changes(jobs[0].membership());
        drop(jobs.pop());
        next(&seen);
        assert_eq!(join(&env, b"", patient()).unwrap_err(), JoinError::Closed { rank: Rank(1) });
        assert!(!jobs[0].membership().is_alive(Rank(1)));
    });
}
