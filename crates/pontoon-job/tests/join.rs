//! Joining: who gets in, who does not, and what each is told. Ranks are threads here.

mod common;

use common::{OTHER_TOKEN, Place, TOKEN, card, each, join, options, patient, until, watchdog};
use pontoon_job::{Env, Job, JoinError, Options, StoreError};
use pontoon_signal::{Bound, Nanos, Rank};
use std::{net::TcpListener, thread, time::Duration};

#[test]
fn jobs_of_one_two_and_eight_know_each_others_cards() {
    watchdog(|| {
        for world in [1, 2, 8] {
            let jobs = Place::new().join_all(world, options());
            for job in &jobs {
                assert_eq!(job.world(), world);
                for rank in 0..world {
                    assert_eq!(&*job.card(Rank(rank)).unwrap(), card(rank));
                    let process = job.process(Rank(rank)).unwrap();
                    assert_eq!(process.id.pid, std::process::id());
                }
                assert!(job.card(Rank(world)).is_none());
                assert_eq!(job.membership().alive().count() as u32, world);
            }
            assert_eq!(jobs[0].strangers().unwrap().total(), 0);
            let left = each_job(jobs, |job| job.leave(patient()));
            assert!(left.iter().all(Result::is_ok), "{left:?}");
        }
    });
}

fn each_job<R: Send>(jobs: Vec<Job>, work: impl Fn(Job) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || work(job))).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

#[test]
fn a_process_on_its_own_is_a_job_of_one() {
    let job = Job::join(&Env::alone().unwrap(), b"", patient()).unwrap();
    assert_eq!((job.rank(), job.world(), job.name()), (Rank(0), 1, "alone"));
    assert!(job.address().unwrap().ip().is_loopback());
    job.barrier(b"all of me", patient()).unwrap();
    job.leave(patient()).unwrap();
}

#[test]
fn rank_0_may_come_last() {
    watchdog(|| {
        let place = Place::new();
        let before = TcpListener::bind((&*place.host, place.port)).unwrap();
        let early = start(place.env(1, 2));
        // It has called in vain once this one has hung up on it.
        drop(before.accept().unwrap());
        drop(before);
        let job = join(&place.env(0, 2), &card(0), patient()).unwrap();
        assert_eq!(&*early.join().unwrap().unwrap().card(Rank(0)).unwrap(), card(0));
        drop(job);
    });
}

#[test]
fn every_rank_that_is_there_is_told_who_is_not() {
    watchdog(|| {
        let place = Place::new();
        let envs: Vec<Env> = [0, 2, 3].map(|rank| place.env(rank, 6)).into();
        let bound = Bound::within(Duration::from_secs(1));
        let errors = each(&envs, |env| join(env, b"", bound).unwrap_err());
        for error in &errors {
            let JoinError::Absent { ranks, count, world, .. } = error else { panic!("{error:?}") };
            assert_eq!((&**ranks, *count, *world), (&[1, 4, 5].map(Rank)[..], 3, 6));
        }
        let text = errors[1].to_string();
        assert!(text.contains("for 3 of 6 ranks: absent are ranks 1, 4, 5"), "{text}");
        assert!(!text.contains('\n'));
    });
}

#[test]
fn the_shortest_bound_ends_the_wait_of_all() {
    watchdog(|| {
        let place = Place::new();
        let envs = [(0, 60), (1, 60), (2, 1)].map(|(rank, secs)| (place.env(rank, 4), secs));
        let errors = each(&envs, |(env, seconds)| {
            join(env, b"", Bound::within(Duration::from_secs(*seconds))).unwrap_err()
        });
        for error in errors {
            assert!(
                matches!(&error, JoinError::Absent { ranks, .. } if *ranks == [Rank(3)]),
                "{error:?}"
            );
        }
    });
}

#[test]
fn no_rank_0_is_one_clear_line() {
    let env = Place::new().env(1, 2);
    let error = join(&env, b"", Bound::within(Duration::from_millis(300))).unwrap_err();
    assert!(matches!(error, JoinError::NoMaster { tries: 2.., .. }), "{error:?}");
    let text = error.to_string();
    for part in ["rank 1 called rank 0 at 127.", "refused", "is rank 0 started", "firewall"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains('\n'));
}

#[test]
fn a_call_of_rank_0_to_itself_is_told_as_one() {
    let called = |rank, tries| {
        let master = Place::new().env(rank, 2).master;
        let (rank, waited) = (Rank(rank), Nanos(1_000_000_000));
        JoinError::NoMaster { rank, master, tries, waited, last: None }.to_string()
    };
    let itself = called(0, 1);
    assert!(itself.starts_with("rank 0 called its own address 127."), "{itself}");
    assert!(
        itself.ends_with(" once in 1.0 s: no answer; does a firewall keep this host from itself?"),
        "{itself}"
    );
    let other = called(1, 2);
    assert!(other.contains(" 2 times in 1.0 s: no answer; is rank 0 started"), "{other}");
}

