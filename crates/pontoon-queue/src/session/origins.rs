//! Where in the program the batches of a lane were submitted.
//!
//! The place of the call costs a store. The time of it is not noted: reading a clock takes about as
//! long as all else that is noted of a batch, several times over. Fences of a pool have it.

use std::panic::Location;

/// The last batches of a lane: all that may be under way, and some more.
#[derive(Debug)]
pub(super) struct Origins {
    ring: Box<[Origin]>,
    batches: u64,
}

/// A batch that was given to a lane.
#[derive(Clone, Copy, Debug)]
struct Origin {
    /// Its last event is number `end - 1` of the lane's axis.
    end: u64,
    site: &'static Location<'static>,
}

/// How many batches are remembered at least.
const LEAST: u32 = 1024;

impl Origins {
    pub(super) fn new(depth: u32) -> Self {
        let size = depth.max(LEAST).next_power_of_two();
        let none = Origin { end: 0, site: Location::caller() };
        Self { ring: vec![none; size as usize].into_boxed_slice(), batches: 0 }
    }

    /// Notes a batch whose last event is number `end - 1`.
    pub(super) fn push(&mut self, end: u64, site: &'static Location<'static>) {
        let at = self.place(self.batches);
        self.ring[at] = Origin { end, site };
        self.batches += 1;
    }

    /// The number of the first event of the batch that has event `count - 1`, and where it was
    /// submitted; `None` if it is not remembered.
    pub(super) fn of(&self, count: u64) -> Option<(u64, &'static Location<'static>)> {
        let oldest = self.batches.saturating_sub(self.ring.len() as u64);
        let (mut low, mut high) = (oldest, self.batches);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.ring[self.place(middle)].end < count {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        if low == self.batches || low == oldest && oldest > 0 {
            return None;
        }
        let start = low.checked_sub(1).map_or(0, |before| self.ring[self.place(before)].end);
        Some((start, self.ring[self.place(low)].site))
    }

    fn place(&self, batch: u64) -> usize {
        batch as usize & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::Origins;

    #[test]
    fn an_event_is_found_in_its_batch() {
        let mut origins = Origins::new(1);
        assert_eq!(origins.of(1), None);
        let here = Location::caller();
        for end in [2, 3, 7] {
            origins.push(end, here);
        }
        let starts = [1, 2, 3, 4, 7].map(|count| origins.of(count).unwrap().0);
        assert_eq!(starts, [0, 0, 2, 3, 3]);
        assert_eq!(origins.of(8), None);
        (8..1032).for_each(|end| origins.push(end, here));
        assert_eq!(origins.of(8), None, "its start is not remembered");
        assert_eq!(origins.of(9).unwrap().0, 8);
    }
}
