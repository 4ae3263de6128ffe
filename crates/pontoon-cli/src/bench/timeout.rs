//! Part of `bench signal`: how far a wait that times out overshoots its deadline.
//!
//! Nobody publishes, so every wait spins, yields and sleeps its way to the end of its bound. The
//! time is taken outside the wait, from before it until its error is at hand.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use pontoon::signal::{Bound, SignalTable, SlotId, TableShape};

use super::{BenchError, Options, print};
use crate::figures::{Printer, Samples, Unit};

/// Deadlines by name, and how many waits are measured for each.
const DEADLINES: [(&str, Duration, usize); 4] = [
    ("100us", Duration::from_micros(100), 300),
    ("1ms", Duration::from_millis(1), 300),
    ("10ms", Duration::from_millis(10), 60),
    ("100ms", Duration::from_millis(100), 12),
];

pub(super) fn run<W: Write>(options: &Options, printer: &mut Printer<W>) -> Result<(), BenchError> {
    for (name, deadline, waits) in DEADLINES {
        let waits = if options.quick { waits.div_ceil(3) } else { waits };
        let samples = overshoots(deadline, waits)?;
        print(printer, format!("signal/timeout/{name}/overshoot"), Unit::Ns, &samples)?;
    }
    Ok(())
}

/// Nanoseconds past the deadline, of `waits` waits.
fn overshoots(deadline: Duration, waits: usize) -> Result<Samples, BenchError> {
    let table = SignalTable::in_process(TableShape::new(1, 1));
    let slot = SlotId::new(0, 0);
    let publisher = table.publisher(slot)?;
    let waiter = table.waiter(slot)?;
    let never = publisher.value() + 1;
    let mut samples = Samples::with_capacity(waits);
    for _ in 0..waits {
        let started = Instant::now();
        let outcome = waiter.wait_ge_bounded(never, Bound::within(deadline));
        let took = started.elapsed();
        match outcome {
            Err(error) if error.is_timeout() => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(BenchError::OutOfStep),
        }
        samples.push(took.as_nanos() as f64 - deadline.as_nanos() as f64)?;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::overshoots;
    use std::time::Duration;

    #[test]
    fn no_wait_ends_before_its_deadline() {
        let samples = overshoots(Duration::from_millis(1), 10).expect("measured");
        let figure = samples.figure("", crate::figures::Unit::Ns).expect("rounds");
        assert!(figure.min >= 0.0, "{figure:?}");
        assert_eq!(figure.rounds, 10);
    }
}
