//! What a fence is, and what a failure goes back to; fences of the session's own pool.

use std::{fmt::Write, sync::Arc};

use pontoon_hal::{Cause, Device};

use super::{Note, Session};
use crate::{
    Completer, CreateError, Fence, FenceError, LeakReport, PoolReport, Root, fence::Point,
};

impl<D: Device> Session<'_, D> {
    /// A fence for work that is no stream's: reached once its completer says so. Streams wait for it
    /// as for any other; one that does fails if the completer is dropped, and the error says what
    /// for and where the fence was made.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    #[track_caller]
    pub fn completer(&mut self, label: &'static str) -> Result<(Completer, Fence), CreateError> {
        self.pool.create(label)
    }

    /// What the session's pool has done: fences of [`completer`](Self::completer), and one for each
    /// part of a batch that was parked.
    pub fn pool_report(&self) -> PoolReport {
        self.pool.report()
    }

    /// The fences of the session's pool that nobody has completed.
    pub fn leaks(&self) -> LeakReport {
        self.pool.leaks()
    }

    /// What a fence is and how it stands: label, queue, device, position, where it was submitted,
    /// and its age, as far as that is known. The age is known of fences that were made by
    /// [`completer`](Self::completer).
    pub fn describe(&self, fence: &Fence) -> String {
        let mut text = String::new();
        let _ = match fence.point() {
            None => self.describe_parked(fence, &mut text),
            Some(point) => self.describe_point(fence, point, &mut text),
        };
        let _ = match fence.is_complete() {
            Ok(true) => write!(text, ": complete"),
            Ok(false) => write!(text, ": not complete"),
            Err(error) => write!(text, ": failed: {}", self.rooted(fence, error)),
        };
        if let Some((latest, retries)) = fence.latest() {
            let s = if retries == 1 { "" } else { "s" };
            let _ = write!(text, "; retried {retries} time{s}, now {}", self.describe(&latest));
        }
        text
    }

    fn describe_parked(&self, fence: &Fence, text: &mut String) -> std::fmt::Result {
        write!(text, "a parked batch of stream {} (device {})", fence.stream(), fence.device())?;
        let gate = fence.gate().map(|late| &late.gate);
        match gate.and_then(|gate| self.pool.made(gate.slot.id(), gate.target)) {
            Some((_, site, age)) => write!(text, ", submitted at {site} {age} ago"),
            None => Ok(()),
        }
    }

    fn describe_point(&self, fence: &Fence, point: &Point, text: &mut String) -> std::fmt::Result {
        let place = point.place.filter(|place| place.session == self.id);
        let lane = place.and_then(|place| Some((place, Self::lane_of(place.axis)?)));
        let Some((place, lane)) = lane else {
            return match self.pool.made(point.slot.id(), point.target) {
                Some(made) if point.place.is_none() => {
                    write!(text, "fence \"{}\" made at {} {} ago", made.0, made.1, made.2)
                }
                _ => write!(text, "a fence of {} (device {})", fence.stream(), fence.device()),
            };
        };
        let (this, count) = (&self.lanes[lane], place.count);
        let origin = this.origins.of(count);
        let events = origin.map_or(count.saturating_sub(1), |(first, _)| first)..count;
        let work = events.rev().find_map(|at| match this.notes.get(at) {
            Some(Note::Work(label)) => Some(label),
            _ => None,
        });
        let (device, queue) = (this.device.rank(), &this.label);
        write!(text, "{} (device {device} queue {queue}) at {count}", work.unwrap_or("a batch"))?;
        match origin {
            Some((_, site)) => write!(text, ", submitted at {site}"),
            None => Ok(()),
        }
    }

    /// The error of a fence, with what it goes back to.
    pub(super) fn rooted(&self, fence: &Fence, error: FenceError) -> FenceError {
        if error.root.is_some() || error.error.is_timeout() {
            return error;
        }
        let root = fence.point().and_then(|point| self.root(point)).map(Arc::new);
        FenceError { root, ..error }
    }

    /// What the failure of a position goes back to, if that is not its own queue.
    fn root(&self, point: &Point) -> Option<Root> {
        let place = point.place.filter(|place| place.session == self.id)?;
        let mut lane = Self::lane_of(place.axis)?;
        let mut fault = point.slot.faults()?.get()?;
        let after = point.target.get().wrapping_sub(fault.at.get());
        let mut event = place.count.checked_sub(1)?.wrapping_sub(after);
        let mut root = None;
        // No chain is longer than there are lanes.
        for _ in 0..=self.lanes.len() {
            let error = match &fault.cause {
                Cause::Wait(error) if !error.is_timeout() => error,
                _ => return root,
            };
            match self.lanes[lane].notes.get(event) {
                Some(Note::Wait(axis, _)) => {
                    lane = Self::lane_of(axis)?;
                    (fault, event) = self.lanes[lane].last_fault()?;
                    root = Some(Root::Fault(fault.clone()));
                }
                Some(Note::Outside) => {
                    let made = self.pool.made(error.at().slot, error.at().wanted);
                    let made = made.map(|(label, location, _)| Root::Completer { label, location });
                    return made.or(root);
                }
                _ => return root,
            }
        }
        root
    }
}
