//! The pool: memory that is registered once, where pages land, are compared with, and are sent from.
//!
//! ```text
//!  | slot 0 | slot 1 | …  (4 KiB each) | version of slot 0, 1, … (8 bytes each) | stage 0 | … | nowhere |
//! ```
//!
//! A *slot* holds what home has of its page, its twin; a *stage* what is on its way home. A twin becomes
//! what was sent only when it has arrived, so what fails is found again.

use core::{fmt, ops::Range};
use std::{
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock},
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_hal::{
    Placement,
    link::{Link, Registered, Remote},
    paging::{PAGE, PAGE_WORDS, Paging},
};
use pontoon_signal::{
    Block, SharedPublisher, SignalTable, Slot as Bell, SlotId, Span, SystemError, TableShape,
    Words,
    shim::{AtomicU64, Ordering::Relaxed},
    spawn_undisturbed,
};

use crate::{
    Extent, Home, OpenError, Settings, SmcError, Window,
    clock::Clock,
    extent::{Held, Place, locked},
    marks::Marks,
    owed::Owed,
    pane::Pane,
    panes::Panes,
    release::late,
    stages::{STAGE, STAGES, Stage, Stages},
    table::{SLOTS_MAX, SlotIndex, Table},
};

/// Fewer pages than the largest fetch, twice, are no pool.
const PAGES_MIN: usize = 64;
/// How long who opens a window naps while another is being closed.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A pool of resident pages, for up to 64 windows at the same time. A handle.
///
/// A window is open as long as anybody has it: a handle, its [pager](Window::pager) and so who serves its faults, a range that
/// is [written through](Window::write_through). Then the pool's thread closes it. What was stored and not released goes home,
/// and its pages, its addresses, unless the program has them too, and its place among the 64 are given back. If its home does
/// not take what was stored within the [deadline](Settings::deadline), that is lost, and a line of the log says so: who has to
/// know releases before. A window of which a transfer is late stays until that has come, or cannot come any more.
///
/// The last handle of a pool ends it. It waits for what was stored to windows that nobody has any more, for about as long as
/// the deadline at most. What was stored to others and not released is lost.
#[derive(Clone)]
pub struct Pool {
    pub(crate) inner: Arc<Inner>,
    /// The last handle ends it.
    _keeper: Arc<Keeper>,
}

/// What all that work on a pool share.
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    memory: Words,
    pub(crate) table: Table,
    pub(crate) marks: Marks,
    pub(crate) owed: Owed,
    pub(crate) panes: Panes,
    /// Of who opens a window: one at a time.
    opening: Mutex<()>,
    /// Set once all slots have memory.
    touched: OnceLock<()>,
    pub(crate) stages: Stages,
    /// Pages that calls keep where they are.
    pub(crate) pinned: AtomicU64,
    registered: Mutex<Vec<(Arc<dyn Link>, Registered)>>,
    /// A handle of each home: the last is not to be dropped where an access faults.
    homes: Mutex<Vec<Home>>,
    registrations: AtomicU64,
    pub(crate) hand: AtomicU64,
    /// A page that an access waits for, and whose bucket is full of pages that have to go home first.
    pub(crate) wanted: AtomicU64,
    bell: SharedPublisher,
    pub(crate) bell_slot: Bell,
    pub(crate) stop: AtomicU64,
}

