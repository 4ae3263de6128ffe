//! The entries of a scenario's program.

use std::collections::BTreeMap;

use pontoon_queue::check::{
    Access, Act, ClassId, CollectiveId, Command, Entry, EventId, HostWait, LockId, Mode, QueueId,
    Raise, SemaphoreId, SemaphoreWait, Signal, ThreadId, Work,
};

use super::{
    node::{Fault, Node, Object},
    scenario::{Ids, Named, Scenario},
};

const ACCESSES: [(&str, Mode); 5] = [
    ("reads", Mode::Read),
    ("writes", Mode::Write),
    ("rmw", Mode::ReadWrite),
    ("atomic", Mode::Atomic),
    ("remote", Mode::Write),
];

/// Reads the entries into the scenario, whose declarations are there already.
pub(super) fn read<'a>(
    scenario: &mut Scenario,
    program: &Node<'a>,
    ids: &Ids<'a>,
    ranks: usize,
) -> Result<(), Fault> {
    let mut reader = Reader {
        scenario,
        ids,
        ranks,
        threads: Numbers::default(),
        events: Numbers::default(),
        classes: Numbers::default(),
        collectives: BTreeMap::new(),
        reached: BTreeMap::new(),
        held: BTreeMap::new(),
    };
    for item in program.list()? {
        reader.entry(&item)?;
    }
    reader.all_ranks_take_part()?;
    let Reader { threads, events, classes, .. } = reader;
    scenario.program.threads = threads.0.len();
    scenario.program.events = events.0.len();
    scenario.threads = threads.names();
    scenario.classes = classes.names();
    Ok(())
}

/// Names in the order in which they first come up.
#[derive(Debug, Default)]
struct Numbers<'a>(BTreeMap<&'a str, usize>);

impl<'a> Numbers<'a> {
    fn of(&mut self, name: &'a str) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }

    fn names(self) -> Vec<String> {
        let mut names = vec![String::new(); self.0.len()];
        for (name, at) in self.0 {
            name.clone_into(&mut names[at]);
        }
        names
    }
}

/// Who signals: the signals of one of these come in order, as far as the file can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Signaller {
    Queue(QueueId),
    Thread(ThreadId),
}

/// A collective so far: its number, who of the ranks is in it, and where it first came up.
type Collective<'a> = (CollectiveId, Vec<bool>, Node<'a>);

struct Reader<'r, 'a> {
    scenario: &'r mut Scenario,
    ids: &'r Ids<'a>,
    ranks: usize,
    threads: Numbers<'a>,
    events: Numbers<'a>,
    classes: Numbers<'a>,
    collectives: BTreeMap<&'a str, Collective<'a>>,
    /// What a semaphore's value is at least, after the signals of one signaller.
    reached: BTreeMap<(SemaphoreId, Signaller), u64>,
    held: BTreeMap<(ThreadId, LockId), usize>,
}

