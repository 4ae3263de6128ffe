//! What the proxy's thread does.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::{
    Bound, Ending, Publisher, Waiter, fence_system,
    shim::{Ordering::*, spin_loop, yield_now},
};

use super::{
    FINISH, GO_ON, STAND, STANDS, Shared, VANISH,
    heart::{A_TURN, Heart},
};
use crate::{
    channel::locked,
    lane::{Haul, Turn, grow},
};

/// The longest sleep while links have work under way, or no room for more: no bell tells of either's end.
const NAP_UNDER_WAY: Duration = Duration::from_micros(50);
/// The longest sleep otherwise. A bell that was missed costs no more than that: who pushes looks
/// whether the proxy sleeps without a fence behind its store, which would cost more than the push.
const NAP: Duration = Duration::from_millis(2);

pub(super) struct Run {
    shared: Arc<Shared>,
    hauls: Vec<Haul>,
    announced: u64,
    heart: Heart,
    bell: Option<Waiter>,
}

/// Why a proxy goes round no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// It was told to end, and all was done or its patience was over.
    InOrder,
    /// For tests: it is to leave things as a killed thread does.
    Vanished,
}

impl Run {
    pub(super) fn new(shared: Arc<Shared>, beat: Publisher) -> Self {
        let heart = Heart::new(beat, shared.settings.stall);
        Self { shared, hauls: Vec::new(), announced: 0, heart, bell: None }
    }

    /// Goes round until it is told not to.
    pub(super) fn go(&mut self) -> Finish {
        let mut idle: u32 = 0;
        let mut finishing = None;
        loop {
            let was_told = finishing.is_some();
            let turn = self.round();
            match self.shared.order.load(Relaxed) {
                GO_ON => {}
                FINISH => {
                    let since = *finishing.get_or_insert_with(Instant::now);
                    let is_late = since.elapsed() >= self.shared.settings.patience;
                    if is_late || was_told && turn == Turn::Idle {
                        return Finish::InOrder;
                    }
                    if !was_told {
                        // What was pushed before the order is in the rings for the next round.
                        fence_system();
                        continue;
                    }
                }
                VANISH => return Finish::Vanished,
                // For tests: it stands still.
                _ => {
                    let order = &self.shared.order;
                    let _ = order.compare_exchange(STAND, STANDS, Relaxed, Relaxed);
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
            }
            let rounds = &self.shared.rounds;
            grow(if turn == Turn::Busy { &rounds.busy } else { &rounds.idle }, 1);
            idle = if turn == Turn::Busy { 0 } else { idle.saturating_add(1) };
            let settings = &self.shared.settings;
            if idle < settings.spins {
                spin_loop();
            } else if idle < settings.spins.saturating_add(settings.yields) {
                yield_now();
            } else {
                self.sleep(turn);
            }
        }
    }

    /// Keeps Y3: nothing more of any ring is begun, and each is told to have ended once nothing of it is under
    /// way. That is waited for as long as `patience`.
    pub(super) fn end(mut self, ending: Ending, patience: Duration) {
        {
            let mut new = locked(&self.shared.new);
            let _ = self.shared.over.set(ending);
            self.hauls.append(&mut new);
        }
        let started = Instant::now();
        loop {
            let shared = &self.shared;
            self.hauls.retain_mut(|haul| !haul.is_over() && !haul.close_for(ending, shared));
            if self.hauls.is_empty() {
                return;
            }
            if started.elapsed() >= patience {
                let rings = self.hauls.len();
                tracing::error!(target: "pontoon::comm", rings,
                    "the proxy ends while links still have what they were given");
                self.hauls.drain(..).for_each(Haul::leave_open);
                return;
            }
            self.heart.look();
            thread::sleep(NAP_UNDER_WAY);
        }
    }

    /// Goes round all rings once (Y1).
    fn round(&mut self) -> Turn {
        let announced = self.shared.announced.load(Relaxed);
        if announced != self.announced {
            self.announced = announced;
            self.hauls.append(&mut locked(&self.shared.new));
            self.tell_of_lanes();
        }
        if matches!(self.shared.order.load(Relaxed), STAND | STANDS) {
            return Turn::Waiting;
        }
        self.heart.after(A_TURN);
        let batch = self.shared.settings.batch;
        let (mut busy, mut waiting, mut over) = (false, false, false);
        for at in 0..self.hauls.len() {
            self.heart.after(A_TURN);
            busy |= self.hauls[at].move_link();
            match self.hauls[at].turn(batch, &mut self.heart, &self.shared.rounds) {
                Turn::Busy => busy = true,
                Turn::Waiting => waiting = true,
                Turn::Over => {
                    over = true;
                    self.hauls[at].tell(&self.shared);
                }
                Turn::Spent => over = true,
                Turn::Idle => {}
            }
        }
        if over {
            self.hauls.retain(|haul| !haul.is_over());
            self.tell_of_lanes();
        }
        match (busy, waiting) {
            (true, _) => Turn::Busy,
            (false, true) => Turn::Waiting,
            (false, false) => Turn::Idle,
        }
    }

    fn tell_of_lanes(&self) {
        self.shared.rounds.lanes.store(self.hauls.len() as u64, Relaxed);
    }

    /// Sleeps until a bell rings, or for a while.
    fn sleep(&mut self, turn: Turn) {
        let shared = &self.shared;
        let bell = self.bell.get_or_insert_with(|| shared.bell_slot.uncounted_waiter());
        let next = bell.value() + 1;
        shared.asleep.store(1, Relaxed);
        fence_system();
        let has_news = self.hauls.iter().any(Haul::has_news);
        // One that is to end and still has to wait may as well sleep over it.
        let order = shared.order.load(Relaxed);
        let may_sleep = order == GO_ON || order == FINISH && turn == Turn::Waiting;
        if !has_news && may_sleep && shared.announced.load(Relaxed) == self.announced {
            let nap = if turn == Turn::Waiting { NAP_UNDER_WAY } else { NAP };
            let bound = Bound::within(nap).spinning(0).yielding(0);
            // However it ends, the rings are looked at again.
            let _ = bell.wait_ge_bounded(next, bound).map(|_| ());
        }
        shared.asleep.store(0, Relaxed);
        self.heart.look();
    }
}
