//! The promises of a fence pool.

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{
    Buffer, Completer, CreateError, Fence, FencePool, PoolReport, PoolSpec, Stream,
};
use pontoon_signal::{Bound, Rank, Reason, Seq, WaitError};
use std::{collections::VecDeque, sync::mpsc, thread, time::Duration};

fn patient() -> Bound {
    Bound::within(Duration::from_secs(30))
}

/// A pool that begins with `lines` lines, at both ends of the counter in turn.
fn each_start(lines: u32, limit: u32, test: impl Fn(FencePool)) {
    for start in [0, u64::MAX - 1] {
        let spec = PoolSpec { lines, limit, start: Seq::new(start) };
        test(FencePool::new(Rank(5), spec));
    }
}

fn create(pool: &mut FencePool) -> (Completer, Fence) {
    pool.create("work").expect("room")
}

/// Created, completed, failed, dropped, outstanding.
fn fates(report: PoolReport) -> [u64; 5] {
    let PoolReport { created, completed, failed, dropped, outstanding, .. } = report;
    [created, completed, failed, dropped, outstanding]
}

#[test]
fn a_fence_is_reached_when_its_completer_says_so_and_not_before() {
    each_start(2, 8, |mut pool| {
        let (completer, fence) = create(&mut pool);
        assert_eq!(fence.is_complete(), Ok(false));
        let error = fence.wait(Bound::within(Duration::from_millis(1))).unwrap_err();
        assert!(error.error.is_timeout(), "{error}");
        assert_eq!((Some(completer.generation()), fence.device()), (fence.target(), Rank(5)));
        let work = thread::spawn(move || completer.complete(Ok(())));
        fence.wait(patient()).unwrap();
        work.join().unwrap();
        assert_eq!(fence.is_complete(), Ok(true));
        assert_eq!(fates(pool.report()), [1, 1, 0, 0, 0]);
    });
}

#[test]
fn a_failure_is_an_abort_with_its_reason() {
    each_start(2, 8, |mut pool| {
        let (completer, fence) = create(&mut pool);
        let waiting = thread::spawn({
            let fence = fence.clone();
            move || fence.wait(Bound::never_give_up()).unwrap_err()
        });
        completer.complete(Err(Reason::small(7)));
        let error = waiting.join().unwrap().error;
        let expected = (Reason::small(7), Rank(5));
        assert!(matches!(error, WaitError::Aborted { reason, by, .. } if (reason, by) == expected));
        assert!(fence.is_complete().is_err());
        assert_eq!(fates(pool.report()), [1, 0, 1, 0, 0]);
    });
}

#[test]
fn a_dropped_completer_fails_its_fence_and_the_error_names_label_and_place() {
    each_start(2, 8, |mut pool| {
        let (completer, fence) = pool.create("upload").unwrap();
        let line = line!() - 1;
        let work = thread::spawn(move || drop(completer));
        let error = fence.wait(Bound::never_give_up()).unwrap_err();
        assert!(matches!(error.error, WaitError::Aborted { reason: Reason::DROPPED, .. }));
        let text = error.to_string();
        let name = format!("upload ({}:{line}:", file!());
        assert!(text.contains(&name) && text.contains("was dropped"), "{text}");
        work.join().unwrap();
        assert_eq!(fates(pool.report()), [1, 0, 0, 1, 0]);
    });
}

#[test]
fn a_fence_stays_reached_when_its_line_is_used_again_and_when_that_fails() {
    each_start(1, 1, |mut pool| {
        let (first, early) = create(&mut pool);
        first.complete(Ok(()));
        let (second, late) = create(&mut pool);
        assert_ne!(early.target(), late.target());
        assert_eq!((early.is_complete(), late.is_complete()), (Ok(true), Ok(false)));
        drop(second);
        assert_eq!(early.is_complete(), Ok(true));
        assert!(late.is_complete().is_err());
        early.wait(patient()).unwrap();
    });
}

#[test]
fn a_line_that_failed_is_never_used_again() {
    each_start(2, 2, |mut pool| {
        for round in 1..=20 {
            let (completer, fence) = create(&mut pool);
            assert_eq!(fence.is_complete(), Ok(false), "no use inherits an ending");
            drop(completer);
            assert!(fence.is_complete().is_err());
            let report = pool.report();
            assert_eq!((report.dropped, report.retired), (round, round));
        }
        let report = pool.report();
        assert_eq!((fates(report), report.high_water), ([20, 0, 0, 20, 0], 1));
        assert!(report.lines <= 2, "{report}");
    });
}

