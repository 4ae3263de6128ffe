//! A lane: a ring to one peer, or a trigger, and what the proxy has done of it.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Instant,
};

use pontoon_hal::link::LinkError;
use pontoon_signal::{
    ClaimError, Ending, Publisher, Rank, RecordKind, Seq, SignalTable, Slot, SlotId, TableShape,
    shim::{AtomicU64, Ordering::*},
};

use crate::{
    CommError, Settings, Task,
    channel::Channel,
    error::reason,
    fuse::Fuse,
    post::{Refused, post},
    proxy::{A_TASK, Heart, Rounds, Shared},
    ring::{Consumer, Ring, RingError, Taken},
    routes::{Known, Routes},
};

/// The most tasks of a lane that are under way on the link.
const UNDER_WAY_MAX: usize = 4096;
/// A turn ends with the task that makes it so many bytes, and what it took beyond them is left out of the
/// turns after it: what is large holds up others for one task and no batch of them, takes no more than its
/// part of the proxy's time, and is told of when it is done.
const TURN_BYTES: u64 = 1 << 20;
/// Full batches between two looks at how far producers are: each takes a line that they write.
const BATCHES_A_LOOK: u32 = 16;

/// What the proxy alone counts. On lines of their own: kernels read those beside them at each push.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    pub(crate) tasks: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) deepest: AtomicU64,
}

/// What kernels and the proxy share.
///
/// Invariant N1: *done* is at or past a task's end only once the link is done with its bytes. It ends
/// only once nothing more is begun and the link is done with all that was; what is not done by then never
/// will be, and nothing touches its bytes.
#[derive(Debug)]
pub(crate) struct Lane {
    /// `None` for that of a trigger.
    ring: Option<Ring>,
    /// Of its ports.
    pub(crate) routes: Routes,
    pub(crate) done: Slot,
    /// What the link said that ended it.
    pub(crate) fault: OnceLock<LinkError>,
    /// Why nothing more of it is begun, and since when, once that is so.
    closed: OnceLock<(Ending, Instant)>,
    pub(crate) counts: Counts,
}

impl Lane {
    /// A lane, and what its proxy needs of it.
    pub(crate) fn open(settings: &Settings) -> Result<(Arc<Self>, Ends), CommError> {
        let (ring, consumer) = Ring::open(settings.depth, settings.start)?;
        let (lane, done) = Self::over(Some(ring), settings.start)?;
        Ok((lane, Ends { intake: Intake::Ring(consumer), done, known: Known::default() }))
    }

    /// The lane of a trigger, whose tasks have the numbers of `known`.
    pub(crate) fn triggered(fuse: Fuse, known: Known) -> Result<(Arc<Self>, Ends), CommError> {
        let (lane, done) = Self::over(None, fuse.start())?;
        Ok((lane, Ends { intake: Intake::Fuse(fuse), done, known }))
    }

    fn over(ring: Option<Ring>, start: Seq) -> Result<(Arc<Self>, Publisher), CommError> {
        let table = SignalTable::in_process(TableShape::new(1, 1).starting_at(start));
        let slot = SlotId::new(0, 0);
        let failed = |error: ClaimError| CommError::Ring(RingError::Claim(error));
        let publisher = table.publisher(slot).map_err(failed)?.dated_by_ticks();
        let done = table.slot(slot).map_err(failed)?;
        let (routes, counts) = (Routes::default(), Counts::default());
        let (fault, closed) = (OnceLock::new(), OnceLock::new());
        Ok((Arc::new(Self { ring, routes, done, fault, closed, counts }), publisher))
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// Whether all that was put in its ring is done; what was done is before what this thread does next.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.ring().is_none_or(|ring| ring.head() == self.done.acquire())
    }

    /// The last port with `number` is gone: what it pushed is before the ring's head.
    pub(crate) fn retire(&self, number: u16) {
        self.routes.retire(number, || self.ring().map_or(self.done.value(), Ring::head));
    }

    /// Why nothing more of it is begun, once that is so.
    #[inline]
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.closed.get().map(|(ending, _)| *ending)
    }

    /// Since when that is so.
    pub(crate) fn closed_at(&self) -> Option<Instant> {
        self.closed.get().map(|(_, since)| *since)
    }

    /// Nothing more is pushed or begun. What is under way is yet to be done. The first ending stays; gives when
    /// that came.
    pub(crate) fn close(&self, ending: Ending) -> Instant {
        let (ending, since) = *self.closed.get_or_init(|| (ending, Instant::now()));
        if let Some(ring) = &self.ring {
            ring.close(ending);
        }
        since
    }

    /// Nothing of it is under way any more: who waits is told (N1).
    pub(crate) fn end(&self, ending: Ending) {
        self.close(ending);
        self.done.end(self.ending().unwrap_or(ending));
        self.routes.close();
    }

    /// Whether nothing of it is under way any more, nor ever will be.
    pub(crate) fn is_over(&self) -> bool {
        self.done.ending().is_some()
    }
}

