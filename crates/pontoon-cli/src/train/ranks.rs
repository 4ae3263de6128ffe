//! Training over ranks: starting them, and one rank's part.

use std::{
    cell::{Cell, OnceCell},
    env,
    ffi::OsString,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Bound, CpuSpec, Edges, Rank,
    comm::{self, Comm},
    job::StoreError,
    signal::Between,
    world::{self, Transport, World, WorldError},
};

use super::{
    Given, Options,
    error::TrainError,
    given::{self, Unlike},
    job::{Among, Job},
    model,
    places::Places,
    plan::Absence,
    progress::Progress,
    reference::train_reference_without,
    report::Report,
    tuned,
    way::{
        Inject, Run, Way,
        ranks::{
            self as way, Figures, Home, Initiate, Map, OnPeerDeath, Params, RANKS_MAX, RanRanks,
            Ranks, blame,
        },
    },
};
use crate::{
    launch::{self, Again, Host},
    number::within,
    voice,
};

/// What makes several ranks: options of theirs mean nothing without.
const SEVERAL: &str = "several";
/// What the parser says is missing where such an option is given to one process.
pub(crate) const WITHOUT_RANKS: &str = "<--procs <N>|--join>";

/// What it means, with the first such option of `arguments` by name.
pub(crate) fn ways_to_ranks(arguments: impl Iterator<Item = OsString>) -> String {
    let known = <RankOptions as clap::Args>::augment_args(clap::Command::new("train"));
    let names: Vec<_> = known.get_arguments().filter_map(clap::Arg::get_long).collect();
    let mut given = arguments.filter_map(|argument| {
        let argument = argument.to_string_lossy();
        let name = argument.strip_prefix("--")?.split('=').next()?;
        names.iter().find(|known| **known == name).map(|name| format!("--{name}"))
    });
    format!(
        "{} is for several ranks: add --procs N, and --hosts a,b to spread them; or --join, where \
         `pontoon launch` or another launcher starts this command",
        given.next().as_deref().unwrap_or("an option")
    )
}

/// So many devices can share a CPU: each has several threads.
const DEVICES_A_CPU: u32 = 64;

/// The job over processes and hosts.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct RankOptions {
    /// Starts so many processes, each with --devices devices, which train together.
    #[arg(long, value_name = "N", group = SEVERAL,
          value_parser = within(1..=RANKS_MAX))]
    procs: Option<u32>,
    /// Spreads the processes over these hosts; as for `pontoon launch`.
    #[arg(long, value_name = "HOST[=ADDRESS],...", value_delimiter = ',', requires = "procs")]
    hosts: Vec<Host>,
    /// How a process is started on another host; as for `pontoon launch`.
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    rsh: Option<String>,
    /// Takes part as the rank that the launcher's variables name.
    #[arg(long, conflicts_with = "procs", group = SEVERAL)]
    join: bool,
    /// What to do when a rank dies.
    #[arg(long, value_name = "WHAT", default_value = "end", requires = SEVERAL)]
    on_peer_death: OnPeerDeath,
    /// What ranks reach each other by: shared memory on one host and UCX between hosts, unless
    /// given.
    #[arg(long, value_name = "LINK", default_value = "auto", value_parser = transport,
          requires = SEVERAL)]
    transport: Transport,
    /// Who starts what ranks send each other, and how.
    #[arg(long, value_name = "HOW", default_value = "auto", requires = SEVERAL)]
    initiate: Initiate,
    /// How parameters and gradients come to the ranks that need them; one process alone has them all.
    #[arg(long, value_name = "HOW", default_value = "message", requires = SEVERAL)]
    params: Params,
    /// How long the ranks wait for each other to come.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::duration::bound,
          requires = SEVERAL)]
    join_bound: Duration,
    /// After how long without a word a rank is dead: one that is stopped, or cut off. One whose process
    /// ends is noticed at once. When all others have ended, one that is stopped is ended after as long again.
    /// At least 10ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::duration::silence,
          requires = SEVERAL)]
    lost_after: Duration,
}

fn transport(text: &str) -> Result<Transport, String> {
    text.parse().map_err(|error: world::NoSuchTransport| error.to_string())
}

impl RankOptions {
    /// Whether several processes train together.
    pub(super) fn is_several(&self) -> bool {
        self.join || self.procs.is_some()
    }

    /// As it is given.
    pub(super) fn on_peer_death(&self) -> &'static str {
        match self.on_peer_death {
            OnPeerDeath::End => "end",
            OnPeerDeath::Continue => "continue",
        }
    }

    /// As it is given.
    pub(super) fn params(&self) -> &'static str {
        match self.params {
            Params::Message => "message",
            Params::Smc => "smc",
        }
    }
}