impl<'a> Reader<'_, 'a> {
    fn entry(&mut self, item: &Node<'a>) -> Result<(), Fault> {
        let object = item.object()?;
        let (on, what) = (object.required("on")?, object.required("do")?);
        let label = match object.optional("label") {
            Some(label) => label.text()?,
            None => what.text()?,
        };
        let entry = if let Some(thread) = thread_name(on.text()?) {
            let thread = ThreadId(self.threads.of(thread));
            Entry { thread, act: self.host_act(&object, &what, thread)? }
        } else {
            let Some(Named::Queue(queue)) = self.ids.named(on.text()?) else {
                return Err(on.expected("the id of a queue, host or host:NAME"));
            };
            let thread = match object.optional("by") {
                None => "main",
                Some(by) => {
                    thread_name(by.text()?).ok_or_else(|| by.expected("host or host:NAME"))?
                }
            };
            let thread = ThreadId(self.threads.of(thread));
            Entry { thread, act: Act::Submit(queue, self.command(&object, &what, queue)?) }
        };
        self.scenario.program.entries.push(entry);
        self.scenario.labels.push(label.to_owned());
        Ok(())
    }

    fn command(
        &mut self,
        object: &Object<'a>,
        what: &Node<'a>,
        queue: QueueId,
    ) -> Result<Command, Fault> {
        let event = |this: &mut Self| -> Result<EventId, Fault> {
            object.only(&["on", "by", "do", "label", "event"])?;
            Ok(EventId(this.events.of(object.required("event")?.text()?)))
        };
        match what.text()? {
            kind @ ("kernel" | "copy" | "put" | "collective") => {
                self.work(object, queue, kind).map(Command::Work)
            }
            "barrier" => {
                object.only(&["on", "by", "do", "label", "from", "to"])?;
                let from = self.class_list(object, "from")?;
                Ok(Command::Barrier { from, to: self.class_list(object, "to")? })
            }
            "record" => event(self).map(Command::Record),
            "wait_event" => event(self).map(Command::WaitEvent),
            _ => Err(what.expected(
                "kernel, copy, put, barrier, record, wait_event or collective, as it is on a queue",
            )),
        }
    }

    fn work(&mut self, object: &Object<'a>, queue: QueueId, kind: &str) -> Result<Work, Fault> {
        let mut keys = vec![
            "on", "by", "do", "label", "reads", "writes", "rmw", "atomic", "wait", "signal",
            "class", "outcome",
        ];
        match kind {
            "put" => keys.push("remote"),
            "collective" => keys.extend(["id", "rank"]),
            _ => {}
        }
        object.only(&keys)?;
        let fails = match object.optional("outcome") {
            None => false,
            Some(outcome) if outcome.text()? == "error" => true,
            Some(outcome) => return Err(outcome.expected("error, or no such key")),
        };
        let mut waits = Vec::new();
        for wait in object.items("wait")? {
            waits.push(self.semaphore_wait(&wait)?);
        }
        let class = match object.optional("class") {
            Some(class) => Some(ClassId(self.classes.of(class.text()?))),
            None => None,
        };
        let launch_order = self.scenario.program.queues[queue.0].launch_order;
        let line = (!launch_order && !fails).then_some(Signaller::Queue(queue));
        Ok(Work {
            accesses: self.accesses(object)?,
            waits,
            signals: self.signals(object, line)?,
            class,
            fails,
            collective: if kind == "collective" { Some(self.collective(object)?) } else { None },
        })
    }

    fn collective(&mut self, object: &Object<'a>) -> Result<CollectiveId, Fault> {
        let (id, rank) = (object.required("id")?, object.required("rank")?);
        let number = self.ids.rank(&rank)?;
        let next = CollectiveId(self.collectives.len());
        let (collective, present, _) = self
            .collectives
            .entry(id.text()?)
            .or_insert_with(|| (next, vec![false; self.ranks], id.clone()));
        if std::mem::replace(&mut present[number], true) {
            return Err(rank.expected(format_args!("one entry of each rank for {:?}", id.text()?)));
        }
        Ok(*collective)
    }

    fn all_ranks_take_part(&self) -> Result<(), Fault> {
        match self.collectives.values().find(|(_, present, _)| present.contains(&false)) {
            Some((_, _, first)) => Err(first.expected("an entry of every one of ranks")),
            None => Ok(()),
        }
    }

    fn host_act(
        &mut self,
        object: &Object<'a>,
        what: &Node<'a>,
        thread: ThreadId,
    ) -> Result<Act, Fault> {
        let only = |keys: &[&str]| object.only(&[&["on", "do", "label"], keys].concat());
        match what.text()? {
            "read" => {
                only(&["reads", "rmw", "atomic"])?;
                self.accesses(object).map(Act::Access)
            }
            "write" => {
                only(&["writes", "rmw", "atomic"])?;
                self.accesses(object).map(Act::Access)
            }
            "wait" => {
                only(&["wait"])?;
                let waits = object.required("wait")?.list()?;
                waits
                    .iter()
                    .map(|wait| self.host_wait(wait))
                    .collect::<Result<_, _>>()
                    .map(Act::Wait)
            }
            "signal" => {
                only(&["signal"])?;
                object.required("signal")?;
                self.signals(object, Some(Signaller::Thread(thread))).map(Act::Signal)
            }
            "free" => {
                only(&["buf"])?;
                self.ids.buffer(&object.required("buf")?).map(Act::Free)
            }
            "lock" => {
                only(&["lock"])?;
                let lock = self.ids.lock(&object.required("lock")?)?;
                *self.held.entry((thread, lock)).or_default() += 1;
                Ok(Act::Lock(lock))
            }
            "unlock" => {
                only(&["lock"])?;
                let node = object.required("lock")?;
                let lock = self.ids.lock(&node)?;
                match self.held.get_mut(&(thread, lock)) {
                    Some(held) if *held > 0 => *held -= 1,
                    _ => return Err(node.expected("a lock that this thread has taken before")),
                }
                Ok(Act::Unlock(lock))
            }
            "drop" => {
                only(&["semaphore"])?;
                self.ids.semaphore(&object.required("semaphore")?).map(Act::Drop)
            }
            _ => Err(what.expected(
                "read, write, wait, signal, free, lock, unlock or drop, as it is on the host",
            )),
        }
    }

    fn accesses(&self, object: &Object<'a>) -> Result<Vec<Access>, Fault> {
        let mut accesses = Vec::new();
        for (key, mode) in ACCESSES {
            for item in object.items(key)? {
                accesses.push(self.access(&item, mode)?);
            }
        }
        Ok(accesses)
    }

    fn access(&self, item: &Node<'a>, mode: Mode) -> Result<Access, Fault> {
        let text = item.text()?;
        let (name, range) = match (self.ids.named(text), text.rsplit_once('[')) {
            (None, Some((name, range))) => (name, Some(range)),
            _ => (text, None),
        };
        let Some(Named::Buffer(buffer)) = self.ids.named(name) else {
            return Err(item.expected("\"buffer\" or \"buffer[a..b]\" with a declared buffer"));
        };
        let size = self.scenario.program.buffers[buffer.0].size;
        let Some(range) = range else { return Ok(Access { buffer, range: 0..size, mode }) };
        let bounds = range.strip_suffix(']').and_then(|range| range.split_once(".."));
        let bounds = bounds.and_then(|(a, b)| Some((whole(a)?, whole(b)?)));
        match bounds {
            Some((a, b)) if a < b && b <= size => Ok(Access { buffer, range: a..b, mode }),
            _ => Err(item.expected(format_args!("bytes [a..b] with a < b <= {size}"))),
        }
    }

    fn host_wait(&mut self, item: &Node<'a>) -> Result<HostWait, Fault> {
        let text = item.text()?;
        if let Some(Named::Queue(queue)) = self.ids.named(text) {
            return Ok(HostWait::Queue(queue));
        }
        match text.strip_prefix("event:") {
            Some(event) if !event.is_empty() => Ok(HostWait::Event(EventId(self.events.of(event)))),
            _ => self
                .semaphore_wait(item)
                .map(HostWait::Semaphore)
                .map_err(|_| item.expected("\"semaphore>=n\", a queue or \"event:ID\"")),
        }
    }

    fn semaphore_wait(&self, item: &Node<'a>) -> Result<SemaphoreWait, Fault> {
        let parts = item.text()?.rsplit_once(">=");
        let wait = parts.and_then(|(name, value)| match self.ids.named(name) {
            Some(Named::Semaphore(semaphore)) => {
                Some(SemaphoreWait { semaphore, value: whole(value)? })
            }
            _ => None,
        });
        wait.ok_or_else(|| item.expected("\"semaphore>=n\" with a declared semaphore"))
    }

    /// Reads signals; those of one line must make the value grow, each more than the one before.
    fn signals(
        &mut self,
        object: &Object<'a>,
        line: Option<Signaller>,
    ) -> Result<Vec<Signal>, Fault> {
        let mut signals = Vec::new();
        for item in object.items("signal")? {
            let signal = self.signal(&item)?;
            let initial = self.scenario.program.semaphores[signal.semaphore.0].initial;
            let reached = match line {
                Some(line) => *self.reached.get(&(signal.semaphore, line)).unwrap_or(&initial),
                None => initial,
            };
            let grown = match signal.raise {
                Raise::To(to) => Some(to).filter(|&to| to > reached),
                Raise::By(by) => reached.checked_add(by).filter(|_| by > 0),
            };
            let Some(grown) = grown else {
                return Err(item.expected(format_args!("a signal to a value above {reached}")));
            };
            if let Some(line) = line {
                self.reached.insert((signal.semaphore, line), grown);
            }
            signals.push(signal);
        }
        Ok(signals)
    }

    fn signal(&self, item: &Node<'a>) -> Result<Signal, Fault> {
        let parts = item.text()?.rsplit_once('=');
        let signal = parts.and_then(|(name, value)| {
            let value = whole(value)?;
            let (name, raise) = match name.strip_suffix('+') {
                Some(short) if !matches!(self.ids.named(name), Some(Named::Semaphore(_))) => {
                    (short, Raise::By(value))
                }
                _ => (name, Raise::To(value)),
            };
            match self.ids.named(name) {
                Some(Named::Semaphore(semaphore)) => Some(Signal { semaphore, raise }),
                _ => None,
            }
        });
        signal.ok_or_else(|| {
            item.expected("\"semaphore=n\" or \"semaphore+=n\" with a declared semaphore")
        })
    }

    fn class_list(
        &mut self,
        object: &Object<'a>,
        key: &str,
    ) -> Result<Option<Vec<ClassId>>, Fault> {
        let Some(list) = object.optional(key) else { return Ok(None) };
        let mut classes = Vec::new();
        for class in list.list()? {
            classes.push(ClassId(self.classes.of(class.text()?)));
        }
        Ok(Some(classes))
    }
}

/// The name of the thread that `host` or `host:NAME` is.
fn thread_name(text: &str) -> Option<&str> {
    match text.strip_prefix("host")? {
        "" => Some("main"),
        rest => rest.strip_prefix(':').filter(|name| !name.is_empty()),
    }
}

/// A number in digits alone, without a sign.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
