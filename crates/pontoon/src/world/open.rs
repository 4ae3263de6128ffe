//! Joining a job, and connecting everybody.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::Path,
    str::FromStr,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use pontoon_job::{Env, JoinError};
use pontoon_shm::{
    Handover, HandoverError, JobFolder, Secret, ShmLink, fetch, identity, passed_over,
    runtime_base, sweep,
};
use pontoon_signal::{Bound, Rank, Segment, SegmentError, SegmentShape, SegmentState, SystemError};

use pontoon_ucx::{LinkSetupError, UcxLink};

use super::{
    World, WorldError,
    alive::{Left, while_it_lives},
    watch::{Deaths, Ends, watch},
};

/// What a place in a job is to be like. All ranks give the same.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    slots: u32,
    heap_bytes: usize,
    transport: Transport,
    bound: Bound,
    lost_after: Duration,
}

/// What ranks reach each other by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory on one host, UCX between hosts.
    #[default]
    Auto,
    /// Shared memory; a rank on another host is refused.
    Shm,
    /// UCX, between ranks of one host as well.
    Ucx,
}

/// Not the name of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchTransport(String);

impl fmt::Display for NoSuchTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no transport: auto, shm or ucx", self.0)
    }
}

impl std::error::Error for NoSuchTransport {}

impl fmt::Display for Transport {
    /// The name that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Ucx => "ucx",
        })
    }
}

impl FromStr for Transport {
    type Err = NoSuchTransport;

    fn from_str(text: &str) -> Result<Self, NoSuchTransport> {
        match text {
            "auto" => Ok(Self::Auto),
            "shm" => Ok(Self::Shm),
            "ucx" => Ok(Self::Ucx),
            other => Err(NoSuchTransport(other.into())),
        }
    }
}

impl Default for Options {
    /// 16 counters and 64 MiB of heap a rank; 30 s to come together; a rank that says nothing for a
    /// second is dead.
    fn default() -> Self {
        Self {
            slots: 16,
            heap_bytes: 64 << 20,
            transport: Transport::Auto,
            bound: Bound::within(Duration::from_secs(30)),
            lost_after: Duration::from_secs(1),
        }
    }
}

/// The most counters that a rank may have at each other.
const SLOTS_MAX: u32 = 1 << 16;

impl Options {
    /// So many counters that each rank grows at each other; 65,536 at most, for each takes 128 bytes of memory.
    pub fn with_slots(self, slots: u32) -> Self {
        Self { slots, ..self }
    }

    /// A heap of that many bytes a rank, taken up as it is used.
    pub fn with_heap(self, heap_bytes: usize) -> Self {
        Self { heap_bytes, ..self }
    }

    /// What ranks reach each other by.
    pub fn with_transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// How long the ranks wait for each other to come.
    pub fn with_bound(self, bound: Bound) -> Self {
        Self { bound, ..self }
    }

    /// After how long without a word a rank on another host is dead.
    pub fn with_lost_after(self, lost_after: Duration) -> Self {
        Self { lost_after, ..self }
    }
}

