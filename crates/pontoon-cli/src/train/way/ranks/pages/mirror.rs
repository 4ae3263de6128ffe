//! What another rank has of rank 0's memory, under plain loads and stores.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use pontoon::{
    Bound, Rank,
    hal::paging::{PAGE, PagingError},
    signal::shim::{AtomicU64, Ordering::Relaxed},
    smc::{
        AlternateStack, Class, Extent, Faults, MapError, Mapped, Pool, Settings, SmcError,
        on_this_thread,
    },
};

use super::{Figures, Map, home::NAME, pages};
use crate::train::{error::TrainError, way::ranks::Ranks};

/// A window of the parameters, of this rank's gradients and of the losses, for kernels.
///
/// M1: nothing that was read is given out once a page of it had to be made up: a home that was away may
/// be back before anybody looks, so one such page ever is the end.
pub(in crate::train::way::ranks) struct Mirror {
    window: Mapped,
    pool: Pool,
    params: Range<usize>,
    /// Where each part of a message is in the window, and the byte of rank 0's buffer that it begins with.
    parts: [Stored; 2],
    /// What was loaded, until it is known to be whole.
    loaded: Mutex<Vec<f32>>,
    changed: AtomicU64,
    bound: Duration,
}

/// Bytes of a window that are some of one of rank 0's buffers.
struct Stored {
    /// Pages of the window.
    pages: Range<usize>,
    /// Where the buffer begins, counted from the first of them.
    start: isize,
}

/// The parts of a message, by their places in it.
pub(in crate::train::way::ranks) const PARTS: usize = 2;

impl Mirror {
    /// Over the memory that rank 0 exports as soon as it does, of which this rank writes the bytes `own`
    /// of the gradients. No call lasts longer than twice `bound`.
    pub(in crate::train::way::ranks) fn open(
        ranks: &Ranks<'_>,
        map: &Map,
        own: Range<usize>,
        bound: Duration,
    ) -> Result<Self, TrainError> {
        let bound = bound.saturating_mul(2);
        let params = pages(&map.params);
        let gradients = pages(&(map.gradients.start + own.start..map.gradients.start + own.end));
        let losses = pages(&map.losses);
        let count = (params.len() + gradients.len() + losses.len()) / PAGE;
        // All of it, and what the pool keeps free.
        let mut settings = Settings::for_pages(count + count / 4 + 64);
        (settings.deadline, settings.threshold) = (bound, 1);
        let pool = Pool::new(settings).map_err(MapError::Open)?;
        let home = ranks.world.home(&pool, Rank(0), NAME, Bound::within(ranks.join))?;
        let (mut extents, mut end) = (Vec::new(), 0);
        let mut add = |at_home: Range<usize>, read_only: bool| {
            let start = end;
            end += at_home.len();
            if !at_home.is_empty() {
                let extent = Extent::new(start..end, home.clone(), at_home.start);
                let extent = extent.class(Class::Large);
                extents.push(if read_only { extent.read_only() } else { extent });
            }
            start..end
        };
        // This rank loads them, and rank 0 alone changes them.
        let params_here = add(params, true);
        let mut stored = |of: &Range<usize>, at_home: Range<usize>| {
            let start = of.start as isize - at_home.start as isize;
            Stored { pages: add(at_home, false), start }
        };
        let parts = [stored(&map.gradients, gradients), stored(&map.losses, losses)];
        Ok(Self {
            window: Mapped::open(&pool, extents, Faults::Auto)?,
            pool,
            params: params_here,
            parts,
            loaded: Mutex::new(vec![0.0; map.params.len() / size_of::<f32>()]),
            changed: AtomicU64::new(0),
            bound,
        })
    }

    /// Has the parameters that rank 0 told of before come here.
    pub(in crate::train::way::ranks) fn acquire(&self) -> Result<(), SmcError> {
        let _stack = stack()?;
        let acquired = self.window.acquire(self.params.clone(), Bound::within(self.bound))?;
        self.changed.fetch_add(acquired.merged * PAGE as u64, Relaxed);
        Ok(())
    }

    /// Loads the parameters. After an error `params` is as it was.
    pub(in crate::train::way::ranks) fn load(&self, params: &mut [f32]) -> Result<(), SmcError> {
        let _stack = stack()?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.window.get(self.params.start, bytemuck::cast_slice_mut(&mut loaded))?;
        self.check()?;
        params.copy_from_slice(&loaded);
        Ok(())
    }

    /// Stores a part of a message: bytes of rank 0's buffer from `at` on.
    pub(in crate::train::way::ranks) fn store(
        &self,
        part: usize,
        at: usize,
        elements: &[f32],
    ) -> Result<(), SmcError> {
        if elements.is_empty() {
            return Ok(());
        }
        let _stack = stack()?;
        let Stored { pages, start } = &self.parts[part];
        let offset = (pages.start + at).wrapping_add_signed(*start);
        self.window.put(offset, bytemuck::cast_slice(elements))
    }

    /// Takes home what was stored.
    pub(in crate::train::way::ranks) fn release(&self) -> Result<(), SmcError> {
        let _stack = stack()?;
        let [first, last] = &self.parts;
        let stored = first.pages.start..last.pages.end;
        self.window.release(stored, Bound::within(self.bound))?;
        self.check()
    }

    /// M1.
    fn check(&self) -> Result<(), SmcError> {
        let bytes = 0..self.window.bytes();
        self.window.check(bytes.clone())?;
        match self.window.statistics().poisoned {
            0 => Ok(()),
            poisoned => Err(SmcError::Unavailable { home: Rank(0), bytes, poisoned }),
        }
    }

    /// What it did so far.
    pub(in crate::train::way::ranks) fn figures(&self) -> Figures {
        let statistics = self.window.statistics();
        Figures {
            pages_fetched: statistics.fetched,
            bytes_released: statistics.sent,
            bytes_changed: self.changed.load(Relaxed),
            registrations: self.pool.registrations(),
        }
    }
}

/// What the calling thread serves its misses on.
fn stack() -> Result<AlternateStack, SmcError> {
    on_this_thread().map_err(|error| {
        let (call, code) = (error.call, error.code);
        SmcError::Paging(PagingError { call, code, remedy: "see ulimit -v" })
    })
}
