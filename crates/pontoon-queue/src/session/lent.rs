//! Bytes that two ranks use in turns, handed over by signals.
//!
//! A rank sees its own commands and never those of a peer. So what keeps a peer's writes and the
//! commands here apart is who has the bytes: a command that tells the peer to go on lends them, and
//! a signal of the peer brings them back. In between nothing here may touch them, and both ends are
//! writes in the order of things here. A parked batch is not in that order yet: what one is to use
//! cannot be lent unless the command that lends it follows that batch. The peer's session proves the same of its side, for which a
//! region stands in for the bytes here; so the two together leave nothing unordered, and no clock
//! has to travel with a message. `docs/design/ranks.md` has the argument.

use std::{collections::VecDeque, mem, ops::Range, panic::Location, sync::Arc};

use pontoon_hal::{Access, Device, Memory, Mode, RegionId, overlap};

use super::{ChannelId, Edges, Foreign, Refusal, Room, Session, StreamId, plan::touch};
use crate::{
    Fence, FenceError,
    batch::{self, Step, StepOf, WaitFor, accesses},
    tracker::{HOST, reduce},
};

/// What a peer has of the bytes here, and gives back by its signals, in the order it was given.
pub(super) struct Channel<M> {
    label: Arc<str>,
    lent: VecDeque<Lending<M>>,
    /// How often something came back.
    arrived: u64,
}

struct Lending<M> {
    /// All as written.
    bytes: Vec<Access<M>>,
    /// The command that lent them, and on which stream.
    by: Option<(Fence, StreamId)>,
}

impl<M> Lending<M> {
    /// How the command failed that was to lend the bytes. The peer was told nothing then.
    fn failure(&self) -> Option<FenceError> {
        self.by.as_ref()?.0.is_complete().err()
    }
}

