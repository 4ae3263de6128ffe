//! Putting a part of a batch into the graph of who waits for whom.

use std::sync::{Arc, OnceLock};

use pontoon_hal::{Device, fault_reason};

use super::{Command, Node, Parcel, Refusal, Session};
use crate::{
    batch::{Step, StepOf, WaitFor},
    fence::Late,
};

impl<D: Device> Session<'_, D> {
    /// Puts a part of a batch into the graph, or says which circle it would close.
    pub(super) fn enter(
        &mut self,
        stream: usize,
        lane: usize,
        steps: &[StepOf<D>],
    ) -> Result<Node, Refusal> {
        let collective = match steps.first() {
            Some(Step::Collective(id)) => Some(id.in_session(self.id)?),
            _ => None,
        };
        let node = self.parked.graph.add();
        let mut entry = node;
        let mut together = None;
        if let Some((serial, members)) = collective {
            match self.join(serial, members, stream, node) {
                Ok(joined) => (entry, together) = (joined.0, Some(joined.1)),
                Err(refusal) => {
                    self.parked.graph.remove(node);
                    return Err(refusal);
                }
            }
        }
        let collective = collective.map(|(serial, _)| serial);
        let (completer, gate) = match self.pool.create_at("parked batch", self.site) {
            Ok((completer, gate)) => (completer, gate.into_point()),
            Err(full) => {
                self.forget(node, entry, collective);
                return Err(Refusal::NoFence(full));
            }
        };
        let (real, why) = (OnceLock::new(), OnceLock::new());
        let late = Arc::new(Late { session: self.id, node, gate, real, why });
        let label = label_of(steps);
        let steps_of = Vec::new();
        let site = self.site;
        let parcel = Parcel {
            stream,
            lane,
            steps: steps_of,
            late,
            completer,
            label,
            site,
            entry,
            collective,
        };
        self.parked.parcels.insert(node, parcel);
        self.lanes[lane].parked.push_back(node);
        let mut circle = self.connect(node, entry, lane, steps);
        if let Some(together) = together {
            let graph = &mut self.parked.graph;
            let mut order = |(before, after)| graph.order(before, after).map_err(|it| it.path);
            circle = circle.and_then(|()| {
                [(entry, together), (together, node)].into_iter().try_for_each(&mut order)
            });
        }
        let Err(path) = circle else { return Ok(node) };
        let deadlock = self.tell(&path);
        self.take_back(node);
        Err(Refusal::Deadlock(deadlock))
    }

    /// Adds who waits for whom; the error is a circle.
    fn connect(
        &mut self,
        node: Node,
        entry: Node,
        lane: usize,
        steps: &[StepOf<D>],
    ) -> Result<(), Vec<Node>> {
        let graph = &mut self.parked.graph;
        let before = self.lanes[lane].parked.iter().rev().nth(1).copied();
        let mut order = |before, after| graph.order(before, after).map_err(|cycle| cycle.path);
        if let Some(before) = before {
            order(before, entry)?;
        }
        for step in steps {
            match step {
                Step::Wait(WaitFor::Fence(fence)) => {
                    if let (None, Some(late)) = (fence.point(), fence.gate()) {
                        order(late.node, entry)?;
                    }
                }
                Step::Wait(WaitFor::Semaphore(id, value)) => {
                    let it = &mut self.semaphores[id.index as usize];
                    if it.value() >= *value {
                        continue;
                    }
                    match it.promiser(*value) {
                        Some(promiser) => order(promiser, entry)?,
                        None => it.wanted.push((*value, node)),
                    }
                }
                Step::Signal(id, to) => {
                    let it = &mut self.semaphores[id.index as usize];
                    if let Some(&(_, earlier)) = it.promised.back()
                        && earlier != node
                    {
                        order(earlier, entry)?;
                    }
                    it.promise(*to, node);
                    let (now, still) =
                        it.wanted.iter().partition::<Vec<_>, _>(|(value, _)| value <= to);
                    it.wanted = still;
                    for (value, waiter) in now {
                        let at = self.parked.parcels.get(&waiter).map_or(waiter, |it| it.entry);
                        if let Err(path) = order(node, at) {
                            it.wanted.push((value, waiter));
                            return Err(path);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a parked batch back that was just entered.
    pub(super) fn take_back(&mut self, node: Node) {
        let Some(parcel) = self.parked.parcels.remove(&node) else { return };
        self.lanes[parcel.lane].parked.retain(|&other| other != node);
        self.forget(node, parcel.entry, parcel.collective);
        parcel.completer.complete(Err(fault_reason::ABANDONED));
    }

    /// Takes a parcel's nodes out of everything. Those who wait for its signals want them again.
    pub(super) fn forget(&mut self, node: Node, entry: Node, collective: Option<u64>) {
        if let Some(id) = collective {
            self.leave(id, node, false);
        }
        self.parked.graph.remove(entry);
        self.parked.graph.remove(node);
        let mut orphaned = false;
        for semaphore in &mut self.semaphores {
            semaphore.wanted.retain(|&(_, waiter)| waiter != node);
            orphaned |= semaphore.unpromise(node);
        }
        if orphaned {
            self.want_again();
        }
    }
}

/// What a batch goes by.
fn label_of<M, K>(steps: &[Step<Command<M, K>>]) -> &'static str {
    let work = steps.iter().find_map(|step| match step {
        Step::Work(command) => Some(command.label()),
        _ => None,
    });
    work.unwrap_or("a batch without commands")
}