/// Starts the ranks, or is one. The status.
pub(super) fn run(options: &Options, edges: Edges) -> Result<u8, TrainError> {
    if options.sync != Way::Signals {
        return Err(TrainError::Options(
            "ranks are kept in order by signals only: leave --sync out",
        ));
    }
    if matches!(options.inject, Some(Inject::DropFence(_))) {
        return Err(TrainError::Options("--inject drop-fence is for one process"));
    }
    if options.trace.is_some() {
        return Err(TrainError::Options("--trace is for one process"));
    }
    if options.ranks.params == Params::Smc && options.ranks.initiate != Initiate::Auto {
        return Err(TrainError::Options(
            "--params smc has no messages to start: leave --initiate out",
        ));
    }
    match options.ranks.procs {
        Some(procs) => {
            let here = launch::ranks_here(procs, &options.ranks.hosts, options.ranks.rsh.is_some());
            can_carry(here, options.devices, cpus())?;
            start(&options.ranks, procs)
        }
        None => join(options, edges).map(|()| 0),
    }
}

/// How many CPUs this process may use.
fn cpus() -> u32 {
    thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
}

/// Refuses more devices than this host's CPUs can carry: it would do nothing else any more.
fn can_carry(ranks: u32, devices: u32, cpus: u32) -> Result<(), TrainError> {
    let most = cpus.saturating_mul(DEVICES_A_CPU);
    if ranks.saturating_mul(devices) <= most {
        return Ok(());
    }
    Err(TrainError::Crowded { ranks, devices, cpus, most })
}

/// Starts this same command as so many ranks.
fn start(options: &RankOptions, procs: u32) -> Result<u8, TrainError> {
    let tolerate = match options.on_peer_death {
        OnPeerDeath::End => 0,
        OnPeerDeath::Continue => procs - 1,
    };
    let job = Again {
        ranks: procs,
        hosts: &options.hosts,
        rsh: options.rsh.as_deref(),
        tolerate,
        last_words: LAST_WORDS,
        still: options.lost_after,
        arguments: for_ranks(env::args_os().skip(1)),
    };
    launch::again(job).map_err(TrainError::Launch)
}

/// How long ranks have to say whom they miss, once one is gone that they need: far more than it takes
/// to notice, so that only a rank that is stopped is ended for it.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The same arguments, without what is for the process that starts the ranks.
fn for_ranks(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    const OURS: [&str; 3] = ["--procs", "--hosts", "--rsh"];
    let mut kept = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let is_ours = |name: &&str| text == **name;
        if OURS.iter().any(is_ours) {
            arguments.next();
        } else if !OURS
            .iter()
            .any(|name| text.strip_prefix(name).is_some_and(|it| it.starts_with('=')))
        {
            kept.push(argument);
        }
    }
    kept.push("--join".into());
    kept
}

