//! All ranks add up what each has, inside their kernels, and all have the sum.
//!
//! `cargo build --examples && pontoon launch -n 4 -- target/debug/examples/allreduce`, or over hosts with
//! `--hosts`. The topology says whether the bytes go from each to rank 0 or from neighbour to neighbour; the sum is
//! the same bit for bit.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pontoon::{
    Bound, Buffer, CpuDevice, CpuSpec, Engine, Failure, Kernel, Stream, World,
    comm::{Comm, SendError, Settings, Shape, Summed},
    hal::Access,
    job::Env,
    world::{
        Options, TEAM_SLOTS, adding,
        topology::{Effort, Topology},
    },
};

const WORDS: usize = 256 << 10;
const BYTES: usize = WORDS * 4;

/// Prints a line; whoever closed the pipe has read enough.
macro_rules! say {
    ($($line:tt)*) => { let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($line)*))); };
}

fn main() -> Result<(), Failure> {
    let bound = Bound::within(Duration::from_secs(30));
    // Room for the words, for those of all others, and for what measuring takes.
    let heap = |ranks: usize| ranks.max(2) * BYTES + (4 << 20);
    let ranks = Env::read()?.map_or(1, |env| env.world as usize);
    let options =
        Options::default().with_heap(heap(ranks)).with_slots(TEAM_SLOTS).with_bound(bound);
    let world = World::open(options)?;
    let comm = Comm::open(world.rank(), Settings::default())?;
    comm.record_in(world.segment());
    let device = CpuDevice::open(world.rank(), CpuSpec::default())?;
    let block = world.segment().allocate(ranks.max(2) * BYTES)?;
    let memory = Buffer::<_, f32>::over(device.region_over(block.clone())?);
    let team = world.team(&comm, "sums", &block, 0, bound)?;

    let mut topology = Topology::discover(&world, bound)?;
    topology.measure(&world, Effort::default(), bound)?;
    let estimate = topology.estimate(pontoon::Rank(0), BYTES as u64);
    let chosen = estimate.of_team(4);
    let ring = Shape::Ring { piece: 64 << 10 };

    let mut digests = Vec::new();
    for shape in [chosen, Shape::Flat, ring] {
        let (own, failed) = (world.rank().0, Arc::new(Mutex::new(Ok::<(), SendError>(()))));
        let kernel = Kernel::new({
            let (team, failed) = (team.clone(), Arc::clone(&failed));
            move |kernel| {
                let words = kernel.write_part::<f32>(0, 0..WORDS);
                words.iter_mut().enumerate().for_each(|(at, word)| *word = number(own, at));
                let words = Summed { bytes: 0..BYTES, landing: BYTES, element: 4 };
                let add = adding::<f32>(kernel, (0, 0), (1, BYTES));
                let summed = team.reduce(0, words, shape, bound, add);
                let done = summed.and_then(|()| team.broadcast(0, 0..BYTES, shape, bound));
                if let Ok(mut failed) = failed.lock() {
                    *failed = done;
                }
            }
        });
        let mut stream = Stream::open(&device, Engine::Compute, "sum")?;
        let accesses: [Access<_>; 2] = [memory.write(..WORDS), memory.read(WORDS..)];
        stream
            .launch("sum", &kernel, accesses, [])?
            .wait(Bound::within(Duration::from_secs(90)))?;
        failed.lock().map_err(|_| "a kernel panicked")?.clone()?;
        let mut sums = memory.to_vec()?;
        sums.truncate(WORDS);
        let wrong =
            sums.iter().enumerate().filter(|(at, sum)| **sum != expected(ranks, *at)).count();
        if wrong > 0 {
            return Err(
                format!("rank {own}: {wrong} of {WORDS} sums are wrong with {shape:?}").into()
            );
        }
        digests.push(sums.iter().fold(0_u64, |digest, sum| {
            (digest ^ u64::from(sum.to_bits())).wrapping_mul(0x100_0000_01B3)
        }));
    }
    if digests.iter().any(|digest| *digest != digests[0]) {
        return Err(format!("the shapes differ: {digests:x?}").into());
    }
    if world.rank().0 == 0 {
        say!("{estimate}");
        let have = if ranks == 1 { "rank has" } else { "ranks have" };
        say!("{ranks} {have} {WORDS} sums each, digest {:016x}", digests[0]);
    }
    drop(comm);
    Ok(world.leave(bound)?)
}

/// What a rank adds.
fn number(rank: u32, at: usize) -> f32 {
    1.0 / (1.0 + rank as f32 + (at % 97) as f32)
}

/// The sum as one loop has it, from the last rank to the first.
fn expected(ranks: usize, at: usize) -> f32 {
    let others =
        (1..ranks as u32).rev().map(|rank| number(rank, at)).reduce(|sum, next| sum + next);
    others.map_or(number(0, at), |others| number(0, at) + others)
}
