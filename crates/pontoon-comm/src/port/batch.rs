//! Several calls as one.

use bytemuck::Pod;
use pontoon_hal::link::Order;

use super::{Mode, Parts, Port};
use crate::{Operation, SendError, Task, Ticket, channel::Route};

/// The most tasks of a batch: they are collected on the stack.
const BATCH_MAX: usize = 32;

/// Calls that are made as one; see [`Port::batch`].
#[derive(Debug)]
pub struct Batch<'b> {
    port: &'b Port,
    tasks: [Task; BATCH_MAX],
    len: usize,
}

impl<'b> Batch<'b> {
    pub(super) fn new(port: &'b Port) -> Self {
        Self { port, tasks: [port.plain(Operation::Put, 0); BATCH_MAX], len: 0 }
    }

    /// Adds a [`put`](Port::put).
    ///
    /// # Errors
    ///
    /// [`SendError`]; the batch is as it was.
    pub fn put<T: Pod>(&mut self, bytes: &'b [T], to: usize) -> Result<(), SendError> {
        let range = self.port.source(bytemuck::cast_slice(bytes))?;
        self.port.within(to, range.len())?;
        self.add(self.port.numbers(Operation::Put, &range, to, 0, Order::Weak))
    }

    /// Adds an [`atomic_add`](Port::atomic_add).
    ///
    /// # Errors
    ///
    /// [`SendError`]; the batch is as it was.
    pub fn atomic_add(&mut self, to: usize, n: u64) -> Result<(), SendError> {
        self.add(self.port.prepared_add(to, n)?)
    }

    /// Adds a [`signal`](Port::signal) that vouches for all of the batch before it.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the batch is as it was.
    pub fn signal(&mut self, n: u32) -> Result<(), SendError> {
        self.port.needs_a_signal(n)?;
        self.add(self.port.numbers(Operation::Signal, &(0..0), 0, n, Order::Strong))
    }

    fn add(&mut self, task: Task) -> Result<(), SendError> {
        let place = self.tasks.get_mut(self.len).ok_or(SendError::BatchFull)?;
        *place = task;
        self.len += 1;
        Ok(())
    }

    /// Makes the calls. The ticket is for all of them.
    ///
    /// # Errors
    ///
    /// [`SendError`]. In a ring, nothing was done; else what came before the call that failed was.
    ///
    /// # Blocks
    ///
    /// As [`Port::put`].
    pub fn send(self) -> Result<Ticket<'b>, SendError> {
        let (port, tasks) = (self.port, &self.tasks[..self.len]);
        let parts: &'b Parts = &port.parts;
        if tasks.is_empty() {
            return Ok(Ticket::done(parts));
        }
        let bytes = tasks.iter().map(|task| task.moved() as usize).sum();
        let mode = port.choose(bytes).mode;
        if tasks.iter().any(|task| task.strong) {
            parts.catch_up(mode, port.patience)?;
        }
        if mode == Mode::Ring {
            return Ok(Ticket::of_lane(parts, parts.push(tasks, port.patience)?.end));
        }
        let (Route { source, target, .. }, link) = (&*parts.route, &parts.channel.link);
        parts.still_open()?;
        for task in tasks {
            let (from, to) = (task.from as usize, task.to as usize);
            match task.operation {
                Operation::Signal => {
                    let mut signal = port.take_signal()?;
                    link.signal(&mut signal, task.n, Order::Strong)?;
                }
                Operation::Add => {
                    link.post_add(target, to, task.bytes, None)?;
                }
                _ => {
                    link.write(source, from..from + task.bytes as usize, target, to)?;
                }
            }
        }
        Ok(Ticket::done(parts))
    }
}
