//! A window all of whose stores are made in plain memory.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::{Arc, Mutex};

use pontoon_hal::{
    guard::{Change, Guard, Refusal, Storer, Unmade},
    paging::Paging,
};
use pontoon_signal::{
    Span, Words,
    shim::{AtomicU64, Ordering::Relaxed},
};
use pontoon_uffd::{
    AlternateStack, Attached, Fault, Features, Paged, Served, Service, Source, attach,
    on_this_thread,
};

pub(crate) const PAGES: usize = 4;
pub(crate) const PAGE: usize = 4096;

/// Home in plain memory, and how often it was written to.
pub(crate) struct Home {
    words: Words,
    pub(crate) stores: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) refusals: Mutex<Vec<Refusal>>,
    pub(crate) paged: Arc<Paged>,
}

impl Home {
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        Span::of(self.words.block(), at..at + bytes.len()).expect("within").put(bytes);
        self.paged.discard(at / PAGE..(at + bytes.len()).div_ceil(PAGE)).expect("dropped");
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; PAGES * PAGE];
        Span::of(self.words.block(), 0..bytes.len()).expect("within").get(&mut bytes);
        bytes
    }
}

impl Storer for Home {
    fn store(&self, at: usize, bytes: &[u8]) -> Result<(), Unmade> {
        self.stores.fetch_add(1, Relaxed);
        self.put(at, bytes);
        Ok(())
    }

    fn change(&self, at: usize, bytes: usize, change: Change) -> Result<u64, Unmade> {
        self.changes.fetch_add(1, Relaxed);
        let mut old = [0; 8];
        Span::of(self.words.block(), at..at + bytes).expect("within").get(&mut old[..bytes]);
        let old = u64::from_le_bytes(old);
        if let Some(new) = change.of(old, bytes) {
            self.put(at, &new.to_le_bytes()[..bytes]);
        }
        Ok(old)
    }

    fn refused(&self, refusal: &Refusal) {
        self.refusals.lock().expect("nothing panics under it").push(*refusal);
    }
}

pub(crate) struct Trapped {
    pub(crate) home: Arc<Home>,
    pub(crate) guard: Option<Box<dyn Guard>>,
    _attached: Attached,
    _stack: AlternateStack,
}

/// A window all of which is guarded; `None`, and says so, on a kernel that cannot.
pub(crate) fn trapped() -> Option<Trapped> {
    let paged = match Paged::reserve(&Features::probe(), PAGES * PAGE, Service::InThread) {
        Ok(paged) => paged,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let words = Words::zeroed(PAGES * PAGE / 8).expect("memory");
    let (stores, changes, refusals) = Default::default();
    let home = Arc::new(Home { words, stores, changes, refusals, paged: Arc::clone(&paged) });
    let (window, from) = (Arc::clone(paged.window()), Arc::clone(&home));
    let pager = move |fault: Fault| {
        let bytes = fault.page * PAGE..(fault.page + 1) * PAGE;
        let source = Source::of(from.words.block(), bytes).expect("within");
        window.copy_in(fault.page, source, true).map_or(Served::NotMine, |_| Served::Again)
    };
    let attached = attach(paged.window(), Arc::new(pager)).expect("attached");
    let guard = paged.guard(0..PAGES, Arc::clone(&home) as _).expect("guarded");
    let stack = on_this_thread().expect("a stack");
    Some(Trapped { home, guard: Some(guard), _attached: attached, _stack: stack })
}
