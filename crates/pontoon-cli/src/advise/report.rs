//! How advice is said.

use std::io::{self, Write};

use pontoon::{hal::paging::PAGE, signal::Nanos};

use super::{
    Order, Toucher,
    choice::{Choice, Use, Way},
    costs::Costs,
};

use crate::counted::counted;

type Measured = Result<Costs, String>;

pub(super) fn text(
    of: &Use,
    costs: &Measured,
    choice: &Choice,
    out: &mut impl Write,
) -> io::Result<()> {
    match costs {
        Ok(costs) => {
            writeln!(out, "measured between two processes of this machine, over {}:", costs.over)?;
            for (what, ns) in rows(costs) {
                writeln!(out, "  {what:<58} {:>10}", time(ns))?;
            }
        }
        Err(why) => writeln!(out, "nothing was measured: {why}")?,
    }
    let Use { bytes, touch, times, order, writes, by, hosts } = *of;
    let order = if order == Order::Random { "at random" } else { "in order" };
    let by = match by {
        Toucher::Cpu => "CPUs",
        Toucher::Accelerator => "accelerators",
        Toucher::Both => "CPUs and accelerators",
    };
    let verb = if writes { "read and changed" } else { "read" };
    let often = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    let hosts = if hosts == 1 { "one host".to_owned() } else { format!("{hosts} hosts") };
    writeln!(
        out,
        "{}, {} at a time {order}, {verb} {often} by {by} of {hosts}:",
        size(bytes),
        size(touch),
    )?;
    for way in Way::ALL {
        let mark = if way == choice.way { "*" } else { " " };
        writeln!(out, "{mark} {:<22} {}", way.name(), cost_of(way, of, choice))?;
    }
    if let Some(touches) = choice.break_even.filter(|_| choice.cost.is_some()) {
        writeln!(
            out,
            "break-even: {} of the same bytes between two changes",
            if touches <= 1.0 {
                "1 touch".to_owned()
            } else {
                format!("{} touches", touches.ceil())
            }
        )?;
    } else if choice.cost.is_some() {
        writeln!(out, "break-even: none, a remote access costs no more than one of memory")?;
    }
    writeln!(out, "advice: {}: {}", choice.way.name(), choice.why)?;
    if choice.way == Way::Client {
        let pages = bytes.div_ceil(PAGE);
        // The pages, and what home has of them.
        let most = size(pages.saturating_mul(2 * PAGE));
        let pages = counted(pages as u64, "page");
        writeln!(out, "a pool of {pages} keeps all of it here, and takes {most}")?;
    }
    Ok(())
}

fn rows(costs: &Costs) -> [(&'static str, f64); 6] {
    [
        ("64 bytes at random by a remote read", costs.remote),
        ("4 KiB of a large remote read", costs.remote_byte * PAGE as f64),
        ("a page of a window touched first, at random", costs.miss),
        ("a page of a window touched first, in order", costs.in_order),
        ("64 bytes of a window touched again", costs.again),
        ("a page of a window with 64 bytes that changed, sent home", costs.release),
    ]
}

fn cost_of(way: Way, of: &Use, choice: &Choice) -> String {
    match (way, choice.cost) {
        (Way::Unified, _) if of.hosts == 1 => "memory speed".into(),
        (Way::Unified, _) => "not over hosts".into(),
        (Way::Client, _) if of.by == Toucher::Accelerator => "not from an accelerator".into(),
        (_, None) => "not measured".into(),
        (Way::Remote, Some([remote, _])) => time(remote),
        (Way::Client, Some([_, client])) => time(client),
    }
}

/// In the largest unit that says it exactly.
fn size(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match whole {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => counted(bytes as u64, "byte"),
    }
}

fn time(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.1} ns") } else { Nanos(ns as u64).to_string() }
}

pub(super) fn json(
    of: &Use,
    costs: &Measured,
    choice: &Choice,
    out: &mut impl Write,
) -> io::Result<()> {
    let measured = match costs {
        Ok(costs) => serde_json::json!({
            "over": costs.over,
            "remote_ns": costs.remote,
            "remote_byte_ns": costs.remote_byte,
            "miss_ns": costs.miss,
            "in_order_ns": costs.in_order,
            "again_ns": costs.again,
            "release_ns": costs.release,
        }),
        Err(why) => serde_json::json!({ "missing": why }),
    };
    let line = serde_json::json!({
        "advice": choice.way.name(),
        "why": choice.why,
        "bytes": of.bytes,
        "touch": of.touch,
        "times": of.times,
        "hosts": of.hosts,
        "remote_ns": choice.cost.map(|[remote, _]| remote),
        "client_ns": choice.cost.map(|[_, client]| client),
        "break_even_touches": choice.break_even,
        "measured": measured,
    });
    writeln!(out, "{line}")
}
