//! Every rank but 0: computes gradients, sends them, and is sent the parameters.

use std::{collections::VecDeque, sync::Arc};

use pontoon::{Bound, ChannelId, Engine, Fence, Kernel, Rank, StreamId, cpu::Region};

use super::{
    super::{
        Ran, Run, root_fault,
        signals::{self, Streams},
    },
    RanRanks, Ranks,
    exchange::{Peer, Sent, stand_in},
    failed::Failed,
    front,
    pages::{Map, Mirror},
    send::Sender,
};
use crate::train::{
    error::TrainError,
    job::{IN_FLIGHT, Lane},
    plan::Step,
};

type Elements = pontoon::Buffer<Region, f32>;

/// What a worker exchanges with rank 0.
pub(super) struct Exchange {
    peer: Peer,
    stream: StreamId,
    channel: ChannelId,
    pub(super) sender: Arc<Sender>,
    put: Kernel,
    /// What the parameters come with: nothing, if they were written here by rank 0.
    take: Kernel,
    /// What is reached of rank 0's memory.
    mirror: Option<Arc<Mirror>>,
    /// Stand for this rank's part of what rank 0 has.
    gradients: Elements,
    losses: Elements,
}

/// The first access of the kernel that sends which is sent; its others are what it gives up.
const SENT_FROM: usize = 3;
/// The access of the same, and so of the kernel that takes, which is the parameters.
const PARAMS: usize = 2;

/// The parameters after a step that is under way.
struct Under {
    step: usize,
    params: Fence,
}

pub(super) fn run(run: &Run<'_>, ranks: &Ranks<'_>) -> Result<RanRanks, TrainError> {
    let mut streams = Streams::open(run)?;
    let exchange = Exchange::open(run, ranks, &mut streams)?;
    all(run, ranks, streams, exchange)
}

impl Exchange {
    /// Opens the way to rank 0.
    pub(super) fn open<'r>(
        run: &Run<'r>,
        ranks: &Ranks<'_>,
        streams: &mut Streams<'r>,
    ) -> Result<Self, TrainError> {
        let shared = &run.job.shared;
        let peer = Peer::open(ranks.world, Rank(0))?;
        let (mirror, sender, take) = match ranks.map {
            None => {
                let offered = ranks.offer(shared)?;
                let parts = [("gradients", &offered.gradients), ("losses", &offered.losses)];
                let sender = peer.sender(ranks, parts, run.bound)?;
                (None, sender, Kernel::new(|_| {}))
            }
            Some(map) => {
                let mirror = Arc::new(mirror(run, ranks, map)?);
                let sender = peer.teller(Some(&mirror), run.bound)?;
                let take = load(&mirror, &peer.failed);
                (Some(mirror), sender, take)
            }
        };
        let device = &run.job.runtime.devices()[0];
        let most = shared.shards;
        Ok(Self {
            stream: streams.session.stream(device, Engine::Compute, "exchange")?,
            channel: streams.session.channel("rank 0"),
            peer,
            put: sender.kernel(SENT_FROM),
            sender,
            take,
            mirror,
            gradients: stand_in(device, most * shared.shape.parameters())?,
            losses: stand_in(device, most)?,
        })
    }
}

/// What this rank has of rank 0's memory.
fn mirror(run: &Run<'_>, ranks: &Ranks<'_>, map: &Map) -> Result<Mirror, TrainError> {
    let shared = &run.job.shared;
    let places = shared.places.all_of_rank(run.rank().0 as usize);
    let bytes = shared.shape.parameters() * size_of::<f32>();
    let own = places.start * bytes..places.end * bytes;
    Mirror::open(ranks, map, own, run.bound)
}

/// A kernel that loads the parameters. If they do not come it notes that, and they stay as they were: what is
/// computed from these is sent to nobody.
fn load(mirror: &Arc<Mirror>, failed: &Failed) -> Kernel {
    let (mirror, failed) = (Arc::clone(mirror), failed.clone());
    Kernel::new(move |kernel| {
        if failed.get().is_some() {
            return;
        }
        let loaded = mirror.acquire().and_then(|()| mirror.load(kernel.write::<f32>(PARAMS)));
        if let Err(error) = loaded {
            failed.note(error.into());
        }
    })
}

