//! Faults served by threads of our own.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use pontoon_signal::{
    Host, Nanos, Os, SystemError,
    shim::{AtomicU64, Ordering::Relaxed},
    spawn_undisturbed,
};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fd::OwnedFd,
    io::Errno,
};

use crate::{
    Fault, Feature, Pager, ServeError, Served, Service, Window, abi, error::system,
    window::Tracking,
};

/// Threads that serve the faults of a window, which was set aside for
/// [`Served`](crate::Service::Served). They end when this is dropped, once the pager has answered what
/// it was asked; from then on each access to the window raises SIGSEGV, for nobody is left who could
/// end its fault.
///
/// Every fault ends by the pager's answer: after [`Served::Again`] the threads that wait at the page
/// are woken, whatever was done, and after [`Served::NotMine`], or a panic, the page is
/// [poisoned](Window::poison), or closed on a kernel that cannot do that, so that they get a signal.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    window: Arc<Window>,
    pager: Arc<dyn Pager>,
    /// Readable once the server ends.
    stop: OwnedFd,
    stopping: AtomicU64,
    row: Mutex<Row>,
}

/// Faults that were read while no thread was free for them, and threads that are.
#[derive(Debug, Default)]
struct Row {
    faults: VecDeque<Read>,
    /// How many threads wait for faults. Where one does, no fault is in the row.
    idle: usize,
}

/// A fault that was read, and when.
#[derive(Clone, Copy, Debug)]
struct Read {
    message: abi::Message,
    at: Nanos,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("window", &self.window).finish_non_exhaustive()
    }
}

/// How many faults are read at a time where no thread is free: from then on their time counts.
const AT_ONCE: usize = 64;

impl Server {
    /// Starts `threads` threads, or one if that is 0.
    ///
    /// # Errors
    ///
    /// [`ServeError`]: the window is of the other kind, or has a server, or no thread was to be had.
    pub fn start(
        window: &Arc<Window>,
        pager: Arc<dyn Pager>,
        threads: usize,
    ) -> Result<Self, ServeError> {
        if window.service() != Service::Served || !window.is_here() {
            return Err(ServeError::OtherService);
        }
        if window.served.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
            return Err(ServeError::Served);
        }
        let free = |error: SystemError| {
            window.served.store(0, Relaxed);
            ServeError::from(error)
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = eventfd(0, flags).map_err(system("eventfd")).map_err(free)?;
        // A server before this one has closed it.
        window.let_through().map_err(system("mprotect")).map_err(free)?;
        let (stopping, window) = (AtomicU64::new(0), Arc::clone(window));
        let faults = VecDeque::with_capacity(AT_ONCE);
        let row = Mutex::new(Row { faults, idle: 0 });
        let shared = Arc::new(Shared { window, pager, stop, stopping, row });
        let mut server = Self { shared, threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&server.shared);
            // What the program's handlers do may need a page that it is about to put in.
            let started = spawn_undisturbed("pontoon-uffd", move || shared.run())?;
            server.threads.push(started);
        }
        Ok(server)
    }
}

impl Shared {
    fn run(&self) {
        while self.stopping.load(Relaxed) == 0 {
            if let Some(read) = self.next() {
                self.serve(&read);
            }
        }
    }

    /// The next fault: of those that were read, or as soon as there is one.
    fn next(&self) -> Option<Read> {
        {
            let mut row = self.row();
            if let Some(read) = row.faults.pop_front() {
                // The time of those that came meanwhile counts too.
                self.read(&mut row, AT_ONCE);
                return Some(read);
            }
            row.idle += 1;
        }
        let is_there = self.wait();
        let mut row = self.row();
        row.idle -= 1;
        if is_there {
            // What others are free for is theirs: they do not wait for this one.
            let most = if row.idle > 0 { 1 } else { AT_ONCE };
            self.read(&mut row, most);
        }
        row.faults.pop_front()
    }

    /// Waits until there may be a fault.
    fn wait(&self) -> bool {
        let mut files = [
            PollFd::new(self.window.descriptor(), PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::IN),
        ];
        match poll(&mut files, None) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            // Short of memory: the next try may have it.
            Err(_) => thread::yield_now(),
        }
        files[0].revents().intersects(PollFlags::IN)
    }

    /// Reads faults into the row, as many as are there, up to so many in it.
    fn read(&self, row: &mut Row, most: usize) {
        let mut messages = [abi::Message::default(); AT_ONCE];
        let room = most.saturating_sub(row.faults.len());
        if room > 0 {
            let count = self.window.descriptor().read(&mut messages[..room]).unwrap_or(0);
            let at = Os.now();
            row.faults.extend(messages[..count].iter().map(|&message| Read { message, at }));
        }
    }

    /// Nobody who has it calls the pager.
    fn row(&self) -> MutexGuard<'_, Row> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, read: &Read) {
        let Read { message, at: since } = read;
        if message.event != abi::UFFD_EVENT_PAGEFAULT {
            return;
        }
        let window = &self.window;
        let Some((page, at)) = window.page_at(message.address as usize) else { return };
        if message.flags & abi::UFFD_PAGEFAULT_FLAG_WP != 0 {
            if let Tracking::Faults(noted) = &window.tracking {
                // Opening it wakes who waits; a page that is gone by now is absent, and faults anew.
                let _ = noted.note(page..page + 1, || window.protect(page..page + 1, false));
            }
            let _ = window.wake(page..page + 1);
            return;
        }
        let write = message.flags & abi::UFFD_PAGEFAULT_FLAG_WRITE != 0;
        let waited = Os.now().since(*since).as_duration();
        let fault = Fault { page, at, write, poisoned: window.is_poisoned(page), waited };
        let asked = catch_unwind(AssertUnwindSafe(|| self.pager.fault(fault)));
        if asked.unwrap_or(Served::NotMine) == Served::NotMine {
            self.refuse(page);
        }
        let _ = window.wake(page..page + 1);
    }

    /// Has the threads that wait at `page` get a signal.
    fn refuse(&self, page: usize) {
        let window = &self.window;
        let poisons = window.features().has(Feature::Poison);
        if poisons && window.poison(page..page + 1).is_ok() {
            return;
        }
        let bytes = page * window.page_bytes()..(page + 1) * window.page_bytes();
        let _ = window.reserved().close(bytes);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.shared.window.is_here() {
            // A child has none of the threads.
            self.threads.drain(..).for_each(core::mem::forget);
            return;
        }
        let window = &self.shared.window;
        // While there is who serves the faults of those who look: else it would wait for them below, and they for nobody.
        window.leave();
        self.shared.stopping.store(1, Relaxed);
        // It is readable until it is closed, for each of them.
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let _ = window.shut();
        let _ = window.wake(0..window.pages());
        window.served.store(0, Relaxed);
    }
}