/// Which others there are, whoever it is, and whether it is there already: all know at once.
#[test]
fn a_rank_that_cannot_come_leaves_word_for_the_others() {
    watchdog(|| {
        for (unable, at_once) in [(0, false), (1, false), (2, true)] {
            let place = Place::new();
            let others: Vec<Env> =
                (0..3).filter(|rank| *rank != unable).map(|rank| place.env(rank, 3)).collect();
            let env = place.env(unable, 3);
            let errors = thread::scope(|scope| {
                let decline = || options().decline(&env, "there is no memory", patient());
                let first = at_once.then(|| scope.spawn(decline));
                let told =
                    scope.spawn(|| each(&others, |env| join(env, b"", patient()).unwrap_err()));
                if first.is_none() {
                    decline();
                }
                told.join().unwrap()
            });
            for error in errors {
                let why = "there is no memory".into();
                assert_eq!(error, JoinError::Unable { rank: Rank(unable), why });
                let text = error.to_string();
                let wanted = format!("rank {unable} cannot be in the job: there is no memory");
                assert_eq!(text, wanted);
            }
        }
    });
}

#[test]
fn a_port_that_is_roots_is_told_with_what_to_do() {
    let address = "127.0.0.1:80".parse().unwrap();
    let error = pontoon_signal::SystemError { call: "bind", code: 13 };
    let text = JoinError::CannotListen { address, error }.to_string();
    assert!(text.contains("from 1024 on by MASTER_PORT") && !text.contains('\n'), "{text}");
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    let place = Place::new();
    let _other = TcpListener::bind((&*place.host, place.port)).unwrap();
    let error = join(&place.env(0, 2), b"", patient()).unwrap_err();
    let text = error.to_string();
    let address = format!("{}:{}", place.host, place.port);
    for part in [&*address, "in use", "MASTER_PORT", "ss -ltnp"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_rank_with_another_token_is_refused_and_the_job_is_not_disturbed() {
    watchdog(|| {
        let place = Place::new();
        let wrong = place.env_with(1, 2, &[("PONTOON_TOKEN", OTHER_TOKEN)]);
        let first = start(place.env(0, 2));
        let error = join(&wrong, b"", patient()).unwrap_err();
        assert!(matches!(error, JoinError::Token { rank: Rank(1), .. }), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("PONTOON_TOKEN_FILE"), "{text}");
        assert!(!text.contains(&TOKEN[..8]) && !text.contains(&OTHER_TOKEN[..8]), "{text}");
        let second = join(&place.env(1, 2), b"", patient()).unwrap();
        let first = first.join().unwrap().unwrap();
        assert_eq!(first.strangers().unwrap().wrong_token, 1);
        drop(second);
    });
}

fn start(env: Env) -> thread::JoinHandle<Result<Job, JoinError>> {
    thread::spawn(move || join(&env, &card(env.rank.0), patient()))
}

#[test]
fn a_rank_of_another_job_is_refused_by_both_names() {
    watchdog(|| {
        let place = Place::new();
        let first = start(place.env(0, 2));
        let other = place.env_with(1, 2, &[("PONTOON_JOB", "other")]);
        let error = join(&other, b"", patient()).unwrap_err();
        let names = JoinError::Job { ours: "other".into(), theirs: "test".into() };
        assert_eq!(error, names);
        let second = join(&place.env(1, 2), b"", patient()).unwrap();
        assert_eq!(first.join().unwrap().unwrap().strangers().unwrap().other_job, 1);
        drop(second);
    });
}

#[test]
fn a_world_that_disagrees_is_told_to_all_with_both_numbers() {
    watchdog(|| {
        // Whoever comes first, rank 0's own call with them.
        for _ in 0..10 {
            let place = Place::new();
            let envs = [place.env(0, 3), place.env(1, 3), place.env(2, 4)];
            let errors = each(&envs, |env| join(env, b"", patient()).unwrap_err());
            let expected = JoinError::World { rank: Rank(2), theirs: 4, rank_0: 3 };
            assert_eq!(errors, vec![expected; 3]);
            let text = errors[0].to_string();
            assert!(text.contains("WORLD_SIZE is 4 in rank 2 and 3 in rank 0"), "{text}");
        }
    });
}

#[test]
fn a_second_process_of_a_rank_is_refused_and_both_are_named() {
    watchdog(|| {
        let place = Place::new();
        let (first, second) = (start(place.env(0, 3)), start(place.env(1, 3)));
        // Of two that come, one is refused, whichever it is.
        let twin = start(place.env(1, 3));
        let refused = until("one to be refused", || {
            second.is_finished().then_some(0).or(twin.is_finished().then_some(1))
        });
        let third = join(&place.env(2, 3), b"", patient()).unwrap();
        let results = [second.join().unwrap(), twin.join().unwrap()];
        let error = results[refused].as_ref().unwrap_err();
        assert!(matches!(error, JoinError::Taken { rank: Rank(1), epoch: 0, .. }), "{error:?}");
        let text = error.to_string();
        let pid = format!("pid {} on ", std::process::id());
        assert_eq!(text.matches(&pid).count(), 2, "{text}");
        assert!(results[1 - refused].is_ok());
        let first = first.join().unwrap().unwrap();
        // One that comes later is refused as well.
        let late = join(&place.env(1, 3), b"", patient()).unwrap_err();
        assert!(matches!(late, JoinError::Taken { .. }), "{late:?}");
        drop((first, third));
    });
}

#[test]
fn what_cannot_be_is_refused_before_anybody_is_called() {
    let env = Place::new().env(1, 2);
    let long = vec![0; 70_000];
    let error = join(&env, &long, patient()).unwrap_err();
    assert_eq!(error, JoinError::CardTooLong { bytes: 70_000, max: 65_536 });
    let hasty = Options::default().lost_after(Duration::from_millis(150));
    let error = hasty.join(&env, b"", patient()).unwrap_err();
    assert!(matches!(error, JoinError::Pace { .. }), "{error:?}");
}

#[test]
fn the_largest_cards_arrive_whole() {
    watchdog(|| {
        let place = Place::new();
        let envs: Vec<Env> = (0..4).map(|rank| place.env(rank, 4)).collect();
        let big = |rank: u32| vec![rank as u8 + 1; 65_536];
        let jobs = each(&envs, |env| join(env, &big(env.rank.0), patient()).unwrap());
        for job in &jobs {
            for rank in 0..4 {
                assert_eq!(&*job.card(Rank(rank)).unwrap(), big(rank));
            }
        }
    });
}

#[test]
fn values_numbers_and_gatherings_go_through_rank_0() {
    watchdog(|| {
        let jobs = Place::new().join_all(4, options());
        each(&jobs, |job| {
            let rank = job.rank().0;
            if rank == 3 {
                job.set(b"late", b"value", patient()).unwrap();
            }
            assert_eq!(job.get(b"late", patient()).unwrap(), b"value");
            for round in 0..50 {
                let part = [rank as u8, round];
                let parts = job.all_gather(b"round", &part, patient()).unwrap();
                assert_eq!(parts, (0..4).map(|rank| vec![rank, round]).collect::<Vec<_>>());
            }
            job.add(b"count", 1 + i64::from(rank), patient()).unwrap();
            job.barrier(b"counted", patient()).unwrap();
            assert_eq!(job.add(b"count", 0, patient()).unwrap(), 10);
            assert_eq!(job.add(b"late", 1, patient()), Err(StoreError::NoNumber));
            if rank != 1 {
                let some = [0, 2, 3].map(Rank);
                assert_eq!(job.gather_among(b"some", &some, b"", patient()).unwrap().len(), 3);
            }
            let big = vec![rank as u8; 1 << 20];
            job.set(&[rank as u8], &big, patient()).unwrap();
            job.barrier(b"set", patient()).unwrap();
            let other = (rank + 1) % 4;
            assert_eq!(job.get(&[other as u8], patient()).unwrap(), vec![other as u8; 1 << 20]);
            let long = job.set(b"k", &vec![0; (1 << 20) + 1], patient());
            assert!(matches!(long, Err(StoreError::TooLong { .. })), "{long:?}");
        });
    });
}

#[test]
fn a_wait_for_what_does_not_come_ends_with_its_bound_and_leaves_nothing() {
    watchdog(|| {
        let jobs = Place::new().join_all(2, options());
        let short = Bound::within(Duration::from_millis(50));
        let error = jobs[1].get(b"never\n", short).unwrap_err();
        assert!(error.to_string().ends_with("for key \"never\\n\" to be set"), "{error}");
        let error = jobs[1].barrier(b"alone", short).unwrap_err();
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error:?}");
        // What was given up is not in the way of a new try.
        each(&jobs, |job| job.barrier(b"alone", patient()).unwrap());
    });
}

#[test]
fn a_peer_that_is_no_job_is_told_apart() {
    let place = Place::new();
    let listener = TcpListener::bind((&*place.host, place.port)).unwrap();
    let server = thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = join(&place.env(1, 2), b"", patient()).unwrap_err();
    assert!(matches!(error, JoinError::NotPontoon { .. }), "{error:?}");
    assert!(error.to_string().contains("MASTER_PORT"), "{error}");
    server.join().unwrap();
}
