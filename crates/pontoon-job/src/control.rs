//! A rank's connection to rank 0, and the one thread that keeps it.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        mpsc::{Sender, SyncSender},
    },
};

use pontoon_signal::{Nanos, Rank, SystemError};
use rustix::event::poll;

use crate::{
    Env, JoinError, Member, Membership, Process, Watcher,
    client::{MASTER, failure_error, refusal},
    membership::{Ending, How},
    socket::{Gone, Socket},
    sys::{Waker, lock, now, timespec},
    wire::{Answer, FRAME_MAX, Message, Pace, Request},
};

/// What the thread and the threads that ask share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rank: Rank,
    pub(crate) epoch: u32,
    pub(crate) membership: Membership,
    process: Process,
    state: Mutex<State>,
    waker: Waker,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    outbox: Vec<Message>,
    next: Request,
    open: HashMap<Request, SyncSender<Answer>>,
    /// By rank.
    pub(crate) members: Vec<Option<(Member, Arc<[u8]>)>>,
    /// Who had not come when rank 0 last told.
    pub(crate) absent: (Vec<Rank>, u32),
    /// Processes of this machine that were seen to end.
    exits: Vec<(Rank, u32)>,
    pub(crate) over: Option<Over>,
    leaving: bool,
    stop: bool,
}

/// Why nothing is answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Rank 0 is gone.
    Store(Ending),
    /// This rank is taken for dead.
    Excluded(How),
    /// This rank left.
    Left,
}

impl Shared {
    pub(crate) fn new(
        rank: Rank,
        epoch: u32,
        process: Process,
        membership: Membership,
    ) -> Result<Self, SystemError> {
        let members = (0..membership.world()).map(|_| None).collect();
        let state = Mutex::new(State { members, ..State::default() });
        Ok(Self { rank, epoch, membership, process, state, waker: Waker::new()? })
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has `message` sent.
    pub(crate) fn post(&self, message: Message) {
        self.state().outbox.push(message);
        self.waker.wake();
    }

    /// A number for a question, whose answer goes to `to`; or why there will be none.
    pub(crate) fn open(&self, to: SyncSender<Answer>) -> Result<Request, Over> {
        let mut state = self.state();
        if let Some(over) = state.over {
            return Err(over);
        }
        let request = state.next;
        state.next += 1;
        state.open.insert(request, to);
        Ok(request)
    }

    /// Waits for an answer no more.
    pub(crate) fn close(&self, request: Request) {
        self.state().open.remove(&request);
    }

    /// Says goodbye; the thread ends when that was heard.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.leaving = true;
        state.outbox.push(Message::Leave);
        drop(state);
        self.waker.wake();
    }

    /// Ends the thread without a goodbye.
    pub(crate) fn stop(&self) {
        self.state().stop = true;
        self.waker.wake();
    }
}

/// The thread's own.
pub(crate) struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) env: Env,
    pub(crate) address: SocketAddr,
    pub(crate) socket: Socket,
    pub(crate) pace: Pace,
    pub(crate) watcher: Arc<Watcher>,
    /// Told when the job begins, or does not; `None` after that.
    pub(crate) begun: Option<Sender<Result<(), JoinError>>>,
    pub(crate) heard: Nanos,
    pub(crate) next_beat: Nanos,
    /// When it last woke.
    pub(crate) woke: Nanos,
    /// Ranks whose process ended, in which epoch, and until when rank 0 may say how. A rank that
    /// left in good order ends its process too, and the news of its leaving may be on the way.
    pub(crate) suspects: Vec<(Rank, u32, Nanos)>,
    /// How long that is.
    pub(crate) verdict: Nanos,
}

/// How long rank 0 may take to say how a rank ended whose process is gone.
pub(crate) const VERDICT: Nanos = Nanos(20_000_000);

