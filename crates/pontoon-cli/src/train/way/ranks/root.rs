//! Rank 0: sums the gradients of all ranks, updates the parameters, and sends them out.

use std::{collections::VecDeque, mem, slice, sync::Arc, time::Instant};

use pontoon::{
    Bound, ChannelId, Engine, Fence, Kernel, Patience, Rank, StreamId, WaitFailure, cpu::Region,
};

use super::{
    super::{
        Ran, Run, root_fault,
        signals::{self, Streams},
    },
    OnPeerDeath, RanRanks, Ranks,
    exchange::{Offered, Peer, Sent, stand_in},
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
    /// What the others reach here, for as long as this is there.
    _offered: Option<Offered>,
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
        let (world, join) = (ranks.world, Bound::within(ranks.join));
        let shared = &run.job.shared;
        let offered = match ranks.map {
            None => Some(Offered::by(world, shared, join)?),
            Some(_) => None,
        };
        let device = &run.job.runtime.devices()[0];
        let open = |rank| -> Result<Other, TrainError> {
            let peer = Peer::open(world, rank)?;
            let sender = match &offered {
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
            _offered: offered,
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

    /// Leaves out whoever died, or gives up with `error`. So it does if a rank that lives was not sent what
    /// it should have been, or nobody knows: left alone it would wait in vain, and what is sent twice would
    /// count as two steps.
    fn go_on_after(&mut self, error: TrainError) -> Result<(), TrainError> {
        let among = self.run.job.shared.among;
        // The next session would use the memory that this one's commands still use.
        if self.ranks.on_death == OnPeerDeath::End || matches!(error, TrainError::Stuck { .. }) {
            return Err(error);
        }
        let news = self.news();
        // That others took this rank for dead is nothing to go on after.
        if news.is_empty() || news.contains(&Rank(0)) {
            return Err(error);
        }
        if let Some(peer) = self.unsent(&news) {
            let error = Box::new(peer.failure().unwrap_or(error));
            return Err(TrainError::Unsent { rank: peer.rank, steps: self.done, error });
        }
        let each = among.here as usize;
        for rank in news {
            self.absent |= 1 << rank.0;
            if self.done == self.run.plan.steps() {
                self.run.progress.warn(&format!("rank {rank} died when all steps were done"));
                continue;
            }
            let first = rank.0 as usize * each;
            let absence = Absence { devices: first..first + each, from: self.done };
            self.run.progress.warn(&format!(
                "rank {rank} died; the others go on without its part from step {} on",
                self.done
            ));
            self.lost.push((rank, absence));
        }
        Ok(())
    }

    /// Who was not sent what it should have been, and is neither left out nor among `died`. None is who left
    /// in order, which only a rank does that has the parameters of all steps: the word that they are there
    /// may come too late.
    fn unsent(&self, died: &[Rank]) -> Option<&Peer> {
        let has_left = |rank| {
            let gone = self.ranks.world.deaths();
            gone.iter().any(|death| death.rank == rank && death.how.is_none())
        };
        let is_unsent = |peer: &&Peer| {
            let is_there = !self.is_absent(peer.rank) && !died.contains(&peer.rank);
            let is_unsent = peer.failure().is_some() || is_in(self.unsent, peer.rank);
            is_there && is_unsent && !has_left(peer.rank)
        };
        self.others.iter().map(|other| &other.peer).find(is_unsent)
    }

    /// Why a message could not be sent to a rank that is there, if one could not.
    fn failure(&self) -> Option<TrainError> {
        self.unsent(&[])?.failure()
    }

    /// Who has died that is not left out yet, once anybody has, and all who were not sent what they should
    /// have been: a wait or a send may have failed by a death just before that is known. Who left in order is
    /// none of them.
    fn news(&self) -> Vec<Rank> {
        let until = Instant::now() + self.ranks.news;
        let mut known = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let deaths = self.ranks.world.deaths_beyond(known, left);
            known = deaths.len();
            let died = deaths.iter().filter(|death| death.how.is_some()).map(|death| death.rank);
            let news: Vec<_> = died.filter(|&rank| !self.is_absent(rank)).collect();
            let are_all = !news.is_empty() && self.unsent(&news).is_none();
            if are_all || left.is_zero() {
                return news;
            }
        }
    }

    /// Who may lack the parameters of the last step. That a rank left may be known only after what failed by
    /// it.
    fn unsent_at_end(&self) -> Option<&Peer> {
        let until = Instant::now() + self.ranks.news;
        loop {
            let gone = self.ranks.world.deaths();
            let peer = self.unsent(&[])?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || gone.iter().any(|death| death.rank == peer.rank) {
                return Some(peer);
            }
            self.ranks.world.deaths_beyond(gone.len(), left);
        }
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
        self.others.iter().for_each(|other| other.peer.give_up(self.ranks.world));
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
            let submitted = self.submit(streams, lanes, root, lendings, step, before.as_ref())?;
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

    fn submit(
        &mut self,
        streams: &mut Streams<'_>,
        lanes: &mut [Lane],
        root: &Root,
        lendings: &[Lending],
        step: &Step,
        before: Option<&Fence>,
    ) -> Result<Under, TrainError> {
        let shared = &self.run.job.shared;
        let gradients = front::gradients(self.run, lanes, streams, step, before)?;
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

    /// After a failure: counts what is complete nevertheless, and sees that what belongs to it has
    /// gone out. Nothing of the session runs any more then, or that is an error: the next one uses the
    /// same memory.
    ///
    /// A step whose update is complete is counted whoever has its parameters: applied again it would change
    /// them twice. Each rank that was there has them, but for those that a send failed to, and those whose
    /// parameters could not be lent, which are noted: the next session begins without them, which is right
    /// for the dead only ([`go_on_after`](Self::go_on_after)). Of a step whose update failed nobody has any.
    fn settle(
        &mut self,
        streams: &mut Streams<'_>,
        lendings: &[Lending],
        under: &mut VecDeque<Under>,
        ran: &mut Ran,
    ) -> Result<(), TrainError> {
        // Longer than any of its waits and sends may last.
        let patience = Patience::within(self.run.bound.saturating_mul(5));
        over(streams.session.drain(streams.update, patience))?;
        let sends = mem::take(&mut self.sends);
        self.note_unsent(streams, &sends, patience)?;
        while let Some(mut oldest) = under.pop_front() {
            if streams.session.wait(&oldest.update, patience).is_err() {
                break;
            }
            match self.tell(streams, &mut oldest) {
                Err(error) if !is_over(&error) => return Err(error),
                // Who was not sent them is seen next.
                _ => {}
            }
            self.note_unsent(streams, &oldest.sends, patience)?;
            self.report(streams, &oldest, ran)?;
        }
        let of_devices: Vec<_> = streams.of_devices.iter().flatten().copied().collect();
        let lent = lendings.iter().map(|lending| lending.stream);
        for stream in of_devices.into_iter().chain(lent) {
            over(streams.session.drain(stream, patience))?;
        }
        Ok(())
    }

    /// Waits for these sends, and notes whose failed.
    fn note_unsent(
        &mut self,
        streams: &mut Streams<'_>,
        sends: &[Send],
        patience: Patience,
    ) -> Result<(), TrainError> {
        for send in sends {
            let lent = streams.session.wait(&send.lent, patience);
            if lent.is_err() {
                self.unsent |= 1 << send.rank.0;
            }
            over(lent)?;
        }
        Ok(())
    }
}

/// Whether `rank` is one of those whose bit is set.
fn is_in(ranks: u64, rank: Rank) -> bool {
    ranks >> rank.0 & 1 == 1
}

/// Whether what was waited for has ended. That it failed is an end as well; that the wait gave up is
/// none.
fn over<T>(waited: Result<T, WaitFailure>) -> Result<(), TrainError> {
    match waited {
        Err(failure @ WaitFailure::Deadlock(_)) => Err(TrainError::Wait(failure)),
        Err(failure) if failure.is_timeout() => Err(TrainError::Wait(failure)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The same of the error of such a wait.
fn is_over(error: &TrainError) -> bool {
    match error {
        TrainError::Wait(WaitFailure::Deadlock(_)) => false,
        TrainError::Wait(failure) => !failure.is_timeout(),
        error => !error.is_timeout(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        time::Duration,
    };

    use pontoon::{Runtime, Session};

    use super::*;

    #[test]
    fn what_failed_is_over_and_what_was_given_up_on_is_not() {
        let runtime = Runtime::cpu(1).expect("a device");
        let mut session = Session::check();
        let [slow, broken] = ["slow", "broken"].map(|label| {
            session.stream(&runtime.devices()[0], Engine::Compute, label).expect("a stream")
        });
        let (go, told) = mpsc::channel();
        let told = Mutex::new(told);
        let waits = Kernel::new(move |_| {
            let _ = told.lock().expect("no panic").recv_timeout(Duration::from_secs(120));
        });
        let _ = session.launch(slow, "waits", &waits, [], []).expect("submitted");
        let short = Patience::within(Duration::from_millis(5));
        over(session.drain(slow, short)).expect_err("it runs");
        go.send(()).expect("it listens");
        let long = Patience::within(Duration::from_secs(60));
        over(session.drain(slow, long)).expect("it has ended");
        let fails = Kernel::new(|_| panic!("on purpose"));
        let _ = session.launch(broken, "fails", &fails, [], []).expect("submitted");
        let drained = session.drain(broken, long);
        assert!(drained.is_err(), "it failed");
        over(drained).expect("and has ended");
    }
}
