//! `pontoon train` over UCX: the same digest by every way, and one clear line where there is no UCX.

use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use pontoon::hal::conformance::part;

/// How long a run may take before it hangs.
const WATCHDOG: Duration = Duration::from_secs(120);

fn train(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pontoon"));
    command.args(["train", "--devices", "1", "--epochs", "1"]).args(arguments);
    command.envs(variables.iter().copied());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > WATCHDOG {
            let _ = child.kill();
            panic!("{arguments:?} with {variables:?} hangs");
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn digest(output: &Output) -> String {
    let said = said(output);
    assert!(output.status.success(), "{said}");
    let line = said.lines().find(|line| line.contains("weights digest"));
    let digest = line.and_then(|line| line.split_whitespace().nth(2));
    digest.unwrap_or_else(|| panic!("no digest in {said}")).trim_end_matches(',').to_owned()
}

#[test]
fn ranks_reach_the_digest_of_one_process_by_every_way() {
    let Some(_) = part::needed("ucx", pontoon::ucx::Library::open()) else { return };
    let mut digests = Vec::new();
    for transports in ["tcp", "posix", "all"] {
        let arguments = ["--procs", "3", "--transport", "ucx", "--verify"];
        let run = train(&arguments, &[("UCX_TLS", transports)]);
        assert!(said(&run).contains("as on one thread"), "{transports}: {}", said(&run));
        digests.push(digest(&run));
        let run =
            train(&[&arguments[..], &["--params", "smc"]].concat(), &[("UCX_TLS", transports)]);
        assert!(said(&run).contains("as on one thread"), "smc, {transports}: {}", said(&run));
        assert!(said(&run).contains("shared memory   "), "{}", said(&run));
        digests.push(digest(&run));
    }
    digests.push(digest(&train(&["--procs", "3", "--transport", "shm"], &[])));
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

#[test]
fn whoever_starts_what_is_sent_the_digest_is_the_same() {
    let Some(_) = part::needed("ucx", pontoon::ucx::Library::open()) else { return };
    let mut digests = Vec::new();
    let over = |transports, initiate| {
        let arguments = ["--procs", "3", "--transport", "ucx", "--verify", "--initiate", initiate];
        train(&arguments, &[("UCX_TLS", transports)])
    };
    for (transports, initiate) in
        [("tcp", "host"), ("tcp", "ring"), ("tcp", "triggered"), ("tcp", "auto"), ("all", "direct")]
    {
        let run = over(transports, initiate);
        assert!(said(&run).contains("as on one thread"), "{initiate}: {}", said(&run));
        digests.push(digest(&run));
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    let refused = over("tcp", "direct");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    let line = "has no mapped memory";
    assert!(said(&refused).contains(line), "{}", said(&refused));
}

#[test]
fn without_ucx_one_line_names_the_package() {
    let arguments = ["--procs", "2", "--transport", "ucx"];
    let run = train(&arguments, &[("PONTOON_UCX_LIBRARY", "/nowhere/libucp.so")]);
    let said = said(&run);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("UCX is absent") && said.contains("libucx0"), "{said}");
    assert!(!said.contains("is dead"), "{said}");
}