impl Control {
    /// Runs until the connection ends; `_done` tells, by being dropped.
    pub(crate) fn run(mut self, _done: SyncSender<()>) {
        let over = loop {
            if let Some(over) = self.turn() {
                break over;
            }
        };
        let over = match over {
            // Whoever saw rank 0 end first has said how.
            Over::Store(ending) => {
                let membership = &self.shared.membership;
                let epoch = membership.epoch(MASTER).unwrap_or(0);
                membership.end(MASTER, epoch, ending);
                let known = membership.of(MASTER).and_then(|standing| standing.ending());
                Over::Store(known.unwrap_or(ending))
            }
            Over::Excluded(how) => {
                let Shared { membership, rank, epoch, .. } = &*self.shared;
                membership.end(*rank, *epoch, Ending::Dead(how));
                over
            }
            Over::Left => over,
        };
        if let Some(begun) = self.begun.take() {
            let how = match over {
                Over::Store(Ending::Dead(how)) | Over::Excluded(how) => how,
                _ => How::ConnectionClosed,
            };
            let _ = begun.send(Err(JoinError::Lost { how }));
        }
        let mut state = self.shared.state();
        state.over = Some(over);
        // Whoever waits for an answer sees its sender go.
        state.open.clear();
        state.outbox.clear();
        let exits = std::mem::take(&mut state.exits);
        drop(state);
        let suspects = self.suspects.iter().map(|&(rank, epoch, _)| (rank, epoch));
        for (rank, epoch) in suspects.chain(exits) {
            self.shared.membership.end(rank, epoch, Ending::Dead(How::Exited));
        }
    }

    /// Sends, sleeps, receives. Why it was the last turn, if it was.
    fn turn(&mut self) -> Option<Over> {
        const CUT: Over = Over::Store(Ending::Dead(How::ConnectionClosed));
        self.shared.waker.clear();
        let (outbox, exits, stop) = {
            let mut state = self.shared.state();
            let outbox = std::mem::take(&mut state.outbox);
            (outbox, std::mem::take(&mut state.exits), state.stop)
        };
        if stop {
            return Some(Over::Left);
        }
        let mut open = outbox.iter().all(|message| self.send(message).is_ok());
        let mut master_exited = false;
        for (rank, epoch) in exits {
            master_exited |= rank == MASTER;
            if rank != MASTER {
                open &= self.send(&Message::SawExit { rank, epoch }).is_ok();
                self.suspects.push((rank, epoch, now().saturating_add(self.verdict)));
            }
        }
        if now() >= self.next_beat {
            self.next_beat = now().saturating_add(self.pace.beat);
            open &= self.send(&Message::Beat).is_ok();
        }
        self.sleep(open && !master_exited);
        // Taken before the reading: what is stopped after this finds out in the next turn, which
        // reads first; what arrived before it is read now.
        let at = now();
        // Who was stopped itself has no ground to call rank 0 silent.
        if at.since(self.woke).0 > self.pace.beat.0 + self.pace.lost_after.0 / 2 {
            self.heard = at;
        }
        self.woke = at;
        let flushed = self.socket.flush();
        open &= self.socket.receive().and(flushed).is_ok();
        // Also what came before the connection was cut: it may say why.
        while let Some(message) = self.next_message() {
            self.heard = at;
            if let Some(over) = message.map_or(Some(CUT), |message| self.hear(message)) {
                return Some(over);
            }
        }
        self.judge();
        if master_exited {
            return Some(Over::Store(Ending::Dead(How::Exited)));
        }
        if !open {
            return Some(CUT);
        }
        if at.since(self.heard) <= self.pace.lost_after {
            return None;
        }
        // It may only be stopped, and is to learn then that it is alone.
        let _ = self.send(&Message::Abandon);
        Some(Over::Store(Ending::Dead(How::HeartbeatLost)))
    }

    fn send(&mut self, message: &Message) -> Result<(), Gone> {
        self.socket.send(message.frame().into())
    }

    /// If it may `wait`, sleeps until something arrived, somebody asks, or something is due.
    fn sleep(&self, wait: bool) {
        let loss = self.heard.saturating_add(self.pace.lost_after);
        let verdicts = self.suspects.iter().map(|suspect| suspect.2);
        let due = verdicts.fold(self.next_beat.min(loss), Nanos::min);
        // A little longer than until then: what is due after a time is not due at it.
        let left = if wait { Nanos(due.since(now()).0 + 1) } else { Nanos(0) };
        let mut fds = [self.shared.waker.poll_fd(), self.socket.poll_fd()];
        // An error is an interruption: there is no harm in looking.
        let _ = poll(&mut fds, Some(&timespec(left)));
    }

