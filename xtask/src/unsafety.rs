//! Every crate root carries the `unsafe_code` lint of its layer.
//!
//! Above the hardware layer, and in tools, `#![forbid(unsafe_code)]`: no file can open it again.
//! The hardware layer, the signals, the paging and the backends need some: `#![deny(unsafe_code)]`, opened
//! file by file with a reason. A crate below that needs none may forbid it.

use crate::{
    layers::{Layer, unplaced},
    report::Report,
    source::Source,
    workspace::Workspace,
};
use std::fs;

/// Checks the root file of every library and binary.
pub(crate) fn check(workspace: &Workspace) -> Result<Report, String> {
    let mut report = Report::default();
    let mut roots = 0;
    for package in &workspace.packages {
        let Some(layer) = Layer::of(&package.name) else {
            report.problem(unplaced(&package.name));
            continue;
        };
        for root in &package.roots {
            roots += 1;
            let text = fs::read_to_string(root)
                .map_err(|error| format!("cannot read {}: {error}", root.display()))?;
            if !carries(&text, levels(layer)) {
                report.problem(format!(
                    "{}: a crate root of {} ({layer:?}) opens with #![{}(unsafe_code)]",
                    root.strip_prefix(&workspace.root).unwrap_or(root).display(),
                    package.name,
                    levels(layer)[0],
                ));
            }
        }
    }
    if roots == 0 {
        report.problem("no crate root was seen, so nothing was checked");
    }
    report.line(format!("unsafety: {roots} crate roots"));
    Ok(report)
}

/// The lint levels a layer may have, the usual one first.
fn levels(layer: Layer) -> &'static [&'static str] {
    match layer {
        Layer::Signal | Layer::Hal | Layer::Backend => &["deny", "forbid"],
        Layer::Queue | Layer::Service | Layer::Facade | Layer::Cli | Layer::Tool => &["forbid"],
    }
}

/// Whether `text` has an inner attribute that sets `unsafe_code`, alone, to one of `levels`.
fn carries(text: &str, levels: &[&str]) -> bool {
    Source::new(text).tokens().windows(7).any(|window| {
        let [hash, bang, open, level, paren, lint, close] = window else { return false };
        [hash, bang, open, paren, lint, close].map(|token| token.text)
            == ["#", "!", "[", "(", "unsafe_code", ")"]
            && levels.contains(&level.text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_hardware_layer_only_forbid_will_do() {
        let above = levels(Layer::Queue);
        assert!(carries("//! x\n#![forbid(unsafe_code)]\nmod a;", above));
        assert!(!carries("#![deny(unsafe_code)]", above));
        assert!(!carries("// #![forbid(unsafe_code)]", above));
        assert!(!carries("#[forbid(unsafe_code)] mod a;", above));
        assert!(!carries("", above));
    }

    #[test]
    fn below_it_deny_or_forbid() {
        let below = levels(Layer::Backend);
        assert!(carries("#![deny(unsafe_code)] // opened again, file by file", below));
        assert!(carries("#![forbid(unsafe_code)]", below));
        assert!(!carries("#![allow(unsafe_code)]", below));
        assert!(!carries("#![deny(missing_docs)]", below));
    }

    #[test]
    fn a_root_without_its_lint_and_no_roots_are_refused() {
        let nothing = Workspace { root: "/".into(), packages: Vec::new() };
        assert!(check(&nothing).unwrap().complains_of("nothing was checked"));
        let here = Workspace::parse(&format!(
            r#"{{"workspace_root": "/", "packages": [{{"name": "pontoon-queue", "dependencies": [],
                "targets": [{{"kind": ["lib"], "src_path": {:?}}}]}}]}}"#,
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/report.rs")
        ));
        assert!(check(&here.unwrap()).unwrap().complains_of("src/report.rs: a crate root"));
    }
}
