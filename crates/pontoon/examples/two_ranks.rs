//! Rank 0's kernel sends numbers to rank 1 by a port and signals; rank 1 waits for that and adds them up.
//!
//! `cargo build -p pontoon --examples`, then `pontoon launch -n 2 -- target/debug/examples/two_ranks`, or over
//! hosts with `--hosts`.

use std::{io::Write, time::Duration};

use pontoon::{
    Bound, Buffer, CpuDevice, CpuSpec, Engine, Failure, Kernel, Rank, Seq, Stream, World,
    comm::{Comm, Settings, Weak},
    world::Options,
};

const NUMBERS: usize = 1024;
/// Which of its counters at rank 1 rank 0 grows; a rank has `with_slots` of them at each other rank.
const SLOT: u32 = 0;

fn main() -> Result<(), Failure> {
    let bound = Bound::within(Duration::from_secs(30));
    let world = World::open(Options::default().with_slots(1).with_bound(bound))?;
    if world.size() != 2 {
        return Err(format!("two ranks are needed, and these are {}", world.size()).into());
    }
    // Memory that the other can reach, by a name: both share theirs, and find that of the other.
    let block = world.segment().allocate(NUMBERS * 4)?;
    let source = world.share("numbers", &block, bound)?;
    let device = CpuDevice::open(world.rank(), CpuSpec::default())?;
    let memory = Buffer::<_, f32>::over(device.region_over(block)?);

    let (zero, one) = (Rank(0), Rank(1));
    if world.rank() == zero {
        let (way, target) = (world.way(one)?, world.find(one, "numbers", bound)?);
        // From `source` here to `target` there, and to the counter that rank 1 waits on.
        let comm = Comm::open(zero, Settings::default())?;
        let port = way.port(&comm, &source, &target, Some(way.signal(SLOT)?))?;
        let send = Kernel::new(move |kernel| {
            let numbers = kernel.write::<f32>(0);
            numbers.fill(1.0);
            // To byte 0 of the target; then the counter grows by 1. The ticket is done when `numbers` may
            // be written again.
            let sent = port.put_signal(&*numbers, 0, 1, Weak);
            let done = sent.and_then(|mut ticket| ticket.wait(bound));
            done.unwrap_or_else(|error| panic!("{error}")); // a fault of the stream, with who and how far
        });
        let mut stream = Stream::open(&device, Engine::Compute, "send")?;
        stream.launch("send", &send, [memory.write(..)], [])?.wait(bound)?;
    } else {
        let arrivals = world.incoming(zero, SLOT)?.waiter();
        // At most as long as the bound allows, and no longer than rank 0 lives. The bytes are there after it.
        world.way(zero)?.wait(&arrivals, Seq::new(1), bound, "the numbers")?.acq_fence();
        let sum: f32 = memory.to_vec()?.iter().sum();
        writeln!(
            std::io::stdout(),
            "rank 1 has {NUMBERS} numbers of rank 0, which are {sum} in all"
        )?;
    }
    Ok(world.leave(bound)?)
}