pub(super) fn open(env: &Env, options: Options) -> Result<World, WorldError> {
    let left = Left::of(options.bound);
    let (rank, size) = (env.rank, env.world);
    let mut job = [0; 16];
    job.copy_from_slice(&env.token.derive(b"segment")[..16]);
    // One counter more than was asked for, which is the world's own.
    let slots = options.slots.saturating_add(1);
    let shape = SegmentShape::new(size, slots, options.heap_bytes);
    let whose = identity(job, rank, size, env.epoch);
    let beat = options.lost_after / 10;
    let rules = pontoon_job::Options::default().beat_every(beat).lost_after(options.lost_after);
    // The others would wait for this rank.
    let declined = |error: WorldError| {
        rules.decline(env, &error.to_string(), left.now());
        error
    };
    if options.slots > SLOTS_MAX {
        let (asked, most) = (options.slots, SLOTS_MAX);
        return Err(declined(WorldError::TooManySlots { asked, most }));
    }
    // Where all are reached by UCX the memory is UCX's, so that it can be mapped on one host.
    let only_ucx = options.transport == Transport::Ucx && size > 1;
    let ucx = only_ucx.then(|| UcxLink::allocate(shape, whose, pontoon_ucx::Options::default()));
    let segment = match &ucx {
        Some(Ok(link)) => link.segment().clone(),
        _ => Segment::create(shape, whose).map_err(|error| declined(error.into()))?,
    };
    // Before the others learn of this rank: who knows it can reach it.
    let offer = match only_ucx {
        true => None,
        false => Some(offer(env, &segment).map_err(declined)?),
    };
    let socket = offer.as_ref().map(|offer| offer.folder.socket(rank)).unwrap_or_default();
    let job = match rules.join(env, socket.as_os_str().as_bytes(), left.now()) {
        Err(error @ JoinError::CannotCall { .. }) => {
            // With what these held there may be room to leave word.
            drop((offer, ucx, segment));
            return Err(declined(error.into()));
        }
        joined => joined?,
    };
    let mut world = World {
        rank,
        size,
        links: Vec::new(),
        ways: vec![0; size as usize],
        deaths: Arc::new(Deaths::default()),
        hosting: Mutex::default(),
        lost_after: options.lost_after,
        own_slot: slots - 1,
        scratch: OnceLock::new(),
        segment,
        job,
    };
    // Before anything is made after them: the ranks would wait for each other in different places.
    match alike(&world, &options, left.now()) {
        Ok(()) => {}
        Err(error @ WorldError::Unlike { .. }) => {
            // All say so, and go: that is nobody's death.
            let _ = world.leave(left.now());
            return Err(error);
        }
        Err(error) => return Err(world.blame(error)),
    }
    let connected = connect(&mut world, offer.as_ref(), ucx, options.transport, &left);
    connected.map_err(|error| world.blame(error))?;
    world.host(Box::new(offer));
    let (segment, links) = (world.segment.clone(), world.links.clone());
    let ends = Ends { segment, links, deaths: Arc::clone(&world.deaths) };
    watch(world.job().membership(), ends);
    world.segment.set_state(SegmentState::Joined);
    // Nobody sends before everybody is connected.
    let met = world.barrier("pontoon/connected", left.now());
    met.map_err(|error| world.blame(error))?;
    Ok(world)
}

/// Shows all ranks which options this one was given, and refuses those of which some were given others.
fn alike(world: &World, options: &Options, bound: Bound) -> Result<(), WorldError> {
    let own = [
        ("transport", options.transport.to_string()),
        ("lost-after", format!("{:?}", options.lost_after)),
    ];
    let text = own.each_ref().map(|(_, value)| value.as_str()).join("\n");
    let all = world.job().all_gather(b"pontoon/options", text.as_bytes(), bound)?;
    let all: Vec<_> = all.iter().map(|text| String::from_utf8_lossy(text)).collect();
    let Some((of_rank_0, others)) = all.split_first() else { return Ok(()) };
    for (rank, there) in (1..).map(Rank).zip(others) {
        for ((option, _), (there, of_rank_0)) in
            own.iter().zip(there.lines().zip(of_rank_0.lines()))
        {
            if there != of_rank_0 {
                let (there, of_rank_0) = (there.into(), of_rank_0.into());
                return Err(WorldError::Unlike { rank, option, there, of_rank_0 });
            }
        }
    }
    Ok(())
}

/// This rank's segment, for whoever of its host asks and knows the job.
struct Offer {
    folder: JobFolder,
    secret: [u8; Secret::BYTES],
    _handover: Handover,
}

