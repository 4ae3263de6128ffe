//! Memory of other ranks under plain loads and stores: windows over this kernel's paging, whose homes are ranks of
//! a [`World`].
//!
//! ```no_run
//! use pontoon::{Bound, Rank, World, smc::{Extent, Faults, Mapped, Pool, Settings, on_this_thread}, world::Options};
//! use pontoon::signal::shim::Ordering::Relaxed;
//!
//! let world = World::open(Options::default())?;
//! let bound = Bound::default();
//! if world.rank() == Rank(0) {
//!     let export = world.export("weights", 1 << 20, bound)?;
//!     export.write(0, &42_u64.to_ne_bytes());
//!     world.barrier("written", bound)?;
//! } else {
//!     world.barrier("written", bound)?;
//!     let pool = Pool::new(Settings::for_pages(1024))?; // 4 MiB stay here
//!     let home = world.home(&pool, Rank(0), "weights", bound)?;
//!     let window = Mapped::open(&pool, vec![Extent::new(0..1 << 20, home, 0)], Faults::Auto)?;
//!     let _stack = on_this_thread()?; // on each thread that touches it
//!     let answer = window.word(0)?; // any word of it: it comes when it is touched
//!     assert_eq!(answer.load(Relaxed), 42);
//!     answer.store(43, Relaxed);
//!     window.release(0..4096, bound)?; // 1 byte goes to rank 0
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A pool and its windows are not of a world: they outlive it. When a rank that has memory was started again, whoever has
//! a window on it joins it again, in a [`World`] of its own, and [heals](World::heal) the window: threads that touch it
//! meanwhile read the pattern where nothing is here, and go on.

use core::{error, fmt, ops::Deref};
use std::sync::Once;

pub use pontoon_hal::guard::Refusal;
pub use pontoon_smc::{
    AcquireReport, Arrival, Cell, Class, Export, Extent, Home, Integer, Layout, OpenError, Pool,
    Released, Settings, Slice, SmcError, Statistics, Through, Triggers, Value, Window,
};
pub use pontoon_uffd::{
    AlternateStack, Feature, Features, ReserveError, ServeError, on_this_thread,
};
use pontoon_uffd::{Paged, Service};

use pontoon_hal::paging::PAGE;
use pontoon_signal::{Bound, Rank};

use crate::world::{Shared, World, WorldError};

/// Who fetches a page that an access missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Faults {
    /// The thread whose access it was, if all homes can be reached from there and the kernel has it, and else two
    /// threads.
    #[default]
    Auto,
    /// The thread whose access it was, in a handler of SIGBUS: some microseconds. It needs
    /// [a stack of its own](on_this_thread) for that, and homes whose memory is mapped here.
    InThread,
    /// So many threads, which the one whose access it was waits for.
    Threads(usize),
}

/// A window of this process, and who serves it, until this and all handles of the window are dropped.
#[derive(Debug)]
pub struct Mapped {
    window: Window,
}

impl Mapped {
    /// A window that ends where the last of its extents does.
    ///
    /// # Errors
    ///
    /// [`MapError`].
    pub fn open(pool: &Pool, extents: Vec<Extent>, faults: Faults) -> Result<Self, MapError> {
        Self::open_with(&Features::probe(), pool, extents, faults)
    }

    /// As [`open`](Self::open), with no more of the kernel than those features.
    ///
    /// # Errors
    ///
    /// [`MapError`].
    pub fn open_with(
        features: &Features,
        pool: &Pool,
        extents: Vec<Extent>,
        faults: Faults,
    ) -> Result<Self, MapError> {
        let bytes = extents.iter().map(|extent| extent.bytes().end).max().unwrap_or(PAGE);
        let mapped = extents.iter().all(Extent::is_mapped);
        let (service, threads) = match faults {
            Faults::Auto if mapped && features.has(Feature::SigBus) => (Service::InThread, 0),
            Faults::Auto => (Service::Served, 2),
            Faults::InThread => (Service::InThread, 0),
            Faults::Threads(threads) => (Service::Served, threads),
        };
        let paged = Paged::reserve(features, bytes, service)?;
        let window = pool.window(paged.clone(), extents)?;
        let serving = paged.serve(window.pager(), threads)?;
        let slower = [Feature::SigBus, Feature::WriteProtectAsync, Feature::PagemapScan];
        let lacks = slower.into_iter().filter(|&feature| !features.has(feature));
        let lacks: Vec<_> = lacks.map(|feature| feature.to_string()).collect();
        if !lacks.is_empty() {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let lacks = lacks.join("; ");
                tracing::warn!(target: "pontoon::smc", lacks, "windows are slower on this kernel");
            });
        }
        Ok(Self { window: window.served_by(serving) })
    }
}

