//! Windows in plain memory, whose accesses the test makes by hand, and homes over real links.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod counted;
pub(crate) mod lines;
pub(crate) mod modest;
pub(crate) mod silent;
pub(crate) mod start;

use core::{ops::Range, ptr::NonNull};
use std::{
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use pontoon_hal::{
    link::{Link, Registered, Remote},
    paging::{PAGE, PAGE_WORDS, PageFault, Pager, Paging, PagingError, Served, Written},
};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{
    Bound, Rank, Segment, SegmentShape, Words,
    shim::{AtomicU64, Ordering::Relaxed, yield_now},
};
use pontoon_smc::{Layout, Settings, Window};

/// Far beyond what anything here takes.
pub(crate) fn patient() -> Bound {
    Bound::within(Duration::from_secs(60))
}

/// Of a pool of so many pages that fetches what is asked for alone, makes room when there is none, and gives up no home.
pub(crate) fn settings(pages: usize, deadline: Duration) -> Settings {
    let mut settings = Settings::for_pages(pages);
    (settings.deadline, settings.ahead, settings.low) = (deadline, 1, 0);
    settings.threshold = 1_000_000;
    settings
}

/// Looks until that holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited 30 s for {what}");
        yield_now();
    }
}

pub(crate) type Happening = Box<dyn FnOnce() + Send>;

/// What is done to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Place,
    Take,
}

/// A window in plain memory. What the kernel notices, it notices by copies.
pub(crate) struct Plain {
    words: Words,
    pages: usize,
    state: Mutex<State>,
    /// What comes before a page is put in place or taken away the next time.
    before: Mutex<Option<(Change, usize, Happening)>>,
}

impl core::fmt::Debug for Plain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Plain").field("pages", &self.pages).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    there: Vec<bool>,
    /// What was in each page when it was last looked at.
    seen: Vec<Vec<u64>>,
    /// Pages that are read only.
    closed: Vec<bool>,
    /// Whether what is to be put back is lost.
    loses: bool,
}

impl Plain {
    pub(crate) fn new(pages: usize) -> Arc<Self> {
        let words = Words::zeroed(pages * PAGE_WORDS).unwrap();
        let [there, closed] = [(); 2].map(|()| vec![false; pages]);
        let state = State { there, closed, seen: vec![Vec::new(); pages], loses: false };
        Arc::new(Self { words, pages, state: Mutex::new(state), before: Mutex::default() })
    }

    /// Loses each page that is to be put back, as the kernel does without memory.
    pub(crate) fn lose(&self) {
        self.state.lock().unwrap().loses = true;
    }

    /// Has that happen before `page` is put in place, or taken away, the next time.
    pub(crate) fn before(
        &self,
        change: Change,
        page: usize,
        happens: impl FnOnce() + Send + 'static,
    ) {
        *self.before.lock().unwrap() = Some((change, page, Box::new(happens)));
    }

    fn about_to(&self, change: Change, page: usize) {
        let mut before = self.before.lock().unwrap();
        let happens = before.take_if(|(what, at, _)| (*what, *at) == (change, page));
        drop(before);
        if let Some((.., happens)) = happens {
            happens();
        }
    }

    fn is_closed(&self, page: usize) -> bool {
        self.state.lock().unwrap().closed[page]
    }

    /// An access: nobody takes the page away while it is made. `None` if the page is not there.
    fn access<T>(&self, page: usize, access: impl FnOnce(&[AtomicU64]) -> T) -> Option<T> {
        let state = self.state.lock().unwrap();
        state.there[page].then(|| access(self.words(page)))
    }

    fn now(&self, page: usize) -> Vec<u64> {
        self.words(page).iter().map(|word| word.load(Relaxed)).collect()
    }

    /// A page that is away holds rubbish, which nobody may take for anything.
    fn spoil(&self, page: usize) {
        self.words(page).iter().for_each(|word| word.store(0xBAD0_BAD0_BAD0_BAD0, Relaxed));
    }
}

impl Paging for Plain {
    fn pages(&self) -> usize {
        self.pages
    }

    fn base(&self) -> NonNull<u8> {
        self.words.block().base()
    }

    fn asks_in_handler(&self) -> bool {
        true
    }

    fn words(&self, page: usize) -> &[AtomicU64] {
        &self.words[page * PAGE_WORDS..(page + 1) * PAGE_WORDS]
    }

    fn is_there(&self, page: usize) -> bool {
        self.state.lock().unwrap().there[page]
    }

    fn place(
        &self,
        page: usize,
        from: &pontoon_signal::Block,
        there: &mut dyn FnMut(usize),
    ) -> Result<(), PagingError> {
        self.about_to(Change::Place, page);
        let mut state = self.state.lock().unwrap();
        for placed in 0..from.bytes() / PAGE {
            let at = page + placed;
            if state.there[at] {
                there(at);
                continue;
            }
            let source =
                pontoon_signal::Span::of(from, placed * PAGE..(placed + 1) * PAGE).unwrap();
            for (index, word) in self.words(at).iter().enumerate() {
                word.store(source.word(index * 8).unwrap().load(Relaxed), Relaxed);
            }
            state.there[at] = true;
            state.seen[at] = self.now(at);
        }
        Ok(())
    }

    fn written(
        &self,
        pages: Range<usize>,
        found: &mut [Range<usize>],
    ) -> Result<Written, PagingError> {
        let mut state = self.state.lock().unwrap();
        let mut ranges = 0;
        for page in pages.clone() {
            if !state.there[page] || state.seen[page] == self.now(page) {
                continue;
            }
            if ranges > 0 && found[ranges - 1].end == page {
                found[ranges - 1].end += 1;
            } else if ranges == found.len() {
                return Ok(Written { ranges, next: page });
            } else {
                found[ranges] = page..page + 1;
                ranges += 1;
            }
            state.seen[page] = self.now(page);
        }
        Ok(Written { ranges, next: pages.end })
    }

