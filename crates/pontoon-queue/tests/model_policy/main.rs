//! Random programs whose kernels panic, over CPU devices, judged by what the batches that succeeded
//! write one after the other.
//!
//! `PONTOON_PROGRAMS=20000 cargo test --release -p pontoon-queue --test model_policy` tries that many
//! programs; without it 300 are tried.

mod oracle;
mod program;
mod run;

use std::{cell::RefCell, env};

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// What came up.
#[derive(Debug, Default)]
struct Counts {
    programs: usize,
    /// Programs in which nothing could fail.
    healthy: u64,
    succeeded: u64,
    failed: u64,
    refused: u64,
    retried: u64,
    rolled_back: u64,
    untouched: u64,
    not_retried: u64,
    reopened: u64,
    timed_out: u64,
    /// Bytes that were compared.
    known: u64,
    /// Bytes that a failure left as nobody says.
    unknown: u64,
}

#[test]
fn whoever_succeeds_has_the_bytes_of_those_who_did() {
    let long = env::var("PONTOON_PROGRAMS").ok().map(|text| text.parse().expect("a number"));
    let cases = long.unwrap_or(300);
    let config =
        Config { cases, max_shrink_iters: 500, failure_persistence: None, ..Config::default() };
    let counts = RefCell::new(Counts::default());
    let result = TestRunner::new(config).run(&program::program(), |program| {
        let mut counts = counts.borrow_mut();
        counts.programs += 1;
        let history = run::run(&program, &mut counts).map_err(TestCaseError::fail)?;
        oracle::judge(&program, &history, &mut counts).map_err(TestCaseError::fail)
    });
    match result {
        Err(TestError::Fail(why, program)) => panic!("{}\nin {program:?}", why.message()),
        Err(TestError::Abort(why)) => panic!("{why}"),
        Ok(()) => {}
    }
    let counts = counts.into_inner();
    println!("{counts:?}");
    let Counts { healthy, succeeded, failed, refused, retried, rolled_back, .. } = counts;
    let Counts { untouched, reopened, known, unknown, timed_out, not_retried, .. } = counts;
    let first = [healthy, succeeded, failed, refused, retried, rolled_back, untouched];
    let second = [reopened, known, unknown, timed_out, not_retried];
    assert!(
        first.iter().chain(&second).all(|&count| count > 0),
        "something never came up: {counts:?}"
    );
}