/// One rank's part.
fn join(options: &Options, edges: Edges) -> Result<(), TrainError> {
    let env = pontoon::job::Env::read().map_err(WorldError::from)?;
    let env = env.ok_or(TrainError::NoJob)?;
    voice::speak_as(env.rank);
    if env.world > RANKS_MAX {
        return Err(TrainError::TooManyRanks { world: env.world, most: RANKS_MAX });
    }
    can_carry(env.local_world.unwrap_or(1), options.devices, cpus())?;
    let given = options.given()?;
    let (first, all) = (env.rank.0 * options.devices, env.world * options.devices);
    let among = Among { first: first as usize, here: options.devices, all: all as usize };
    let join = Bound::within(options.ranks.join_bound);
    let (shape, places) = (given.train.shape(), Places::new(among, &given.plan));
    let map = (options.ranks.params == Params::Smc).then(|| Map::of(shape, &places));
    let spec = world::Options::default()
        .with_heap(way::heap_bytes(shape, &places, map.as_ref()))
        .with_slots(1)
        .with_transport(options.ranks.transport)
        .with_lost_after(options.ranks.lost_after)
        .with_bound(join);
    let world = World::open_in(&env, spec).map_err(|error| match error {
        WorldError::Gone { .. } => TrainError::Early(Box::new(error.into())),
        WorldError::Unlike { rank, option, there, of_rank_0 } => {
            TrainError::Unlike(Unlike::of_option(rank, option, &there, &of_rank_0))
        }
        error => error.into(),
    })?;
    // A wait that ends before a death is known says of nobody that it is dead, and ends the job.
    let lost_after = options.ranks.lost_after;
    let usual = || tuned(Between::Processes).max(lost_after.saturating_mul(2));
    let bound = options.bound.unwrap_or_else(usual);
    let comm = Comm::open(world.rank(), sending(options.bound, bound))?;
    comm.record_in(world.segment());
    let offered = OnceCell::new();
    let mut ranks = Ranks {
        world: &world,
        comm: &comm,
        initiate: options.ranks.initiate,
        map: map.as_ref(),
        home: None,
        on_death: options.ranks.on_peer_death,
        join: options.ranks.join_bound,
        news: options.ranks.lost_after.saturating_add(way::NEWS),
        offered: &offered,
        began: &Cell::new(false),
    };
    match given::compare(&world, options, &given, join) {
        Ok(()) => {}
        Err(error @ TrainError::Unlike(_)) => {
            // All say so, and go: that is nobody's death.
            let _ = world.leave(join);
            return Err(error);
        }
        Err(error) => return Err(blame(&ranks, error)),
    }
    let Given { train, test, settings, plan } = given;
    let is_root = world.rank() == Rank(0);
    // The others load from it until they have told how they ended.
    let home = match &map {
        Some(map) if is_root => Some(Home::open(&world, map, join)?),
        _ => None,
    };
    ranks.home = home.as_ref();
    let spec = CpuSpec::default();
    let job =
        Job::open_among(among, train.clone(), settings, &plan, spec, |device, share, len| {
            ranks.buffer(device, share, len)
        })?;
    let progress = if is_root { Progress::new(plan.steps()) } else { Progress::hidden() };
    let progress = progress.beside(world.size());
    let (inject, keep) = (options.inject, Mutex::default());
    let (added, observe, moments) = (Vec::new(), false, 0);
    let (job_of, plan_of, keep, progress) = (&job, &plan, &keep, &progress);
    let run = Run {
        job: job_of,
        plan: plan_of,
        edges,
        bound,
        inject,
        added,
        observe,
        progress,
        moments,
        keep,
    };
    if let Some(inject) = inject.filter(|_| env.rank.0 + 1 == env.world) {
        voice::say(&inject.told_of(env.rank, options.devices - 1));
    }
    let started = Instant::now();
    let ran = way::run(&run, &ranks);
    let wall = started.elapsed();
    progress.finish();
    let RanRanks { ran, lost, pages } = match ran {
        Ok(ran) => ran,
        Err(error) => {
            let error = blame(&ranks, error);
            if error.is_bad_input() {
                // The place in the job ends with this process: whoever is told before that this rank is gone may
                // end first, and its status, which says nothing of the input, would be the job's.
                std::mem::forget(world);
            }
            return Err(error);
        }
    };
    let digest = model::digest(&job.shared.params()?);
    if let Some(pages) = pages {
        let told = world.job().set(&pages_of(world.rank()), &pages.to_bytes(), join);
        told.map_err(WorldError::from)?;
    }
    let agreed = agree(&world, &digest, join);
    if !is_root {
        let left = world.leave(join);
        agreed?;
        return Ok(left?);
    }
    let params = job.shared.params()?;
    let absences: Vec<Absence> = lost.iter().map(|(_, absence)| absence.clone()).collect();
    let reference = options.verify.then(|| {
        let all = among.all;
        model::digest(&train_reference_without(&train, &settings, all, &absences).params)
    });
    let lost: Vec<_> = lost.iter().map(|(rank, absence)| (rank.0, absence.from)).collect();
    let report = Report {
        way: Way::Signals,
        devices: all,
        ranks: Some(world.size()),
        lost: &lost,
        steps: plan.steps(),
        steps_an_epoch: plan.steps_an_epoch(),
        samples: if lost.is_empty() { train.len() } else { ran.seen },
        losses: &ran.losses,
        accuracy: model::accuracy(&params, &test, train.scale()),
        tested: test.len(),
        digest: &digest,
        reference: reference.as_deref(),
        missing: None,
        wall,
        waits: &ran.waits,
        edges,
        counts: ran.counts.as_ref(),
        profile: ran.profile.as_ref(),
        slowest: ran.slowest.as_ref(),
        trace: None,
        pages: map.map(|_| all_pages(&world)),
    };
    let printed = report.print(options.json).map_err(TrainError::Output);
    let left = world.leave(join);
    printed?;
    agreed?;
    left?;
    match reference {
        Some(reference) if reference != digest => {
            Err(TrainError::Digest { found: digest, reference })
        }
        _ => Ok(()),
    }
}