impl Deref for Mapped {
    type Target = Window;

    fn deref(&self) -> &Window {
        &self.window
    }
}

/// Why there is no window.
#[derive(Debug)]
#[non_exhaustive]
pub enum MapError {
    /// No addresses are to be had, or the kernel lacks what it takes.
    Reserve(ReserveError),
    /// The extents do not fit.
    Open(OpenError),
    /// Nobody can serve it.
    Serve(ServeError),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Serve(error) => error.fmt(f),
        }
    }
}

impl error::Error for MapError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(match self {
            Self::Reserve(error) => error,
            Self::Open(error) => error,
            Self::Serve(error) => error,
        })
    }
}

impl From<ReserveError> for MapError {
    fn from(error: ReserveError) -> Self {
        Self::Reserve(error)
    }
}

impl From<OpenError> for MapError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<ServeError> for MapError {
    fn from(error: ServeError) -> Self {
        Self::Serve(error)
    }
}

/// Memory of this rank that others map, until this is dropped.
#[derive(Debug)]
pub struct Exported {
    export: Export,
    _shared: Shared,
}

impl Deref for Exported {
    type Target = Export;

    fn deref(&self) -> &Export {
        &self.export
    }
}

impl World {
    /// Memory of so many bytes for windows of the other ranks, under a name: all zero. It is of this rank's
    /// heap, which is to have room for [`Layout::region`] of them.
    ///
    /// # Errors
    ///
    /// [`WorldError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn export(&self, name: &str, bytes: usize, bound: Bound) -> Result<Exported, WorldError> {
        let layout = Layout::of(bytes.max(1));
        let block = self.segment().allocate(layout.region()).map_err(WorldError::Heap)?;
        let shared = self.share(name, &block, bound)?;
        let peer = self.rank();
        let export =
            Export::over(block).ok_or(WorldError::NotExported { peer, name: name.into() })?;
        Ok(Exported { export, _shared: shared })
    }

    /// What `peer` [exports](Self::export) under `name`, once it does, for windows of `pool`.
    ///
    /// # Errors
    ///
    /// [`WorldError`]; [`NotExported`](WorldError::NotExported) if it shares something else under that name.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn home(
        &self,
        pool: &Pool,
        peer: Rank,
        name: &str,
        bound: Bound,
    ) -> Result<Home, WorldError> {
        let region = self.find(peer, name, bound)?;
        let home = pool.home(self.way(peer)?.link(), region).map_err(WorldError::Home)?;
        home.ok_or(WorldError::NotExported { peer, name: name.into() })
    }

    /// Has the extent of `window` that has byte `offset` at what `peer` [exports](Self::export) under `name`, from
    /// `from` on: its rank was started again, and this is the world in which it is there again. The world that the
    /// window was of before may be dropped, before or after; see [`Window::heal`] for what becomes of its pages.
    ///
    /// # Errors
    ///
    /// As [`home`](Self::home), and those of [`Window::heal`] as [`WorldError::Home`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn heal(
        &self,
        window: &Window,
        offset: usize,
        peer: Rank,
        name: &str,
        from: usize,
        bound: Bound,
    ) -> Result<(), WorldError> {
        let home = self.home(window.pool(), peer, name, bound)?;
        window.heal(offset, home, from).map_err(WorldError::Home)
    }
}
