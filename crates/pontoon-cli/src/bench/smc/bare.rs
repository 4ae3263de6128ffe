//! The rival of a miss: what the kernel takes for a page at least, out of home's own memory.

use std::{fs::File, os::fd::AsRawFd, sync::Arc};

use pontoon::{
    Bound, Rank, World,
    hal::paging::PAGE,
    signal::{Block, Segment, Span},
    smc::{Export, Features, MapError},
    world::WorldError,
};
use pontoon_uffd::{Attached, Fault, PageError, Served, Service, Source, Window, attach};

use crate::bench::BenchError;

/// Where home says what its memory is.
const KEY: &[u8] = b"bench/smc/home";
const WORDS: usize = 4;

/// Home's memory, mapped here once more.
pub(super) struct Bare {
    home: Block,
}

/// A window whose pages are copied from home's, and nothing else.
pub(super) struct Copied {
    // Dropped first: nobody is asked for a page of a window that is gone.
    _attached: Attached,
    pub(super) window: Arc<Window>,
}

/// As home: says where its memory is.
pub(super) fn offer(world: &World, export: &Export, bound: Bound) -> Result<(), BenchError> {
    let segment = world.segment();
    let data = export.data().and_then(|data| segment.heap().offset_of(&data).zip(Some(data)));
    let ((offset, data), file) = data.zip(segment.file()).ok_or(BenchError::OutOfStep)?;
    let words: [u64; WORDS] = [
        segment.identity().pid.into(),
        file.as_raw_fd().unsigned_abs().into(),
        offset as u64,
        data.bytes() as u64,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok(world.job().set(KEY, &bytes, bound).map_err(WorldError::from)?)
}

impl Bare {
    /// As client: maps the memory that rank `home` [offers](offer).
    pub(super) fn find(world: &World, home: Rank, bound: Bound) -> Result<Self, BenchError> {
        let said = world.job().get(KEY, bound).map_err(WorldError::from)?;
        let mut words = said.chunks_exact(8).filter_map(|word| word.try_into().ok());
        let mut word = || words.next().map(u64::from_le_bytes).ok_or(BenchError::OutOfStep);
        let (pid, file, offset, bytes) = (word()?, word()?, word()? as usize, word()? as usize);
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{file}"));
        let file = file.map_err(|error| BenchError::System { call: "open", error })?;
        let segment = Segment::open(file.into()).map_err(WorldError::from)?;
        if segment.identity().rank != home {
            return Err(BenchError::OutOfStep);
        }
        let home = segment.heap().part(offset..offset + bytes).ok_or(BenchError::OutOfStep)?;
        Ok(Self { home })
    }

    /// A new window over the first `bytes` bytes.
    pub(super) fn window(&self, bytes: usize) -> Result<Copied, BenchError> {
        let window = Window::reserve(&Features::probe(), bytes, Service::InThread);
        let window = Arc::new(window.map_err(MapError::from)?);
        let (pages, home) = (Arc::clone(&window), self.home.clone());
        let pager = move |fault: Fault| {
            let at = fault.page * PAGE;
            let Some(source) = Source::of(&home, at..at + PAGE) else { return Served::NotMine };
            let placed: Result<_, PageError> = pages.copy_in(fault.page, source, true);
            if placed.is_ok() { Served::Again } else { Served::NotMine }
        };
        let attached = attach(&window, Arc::new(pager)).map_err(MapError::from)?;
        Ok(Copied { _attached: attached, window })
    }

    /// Bytes of home from `at` on.
    pub(super) fn bytes(&self, at: usize, bytes: usize) -> Option<Span<'_>> {
        Span::of(&self.home, at..at + bytes)
    }
}
