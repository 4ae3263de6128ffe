//! Rank 0: sums the gradients of all ranks, updates the parameters, and sends them out.
//!
//! `deaths.rs` says whom it goes on without, `settle.rs` what is complete after a failure.

mod deaths;
mod settle;

use std::{collections::VecDeque, slice, sync::Arc};

use pontoon::{Bound, ChannelId, Engine, Fence, Kernel, Rank, StreamId, cpu::Region};

use super::{
    super::{
        Ran, Run, root_fault,
        signals::{self, Streams},
    },
    RanRanks, Ranks,
    exchange::{Peer, Sent, stand_in},
    front,
    pages::Home,
    send::Sender,
};
use crate::train::{
    error::TrainError,
    job::{IN_FLIGHT, Lane, Root},
    model,
    plan::{Absence, Step},
};

use deaths::is_in;
use settle::is_over;

type Elements = pontoon::Buffer<Region, f32>;

/// Another rank, for the whole run.
pub(super) struct Other {
    pub(super) peer: Peer,
    pub(super) sender: Arc<Sender>,
    pub(super) put: Kernel,
    /// Stands for its parameters, or what it has of those here.
    params: Elements,
}

/// The same in one session.
struct Lending {
    stream: StreamId,
    channel: ChannelId,
}

/// The access of the kernel that sends which is sent; its others are what it gives up.
const SENT_FROM: usize = 3;

/// A step under way.
struct Under {
    step: usize,
    absent: u64,
    gradients: Vec<Fence>,
    update: Fence,
    sends: Vec<Send>,
}

/// The parameters of a step, on their way to a rank.
struct Send {
    rank: Rank,
    /// What lends them.
    lent: Fence,
    /// Whether they are left for the host to send, once.
    is_by_host: bool,
}

/// What the run needs from one session to the next.
pub(super) struct Progress<'r, 'w> {
    run: &'r Run<'r>,
    ranks: &'r Ranks<'w>,
    pub(super) others: Vec<Other>,
    nothing: Kernel,
    /// Tells of new parameters, if the others map them.
    publish: Option<Kernel>,
    /// Steps whose update is complete.
    done: usize,
    absent: u64,
    lost: Vec<(Rank, Absence)>,
    /// The sends of the newest step that was finished. How they end is seen later; a stream goes on with
    /// none of them after one that failed, so those before it need no look.
    sends: Vec<Send>,
    /// Ranks that were not sent the parameters of a step that is done, beside those to whom a send failed.
    unsent: u64,
    late: u64,
}

pub(super) fn run(run: &Run<'_>, ranks: &Ranks<'_>) -> Result<RanRanks, TrainError> {
    Progress::open(run, ranks)?.all()
}

impl<'r, 'w> Progress<'r, 'w> {
    /// Opens the ways to the others.
    pub(super) fn open(run: &'r Run<'r>, ranks: &'r Ranks<'w>) -> Result<Self, TrainError> {
        let world = ranks.world;
        let shared = &run.job.shared;
        let offered = match ranks.map {
            None => Some(ranks.offer(shared)?),
            Some(_) => None,
        };
        let device = &run.job.runtime.devices()[0];
        let open = |rank| -> Result<Other, TrainError> {
            let peer = Peer::open(world, rank)?;
            let sender = match offered {
                Some(offered) => peer.sender(ranks, [("params", &offered.params)], run.bound)?,
                None => peer.teller(None, run.bound)?,
            };
            let put = sender.kernel(SENT_FROM);
            Ok(Other { peer, sender, put, params: stand_in(device, shared.shape.parameters())? })
        };
        let others = (1..world.size()).map(|rank| open(Rank(rank))).collect::<Result<_, _>>()?;
        Ok(Self {
            run,
            ranks,
            others,
            nothing: Kernel::new(|_| {}),
            publish: ranks.home.map(Home::publish),
            done: 0,
            absent: 0,
            lost: Vec::new(),
            sends: Vec::new(),
            unsent: 0,
            late: 0,
        })
    }

    /// All steps.
    pub(super) fn all(mut self) -> Result<RanRanks, TrainError> {
        let (run, ranks) = (self.run, self.ranks);
        ranks.world.barrier("ready", Bound::within(ranks.join))?;
        ranks.began.set(true);
        let mut ran = Ran::default();
        let mut lanes = run.lanes()?;
        let root = run.job.root();
        while self.done < run.plan.steps() {
            let mut streams = Streams::open(run)?;
            let went = self.session(&mut streams, &mut lanes, &root, &mut ran);
            ran.counts = Some(streams.session.counts());
            ran.profile = Some(streams.session.profile());
            if let Err(error) = went {
                self.go_on_after(error)?;
            }
        }
        ran.waits = signals::waits(run, self.late);
        Ok(RanRanks { ran, lost: self.lost, pages: None })
    }

    fn is_absent(&self, rank: Rank) -> bool {
        is_in(self.absent, rank)
    }

