//! Random programs, judged by the engine and by an oracle that shares no code with it.
//!
//! The oracle knows no clocks and no intervals: it draws every event as a node, closes the graph
//! over all pairs, and looks at each byte by itself.
//!
//! `PONTOON_PROGRAMS=100000 cargo test --release -p pontoon-queue --test model_check` tries that
//! many programs, of up to 200 entries; without it 2,000 of up to 60 are tried.

mod generate;
mod graph;
mod oracle;
mod write;

use std::{env, sync::Mutex, thread};

use pontoon_queue::check::{Finding, check};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// How often each kind of finding came up, and programs without one.
type Counts = [usize; 8];

#[test]
fn the_engine_finds_what_the_oracle_finds() {
    let long = env::var("PONTOON_PROGRAMS").ok().map(|text| text.parse().expect("a number"));
    let (cases, entries) = long.map_or((2_000, 60), |cases: u32| (cases, 200));
    let threads = thread::available_parallelism().map_or(1, |it| it.get() as u32);
    let seen = Mutex::new((0_usize, Counts::default()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| judge(cases.div_ceil(threads), entries, &seen));
        }
    });
    let (programs, counts) = seen.into_inner().expect("no thread panicked");
    println!(
        "{programs} programs on {threads} threads; RAW, WAR, WAW, visibility, use-after-free, \
         never-signalled, deadlock, none: {counts:?}"
    );
    assert!(counts.iter().all(|&count| count > 0), "some kind never came up: {counts:?}");
}

/// Judges `cases` programs of up to `entries` entries, and counts them and what was found.
fn judge(cases: u32, entries: usize, seen: &Mutex<(usize, Counts)>) {
    let config =
        Config { cases, max_shrink_iters: 4_000, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&generate::program(entries), |program| {
        let mut found = check(&program).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut wanted = oracle::findings(&program);
        count(&found, &mut seen.lock().expect("no thread panicked"));
        found.sort_by_key(|finding| format!("{finding:?}"));
        wanted.sort_by_key(|finding| format!("{finding:?}"));
        if found != wanted {
            let scenario = write::scenario(&program);
            return Err(TestCaseError::fail(format!(
                "the engine finds {found:#?}\nthe oracle finds {wanted:#?}\nin {scenario}"
            )));
        }
        Ok(())
    });
    match result {
        Err(TestError::Fail(why, _)) => panic!("{}", why.message()),
        Err(TestError::Abort(why)) => panic!("{why}"),
        Ok(()) => {}
    }
}

fn count(found: &[Finding], (programs, counts): &mut (usize, Counts)) {
    found.iter().for_each(|finding| counts[kind(finding)] += 1);
    counts[7] += usize::from(found.is_empty());
    *programs += 1;
    if programs.is_multiple_of(10_000) {
        println!("{programs} programs");
    }
}

fn kind(finding: &Finding) -> usize {
    match finding {
        Finding::Hazard(hazard) => hazard.kind as usize,
        Finding::NeverSignalled { .. } => 5,
        Finding::Deadlock { .. } => 6,
    }
}
