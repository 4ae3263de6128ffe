//! Two pinned sides of a ping-pong: in two threads, or in this process and another.

use std::thread;

use pontoon::signal::SignalTable;

use super::{
    BenchError,
    pin::{CpuPair, pin_to},
    pingpong::{SHAPE, Side},
    process::{Peer, Task},
};

/// Runs `ping` and `echo` in two threads, one on each CPU. Gives what `ping` measured.
///
/// # Errors
///
/// That of the side that failed first.
pub(crate) fn between_threads<T: Send>(
    cpus: CpuPair,
    ping: impl FnOnce(&mut Side) -> Result<T, BenchError> + Send,
    echo: impl FnOnce(&mut Side) -> Result<(), BenchError> + Send,
) -> Result<T, BenchError> {
    let table = SignalTable::in_process(SHAPE);
    let (mut near, mut far) = (Side::claim(&table, 0)?, Side::claim(&table, 1)?);
    thread::scope(|scope| {
        let echoing = scope.spawn(move || {
            let echoed = pin_to(cpus.far).and_then(|()| echo(&mut far));
            far.leave();
            echoed
        });
        let measured = on_a_thread(cpus.near, move || ping(&mut near));
        echoing.join().map_err(|_| BenchError::Panicked)??;
        measured
    })
}

/// As [`between_threads`], with the other side doing `task` in a process of its own.
///
/// # Errors
///
/// That of the side that failed first.
pub(crate) fn between_processes<T: Send>(
    cpus: CpuPair,
    ping: impl FnOnce(&mut Side) -> Result<T, BenchError> + Send,
    task: Task,
) -> Result<T, BenchError> {
    let table = SignalTable::shared(SHAPE)?;
    let mut near = Side::claim(&table, 0)?;
    let peer = Peer::start(&table, cpus.far, task)?;
    let measured = on_a_thread(cpus.near, move || ping(&mut near));
    peer.finish(measured)
}

/// On a thread of its own, so that the caller's stays where it may run.
fn on_a_thread<T: Send>(
    cpu: usize,
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    thread::scope(|scope| {
        let working = scope.spawn(move || pin_to(cpu).and_then(|()| work()));
        working.join().map_err(|_| BenchError::Panicked)?
    })
}
