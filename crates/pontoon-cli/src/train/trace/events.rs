//! Events as Perfetto and `chrome://tracing` read them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
};

use pontoon::{
    Rank, Seq, SlotId,
    cpu::{Span, SpanKind},
    queue::{Cause, Moment},
    signal::Nanos,
};
use serde::Serialize;

use super::{Moments, Out};

/// The process of the host; a device's is its rank after it. Viewers take 0 for idleness.
const HOST: u32 = 1;
/// Threads are told apart by their number alone in some viewers, so each has one of its own.
const THREADS_A_PROCESS: u32 = 1000;

/// What is drawn.
pub(super) struct Events<'m> {
    /// By queue, and there in order.
    spans: Vec<Span>,
    at: HashMap<(SlotId, Seq), usize>,
    moments: Moments<'m>,
    /// When the trace begins.
    origin: Nanos,
}

#[derive(Serialize)]
struct Event<'e> {
    name: &'e str,
    cat: &'e str,
    ph: &'e str,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args<'e>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'e> {
    Name { name: String },
    Work { completion: u64 },
    Wait { cause: &'e str, waited_for: String },
    Depth { commands: i64 },
}

/// A point of a track.
#[derive(Clone, Copy)]
struct Point {
    track: (u32, u32),
    at: Nanos,
}

impl<'m> Events<'m> {
    pub(super) fn new(mut spans: Vec<Span>, moments: Moments<'m>) -> Self {
        // Stable, so a queue's spans stay in the order in which they were over.
        spans.sort_by_key(|span| (span.queue.producer, span.queue.slot));
        let at = spans.iter().enumerate();
        let at = at.map(|(index, span)| ((span.queue, span.position), index)).collect();
        let begun = spans.iter().map(|span| span.start);
        let done = moments.iter().filter_map(|moment| match moment {
            Moment::Waited { start, .. } | Moment::Accessed { start, .. } => Some(*start),
            Moment::Submitted { at, .. } => Some(*at),
            _ => None,
        });
        let origin = begun.chain(done).min().unwrap_or_default();
        Self { spans, at, moments, origin }
    }

    pub(super) fn write(&self, dropped: u64, out: Out<'_>) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\": \"ns\", \"otherData\": ")?;
        write!(out, "{{\"format\": \"pontoon-trace/1\", \"dropped\": {dropped}}},")?;
        write!(out, "\n\"traceEvents\": [")?;
        let mut lines = Lines { out, any: false };
        self.names(&mut lines)?;
        for span in &self.spans {
            self.span(span, &mut lines)?;
        }
        for moment in self.moments {
            self.moment(moment, &mut lines)?;
        }
        self.flows(&mut lines)?;
        if dropped == 0 {
            self.depths(&mut lines)?;
        }
        writeln!(lines.out, "\n]}}")
    }

    /// Names of processes and threads.
    fn names(&self, lines: &mut Lines<'_>) -> io::Result<()> {
        let mut tracks = BTreeMap::from([((HOST, thread(HOST, 0)), "host".to_owned())]);
        for span in &self.spans {
            let label = || format!("{} (queue {})", span.label, span.queue.slot);
            tracks.entry(track(span.queue)).or_insert_with(label);
        }
        let mut last = None;
        for ((pid, tid), label) in tracks {
            let mut name = |what, name| {
                let args = Some(Args::Name { name });
                lines.event(&Event { args, ..self.event(what, "", "M", (pid, tid), self.origin) })
            };
            if last.replace(pid) != Some(pid) {
                let device = || format!("device {}", pid - HOST - 1);
                name("process_name", if pid == HOST { "host".into() } else { device() })?;
            }
            name("thread_name", label)?;
        }
        Ok(())
    }

    fn span(&self, span: &Span, lines: &mut Lines<'_>) -> io::Result<()> {
        let (cat, args) = match span.kind {
            SpanKind::Work => ("work", Args::Work { completion: span.position.get() }),
            SpanKind::Wait { purpose, signal, target } => {
                let waited_for = self.name_of(signal, target);
                ("wait", Args::Wait { cause: Cause::of(purpose).name(), waited_for })
            }
        };
        let times = (span.start, span.end);
        self.complete(span.command, cat, track(span.queue), times, Some(args), lines)
    }

    fn moment(&self, moment: &Moment, lines: &mut Lines<'_>) -> io::Result<()> {
        let host = (HOST, thread(HOST, 0));
        match *moment {
            Moment::Waited { cause, queue, target, start, end } => {
                let waited_for = self.name_of(queue, target);
                let args = Some(Args::Wait { cause: cause.name(), waited_for });
                self.complete("wait", "wait", host, (start, end), args, lines)
            }
            Moment::Accessed { label, start, end } => {
                self.complete(label, "access", host, (start, end), None, lines)
            }
            _ => Ok(()),
        }
    }

