//! Batches that start together.

use std::sync::Arc;

use pontoon_hal::{Access, Device, Mode};

use super::{Abandoned, CollectiveId, Refusal, Session};
use crate::{
    acyclic::Node,
    batch::{Step, StepOf, accesses},
    check::HazardKind,
    session::{Edges, MissingEdge},
};

/// Made by the caller, used once, and gone with its members.
///
/// One of which a member was given up stays, so that members that come later are told why.
pub(super) struct Collective {
    pub(super) label: Arc<str>,
    pub(super) members: u32,
    /// Waits for what its members wait for, and they for it.
    pub(super) node: Option<Node>,
    /// The streams of the members that have come, and were not given up.
    pub(super) came: Vec<(usize, Node)>,
    /// Why it will never start.
    pub(super) broken: Option<Arc<Abandoned>>,
}

impl Collective {
    pub(super) fn is_complete(&self) -> bool {
        self.came.len() == self.members as usize
    }
}

impl<D: Device> Session<'_, D> {
    /// Makes a collective of `members` batches, one each of different streams, which start together:
    /// their devices are given all of them or none. It is used once.
    pub fn collective(&mut self, label: &str, members: u32) -> CollectiveId {
        let (label, came) = (Arc::from(label), Vec::new());
        let id = CollectiveId { session: self.id, members, serial: self.parked.collectives_made };
        self.parked.collectives_made += 1;
        let collective = Collective { label, members, node: None, came, broken: None };
        self.parked.collectives.insert(id.serial, collective);
        id
    }

    /// The collective that a parked batch is of.
    pub(super) fn collective_of(&self, node: Node) -> Option<&Collective> {
        let id = self.parked.parcels.get(&node)?.collective?;
        self.parked.collectives.get(&id)
    }

    /// Whether all members of its collective have come, if it is in one.
    pub(super) fn has_come(&self, node: Node) -> bool {
        self.collective_of(node).is_none_or(Collective::is_complete)
    }

    /// Adds a member: the node that waits for what it waits for, and that of the collective.
    pub(super) fn join(
        &mut self,
        serial: u64,
        members: u32,
        stream: usize,
        node: Node,
    ) -> Result<(Node, Node), Refusal> {
        let super::Parked { graph, collectives, .. } = &mut self.parked;
        let Some(collective) = collectives.get_mut(&serial) else {
            return Err(Refusal::NotAMember { members });
        };
        if let Some(why) = &collective.broken {
            return Err(Refusal::Abandoned(Arc::clone(why)));
        }
        let has_come = collective.came.iter().any(|&(member, _)| member == stream);
        if collective.is_complete() || has_come {
            return Err(Refusal::NotAMember { members });
        }
        collective.came.push((stream, node));
        let entry = graph.add();
        Ok((entry, *collective.node.get_or_insert_with(|| graph.add())))
    }

    /// Takes a member out of its collective. With the last of those that came, the collective goes.
    pub(super) fn leave(&mut self, id: u64, node: Node, went: bool) {
        let Some(collective) = self.parked.collectives.get_mut(&id) else { return };
        collective.came.retain(|&(_, member)| member != node);
        if !collective.came.is_empty() {
            return;
        }
        if let Some(node) = collective.node.take() {
            self.parked.graph.remove(node);
        }
        if went {
            self.parked.collectives.remove(&id);
        }
    }

    /// How many waits `steps` may need because of `other`, which starts beside it.
    ///
    /// # Errors
    ///
    /// Where edges are checked: the two meet on the same bytes, and nothing could order them.
    pub(super) fn waits_beside(
        &self,
        (lane, steps): (usize, &[StepOf<D>]),
        (other_lane, other): (usize, &[StepOf<D>]),
    ) -> Result<usize, Refusal> {
        if self.edges == Edges::Trust {
            return Ok(0);
        }
        let mut waits = 0;
        for step in steps {
            let Step::Work(command) = step else { continue };
            let earlier = other.iter().filter_map(|step| match step {
                Step::Work(command) => Some(command),
                _ => None,
            });
            for earlier in earlier {
                let met = accesses(command).find_map(|later| {
                    Some((accesses(earlier).find(|it| it.conflicts_with(later))?, later))
                });
                let Some((first, later)) = met else { continue };
                waits += 1;
                if self.edges == Edges::Check {
                    let earlier = self.site(Self::axis(other_lane), Some(earlier.label()));
                    let site = self.site(Self::axis(lane), Some(command.label()));
                    return Err(Refusal::Missing(unordered(first, earlier, later, site)));
                }
            }
        }
        Ok(waits)
    }
}

fn unordered<M: pontoon_hal::Memory>(
    first: &Access<M>,
    earlier: crate::session::Site,
    second: &Access<M>,
    later: crate::session::Site,
) -> MissingEdge {
    let kind = match (first.mode, second.mode) {
        (Mode::Write, Mode::Read) => HazardKind::ReadAfterWrite,
        (Mode::Write, Mode::Write) => HazardKind::WriteAfterWrite,
        (Mode::Read, _) => HazardKind::WriteAfterRead,
    };
    let start = first.range.start.max(second.range.start) as u64;
    let range = start..first.range.end.min(second.range.end) as u64;
    MissingEdge { kind, region: first.memory.id(), range, earlier, later, more: 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_cpu::{CpuDevice, CpuSpec};
    use pontoon_hal::Engine;
    use pontoon_signal::Rank;

    use crate::{Patience, Refusal, Session};

    #[test]
    fn a_collective_is_gone_with_its_members() {
        let device = CpuDevice::open(Rank(0), CpuSpec::default()).unwrap();
        let patience = Patience::within(Duration::from_secs(30));
        let mut session = Session::<CpuDevice>::check().with_patience(patience);
        let streams = [0, 1].map(|_| session.stream(&device, Engine::Compute, "stream").unwrap());
        for _ in 0..100 {
            let both = session.collective("both", 2);
            let mut join = |stream| {
                let mut batch = session.batch();
                batch.collective(both);
                session.submit(stream, batch.seal().unwrap()).map_err(|refused| refused.why)
            };
            streams.into_iter().for_each(|stream| drop(join(stream).unwrap()));
            let late = join(streams[0]);
            assert!(matches!(late, Err(Refusal::NotAMember { members: 2 })), "{late:?}");
            assert!(session.parked.collectives.is_empty() && session.parked.graph.is_empty());
        }
    }
}
