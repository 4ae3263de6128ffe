//! Printing who waits for whom, as text, JSON (`docs/formats/pending.md`) or DOT.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    sync::Arc,
};

use pontoon_hal::Device;
use serde_json::{Value, json};

use super::{
    Chain, Held, Link, Next, Pending, Reason, Refusal, Session, Site, Standing, WaitFailure,
};
use crate::FenceError;

/// How a session prints who waits for whom when a wait of the host expires, or when it refuses a
/// deadlock or a missing edge: on stderr, each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// For people: a line for each link of the chain and for each queue.
    Text,
    /// One JSON object on a line.
    Json,
    /// A graph for graphviz.
    Dot,
}

impl Dump {
    /// What `PONTOON_DUMP_DEPS` may be.
    pub(super) const VALUES: [(&str, Option<Self>); 4] = [
        ("0", None),
        ("1", Some(Self::Text)),
        ("json", Some(Self::Json)),
        ("dot", Some(Self::Dot)),
    ];
}

/// What gave rise to a dump.
struct Occasion<'o> {
    event: &'static str,
    about: String,
    chain: Option<Arc<Chain>>,
    /// Of a deadlock.
    circle: &'o [String],
}

impl<D: Device> Session<'_, D> {
    /// A wait of the host failed; a dump if it expired.
    pub(super) fn dump_expired(&self, failed: &FenceError) {
        if self.aids.dump.is_none() || !failed.error.is_timeout() {
            return;
        }
        let about = FenceError { chain: None, ..failed.clone() }.to_string();
        let chain = failed.chain.clone();
        self.dump(&Occasion { event: "expired", about, chain, circle: &[] });
    }

    /// A wait for what was parked failed; what expired inside was told there, unless it was another
    /// session's.
    pub(super) fn dump_failure(&self, failed: &WaitFailure) {
        match failed {
            WaitFailure::Deadlock(deadlock) if self.aids.dump.is_some() => {
                let (about, circle) = (deadlock.to_string(), &deadlock.path[..]);
                self.dump(&Occasion { event: "deadlock", about, chain: None, circle });
            }
            WaitFailure::Fence(error) if error.chain.is_none() => self.dump_expired(error),
            _ => {}
        }
    }

    /// Something was refused; a dump if that is a deadlock or a missing edge.
    pub(super) fn dump_refusal(&self, why: &Refusal) {
        if self.aids.dump.is_none() {
            return;
        }
        let (event, chain, circle) = match why {
            Refusal::Deadlock(deadlock) => ("deadlock", None, &deadlock.path[..]),
            Refusal::Missing(edge) => ("missing", self.chain_to(&edge.earlier), &[][..]),
            _ => return,
        };
        self.dump(&Occasion { event, about: why.to_string(), chain, circle });
    }

    /// From all that a command's queue was given to its root.
    fn chain_to(&self, site: &Site) -> Option<Arc<Chain>> {
        let lane = self.lanes.iter().position(|lane| {
            site.device == Some(lane.device.rank()) && site.queue.as_ref() == Some(&lane.label)
        });
        let axis = Self::axis(lane?);
        Some(Arc::new(self.chain(axis, self.tracker.events(axis))))
    }

    fn dump(&self, occasion: &Occasion<'_>) {
        let pending = self.pending();
        let text = match self.aids.dump {
            None => return,
            Some(Dump::Text) => in_text(&pending, occasion),
            Some(Dump::Json) => in_json(&pending, occasion),
            Some(Dump::Dot) => in_dot(&pending, Some(occasion)),
        };
        // At once, so that the dumps of two threads do not mix.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

impl Pending {
    /// The same as one JSON object on one line, without a line end: `docs/formats/pending.md`.
    pub fn to_json(&self) -> String {
        json_of(self).to_string()
    }

    /// The same as a graph for graphviz: the nodes are queues and parked batches, the edges waits.
    pub fn to_dot(&self) -> String {
        in_dot(self, None)
    }
}

fn in_text(pending: &Pending, occasion: &Occasion<'_>) -> String {
    let Occasion { event, about, chain, circle } = occasion;
    let mut text = format!("pontoon: session {}: {event}: {about}\n", pending.session);
    let links = chain.iter().flat_map(|chain| &chain.links);
    let links: Vec<String> = links.map(Link::to_string).chain(circle.iter().cloned()).collect();
    for (at, link) in links.iter().enumerate() {
        let role = match at {
            _ if !circle.is_empty() => "who",
            _ if at + 1 == links.len() => "root",
            _ => "link",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {role}: {link}");
    }
    for line in pending.to_string().lines() {
        let _ = writeln!(text, "  pending: {line}");
    }
    text
}

fn in_json(pending: &Pending, occasion: &Occasion<'_>) -> String {
    let Occasion { event, about, chain, circle } = occasion;
    let mut object = json_of(pending);
    object["event"] = json!(event);
    object["about"] = json!(about);
    let links = chain.iter().flat_map(|chain| &chain.links);
    object["chain"] = links.map(json_of_link).collect();
    object["circle"] = json!(circle);
    format!("{object}\n")
}

fn json_of(pending: &Pending) -> Value {
    let queues: Vec<_> = pending.queues.iter().map(json_of_standing).collect();
    let parked: Vec<_> = pending.parked.iter().map(json_of_held).collect();
    json!({
        "format": "pontoon-pending/1",
        "session": pending.session,
        "queues": queues,
        "parked": parked,
    })
}

fn json_of_standing(standing: &Standing) -> Value {
    let Standing { device, queue, submitted, completed, next, waits_for } = standing;
    let waits_for = waits_for.map(|on| json!({"queue": on.queue, "position": on.position}));
    json!({
        "device": device.0,
        "queue": &**queue,
        "submitted": submitted,
        "completed": completed,
        "next": json_of_next(next),
        "waits_for": waits_for,
    })
}

fn json_of_link(link: &Link) -> Value {
    let Link { device, queue, completed, wanted, next } = link;
    json!({
        "device": device.0,
        "queue": &**queue,
        "completed": completed,
        "wanted": wanted,
        "next": json_of_next(next),
    })
}

fn json_of_next(next: &Next) -> Value {
    match next {
        Next::Work(label) => json!({"kind": "work", "label": label}),
        Next::Wait => json!({"kind": "wait"}),
        Next::Outside => json!({"kind": "outside"}),
        Next::Failed(fault) => json!({"kind": "failed", "cause": fault.cause.to_string()}),
        Next::Nothing => json!({"kind": "nothing"}),
    }
}

fn json_of_held(held: &Held) -> Value {
    let Held { label, stream, queue, reasons } = held;
    let reasons: Vec<_> = reasons.iter().map(json_of_reason).collect();
    json!({"label": label, "stream": &**stream, "queue": queue, "reasons": reasons})
}

fn json_of_reason(reason: &Reason) -> Value {
    match reason {
        Reason::Semaphore { semaphore, wanted, reached, promised_by } => json!({
            "kind": "semaphore",
            "semaphore": &**semaphore,
            "wanted": wanted,
            "reached": reached,
            "promised_by": promised_by,
        }),
        Reason::Turn { semaphore, after } => {
            json!({"kind": "turn", "semaphore": &**semaphore, "after": after})
        }
        Reason::Collective { collective, present, members } => json!({
            "kind": "collective",
            "collective": &**collective,
            "present": present,
            "members": members,
        }),
        Reason::Fence { of } => json!({"kind": "fence", "of": of}),
        Reason::Behind { other } => json!({"kind": "behind", "other": other}),
        Reason::Room => json!({"kind": "room"}),
    }
}

/// Queue n is node `q<n>`, parked batch n `p<n>`, so that no name has to be an identifier.
fn in_dot(pending: &Pending, occasion: Option<&Occasion<'_>>) -> String {
    let mut dot = "digraph {\n  rankdir=LR;\n  node [shape=box];\n".to_string();
    // Writing to a string does not fail.
    if let Some(Occasion { event, about, .. }) = occasion {
        let label = quoted(&format!("session {}: {event}: {about}", pending.session));
        let _ = writeln!(dot, "  label={label};");
    }
    for (at, queue) in pending.queues.iter().enumerate() {
        let Standing { device, queue, submitted, completed, next, waits_for } = queue;
        let label = format!("device {device} queue {queue}\n{completed} of {submitted}\n{next}");
        let _ = writeln!(dot, "  q{at} [label={}];", quoted(&label));
        if let Some(on) = waits_for {
            let _ = writeln!(dot, "  q{at} -> q{} [label=\"{}\"];", on.queue, on.position);
        }
    }
    for (at, held) in pending.parked.iter().enumerate() {
        let queue = pending.queues.get(held.queue).map_or("", |queue| &queue.queue);
        let reasons: Vec<_> = held.reasons.iter().map(|it| pending.in_words(it)).collect();
        let Held { label, stream, .. } = held;
        let label =
            format!("{label}\nstream {stream}, parked in queue {queue}\n{}", reasons.join("\n"));
        let _ = writeln!(dot, "  p{at} [shape=note, label={}];", quoted(&label));
        for reason in &held.reasons {
            let (on, label) = match reason {
                Reason::Semaphore { promised_by: Some(on), semaphore, .. } => (on, &**semaphore),
                Reason::Turn { after, semaphore } => (after, &**semaphore),
                Reason::Fence { of } => (of, "fence"),
                Reason::Behind { other } => (other, "behind"),
                _ => continue,
            };
            let _ = writeln!(dot, "  p{at} -> p{on} [label={}];", quoted(label));
        }
    }
    if let Some(first) = occasion.and_then(|it| it.chain.as_ref()?.links.first()) {
        let named = |it: &Standing| it.device == first.device && it.queue == first.queue;
        if let Some(at) = pending.queues.iter().position(named) {
            let _ = writeln!(dot, "  host [shape=plaintext];");
            let _ = writeln!(dot, "  host -> q{at} [label=\"{}\"];", first.wanted);
        }
    }
    dot.push_str("}\n");
    dot
}

/// A quoted string of the DOT language that shows `text` as it is, whatever is in it. There `"`
/// and `\` are escaped, a line ends with `\n`, and `&` begins an entity.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '&' => quoted.push_str("&amp;"),
            control if control.is_control() => quoted.push(' '),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_shown_as_it_is() {
        assert_eq!(quoted("a \"b\"\nc\\n & \t\0"), r#""a \"b\"\nc\\n &amp;   ""#);
    }
}
