//! What a lane was given, for whoever asks what an event was.

use crate::Axis;

/// What an event of a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A command, by its label.
    Work(&'static str),
    /// A wait for the first events of another axis.
    Wait(Axis, u64),
    /// A wait for a signal of somebody else.
    Outside,
}

/// The last events of a lane: all that may be under way, and some more.
#[derive(Debug)]
pub(super) struct Notes {
    ring: Box<[Note]>,
    events: u64,
}

/// How many events are remembered at least: errors name commands that ended long ago.
const LEAST: u32 = 1024;

impl Notes {
    pub(super) fn new(depth: u32) -> Self {
        let size = depth.max(LEAST).next_power_of_two();
        let ring = vec![Note::Outside; size as usize].into_boxed_slice();
        Self { ring, events: 0 }
    }

    pub(super) fn push(&mut self, note: Note) {
        let at = self.place(self.events);
        self.ring[at] = note;
        self.events += 1;
    }

    /// What event `at` was; `None` if it is not remembered.
    pub(super) fn get(&self, at: u64) -> Option<Note> {
        let remembered = self.events.saturating_sub(self.ring.len() as u64)..self.events;
        remembered.contains(&at).then(|| self.ring[self.place(at)])
    }

    fn place(&self, at: u64) -> usize {
        at as usize & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Note, Notes};

    #[test]
    fn the_last_events_are_remembered() {
        let mut notes = Notes::new(1);
        for _ in 0..1024 {
            notes.push(Note::Outside);
        }
        notes.push(Note::Work("last"));
        assert_eq!(notes.get(1024), Some(Note::Work("last")));
        assert_eq!(notes.get(1), Some(Note::Outside));
        assert_eq!((notes.get(0), notes.get(1025)), (None, None));
    }
}