/// The proxy's ends of a lane.
#[derive(Debug)]
pub(crate) struct Ends {
    intake: Intake,
    done: Publisher,
    known: Known,
}

/// Where tasks come from.
#[derive(Debug)]
enum Intake {
    Ring(Consumer),
    Fuse(Fuse),
}

/// A lane as the proxy works on it.
#[derive(Debug)]
pub(crate) struct Haul {
    channel: Arc<Channel>,
    lane: Arc<Lane>,
    intake: Intake,
    done: Publisher,
    link_done: Slot,
    known: Known,
    /// Where tasks end in the ring, and the link's numbers of them.
    under_way: VecDeque<(Seq, Seq)>,
    own: Rank,
    full_batches: u32,
    /// Bytes that it took beyond those of its turns.
    owed: u64,
    is_moved_here: bool,
    /// Whether the last turn left tasks that only time helps: the link has no room, their signal is in use, or
    /// they were given up.
    is_held_up: bool,
    /// Whether it has ended, and nothing is to be done for it.
    is_over: bool,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something got on.
    Busy,
    /// Nothing was there to do now, but the link has not done all yet, or will take no more for a while.
    Waiting,
    /// Nothing was there to do.
    Idle,
    /// It has ended before its time and nothing is under way: it is to be told of.
    Over,
    /// It is a trigger's that is gone, and all is done.
    Spent,
}

impl Haul {
    pub(crate) fn new(channel: Arc<Channel>, lane: Arc<Lane>, ends: Ends) -> Self {
        let link_done = channel.link_done.clone();
        let Ends { intake, done, known } = ends;
        let own = channel.link.rank();
        let under_way = VecDeque::with_capacity(UNDER_WAY_MAX);
        let is_moved_here = !channel.link.moves_by_itself(channel.peer);
        Self {
            channel,
            lane,
            intake,
            done,
            link_done,
            known,
            under_way,
            own,
            full_batches: 0,
            owed: 0,
            is_moved_here,
            is_held_up: false,
            is_over: false,
        }
    }

    /// Whether there is something that the next turn may get on with, though this one did not.
    pub(crate) fn has_news(&self) -> bool {
        !self.is_held_up && self.has_tasks()
    }

    /// Whether a task waits to be taken.
    fn has_tasks(&self) -> bool {
        match &self.intake {
            Intake::Ring(consumer) => !consumer.is_empty(),
            Intake::Fuse(fuse) => fuse.is_lit(),
        }
    }

    /// Takes up to `batch` tasks or [`TURN_BYTES`], and tells of those that are done.
    pub(crate) fn turn(&mut self, batch: u32, heart: &mut Heart, rounds: &Rounds) -> Turn {
        if self.lane.ending().is_some() {
            return self.leave();
        }
        let budget = TURN_BYTES.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(TURN_BYTES);
        let Self { channel, lane, intake, known, under_way, .. } = self;
        let (mut fault, mut tasks, mut slots, mut bytes) = (None, 0, 0, 0);
        let mut is_held_up = false;
        let take = |end, task: Option<&Task>| {
            // Whoever gives it up may do so in the middle of a batch.
            if bytes >= budget || fault.is_some() || lane.ending().is_some() {
                return Taken::No;
            }
            if under_way.len() == UNDER_WAY_MAX {
                is_held_up = true;
                return Taken::No;
            }
            let route = task.and_then(|task| Some((known.find(&lane.routes, task.route)?, task)));
            match route.map_or(Err(Refused::Unknown), |(route, task)| post(channel, route, task)) {
                Ok((seq, moved)) => {
                    tasks += 1;
                    slots += task.map_or(0, Task::slots) as u64;
                    bytes += moved;
                    under_way.push_back((end, seq));
                    heart.after(moved.saturating_add(A_TASK));
                    Taken::Yes
                }
                Err(Refused::Later) => {
                    is_held_up = true;
                    Taken::No
                }
                Err(refused) => {
                    fault = Some(refused);
                    Taken::No
                }
            }
        };
        match intake {
            Intake::Ring(consumer) => consumer.drain(batch, take),
            Intake::Fuse(fuse) => fuse.drain(batch, take),
        };
        self.is_held_up = is_held_up;
        if is_held_up || fault.is_some() {
            grow(&rounds.refused, 1);
        }
        if tasks > 0 {
            let counts = &lane.counts;
            grow(&counts.tasks, tasks);
            grow(&counts.bytes, bytes);
            let mut depth = slots;
            if tasks == u64::from(batch) || bytes >= budget {
                if self.full_batches.is_multiple_of(BATCHES_A_LOOK) {
                    let positions = lane.ring().map(Ring::positions);
                    let left = positions.map_or(0, |(head, tail)| head.ahead_of(tail));
                    depth += u64::try_from(left).unwrap_or(0);
                }
                self.full_batches = self.full_batches.wrapping_add(1);
            }
            counts.deepest.store(depth.max(counts.deepest.load(Relaxed)), Relaxed);
        }
        self.owed += bytes.saturating_sub(budget);
        let settled = self.settle();
        self.known.forget(&self.lane.routes, self.done.value());
        if let Some(refused) = fault {
            self.fail(refused);
            return self.leave();
        }
        if !self.under_way.is_empty()
            && let Some(ending) = self.link_done.ending()
        {
            self.lane.close(ending);
            return self.leave();
        }
        let has_to_wait = budget == 0 && self.has_tasks();
        let is_still = self.under_way.is_empty() && !is_held_up;
        match (tasks > 0 || settled || has_to_wait, is_still) {
            (true, _) => Turn::Busy,
            (false, false) => Turn::Waiting,
            (false, true) if self.is_spent() => {
                self.lane.end(Ending::Aborted { reason: reason::DISARMED, by: self.own });
                self.is_over = true;
                Turn::Spent
            }
            (false, true) => Turn::Idle,
        }
    }

