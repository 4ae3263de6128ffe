//! Every ordering stronger than Relaxed is one end of a named pair.
//!
//! An atomic operation stronger than Relaxed writes its ordering as `sync("name", Release)`, the
//! function of the atomics' shim, and says in a plain comment at most ten lines above which end
//! of which pair it is and why:
//!
//! ```text
//! // SYNC(slot-publish) release: pairs with wait_bounded; orders the payload before the count.
//! word.fetch_add(1, sync("slot-publish", Release));
//! ```
//!
//! | rule | what is refused |
//! |------|-----------------|
//! | S1   | `Acquire`, `Release`, `AcqRel` or `SeqCst` outside a `sync("name", …)` call |
//! | S2   | a call without a comment of its name, or whose comment names an end it cannot be |
//! | S3   | a name with one end: it needs a `release` and an `acquire`, or two `full` |
//! | S4   | a name that no `crates/*/tests/loom_*.rs` holds, as `SYNC(name)` or `"name"` |
//! | S5   | a `// SYNC(…` comment that is malformed or describes no call below it |
//! | S6   | a workspace without names |
//!
//! `Acquire` is an `acquire` end, `Release` a `release`; `AcqRel` is whichever of the two it has
//! comments for; `SeqCst` is any, and `full` (one of two fences that each order a store before a
//! load) is for `SeqCst` alone.
//!
//! One fence may end several pairs. It is called by the name of one; the same comment names the
//! others, a `SYNC(name) …` line for each.
//!
//! Read are `crates/*/src/**/*.rs` but for `shim.rs`, files that open with `#![cfg(test)]`, and
//! inline `#[cfg(test)] mod … { … }`. Comments, strings and `use` lines may name any ordering.
//! The four words are also good names for other things, so S1 takes a word as an ordering only
//! as `Ordering::Release`; bare, in a file that imports it from a path with `Ordering` or `shim`
//! in it; or bare and a whole argument of a call. `Mode::Release` is nobody's business here. To
//! keep that sound, `Ordering` may not be imported under another name.

mod scan;

use crate::report::Report;
use scan::{Role, Site};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A file by the name it is complained of.
#[derive(Debug)]
struct File {
    name: String,
    text: String,
}

/// Reads the workspace at `root` and checks it.
pub(crate) fn check(root: &Path) -> Result<Report, String> {
    let (mut sources, mut models) = (Vec::new(), Vec::new());
    for krate in entries(&root.join("crates"))? {
        gather(root, &krate.join("src"), &mut sources)?;
        gather(root, &krate.join("tests"), &mut models)?;
    }
    sources.retain(|file| !file.name.ends_with("/shim.rs"));
    models.retain(|file| file.name.rsplit('/').next().is_some_and(|it| it.starts_with("loom_")));
    Ok(examine(&sources, &models))
}

fn examine(sources: &[File], models: &[File]) -> Report {
    let mut report = Report::default();
    let mut pairs: BTreeMap<String, Vec<Site>> = BTreeMap::new();
    for file in sources {
        for site in scan::scan(&file.name, &file.text, &mut report.problems) {
            pairs.entry(site.name.clone()).or_default().push(site);
        }
    }
    let ends: usize = pairs.values().map(Vec::len).sum();
    report.line(format!("sync: {} names, {ends} ends in {} files", pairs.len(), sources.len()));
    for (name, sites) in &pairs {
        let count = |role| sites.iter().filter(|site| site.roles.contains(&role)).count();
        let [release, acquire, full] = [Role::Release, Role::Acquire, Role::Full].map(count);
        let models: BTreeSet<&str> = models
            .iter()
            .filter(|model| {
                model.text.contains(&format!("SYNC({name})"))
                    || model.text.contains(&format!("\"{name}\""))
            })
            .map(|model| model.name.as_str())
            .collect();
        report.line(format!(
            "  {name}: {release} release, {acquire} acquire, {full} full; models: {}",
            models.iter().copied().collect::<Vec<_>>().join(", ")
        ));
        let first = &sites[0];
        if (release == 0 || acquire == 0) && full < 2 {
            report.problem(format!(
                "{}:{}: SYNC({name}) has {release} release, {acquire} acquire and {full} full \
                 ends; it needs a release and an acquire, or two full",
                first.file, first.line
            ));
        }
        if models.is_empty() {
            report.problem(format!(
                "{}:{}: SYNC({name}) is in no crates/*/tests/loom_*.rs; model the pair and name it",
                first.file, first.line
            ));
        }
    }
    if pairs.is_empty() {
        report.problem("no sync(\"name\", …) call was seen, so nothing was checked");
    }
    report
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("cannot list {}: {error}", folder.display());
    let mut paths = fs::read_dir(folder)
        .map_err(unreadable)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(unreadable))
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

/// Adds every `.rs` file under `folder`; a folder that is not there holds none.
fn gather(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<(), String> {
    if !folder.is_dir() {
        return Ok(());
    }
    for path in entries(folder)? {
        if path.is_dir() {
            gather(root, &path, files)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            files.push(File { name, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: &str = "// SYNC(a) release: why.\nw.store(1, sync(\"a\", Release));\n";
    const ACQUIRE: &str = "// SYNC(a) acquire: why.\nw.load(sync(\"a\", Acquire));\n";
    const FULL: &str = "// SYNC(a) full: why.\nfence(sync(\"a\", SeqCst));\n";

    fn examined(source: &str, model: &str) -> Report {
        let file = |name: &str, text: &str| File { name: name.into(), text: text.into() };
        examine(&[file("src/a.rs", source)], &[file("tests/loom_a.rs", model)])
    }

    #[test]
    fn a_modelled_pair_passes() {
        let report = examined(&format!("{RELEASE}{ACQUIRE}"), "// SYNC(a)");
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.lines[0], "sync: 1 names, 2 ends in 1 files");
        assert_eq!(examined(&format!("{FULL}{FULL}"), "weaken(\"a\")").problems, [""; 0]);
    }

    #[test]
    fn a_missing_end_is_refused() {
        for source in [RELEASE, ACQUIRE, FULL] {
            assert!(examined(source, "SYNC(a)").complains_of("src/a.rs:2: SYNC(a) has"));
        }
        assert!(examined(&RELEASE.repeat(2), "SYNC(a)").complains_of("2 release, 0 acquire"));
    }

    #[test]
    fn a_name_without_a_model_is_refused() {
        let source = format!("{RELEASE}{ACQUIRE}");
        assert!(examined(&source, "// SYNC(ab) \"abc\"").complains_of("is in no crates/"));
    }

    #[test]
    fn seeing_no_name_is_refused() {
        assert!(examined("fn f() {}", "").complains_of("nothing was checked"));
    }
}
