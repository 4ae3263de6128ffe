//! What the tests share: windows, a pager that knows each page's bytes, and this program once more.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
    sync::Arc,
    time::{Duration, Instant},
};

use pontoon_hal::conformance::part;
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
use pontoon_uffd::{
    Fault, Feature, Features, Pager, Placed, ReserveError, Run, Served, Service, Window,
};

const ALONE: &str = "PONTOON_TEST_ALONE";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A kernel that has all of it.
const PART: &str = "userfaultfd";

/// What the kernel has; `None`, and a line that says why, where it has no userfaultfd.
pub(crate) fn features() -> Option<Features> {
    let features = Features::probe();
    let has = features.has(Feature::Missing);
    part::needed(PART, if has { Ok(features) } else { Err(features) })
}

/// Whether the kernel has `feature`, or a line that says that it has not.
pub(crate) fn has(features: &Features, feature: Feature) -> bool {
    let has = features.has(feature);
    part::needed(PART, if has { Ok(()) } else { Err(feature) }).is_some()
}

pub(crate) fn window(features: &Features, pages: usize, service: Service) -> Arc<Window> {
    try_window(features, pages, service).unwrap()
}

pub(crate) fn try_window(
    features: &Features,
    pages: usize,
    service: Service,
) -> Result<Arc<Window>, ReserveError> {
    Window::reserve(features, pages * rustix::param::page_size(), service).map(Arc::new)
}

/// Serves each page with bytes of its own, and counts.
pub(crate) struct Numbered {
    window: Arc<Window>,
    home: Vec<u64>,
    pub(crate) faults: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) copies: AtomicU64,
    pub(crate) poisoned: AtomicU64,
}

/// The first word of a page at its home; the others follow it.
pub(crate) fn at_home(page: usize) -> u64 {
    1 + page as u64 * 1_000_000
}

impl Numbered {
    pub(crate) fn new(window: &Arc<Window>) -> Arc<Self> {
        let words = window.page_bytes() / 8;
        let page = |page| (0..words as u64).map(move |word| at_home(page) + word);
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            window: Arc::clone(window),
            home: (0..window.pages()).flat_map(page).collect(),
            faults: zero(),
            writes: zero(),
            copies: zero(),
            poisoned: zero(),
        })
    }

    pub(crate) fn home(&self, page: usize) -> &[u8] {
        let words = self.window.page_bytes() / 8;
        bytemuck(&self.home[page * words..(page + 1) * words])
    }
}

impl Pager for Numbered {
    fn fault(&self, fault: Fault) -> Served {
        self.faults.fetch_add(1, Relaxed);
        self.writes.fetch_add(u64::from(fault.write), Relaxed);
        if fault.poisoned {
            self.poisoned.fetch_add(1, Relaxed);
        }
        match self.window.copy_in(fault.page, self.home(fault.page), true) {
            Ok(Placed::All) => {
                self.copies.fetch_add(1, Relaxed);
                Served::Again
            }
            Ok(Placed::AlreadyThere { .. }) => Served::Again,
            Err(_) => Served::NotMine,
        }
    }
}

#[allow(unsafe_code)] // words as the bytes they are made of
fn bytemuck(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory, of integers.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// The first word of a page.
pub(crate) fn word(window: &Window, page: usize) -> &AtomicU64 {
    &window.words(page..page + 1).unwrap()[0]
}

/// All pages that were written, by scans with room for `room` runs.
pub(crate) fn written(window: &Window, room: usize) -> Vec<usize> {
    let (mut found, mut next, mut pages) = (vec![Run::default(); room], 0, Vec::new());
    while next < window.pages() {
        let scanned = window.scan(next..window.pages(), &mut found).unwrap();
        assert!(scanned.next > next, "a scan gets on");
        pages.extend(found[..scanned.runs].iter().flat_map(Run::pages));
        next = scanned.next;
    }
    pages
}

/// In a process of its own, the test `name` runs `body`; in the one that the test was started in, that
/// process is started. Who calls it looks at how it ended: `None` in the child.
pub(crate) fn alone(name: &str, body: impl FnOnce()) -> Option<Output> {
    alone_with(name, name, body)
}

/// As [`alone`], and `told` is the last argument of that process: a name of a test like any.
pub(crate) fn alone_with(name: &str, told: &str, body: impl FnOnce()) -> Option<Output> {
    if env::var_os(ALONE).is_some() {
        body();
        return None;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1", told]).env(ALONE, "1");
    Some(command.output().unwrap())
}

/// That the process ended well.
pub(crate) fn passed(output: Option<Output>) {
    let Some(output) = output else { return };
    let ran = told(&output);
    assert!(output.status.success() && ran.contains("1 passed"), "{ran}");
}

/// That the process was ended by `signal`.
pub(crate) fn ended_by(output: Option<Output>, signal: i32) {
    let Some(output) = output else { return };
    assert_eq!(output.status.signal(), Some(signal), "{}", told(&output));
}

pub(crate) fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Yields until `done`, and fails after a while.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited for {what}");
        std::thread::yield_now();
    }
}
