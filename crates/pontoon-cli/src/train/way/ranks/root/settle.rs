//! What is complete after a failure, and who has it.

use std::{collections::VecDeque, mem};

use pontoon::{Patience, WaitFailure};

use super::{Lending, Progress, Send, Under};
use crate::train::{
    error::TrainError,
    way::{Ran, signals::Streams},
};

impl Progress<'_, '_> {
    /// After a failure: counts what is complete nevertheless, and sees that what belongs to it has
    /// gone out. Nothing of the session runs any more then, or that is an error: the next one uses the
    /// same memory.
    ///
    /// A step whose update is complete is counted whoever has its parameters: applied again it would change
    /// them twice. Each rank that was there has them, but for those that a send failed to, and those whose
    /// parameters could not be lent, which are noted: the next session begins without them, which is right
    /// for the dead only ([`go_on_after`](Self::go_on_after)). Of a step whose update failed nobody has any.
    pub(super) fn settle(
        &mut self,
        streams: &mut Streams<'_>,
        lendings: &[Lending],
        under: &mut VecDeque<Under>,
        ran: &mut Ran,
    ) -> Result<(), TrainError> {
        // Longer than any of its waits and sends may last.
        let patience = Patience::within(self.run.bound.saturating_mul(5));
        over(streams.session.drain(streams.update, patience))?;
        let sends = mem::take(&mut self.sends);
        self.note_unsent(streams, &sends, patience)?;
        while let Some(mut oldest) = under.pop_front() {
            if streams.session.wait(&oldest.update, patience).is_err() {
                break;
            }
            match self.tell(streams, &mut oldest) {
                Err(error) if !is_over(&error) => return Err(error),
                // Who was not sent them is seen next.
                _ => {}
            }
            self.note_unsent(streams, &oldest.sends, patience)?;
            self.report(streams, &oldest, ran)?;
        }
        let of_devices: Vec<_> = streams.of_devices.iter().flatten().copied().collect();
        let lent = lendings.iter().map(|lending| lending.stream);
        for stream in of_devices.into_iter().chain(lent) {
            over(streams.session.drain(stream, patience))?;
        }
        Ok(())
    }

    /// Waits for these sends, and notes whose failed.
    fn note_unsent(
        &mut self,
        streams: &mut Streams<'_>,
        sends: &[Send],
        patience: Patience,
    ) -> Result<(), TrainError> {
        for send in sends {
            let lent = streams.session.wait(&send.lent, patience);
            if lent.is_err() {
                self.unsent |= 1 << send.rank.0;
            }
            over(lent)?;
        }
        Ok(())
    }
}

/// Whether what was waited for has ended. That it failed is an end as well; that the wait gave up is
/// none.
fn over<T>(waited: Result<T, WaitFailure>) -> Result<(), TrainError> {
    match waited {
        Err(failure @ WaitFailure::Deadlock(_)) => Err(TrainError::Wait(failure)),
        Err(failure) if failure.is_timeout() => Err(TrainError::Wait(failure)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The same of the error of such a wait.
pub(super) fn is_over(error: &TrainError) -> bool {
    match error {
        TrainError::Wait(WaitFailure::Deadlock(_)) => false,
        TrainError::Wait(failure) => !failure.is_timeout(),
        error => !error.is_timeout(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        time::Duration,
    };

    use pontoon::{Engine, Kernel, Runtime, Session};

    use super::*;

    #[test]
    fn what_failed_is_over_and_what_was_given_up_on_is_not() {
        let runtime = Runtime::cpu(1).expect("a device");
        let mut session = Session::check();
        let [slow, broken] = ["slow", "broken"].map(|label| {
            session.stream(&runtime.devices()[0], Engine::Compute, label).expect("a stream")
        });
        let (go, told) = mpsc::channel();
        let told = Mutex::new(told);
        let waits = Kernel::new(move |_| {
            let _ = told.lock().expect("no panic").recv_timeout(Duration::from_secs(120));
        });
        let _ = session.launch(slow, "waits", &waits, [], []).expect("submitted");
        let short = Patience::within(Duration::from_millis(5));
        over(session.drain(slow, short)).expect_err("it runs");
        go.send(()).expect("it listens");
        let long = Patience::within(Duration::from_secs(60));
        over(session.drain(slow, long)).expect("it has ended");
        let fails = Kernel::new(|_| panic!("on purpose"));
        let _ = session.launch(broken, "fails", &fails, [], []).expect("submitted");
        let drained = session.drain(broken, long);
        assert!(drained.is_err(), "it failed");
        over(drained).expect("and has ended");
    }
}