impl<D: Device> Session<'_, D> {
    /// Makes a channel: what a peer is lent and brings back. The label names peer and purpose in
    /// errors. It is there for as long as the session.
    pub fn channel(&mut self, label: &str) -> ChannelId {
        let (label, lent, arrived) = (Arc::from(label), VecDeque::new(), 0);
        self.channels.push(Channel { label, lent, arrived });
        ChannelId::new(self.id, self.channels.len() - 1)
    }

    /// The peer has these bytes from the beginning, before it was told anything: what stands in for
    /// a peer's own memory, say. Its first signal brings them. They are lent as what is written,
    /// whatever the accesses say.
    ///
    /// # Errors
    ///
    /// [`Refusal::Foreign`]; [`Refusal::Lent`] if somebody has some of them already;
    /// [`Refusal::Missing`] if a command used them that the host has not [waited](Self::wait) for,
    /// [`Refusal::Wanted`] if a parked batch is to; [`Refusal::Freed`].
    pub fn lend_at_start(
        &mut self,
        channel: ChannelId,
        bytes: impl IntoIterator<Item = Access<D::Memory>>,
    ) -> Result<(), Refusal> {
        let at = channel.in_session(self.id)?;
        let to_write = |access: Access<_>| Access { mode: Mode::Write, ..access };
        let bytes: Vec<_> = bytes.into_iter().map(to_write).collect();
        bytes.iter().try_for_each(|access| self.may_touch(AT_START, access))?;
        self.may_lend(AT_START, &bytes, None)?;
        self.is_unused(&bytes)?;
        self.channels[at].lent.push_back(Lending { bytes, by: None });
        self.lendings += 1;
        Ok(())
    }

    /// Submits a kernel that hands bytes over to a peer: it signals the peer, and may send something
    /// along. What it declares as written is lent: whatever touches it from then on is refused, until
    /// the peer's signal has brought it [back](Self::arrive). What it reads stays here.
    ///
    /// A peer's own memory is lent in the same way, by what stands in for it: a kernel that sends
    /// there gives it up until the peer says that it may be written again.
    ///
    /// If the command fails, nothing was lent: so what the kernel tells the peer comes last in it,
    /// after whatever may fail and after its own last use of the bytes.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing was queued, and nothing lent. [`Refusal::Wanted`] if a parked batch that
    /// does not come before this command is to use the bytes.
    ///
    /// # Blocks
    ///
    /// As [`submit`](Self::submit).
    #[track_caller]
    pub fn lend(
        &mut self,
        stream: StreamId,
        channel: ChannelId,
        label: &'static str,
        kernel: &D::Kernel,
        accesses: impl IntoIterator<Item = Access<D::Memory>>,
        arguments: impl IntoIterator<Item = u64>,
    ) -> Result<Fence, Refusal> {
        self.site = Location::caller();
        let at = channel.in_session(self.id)?;
        let accesses: Vec<_> = accesses.into_iter().collect();
        let command = batch::launch::<D>(label, kernel, accesses.iter().cloned(), arguments)?;
        let bytes: Vec<_> =
            accesses.into_iter().filter(|access| access.mode == Mode::Write).collect();
        self.may_lend(label, &bytes, Some(stream))?;
        let fence = self.one_command(stream, command)?;
        self.channels[at].lent.push_back(Lending { bytes, by: Some((fence.clone(), stream)) });
        self.lendings += 1;
        Ok(fence)
    }

    /// What was lent first over `channel` comes back on `stream` when `signal`, the peer's, is
    /// reached: what the stream is given afterwards may touch the bytes and finds there what the
    /// peer wrote, and so does whatever waits for the fence. `nothing` is a kernel that does nothing.
    ///
    /// # Errors
    ///
    /// [`Refusal::NothingLent`]; [`Refusal::Failed`] if the command failed that was to lend the
    /// bytes, which then are not lent any more; or as for [`launch`](Self::launch), and they stay
    /// lent.
    ///
    /// # Blocks
    ///
    /// As [`submit`](Self::submit). The device waits for the peer.
    #[track_caller]
    pub fn arrive(
        &mut self,
        stream: StreamId,
        channel: ChannelId,
        label: &'static str,
        signal: &Fence,
        nothing: &D::Kernel,
    ) -> Result<Fence, Refusal> {
        self.site = Location::caller();
        let at = channel.in_session(self.id)?;
        let Some(lent) = self.channels[at].lent.pop_front() else {
            let channel = Arc::clone(&self.channels[at].label);
            return Err(Refusal::NothingLent { label, channel });
        };
        self.lendings -= 1;
        if let (Some((fence, _)), Some(error)) = (&lent.by, lent.failure()) {
            return Err(Refusal::Failed(self.rooted(fence, error)));
        }
        let given = self.bring_back(stream, label, signal, nothing, &lent);
        if given.is_ok() {
            self.channels[at].arrived += 1;
        } else {
            self.channels[at].lent.push_front(lent);
            self.lendings += 1;
        }
        given
    }

    fn bring_back(
        &mut self,
        stream: StreamId,
        label: &'static str,
        signal: &Fence,
        nothing: &D::Kernel,
        lent: &Lending<D::Memory>,
    ) -> Result<Fence, Refusal> {
        let command = batch::launch::<D>(label, nothing, lent.bytes.iter().cloned(), [])?;
        // The peer signals after it was lent the bytes, which the device cannot know. Where one lane
        // does both its order says so.
        let by = lent.by.iter().filter(|(_, by)| !self.is_in_order(*by, stream));
        let fences = by.map(|(fence, _)| fence).chain([signal]).cloned();
        let mut steps: Vec<_> = fences.map(|fence| Step::Wait(WaitFor::Fence(fence))).collect();
        steps.push(Step::Work(command));
        let given = self.give(stream, &mut steps, Room::Wait(self.patience));
        given.inspect_err(|why| self.dump_refusal(why))
    }

    /// Whether both are one in-order queue.
    fn is_in_order(&self, one: StreamId, other: StreamId) -> bool {
        let queue = |stream: StreamId| Some(self.streams[stream.in_session(self.id).ok()?].queue);
        match (queue(one), queue(other)) {
            (Some(one), Some(other)) => one == other && self.queues[one].lanes.len() == 1,
            _ => false,
        }
    }

    /// How many things a peer has of a channel, and how many came back.
    ///
    /// # Errors
    ///
    /// [`Foreign`].
    pub fn lent(&self, channel: ChannelId) -> Result<(usize, u64), Foreign> {
        let channel = &self.channels[channel.in_session(self.id)?];
        let lent = channel.lent.iter().filter(|lending| lending.failure().is_none());
        Ok((lent.count(), channel.arrived))
    }

    /// Refuses to lend what a parked batch is to use, unless the command that lends it, on `stream`,
    /// is given to its device after that batch: then the edge between the two is found. A batch that
    /// is under way and may run again needs no such care: what comes after it comes after its end,
    /// and a command that was to come after an attempt that failed fails too, and lends nothing.
    fn may_lend(
        &self,
        label: &'static str,
        bytes: &[Access<D::Memory>],
        stream: Option<StreamId>,
    ) -> Result<(), Refusal> {
        if self.edges == Edges::Trust {
            return Ok(());
        }
        let lane = match stream {
            None => None,
            Some(stream) => {
                let queue = &self.queues[self.streams[stream.in_session(self.id)?].queue];
                Some(queue.lanes[queue.turn])
            }
        };
        let wants = |access: &Access<D::Memory>| {
            let (region, range) = (access.memory.id(), access.range.clone());
            let by = self.parked_user(region, &range, lane)?;
            Some(Refusal::Wanted { label, region, range, by })
        };
        bytes.iter().find_map(wants).map_or(Ok(()), Err)
    }

    /// Refuses bytes that the host has not waited for, though the tracker knows them to be used.
    fn is_unused(&mut self, bytes: &[Access<D::Memory>]) -> Result<(), Refusal> {
        if self.edges == Edges::Trust {
            return Ok(());
        }
        let (mut plan, mut clock) = (mem::take(&mut self.plan), mem::take(&mut self.clock));
        self.tracker.start(HOST, &mut clock);
        plan.needs.clear();
        let mut unused = Ok(());
        for touch in bytes.iter().map(touch) {
            if self.tracker.is_freed(touch.region) {
                unused = Err(Refusal::Freed { label: AT_START, region: touch.region });
            }
            self.tracker.needs(&clock, &touch, &mut plan.needs);
        }
        if unused.is_ok() && !plan.needs.is_empty() {
            reduce(&self.tracker, &plan.needs, &mut plan.reduced);
            unused = Err(Refusal::Missing(self.missing(&plan, self.site(HOST, Some(AT_START)))));
        }
        (self.plan, self.clock) = (plan, clock);
        unused
    }

    /// Refuses what touches bytes that a peer has.
    pub(super) fn refuse_lent(&mut self, steps: &[StepOf<D>]) -> Result<(), Refusal> {
        if self.lendings == 0 || self.edges == Edges::Trust {
            return Ok(());
        }
        let works = steps.iter().filter_map(|step| match step {
            Step::Work(command) => Some(command),
            _ => None,
        });
        for command in works {
            accesses(command).try_for_each(|access| self.may_touch(command.label(), access))?;
        }
        Ok(())
    }

    fn may_touch(
        &mut self,
        label: &'static str,
        access: &Access<D::Memory>,
    ) -> Result<(), Refusal> {
        self.may_touch_bytes(label, access.memory.id(), &access.range)
    }

    /// As [`refuse_lent`](Self::refuse_lent), for bytes that the host uses.
    pub(super) fn may_touch_bytes(
        &mut self,
        label: &'static str,
        region: RegionId,
        range: &Range<usize>,
    ) -> Result<(), Refusal> {
        if self.lendings == 0 || self.edges == Edges::Trust {
            return Ok(());
        }
        let has =
            |lent: &Access<D::Memory>| lent.memory.id() == region && overlap(&lent.range, range);
        for channel in &mut self.channels {
            while let Some(at) = channel.lent.iter().position(|it| it.bytes.iter().any(has)) {
                let lending = &channel.lent[at];
                if lending.failure().is_none() {
                    let lent = lending.bytes.iter().find(|lent| has(lent));
                    let range = lent.map_or_else(|| range.clone(), |lent| lent.range.clone());
                    let to = Arc::clone(&channel.label);
                    return Err(Refusal::Lent { label, region, range, to });
                }
                channel.lent.remove(at);
                self.lendings -= 1;
            }
        }
        Ok(())
    }
}

/// What goes by the name of a command where bytes are lent without one.
const AT_START: &str = "a lending";