    /// Those whose process ended, and on whom rank 0 gave no verdict, are dead.
    fn judge(&mut self) {
        let at = now();
        let membership = &self.shared.membership;
        self.suspects.retain(|&(rank, epoch, until)| {
            if at >= until {
                membership.end(rank, epoch, Ending::Dead(How::Exited));
            }
            at < until && membership.is_alive(rank) && membership.epoch(rank) == Some(epoch)
        });
    }

    /// The next message; `Some(None)` is what is none.
    fn next_message(&mut self) -> Option<Option<Message>> {
        match self.socket.next_frame(FRAME_MAX) {
            Ok(None) => None,
            Ok(Some(frame)) => Some(Message::decode(frame).ok()),
            Err(_) => Some(None),
        }
    }

    fn hear(&mut self, message: Message) -> Option<Over> {
        match message {
            Message::Beat => {}
            Message::Waiting { ranks, count } => self.shared.state().absent = (ranks, count),
            Message::Member { member, card } => self.meet(member, card.into()),
            Message::Start => self.begin(),
            Message::Ended { rank, epoch, ending } => return self.ended(rank, epoch, ending),
            Message::Tell { request, answer } => {
                if let Some(to) = self.shared.state().open.remove(&request) {
                    let _ = to.try_send(answer);
                }
            }
            refused @ Message::Refused(_) => {
                let error = refusal(&self.env, self.address, refused);
                self.fail(error);
                return Some(Over::Store(Ending::Dead(How::ConnectionClosed)));
            }
            Message::Failed(failure) => {
                self.fail(failure_error(self.shared.membership.world(), failure));
                return Some(Over::Store(Ending::Dead(How::ConnectionClosed)));
            }
            _ => {
                tracing::warn!(target: "pontoon::job", "rank 0 sent what it may not send");
                return Some(Over::Store(Ending::Dead(How::ConnectionClosed)));
            }
        }
        None
    }

    fn fail(&mut self, error: JoinError) {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(Err(error));
        }
    }

    fn meet(&mut self, member: Member, card: Arc<[u8]>) {
        let (rank, epoch) = (member.rank, member.epoch);
        let mut state = self.shared.state();
        let Some(seat) = state.members.get_mut(rank.0 as usize) else { return };
        *seat = Some((member.clone(), card));
        drop(state);
        if self.begun.is_none() && self.shared.membership.admit(rank, epoch) {
            self.watch(&member);
        }
    }

    fn begin(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let members: Vec<Member> =
            self.shared.state().members.iter().flatten().map(|it| it.0.clone()).collect();
        self.shared.membership.begin(members.iter().map(|it| (it.rank, it.epoch)));
        members.iter().for_each(|member| self.watch(member));
        let _ = begun.send(Ok(()));
    }

    /// Has the process of `member` watched, if it is one of this machine and another than this.
    fn watch(&self, member: &Member) {
        let process = &member.process;
        let own = &self.shared.process;
        if !process.shares_host_with(own) || process.id == own.id {
            return;
        }
        let (rank, epoch, shared) = (member.rank, member.epoch, Arc::clone(&self.shared));
        self.watcher.watch(process.id, move || {
            let mut state = shared.state();
            if state.over.is_some() {
                drop(state);
                shared.membership.end(rank, epoch, Ending::Dead(How::Exited));
            } else {
                state.exits.push((rank, epoch));
                drop(state);
                shared.waker.wake();
            }
        });
    }

    fn ended(&mut self, rank: Rank, epoch: u32, ending: Ending) -> Option<Over> {
        if rank == self.shared.rank && epoch == self.shared.epoch {
            return Some(match ending {
                Ending::Dead(how) => Over::Excluded(how),
                Ending::Left => Over::Left,
            });
        }
        // Before the beginning this is about those who tried to come.
        if self.begun.is_none() {
            self.shared.membership.end(rank, epoch, ending);
        }
        None
    }
}

#[cfg(test)]
mod tests;
