//! Ranks of one process whose messages fail on purpose.

use std::{
    cell::{Cell, OnceCell},
    fmt::Write,
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Bound, CpuSpec, Edges, Engine, Patience, Rank, Seq,
    comm::{self, Comm, SendError},
    job::Env,
    queue::Cause,
    world::{Options, World},
};

use super::{
    Home, Initiate, Map, OnPeerDeath, RanRanks, Ranks, blame, failed::Failure, heap_bytes,
    pages::Mirror, root, worker,
};
use crate::train::{
    data::Dataset,
    error::TrainError,
    job::{Among, Job},
    model,
    places::Places,
    plan::{Absence, Plan},
    progress::Progress,
    reference::Settings,
    way::{Run, signals::Streams},
};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A message is not sent, and its sender is told that its time was used up.
    Send,
    /// The kernel that lends its bytes panics.
    Kernel,
}

/// Which message of a sender fails, and how.
#[derive(Default)]
pub(super) struct Breaks {
    at: OnceLock<(Broken, usize)>,
    kernels: Mutex<usize>,
    sends: Mutex<usize>,
}

impl Breaks {
    fn is_due(&self, broken: Broken, count: &Mutex<usize>) -> bool {
        let mut count = count.lock().expect("no panic under it");
        *count += 1;
        self.at.get() == Some(&(broken, *count - 1))
    }

    pub(super) fn in_kernel(&self) {
        assert!(!self.is_due(Broken::Kernel, &self.kernels), "on purpose");
    }

    pub(super) fn in_send(&self, peer: Rank) -> Result<(), SendError> {
        if self.is_due(Broken::Send, &self.sends) {
            let (done, wanted, waited) = (Seq::new(0), Seq::new(1), Duration::ZERO);
            return Err(SendError::TimedOut { peer, done, wanted, waited });
        }
        Ok(())
    }
}

/// Which message of whom to whom fails: that of step `step`.
#[derive(Clone, Copy)]
struct Fault {
    from: u32,
    to: u32,
    broken: Broken,
    step: usize,
}

/// A bound that is used up by nothing here but a hang.
const LONG: Duration = Duration::from_secs(60);
/// One of which an eighth, after which the host looks why it waits, is longer than a run takes here.
const LONGER: Duration = Duration::from_secs(120);
/// How long a rank may take to die, and the others to know it.
const NEWS: Duration = Duration::from_secs(8);
const STEPS: usize = 8;

/// What the ranks of a job find each other's bytes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Messages(Initiate),
    /// Memory of rank 0.
    Pages,
}

/// What the ranks of a job are given.
struct Given {
    size: u32,
    means: Means,
    on_death: OnPeerDeath,
    edges: Edges,
    /// Samples a step.
    batch: usize,
    /// The bound of a rank's waits.
    bound: fn(u32) -> Duration,
    /// Commands that a queue holds.
    depth: u32,
}

impl Given {
    fn of(size: u32, means: Means, on_death: OnPeerDeath) -> Self {
        let depth = CpuSpec::default().depth;
        Self { size, means, on_death, edges: Edges::Check, batch: 16, bound: |_| LONG, depth }
    }

