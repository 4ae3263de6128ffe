//! A scenario file read into a program: the declarations. The entries are read in `entries.rs`.

use std::collections::{BTreeMap, BTreeSet};

use pontoon_queue::check::{
    Buffer, BufferId, FifoId, LockId, Program, Queue, QueueId, Semaphore, SemaphoreId,
};

use super::{
    entries,
    json::parse,
    node::{Fault, Node, Object},
};
use crate::counted::counted;

/// The only format there is.
pub(super) const FORMAT: &str = "pontoon-scenario/1";

/// A program and what the file calls its parts.
#[derive(Debug, Default)]
pub(super) struct Scenario {
    pub(super) program: Program,
    pub(super) buffers: Vec<String>,
    pub(super) queues: Vec<String>,
    pub(super) semaphores: Vec<String>,
    pub(super) threads: Vec<String>,
    pub(super) classes: Vec<String>,
    /// Of each entry, its label or what it does.
    pub(super) labels: Vec<String>,
}

/// What an id stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Buffer(BufferId),
    Queue(QueueId),
    Semaphore(SemaphoreId),
    Lock(LockId),
    Rank(usize),
}

/// The ids of a file.
#[derive(Debug, Default)]
pub(super) struct Ids<'a>(BTreeMap<&'a str, Named>);

impl<'a> Ids<'a> {
    fn declare(&mut self, node: &Node<'a>, named: Named) -> Result<&'a str, Fault> {
        let id = node.text()?;
        if id.is_empty() {
            return Err(node.expected("an id"));
        }
        if id == "host" || id.starts_with("host:") {
            return Err(node.expected("an id other than host, which is taken"));
        }
        if self.0.insert(id, named).is_some() {
            return Err(node.expected("an id that nothing else in the file has"));
        }
        Ok(id)
    }

    pub(super) fn named(&self, id: &str) -> Option<Named> {
        self.0.get(id).copied()
    }

    pub(super) fn buffer(&self, node: &Node<'_>) -> Result<BufferId, Fault> {
        match self.named(node.text()?) {
            Some(Named::Buffer(id)) => Ok(id),
            _ => Err(node.expected("the id of a buffer")),
        }
    }

    pub(super) fn lock(&self, node: &Node<'_>) -> Result<LockId, Fault> {
        match self.named(node.text()?) {
            Some(Named::Lock(id)) => Ok(id),
            _ => Err(node.expected("the id of a lock")),
        }
    }

    pub(super) fn semaphore(&self, node: &Node<'_>) -> Result<SemaphoreId, Fault> {
        match self.named(node.text()?) {
            Some(Named::Semaphore(id)) => Ok(id),
            _ => Err(node.expected("the id of a semaphore")),
        }
    }

    pub(super) fn rank(&self, node: &Node<'_>) -> Result<usize, Fault> {
        match self.named(node.text()?) {
            Some(Named::Rank(rank)) => Ok(rank),
            _ => Err(node.expected("one of ranks")),
        }
    }
}

impl Scenario {
    /// Reads a file's text.
    pub(super) fn read(text: &[u8]) -> Result<Self, Fault> {
        let value = parse(text).map_err(|error| Fault::syntax(&error))?;
        Self::of(&Node::root(&value)).map_err(|fault| fault.in_text(text))
    }

    fn of(root: &Node<'_>) -> Result<Self, Fault> {
        let file = root.object()?;
        let format = file.required("format")?;
        if format.text()? != FORMAT {
            return Err(format.expected(format_args!("{FORMAT:?}")));
        }
        file.only(&[
            "format",
            "name",
            "about",
            "buffers",
            "queues",
            "semaphores",
            "locks",
            "ranks",
            "program",
        ])?;
        for key in ["name", "about"] {
            file.optional(key).map_or(Ok(""), |node| node.text())?;
        }
        let mut scenario = Self::default();
        let mut ids = Ids::default();
        scenario.read_buffers(&file, &mut ids)?;
        scenario.read_queues(&file, &mut ids)?;
        scenario.read_semaphores(&file, &mut ids)?;
        for lock in file.items("locks")? {
            ids.declare(&lock, Named::Lock(LockId(scenario.program.locks)))?;
            scenario.program.locks += 1;
        }
        let ranks = file.items("ranks")?;
        for (at, rank) in ranks.iter().enumerate() {
            ids.declare(rank, Named::Rank(at))?;
        }
        entries::read(&mut scenario, &file.required("program")?, &ids, ranks.len())?;
        Ok(scenario)
    }

