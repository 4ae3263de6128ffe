//! Four devices as the stages of a pipeline: each computes on one half of its buffers while what it made in
//! the other half is on its way to the next, sent by the kernels themselves.
//!
//! `cargo run --release -p pontoon --example pipeline` runs it as it is, with a stage that is slow, and with one
//! that dies; each must end with the right numbers or with an error that names the dead, within its bound. It
//! tells how much of the time in which bytes were on their way to a stage that stage computed.

mod overlap;

use std::{
    error::Error,
    iter,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Bound, Buffer, ChannelId, Context, CpuDevice, CpuSpec, Engine, Failure, Fence, Kernel,
    Patience, Rank, Region, Seq, Session, StreamId,
    comm::{Comm, Mode, Port, Sent, Settings, Weak},
    hal::link::{Link, Registered},
    shm::{ShmLink, identity},
    signal::{Host, Os, Segment, SegmentShape, Slot, SlotId},
};

use overlap::{Overlap, Span};

const STAGES: usize = 4;
/// Micro-batches that go through.
const BATCHES: u32 = 64;
const WORDS: usize = 16 << 10;
/// How often a stage goes over its words.
const PASSES: u64 = 24;
/// A half of the words is filled while the other is on its way.
const HALVES: usize = 2;
/// How long a stage waits for another.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a stage tells the next, and what it tells the one before.
const DATA: u32 = 0;
const FREE: u32 = 1;

type AnyError = Box<dyn Error + Send + Sync>;

/// What is to happen to one of the stages.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Well,
    /// It takes several times as long.
    Slow,
    /// Half-way it is gone.
    Dies,
}

/// Prints a line; whoever closed the pipe has read enough.
macro_rules! say {
    ($($line:tt)*) => { let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($line)*))); };
}

fn main() -> Result<(), Failure> {
    for (name, fate) in
        [("as it is", Fate::Well), ("stage 2 slow", Fate::Slow), ("stage 2 dies", Fate::Dies)]
    {
        let started = Instant::now();
        let ends = run(fate)?;
        let took = started.elapsed();
        match fate {
            Fate::Dies => {
                for (stage, end) in ends.iter().enumerate() {
                    let Err(error) = end else {
                        return Err(format!("stage {stage} missed it").into());
                    };
                    say!("{name}: stage {stage} ended: {error}");
                }
                say!("{name}: all had ended after {took:.1?}");
            }
            Fate::Well | Fate::Slow => {
                let times = ends.into_iter().collect::<Result<Vec<Times>, AnyError>>()?;
                let mut sent = Overlap::default();
                for stages in times.windows(2) {
                    sent += Overlap::of(&stages[0].sends, &stages[1].computes);
                }
                say!(
                    "{name}: {BATCHES} right batches in {took:.1?}; on their way for {:.1?} in all, for \
                     {:.0} % of it beside the next stage's computation",
                    sent.all,
                    sent.percent()
                );
            }
        }
    }
    Ok(())
}

/// When a stage did what.
#[derive(Clone, Debug, Default)]
struct Times {
    computes: Vec<Span>,
    /// Of each message from before its call until its ticket was done.
    sends: Vec<Span>,
}