    /// Has each rank do `work`. One that fails is gone then.
    fn each<T: Send>(
        &self,
        work: impl Fn(&Run<'_>, &Ranks<'_>) -> Result<T, TrainError> + Sync,
    ) -> Vec<Result<T, TrainError>> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let mut all = Env::alone().expect("random bytes");
        (all.master.port, all.world) = (free.expect("a free port").port(), self.size);
        (all.local_rank, all.local_world) = (None, None);
        all.job = format!("faulty-{}-{}", std::process::id(), all.master.port).into();
        thread::scope(|scope| {
            let start = |rank| {
                let mut env = all.clone();
                env.rank = Rank(rank);
                let work = &work;
                scope.spawn(move || self.rank(&env, work))
            };
            let all: Vec<_> = (0..self.size).map(start).collect();
            all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    fn rank<T>(
        &self,
        env: &Env,
        work: impl Fn(&Run<'_>, &Ranks<'_>) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let settings = Settings { epochs: 1, batch: self.batch, ..Settings::DEFAULT };
        let text: String = (0..self.batch * STEPS).fold(String::new(), |mut text, row| {
            (0..64).for_each(|at| write!(text, "{},", (row + at) % 17).expect("text"));
            writeln!(text, "{}", row % 10).expect("text");
            text
        });
        let data = Dataset::from_bytes(text.as_bytes(), Path::new("made")).expect("data");
        let plan = Plan::new(&settings, data.len());
        assert_eq!(plan.steps(), STEPS);
        let among = Among { first: env.rank.0 as usize, here: 1, all: self.size as usize };
        let join = Bound::within(LONG);
        let (shape, places) = (data.shape(), Places::new(among, &plan));
        let map = (self.means == Means::Pages).then(|| Map::of(shape, &places));
        let options = Options::default()
            .with_heap(heap_bytes(shape, &places, map.as_ref()))
            .with_slots(1)
            .with_lost_after(LONG)
            .with_bound(join);
        let world = World::open_in(env, options)?;
        let comm = Comm::open(world.rank(), comm::Settings::default())?;
        let home = match &map {
            Some(map) if env.rank == Rank(0) => Some(Home::open(&world, map, join)?),
            _ => None,
        };
        let began = &Cell::new(false);
        let offered = OnceCell::new();
        let ranks = Ranks {
            world: &world,
            comm: &comm,
            initiate: match self.means {
                Means::Messages(initiate) => initiate,
                Means::Pages => Initiate::Auto,
            },
            map: map.as_ref(),
            home: home.as_ref(),
            on_death: self.on_death,
            join: LONG,
            news: NEWS,
            offered: &offered,
            began,
        };
        let spec = CpuSpec { depth: self.depth, ..CpuSpec::default() };
        let job =
            Job::open_among(among, Arc::new(data), settings, &plan, spec, |device, share, len| {
                ranks.buffer(device, share, len)
            })?;
        let run = Run {
            job: &job,
            plan: &plan,
            edges: self.edges,
            bound: (self.bound)(env.rank.0),
            inject: None,
            added: Vec::new(),
            observe: false,
            progress: &Progress::hidden(),
            moments: 0,
            keep: &Mutex::default(),
        };
        let worked = work(&run, &ranks);
        if worked.is_ok() {
            world.leave(join)?;
        }
        worked
    }

    /// Trains with these faults. What came of each rank; how long it took.
    fn train(&self, faults: &[Fault]) -> (Vec<Result<RanRanks, TrainError>>, Duration) {
        let began = Instant::now();
        let ended = self.each(|run, ranks| {
            let own = ranks.world.rank().0;
            let faults = faults.iter().filter(|fault| fault.from == own);
            if own == 0 {
                let progress = root::Progress::open(run, ranks)?;
                for &Fault { to, broken, step, .. } in faults {
                    let breaks = &progress.others[to as usize - 1].sender.breaks;
                    breaks.at.set((broken, step)).expect("one a sender");
                }
                return progress.all();
            }
            let mut streams = Streams::open(run)?;
            let exchange = worker::Exchange::open(run, ranks, &mut streams)?;
            for &Fault { broken, step, .. } in faults {
                exchange.sender.breaks.at.set((broken, step)).expect("one a sender");
            }
            worker::all(run, ranks, streams, exchange)
        });
        (ended, began.elapsed())
    }
}

fn sent(from: u32, to: u32, step: usize) -> Fault {
    Fault { from, to, broken: Broken::Send, step }
}

/// That it is the fault put in at a message to rank `to`.
#[track_caller]
fn is_unsent_to<T>(ended: &Result<T, TrainError>, to: u32) {
    let error = ended.as_ref().err();
    let is =
        matches!(error, Some(TrainError::Send(SendError::TimedOut { peer, .. })) if peer.0 == to);
    assert!(is, "{error:?}");
}

const WAYS: [Means; 5] = [
    Means::Messages(Initiate::Host),
    Means::Messages(Initiate::Ring),
    Means::Messages(Initiate::Direct),
    Means::Messages(Initiate::Triggered),
    Means::Pages,
];
/// Those of which each does things in an order of its own.
const ORDERS: [Means; 3] =
    [Means::Messages(Initiate::Host), Means::Messages(Initiate::Ring), Means::Pages];

#[test]
fn without_faults_all_is_well() {
    for means in WAYS {
        let (ended, _) = Given::of(3, means, OnPeerDeath::End).train(&[]);
        for ran in ended {
            assert!(ran.expect("nothing was put in").lost.is_empty());
        }
    }
}

#[test]
fn parameters_that_were_not_sent_after_the_last_step_are_an_error() {
    for means in WAYS {
        for on_death in [OnPeerDeath::End, OnPeerDeath::Continue] {
            let mut given = Given::of(2, means, on_death);
            // It ends by its own bound, which rank 0 takes for its death.
            given.bound = |rank| if rank == 0 { LONG } else { Duration::from_secs(2) };
            let (ended, _) = given.train(&[sent(0, 1, STEPS - 1)]);
            if on_death == OnPeerDeath::End {
                is_unsent_to(&ended[0], 1);
            } else {
                let ran = ended[0].as_ref().expect("nothing goes without the dead one's part");
                assert!(ran.lost.is_empty(), "{:?}", ran.lost);
            }
            assert!(ended[1].is_err());
        }
    }
}

/// Nobody waits until the bounds are used up.
#[test]
fn a_message_that_was_not_sent_ends_the_run_at_once() {
    for means in WAYS {
        for (from, to) in [(0, 1), (1, 0)] {
            let given = Given::of(2, means, OnPeerDeath::End);
            let (ended, took) = given.train(&[sent(from, to, 2)]);
            is_unsent_to(&ended[from as usize], to);
            assert!(ended[to as usize].is_err());
            assert!(took < LONG, "{took:?}");
        }
    }
}

/// Nor does who waits for room in a queue: with so many ranks that the updates of two steps fill it, rank 0
/// is seldom anywhere else.
#[test]
fn a_message_that_was_not_sent_ends_the_run_at_once_though_queues_are_full() {
    for means in WAYS {
        for (from, to) in [(0, 1), (1, 0)] {
            let mut given = Given::of(3, means, OnPeerDeath::End);
            // An update takes seven commands of a queue at most.
            (given.depth, given.bound) = (8, |_| LONGER);
            let (ended, took) = given.train(&[sent(from, to, 2)]);
            is_unsent_to(&ended[from as usize], to);
            assert!(ended[to as usize].is_err());
            assert!(
                took < LONGER / 8,
                "{means:?} {from} {took:?}: as late as the host's next look"
            );
        }
    }
}

/// It would tell nobody for whom it waits.
#[test]
fn rank_0_waits_for_steps_and_not_for_room() {
    for means in [Means::Messages(Initiate::Ring), Means::Pages] {
        let mut given = Given::of(7, means, OnPeerDeath::End);
        // Of one update with pages, and of two without.
        given.depth = 16;
        let (ended, _) = given.train(&[]);
        let ran = &ended[0].as_ref().expect("nothing was put in").ran;
        let figures = &ran.profile.as_ref().expect("it had a session").figures;
        assert_eq!(figures.waits(Cause::Room).count(), 0, "{means:?}");
    }
}

/// What is the end of one rank is none of another's silence.
#[test]
fn a_rank_that_lives_and_was_not_sent_parameters_is_not_skipped_for_the_death_of_another() {
    for means in ORDERS {
        let given = Given::of(3, means, OnPeerDeath::Continue);
        let (ended, took) = given.train(&[sent(0, 1, 2), sent(2, 0, 3)]);
        let error = ended[0].as_ref().err().expect("rank 1 cannot go on");
        let TrainError::Unsent { rank: Rank(1), steps: 3, error } = error else {
            panic!("{error:?}");
        };
        assert!(matches!(**error, TrainError::Send(_)), "{error:?}");
        is_unsent_to(&ended[2], 0);
        assert!(took < LONG, "{took:?}");
    }
}

/// Rank 2 fails in the step after, which it comes to only with the parameters of this one.
#[test]
fn parameters_that_cannot_be_lent_to_one_rank_go_out_to_the_others() {
    for means in ORDERS {
        let given = Given::of(3, means, OnPeerDeath::Continue);
        let fault = Fault { from: 0, to: 1, broken: Broken::Kernel, step: 2 };
        let (ended, took) = given.train(&[fault, sent(2, 0, 3)]);
        let error = ended[0].as_ref().err().expect("rank 1 cannot go on");
        assert!(matches!(error, TrainError::Unsent { rank: Rank(1), steps: 3, .. }), "{error:?}");
        is_unsent_to(&ended[2], 0);
        assert!(took < LONG, "{took:?}");
    }
}

/// A kernel's panic is no death, and news of one would be waited for longer than that.
#[test]
fn what_follows_from_no_death_is_told_at_once() {
    for on_death in [OnPeerDeath::End, OnPeerDeath::Continue] {
        let given = Given::of(2, Means::Messages(Initiate::Ring), on_death);
        let ended = given.each(|run, ranks| {
            if ranks.world.rank() != Rank(0) {
                let ended = worker::run(run, ranks);
                return Ok((ended.is_err(), Duration::ZERO, String::new()));
            }
            let progress = root::Progress::open(run, ranks)?;
            let breaks = &progress.others[0].sender.breaks;
            breaks.at.set((Broken::Kernel, 2)).expect("one a sender");
            let began = Instant::now();
            let error = progress.all().err().expect("its kernel panics");
            let error = blame(ranks, error);
            Ok((true, began.elapsed(), error.to_string()))
        });
        let (_, waited, said) = ended[0].as_ref().expect("it told");
        assert!(said.contains("the kernel panicked: on purpose"), "{said}");
        assert!(*waited < NEWS, "{waited:?}");
        assert!(ended[1].as_ref().is_ok_and(|ended| ended.0), "{:?}", ended[1]);
    }
}

/// What a rank sends to one whose run has failed, and that has not left yet, is no fault of the sender.
#[test]
fn what_a_rank_offers_outlives_its_run() {
    let ended =
        Given::of(2, Means::Messages(Initiate::Ring), OnPeerDeath::End).each(|run, ranks| {
            let (world, bound) = (ranks.world, Bound::within(LONG));
            if world.rank() == Rank(0) {
                let progress = root::Progress::open(run, ranks)?;
                world.barrier("open", bound)?;
                drop(progress);
                world.barrier("over", bound)?;
                world.barrier("written", bound)?;
                return Ok(());
            }
            let mut streams = Streams::open(run)?;
            let exchange = worker::Exchange::open(run, ranks, &mut streams)?;
            let to = world.find(Rank(0), "gradients", bound)?;
            world.barrier("open", bound)?;
            world.barrier("over", bound)?;
            let own = ranks.offered.get().expect("it opened its exchange");
            let way = world.way(Rank(0))?;
            let written = way.write(&own.gradients, 0..64, &to, 0);
            let done = written.and_then(|seq| way.done(seq, bound));
            world.barrier("written", bound)?;
            drop(exchange);
            Ok(done?)
        });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn a_trigger_that_was_not_prepared_is_an_error() {
    let said =
        Given::of(2, Means::Messages(Initiate::Triggered), OnPeerDeath::End).each(|run, ranks| {
            if ranks.world.rank() == Rank(1) {
                let mut streams = Streams::open(run)?;
                worker::Exchange::open(run, ranks, &mut streams)?;
                // It is not gone before it is sent to.
                let _ = ranks.world.barrier("sent", Bound::within(LONG));
                return Ok(None);
            }
            let progress = root::Progress::open(run, ranks)?;
            let other = &progress.others[0];
            let mut streams = Streams::open(run)?;
            let device = &run.job.runtime.devices()[0];
            let stream = streams.session.stream(device, Engine::Compute, "send")?;
            streams.session.launch(stream, "send", &other.put, [], [0, 7])?;
            streams.session.drain(stream, Patience::within(LONG)).map_err(TrainError::Wait)?;
            let failure = other.peer.failure();
            let _ = ranks.world.barrier("sent", Bound::within(LONG));
            Ok(failure.map(|error| (error.status(), error.to_string())))
        });
    let said = said.into_iter().next().expect("of rank 0").expect("it ran");
    // The run's own fault, and none of what the user asked for.
    assert_eq!(said, Some((1, "the link to rank 1 has no trigger of that number".into())));
}

/// A rank may load the parameters of a step for as long as it has not sent its part of the next, though that be
/// nothing.
#[test]
fn an_update_waits_for_all_who_load_what_it_changes() {
    for edges in [Edges::Auto, Edges::Check, Edges::Trust] {
        let mut given = Given::of(3, Means::Pages, OnPeerDeath::Continue);
        // One shard, which is rank 2's.
        (given.edges, given.batch) = (edges, model::SHARD);
        let (ended, _) = given.train(&[sent(1, 0, 3)]);
        is_unsent_to(&ended[1], 0);
        let ran = ended[0].as_ref().expect("the others go on");
        let [(Rank(1), Absence { from: 3, .. })] = &ran.lost[..] else {
            panic!("{edges:?}: {:?}", ran.lost);
        };
        assert!(ended[2].is_ok(), "{:?}", ended[2].as_ref().err());
    }
}

/// What takes the place of pages that do not come is no parameters, wherever it is met.
#[test]
fn a_mirror_of_a_rank_0_that_died_gives_nothing_out_and_takes_nothing_in() {
    let ended = Given::of(2, Means::Pages, OnPeerDeath::End).each(|run, ranks| {
        let world = ranks.world;
        if world.rank() == Rank(0) {
            world.barrier("exported", Bound::within(LONG))?;
            return Err(TrainError::Elsewhere);
        }
        let map = ranks.map.expect("these are pages");
        let bytes = map.gradients.len() / 2;
        let mirror = Mirror::open(ranks, map, bytes..2 * bytes, LONG)?;
        world.barrier("exported", Bound::within(LONG))?;
        assert!(!world.deaths_beyond(0, LONG).is_empty(), "rank 0 is gone");
        let mut params = vec![7.0; run.job.shared.shape.parameters()];
        let loaded = mirror.load(&mut params);
        assert!(params.iter().all(|&it| it == 7.0), "left as they were");
        let stored = mirror.store(0, bytes, &[1.0; 100]).and_then(|()| mirror.release());
        Ok([mirror.acquire(), loaded, stored])
    });
    let of_worker = ended.into_iter().nth(1).expect("two").expect("it opened its mirror");
    for outcome in of_worker {
        let failure = Failure::from(outcome.expect_err("rank 0 is dead"));
        assert!(!TrainError::from(failure).to_string().contains('\n'));
    }
}
