//! A topology as people read it, and as programs do.

use std::io::{self, Write};

use pontoon::{
    Rank,
    world::topology::{Figures, Kind, Numa, Pair, Topology},
};
use serde::Serialize;

use crate::figures::Skipped;

/// What the choice of a shape is shown for.
const SHAPE_BYTES: [u64; 2] = [4096, 16 << 20];

/// Prints, each part when it is known.
pub(super) struct Report<W> {
    out: W,
    json: bool,
}

#[derive(Serialize)]
struct NodeLine {
    name: String,
    cpus: String,
}

#[derive(Serialize)]
struct RankLine<'a> {
    name: String,
    host: &'a str,
    pid: u32,
    nodes: Option<String>,
    cpus: Option<String>,
}

#[derive(Serialize)]
struct PairLine<'a> {
    name: String,
    kind: &'static str,
    link: &'a str,
    latency_ns: Option<u64>,
    bytes_per_s: Option<u64>,
    blocks: Option<u32>,
    not_measured: Option<String>,
}

#[derive(Serialize)]
struct ShapeLine {
    name: String,
    shape: String,
    flat_ns: Option<u64>,
    ring_ns: Option<u64>,
    chunk_bytes: Option<u64>,
}

impl<W: Write> Report<W> {
    pub(super) fn new(out: W, json: bool) -> Self {
        Self { out, json }
    }

    /// The NUMA nodes of this host.
    ///
    /// # Errors
    ///
    /// Those of the writer, as of all here.
    pub(super) fn nodes(&mut self, numa: Option<&Numa>) -> io::Result<()> {
        let untold = "this kernel tells no NUMA nodes";
        if self.json {
            let Some(numa) = numa else { return self.skipped("node", untold) };
            return numa.nodes().try_for_each(|(node, cpus)| {
                let name = format!("topology/node/{node}");
                self.line(&NodeLine { name, cpus: cpus.to_string() })
            });
        }
        writeln!(self.out, "NUMA nodes of this host")?;
        let Some(numa) = numa else { return writeln!(self.out, "  skipped: {untold}") };
        for (node, cpus) in numa.nodes() {
            match cpus.is_empty() {
                true => writeln!(self.out, "  node {node}  no cpus")?,
                false => writeln!(self.out, "  node {node}  cpus {cpus}")?,
            }
        }
        self.out.flush()
    }

    /// The ranks, and what is between them; `label` says which ranks they are.
    pub(super) fn topology(&mut self, label: &str, topology: &Topology) -> io::Result<()> {
        let shapes = SHAPE_BYTES.map(|bytes| (bytes, topology.estimate(Rank(0), bytes)));
        // Between two there is nothing to choose.
        let shapes = shapes.into_iter().filter(|_| topology.places().len() > 2);
        if !self.json {
            writeln!(self.out, "\n{}", title(label))?;
            for (rank, place) in topology.places().iter().enumerate() {
                writeln!(self.out, "  rank {rank}  {place}")?;
            }
            for line in topology.to_string().lines() {
                writeln!(self.out, "  {line}")?;
            }
            for (_, estimate) in shapes {
                writeln!(self.out, "  {estimate}")?;
            }
            return self.out.flush();
        }
        for (rank, place) in topology.places().iter().enumerate() {
            let process = place.process();
            self.line(&RankLine {
                name: format!("topology/{label}/rank/{rank}"),
                host: &process.host_name,
                pid: process.id.pid,
                nodes: place.nodes().map(ToString::to_string),
                cpus: place.cpus().map(ToString::to_string),
            })?;
        }
        for pair in topology.pairs() {
            self.line(&PairLine::of(label, pair))?;
        }
        for (bytes, estimate) in shapes {
            self.line(&ShapeLine {
                name: format!("topology/{label}/shape/{bytes}"),
                shape: estimate.shape().to_string(),
                flat_ns: estimate.flat().map(|time| time.0),
                ring_ns: estimate.ring().map(|time| time.0),
                chunk_bytes: estimate.chunk_bytes(),
            })?;
        }
        Ok(())
    }

    /// What another process printed by such a report.
    pub(super) fn relay(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// That something is not there, and why.
    pub(super) fn skipped(&mut self, label: &str, why: &str) -> io::Result<()> {
        if self.json {
            return self.line(&Skipped { name: format!("topology/{label}"), why: why.to_owned() });
        }
        writeln!(self.out, "\n{}\n  skipped: {why}", title(label))?;
        self.out.flush()
    }

    /// One write a line, so that a reader that follows never sees half of one.
    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(value)? + "\n";
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

fn title(label: &str) -> String {
    match label {
        "job" => "the ranks of this job".to_owned(),
        link => format!("two ranks on this host over {link}"),
    }
}

impl<'a> PairLine<'a> {
    fn of(label: &str, pair: &'a Pair) -> Self {
        let [one, other] = pair.ranks();
        let figures: Option<Figures> = pair.figures().ok();
        Self {
            name: format!("topology/{label}/pair/{one}-{other}"),
            kind: match pair.kind() {
                Kind::SameProcess => "same-process",
                Kind::SameNode => "same-node",
                Kind::SameHost => "same-host",
                Kind::OverHosts => "over-hosts",
            },
            link: pair.link(),
            latency_ns: figures.map(|it| it.latency.0),
            bytes_per_s: figures.map(|it| it.bandwidth.0),
            blocks: figures.map(|it| it.blocks),
            not_measured: pair.figures().err().map(ToString::to_string),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn printed(
        json: bool,
        print: impl FnOnce(&mut Report<&mut Vec<u8>>) -> io::Result<()>,
    ) -> String {
        let mut out = Vec::new();
        print(&mut Report::new(&mut out, json)).expect("written");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn what_is_skipped_says_why_in_both_forms() {
        let why = "UCX is \"absent\"";
        let print = |report: &mut Report<&mut Vec<u8>>| report.skipped("ucx", why);
        assert_eq!(
            printed(false, print),
            "\ntwo ranks on this host over ucx\n  skipped: UCX is \"absent\"\n"
        );
        let line: Value = serde_json::from_str(&printed(true, print)).expect("an object");
        assert_eq!((&line["name"], &line["skipped"]), (&"topology/ucx".into(), &why.into()));
    }

    #[test]
    fn a_kernel_without_nodes_says_so() {
        let print = |report: &mut Report<&mut Vec<u8>>| report.nodes(None);
        assert!(printed(false, print).ends_with("skipped: this kernel tells no NUMA nodes\n"));
        let line: Value = serde_json::from_str(&printed(true, print)).expect("an object");
        assert_eq!(line["name"], "topology/node");
    }
}