/// Runs all stages to their end: what each did when, or why it ended early.
fn run(fate: Fate) -> Result<Vec<Result<Times, AnyError>>, AnyError> {
    let segment = |rank| {
        let shape = SegmentShape::new(STAGES as u32, 2, 4 * HALVES * WORDS * 8);
        Segment::create(shape, identity([4; 16], Rank(rank), STAGES as u32, 0))
    };
    let segments: Vec<Segment> = (0..STAGES as u32).map(segment).collect::<Result<_, _>>()?;
    let mut links: Vec<Arc<dyn Link>> = Vec::new();
    for me in 0..STAGES {
        let link = ShmLink::new(segments[me].clone());
        for other in [me.wrapping_sub(1), me + 1].into_iter().filter(|other| *other < STAGES) {
            link.connect(Rank(other as u32), segments[other].clone())?;
        }
        links.push(Arc::new(link));
    }
    let landings: Vec<Registered> = (0..STAGES)
        .map(|me| Ok(links[me].register(&segments[me].allocate(HALVES * WORDS * 8)?)?))
        .collect::<Result<_, AnyError>>()?;
    let stages: Vec<Stage> = (0..STAGES)
        .map(|me| Stage::open(me, &links, &segments, &landings, fate))
        .collect::<Result<_, _>>()?;
    Ok(thread::scope(|scope| {
        let threads: Vec<_> =
            stages.into_iter().map(|stage| scope.spawn(|| stage.work())).collect();
        threads
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|_| Err("it panicked".into())))
            .collect()
    }))
}

/// One stage: a device, what comes in, and the way to its neighbours.
struct Stage {
    me: usize,
    fate: Fate,
    device: CpuDevice,
    landing: Buffer<Region, u64>,
    out: Buffer<Region, u64>,
    /// Stands for the landing of the next one.
    theirs: Buffer<Region, u64>,
    /// What the one before sends, and what the next one says is free.
    incoming: Option<Slot>,
    freed: Option<Slot>,
    next: Option<Port>,
    before: Option<Port>,
    _comm: Comm,
}

impl Stage {
    fn open(
        me: usize,
        links: &[Arc<dyn Link>],
        segments: &[Segment],
        landings: &[Registered],
        fate: Fate,
    ) -> Result<Self, AnyError> {
        let (link, rank) = (&links[me], Rank(me as u32));
        let comm = Comm::open(rank, Settings::default())?;
        let device = CpuDevice::open(rank, CpuSpec { units: 1, ..CpuSpec::default() })?;
        let made = segments[me].allocate(HALVES * WORDS * 8)?;
        let source = link.register(&made)?;
        let port = |peer: usize, slot| -> Result<Port, AnyError> {
            let peer_rank = Rank(peer as u32);
            let key = landings[peer].key().ok_or("a landing can be shared")?;
            let (target, signal) =
                (link.attach(peer_rank, key)?, link.attach_signal(peer_rank, slot)?);
            let port = comm.port(link, source.clone(), target, Some(signal))?;
            // By the ring, so that the stage computes while the proxy sends.
            Ok(port.in_mode(Mode::Ring)?)
        };
        let signals = segments[me].signals();
        let slot = |peer: usize, slot| signals.slot(SlotId { producer: Rank(peer as u32), slot });
        let last = STAGES - 1;
        Ok(Self {
            me,
            fate: if me == 2 { fate } else { Fate::Well },
            landing: Buffer::over(device.region_over(landings[me].block().clone())?),
            out: Buffer::over(device.region_over(made)?),
            theirs: Buffer::over(device.stand_in(HALVES * WORDS * 8)?),
            incoming: (me > 0).then(|| slot(me - 1, DATA)).transpose()?,
            freed: (me < last).then(|| slot(me + 1, FREE)).transpose()?,
            next: (me < last).then(|| port(me + 1, DATA)).transpose()?,
            before: (me > 0).then(|| port(me - 1, FREE)).transpose()?,
            device,
            _comm: comm,
        })
    }

    /// Sends all batches through. When it did what.
    fn work(self) -> Result<Times, AnyError> {
        let (told, tickets) = mpsc::channel();
        thread::scope(|scope| {
            let sends = scope.spawn(|| watch(tickets));
            // What tells of tickets goes with the kernels, and the watch ends.
            let computes = self.compute(told);
            let sends = sends.join().map_err(|_| "the watch of the tickets panicked")?;
            Ok(Times { computes: computes?, sends })
        })
    }

