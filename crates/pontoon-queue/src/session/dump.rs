//! Printing who waits for whom, as text, JSON (`docs/formats/pending.md`) or DOT.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    sync::Arc,
};

use pontoon_hal::Device;

use super::{
    Chain, Held, Link, MissingEdge, Next, Pending, Reason, Refusal, Session, Site, Standing,
    WaitFailure, json::Json,
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
    /// What a refused command lacks.
    missing: Option<&'o MissingEdge>,
}

impl Occasion<'_> {
    fn title(&self, session: u32) -> String {
        // A refusal begins with what it is.
        let expired = if self.event == "expired" { "a wait expired: " } else { "" };
        format!("session {session}: {expired}{}", self.about)
    }
}

impl<D: Device> Session<'_, D> {
    /// A wait of the host failed; a dump if it expired.
    pub(super) fn dump_expired(&self, failed: &FenceError) {
        if self.aids.dump.is_none() || !failed.error.is_timeout() {
            return;
        }
        let about = FenceError { chain: None, ..failed.clone() }.to_string();
        let chain = failed.chain.clone();
        self.dump(&Occasion { event: "expired", about, chain, circle: &[], missing: None });
    }

    /// A wait for what was parked failed; what expired inside was told there, unless it was another
    /// session's.
    pub(super) fn dump_failure(&self, failed: &WaitFailure) {
        match failed {
            WaitFailure::Deadlock(deadlock) if self.aids.dump.is_some() => {
                let (about, circle) = (deadlock.to_string(), &deadlock.path[..]);
                self.dump(&Occasion {
                    event: "deadlock",
                    about,
                    chain: None,
                    circle,
                    missing: None,
                });
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
        let missing = match why {
            Refusal::Missing(edge) => Some(edge),
            _ => None,
        };
        self.dump(&Occasion { event, about: why.to_string(), chain, circle, missing });
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
        Json::object(members(self)).to_string()
    }

    /// The same as a graph for graphviz: the nodes are queues and parked batches, the edges waits.
    pub fn to_dot(&self) -> String {
        in_dot(self, None)
    }
}

fn in_text(pending: &Pending, occasion: &Occasion<'_>) -> String {
    let Occasion { chain, circle, .. } = occasion;
    let mut text = format!("pontoon: {}\n", one_line(&occasion.title(pending.session)));
    let links = chain.iter().flat_map(|chain| &chain.links);
    let links: Vec<String> = links.map(Link::to_string).chain(circle.iter().cloned()).collect();
    for (at, link) in links.iter().enumerate() {
        let role = match at {
            _ if !circle.is_empty() => "who",
            _ if at + 1 == links.len() => "root",
            _ => "link",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {role}: {}", one_line(link));
    }
    for line in pending.lines() {
        let _ = writeln!(text, "  pending: {}", one_line(&line));
    }
    text
}

/// The text with control characters, such as a line end in a label, as escapes.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            control if control.is_control() => line.extend(control.escape_default()),
            other => line.push(other),
        }
    }
    line
}

fn in_json(pending: &Pending, occasion: &Occasion<'_>) -> String {
    let Occasion { event, about, chain, circle, .. } = occasion;
    let links = chain.iter().flat_map(|chain| &chain.links);
    let told = [
        ("event", (*event).into()),
        ("about", about.as_str().into()),
        ("chain", links.map(json_of_link).collect()),
        ("circle", circle.iter().map(|link| link.as_str().into()).collect()),
    ];
    format!("{}\n", Json::object(members(pending).into_iter().chain(told)))
}

fn members(pending: &Pending) -> [(&'static str, Json); 4] {
    [
        ("format", "pontoon-pending/1".into()),
        ("session", pending.session.into()),
        ("queues", pending.queues.iter().map(json_of_standing).collect()),
        ("parked", pending.parked.iter().map(json_of_held).collect()),
    ]
}

fn json_of_standing(standing: &Standing) -> Json {
    let Standing { device, queue, submitted, completed, next, waits_for } = standing;
    let waits_for = waits_for
        .map(|on| Json::object([("queue", on.queue.into()), ("position", on.position.into())]));
    Json::object([
        ("device", device.0.into()),
        ("queue", (**queue).into()),
        ("submitted", (*submitted).into()),
        ("completed", (*completed).into()),
        ("next", json_of_next(next)),
        ("waits_for", waits_for.into()),
    ])
}

fn json_of_link(link: &Link) -> Json {
    let Link { device, queue, completed, wanted, next } = link;
    Json::object([
        ("device", device.0.into()),
        ("queue", (**queue).into()),
        ("completed", (*completed).into()),
        ("wanted", (*wanted).into()),
        ("next", json_of_next(next)),
    ])
}

fn json_of_next(next: &Next) -> Json {
    match next {
        Next::Work(label) => of_kind("work", [("label", (*label).into())]),
        Next::Wait => of_kind("wait", []),
        Next::Outside => of_kind("outside", []),
        Next::Failed(fault) => {
            of_kind("failed", [("cause", fault.cause.to_string().as_str().into())])
        }
        Next::Nothing => of_kind("nothing", []),
    }
}

fn json_of_held(held: &Held) -> Json {
    let Held { label, stream, queue, reasons } = held;
    Json::object([
        ("label", (*label).into()),
        ("stream", (**stream).into()),
        ("queue", (*queue).into()),
        ("reasons", reasons.iter().map(json_of_reason).collect()),
    ])
}

fn json_of_reason(reason: &Reason) -> Json {
    match reason {
        Reason::Semaphore { semaphore, wanted, reached, promised_by } => of_kind(
            "semaphore",
            [
                ("semaphore", (**semaphore).into()),
                ("wanted", (*wanted).into()),
                ("reached", (*reached).into()),
                ("promised_by", (*promised_by).into()),
            ],
        ),
        Reason::Turn { semaphore, after } => {
            of_kind("turn", [("semaphore", (**semaphore).into()), ("after", (*after).into())])
        }
        Reason::Collective { collective, present, members } => of_kind(
            "collective",
            [
                ("collective", (**collective).into()),
                ("present", (*present).into()),
                ("members", (*members).into()),
            ],
        ),
        Reason::Fence { of } => of_kind("fence", [("of", (*of).into())]),
        Reason::Behind { other } => of_kind("behind", [("other", (*other).into())]),
        Reason::Room => of_kind("room", []),
    }
}

fn of_kind<const N: usize>(kind: &str, members: [(&'static str, Json); N]) -> Json {
    Json::object([("kind", kind.into())].into_iter().chain(members))
}

/// Queue n is node `q<n>`, parked batch n `p<n>`, so that no name has to be an identifier.
fn in_dot(pending: &Pending, occasion: Option<&Occasion<'_>>) -> String {
    let mut dot = "digraph {\n  rankdir=LR;\n  node [shape=box];\n".to_string();
    // Writing to a string does not fail.
    if let Some(occasion) = occasion {
        let _ = writeln!(dot, "  label={};", quoted(&occasion.title(pending.session)));
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
            let (who, style, label) = match occasion.and_then(|it| it.missing) {
                Some(edge) => {
                    let label = format!("missing: a wait for {}", edge.earlier.label);
                    (edge.later.to_string(), "color=red, style=dashed, ", label)
                }
                None => ("host".to_string(), "", first.wanted.to_string()),
            };
            let _ = writeln!(dot, "  asked [shape=plaintext, label={}];", quoted(&who));
            let _ = writeln!(dot, "  asked -> q{at} [{style}label={}];", quoted(&label));
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
