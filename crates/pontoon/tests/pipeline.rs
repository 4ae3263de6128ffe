//! The pipeline of the examples as a user runs it, and what it says of sends beside computation.

#[path = "../examples/pipeline/overlap.rs"]
mod overlap;

use std::{
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use overlap::{Overlap, Span};

/// Far beyond what it takes: it catches a hang, not a slow machine.
const WATCHDOG: Duration = Duration::from_secs(300);

fn span(from: u64, to: u64) -> Span {
    Span { from, to }
}

#[test]
fn only_what_went_on_beside_something_counts_as_overlap() {
    let computes = [span(0, 100), span(150, 250)];
    for (sends, beside) in [
        (&[span(20, 40)][..], 20),
        (&[span(110, 140)], 0),
        // Its middle is between two computations.
        (&[span(90, 160)], 20),
        (&[span(0, 250)], 200),
        // Two at once, and one that the clock took back.
        (&[span(10, 30), span(20, 40), span(60, 50)], 40),
        (&[], 0),
    ] {
        let found = Overlap::of(sends, &computes);
        assert_eq!(found.beside, Duration::from_nanos(beside), "{sends:?}");
        assert!(found.beside <= found.all && (0.0..=100.0).contains(&found.percent()), "{found:?}");
    }
    let mut all = Overlap::of(&[span(0, 50)], &computes);
    all += Overlap::of(&[span(100, 150)], &computes);
    assert_eq!((all.percent(), Overlap::default().percent()), (50.0, 0.0));
}

/// What it prints, once it has ended well.
fn printed() -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--locked", "-p", "pontoon", "--example", "pipeline"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("cargo starts");
    let mut out = child.stdout.take().expect("piped");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let began = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if began.elapsed() > WATCHDOG {
            let _ = child.kill();
            panic!("it hangs");
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(child.wait().expect("it ended").success());
    reader.join().expect("no panic").expect("text")
}

#[test]
fn a_pipeline_is_right_with_a_slow_stage_ends_by_name_with_a_dead_one_and_tells_its_overlap() {
    let printed = printed();
    let line = |start: &str| {
        let found = printed.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start} in {printed}")).to_owned()
    };
    for name in ["as it is", "stage 2 slow"] {
        let line = line(&format!("{name}: 64 right batches in "));
        let percent = line.rsplit_once(" % of it").and_then(|(head, _)| head.rsplit(' ').next());
        let percent: f64 =
            percent.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        assert!(percent > 0.0 && percent <= 100.0, "{line}");
    }
    assert!(line("stage 2 dies: stage 2 ended: ").ends_with("on purpose"), "{printed}");
    for stage in [0, 1, 3] {
        let line = line(&format!("stage 2 dies: stage {stage} ended: "));
        assert!(line.contains(" is dead; "), "{line}");
    }
}
