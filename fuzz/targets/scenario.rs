//! Any bytes are a scenario or are refused; what is one is checked and its findings are told.
#![no_main]

#[path = "../../crates/pontoon-cli/src/counted.rs"]
mod counted;
mod mutate;

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target, fuzzer_mutate};

/// The part of `pontoon check` between a file's bytes and what is printed, by its own source: the
/// command is a program, and a library of it would be public for this target alone.
#[path = "../../crates/pontoon-cli/src/check"]
mod check {
    mod answer;
    mod entries;
    mod json;
    mod node;
    mod scenario;

    use std::{io, path::Path};

    use libfuzzer_sys::Corpus;
    use pontoon_queue::check::check;

    /// Reads, checks and tells, as the command does with a file. What is refused is not
    /// changed further: each way to be refused is a change or two from a scenario.
    pub(crate) fn judge(text: &[u8]) -> Corpus {
        let scenario = match scenario::Scenario::read(text) {
            Ok(scenario) => scenario,
            Err(fault) => {
                let why = fault.to_string();
                assert!(why.starts_with("line ") && why.contains("expected"), "{why}");
                return Corpus::Reject;
            }
        };
        let findings = check(&scenario.program).expect("what is read names only what it has");
        let file = Path::new("fuzzed");
        let answer = answer::Answer { file, scenario: &scenario, findings: &findings };
        answer.print_text(&mut io::sink()).expect("a sink takes all");
        answer.print_json(&mut io::sink()).expect("a sink takes all");
        Corpus::Keep
    }
}

fuzz_target!(|text: &[u8]| -> Corpus { check::judge(text) });

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let bytes = seed.is_multiple_of(4);
    let changed = if bytes { None } else { mutate::restructure(data, size, max_size, seed) };
    changed.unwrap_or_else(|| fuzzer_mutate(data, size, max_size))
});
