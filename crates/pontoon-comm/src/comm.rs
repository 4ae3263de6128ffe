//! A rank's communication: its proxy, and the ports over it.

use std::sync::{Arc, Mutex};

use pontoon_hal::link::{Link, Registered, Remote, RemoteSignal};
use pontoon_signal::{Rank, Segment, shim::Ordering::Relaxed};

use crate::{
    CommError, Port, Settings,
    channel::{Channel, Route, locked},
    lane::{Haul, Lane},
    proxy::Proxy,
    ring::Ring,
};

/// A rank's communication. Dropping it finishes what is in the rings, within its patience, and ends
/// them: ports that are left then refuse every call.
#[derive(Debug)]
pub struct Comm {
    proxy: Proxy,
    channels: Mutex<Channels>,
}

#[derive(Debug, Default)]
struct Channels {
    /// Of those to the same peer, the last one is for new ports.
    all: Vec<Arc<Channel>>,
    /// What was done by those that are gone.
    past: CommReport,
}

/// What a [`Comm`] has done so far, over all its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommReport {
    /// Rings.
    pub rings: u64,
    /// Rings and triggers that the proxy goes round. A ring is left out once it has ended; a trigger, once
    /// its last handle was dropped and what was fired is done.
    pub lanes: u64,
    /// Tasks that the proxy took.
    pub tasks: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Slots that are in use now, of all rings.
    pub queued: u64,
    /// The most slots of one ring in use at once that the proxy saw. It looks at each sixteenth full
    /// batch, for its look takes a line that kernels write.
    pub deepest: u64,
    /// Rounds in which the proxy had something to do.
    pub busy_rounds: u64,
    /// Rounds in which it had nothing to do. It makes few while it sleeps.
    pub idle_rounds: u64,
    /// How often a link refused a task that the proxy had for it, or had no room: the proxy saw it all the same.
    pub refused: u64,
    /// How often a call woke the proxy from its sleep.
    pub wakes: u64,
}

impl CommReport {
    fn add(&mut self, past: &Self) {
        self.tasks += past.tasks;
        self.bytes += past.bytes;
        self.deepest = self.deepest.max(past.deepest);
    }

    fn add_rings(&mut self, channel: &Channel) {
        for lane in &channel.lanes {
            let (counts, positions) = (&lane.counts, lane.ring().map(Ring::positions));
            let queued = positions.map_or(0, |(head, tail)| head.ahead_of(tail));
            // What is in a ring that has ended is in use no more.
            let queued = if lane.is_over() { 0 } else { u64::try_from(queued).unwrap_or(0) };
            let (tasks, bytes) = (counts.tasks.load(Relaxed), counts.bytes.load(Relaxed));
            self.add(&Self {
                tasks,
                bytes,
                deepest: counts.deepest.load(Relaxed),
                ..Self::default()
            });
            self.rings += 1;
            self.queued += queued;
        }
    }
}

impl Channels {
    /// Lets go of those that have ended and that no port has any more.
    fn forget(&mut self) {
        let Self { all, past } = self;
        all.retain(|channel| {
            let is_over = channel.is_broken() && channel.lanes.iter().all(|lane| lane.is_over());
            // Nobody but this lock's holder can make another handle of the last one.
            let is_gone = is_over && Arc::strong_count(channel) == 1;
            if is_gone {
                let mut gone = CommReport::default();
                gone.add_rings(channel);
                past.add(&gone);
                channel.forget();
            }
            !is_gone
        });
    }
}

impl Comm {
    /// Starts the proxy of rank `own`.
    ///
    /// # Errors
    ///
    /// [`CommError::Setting`], [`CommError::Thread`], [`CommError::Ring`].
    pub fn open(own: Rank, settings: Settings) -> Result<Self, CommError> {
        settings.check()?;
        Ok(Self { proxy: Proxy::start(own, settings)?, channels: Mutex::default() })
    }

    /// The way from `source` to `target`, and to `signal`, which is the same peer's, over `link`. Where a ring to that
    /// peer has ended because a task was refused or given up, or the peer was started again, it goes by a new one.
    ///
    /// # Errors
    ///
    /// [`CommError`].
    ///
    /// # Blocks
    ///
    /// Only where there are as many ports to that peer as tasks can name: as long as the patience, for one that
    /// was dropped to be given back.
    pub fn port(
        &self,
        link: &Arc<dyn Link>,
        source: Registered,
        target: Remote,
        mut signal: Option<RemoteSignal>,
    ) -> Result<Port, CommError> {
        let peer = target.peer();
        link.owns(&source, &target, signal.as_mut())?;
        let channel = self.channel(link, peer)?;
        let route = Arc::new(Route::new(source, target, signal));
        Port::new(channel, Arc::clone(&self.proxy.shared), route)
    }

    fn channel(&self, link: &Arc<dyn Link>, peer: Rank) -> Result<Arc<Channel>, CommError> {
        let mut channels = locked(&self.channels);
        let found = channels.all.iter().rev().find(|channel| channel.is(link, peer));
        if let Some(channel) = found.filter(|channel| !channel.is_broken()) {
            return Ok(Arc::clone(channel));
        }
        let replaced = found.map(Arc::as_ref);
        let settings = &self.proxy.shared.settings;
        let opened: Result<Vec<_>, _> = (0..settings.rings).map(|_| Lane::open(settings)).collect();
        let (lanes, ends): (Vec<_>, Vec<_>) = opened?.into_iter().unzip();
        let channel = Arc::new(Channel::new(Arc::clone(link), peer, lanes.into(), replaced)?);
        let hauls = ends.into_iter().enumerate().map(|(at, ends)| {
            Haul::new(Arc::clone(&channel), Arc::clone(&channel.lanes[at]), ends)
        });
        self.proxy.shared.add(hauls.collect())?;
        channels.forget();
        channels.all.push(Arc::clone(&channel));
        Ok(channel)
    }

    /// Has records written to the flight recorder of this rank's segment: those of [kernels](Port::record),
    /// and of rings that ended before their time. Whether nobody said so before.
    pub fn record_in(&self, segment: &Segment) -> bool {
        self.proxy.shared.record_in(segment.recorder().clone())
    }

    /// What it has done so far.
    pub fn report(&self) -> CommReport {
        let rounds = &self.proxy.shared.rounds;
        let mut report = CommReport {
            busy_rounds: rounds.busy.load(Relaxed),
            idle_rounds: rounds.idle.load(Relaxed),
            lanes: rounds.lanes.load(Relaxed),
            refused: rounds.refused.load(Relaxed),
            wakes: self.proxy.shared.wakes(),
            ..CommReport::default()
        };
        let channels = locked(&self.channels);
        report.add(&channels.past);
        channels.all.iter().for_each(|channel| report.add_rings(channel));
        report
    }

    /// For tests: ends the proxy's thread wherever it is, as if it had been killed, and waits until it has ended.
    #[doc(hidden)]
    pub fn kill_proxy(&self) {
        self.proxy.vanish();
    }

    /// For tests: lets the proxy's thread stand still, and waits until it does, or go on.
    #[doc(hidden)]
    pub fn stop_proxy(&self, still: bool) {
        self.proxy.stand_still(still);
    }
}