    fn read_buffers<'a>(&mut self, file: &Object<'a>, ids: &mut Ids<'a>) -> Result<(), Fault> {
        let items = file.items("buffers")?;
        let mut objects = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let object = item.object()?;
            object.only(&["id", "size", "of", "offset"])?;
            let id = ids.declare(&object.required("id")?, Named::Buffer(BufferId(at)))?;
            self.buffers.push(id.to_owned());
            let size = object.required("size")?;
            if size.number()? == 0 {
                return Err(size.expected("a number of bytes above 0"));
            }
            self.program.buffers.push(Buffer { of: None, size: size.number()? });
            objects.push(object);
        }
        for (at, object) in objects.iter().enumerate() {
            let (of, offset) = match (object.optional("of"), object.optional("offset")) {
                (None, None) => continue,
                (Some(_), None) => (object.required("of")?, object.required("offset")?),
                (_, Some(offset)) => (object.required("of")?, offset),
            };
            let base = ids.buffer(&of)?;
            let (room, size) = (self.program.buffers[base.0].size, self.program.buffers[at].size);
            if offset.number()?.checked_add(size).is_none_or(|end| end > room) {
                let base = &self.buffers[base.0];
                return Err(offset.expected(format_args!(
                    "an offset from which {} fit{} into the {room} of {base:?}",
                    counted(size, "byte"),
                    if size == 1 { "s" } else { "" }
                )));
            }
            self.program.buffers[at].of = Some((base, offset.number()?));
        }
        self.refuse_circles(&objects)
    }

    /// A buffer that is a view of itself, by however many others.
    fn refuse_circles(&self, objects: &[Object<'_>]) -> Result<(), Fault> {
        let buffers = &self.program.buffers;
        let mut well = vec![false; buffers.len()];
        for start in 0..buffers.len() {
            let mut way = BTreeSet::new();
            let mut at = start;
            while let (false, Some((of, _))) = (well[at], buffers[at].of) {
                if !way.insert(at) {
                    return Err(objects[at].required("of")?.expected("no view of itself"));
                }
                at = of.0;
            }
            way.into_iter().for_each(|at| well[at] = true);
        }
        Ok(())
    }

    fn read_queues<'a>(&mut self, file: &Object<'a>, ids: &mut Ids<'a>) -> Result<(), Fault> {
        let mut fifos = BTreeMap::new();
        let mut implicit = Vec::new();
        for (at, item) in file.items("queues")?.iter().enumerate() {
            let object = item.object()?;
            object.only(&["id", "device", "kind", "order", "hardware", "credits", "implicit"])?;
            let id = ids.declare(&object.required("id")?, Named::Queue(QueueId(at)))?;
            self.queues.push(id.to_owned());
            object.required("device")?.text()?;
            if let Some(kind) = object.optional("kind")
                && !["compute", "copy", "comm"].contains(&kind.text()?)
            {
                return Err(kind.expected("compute, copy or comm"));
            }
            let launch_order = match object.optional("order") {
                None => false,
                Some(order) => match order.text()? {
                    "complete" => false,
                    "launch" => true,
                    _ => return Err(order.expected("complete or launch")),
                },
            };
            let hardware = match object.optional("hardware") {
                None => None,
                Some(name) => {
                    let next = FifoId(fifos.len());
                    Some(*fifos.entry(name.text()?).or_insert(next))
                }
            };
            let credits = match object.optional("credits") {
                None => None,
                Some(credits) => match credits.number()? {
                    0 => return Err(credits.expected("a number of commands above 0")),
                    credits => Some(usize::try_from(credits).unwrap_or(usize::MAX)),
                },
            };
            implicit.push(object.items("implicit")?);
            self.program.queues.push(Queue {
                launch_order,
                hardware,
                credits,
                implicit: Vec::new(),
            });
        }
        for (queue, partners) in self.program.queues.iter_mut().zip(implicit) {
            for partner in partners {
                match ids.named(partner.text()?) {
                    Some(Named::Queue(id)) => queue.implicit.push(id),
                    _ => return Err(partner.expected("the id of a queue")),
                }
            }
        }
        Ok(())
    }

    fn read_semaphores<'a>(&mut self, file: &Object<'a>, ids: &mut Ids<'a>) -> Result<(), Fault> {
        for (at, item) in file.items("semaphores")?.iter().enumerate() {
            let object = item.object()?;
            object.only(&["id", "initial", "external"])?;
            let id = ids.declare(&object.required("id")?, Named::Semaphore(SemaphoreId(at)))?;
            self.semaphores.push(id.to_owned());
            self.program.semaphores.push(Semaphore {
                initial: object.optional("initial").map_or(Ok(0), |node| node.number())?,
                external: object.optional("external").map_or(Ok(false), |node| node.flag())?,
            });
        }
        Ok(())
    }
}
