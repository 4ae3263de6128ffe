//! Messages to another rank, which a kernel starts, or the host.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pontoon::{
    Bound, Context, Kernel, Rank,
    comm::{Comm, Mode, Port, SendError, Strong, Trigger},
    hal::link::{Order, Remote, RemoteSignal},
    world::{Shared as SharedBlock, Way},
};

use super::{
    failed::{Failed, Failure},
    pages::{Mirror, PARTS},
};
use crate::train::error::TrainError;

/// Who starts what is sent, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Initiate {
    /// The kernel ends, the host wakes, and the host sends
    Host,
    /// The kernel puts tasks in a ring, from which a proxy sends
    Ring,
    /// The kernel stores in the peer's memory, where that is mapped
    Direct,
    /// The host prepares what is to be sent, and the kernel fires it
    Triggered,
    /// Where the peer's memory is mapped, each call takes the one of the kernel's own stores and the ring that
    /// was cheaper so far; else the ring
    Auto,
}

/// Bytes of one of this rank's regions, and where they go: to the same place of the peer's.
pub(super) struct Part {
    pub(super) from: SharedBlock,
    pub(super) to: Remote,
}

/// What sends one kind of message: some parts, and then one signal for all of them.
pub(super) struct Sender {
    peer: Rank,
    means: Means,
    failed: Failed,
    bound: Duration,
    #[cfg(test)]
    pub(super) breaks: super::faulty::Breaks,
}

enum Means {
    Host {
        way: Way,
        parts: Vec<Part>,
        signal: Mutex<RemoteSignal>,
    },
    /// The last port has the signal.
    Ports(Vec<Port>),
    /// The parts are stored to the mirror, if there is one: rank 0 has none, whose memory the other maps.
    Pages {
        way: Way,
        mirror: Option<Arc<Mirror>>,
        signal: Mutex<RemoteSignal>,
    },
    /// The ports, and what was prepared over them so far: for which ranges of bytes.
    Triggered {
        ports: Vec<Port>,
        prepared: Mutex<Vec<(Vec<Range<usize>>, Trigger)>>,
    },
}

impl Sender {
    /// Sends over `way`, each message within `bound`. The first failure is kept in `failed`.
    ///
    /// # Errors
    ///
    /// [`TrainError::NoWay`] for stores in memory that is not mapped; what the links say.
    pub(super) fn new(
        (way, initiate, comm): (&Way, Initiate, &Comm),
        parts: Vec<Part>,
        signal: RemoteSignal,
        failed: &Failed,
        bound: Duration,
    ) -> Result<Self, TrainError> {
        let means = if initiate == Initiate::Host {
            Means::Host { way: way.clone(), parts, signal: Mutex::new(signal) }
        } else {
            let last = parts.len().saturating_sub(1);
            let mut signal = Some(signal);
            let port = |(at, part): (usize, &Part)| -> Result<Port, TrainError> {
                let signal = if at == last { signal.take() } else { None };
                let port = way.port(comm, &part.from, &part.to, signal)?;
                Ok(match initiate {
                    Initiate::Direct => port.in_mode(Mode::Direct).map_err(TrainError::NoWay)?,
                    Initiate::Ring => port.in_mode(Mode::Ring).map_err(TrainError::NoWay)?,
                    _ => port,
                })
            };
            let ports = parts.iter().enumerate().map(port).collect::<Result<_, _>>()?;
            match initiate {
                Initiate::Triggered => Means::Triggered { ports, prepared: Mutex::default() },
                _ => Means::Ports(ports),
            }
        };
        Ok(Self::by(means, way.peer(), failed, bound))
    }

    /// Has the peer find in memory of rank 0 what is sent: by way of `mirror`, unless it is this rank's.
    pub(super) fn through_pages(
        way: &Way,
        mirror: Option<&Arc<Mirror>>,
        signal: RemoteSignal,
        failed: &Failed,
        bound: Duration,
    ) -> Self {
        let (mirror, signal) = (mirror.cloned(), Mutex::new(signal));
        let means = Means::Pages { way: way.clone(), mirror, signal };
        Self::by(means, way.peer(), failed, bound)
    }

    fn by(means: Means, peer: Rank, failed: &Failed, bound: Duration) -> Self {
        Self {
            peer,
            means,
            failed: failed.clone(),
            bound,
            #[cfg(test)]
            breaks: Default::default(),
        }
    }

    /// A kernel that sends the bytes of its accesses from `first` on, one a part, and signals. Its
    /// arguments are [those](Self::arguments) of the message.
    pub(super) fn kernel(self: &Arc<Self>, first: usize) -> Kernel {
        let sender = Arc::clone(self);
        Kernel::new(move |kernel| {
            #[cfg(test)]
            sender.breaks.in_kernel();
            // The host sends when this has ended.
            if !sender.is_by_host() {
                sender.sent(|| sender.send_in(kernel, first));
            }
        })
    }