    /// Goes on from the first step that is not done, until all are or somebody fails.
    fn session(
        &mut self,
        streams: &mut Streams<'r>,
        lanes: &mut [Lane],
        root: &Root,
        ran: &mut Ran,
    ) -> Result<(), TrainError> {
        let run = self.run;
        let (device, shared) = (&run.job.runtime.devices()[0], &run.job.shared);
        let first = self.run.plan.step(self.done);
        self.sends.clear();
        let mut lendings = Vec::with_capacity(self.others.len());
        for other in &self.others {
            let label = format!("rank {}", other.peer.rank);
            let stream = streams.session.stream(device, Engine::Compute, &label)?;
            let channel = streams.session.channel(&label);
            if !self.is_absent(other.peer.rank) {
                let sent = Sent::of(shared, other.peer.rank, &first);
                let lent = [
                    shared.gradients.write(sent.gradients),
                    shared.losses.write(sent.losses),
                    other.params.write(..),
                ];
                streams.session.lend_at_start(channel, lent)?;
            }
            lendings.push(Lending { stream, channel });
        }
        streams.session.begin_iteration();
        let mut under = VecDeque::with_capacity(IN_FLIGHT);
        let went = self.steps(streams, lanes, root, &lendings, &mut under, ran);
        let Err(error) = went else { return Ok(()) };
        let was_send = matches!(error, TrainError::Send(_));
        // What is complete stays so: rank 0 goes on from there, or says how far it got.
        let settled = self.settle(streams, &lendings, &mut under, ran);
        let fault = root_fault(streams.session.faults()).map_or(error, TrainError::Fault);
        let error = self.failure().unwrap_or(fault);
        let is_done = self.done == run.plan.steps();
        Err(match settled {
            // To a rank that had left, as is known by now.
            Ok(()) if is_done && was_send && self.unsent_at_end().is_none() => return Ok(()),
            Ok(()) => error,
            Err(stuck) => TrainError::Stuck { stuck: Box::new(stuck), error: Box::new(error) },
        })
    }

    fn steps(
        &mut self,
        streams: &mut Streams<'_>,
        lanes: &mut [Lane],
        root: &Root,
        lendings: &[Lending],
        under: &mut VecDeque<Under>,
        ran: &mut Ran,
    ) -> Result<(), TrainError> {
        for index in self.done..self.run.plan.steps() {
            if under.len() == IN_FLIGHT {
                self.finish_oldest(streams, under, ran)?;
            }
            let step = &self.run.plan.step(index);
            let before = under.back().map(|under| under.update.clone());
            let gradients = front::gradients(self.run, lanes, streams, step, before.as_ref())?;
            // What waits for a step tells for whom, and looks after sends; what waits for room does not.
            while under.len() >= self.updates_at_once(gradients.len()) && !under.is_empty() {
                self.finish_oldest(streams, under, ran)?;
            }
            let submitted = self.submit(streams, root, lendings, step, gradients)?;
            under.push_back(submitted);
            if let Some(newest) = under.back_mut() {
                self.tell(streams, newest)?;
                self.failure().map_or(Ok(()), Err)?;
            }
            self.run.kill_if_due(step);
        }
        while !under.is_empty() {
            self.finish_oldest(streams, under, ran)?;
        }
        self.unsent_at_end().and_then(Peer::failure).map_or(Ok(()), Err)
    }

    /// For how many updates of `own` gradients and those of the other ranks the queue has room.
    fn updates_at_once(&self, own: usize) -> usize {
        let others = self.others.len() - self.absent.count_ones() as usize;
        // A wait for each gradient, and the update; a command for each rank that loads parameters, and one that
        // tells of new ones.
        let pages = if self.publish.is_some() { others + 1 } else { 0 };
        self.run.job.depth as usize / (own + others + 1 + pages)
    }

    fn submit(
        &mut self,
        streams: &mut Streams<'_>,
        root: &Root,
        lendings: &[Lending],
        step: &Step,
        gradients: Vec<Fence>,
    ) -> Result<Under, TrainError> {
        let shared = &self.run.job.shared;
        let there = self.others.iter().zip(lendings);
        let there: Vec<_> = there.filter(|(other, _)| !self.is_absent(other.peer.rank)).collect();
        let update = streams.update;
        for gradient in &gradients {
            front::wait(streams, update, gradient)?;
        }
        for &(other, lending) in &there {
            let message = other.peer.message(step.index);
            let arrived = streams.session.arrive(
                lending.stream,
                lending.channel,
                "gradients of a rank",
                &message,
                &self.nothing,
            )?;
            front::wait(streams, update, &arrived)?;
        }
        if self.publish.is_some() {
            // Whoever loads the parameters from here is done with that.
            for (other, _) in &there {
                let (back, label) = ([other.params.read(..)], "parameters of a rank");
                streams.session.launch(update, label, &self.nothing, back, [])?;
            }
        }
        let mut updated = root.update(&mut streams.part(0), step, self.absent)?;
        if let Some(publish) = &self.publish {
            let params = [shared.params.write(..)];
            updated = streams.session.launch(update, "publish", publish, params, [])?;
        }
        let is_last = step.index + 1 == self.run.plan.steps();
        let next = (!is_last).then(|| self.run.plan.step(step.index + 1));
        let mut sends = Vec::with_capacity(there.len());
        let all = 0..shared.shape.parameters();
        for &(other, lending) in &there {
            front::wait(streams, lending.stream, &updated)?;
            // What the rank sends next, it may write from now on.
            let next = next.as_ref().map(|next| Sent::of(shared, other.peer.rank, next));
            let sent = next.unwrap_or(Sent { gradients: 0..0, losses: 0..0 });
            let accesses = [
                shared.gradients.write(sent.gradients),
                shared.losses.write(sent.losses),
                other.params.write(..),
                shared.params.read(..),
            ];
            let Lending { stream, channel } = *lending;
            let arguments = other.sender.arguments(slice::from_ref(&all))?;
            let session = &mut streams.session;
            let lent = session.lend(
                stream,
                channel,
                "send parameters",
                &other.put,
                accesses,
                arguments,
            )?;
            let (rank, is_by_host) = (other.peer.rank, other.sender.is_by_host());
            sends.push(Send { rank, lent, is_by_host });
        }
        let (step, absent) = (step.index, self.absent);
        Ok(Under { step, absent, gradients, update: updated, sends })
    }