impl Pool {
    /// A pool, and a thread of its own that makes room and watches over homes.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn new(settings: Settings) -> Result<Self, OpenError> {
        let inner = Arc::new(Inner::new(settings)?);
        // What the program's handlers do may need a page that the keeper has hold of.
        let thread = spawn_undisturbed("pontoon-keeper", {
            let inner = Arc::clone(&inner);
            move || inner.keep()
        })?;
        let keeper = Keeper { inner: Arc::clone(&inner), thread: Some(thread) };
        Ok(Self { inner, _keeper: Arc::new(keeper) })
    }

    /// A home: a region of a peer that is laid out [as such](crate::Layout). `None` if this one is not. The pool's
    /// memory is registered with the link, unless it was before.
    ///
    /// # Errors
    ///
    /// [`OpenError::Link`].
    pub fn home(&self, link: &Arc<dyn Link>, region: Remote) -> Result<Option<Home>, OpenError> {
        let mut registered = locked(&self.inner.registered);
        // A link that nobody else has leads nowhere any more: its ranks were started again.
        registered.retain(|(other, _)| Arc::strong_count(other) > 1 || Arc::ptr_eq(other, link));
        let known = registered.iter().find(|(other, _)| Arc::ptr_eq(other, link));
        let memory = if let Some((_, memory)) = known {
            memory.clone()
        } else {
            let memory = link.register(self.inner.memory.block())?;
            self.inner.registrations.fetch_add(1, Relaxed);
            registered.push((Arc::clone(link), memory.clone()));
            memory
        };
        let home = Home::new(Arc::clone(link), region, memory)?;
        locked(&self.inner.homes).extend(home.clone());
        Ok(home)
    }

    /// A window over `paging`, made of those extents. Bytes of none of them are nobody's: who touches them gets a
    /// signal, as outside any mapping. A paging whose window was refused is not to be used for another: some of its pages
    /// may be read only by then.
    ///
    /// Pages that were [read only](Extent::read_only) or [written through](Window::write_through) in a window before, over the same
    /// paging, are guarded for good: a plain store there raises SIGSEGV until they are written through again. Cells and
    /// slices write as ever.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. The addresses of a window that was dropped are its own until it is closed.
    ///
    /// # Blocks
    ///
    /// If there are 64 windows of which some are being closed, until one is: for no longer than the
    /// [deadline](Settings::deadline).
    pub fn window(
        &self,
        paging: Arc<dyn Paging>,
        extents: Vec<Extent>,
    ) -> Result<Window, OpenError> {
        let inner = &self.inner;
        let (_opening, number) = inner.number()?;
        let new = addresses(&*paging);
        let others = inner.panes.each();
        let mut others = others.filter_map(|seen| Some(addresses(&*seen.pane()?.paging)));
        if let Some(other) = others.find(|it| it.start < new.end && new.start < it.end) {
            return Err(OpenError::Twice { new, other });
        }
        if !extents.iter().all(Extent::is_direct) {
            inner.have_slots();
        }
        let pane = Arc::new(Pane::open(number, paging, extents)?);
        inner.panes.put(Arc::clone(&pane));
        Ok(Window::new(self.clone(), pane))
    }

    /// How often memory was registered: once for each link.
    pub fn registrations(&self) -> u64 {
        self.inner.registrations.load(Relaxed)
    }

    /// Bytes that it takes itself: slots, stages and tables. Windows take as many again as there are resident pages. Slots have
    /// no memory as long as there are only windows whose pages are all [read only](Extent::read_only) and come from homes that are
    /// mapped here, unless the pool is locked.
    pub fn bytes(&self) -> usize {
        let inner = &self.inner;
        let tables = inner.table.bytes() + inner.marks.bytes();
        inner.memory.len() * 8 + tables + inner.owed.bytes()
    }

    /// What its memory is: locked, unless [that](Settings::lock) was not asked for or not allowed. `None` if the kernel does
    /// not tell.
    pub fn placement(&self) -> Option<Placement> {
        Placement::of(self.inner.memory.block())
    }

    /// Pages that are resident now.
    pub fn resident(&self) -> usize {
        self.inner.table.len() - self.inner.table.free()
    }
}

impl Inner {
    fn new(settings: Settings) -> Result<Self, OpenError> {
        if !(PAGES_MIN..=SLOTS_MAX).contains(&settings.pages) {
            return Err(OpenError::Pages { asked: settings.pages });
        }
        let slots = settings.pages;
        let versions = slots.next_multiple_of(PAGE_WORDS);
        let words = slots * PAGE_WORDS + versions + STAGES * STAGE / 8 + 1;
        let memory = Words::zeroed(words)?;
        // All but the slots is here from now on: a miss is not to wait for a page of the pool's own.
        touch(&memory[slots * PAGE_WORDS..]);
        if settings.lock {
            lock(memory.block());
        }
        let table = Table::new(slots)?;
        let signals = SignalTable::in_process(TableShape::new(1, 1));
        let failed = |_| SystemError { call: "claim", code: 0 };
        let slot = SlotId::new(0, 0);
        let bell = signals.shared_publisher(slot).map_err(failed)?.unnoted();
        let bell_slot = signals.slot(slot).map_err(failed)?;
        Ok(Self {
            settings,
            memory,
            table,
            marks: Marks::new(slots)?,
            owed: Owed::new(slots)?,
            panes: Panes::new(),
            opening: Mutex::default(),
            touched: OnceLock::new(),
            stages: Stages::default(),
            pinned: AtomicU64::new(0),
            registered: Mutex::default(),
            homes: Mutex::default(),
            registrations: AtomicU64::new(0),
            hand: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            bell,
            bell_slot,
            stop: AtomicU64::new(0),
        })
    }

    /// A number for a window, once one is nobody's, and what keeps others from having it too.
    fn number(&self) -> Result<(MutexGuard<'_, ()>, usize), OpenError> {
        let clock = Clock::of(self.settings.deadline);
        loop {
            let opening = locked(&self.opening);
            // First: one that is closed behind this look leaves its number.
            let is_any_alone = self.panes.is_any_alone();
            if let Some(number) = self.panes.first_free() {
                return Ok((opening, number));
            }
            drop(opening);
            if clock.is_over() || !is_any_alone {
                return Err(OpenError::Windows);
            }
            self.ring();
            thread::sleep(A_MOMENT);
        }
    }

    /// Gives the slots their memory: pages are to land there, and a miss is not to wait for a page of the pool's own.
    pub(crate) fn have_slots(&self) {
        self.touched.get_or_init(|| touch(&self.memory[..self.table.len() * PAGE_WORDS]));
    }