/// All steps.
pub(super) fn all(
    run: &Run<'_>,
    ranks: &Ranks<'_>,
    mut streams: Streams<'_>,
    mut exchange: Exchange,
) -> Result<RanRanks, TrainError> {
    let mut lanes = run.lanes()?;
    ranks.world.barrier("ready", Bound::within(ranks.join))?;
    ranks.began.set(true);
    streams.session.begin_iteration();
    let mut ran = Ran::default();
    let mut late = 0;
    let submitted = submit_all(run, &mut lanes, &mut streams, &mut exchange, &mut ran, &mut late);
    submitted.map_err(|error| {
        let _ = streams.session.drain(exchange.stream, pontoon::Patience::within(run.bound));
        let fault = root_fault(streams.session.faults()).map_or(error, TrainError::Fault);
        exchange.peer.failure().unwrap_or(fault)
    })?;
    ran.waits = signals::waits(run, late);
    ran.counts = Some(streams.session.counts());
    ran.profile = Some(streams.session.profile());
    let pages = exchange.mirror.as_ref().map(|mirror| mirror.figures());
    Ok(RanRanks { ran, lost: Vec::new(), pages })
}

fn submit_all(
    run: &Run<'_>,
    lanes: &mut [Lane],
    streams: &mut Streams<'_>,
    exchange: &mut Exchange,
    ran: &mut Ran,
    late: &mut u64,
) -> Result<(), TrainError> {
    let mut under: VecDeque<Under> = VecDeque::with_capacity(IN_FLIGHT);
    for index in 0..run.plan.steps() {
        if under.len() == IN_FLIGHT
            && let Some(oldest) = under.pop_front()
        {
            finish(run, streams, exchange, &oldest, ran, late)?;
        }
        let step = &run.plan.step(index);
        let before = under.back().map(|under| under.params.clone());
        under.push_back(submit(run, lanes, streams, exchange, step, before.as_ref(), late)?);
        run.kill_if_due(step);
    }
    under.iter().try_for_each(|oldest| finish(run, streams, exchange, oldest, ran, late))
}

fn submit(
    run: &Run<'_>,
    lanes: &mut [Lane],
    streams: &mut Streams<'_>,
    exchange: &mut Exchange,
    step: &Step,
    before: Option<&Fence>,
    late: &mut u64,
) -> Result<Under, TrainError> {
    let shared = &run.job.shared;
    let gradients = front::gradients(run, lanes, streams, step, before)?;
    let Exchange { stream, channel, .. } = *exchange;
    for gradient in &gradients {
        front::wait(streams, stream, gradient)?;
    }
    let sent = Sent::of(shared, run.rank(), step);
    let parts = [sent.gradients.clone(), sent.losses.clone()];
    let arguments = exchange.sender.arguments(&parts)?;
    let accesses = [
        exchange.gradients.write(..sent.gradients.len()),
        exchange.losses.write(..sent.losses.len()),
        shared.params.write(..),
        shared.gradients.read(sent.gradients.clone()),
        shared.losses.read(sent.losses.clone()),
    ];
    let session = &mut streams.session;
    let lent =
        session.lend(stream, channel, "send gradients", &exchange.put, accesses, arguments)?;
    if exchange.sender.is_by_host() {
        let within = run.bound * 5;
        let lent = |bound| signals::wait(&mut streams.session, &lent, bound);
        run.patiently(within, late, lent, |error| error)?;
        exchange.sender.send_by_host(&parts);
        exchange.peer.failure().map_or(Ok(()), Err)?;
    }
    let session = &mut streams.session;
    let message = exchange.peer.message(step.index);
    let params =
        session.arrive(stream, channel, "parameters of rank 0", &message, &exchange.take)?;
    Ok(Under { step: step.index, params })
}

/// Waits for the parameters after a step.
fn finish(
    run: &Run<'_>,
    streams: &mut Streams<'_>,
    exchange: &Exchange,
    under: &Under,
    ran: &mut Ran,
    late: &mut u64,
) -> Result<(), TrainError> {
    run.patiently(
        run.bound * 5,
        late,
        |bound| {
            // Without its gradients rank 0 sends no parameters any more.
            let waited = signals::wait(&mut streams.session, &under.params, bound);
            waited.map_err(|error| exchange.peer.failure().unwrap_or(error))
        },
        |error| error,
    )?;
    // The next message would not be sent. That of this step came before its parameters, on one stream, so
    // after the last step this is the last look.
    exchange.peer.failure().map_or(Ok(()), Err)?;
    let step = run.plan.step(under.step);
    run.progress.step(&step, f32::NAN);
    let step = streams.session.end_iteration();
    if ran.slowest.as_ref().is_none_or(|slowest| slowest.figures.time < step.figures.time) {
        ran.slowest = Some(step);
    }
    Ok(())
}
