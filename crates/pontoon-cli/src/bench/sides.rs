//! Two pinned sides of a ping-pong: in two threads, or in this process and another.

use std::thread;

use pontoon::signal::{SignalTable, WaitError};

use super::{
    BenchError,
    pin::{CpuPair, pin_to},
    pingpong::{SHAPE, Side},
    process::{Peer, Task},
    spawn,
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
        // A side that fails drops its lines, which ends the other's waits at once.
        let echoing = spawn(scope, move || {
            pin_to(cpus.far)?;
            echo(&mut far)?;
            far.leave();
            Ok(())
        })?;
        let measured = on_a_thread(cpus.near, move || ping(&mut near));
        let echoed = echoing.join().map_err(|_| BenchError::Panicked)?;
        first_failure(measured, echoed)
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

/// What was measured, or the failure that was not the consequence of the other.
fn first_failure<T>(
    measured: Result<T, BenchError>,
    echoed: Result<(), BenchError>,
) -> Result<T, BenchError> {
    match (measured, echoed) {
        (Err(BenchError::Wait(WaitError::PeerDead { .. })), Err(cause)) => Err(cause),
        (Err(cause), _) | (Ok(_), Err(cause)) => Err(cause),
        (Ok(measured), Ok(())) => Ok(measured),
    }
}

/// On a thread of its own, so that the caller's stays where it may run.
///
/// # Errors
///
/// That of `work`, or there is no thread or no such CPU.
pub(super) fn on_a_thread<T: Send>(
    cpu: usize,
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    thread::scope(|scope| {
        let working = spawn(scope, move || pin_to(cpu).and_then(|()| work()))?;
        working.join().map_err(|_| BenchError::Panicked)?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_failed_first_is_told_of() {
        let Some(cpus) = CpuPair::usable().expect("asked") else {
            println!("skipped: it needs two CPUs, and this process may use one");
            return;
        };
        let step = |side: &mut Side| side.ping(crate::bench::pingpong::Kind::RoundTrip, 1);
        let silent = |_: &mut Side| Err(BenchError::LockSilent);
        let error = between_threads(cpus, step, silent).expect_err("no answer");
        assert!(matches!(error, BenchError::LockSilent), "{error}");
        let answer = |side: &mut Side| side.echo(crate::bench::pingpong::Kind::RoundTrip, 1);
        let gone = |_: &mut Side| Err::<(), _>(BenchError::OutOfStep);
        let error = between_threads(cpus, gone, answer).expect_err("no call");
        assert!(matches!(error, BenchError::OutOfStep), "{error}");
    }
}
