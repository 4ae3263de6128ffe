//! How a server's memory is reached, and what touching it takes.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use pontoon::{
    Rank,
    hal::paging::PAGE,
    signal::shim::Ordering::Relaxed,
    smc::{Feature, Features},
    world::WorldError,
};

use super::{
    ToolError,
    client::{Client, Reach},
};
use crate::{counted::counted, doctor::bytes, figures::closed_pipe_is_no_fault, stdout::stdout};

/// Tells how a server's memory is reached and how faults are served, and touches each page of it once.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    reach: Reach,
}

pub(super) fn run(options: &Options) -> Result<(), ToolError> {
    let done = options.reach.with(|client| {
        let link = client.world().way(Rank(0))?;
        let mapped = link.capabilities().map_err(WorldError::from)?.mapped;
        let reach = &options.reach;
        let placement = client.window().pool().placement();
        let mut rows = vec![
            (
                "memory",
                format!(
                    "{} ({}, {}) of rank 0 at {}",
                    bytes(client.bytes() as u64),
                    counted(client.bytes() as u64, "byte"),
                    counted(client.bytes().div_ceil(PAGE) as u64, "page"),
                    reach.door.connect
                ),
            ),
            (
                "link",
                format!(
                    "{}, {}",
                    link.link().name(),
                    if mapped { "mapped here" } else { "not mapped here" }
                ),
            ),
            ("faults", format!("served {}", client.faults)),
            (
                "pool",
                format!(
                    "{} ({}), {}, fetched by {}, deadline {:?}",
                    counted(reach.pool as u64, "page"),
                    bytes((reach.pool * PAGE) as u64),
                    placement.map_or_else(|| "locked or not".into(), |it| it.to_string()),
                    reach.class,
                    reach.door.deadline
                ),
            ),
        ];
        let features = Features::probe();
        for feature in Feature::ALL.into_iter().filter(|feature| features.has(*feature)) {
            let (purpose, since) = (feature.purpose(), feature.since());
            rows.push(("kernel has", format!("{purpose} (Linux {since})")));
        }
        for feature in features.lacking() {
            rows.push(("kernel lacks", feature.to_string()));
        }
        let took = touch(client)?;
        let counts = client.window().statistics();
        let counts = [
            ("misses", counts.misses),
            ("ahead", counts.ahead),
            ("fetched", counts.fetched),
            ("evicted", counts.evicted),
            ("poisoned", counts.poisoned),
        ];
        rows.push(("touched", format!("each page once, in {took:.1?}")));
        rows.extend(counts.map(|(name, count)| (name, count.to_string())));
        Ok(rows)
    })?;
    let rows = done.of_reads(|_| "each page was touched".into());
    let mut out = stdout();
    let told = rows.iter().try_for_each(|(name, value)| writeln!(out, "{name:<13} {value}"));
    closed_pipe_is_no_fault(told.and_then(|()| out.flush())).map_err(ToolError::Report)
}

/// Loads a word of each page, in order. How long that took.
fn touch(client: &Client) -> Result<Duration, ToolError> {
    let (window, began) = (client.window(), Instant::now());
    for piece in client.pieces(0..client.bytes()) {
        for page in piece.clone().step_by(PAGE) {
            if let Ok(word) = window.word(page) {
                word.load(Relaxed);
            }
        }
        client.trust(piece)?;
    }
    Ok(began.elapsed())
}