    /// From each command to what came after it: the next command behind the wait for it.
    fn flows(&self, lines: &mut Lines<'_>) -> io::Result<()> {
        let mut id = 0;
        let mut flow = |from: &Span, to: Point, lines: &mut Lines<'_>| {
            let from = Point { track: track(from.queue), at: last_of(from.start, from.end) };
            if from.at > to.at {
                // It did not come after it after all: a wait that was given up.
                return Ok(());
            }
            id += 1;
            let event = |ph, Point { track, at }| Event {
                id: Some(id),
                ..self.event("dependency", "dependency", ph, track, at)
            };
            lines.event(&event("s", from))?;
            lines.event(&Event { bp: Some("e"), ..event("f", to) })
        };
        for (at, span) in self.spans.iter().enumerate() {
            let SpanKind::Wait { signal, target, .. } = span.kind else { continue };
            if let Some(&from) = self.at.get(&(signal, target)) {
                flow(&self.spans[from], self.behind(at), lines)?;
            }
        }
        for moment in self.moments {
            match *moment {
                Moment::Ordered { earlier, later } => {
                    if let (Some(&from), Some(&to)) = (self.at.get(&earlier), self.at.get(&later)) {
                        flow(&self.spans[from], self.behind(to), lines)?;
                    }
                }
                Moment::Waited { queue, target, start, end, .. } => {
                    if let Some(&from) = self.at.get(&(queue, target)) {
                        let track = (HOST, thread(HOST, 0));
                        let to = Point { track, at: last_of(start, end) };
                        flow(&self.spans[from], to, lines)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where the command begins that waits by span `at`; the end of the wait if there is none.
    fn behind(&self, at: usize) -> Point {
        let wait = &self.spans[at];
        let of_queue = self.spans[at..].iter().take_while(|span| span.queue == wait.queue);
        let work = of_queue.into_iter().find(|span| span.kind == SpanKind::Work);
        let at = work.map_or(last_of(wait.start, wait.end), |work| work.start);
        Point { track: track(wait.queue), at }
    }

    /// How many commands each queue has, whenever that changes.
    fn depths(&self, lines: &mut Lines<'_>) -> io::Result<()> {
        let mut changes: Vec<(SlotId, Nanos, i64)> = Vec::new();
        for moment in self.moments {
            let Moment::Submitted { queue, position, at } = *moment else { continue };
            let Some(&span) = self.at.get(&(queue, position)) else { continue };
            changes.push((queue, at, 1));
            changes.push((queue, self.spans[span].end, -1));
        }
        changes.sort_by_key(|&(queue, at, _)| (queue.producer, queue.slot, at));
        let (mut of, mut commands, mut name) = (None, 0, String::new());
        for (queue, at, change) in changes {
            if of.replace(queue) != Some(queue) {
                let label = self.spans.iter().find(|span| span.queue == queue);
                name = format!("depth of {}", label.map_or("a queue", |span| &span.label));
                commands = 0;
            }
            commands += change;
            let args = Some(Args::Depth { commands });
            lines.event(&Event { args, ..self.event(&name, "depth", "C", track(queue), at) })?;
        }
        Ok(())
    }

    fn name_of(&self, queue: SlotId, position: Seq) -> String {
        match self.at.get(&(queue, position)).map(|&at| &self.spans[at]) {
            Some(span) => {
                let Rank(device) = span.queue.producer;
                format!("{} (device {device} queue {})", span.command, span.label)
            }
            None => format!("{queue} at {position}"),
        }
    }

    fn complete(
        &self,
        name: &str,
        cat: &str,
        track: (u32, u32),
        (start, end): (Nanos, Nanos),
        args: Option<Args<'_>>,
        lines: &mut Lines<'_>,
    ) -> io::Result<()> {
        let dur = Some(us(end.since(start)));
        lines.event(&Event { dur, args, ..self.event(name, cat, "X", track, start) })
    }

    fn event<'e>(
        &self,
        name: &'e str,
        cat: &'e str,
        ph: &'e str,
        (pid, tid): (u32, u32),
        at: Nanos,
    ) -> Event<'e> {
        let ts = us(at.since(self.origin));
        Event { name, cat, ph, ts, dur: None, pid, tid, id: None, bp: None, args: None }
    }
}

/// One event a line.
struct Lines<'o> {
    out: Out<'o>,
    any: bool,
}

impl Lines<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.out.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }
}

/// Process and thread of a queue.
fn track(queue: SlotId) -> (u32, u32) {
    let pid = queue.producer.0 + HOST + 1;
    (pid, thread(pid, queue.slot))
}

fn thread(process: u32, number: u32) -> u32 {
    process * THREADS_A_PROCESS + number
}

/// The last point that is within: viewers take the end for outside.
fn last_of(start: Nanos, end: Nanos) -> Nanos {
    Nanos(end.0.saturating_sub(1)).max(start)
}

fn us(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const QUEUE: SlotId = SlotId::new(0, 1);

    fn work(position: u64, start: u64, end: u64) -> Span {
        let (label, position) = (Arc::from("queue"), Seq::new(position));
        let (start, end) = (Nanos(start), Nanos(end));
        Span { queue: QUEUE, label, position, command: "c", kind: SpanKind::Work, start, end }
    }

    fn written(spans: Vec<Span>, moments: Moments<'_>) -> String {
        let mut out = Vec::new();
        Events::new(spans, moments).write(0, &mut out).expect("a vector takes all");
        String::from_utf8(out).expect("JSON is text")
    }

    /// A wait of the host that ran out of patience came after nothing.
    #[test]
    fn a_wait_that_was_given_up_has_no_arrow() {
        let waited = |end| Moment::Waited {
            cause: Cause::Host,
            queue: QUEUE,
            target: Seq::new(1),
            start: Nanos(50),
            end: Nanos(end),
        };
        let arrows = |end| {
            let text = written(vec![work(1, 100, 200)], &[waited(end)]);
            text.matches("\"ph\":\"s\"").count()
        };
        assert_eq!((arrows(150), arrows(250)), (0, 1));
    }

    #[test]
    fn depth_counts_what_was_given_and_is_not_over() {
        let given = |position, at| Moment::Submitted {
            queue: QUEUE,
            position: Seq::new(position),
            at: Nanos(at),
        };
        let spans = vec![work(u64::MAX, 20, 30), work(0, 30, 60)];
        let text = written(spans, &[given(u64::MAX, 10), given(0, 25)]);
        let depth = |line: &str| line.split("\"commands\":").nth(1)?.chars().next();
        assert_eq!(text.lines().filter_map(depth).collect::<String>(), "1210");
    }
}