fn offer(env: &Env, segment: &Segment) -> Result<Offer, WorldError> {
    let base = runtime_base();
    // What crashed jobs left is nobody's: whoever comes next takes it away.
    if let Err(error) = sweep(&base) {
        tracing::debug!(target: "pontoon::world", "{error}");
    }
    let refused = |error| WorldError::Folder { error, passed_over: passed_over() };
    let folder = JobFolder::join(&base, &folder_name(env)).map_err(refused)?;
    folder.own(&segment.identity()).map_err(refused)?;
    let mut secret = [0; Secret::BYTES];
    secret.copy_from_slice(&env.token.derive(b"hand-over")[..Secret::BYTES]);
    let of_rank = |why| WorldError::Handover { peer: env.rank, why };
    let file = segment.file().expect("a new segment has its file");
    let file = file.try_clone_to_owned().map_err(|error| {
        let code = error.raw_os_error().unwrap_or_default();
        SegmentError::System(SystemError { call: "fcntl", code })
    })?;
    let handover =
        Handover::serve(&folder, env.rank, file, Secret::new(secret)).map_err(of_rank)?;
    Ok(Offer { folder, secret, _handover: handover })
}

/// The job's name, and which process of it. No folder is two processes': jobs that have a token in
/// common, and perhaps no name of their own, do not meet.
fn folder_name(env: &Env) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
    let name: String = env.job.chars().filter(is_plain).take(24).collect();
    format!("job-{name}-{}-{}", env.rank, std::process::id())
}

/// What UCX may use between hosts: not shared memory, which it also finds where two hosts are network
/// namespaces of one machine, and over which nothing wakes a sleeper in time.
fn between_hosts() -> pontoon_ucx::Options {
    let options = pontoon_ucx::Options::default();
    match std::env::var_os("UCX_TLS") {
        Some(_) => options,
        None => options.transports("^shm"),
    }
}

fn connect(
    world: &mut World,
    offer: Option<&Offer>,
    ucx: Option<Result<UcxLink, LinkSetupError>>,
    transport: Transport,
    left: &Left,
) -> Result<(), WorldError> {
    let processes = world.processes();
    let own = &processes[world.rank.0 as usize];
    let near = |rank: &Rank| processes[rank.0 as usize].shares_host_with(own);
    let (by_shm, by_ucx): (Vec<Rank>, Vec<Rank>) = match transport {
        Transport::Auto => world.others().partition(near),
        Transport::Ucx => (Vec::new(), world.others().collect()),
        Transport::Shm => match world.others().find(|rank| !near(rank)) {
            None => (world.others().collect(), Vec::new()),
            Some(peer) => {
                let host = processes[peer.0 as usize].host_name.clone();
                return Err(WorldError::OtherHost { peer, host });
            }
        },
    };
    if !by_shm.is_empty() || by_ucx.is_empty() {
        let link = ShmLink::new(world.segment.clone());
        for &peer in &by_shm {
            let Some(Offer { secret, .. }) = offer else { continue };
            let card = world.job().card(peer).expect("every rank of a job that began");
            let socket = Path::new(OsStr::from_bytes(&card));
            let ask = |bound| fetch(socket, &Secret::new(*secret), bound);
            let is_late = |error: &HandoverError| {
                matches!(error, HandoverError::NobodyThere { .. } | HandoverError::TimedOut { .. })
            };
            let file = while_it_lives(world.job(), peer, left, ask, is_late)?;
            let file = file.map_err(|why| WorldError::Handover { peer, why })?;
            link.connect(peer, Segment::open(file)?)?;
            world.ways[peer.0 as usize] = world.links.len();
        }
        world.links.push(Arc::new(link));
    }
    if !by_ucx.is_empty() {
        let host_of = |peer: Rank| processes[peer.0 as usize].host_name.clone();
        let own = || UcxLink::open(world.segment.clone(), between_hosts());
        let link = ucx.unwrap_or_else(own);
        let link = super::ucx::connect(world, link, &by_ucx, &host_of, left)?;
        for peer in by_ucx {
            world.ways[peer.0 as usize] = world.links.len();
        }
        world.links.push(Arc::new(link));
    }
    Ok(())
}