    fn take(
        &self,
        page: usize,
        last: &mut dyn FnMut(&[AtomicU64]) -> bool,
    ) -> Result<bool, PagingError> {
        self.about_to(Change::Take, page);
        let mut state = self.state.lock().unwrap();
        if state.there[page] {
            if !last(self.words(page)) {
                if !state.loses {
                    return Ok(false);
                }
                state.there[page] = false;
                self.spoil(page);
                return Err(PagingError::loss(12));
            }
            state.there[page] = false;
            self.spoil(page);
        }
        Ok(true)
    }

    fn discard(&self, pages: Range<usize>) -> Result<(), PagingError> {
        let mut state = self.state.lock().unwrap();
        for page in pages {
            state.there[page] = false;
            self.spoil(page);
        }
        Ok(())
    }

    fn read_only(&self, pages: Range<usize>) -> Result<(), PagingError> {
        self.state.lock().unwrap().closed[pages].fill(true);
        Ok(())
    }

    fn guarded(&self, mut pages: Range<usize>) -> Option<Range<usize>> {
        let closed = &self.state.lock().unwrap().closed;
        let first = pages.find(|&page| closed[page])?;
        Some(first..first + 1)
    }
}

/// A window and the memory that it is in.
pub(crate) struct Client {
    pub(crate) window: Window,
    pub(crate) plain: Arc<Plain>,
    pager: OnceLock<Arc<dyn Pager>>,
}

impl Client {
    pub(crate) fn new(window: Window, plain: Arc<Plain>) -> Self {
        Self { window, plain, pager: OnceLock::new() }
    }

    /// Makes a page be there, as an access does.
    pub(crate) fn touch(&self, page: usize) {
        self.access(page, |_| ());
    }

    fn access<T>(&self, page: usize, access: impl Fn(&[AtomicU64]) -> T) -> T {
        let pager = self.pager.get_or_init(|| self.window.pager());
        for _ in 0..1000 {
            if let Some(value) = self.plain.access(page, &access) {
                return value;
            }
            let fault = PageFault { page, write: false };
            assert_eq!(pager.fault(fault), Served::Again);
        }
        panic!("page {page} does not come");
    }

    pub(crate) fn load(&self, byte: usize) -> u8 {
        let word = |words: &[AtomicU64]| words[byte / 8 % PAGE_WORDS].load(Relaxed);
        self.access(byte / PAGE, word).to_ne_bytes()[byte % 8]
    }

    pub(crate) fn store(&self, byte: usize, value: u8) {
        assert!(!self.plain.is_closed(byte / PAGE), "byte {byte} is read only");
        self.access(byte / PAGE, |words| {
            let word = &words[byte / 8 % PAGE_WORDS];
            let mut seen = word.load(Relaxed);
            loop {
                let mut bytes = seen.to_ne_bytes();
                bytes[byte % 8] = value;
                // A store of one byte, while the others of its word may be merged.
                let new = u64::from_ne_bytes(bytes);
                match word.compare_exchange(seen, new, Relaxed, Relaxed) {
                    Ok(_) => return,
                    Err(now) => seen = now,
                }
            }
        });
    }
}

/// Rank 0 has memory, and rank 1 reaches it.
pub(crate) struct Pair {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) home: Registered,
    pub(crate) region: Remote,
    pub(crate) layout: Layout,
    _server: ShmLink,
}

pub(crate) fn pair(pages: usize) -> Pair {
    let layout = Layout::of(pages * PAGE);
    let segments = [0, 1].map(|rank| {
        let shape = SegmentShape::new(2, 8, layout.region() + (1 << 20));
        Segment::create(shape, identity([0; 16], Rank(rank), 2, 0)).expect("a segment")
    });
    let [server, client] = [0, 1].map(|me: usize| {
        let link = ShmLink::new(segments[me].clone());
        link.connect(Rank(1 - me as u32), segments[1 - me].clone()).expect("connected");
        link
    });
    let memory = server.segment().allocate(layout.region()).expect("room in the heap");
    let home = server.register(&memory).expect("registered");
    let region = client.attach(Rank(0), home.key().expect("a key")).expect("attached");
    Pair { link: Arc::new(client), home, region, layout, _server: server }
}

impl Pair {
    /// A byte at home.
    pub(crate) fn at_home(&self, byte: usize) -> u8 {
        let block = self.home.block();
        let at = self.layout.data() + byte / 8 * 8;
        let span = pontoon_signal::Span::of(block, at..at + 8).expect("within");
        span.word(0).expect("aligned").load(Relaxed).to_ne_bytes()[byte % 8]
    }

    /// The page at `byte` has changed.
    pub(crate) fn publish(&self, byte: usize) {
        let at = byte / PAGE * 8;
        let span = pontoon_signal::Span::of(self.home.block(), at..at + 8).expect("within");
        span.word(0).expect("aligned").fetch_add(1, Relaxed);
    }

    /// How often a page has changed, by what is said of it.
    pub(crate) fn version(&self, page: usize) -> u64 {
        let span = pontoon_signal::Span::of(self.home.block(), page * 8..page * 8 + 8);
        span.expect("within").word(0).expect("aligned").load(Relaxed)
    }

    pub(crate) fn put_home(&self, byte: usize, bytes: &[u8]) {
        let at = self.layout.data() + byte;
        let span = pontoon_signal::Span::of(self.home.block(), at..at + bytes.len());
        span.expect("within").put(bytes);
    }
}
