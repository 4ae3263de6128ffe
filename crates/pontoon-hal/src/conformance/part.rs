//! What a test needs of the machine, by the name of a part: it runs, or says why it cannot.
//!
//! A part is something that some machines lack and a continuous integration has on purpose, such
//! as `ucx` (its library) or `namespaces` (the right to make them). `PONTOON_REQUIRE` lists, with
//! commas between them, the parts without which a run proves too little.

use std::{env, fmt::Display};

/// The variable that names the parts that no test may skip.
pub const REQUIRE: &str = "PONTOON_REQUIRE";

/// What `probe` found, after saying that the test runs; `None` after saying why it is skipped.
///
/// Its first line of output is `runs: [part]` or `skipped: [part] why`, which `xtask count`
/// counts. A test calls this first, and returns on `None`:
///
/// ```
/// # fn open() -> Result<(), &'static str> { Ok(()) }
/// use pontoon_hal::conformance::part;
///
/// let Some(library) = part::needed("ucx", open()) else { return };
/// ```
///
/// # Panics
///
/// `probe` failed and `PONTOON_REQUIRE` names the part.
#[track_caller]
pub fn needed<T, E: Display>(part: &str, probe: Result<T, E>) -> Option<T> {
    let required = env::var(REQUIRE).unwrap_or_default();
    match probe {
        Ok(found) => {
            println!("runs: [{part}]");
            Some(found)
        }
        Err(why) => {
            let may_skip = !is_among(part, &required);
            assert!(may_skip, "[{part}] {why}; {REQUIRE}={required} wants this test to run");
            println!("skipped: [{part}] {why}");
            None
        }
    }
}

/// Whether `list`, with commas between its names, has `part`.
fn is_among(part: &str, list: &str) -> bool {
    list.split(',').any(|name| name.trim() == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Not a test but what the others run, each in a process with a `PONTOON_REQUIRE` of its own.
    const MEMBER: &str = "conformance::part::tests::one_that_needs_a_part";

    #[test]
    fn one_that_needs_a_part() {
        let Some(found) = env::var_os("PONTOON_TEST_PART_IS_THERE") else { return };
        let is_there = found == "yes";
        let probe = if is_there { Ok(7) } else { Err("no lib.so: not in any folder") };
        assert_eq!(needed("part", probe), is_there.then_some(7));
    }

    /// Whether it passed, and what it said.
    fn outcome(is_there: &str, required: &str) -> (bool, String) {
        let program = env::current_exe().expect("it runs");
        let output = Command::new(program)
            .args(["--exact", MEMBER, "--nocapture"])
            .env("PONTOON_TEST_PART_IS_THERE", is_there)
            .env(REQUIRE, required)
            .output()
            .expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    #[test]
    fn a_part_that_is_there_is_said_to_run() {
        for required in ["", "part"] {
            let (passed, said) = outcome("yes", required);
            assert!(passed && said.contains("runs: [part]\n"), "{required}: {said}");
        }
    }

    #[test]
    fn a_part_that_is_missing_is_skipped_for() {
        for required in ["", "namespaces", "part-of,parts"] {
            let (passed, said) = outcome("no", required);
            let why = "skipped: [part] no lib.so: not in any folder\n";
            assert!(passed && said.contains(why), "{required}: {said}");
        }
    }

    #[test]
    fn a_part_that_is_missing_and_required_fails() {
        for required in ["part", "namespaces, part"] {
            let (passed, said) = outcome("no", required);
            let why = format!("[part] no lib.so: not in any folder; PONTOON_REQUIRE={required} ");
            assert!(!passed && said.contains(&why), "{required}: {said}");
            assert!(!said.contains("skipped: "), "{said}");
        }
    }
}
