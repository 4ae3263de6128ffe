//! Who waits for whom among the parked batches, in words.

use pontoon_hal::Device;

use super::{Deadlock, Parcel, Refusal, Room, Session};
use crate::{
    acyclic::Node,
    batch::{Step, WaitFor},
    fence::Late,
};

impl<D: Device> Session<'_, D> {
    /// Why a lane whose parked batches have all its credits takes no other.
    pub(in crate::session) fn no_credit(&self, lane: usize, holds: u32, room: Room) -> Refusal {
        let this = &self.lanes[lane];
        match (room, this.parked.front()) {
            (Room::Wait(_), Some(&head)) => {
                let mut path = vec![format!(
                    "the host waits for one of the {holds} credits of queue {}",
                    this.label
                )];
                self.chain_of(head, &mut path);
                Refusal::Deadlock(Deadlock { path })
            }
            _ => Refusal::Full { device: this.device.rank(), queue: this.label.clone(), holds },
        }
    }

    /// Why the host would wait for a parked batch for ever.
    pub(in crate::session) fn host_deadlock(&self, late: &Late) -> Deadlock {
        let name = self.name(late.node);
        let mut path = vec![format!("the host waits for {name}")];
        self.chain_of(late.node, &mut path);
        Deadlock { path }
    }

    /// Who a parked batch waits for, down to what nobody but the host can do.
    fn chain_of(&self, node: Node, path: &mut Vec<String>) {
        let mut at = node;
        let mut seen = Vec::new();
        while !seen.contains(&at) {
            seen.push(at);
            let Some(parcel) = self.parked.parcels.get(&at) else { return };
            let name = self.name(at);
            let open = parcel.steps.iter().find_map(|step| match step {
                Step::Wait(WaitFor::Semaphore(id, value)) => {
                    let it = &self.semaphores[id.index as usize];
                    it.wanted.contains(&(*value, at)).then(|| {
                        format!(
                            "{name} waits for semaphore {} to reach {value}, which nobody has \
                             submitted a signal for yet",
                            it.label
                        )
                    })
                }
                _ => None,
            });
            if let Some(open) = open {
                path.push(open);
                return;
            }
            if let Some(collective) = self.collective_of(at)
                && !collective.is_complete()
            {
                path.push(format!(
                    "{name} waits for collective {}, which has {} of {} members",
                    collective.label,
                    collective.came.len(),
                    collective.members
                ));
                return;
            }
            let Some(before) = self.first_before(at, parcel.entry) else {
                let queue = &self.lanes[parcel.lane].label;
                path.push(format!("{name} waits for room in queue {queue}"));
                return;
            };
            path.push(self.link(before, at));
            at = before;
        }
    }

    /// A parcel that a parcel waits for, alone or with its collective.
    fn first_before(&self, node: Node, entry: Node) -> Option<Node> {
        let graph = &self.parked.graph;
        let members = self.collective_of(node).into_iter().flat_map(|it| &it.came);
        let members = members.filter_map(|(_, it)| self.parked.parcels.get(it));
        let mut entries = std::iter::once(entry).chain(members.map(|it| it.entry));
        entries.find_map(|entry| graph.before(entry).next())
    }

    /// The parcel whose node it is, either one.
    fn parcel_at(&self, node: Node) -> Option<&Parcel<D>> {
        let parcels = &self.parked.parcels;
        parcels.get(&node).or_else(|| parcels.values().find(|parcel| parcel.entry == node))
    }

    /// A circle in words.
    pub(super) fn tell(&self, path: &[Node]) -> Deadlock {
        let pairs = path.iter().zip(path.iter().cycle().skip(1));
        let links = pairs.map(|(&after, &before)| self.link(before, after));
        Deadlock { path: links.collect() }
    }

    /// Why `after` waits for `before`.
    fn link(&self, before: Node, after: Node) -> String {
        let (first, second) = (self.name(before), self.name(after));
        let parcels = (self.parcel_at(before), self.parcel_at(after));
        let (Some(one), Some(other)) = parcels else {
            return format!("{second} waits for {first}");
        };
        for semaphore in &self.semaphores {
            let signals = |&&(_, node): &&(u64, Node)| node == before;
            let Some((value, _)) = semaphore.promised.iter().find(signals) else { continue };
            let label = &semaphore.label;
            if before == after {
                return format!(
                    "{second} waits for semaphore {label}, which it is itself the next to signal, \
                     to {value}: a semaphore's values come in the order in which they were \
                     submitted, so submit what it waits for first, or use two semaphores"
                );
            }
            if one.lane != other.lane {
                return format!(
                    "{second} waits for semaphore {label} to reach {value}, which {first} signals"
                );
            }
        }
        if one.lane == other.lane && before != after {
            let queue = &self.lanes[one.lane].label;
            return format!("{second} is behind {first} in queue {queue}");
        }
        format!("{second} waits for {first}")
    }

    pub(super) fn name(&self, node: Node) -> String {
        if let Some(parcel) = self.parcel_at(node) {
            let stream = &self.streams[parcel.stream].label;
            return format!("{} (stream {stream})", parcel.label);
        }
        let collectives = &self.parked.collectives;
        match collectives.values().find(|collective| collective.node == Some(node)) {
            Some(collective) => format!("collective {}", collective.label),
            None => "a batch".to_string(),
        }
    }
}
