//! Cells: values that are written through, one at a time.

use core::{fmt, marker::PhantomData};

use pontoon_hal::paging::PAGE;
use pontoon_signal::Bound;

use crate::{Arrival, Integer, SmcError, Value, Window, cell::Word, clock::Clock, release::late};

/// A value of a window, at home: what is written is there when the call returns.
///
/// ```
/// # use pontoon_smc::{SmcError, Window};
/// # fn run(window: &Window, bound: pontoon_signal::Bound) -> Result<(), SmcError> {
/// let loss = window.cell_of::<f32>(4096)?;
/// loss.store(0.25, bound)?; // home has it
/// let step = window.cell_of::<u32>(4100)?;
/// step.fetch_add(1, bound)?; // at once against all other ranks
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Cell<'w, T: Value = u64> {
    window: &'w Window,
    offset: usize,
    of: PhantomData<fn() -> T>,
}

impl Window {
    /// The aligned word at `offset` as a value that is written through, and read from home where that is asked for.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`], [`SmcError::Misaligned`].
    pub fn cell(&self, offset: usize) -> Result<Cell<'_>, SmcError> {
        self.cell_of(offset)
    }

    /// The aligned value at `offset`, as [`cell`](Self::cell) is one of 8 bytes.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`], [`SmcError::Misaligned`].
    pub fn cell_of<T: Value>(&self, offset: usize) -> Result<Cell<'_, T>, SmcError> {
        self.extent_of(offset..offset.saturating_add(T::BYTES))?;
        if !offset.is_multiple_of(T::BYTES) {
            return Err(SmcError::Misaligned { offset });
        }
        Ok(Cell { window: self, offset, of: PhantomData })
    }
}

impl<'w, T: Value> Cell<'w, T> {
    /// Writes `value`, and waits until it is at home.
    ///
    /// # Errors
    ///
    /// [`SmcError`]. After a time-out it may be there, or come yet.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn store(&self, value: T, bound: Bound) -> Result<(), SmcError> {
        let (values, mut clock) = ([value], Clock::bound(bound));
        self.window.write_home(self.offset, &values, Arrival::AtHome, &mut clock).map(drop)
    }

    /// What home has now.
    ///
    /// # Errors
    ///
    /// [`SmcError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn load_fresh(&self, bound: Bound) -> Result<T, SmcError> {
        let (mut value, mut clock) = ([T::get(&[0; 8])], Clock::bound(bound));
        self.window.read_home(self.offset, &mut value, &mut clock)?;
        Ok(value[0])
    }

    fn word(&self) -> Word<'w> {
        Word::new(self.window, self.offset / 8 * 8)
    }
}

impl Cell<'_> {
    /// Writes `value` and does not wait: it is at home after the next [`drain`](Self::drain). Of other values
    /// [`Slice::post`](crate::Slice::post) is that.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; nothing was written.
    pub fn post(&self, value: u64) -> Result<(), SmcError> {
        let mut clock = Clock::of(self.window.inner().settings.deadline);
        let to = self.window.write_home(self.offset, &[value], Arrival::Posted, &mut clock)?;
        self.window.extent_of(self.offset..self.offset + 8)?.has_posted(to);
        Ok(())
    }

    /// Waits until all that was posted to this cell's home is there.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; [`Moved`](SmcError::Moved), once, if the home is another than what was posted before went to.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn drain(&self, bound: Bound) -> Result<(), SmcError> {
        self.word().drain(bound)
    }
}

impl<T: Integer> Cell<'_, T> {
    /// Adds to it at home, at once against all others that do. Gives what it was.
    ///
    /// # Errors
    ///
    /// [`SmcError`]. After a time-out the addition may have been done, or may yet be. [`SmcError::Unable`] for a value of 4
    /// bytes whose home is not mapped here: links change words of 8, and a write to the other half could be lost.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn fetch_add(&self, n: T, bound: Bound) -> Result<T, SmcError> {
        if T::BYTES == 8 {
            let mut bytes = [0; 8];
            n.put(&mut bytes);
            let before = self.word().fetch_add(u64::from_ne_bytes(bytes), bound)?;
            return Ok(T::get(&before.to_ne_bytes()));
        }
        self.change(bound, |old| Some(old.plus(n)))
    }

    /// Puts `new` there if it is `expected`. Gives what it was.
    ///
    /// # Errors
    ///
    /// As [`fetch_add`](Self::fetch_add).
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn compare_exchange(&self, expected: T, new: T, bound: Bound) -> Result<T, SmcError> {
        if T::BYTES == 8 {
            let mut bytes = [[0; 8]; 2];
            expected.put(&mut bytes[0]);
            new.put(&mut bytes[1]);
            let [expected, new] = bytes.map(u64::from_ne_bytes);
            let before = self.word().compare_exchange(expected, new, bound)?;
            return Ok(T::get(&before.to_ne_bytes()));
        }
        self.change(bound, |old| (old == expected).then_some(new))
    }

    /// Changes a part of its word, where the other parts' writes are not lost by that. Gives what it was.
    fn change(&self, bound: Bound, new: impl Fn(T) -> Option<T>) -> Result<T, SmcError> {
        let mut clock = Clock::bound(bound);
        let extent = self.window.extent_of(self.offset..self.offset + T::BYTES)?;
        extent.writable()?;
        let place = extent.place(&mut clock).ok_or_else(|| late(extent, clock.waited()))?;
        if !place.home.changes_beside_writes() {
            return Err(place.unable(
                "change of 4 bytes at once: it changes words of 8 and could lose a write to the other 4",
                "use a value of 8 bytes",
            ));
        }
        let (word, at) = (self.word(), self.offset % 8);
        let mut seen = [0_u64];
        self.window.read_home(self.offset / 8 * 8, &mut seen, &mut clock)?;
        let [mut seen] = seen;
        loop {
            let mut bytes = seen.to_ne_bytes();
            let old = T::get(&bytes[at..]);
            let Some(new) = new(old) else { return Ok(old) };
            new.put(&mut bytes[at..]);
            let before = word.compare_exchange(seen, u64::from_ne_bytes(bytes), clock.left())?;
            if before == seen {
                return Ok(old);
            }
            seen = before;
            if !clock.pause() {
                return Err(late(extent, clock.waited()));
            }
        }
    }
}

impl<T: Value> fmt::Debug for Cell<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, at) = (T::BYTES, self.offset % PAGE);
        write!(f, "Cell({bytes} bytes at {at} of page {} of {:?})", self.offset / PAGE, self.window)
    }
}
