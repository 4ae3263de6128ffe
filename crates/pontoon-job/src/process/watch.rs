//! One thread that sees processes of this machine end, without any help from them.
//!
//! A pidfd becomes readable when the process has ended, before anybody has waited for it, so the
//! thread sleeps until something happens. Where the kernel or a sandbox gives no pidfd, or no
//! descriptor is left, it looks at `/proc` every [`LOOK`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
};

use pontoon_signal::{Life, ProcessId, SystemError, Vigil};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::{Waker, lock};

/// How often `/proc` is looked at for a process without a pidfd.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// How long to wait after a poll that failed, for want of memory.
const RETRY: std::time::Duration = std::time::Duration::from_millis(10);

type OnExit = Box<dyn FnOnce() + Send>;

/// Watches processes of this machine and calls back when one has ended.
///
/// A callback runs on the watching thread: it should hand on and return. Dropping the watcher ends
/// the watch; callbacks not called by then are not called.
///
/// ```
/// use pontoon_job::{ProcessId, Watcher};
/// use std::{process::Command, sync::mpsc, time::Duration};
///
/// let watcher = Watcher::start()?;
/// let mut child = Command::new("sleep").arg("60").spawn()?;
/// let (told, tells) = mpsc::channel();
/// watcher.watch(ProcessId::of(child.id())?.expect("it runs"), move || told.send(()).unwrap());
/// child.kill()?;
/// tells.recv_timeout(Duration::from_secs(5))?;
/// child.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    pidfds: bool,
}

#[derive(Debug)]
struct Shared {
    news: Mutex<News>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct News {
    watched: Vec<Watched>,
    stop: bool,
}

struct Watched {
    process: ProcessId,
    /// `None` where no pidfds are to be used.
    vigil: Option<Vigil>,
    on_exit: OnExit,
}

impl Watched {
    /// Whether nothing wakes the thread when it ends.
    fn needs_look(&self) -> bool {
        self.vigil.as_ref().and_then(Vigil::pidfd).is_none()
    }

    /// Looks whether it has ended.
    fn has_ended(&mut self) -> bool {
        let life = self.vigil.as_mut().map_or_else(|| self.process.look(), Vigil::look);
        life == Life::Gone
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system gives no thread or no eventfd.
    pub fn start() -> Result<Self, SystemError> {
        Self::with(true)
    }

    /// Starts a watcher that uses no pidfds, as on a machine that has none: an end is seen within
    /// some 10 ms.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub fn looking() -> Result<Self, SystemError> {
        Self::with(false)
    }

    fn with(pidfds: bool) -> Result<Self, SystemError> {
        let shared = Arc::new(Shared { news: Mutex::default(), waker: Waker::new()? });
        let thread_shared = Arc::clone(&shared);
        crate::sys::spawn("pontoon-watch", move || run(&thread_shared))?;
        Ok(Self { shared, pidfds })
    }

    /// Calls `on_exit`, once, when `process` has ended; at once if it has already, or if its pid
    /// belongs to another by now.
    pub fn watch(&self, process: ProcessId, on_exit: impl FnOnce() + Send + 'static) {
        let vigil = self.pidfds.then(|| Vigil::over(process));
        let watched = Watched { process, vigil, on_exit: Box::new(on_exit) };
        lock(&self.shared.news).watched.push(watched);
        self.shared.waker.wake();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        lock(&self.shared.news).stop = true;
        self.shared.waker.wake();
    }
}

fn run(shared: &Shared) {
    let mut all: Vec<Watched> = Vec::new();
    loop {
        let ready = wait(shared, &all);
        for index in (0..all.len()).rev() {
            let ended = ready.get(index).is_some_and(|&ready| ready);
            if ended || all[index].needs_look() && all[index].has_ended() {
                call(all.swap_remove(index));
            }
        }
        shared.waker.clear();
        let mut news = lock(&shared.news);
        if news.stop {
            return;
        }
        let fresh = std::mem::take(&mut news.watched);
        drop(news);
        for mut watched in fresh {
            if watched.has_ended() { call(watched) } else { all.push(watched) }
        }
    }
}

/// Sleeps until a pidfd is readable, news came, or it is time to look; which pidfds are readable.
fn wait(shared: &Shared, all: &[Watched]) -> Vec<bool> {
    let mut fds = vec![shared.waker.poll_fd()];
    let pidfds: Vec<_> = all.iter().map(|it| it.vigil.as_ref().and_then(Vigil::pidfd)).collect();
    fds.extend(pidfds.iter().flatten().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
    let looks = all.iter().any(Watched::needs_look);
    if poll(&mut fds, looks.then_some(&LOOK)).is_err() {
        thread::sleep(RETRY);
        return Vec::new();
    }
    let mut ready = fds[1..].iter().map(|fd| !fd.revents().is_empty());
    pidfds.iter().map(|pidfd| pidfd.is_some() && ready.next() == Some(true)).collect()
}

fn call(watched: Watched) {
    let process = watched.process;
    if catch_unwind(AssertUnwindSafe(watched.on_exit)).is_err() {
        tracing::error!(target: "pontoon::job", %process, "what an exit was to call panicked");
    }
}