    /// Sends the parameters as the host, to all who were there: whoever is gone by now, or whose part
    /// cannot be lent, costs the others nothing. However often it is called, nobody is sent them twice.
    ///
    /// # Errors
    ///
    /// The first lending that failed, when the others have been sent them; or one that has not ended yet.
    fn tell(&mut self, streams: &mut Streams<'_>, under: &mut Under) -> Result<(), TrainError> {
        let all = 0..self.run.job.shared.shape.parameters();
        let mut failed = Ok(());
        for send in under.sends.iter_mut().filter(|send| send.is_by_host) {
            let lent = self.run.patiently(
                self.run.bound * 5,
                &mut self.late,
                |bound| signals::wait(&mut streams.session, &send.lent, bound),
                |error| error,
            );
            match lent {
                Ok(()) => {
                    let other = self.others.iter().find(|other| other.peer.rank == send.rank);
                    other.inspect(|other| other.sender.send_by_host(slice::from_ref(&all)));
                }
                Err(error) if !is_over(&error) => return Err(error),
                Err(error) => failed = failed.and(Err(error)),
            }
            send.is_by_host = false;
        }
        failed
    }

    /// Waits for the oldest step, and reads its losses; says for whom when it takes long.
    fn finish_oldest(
        &mut self,
        streams: &mut Streams<'_>,
        under: &mut VecDeque<Under>,
        ran: &mut Ran,
    ) -> Result<(), TrainError> {
        let Some(oldest) = under.front() else { return Ok(()) };
        let last = oldest.step + 1 == self.run.plan.steps();
        // The last parameters have to go out, too.
        let sends = oldest.sends.iter().map(|send| &send.lent).filter(|_| last);
        let mut late = self.late;
        for fence in [&oldest.update].into_iter().chain(sends) {
            let waited = self.run.patiently(
                self.run.bound * 5,
                &mut late,
                |bound| {
                    // Whoever lacks its parameters sends no gradients any more.
                    let waited = signals::wait(&mut streams.session, fence, bound);
                    waited.map_err(|error| self.failure().unwrap_or(error))
                },
                |error| {
                    let at_once = Bound::within(std::time::Duration::from_nanos(1));
                    let missing = oldest.gradients.iter().find_map(|it| it.wait(at_once).err());
                    missing.map_or(error, TrainError::Fence)
                },
            );
            self.late = late;
            waited?;
        }
        let Some(oldest) = under.pop_front() else { return Ok(()) };
        let reported = self.report(streams, &oldest, ran);
        self.sends = oldest.sends;
        reported
    }

    /// Notes a step as done.
    fn report(
        &mut self,
        streams: &mut Streams<'_>,
        under: &Under,
        ran: &mut Ran,
    ) -> Result<(), TrainError> {
        let step = self.run.plan.step(under.step);
        // Whatever comes of its losses: the parameters have changed, and must not once more.
        self.done = under.step + 1;
        let read =
            |buffer: &Elements, at, into: &mut [f32]| Ok(streams.session.read(buffer, at, into)?);
        let of_step = self.run.job.shared.losses(&step, read)?;
        let present = self.run.job.shared.among.present(step.samples().len(), under.absent);
        let losses = of_step.iter().enumerate().filter(|(shard, _)| present.has(*shard));
        let losses: Vec<f32> = losses.map(|(_, &loss)| loss).collect();
        let loss = model::mean_loss(&losses, present.samples.max(1));
        self.run.progress.step(&step, loss);
        if step.is_first {
            ran.losses.clear();
            ran.seen = 0;
        }
        ran.seen += present.samples;
        ran.losses.extend(losses);
        let step = streams.session.end_iteration();
        if ran.slowest.as_ref().is_none_or(|slowest| slowest.figures.time < step.figures.time) {
            ran.slowest = Some(step);
        }
        Ok(())
    }
}
