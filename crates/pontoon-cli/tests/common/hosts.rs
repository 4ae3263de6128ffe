//! Hosts that have addresses and cables of their own: `scripts/hosts`.

use std::{
    fs::File,
    os::fd::AsFd,
    path::PathBuf,
    process::{Command, Output},
    thread,
};

use pontoon::hal::conformance::part;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub(crate) fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/hosts")
}

pub(crate) fn hosts(arguments: &[&str]) -> Output {
    Command::new(script()).args(arguments).output().expect("bash")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Hosts that are taken away with this value.
pub(crate) struct Hosts {
    pub(crate) prefix: String,
    /// As `--hosts` takes them.
    pub(crate) names: String,
}

impl Hosts {
    /// `None`, with the reason printed, where there can be none.
    pub(crate) fn up(name: &str, count: u32) -> Option<Self> {
        let check = hosts(&["check"]);
        let works = check.status.success();
        let probe = works.then_some(()).ok_or_else(|| text(&check.stderr).trim().to_owned());
        part::needed("namespaces", probe)?;
        let prefix = format!("{name}{}-", std::process::id());
        let up = hosts(&["up", &count.to_string(), "--prefix", &prefix]);
        assert!(up.status.success(), "{}", text(&up.stderr));
        Some(Self { names: text(&up.stdout).trim().to_owned(), prefix })
    }

    pub(crate) fn name(&self, number: u32) -> String {
        format!("{}{number}", self.prefix)
    }

    pub(crate) fn address(&self, number: usize) -> &str {
        let host = self.names.split(',').nth(number - 1).expect("so many hosts");
        host.split_once('=').expect("an address").1
    }

    pub(crate) fn run(&self, arguments: &[&str]) {
        let output = hosts(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }

    /// Does something as a process of a host would. What it opens stays of that host.
    pub(crate) fn inside<T: Send>(&self, number: u32, act: impl FnOnce() -> T + Send) -> T {
        let network = File::open(format!("/run/netns/{}", self.name(number))).expect("a host");
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may");
                act()
            });
            there.join().expect("no panic")
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let down = hosts(&["down", "--prefix", &self.prefix]);
        if !thread::panicking() {
            assert!(down.status.success(), "{}", text(&down.stderr));
        }
    }
}