    /// The device's part, whose kernels tell of their tickets.
    fn compute(self, told: mpsc::Sender<(u64, Sent)>) -> Result<Vec<Span>, AnyError> {
        let mut session = Session::check();
        let compute = session.stream(&self.device, Engine::Compute, "compute")?;
        let patience = Patience::within(PATIENCE);
        let kernels = Kernels::of(&self, told);
        let half = |at: usize| at * WORDS..(at + 1) * WORDS;
        let channels: Vec<[ChannelId; 2]> = (0..HALVES)
            .map(|at| {
                [session.channel(&format!("input {at}")), session.channel(&format!("output {at}"))]
            })
            .collect();
        // The next one's halves are this stage's in the beginning, and its own the one before's.
        for (at, [input, _]) in channels.iter().enumerate().filter(|_| self.incoming.is_some()) {
            session.lend_at_start(*input, [self.landing.write(half(at))])?;
        }
        let mut last: Option<Fence> = None;
        for batch in 0..BATCHES {
            if self.fate == Fate::Dies && batch == BATCHES / 2 {
                return Err("on purpose".into());
            }
            let at = batch as usize % HALVES;
            let [input, output] = channels[at];
            self.arrivals(&mut session, compute, (input, output), batch, &kernels)?;
            let mut accesses = vec![self.out.write(half(at))];
            if self.incoming.is_some() {
                accesses.push(self.landing.read(half(at)));
            }
            let made = session.launch(
                compute,
                "compute",
                &kernels.compute,
                accesses,
                [u64::from(batch)],
            )?;
            if self.before.is_some() {
                let lent = [self.landing.write(half(at))];
                session.lend(compute, input, "free", &kernels.free, lent, [])?;
            }
            let done = if self.next.is_some() {
                let lent = [self.out.write(half(at)), self.theirs.write(half(at))];
                session.lend(compute, output, "send", &kernels.send, lent, [at as u64])?
            } else {
                made
            };
            // Some batches ahead of the device, and no more.
            if (batch as usize).is_multiple_of(2 * HALVES)
                && let Some(before) = last.replace(done)
            {
                let _ = session.wait(&before, patience)?;
            }
        }
        session.drain(compute, patience)?;
        let wrong = *kernels.wrong.lock().map_err(|_| "a kernel panicked")?;
        if wrong > 0 {
            return Err(format!("{wrong} of the words that were looked at are wrong").into());
        }
        // What was sent last has to be taken before this stage goes away.
        if let Some(freed) = &self.freed {
            let all = Seq::new(0) + BATCHES;
            let _ = freed.waiter().wait_ge_bounded(all, Bound::within(PATIENCE))?;
        }
        let computed = kernels.computed.lock().map_err(|_| "a kernel panicked")?;
        Ok(computed.clone())
    }

    /// Brings back what neighbours had: the input that was sent, and the half of the next one that it freed.
    fn arrivals(
        &self,
        session: &mut Session<'_, CpuDevice>,
        stream: StreamId,
        (input, output): (ChannelId, ChannelId),
        batch: u32,
        kernels: &Kernels,
    ) -> Result<(), AnyError> {
        if let Some(incoming) = &self.incoming {
            let sent = Fence::on(incoming.clone(), Seq::new(0) + (batch + 1), "the stage before");
            session.arrive(stream, input, "input", &sent, &kernels.nothing)?;
        }
        if let Some(freed) = self.freed.as_ref().filter(|_| batch >= HALVES as u32) {
            let free = Seq::new(0) + (batch + 1 - HALVES as u32);
            let free = Fence::on(freed.clone(), free, "the next stage");
            session.arrive(stream, output, "output", &free, &kernels.nothing)?;
        }
        Ok(())
    }
}

