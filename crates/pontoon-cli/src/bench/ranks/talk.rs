//! How rank 0 tells rank 1 what to do next, and rank 1 what came of it.

use std::time::Duration;

use pontoon::{
    Bound,
    signal::{LineRef, Publisher, Seq, SignalTable, SlotId, Waiter, shim::Ordering::Relaxed},
};

use super::rank::{RESULT, STEP, TOLD};
use crate::bench::BenchError;

/// The longest that one rank waits for the other within a step.
pub(in crate::bench) const PATIENCE: Duration = Duration::from_secs(20);
/// The longest that rank 1 waits for its next step: rivals are measured meanwhile.
const NEXT_STEP: Duration = Duration::from_secs(600);

/// One rank's end.
#[derive(Debug)]
pub(in crate::bench) struct Talk {
    told: Publisher,
    heard: Waiter,
    steps: Seq,
    step: LineRef,
    result: LineRef,
}

impl Talk {
    /// The end of rank `me`, over the ranks' own table.
    ///
    /// # Errors
    ///
    /// The other has taken the place.
    pub(in crate::bench) fn open(table: &SignalTable, me: u32) -> Result<Self, BenchError> {
        let told = table.publisher(SlotId::new(me, TOLD))?;
        let heard = table.waiter(SlotId::new(1 - me, TOLD))?;
        let step = table.line(SlotId::new(0, STEP))?;
        let result = table.line(SlotId::new(1, RESULT))?;
        Ok(Self { steps: told.value(), told, heard, step, result })
    }

    /// As rank 0: has rank 1 begin with a step.
    pub(in crate::bench) fn tell(&mut self, word: u64) {
        self.step.word().store(word, Relaxed);
        self.steps = self.told.pub_release(1);
    }

    /// As rank 0: what rank 1 measured, once it has done the step.
    ///
    /// # Errors
    ///
    /// It has not, in time.
    pub(in crate::bench) fn answer(&mut self) -> Result<f64, BenchError> {
        self.heard.wait_ge_bounded(self.steps, Bound::within(PATIENCE))?.acq_fence();
        Ok(f64::from_bits(self.result.word().load(Relaxed)))
    }

    /// As rank 1: the next step.
    ///
    /// # Errors
    ///
    /// There is none, for very long.
    pub(in crate::bench) fn next(&mut self) -> Result<u64, BenchError> {
        self.steps = self.steps + 1;
        self.heard.wait_ge_bounded(self.steps, Bound::within(NEXT_STEP))?.acq_fence();
        Ok(self.step.word().load(Relaxed))
    }

    /// As rank 1: has done the step, and measured so much.
    pub(in crate::bench) fn done(&mut self, measured: f64) {
        self.result.word().store(measured.to_bits(), Relaxed);
        self.told.pub_release(1);
    }
}
