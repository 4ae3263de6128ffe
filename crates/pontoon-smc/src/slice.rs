//! Slices: values that follow each other and are written through.

use core::{fmt, marker::PhantomData, ops::Range};

use pontoon_hal::paging::PAGE;
use pontoon_signal::{
    Bound,
    shim::{AtomicU64, Ordering::Relaxed},
};

use crate::{Arrival, SmcError, Value, Window, clock::Clock, direct::most, release::late};

/// Values of a window that follow each other, at home.
///
/// ```
/// # use pontoon_smc::{SmcError, Window};
/// # fn run(window: &Window, bound: pontoon_signal::Bound) -> Result<(), SmcError> {
/// let row = window.slice::<f32>(8192, 1000)?;
/// row.write(0, &[1.5; 1000], bound)?; // one write, and home has it
/// for at in (0..1000).step_by(100) {
///     row.post(at, &[2.5; 10])?; // on its way
/// }
/// row.drain(bound)?; // home has all ten
/// # Ok(())
/// # }
/// ```
pub struct Slice<'w, T: Value> {
    window: &'w Window,
    /// Its bytes in the window.
    bytes: Range<usize>,
    /// A bit for each of its pages that was posted to since it was drained.
    posted: Box<[AtomicU64]>,
    /// Which home of the extent's they went to first, from 1; 0 for none.
    posted_to: AtomicU64,
    of: PhantomData<fn() -> T>,
}

impl Window {
    /// So many values from `offset` on, all of one extent, which are written through and read from home.
    ///
    /// # Errors
    ///
    /// [`SmcError::OutOfRange`], [`SmcError::Misaligned`].
    pub fn slice<T: Value>(&self, offset: usize, len: usize) -> Result<Slice<'_, T>, SmcError> {
        let bytes = offset..offset.saturating_add(len.saturating_mul(T::BYTES));
        self.extent_of(bytes.clone())?;
        if !offset.is_multiple_of(T::BYTES) {
            return Err(SmcError::Misaligned { offset });
        }
        let pages = bytes.end.div_ceil(PAGE) - bytes.start / PAGE;
        let posted = (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Slice { window: self, bytes, posted, posted_to: AtomicU64::new(0), of: PhantomData })
    }
}

impl<T: Value> Slice<'_, T> {
    /// How many values it has.
    #[expect(clippy::len_without_is_empty, reason = "who makes one says how many")]
    pub fn len(&self) -> usize {
        self.bytes.len() / T::BYTES
    }

    /// Writes `values` from the one at `at` on, and waits until they are at home: one write, or one for each 64 KiB of them.
    /// What was stored to them here and not released is overwritten.
    ///
    /// # Errors
    ///
    /// [`SmcError`]. After a time-out any part of them may be there, or come yet.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn write(&self, at: usize, values: &[T], bound: Bound) -> Result<(), SmcError> {
        let mut clock = Clock::bound(bound);
        self.each(at, values.len(), |byte, part| {
            self.window.write_home(byte, &values[part], Arrival::AtHome, &mut clock).map(drop)
        })
    }

    /// Writes `values` and does not wait: they are at home after the next [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// [`SmcError`]; some of them may be on their way.
    ///
    /// # Blocks
    ///
    /// Until there is room for so many that are on their way, no longer than the pool's deadline.
    pub fn post(&self, at: usize, values: &[T]) -> Result<(), SmcError> {
        let mut clock = Clock::of(self.window.inner().settings.deadline);
        self.each(at, values.len(), |byte, part| {
            let end = byte + part.len() * T::BYTES;
            let to = self.window.write_home(byte, &values[part], Arrival::Posted, &mut clock)?;
            // After the post: a drain that sees it waits for that.
            let _ = self.posted_to.compare_exchange(0, to + 1, Relaxed, Relaxed);
            for page in byte / PAGE..end.div_ceil(PAGE) {
                let page = page - self.bytes.start / PAGE;
                self.posted[page / 64].fetch_or(1 << (page % 64), Relaxed);
            }
            Ok(())
        })
    }

    /// Waits until all that was posted to this slice before is at home, and whoever acquires has it.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; the next drain waits for it again. [`SmcError::Moved`] if the slice has another home since then: what was
    /// posted is the former home's, and is waited for no more.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn drain(&self, bound: Bound) -> Result<(), SmcError> {
        let mut clock = Clock::bound(bound);
        let posted_to = self.posted_to.swap(0, Relaxed);
        if posted_to == 0 {
            return Ok(());
        }
        let drained = self.drain_to(posted_to, &mut clock);
        if !matches!(drained, Ok(()) | Err(SmcError::Moved { .. })) {
            let _ = self.posted_to.compare_exchange(0, posted_to, Relaxed, Relaxed);
        }
        drained
    }

    fn drain_to(&self, posted_to: u64, clock: &mut Clock) -> Result<(), SmcError> {
        let extent = self.window.extent_of(self.bytes.clone())?;
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        let first = self.bytes.start / PAGE;
        for (index, word) in self.posted.iter().enumerate() {
            let pages = word.swap(0, Relaxed);
            if pages == 0 {
                continue;
            }
            if place.generation + 1 != posted_to {
                self.posted.iter().for_each(|word| word.store(0, Relaxed));
                return Err(SmcError::Moved { home: extent.rank(), bytes: self.bytes.clone() });
            }
            let its = (0..64).filter(|bit| pages & 1 << bit != 0);
            let its = its.map(|bit| first + index * 64 + bit);
            let announced = self.window.announce(extent, &place, its, clock);
            if announced.is_err() {
                word.fetch_or(pages, Relaxed);
                return announced;
            }
        }
        Ok(())
    }

    /// Reads what home has now into `into`, from the value at `at` on: one read, or one for each 64 KiB of them.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; some of them may have been read.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn read_fresh(&self, at: usize, into: &mut [T], bound: Bound) -> Result<(), SmcError> {
        let mut clock = Clock::bound(bound);
        let len = into.len();
        self.each(at, len, |byte, part| self.window.read_home(byte, &mut into[part], &mut clock))
    }

    /// Each part that one operation takes: where it begins in the window, and which of the values it is.
    fn each(
        &self,
        at: usize,
        len: usize,
        mut operation: impl FnMut(usize, Range<usize>) -> Result<(), SmcError>,
    ) -> Result<(), SmcError> {
        let start = self.bytes.start.saturating_add(at.saturating_mul(T::BYTES));
        let asked = start..start.saturating_add(len.saturating_mul(T::BYTES));
        if asked.end > self.bytes.end {
            return Err(SmcError::OutOfRange { asked, bytes: self.window.bytes() });
        }
        let mut done = 0;
        while done < len {
            let byte = start + done * T::BYTES;
            let part = done..len.min(done + most::<T>(byte));
            done = part.end;
            operation(byte, part)?;
        }
        Ok(())
    }
}

impl<T: Value> fmt::Debug for Slice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} values at byte {} of {:?})", self.len(), self.bytes.start, self.window)
    }
}
