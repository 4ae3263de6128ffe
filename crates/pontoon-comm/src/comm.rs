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
    channels: Mutex<Vec<Arc<Channel>>>,
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
    /// How often a call woke the proxy from its sleep.
    pub wakes: u64,
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

    /// The way from `source` to `target`, and to `signal`, which is the same peer's, over `link`.
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
        signal: Option<RemoteSignal>,
    ) -> Result<Port, CommError> {
        let peer = target.peer();
        if signal.as_ref().is_some_and(|signal| signal.peer() != peer) {
            return Err(CommError::Foreign("the signal"));
        }
        let channel = self.channel(link, peer)?;
        let route = Arc::new(Route::new(source, target, signal));
        Port::new(channel, Arc::clone(&self.proxy.shared), route)
    }

    fn channel(&self, link: &Arc<dyn Link>, peer: Rank) -> Result<Arc<Channel>, CommError> {
        let mut channels = locked(&self.channels);
        if let Some(channel) = channels.iter().find(|channel| channel.is(link, peer)) {
            return Ok(Arc::clone(channel));
        }
        let settings = &self.proxy.shared.settings;
        let opened: Result<Vec<_>, _> = (0..settings.rings).map(|_| Lane::open(settings)).collect();
        let (lanes, ends): (Vec<_>, Vec<_>) = opened?.into_iter().unzip();
        let channel = Arc::new(Channel::new(Arc::clone(link), peer, lanes.into())?);
        let hauls = ends.into_iter().enumerate().map(|(at, ends)| {
            Haul::new(Arc::clone(&channel), Arc::clone(&channel.lanes[at]), ends)
        });
        self.proxy.shared.add(hauls.collect::<Result<_, _>>()?)?;
        channels.push(Arc::clone(&channel));
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
            wakes: self.proxy.shared.wakes(),
            ..CommReport::default()
        };
        for lane in locked(&self.channels).iter().flat_map(|channel| &channel.lanes) {
            let counts = &lane.counts;
            let Some((head, tail)) = lane.ring().map(Ring::positions) else { continue };
            report.rings += 1;
            report.tasks += counts.tasks.load(Relaxed);
            report.bytes += counts.bytes.load(Relaxed);
            report.deepest = report.deepest.max(counts.deepest.load(Relaxed));
            report.queued += u64::try_from(head.ahead_of(tail)).unwrap_or(0);
        }
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
