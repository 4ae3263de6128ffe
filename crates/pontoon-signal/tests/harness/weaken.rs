//! Takes every ordering of a crate away, one at a time, and requires that a loom model notices.
//! Each crate whose models loom runs has this as a module beside them.
//!
//! Built with `--cfg pontoon_loom --cfg pontoon_weaken`. The sites are found by scanning the
//! sources for calls of `sync`, so a new one cannot be forgotten. Each is tried in a process of
//! its own, for a model that fails can leave loom in disorder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use crate::models;

/// Names the model that a child process runs; `*` is all of them.
const CHILD: &str = "PONTOON_MODEL";
/// What the shim reads.
const WEAKEN: &str = "PONTOON_WEAKEN";

/// A call of `sync` in the sources.
struct Site {
    name: String,
    order: String,
    at: String,
}

impl Site {
    /// The weaker orderings to put in its place, in the shim's words.
    fn weakenings(&self) -> Vec<String> {
        let weaker: &[_] = match self.order.as_str() {
            "Acquire" | "Release" => &["Relaxed"],
            "AcqRel" => &["Relaxed", "Acquire", "Release"],
            "SeqCst" => &["Relaxed", "AcqRel"],
            other => panic!("{}: {other} is no ordering to name", self.at),
        };
        let Self { name, order, at } = self;
        weaker.iter().map(|weaker| format!("{name}:{order}@{at}={weaker}")).collect()
    }
}

/// Every call `sync("name", Order)` in `src`, but for the definition in the shim.
fn sites() -> Vec<Site> {
    let mut sites = Vec::new();
    let mut folders = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                sites_of(&path, &mut sites);
            }
        }
    }
    sites
}

fn sites_of(path: &Path, sites: &mut Vec<Site>) {
    let source = fs::read_to_string(path).unwrap();
    let file = path.file_name().unwrap().to_str().unwrap();
    for (start, call) in source.match_indices("sync(") {
        let before = source[..start].chars().next_back().unwrap_or(' ');
        let line = source[..start].matches('\n').count() + 1;
        let in_comment = source[..start].rsplit('\n').next().unwrap().contains("//");
        if before.is_alphanumeric() || before == '_' || in_comment || file == "shim.rs" {
            continue;
        }
        let rest = &source[start + call.len()..];
        let arguments = &rest[..rest.find(')').expect("a closed call")];
        let (name, order) = arguments.split_once(',').expect("a name and an ordering");
        let name = name.trim().strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = name.unwrap_or_else(|| panic!("{file}:{line}: the name is not spelled out"));
        let (name, order) = (name.to_owned(), order.trim().trim_end_matches(',').to_owned());
        sites.push(Site { name, order, at: format!("{file}:{line}") });
    }
}

/// Runs the models in a child, `weakening` being in force; gives those that failed.
fn failing(models: &[&str], weakening: Option<&str>) -> Vec<String> {
    let mut failed = Vec::new();
    for model in models {
        if !run_child(model, weakening).success() {
            failed.push((*model).to_owned());
        }
    }
    failed
}

/// A child that is caught in a loop counts as failed after this long.
const WATCHDOG: Duration = Duration::from_secs(300);

fn run_child(model: &str, weakening: Option<&str>) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "weaken::child", "--test-threads=1"]).env(CHILD, model);
    match weakening {
        Some(weakening) => command.env(WEAKEN, weakening),
        None => command.env_remove(WEAKEN),
    };
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).env("RUST_BACKTRACE", "0");
    let mut child = quiet.spawn().unwrap();
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > WATCHDOG {
            child.kill().unwrap();
            return child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a child process runs; does nothing in the parent.
#[test]
fn child() {
    if let Ok(name) = std::env::var(CHILD) {
        models::run(&name);
    }
}

#[test]
fn every_ordering_is_needed_by_a_model() {
    let models: Vec<_> = models::all().map(|(name, _)| *name).collect();
    let broken = failing(&models, None);
    assert!(broken.is_empty(), "models that fail with every ordering in place: {broken:?}");

    let sites = sites();
    assert!(!sites.is_empty(), "the scan found no call of sync()");
    let weakenings: Vec<_> = sites.iter().flat_map(Site::weakenings).collect();
    let mut unnoticed = Vec::new();
    for weakening in &weakenings {
        let noticed = failing(&models, Some(weakening));
        println!("{weakening}: {} of {} models fail: {noticed:?}", noticed.len(), models.len());
        if noticed.is_empty() {
            unnoticed.push(weakening);
        }
    }
    let (count, tried) = (sites.len(), weakenings.len());
    println!("{count} sites, {tried} weakenings, {} models", models.len());
    assert!(unnoticed.is_empty(), "no model needs these orderings: {unnoticed:#?}");
}

/// A name in the sources is also the name that its model cites.
#[test]
fn every_name_has_a_model_that_cites_it() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let text: String = fs::read_dir(folder)
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for Site { name, at, .. } in sites() {
        assert!(text.contains(&format!("SYNC({name})")), "{at}: no model cites SYNC({name})");
    }
}