#[test]
fn the_pool_grows_by_doubling_and_then_no_more() {
    each_start(2, 1_000, |mut pool| {
        for _ in 0..3 {
            let pairs: Vec<_> = (0..20).map(|_| create(&mut pool)).collect();
            let report = pool.report();
            assert_eq!((report.lines, report.growths, report.high_water), (2 + 4 + 8 + 16, 4, 20));
            assert_eq!(report.outstanding, 20);
            for (completer, fence) in pairs {
                completer.complete(Ok(()));
                assert_eq!(fence.is_complete(), Ok(true));
            }
        }
        assert_eq!(fates(pool.report()), [60, 60, 0, 0, 0]);
    });
}

#[test]
fn slots_of_all_growths_have_names_of_their_own() {
    each_start(1, 100, |mut pool| {
        let _pairs: Vec<_> = (0..50).map(|_| create(&mut pool)).collect();
        let mut slots: Vec<_> = pool.outstanding().map(|fence| fence.slot.slot).collect();
        slots.dedup();
        assert_eq!(slots, (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn at_the_limit_the_error_names_how_many_and_the_place_of_most() {
    each_start(2, 5, |mut pool| {
        let mut held: Vec<_> = (0..3).map(|_| pool.create("many").unwrap()).collect();
        let line = line!() - 1;
        held.extend((0..2).map(|_| pool.create("few").unwrap()));
        let error = pool.create("more").unwrap_err();
        let CreateError::Full { limit: 5, outstanding: 5, most, .. } = &error else {
            panic!("{error}")
        };
        let (label, location, count) = most.expect("a place");
        assert_eq!((label, location.line(), location.file(), count), ("many", line, file!(), 3));
        let text = error.to_string();
        let says = text.contains("5 fences of device 5") && text.contains("3 of them are \"many\"");
        assert!(says && text.contains(&format!("{}:{line}:", file!())), "{text}");
        held.pop().unwrap().0.complete(Ok(()));
        pool.create("more").unwrap().0.complete(Ok(()));
    });
}

#[test]
fn the_leak_report_names_label_place_age_and_generation_the_most_first() {
    let mut pool = FencePool::new(Rank(5), PoolSpec { lines: 1, ..PoolSpec::default() });
    assert_eq!(pool.leaks().to_string(), "every fence is completed");
    create(&mut pool).0.complete(Ok(()));
    let single = pool.create("single").unwrap();
    let line = line!() - 1;
    thread::sleep(Duration::from_millis(2));
    let many: Vec<_> = (0..6).map(|_| pool.create("many").unwrap()).collect();
    let leaks = pool.leaks();
    assert_eq!((leaks.count(), leaks.sites.len()), (7, 2));
    let first = &leaks.sites[0];
    assert_eq!((first.label, first.fences.len()), ("many", 6));
    assert!(first.fences.is_sorted_by(|a, b| a.age >= b.age));
    let last = &leaks.sites[1];
    let (fence, age) = (last.fences[0], last.fences[0].age);
    assert_eq!((last.label, last.location.line(), fence.generation), ("single", line, Seq::new(2)));
    assert!(age.as_duration() >= Duration::from_millis(2), "made before the sleep: {age}");

    let text = leaks.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "7 fences are not completed, made at 2 places:");
    let place = |count, label, line| format!("  {count} x \"{label}\" at {}:{line}:", file!());
    assert!(lines[1].starts_with(&place(6, "many", line + 3)), "{text}");
    assert!(lines[2].starts_with("    producer 5 slot 1 generation 1, made "), "{text}");
    assert_eq!((lines[6], lines.len()), ("    and 2 younger", 9));
    assert!(lines[7].starts_with(&place(1, "single", line)), "{text}");
    assert_eq!(lines[8], format!("    producer 5 slot 0 generation 2, made {age} ago"));

    drop(many);
    single.0.complete(Ok(()));
    assert_eq!(pool.leaks().to_string(), "every fence is completed");
    assert_eq!(fates(pool.report()), [8, 2, 0, 6, 0]);
}

#[test]
fn a_report_is_one_line_with_a_rate() {
    let mut pool = FencePool::new(Rank(0), PoolSpec::default());
    let held = create(&mut pool);
    create(&mut pool).0.complete(Ok(()));
    let report = pool.report();
    let rate = 2e9 / report.age.0 as f64;
    assert!((report.created_per_second() / rate - 1.0).abs() < 1e-9);
    let text = report.to_string();
    assert!(
        text.starts_with("2 fences in ") && text.contains("1 outstanding (at most 2)"),
        "{text}"
    );
    drop(held);
}

#[test]
fn a_dropped_pool_leaves_fences_and_completers_as_they_are() {
    each_start(2, 8, |mut pool| {
        let (done, reached) = create(&mut pool);
        done.complete(Ok(()));
        let ((later, late), (forgotten, lost)) = (create(&mut pool), create(&mut pool));
        drop(pool);
        assert_eq!((reached.is_complete(), late.is_complete()), (Ok(true), Ok(false)));
        later.complete(Ok(()));
        drop(forgotten);
        assert_eq!(late.is_complete(), Ok(true));
        assert!(lost.is_complete().is_err());
    });
}

/// Threads complete in an order of their own, some fail, and each fence ends as its completer
/// said; what the completer wrote before is there.
#[test]
fn thousands_of_fences_over_threads_end_as_they_should() {
    const WORKERS: usize = 3;
    const FENCES: u64 = 6_000;
    each_start(4, 256, |mut pool| {
        let (mut senders, mut workers) = (Vec::new(), Vec::new());
        for worker in 0..WORKERS {
            let (sender, jobs) = mpsc::channel::<(u64, Completer)>();
            senders.push(sender);
            workers.push(thread::spawn(move || {
                let mut held = VecDeque::new();
                let end = |(number, completer): (u64, Completer)| match number % 100 {
                    7 => drop(completer),
                    8 => completer.complete(Err(Reason::small(8))),
                    _ => completer.complete(Ok(())),
                };
                for job in jobs {
                    held.push_front(job);
                    if held.len() > worker * 3 {
                        held.pop_back().into_iter().for_each(end);
                    }
                }
                held.into_iter().for_each(end);
            }));
        }
        let mut fences = VecDeque::new();
        for number in 0..FENCES {
            let (completer, fence) = create(&mut pool);
            senders[number as usize % WORKERS].send((number, completer)).unwrap();
            fences.push_back((number, fence));
            if fences.len() > 100 {
                fences.pop_front().into_iter().for_each(check);
            }
        }
        drop(senders);
        fences.into_iter().for_each(check);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let report = pool.report();
        let failed = FENCES / 100;
        assert_eq!(fates(report), [FENCES, FENCES - 2 * failed, failed, failed, 0]);
        assert_eq!(report.retired, 2 * failed);
        assert!(report.high_water > 1 && report.high_water <= 256, "{report}");
    });

    fn check((number, fence): (u64, Fence)) {
        match (number % 100, fence.wait(patient()).map_err(|error| error.error)) {
            (7, Err(WaitError::Aborted { reason: Reason::DROPPED, .. })) => {}
            (8, Err(WaitError::Aborted { reason, .. })) if reason == Reason::small(8) => {}
            (0..=6 | 9.., Ok(())) => {}
            (_, outcome) => panic!("fence {number}: {outcome:?}"),
        }
    }
}

#[test]
fn a_stream_waits_for_a_fence_of_a_pool() {
    let device = CpuDevice::open(Rank(0), CpuSpec::default()).unwrap();
    let numbers = Buffer::<_, u32>::allocate(&device, 1).unwrap();
    let mut stream = Stream::open(&device, Engine::Compute, "stream").unwrap();
    let mut pool = FencePool::new(Rank(1), PoolSpec::default());
    let (completer, gate) = create(&mut pool);
    stream.wait(&gate, patient()).unwrap();
    let fill = Kernel::new(|context| context.write::<u32>(0).fill(20));
    let filled = stream.launch("fill", &fill, [numbers.write(..)], []).unwrap();
    assert_eq!(filled.is_complete(), Ok(false));
    completer.complete(Ok(()));
    filled.wait(patient()).unwrap();
    assert_eq!(numbers.to_vec().unwrap(), [20]);
}