    /// Nothing more of it is begun, and it is over once nothing is under way either.
    fn leave(&mut self) -> Turn {
        self.is_held_up = true;
        // In this order: what was done before the end is told.
        let has_ended = self.link_done.ending().is_some();
        self.settle();
        if has_ended || self.under_way.is_empty() { Turn::Over } else { Turn::Waiting }
    }

    /// The same when no more turns come, for `ending`. Whether it is over.
    pub(crate) fn close_for(&mut self, ending: Ending, shared: &Shared) -> bool {
        self.lane.close(ending);
        self.move_link();
        let is_over = self.leave() == Turn::Over;
        if is_over {
            self.tell(shared);
        }
        is_over
    }

    /// Nobody looks after it any more, and the link has something of it yet: *done* neither moves nor ends, until
    /// whoever wants his bytes back has ended the link (N1).
    pub(crate) fn leave_open(self) {
        self.done.retire();
    }

    fn is_spent(&self) -> bool {
        matches!(&self.intake, Intake::Fuse(fuse) if fuse.is_spent())
    }

    /// Tells of the tasks that the link is done with (N1). Whether there were any.
    fn settle(&mut self) -> bool {
        if self.under_way.is_empty() || self.lane.is_over() {
            return false;
        }
        let link_done = self.link_done.acquire();
        let mut done = None;
        while let Some(&(end, seq)) = self.under_way.front()
            && link_done.is_at_or_past(seq)
        {
            done = Some(end);
            self.under_way.pop_front();
        }
        // Only this grows it, and ends grow: it is never behind.
        done.is_some_and(|end| self.done.pub_release_set(end).is_ok())
    }

    fn fail(&mut self, refused: Refused) {
        let aborted = Ending::Aborted { reason: reason::TASK, by: self.own };
        let ending = match &refused {
            Refused::Link(LinkError::PeerDead { peer }) => Ending::PeerDead { rank: *peer },
            Refused::Link(LinkError::Failed { code, .. }) => Ending::LinkFailed { code: *code },
            _ => aborted,
        };
        if let Refused::Link(error) = refused {
            let peer = self.channel.peer.0;
            tracing::warn!(target: "pontoon::comm", peer, %error, "a task was refused");
            let _ = self.lane.fault.set(error);
        }
        self.lane.close(ending);
    }

    /// Whether it has ended, and nothing is to be done for it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Writes down how far it came and the code of its ending, and then tells: who is told finds the record.
    pub(crate) fn tell(&mut self, shared: &Shared) {
        let Some(ending) = self.lane.ending() else { return };
        let done = self.lane.done.value().get();
        let code = match ending {
            Ending::LinkFailed { code } => u64::from(code.cast_unsigned()),
            Ending::Aborted { reason, .. } => reason.get().into(),
            _ => 0,
        };
        let asked = self.lane.ring().map_or(done, |ring| ring.head().get());
        // Where nothing was left to do nothing has failed.
        if !matches!(ending, Ending::Aborted { reason: reason::CLOSED, .. }) || done != asked {
            shared.record(RecordKind::LINK_FAILED, self.channel.peer, [code, done, asked]);
        }
        self.lane.end(ending);
        self.is_over = true;
    }

    /// Moves its link on, if that does not move by itself. Whether there was anything to do.
    pub(crate) fn move_link(&self) -> bool {
        self.is_moved_here && self.channel.link.progress()
    }
}

/// For a counter that one thread writes: no locked instruction.
pub(crate) fn grow(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}
