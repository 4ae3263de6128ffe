//! Who is alive: one thread a link that sleeps until the process of a peer ends.
//!
//! The kernel tells the end of a process by a descriptor (pidfd), at once, without any help from it
//! and before it is reaped. Where a sandbox forbids that, or no descriptor is left, the thread looks
//! at pid and start time every 20 ms instead. A look that fails shows nothing, and is made again.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use pontoon_signal::{Life, SystemError, Vigil};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fd::OwnedFd,
    time::Timespec,
};

use crate::{error::system, link::Home, peer::Peer};

/// How often those are looked at that the kernel tells nothing of.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long to wait after a poll that failed.
const RETRY: Duration = Duration::from_millis(1);

/// A life of a peer that is watched over.
pub(crate) struct Ward {
    peer: Arc<Peer>,
    vigil: Vigil,
}

impl Ward {
    pub(crate) fn new(peer: Arc<Peer>) -> Self {
        let vigil = Vigil::over(peer.segment.identity().process());
        Self { peer, vigil }
    }
}

/// The thread, if there is anybody to watch over.
pub(crate) struct Watch {
    home: Arc<Home>,
    asked: Arc<Asked>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread is told.
#[derive(Default)]
struct Asked {
    orders: Mutex<Orders>,
    bell: Mutex<Option<Arc<OwnedFd>>>,
}

#[derive(Default)]
struct Orders {
    wards: Vec<Ward>,
    stop: bool,
}

impl Watch {
    pub(crate) fn new(home: Arc<Home>) -> Self {
        Self { home, asked: Arc::default(), thread: Mutex::default() }
    }

    /// Watches over one more.
    pub(crate) fn over(&self, ward: Ward) -> Result<(), SystemError> {
        self.start()?;
        locked(&self.asked.orders).wards.push(ward);
        self.asked.ring();
        Ok(())
    }

    fn start(&self) -> Result<(), SystemError> {
        let mut thread = locked(&self.thread);
        if thread.is_some() {
            return Ok(());
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).map_err(system("eventfd"))?);
        *locked(&self.asked.bell) = Some(Arc::clone(&bell));
        let (home, asked) = (Arc::clone(&self.home), Arc::clone(&self.asked));
        let started = thread::Builder::new()
            .name("pontoon-watch".into())
            .spawn(move || watch(&home, &asked, &bell))
            .map_err(|error| SystemError {
                call: "clone",
                code: error.raw_os_error().unwrap_or_default(),
            })?;
        *thread = Some(started);
        Ok(())
    }
}

impl Asked {
    fn ring(&self) {
        if let Some(bell) = &*locked(&self.bell) {
            // It fails if the bell has rung 2^64 times and nobody came: then it is ringing.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

fn watch(home: &Home, asked: &Asked, bell: &OwnedFd) {
    let mut wards: Vec<Ward> = Vec::new();
    loop {
        {
            let mut orders = locked(&asked.orders);
            if orders.stop {
                return;
            }
            wards.append(&mut orders.wards);
        }
        // One that was ended by others is watched on: its claims are its own as long as it runs.
        wards.retain_mut(|ward| {
            let gone = ward.vigil.look() == Life::Gone;
            if gone {
                home.gone(&ward.peer);
            }
            !gone
        });
        let told: Vec<_> = wards.iter().filter_map(|ward| ward.vigil.pidfd()).collect();
        let all_told = told.len() == wards.len();
        let mut fds = vec![PollFd::new(bell, PollFlags::IN)];
        fds.extend(told.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        if poll(&mut fds, (!all_told).then_some(&LOOK)).is_err() {
            // For want of memory, or by a signal.
            thread::sleep(RETRY);
        } else if !fds[0].revents().is_empty() {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Watch {
    fn drop(&mut self) {
        locked(&self.asked.orders).stop = true;
        self.asked.ring();
        if let Some(thread) = locked(&self.thread).take() {
            // It panics nowhere, and has nothing to say.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
