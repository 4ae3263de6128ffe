//! Regions: shared memory that commands borrow while they run.
#![allow(unsafe_code)] // A region is memory that several threads reach; the borrows keep it right.

use std::{
    fs,
    ops::Range,
    ptr, slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pontoon_hal::{
    Access, AllocateError, Hazard, HostAccessError, Memory, Mode, RegionId, overlap,
};
use pontoon_signal::{Block, Host, Nanos, Os, Rank};

use crate::taken::Claim;

/// A region of a CPU device: page-aligned shared memory, zeroed and touched.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

/// Invariant R1: a slice over `block` is made only from a `Borrow` of its bytes that outlives it, and
/// only when its bytes are asked for; `borrows` never holds two that overlap unless both read, and
/// from one that writes one slice is made at a time. So bytes that a running kernel lends to a peer
/// have no slice by its borrow alone: it has to be done with those it asked for. Invariant R2:
/// `bytes <= block.bytes()`. Invariant R3: no bytes are of two regions at a time.
#[derive(Debug)]
struct Inner {
    /// Above the block: it goes before the memory does.
    _claim: Claim,
    block: Block,
    bytes: usize,
    id: RegionId,
    device: Rank,
    borrows: Mutex<Borrows>,
}

#[derive(Debug)]
struct Borrows {
    next: u64,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    ticket: u64,
    range: Range<usize>,
    mode: Mode,
    holder: Holder,
}

/// Who holds bytes of a region, for the message of whoever comes too early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) label: &'static str,
    pub(crate) device: Option<Rank>,
}

/// The host, in an access of its own.
pub(crate) const HOST: Holder = Holder { label: "an access", device: None };

impl Region {
    pub(crate) fn allocate(
        id: RegionId,
        device: Rank,
        bytes: usize,
    ) -> Result<Self, AllocateError> {
        if bytes == 0 {
            return Err(AllocateError::Empty);
        }
        refuse_beyond_memory(bytes)?;
        let region = Self::over(id, device, private(bytes)?, bytes)?;
        region.touch();
        Ok(region)
    }

    /// A region that stands for memory which is not here: what is done to it takes its place in the
    /// order of things, and nothing is in it. It takes no memory until somebody writes there.
    pub(crate) fn stand_in(
        id: RegionId,
        device: Rank,
        bytes: usize,
    ) -> Result<Self, AllocateError> {
        if bytes == 0 {
            return Err(AllocateError::Empty);
        }
        Self::over(id, device, private(bytes)?, bytes)
    }

    /// A region over memory that others may reach as well, but no other region (R3).
    pub(crate) fn over(
        id: RegionId,
        device: Rank,
        block: Block,
        bytes: usize,
    ) -> Result<Self, AllocateError> {
        let _claim = Claim::of(&block, id)?;
        let borrows = Mutex::new(Borrows { next: 0, held: Vec::with_capacity(32) });
        Ok(Self { inner: Arc::new(Inner { _claim, block, bytes, id, device, borrows }) })
    }

    /// Its memory, for links: to be registered, read and written from elsewhere. That goes past the
    /// borrows; what keeps it and the commands apart is what they wait for.
    pub fn block(&self) -> &Block {
        &self.inner.block
    }

    /// What the first touch of a page of fresh memory costs.
    pub(crate) fn first_touch_cost(bytes: usize) -> Result<Nanos, AllocateError> {
        let start = Os.now();
        let region = Self::allocate(RegionId(0), Rank(0), bytes)?;
        let pages = region.inner.block.bytes() / rustix::param::page_size();
        Ok(Nanos(Os.now().since(start).0 / pages as u64))
    }

    /// Touches every page, so that no kernel pays for the first touch.
    fn touch(&self) {
        let page = rustix::param::page_size();
        for offset in (0..self.inner.block.bytes()).step_by(page) {
            // SAFETY: the offset is within the block (B1). Called before the region is handed out,
            // so nobody else reads or writes here.
            let byte = unsafe { self.inner.block.base().add(offset) };
            // SAFETY: as above; a byte of our own mapping.
            unsafe { ptr::write_volatile(byte.as_ptr(), 0) };
        }
    }

    /// Takes `range` for `holder`, or says who has it.
    ///
    /// # Panics
    ///
    /// If the range is not within the region.
    pub(crate) fn borrow(
        &self,
        range: Range<usize>,
        mode: Mode,
        holder: Holder,
    ) -> Result<Borrow<'_>, Hazard> {
        // Checked here and not only by whoever calls: the slices of a borrow are sound by it.
        let within = range.start <= range.end && range.end <= self.inner.bytes;
        assert!(within, "bytes {range:?} of a region of {} bytes", self.inner.bytes);
        let mut borrows = self.inner.lock();
        for held in &borrows.held {
            if overlap(&range, &held.range) && (mode == Mode::Write || held.mode == Mode::Write) {
                return Err(Hazard {
                    region: self.inner.id,
                    refused: (range, mode),
                    running: (held.range.clone(), held.mode),
                    holder: held.holder.label,
                    on: held.holder.device,
                });
            }
        }
        let ticket = borrows.next;
        borrows.next += 1;
        borrows.held.push(Held { ticket, range: range.clone(), mode, holder });
        Ok(Borrow { region: &self.inner, range, mode, ticket })
    }

    fn host_range(&self, offset: usize, len: usize) -> Result<Range<usize>, HostAccessError> {
        let (region, bytes) = (self.inner.id, self.inner.bytes);
        let asked = offset..offset.saturating_add(len);
        if asked.end > bytes || offset.checked_add(len).is_none() {
            return Err(HostAccessError::OutOfRange { region, asked, bytes });
        }
        Ok(asked)
    }
}