    /// Sends a message, unless one failed before: what comes after that is not sent, for the peer would take
    /// it for the one that failed. The failure is noted for the host.
    fn sent(&self, send: impl FnOnce() -> Result<(), Failure>) {
        if self.failed.get().is_some() {
            return;
        }
        #[cfg(test)]
        let send = || {
            self.breaks.in_send(self.peer)?;
            send()
        };
        if let Err(error) = send() {
            self.failed.note(error);
        }
    }

    /// A message that nothing is there for.
    fn lacks(&self, what: &'static str) -> SendError {
        SendError::Impossible { peer: self.peer, what }
    }

    fn send_in(&self, kernel: &Context<'_>, first: usize) -> Result<(), Failure> {
        let bound = Bound::within(self.bound);
        let to = |at: usize| kernel.argument(at) as usize * size_of::<f32>();
        match &self.means {
            Means::Host { .. } => Ok(()),
            Means::Ports(ports) => {
                let (last, others) = ports.split_last().ok_or_else(|| self.lacks("port"))?;
                for (at, port) in others.iter().enumerate() {
                    let bytes = kernel.read::<f32>(first + at);
                    // What the bytes are read for is done when the signal's task is, which follows.
                    drop(port.put(bytes, to(at))?.detach());
                }
                let at = others.len();
                let bytes = kernel.read::<f32>(first + at);
                let mut sent = if bytes.is_empty() {
                    last.signal(1, Strong)?
                } else {
                    last.put_signal(bytes, to(at), 1, Strong)?
                };
                Ok(sent.wait(bound)?)
            }
            Means::Pages { way, mirror, signal } => {
                if let Some(mirror) = mirror {
                    for part in 0..PARTS {
                        mirror.store(part, to(part), kernel.read::<f32>(first + part))?;
                    }
                    mirror.release()?;
                }
                let seq = way.tell(&mut locked(signal), 1, Order::Strong)?;
                Ok(way.done(seq, bound)?)
            }
            Means::Triggered { ports, prepared } => {
                let at = kernel.argument(ports.len()) as usize;
                let trigger = locked(prepared).get(at).map(|(_, trigger)| trigger.clone());
                let trigger = trigger.ok_or_else(|| self.lacks("trigger of that number"))?;
                Ok(trigger.fire()?.wait(bound)?)
            }
        }
    }

    /// The arguments of a message of these elements, one range a part.
    ///
    /// # Errors
    ///
    /// What there is to prepare could not be.
    pub(super) fn arguments(&self, elements: &[Range<usize>]) -> Result<Vec<u64>, TrainError> {
        let mut arguments: Vec<_> = elements.iter().map(|range| range.start as u64).collect();
        if let Means::Triggered { ports, prepared } = &self.means {
            let bytes: Vec<_> = elements.iter().map(bytes).collect();
            let mut prepared = locked(prepared);
            let known = prepared.iter().position(|(of, _)| *of == bytes);
            let at = match known {
                Some(at) => at,
                None => {
                    let trigger = self.prepare(ports, &bytes)?;
                    prepared.push((bytes, trigger));
                    prepared.len() - 1
                }
            };
            arguments.push(at as u64);
        }
        Ok(arguments)
    }

    /// What the kernel fires for a message of these bytes.
    fn prepare(&self, ports: &[Port], bytes: &[Range<usize>]) -> Result<Trigger, TrainError> {
        let last = ports.last().ok_or_else(|| self.lacks("port"))?;
        let mut prepared = last.prepare();
        for (port, range) in ports.iter().zip(bytes).filter(|(_, range)| !range.is_empty()) {
            prepared = prepared.put_by(port, range.clone(), range.start)?;
        }
        Ok(prepared.signal(1)?.arm()?)
    }

    /// Whether the host has to send when the kernel has ended.
    pub(super) fn is_by_host(&self) -> bool {
        matches!(self.means, Means::Host { .. })
    }

    /// Sends these elements, as the host.
    pub(super) fn send_by_host(&self, elements: &[Range<usize>]) {
        let Means::Host { way, parts, signal } = &self.means else { return };
        self.sent(|| {
            let mut signal = locked(signal);
            for (part, range) in parts.iter().zip(elements).filter(|(_, range)| !range.is_empty()) {
                let bytes = bytes(range);
                let offset = bytes.start;
                way.write(&part.from, bytes, &part.to, offset)?;
            }
            let seq = way.tell(&mut signal, 1, Order::Strong)?;
            Ok(way.done(seq, Bound::within(self.bound))?)
        });
    }
}

fn bytes(elements: &Range<usize>) -> Range<usize> {
    elements.start * size_of::<f32>()..elements.end * size_of::<f32>()
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