/// Waits for the tickets of messages, which are told of with when their calls began, until nobody tells of more.
/// A message that is not done, for its stage or the next is gone, was on its way for no time that is known.
fn watch(tickets: mpsc::Receiver<(u64, Sent)>) -> Vec<Span> {
    let done = |(from, sent): (u64, Sent)| {
        let waiter = sent.slot.uncounted_waiter();
        let waited = waiter.wait_ge_bounded(sent.seq, Bound::within(PATIENCE));
        waited.ok().map(|_| Span { from, to: Os.now().0 })
    };
    // No stage waits for longer before it ends, or sends.
    let all = iter::from_fn(|| tickets.recv_timeout(PATIENCE * 2).ok());
    all.filter_map(done).collect()
}

/// What a stage's device runs.
struct Kernels {
    compute: Kernel,
    send: Kernel,
    free: Kernel,
    nothing: Kernel,
    /// Words that the last stage found wrong, of one in so many of each batch.
    wrong: Arc<Mutex<usize>>,
    computed: Arc<Mutex<Vec<Span>>>,
}

/// Of how many words one is looked at: each costs as much as all stages take for it.
const LOOKED_AT: usize = 61;

impl Kernels {
    fn of(stage: &Stage, told: mpsc::Sender<(u64, Sent)>) -> Self {
        let (me, has_input) = (stage.me, stage.incoming.is_some());
        let times = if stage.fate == Fate::Slow { 5 } else { 1 };
        let wrong = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&wrong);
        let computed = Arc::new(Mutex::new(Vec::with_capacity(BATCHES as usize)));
        let computes = Arc::clone(&computed);
        let compute = Kernel::new(move |kernel: &mut Context<'_>| {
            let from = Os.now().0;
            let batch = kernel.argument(0);
            let out = kernel.write::<u64>(0);
            match has_input {
                true => out.copy_from_slice(kernel.read::<u64>(1)),
                false => out.iter_mut().enumerate().for_each(|(at, word)| *word = begin(batch, at)),
            }
            // The same each time, so that a slow stage makes the same.
            for _ in 1..times {
                std::hint::black_box(
                    out.iter().map(|word| step(me, *word)).fold(0, u64::wrapping_add),
                );
            }
            out.iter_mut().for_each(|word| *word = step(me, *word));
            if me + 1 == STAGES {
                let wanted =
                    |at| (0..STAGES).fold(begin(batch, at), |word, stage| step(stage, word));
                let looked_at = out.iter().enumerate().step_by(LOOKED_AT);
                let found = looked_at.filter(|(at, word)| **word != wanted(*at)).count();
                *seen.lock().unwrap_or_else(PoisonError::into_inner) += found;
            }
            let span = Span { from, to: Os.now().0 };
            computes.lock().unwrap_or_else(PoisonError::into_inner).push(span);
        });
        let next = stage.next.clone();
        let send = Kernel::new(move |kernel: &mut Context<'_>| {
            let (Some(next), at) = (&next, kernel.argument(0) as usize) else { return };
            let words = kernel.write::<u64>(0);
            let from = Os.now().0;
            // Its bytes are lent until the next stage frees the half: no kernel has to wait for the ticket.
            let sent = next.put_signal(&*words, at * WORDS * 8, 1, Weak);
            let sent = sent.map(|ticket| ticket.detach()).unwrap_or_else(|error| panic!("{error}"));
            // Nobody listens once the stage has ended.
            let _ = told.send((from, sent));
        });
        let before = stage.before.clone();
        let free = Kernel::new(move |_| {
            let Some(before) = &before else { return };
            let told = before.signal(1, Weak);
            told.map(|ticket| drop(ticket.detach())).unwrap_or_else(|error| panic!("{error}"));
        });
        Self { compute, send, free, nothing: Kernel::new(|_| {}), wrong, computed }
    }
}

/// The words that go in.
fn begin(batch: u64, word: usize) -> u64 {
    batch.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ word as u64
}

/// What a stage makes of a word.
fn step(stage: usize, word: u64) -> u64 {
    (0..PASSES).fold(word, |word, pass| {
        (word ^ (word >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9).wrapping_add(pass + stage as u64)
    })
}
