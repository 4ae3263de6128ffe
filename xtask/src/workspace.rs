//! The workspace as `cargo metadata` tells it.

use serde_json::Value;
use std::{env, path::PathBuf, process::Command};

/// The workspace's own crates and where they lie.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// The root files of its library and its binaries.
    pub(crate) roots: Vec<PathBuf>,
}

/// One arrow out of a crate; renamed dependencies carry the real name.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// True for `[dev-dependencies]`.
    pub(crate) dev: bool,
}

impl Workspace {
    /// Asks cargo, in the current folder.
    pub(crate) fn load() -> Result<Self, String> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .output()
            .map_err(|error| format!("cargo metadata did not start: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "cargo metadata failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        Self::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// Reads the output of `cargo metadata --no-deps`.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let metadata: Value = serde_json::from_str(json)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        let packages =
            array(&metadata, "packages")?.iter().map(package).collect::<Result<_, _>>()?;
        Ok(Self { root: text(&metadata, "workspace_root")?.into(), packages })
    }
}

fn package(value: &Value) -> Result<Package, String> {
    let dependencies = array(value, "dependencies")?
        .iter()
        .map(|dependency| {
            let dev = dependency["kind"] == "dev";
            Ok(Dependency { name: text(dependency, "name")?.into(), dev })
        })
        .collect::<Result<_, String>>()?;
    let roots = array(value, "targets")?
        .iter()
        .filter(|target| ["lib", "bin", "proc-macro"].iter().any(|kind| has_kind(target, kind)))
        .map(|target| text(target, "src_path").map(PathBuf::from))
        .collect::<Result<_, _>>()?;
    Ok(Package { name: text(value, "name")?.into(), dependencies, roots })
}

fn has_kind(target: &Value, kind: &str) -> bool {
    target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it == kind))
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, String> {
    value[key].as_array().ok_or_else(|| format!("cargo metadata has no list `{key}`"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or_else(|| format!("cargo metadata has no text `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_kinds_and_roots_are_read() {
        let workspace = Workspace::parse(
            r#"{"workspace_root": "/w", "packages": [{"name": "pontoon-hal",
                "dependencies": [{"name": "pontoon-signal", "kind": null},
                                 {"name": "pontoon-cpu", "kind": "dev"}],
                "targets": [{"kind": ["lib"], "src_path": "/w/src/lib.rs"},
                            {"kind": ["test"], "src_path": "/w/tests/t.rs"}]}]}"#,
        )
        .unwrap();
        assert_eq!(workspace.root, PathBuf::from("/w"));
        let hal = &workspace.packages[0];
        assert_eq!(hal.roots, [PathBuf::from("/w/src/lib.rs")]);
        assert_eq!(hal.dependencies.iter().map(|it| it.dev).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_changed_format_is_refused_not_read_as_empty() {
        assert!(Workspace::parse(r#"{"workspace_root": "/w"}"#).is_err());
        assert!(Workspace::parse("").is_err());
    }
}
