//! Settings from a profile, which is read once for a whole process: each case is a process.
#![cfg(not(pontoon_loom))]

use std::{env, fs, process::Command};

use pontoon_comm::{Messages, Settings};

/// Set where this test is the child, to what it is to find.
const EXPECTED: &str = "PONTOON_TEST_EXPECTED";

const BOUNDS: &str = "version 1\nthread.spin 1\nthread.yields 2\nthread.deadline_ns 3\n\
                      process.spin 4\nprocess.yields 5\nprocess.deadline_ns 6\n";
const RINGS: &str = "small.depth 2048\nsmall.batch 16\nsmall.rings 2\n\
                     large.depth 64\nlarge.batch 8\nlarge.rings 1\n";

fn found() -> String {
    let of = |messages| {
        let Settings { depth, batch, rings, .. } = Settings::tuned(messages);
        format!("{depth} {batch} {rings}")
    };
    format!("{}, {}", of(Messages::Small), of(Messages::Large))
}

#[test]
fn settings_are_those_of_the_profile_or_the_default() {
    if let Ok(expected) = env::var(EXPECTED) {
        assert_eq!(found(), expected);
        let (tuned, default) = (Settings::tuned(Messages::Small), Settings::default());
        assert_eq!((tuned.stall, tuned.spins), (default.stall, default.spins));
        return;
    }
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("comm-tuned-profile");
    let default = "512 32 1, 512 32 1";
    for (text, expected) in [
        (Some(format!("{BOUNDS}{RINGS}")), "2048 16 2, 64 8 1"),
        // One from before there were rings, one that is broken, and none at all.
        (Some(BOUNDS.to_owned()), default),
        (Some(format!("{BOUNDS}small.depth 3\n")), default),
        (None, default),
    ] {
        match &text {
            Some(text) => fs::write(&file, text).expect("written"),
            None => fs::remove_file(&file).expect("removed"),
        }
        let mut child = Command::new(env::current_exe().expect("this program"));
        child.args(["--exact", "settings_are_those_of_the_profile_or_the_default"]);
        child.env(EXPECTED, expected).env("PONTOON_PROFILE", &file);
        let output = child.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{text:?}: {said}");
    }
}
