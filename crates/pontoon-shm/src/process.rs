//! What a process says of itself in the segment of its rank.

use pontoon_signal::{Identity, Nanos, ProcessId, Rank};
use rustix::time::{ClockId, clock_gettime};

/// What this process puts in the segment of its rank.
pub fn identity(job: [u8; 16], rank: Rank, world: u32, epoch: u32) -> Identity {
    let pid = std::process::id();
    let now = clock_gettime(ClockId::Monotonic);
    let created = Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    // Of itself a process knows it, unless there is no /proc; 0 then, and nobody finds it alive.
    let start_time = ProcessId::of(pid).ok().flatten().map_or(0, |process| process.start_time);
    Identity { job, rank, world, epoch, pid, start_time, created }
}