/// How kernels send where the run's waits are within `waits`, which is the `bound` if one was given.
fn sending(bound: Option<Duration>, waits: Duration) -> comm::Settings {
    // A step's gradients are a large message, and so are its parameters.
    let mut settings = comm::Settings::tuned(comm::Messages::Large);
    // One message to a peer is under way at a time. In one ring its signal comes after its parts by itself;
    // from another it would wait, in the kernel, until they are done.
    settings.rings = 1;
    if let Some(bound) = bound {
        // A bound may be shorter than a proxy's turn, or longer than anybody is patient.
        settings.patience = bound.clamp(PATIENCE_MIN, PATIENCE_MAX);
    }
    // A proxy that has no core for as long as a wait may take is no failure yet.
    settings.stall = settings.stall.max(waits.min(PATIENCE_MAX));
    settings
}

/// The least patience with a ring that is full; the waits for what was sent have the shorter bound.
const PATIENCE_MIN: Duration = Duration::from_millis(1);
/// The most.
const PATIENCE_MAX: Duration = Duration::from_secs(60 * 60);

/// Every rank tells rank 0 the digest that it ended with, and rank 0 compares.
fn agree(world: &World, digest: &str, bound: Bound) -> Result<(), TrainError> {
    let key = |rank: Rank| format!("train/digest/{rank}").into_bytes();
    if world.rank() != Rank(0) {
        let told = world.job().set(&key(world.rank()), digest.as_bytes(), bound);
        return Ok(told.map_err(WorldError::from)?);
    }
    let until = bound.deadline().and_then(|left| Instant::now().checked_add(left));
    for rank in world.others() {
        let found = loop {
            match world.job().get(&key(rank), Bound::within(A_LOOK)) {
                Ok(found) => break found,
                // Who died before it came so far has nothing to tell.
                Err(_) if world.deaths().iter().any(|death| death.rank == rank) => {
                    break digest.as_bytes().to_vec();
                }
                Err(StoreError::TimedOut { .. }) if until.is_none_or(|it| Instant::now() < it) => {}
                // To ask again would be answered the same.
                Err(error) => return Err(WorldError::from(error).into()),
            }
        };
        if found != digest.as_bytes() {
            let found = String::from_utf8_lossy(&found).into_owned();
            return Err(TrainError::Differ { rank, found, of_rank_0: digest.into() });
        }
    }
    Ok(())
}

/// Where a rank tells rank 0 what it did with its memory.
fn pages_of(rank: Rank) -> Vec<u8> {
    format!("train/pages/{rank}").into_bytes()
}

/// What all ranks did with memory of rank 0 that have told that, as each does before its digest.
fn all_pages(world: &World) -> Figures {
    let mut all = Figures::default();
    let died = world.deaths();
    let has_died = |rank| died.iter().any(|death| death.rank == rank && death.how.is_some());
    for rank in world.others().filter(|&rank| !has_died(rank)) {
        let told = world.job().get(&pages_of(rank), Bound::within(A_LOOK)).ok();
        if let Some(figures) = told.as_deref().and_then(Figures::from_bytes) {
            all += figures;
        }
    }
    all
}

/// How long rank 0 waits for a digest before it looks whether the rank still lives.
const A_LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_is_a_patience_and_there_is_one_ring() {
        for bound in ["1ns", "500us", "2s", "1440min"] {
            let bound = crate::duration::bound(bound).expect("a bound");
            let settings = sending(Some(bound), bound);
            Comm::open(Rank(0), settings).expect("settings within their ranges");
            assert_eq!(settings.rings, 1);
        }
        let three = Duration::from_secs(3);
        assert_eq!(sending(Some(three), three).patience, three);
        // A proxy may stand still for as long as a wait may take, and not for less where that is short.
        assert_eq!(sending(Some(three), three).stall, three);
        assert_eq!(sending(None, three).stall, three);
        let short = Duration::from_millis(1);
        assert_eq!(sending(Some(short), short).stall, sending(None, Duration::ZERO).stall);
    }

    #[test]
    fn a_host_carries_so_many_devices_a_cpu() {
        for (ranks, devices, cpus) in [(1, 64, 1), (60, 1, 1), (4, 16, 1), (2, 64, 2), (0, 64, 1)] {
            can_carry(ranks, devices, cpus).expect("carried");
        }
        for (ranks, devices, cpus, way_out) in [
            (2, 33, 1, "give --devices 32 at most"),
            (60, 64, 2, "give --devices 2 at most"),
            (u32::MAX, 2, 4, "give at most 256 ranks"),
        ] {
            let error = can_carry(ranks, devices, cpus).expect_err("absurd");
            assert_eq!(error.status(), 2);
            assert!(error.to_string().contains(way_out), "{error}");
        }
    }
}