    /// What a slot holds.
    pub(crate) fn twin(&self, slot: SlotIndex) -> &[AtomicU64] {
        &self.memory[slot.0 * PAGE_WORDS..(slot.0 + 1) * PAGE_WORDS]
    }

    /// Where a slot's bytes are in the pool's memory.
    pub(crate) fn twin_bytes(slot: SlotIndex) -> Range<usize> {
        slot.0 * PAGE..(slot.0 + 1) * PAGE
    }

    /// So many slots from `slot` on, as pages are put in place from.
    pub(crate) fn twins(&self, slot: SlotIndex, count: usize) -> Option<Block> {
        self.memory.block().part(slot.0 * PAGE..(slot.0 + count) * PAGE)
    }

    /// Makes bytes of a slot, from `at` on, be those.
    pub(crate) fn put_twin(&self, slot: SlotIndex, at: usize, bytes: &[u8]) {
        self.put(slot.0 * PAGE + at, bytes);
    }

    /// Puts bytes at the beginning of a stage.
    pub(crate) fn put_staged(&self, stage: &Stage<'_>, bytes: &[u8]) {
        self.put(stage.at, bytes);
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        if let Some(span) = Span::of(self.memory.block(), at..at + bytes.len()) {
            span.put(bytes);
        }
    }

    /// Where the version of a slot's page lands, in words of the pool's memory.
    fn version_at(&self, slot: SlotIndex) -> usize {
        self.table.len() * PAGE_WORDS + slot.0
    }

    /// Where the versions of so many slots from `slot` on land, in bytes of it.
    pub(crate) fn version_bytes(&self, slot: SlotIndex, count: usize) -> Range<usize> {
        let at = self.version_at(slot) * 8;
        at..at + count * 8
    }

    pub(crate) fn landed_version(&self, slot: SlotIndex) -> u64 {
        self.memory[self.version_at(slot)].load(Relaxed)
    }

    /// A word for what nobody wants to know but that it came.
    pub(crate) fn nowhere(&self) -> Range<usize> {
        let end = self.memory.len() * 8;
        end - 8..end
    }

    /// A stage for a call on a home, once one is free: calls hold them for as long as their bounds.
    pub(crate) fn stage(
        &self,
        extent: &Held,
        place: &Place,
        clock: &mut Clock,
    ) -> Result<Stage<'_>, SmcError> {
        let versions = self.table.len().next_multiple_of(PAGE_WORDS);
        let first = self.table.len() * PAGE_WORDS + versions;
        loop {
            if let Some(stage) = self.stages.take(place.home.key(), &self.memory, first) {
                return Ok(stage);
            }
            if !clock.pause() {
                let is_its = self.stages.are_of(place.home.key());
                let waited = clock.waited();
                return Err(if is_its {
                    late(extent, waited)
                } else {
                    SmcError::NoStage { waited }
                });
            }
        }
    }

    /// What was found of a page when it was compared is home.
    pub(crate) fn settled(&self, slot: SlotIndex) {
        self.owed.settle(slot);
        self.marks.sent(slot);
    }

    /// A slot's page is nobody's any more, and owes nothing.
    pub(crate) fn is_gone(&self, slot: SlotIndex) {
        self.owed.settle(slot);
        self.marks.clear(slot);
    }

    /// Lets go of homes that nobody else has any more.
    pub(crate) fn leave_homes(&self) {
        // Not under the lock: what goes with them is the link's.
        let gone: Vec<_> = locked(&self.homes).extract_if(.., Home::is_alone).collect();
        drop(gone);
    }

    /// Has the keeper look.
    pub(crate) fn ring(&self) {
        self.bell.pub_release(1);
    }
}

/// Where the pages of a window are.
fn addresses(paging: &dyn Paging) -> Range<usize> {
    let start = paging.base().addr().get();
    start..start + paging.pages() * PAGE
}

/// The keeper's thread.
struct Keeper {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.inner.stop.store(1, Relaxed);
        self.inner.ring();
        // It may have let go itself of what had the last handle.
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // It panics nowhere, and comes back within its bounds.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} pages)", self.resident(), self.inner.table.len())
    }
}

/// Has the kernel give memory to pages of a pool, whoever uses them meanwhile.
fn touch(words: &[AtomicU64]) {
    for word in words.iter().step_by(PAGE_WORDS) {
        let _ = word.compare_exchange(0, 0, Relaxed, Relaxed);
    }
}

/// Locks the memory of a pool, or says once a process why not, and what to do.
fn lock(memory: &Block) {
    static SAID: Once = Once::new();
    let Err(error) = memory.lock() else { return };
    SAID.call_once(|| {
        tracing::warn!(
            target: "pontoon::smc",
            bytes = memory.bytes(),
            %error,
            "a pool is not locked in memory, and a miss may wait for the kernel: raise RLIMIT_MEMLOCK (`ulimit -l`, \
             LimitMEMLOCK= of systemd, docker --ulimit memlock=-1), or make the pool smaller"
        );
    });
}
