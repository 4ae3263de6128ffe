//! Dependency arrows between the workspace's crates point downwards.
//!
//! ```text
//! pontoon-cli
//! pontoon
//! pontoon-smc  pontoon-comm      | backends: cpu, opencl, cuda, job, shm, ucx, verbs, uffd, sim
//! pontoon-queue                  |
//! pontoon-hal
//! pontoon-signal
//! ```
//!
//! A crate may use what lies below it, never its neighbour. A backend sees only the hardware
//! layer and the signals, so that no backend can come to need another, or the queue above it.
//! Dev-dependencies point anywhere: a test may look up. A workspace crate that is not called
//! `pontoon…` is a tool: it may use anything, and nothing may use it.

use crate::{report::Report, workspace::Workspace};

/// Where a crate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Signal,
    Hal,
    Queue,
    Backend,
    /// What is built on streams: collectives, many-to-one channels.
    Service,
    Facade,
    Cli,
    Tool,
}

impl Layer {
    /// The layer of a workspace crate, or `None` for a `pontoon…` crate without a place yet.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "pontoon-signal" => Self::Signal,
            "pontoon-hal" => Self::Hal,
            "pontoon-queue" => Self::Queue,
            "pontoon-cpu" | "pontoon-opencl" | "pontoon-cuda" | "pontoon-job" | "pontoon-shm"
            | "pontoon-ucx" | "pontoon-verbs" | "pontoon-uffd" | "pontoon-sim" => Self::Backend,
            "pontoon-smc" | "pontoon-comm" => Self::Service,
            "pontoon" => Self::Facade,
            "pontoon-cli" => Self::Cli,
            _ if name.starts_with("pontoon") => return None,
            _ => Self::Tool,
        })
    }

    fn may_use(self, other: Self) -> bool {
        match self {
            Self::Signal => false,
            Self::Hal => other == Self::Signal,
            Self::Queue | Self::Backend => matches!(other, Self::Hal | Self::Signal),
            Self::Service => matches!(other, Self::Queue | Self::Hal | Self::Signal),
            Self::Facade => !matches!(other, Self::Facade | Self::Cli | Self::Tool),
            Self::Cli => !matches!(other, Self::Cli | Self::Tool),
            Self::Tool => true,
        }
    }
}

/// What a crate without a place is told.
pub(crate) fn unplaced(name: &str) -> String {
    format!("{name} has no layer; give it one in Layer::of, xtask/src/layers.rs")
}

/// Checks every normal and build arrow between crates of the workspace.
pub(crate) fn check(workspace: &Workspace) -> Report {
    let mut report = Report::default();
    let is_ours = |name: &str| workspace.packages.iter().any(|package| package.name == name);
    let mut arrows = 0;
    for package in &workspace.packages {
        let Some(from) = Layer::of(&package.name) else {
            report.problem(unplaced(&package.name));
            continue;
        };
        for dependency in &package.dependencies {
            if dependency.dev || !is_ours(&dependency.name) {
                continue;
            }
            arrows += 1;
            // An unplaced target is complained of as a package.
            if Layer::of(&dependency.name).is_some_and(|to| !from.may_use(to)) {
                report.problem(format!(
                    "{} ({from:?}) may not depend on {}; see the picture in xtask/src/layers.rs",
                    package.name, dependency.name
                ));
            }
        }
    }
    if arrows == 0 {
        report.problem("no arrow between workspace crates was seen, so nothing was checked");
    }
    report.line(format!("layers: {arrows} arrows between {} crates", workspace.packages.len()));
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Dependency, Package};

    fn workspace(arrows: &[(&str, &str, bool)]) -> Workspace {
        let mut names: Vec<&str> = arrows.iter().flat_map(|it| [it.0, it.1]).collect();
        names.sort_unstable();
        names.dedup();
        let packages = names
            .iter()
            .map(|name| Package {
                name: (*name).into(),
                dependencies: arrows
                    .iter()
                    .filter(|arrow| arrow.0 == *name)
                    .map(|arrow| Dependency { name: arrow.1.into(), dev: arrow.2 })
                    .collect(),
                roots: Vec::new(),
            })
            .collect();
        Workspace { root: "/".into(), packages }
    }

    fn refused(from: &str, to: &str) -> bool {
        check(&workspace(&[(from, to, false)])).complains_of("may not depend on")
    }

    #[test]
    fn downward_arrows_pass() {
        let report = check(&workspace(&[
            ("pontoon-cli", "pontoon", false),
            ("pontoon", "pontoon-cuda", false),
            ("pontoon", "pontoon-comm", false),
            ("pontoon-comm", "pontoon-queue", false),
            ("pontoon-queue", "pontoon-hal", false),
            ("pontoon-sim", "pontoon-hal", false),
            ("pontoon-shm", "pontoon-hal", false),
            ("pontoon-hal", "pontoon-signal", false),
        ]));
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.lines, ["layers: 8 arrows between 9 crates"]);
    }

    #[test]
    fn upward_and_sideways_arrows_are_refused() {
        assert!(refused("pontoon-signal", "pontoon-hal"));
        assert!(refused("pontoon-hal", "pontoon-cpu"));
        assert!(refused("pontoon-queue", "pontoon-cpu"));
        assert!(refused("pontoon-cpu", "pontoon-queue"));
        assert!(refused("pontoon-ucx", "pontoon-cpu"));
        assert!(refused("pontoon-ucx", "pontoon-queue"));
        assert!(refused("pontoon-ucx", "pontoon-shm"));
        assert!(refused("pontoon-job", "pontoon-queue"));
        assert!(refused("pontoon-job", "pontoon-cpu"));
        assert!(refused("pontoon-shm", "pontoon-cpu"));
        assert!(refused("pontoon-shm", "pontoon-queue"));
        assert!(refused("pontoon-smc", "pontoon-comm"));
        assert!(refused("pontoon-comm", "pontoon-cpu"));
        assert!(refused("pontoon", "pontoon-cli"));
        assert!(refused("pontoon", "xtask"));
    }

    #[test]
    fn tests_and_tools_may_look_anywhere() {
        let report = check(&workspace(&[
            ("pontoon-hal", "pontoon-cpu", true),
            ("xtask", "pontoon-cli", false),
        ]));
        assert_eq!(report.problems, [""; 0]);
    }

    #[test]
    fn a_crate_without_a_place_is_refused() {
        let report = check(&workspace(&[("pontoon-vulkan", "pontoon-hal", false)]));
        assert!(report.complains_of("pontoon-vulkan has no layer"));
    }

    #[test]
    fn seeing_no_arrow_is_refused() {
        let only_dev = check(&workspace(&[("pontoon", "pontoon-cpu", true)]));
        assert!(only_dev.complains_of("nothing was checked"));
    }
}