fn private(bytes: usize) -> Result<Block, AllocateError> {
    Block::private("pontoon-region", bytes).map_err(|error| AllocateError::System {
        bytes,
        call: error.call,
        code: error.code,
    })
}

/// From here on a region's size is held against the memory there is: below, the answer would be
/// dearer than the region and no better than chance.
const LARGE: usize = 16 << 20;

/// Refuses what the first touch would have the kernel kill a process for: mapping memory succeeds
/// however much it is.
fn refuse_beyond_memory(bytes: usize) -> Result<(), AllocateError> {
    if bytes < LARGE {
        return Ok(());
    }
    // Where it cannot be read, nobody knows better than the kernel.
    let Ok(text) = fs::read_to_string("/proc/meminfo") else { return Ok(()) };
    match available(&text) {
        Some(available) if available < bytes as u64 => {
            Err(AllocateError::TooLarge { bytes, available })
        }
        _ => Ok(()),
    }
}

/// The bytes that `meminfo` says can be had, by writing out to disk if need be.
fn available(meminfo: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    field("MemAvailable:")?.checked_add(field("SwapFree:").unwrap_or(0))
}

impl Inner {
    /// The first byte of a range within the region.
    fn first(&self, range: &Range<usize>) -> *mut u8 {
        // SAFETY: the range is within the region, hence within the block (R2).
        unsafe { self.block.base().add(range.start) }.as_ptr()
    }

    /// A holder that panicked has given its borrow back by then, so the list is sound.
    fn lock(&self) -> MutexGuard<'_, Borrows> {
        self.borrows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for Region {
    fn bytes(&self) -> usize {
        self.inner.bytes
    }

    fn id(&self) -> RegionId {
        self.inner.id
    }

    fn device(&self) -> Rank {
        self.inner.device
    }

    fn host_read(&self, offset: usize, into: &mut [u8]) -> Result<(), HostAccessError> {
        let range = self.host_range(offset, into.len())?;
        let borrow = self.borrow(range, Mode::Read, HOST).map_err(HostAccessError::Hazard)?;
        into.copy_from_slice(borrow.bytes());
        Ok(())
    }

    fn host_write(&self, offset: usize, from: &[u8]) -> Result<(), HostAccessError> {
        let range = self.host_range(offset, from.len())?;
        let mut borrow = self.borrow(range, Mode::Write, HOST).map_err(HostAccessError::Hazard)?;
        borrow.bytes_mut().copy_from_slice(from);
        Ok(())
    }
}

/// Bytes of a region, held until dropped.
///
/// The lock orders one holder's accesses before the next one's, so even two commands that nothing
/// else orders never race: they meet, and the later one is refused, or they follow each other.
#[derive(Debug)]
pub(crate) struct Borrow<'r> {
    region: &'r Inner,
    range: Range<usize>,
    mode: Mode,
    ticket: u64,
}

impl<'r> Borrow<'r> {
    /// Borrows what `access` declares.
    pub(crate) fn of(access: &'r Access<Region>, holder: Holder) -> Result<Self, Hazard> {
        access.memory.borrow(access.range.clone(), access.mode, holder)
    }

    /// Its bytes, with no slice of them yet. The borrow can give none until this is gone.
    pub(crate) fn part(&mut self) -> Part<'_> {
        Part { region: self.region, range: self.range.clone(), mode: self.mode }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let first = self.first();
        // SAFETY: R1, R2: the bytes are mapped and initialised, nobody else writes them while the
        // borrow lives, and `&self` keeps it and its own writes away.
        unsafe { slice::from_raw_parts(first, self.range.len()) }
    }

    /// # Panics
    ///
    /// If the borrow only reads.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        assert_eq!(self.mode, Mode::Write, "a read borrow cannot write");
        let first = self.first();
        // SAFETY: R1, R2: the bytes are mapped and initialised, nobody else reaches them while
        // the borrow lives, and `&mut self` makes this the only slice of it.
        unsafe { slice::from_raw_parts_mut(first, self.range.len()) }
    }

    fn first(&self) -> *mut u8 {
        self.region.first(&self.range)
    }
}

/// The bytes of a borrow that is held for `'a`, for whoever asks for a slice of them.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    region: &'a Inner,
    range: Range<usize>,
    mode: Mode,
}

impl<'a> Part<'a> {
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// # Panics
    ///
    /// If the borrow writes: then the slice could be one of several.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        assert_eq!(self.mode, Mode::Read, "a slice of what is written is the only one");
        let first = self.region.first(&self.range);
        // SAFETY: R1, R2: the bytes are mapped and initialised, and the borrow reads and is held,
        // mutably borrowed, for `'a`: nobody writes them until then.
        unsafe { slice::from_raw_parts(first, self.range.len()) }
    }

    /// The bytes `range` of it, from its own first byte on; `None` if they are not within it.
    fn piece(&self, range: Range<usize>) -> Option<Range<usize>> {
        let within = range.start <= range.end && range.end <= self.range.len();
        within.then(|| self.range.start + range.start..self.range.start + range.end)
    }

    /// As [`bytes`](Self::bytes), of a piece of it; `None` if it has no such piece.
    ///
    /// # Panics
    ///
    /// As [`bytes`](Self::bytes).
    pub(crate) fn piece_bytes(&self, range: Range<usize>) -> Option<&'a [u8]> {
        let range = self.piece(range)?;
        Some(Part { region: self.region, range, mode: self.mode }.bytes())
    }

    /// A piece of it, until this is used again; `None` if it has no such piece.
    ///
    /// # Panics
    ///
    /// If the borrow only reads.
    pub(crate) fn piece_bytes_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        let range = self.piece(range)?;
        // For as long as `self` is borrowed: with that the only way to a second slice is closed.
        Some(Part { region: self.region, range, mode: self.mode }.into_bytes_mut())
    }

    /// # Panics
    ///
    /// If the borrow only reads.
    pub(crate) fn into_bytes_mut(self) -> &'a mut [u8] {
        assert_eq!(self.mode, Mode::Write, "a read borrow cannot write");
        let first = self.region.first(&self.range);
        // SAFETY: R1, R2: the bytes are mapped and initialised, and the borrow writes and is held,
        // mutably borrowed, for `'a`: nobody else reaches them, and with the part goes the only way
        // to a second slice.
        unsafe { slice::from_raw_parts_mut(first, self.range.len()) }
    }
}

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        let mut borrows = self.region.lock();
        if let Some(index) = borrows.held.iter().position(|held| held.ticket == self.ticket) {
            borrows.held.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HOST, Region, available};
    use pontoon_hal::{AllocateError, HostAccessError, Memory, Mode, RegionId};
    use pontoon_signal::Rank;

    fn region() -> Region {
        Region::allocate(RegionId(1), Rank(0), 100).unwrap()
    }

    #[test]
    fn readers_share_and_a_writer_does_not() {
        let region = region();
        let first = region.borrow(0..50, Mode::Read, HOST).unwrap();
        let second = region.borrow(10..60, Mode::Read, HOST).unwrap();
        let hazard = region.borrow(49..51, Mode::Write, HOST).unwrap_err();
        assert_eq!(hazard.running.0, 0..50);
        drop(first);
        assert!(region.borrow(0..10, Mode::Write, HOST).is_ok());
        assert!(region.borrow(0..11, Mode::Write, HOST).is_err());
        drop(second);
        let writer = region.borrow(0..100, Mode::Write, HOST).unwrap();
        assert!(region.borrow(99..100, Mode::Read, HOST).is_err());
        drop(writer);
        assert!(region.borrow(0..100, Mode::Read, HOST).is_ok());
    }

    #[test]
    fn nothing_overlaps_nothing() {
        let region = region();
        let _writer = region.borrow(10..20, Mode::Write, HOST).unwrap();
        assert!(region.borrow(10..10, Mode::Write, HOST).is_ok());
        assert!(region.borrow(15..15, Mode::Write, HOST).is_ok());
        assert!(region.borrow(20..30, Mode::Write, HOST).is_ok());
    }

    #[test]
    fn the_host_is_kept_within() {
        let region = region();
        region.host_write(96, &[1, 2, 3, 4]).unwrap();
        let mut bytes = [0; 4];
        region.host_read(96, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4]);
        let out = region.host_read(97, &mut bytes).unwrap_err();
        assert_eq!(
            out,
            HostAccessError::OutOfRange { region: RegionId(1), asked: 97..101, bytes: 100 }
        );
        assert!(region.host_read(usize::MAX, &mut bytes).is_err());
    }

    #[test]
    fn available_memory_is_what_is_free_for_use_and_the_swap() {
        let text = "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   3 kB\nSwapFree:  2 kB\n";
        assert_eq!(available(text), Some(5 * 1024));
        assert_eq!(available("MemAvailable: 3 kB\n"), Some(3 * 1024));
        assert_eq!(available("MemFree: 3 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn a_region_beyond_memory_is_an_error_and_not_the_end_of_a_process() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024;
        for bytes in [4 * total, 1 << 46] {
            let refused = Region::allocate(RegionId(1), Rank(0), bytes).unwrap_err();
            let AllocateError::TooLarge { bytes: asked, available } = refused else {
                panic!("{refused}")
            };
            assert!(asked == bytes && available < bytes as u64, "{refused}");
        }
    }
}
