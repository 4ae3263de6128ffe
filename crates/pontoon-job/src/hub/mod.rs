//! What rank 0 decides: who belongs to the job, when it begins, who is gone.
//!
//! A deterministic state machine: it takes what happened and the time, and gives what to send. It
//! knows no sockets, so its tests need none.

mod door;
#[cfg(any(test, pontoon_fuzz))]
pub(crate) mod fuzz;
mod store;
mod strangers;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

use pontoon_signal::{Nanos, Rank, SystemError};

use crate::{
    Member, Token,
    membership::{Ending, How},
    token::Nonce,
    wire::{
        ABSENT_SHOWN, Answer, FRAME_MAX, Failure, Hello, Malformed, Message, Pace, Question,
        Reason, Refused, Request, STRANGER_FRAME_MAX,
    },
};
use store::{Reply, Store};
pub(crate) use strangers::Counts;
pub use strangers::Strangers;
use strangers::{Doorman, Why};

/// How long a stranger has to prove that it belongs to the job.
pub(crate) const PROOF_WITHIN: Nanos = Nanos(2_000_000_000);
/// The most strangers that are connected at a time; one more sends the oldest away.
pub(crate) const STRANGERS_MAX: usize = 128;

/// A connection, never the same twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkId(pub(crate) u64);

/// What rank 0 fixed for all.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) job: Box<str>,
    pub(crate) world: u32,
    pub(crate) token: Token,
    pub(crate) pace: Pace,
    /// Whether a rank that is gone may come back.
    pub(crate) rejoin: bool,
}

/// What the hub wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Frames, or parts of one whose rest follows.
    Send(LinkId, Arc<[u8]>),
    /// Once all is sent. The hub has forgotten it already.
    Close(LinkId),
}

#[derive(Debug)]
pub(crate) struct Hub {
    terms: Terms,
    began: Nanos,
    deadline: Option<Nanos>,
    phase: Phase,
    links: HashMap<LinkId, Link>,
    /// By rank. While the job gathers, only those that are here.
    seats: Vec<Option<Seat>>,
    store: Store,
    doorman: Doorman,
    actions: Vec<Action>,
    next_link: u64,
    next_beat: Nanos,
    last_tick: Nanos,
    /// The ranks that were told why the job does not begin.
    told: HashSet<Rank>,
    /// Whether a rank took rank 0 for dead.
    abandoned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    Running,
    Failed(Failure),
}

#[derive(Debug)]
struct Link {
    from: SocketAddr,
    since: Nanos,
    heard: Nanos,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It has not said who it is.
    Fresh,
    /// It has not proved that it knows the token.
    Challenged { hello: Box<Hello>, said: Box<[u8]>, nonce: Nonce },
    /// It has not shown its card.
    Arriving { member: Member },
    /// It is that rank.
    Seated { rank: Rank },
}

impl Stage {
    fn is_stranger(&self) -> bool {
        self.rank().is_none()
    }

    /// Which rank it has proved to be.
    fn rank(&self) -> Option<Rank> {
        match self {
            Self::Fresh | Self::Challenged { .. } => None,
            Self::Arriving { member } => Some(member.rank),
            Self::Seated { rank } => Some(*rank),
        }
    }
}

#[derive(Debug)]
struct Seat {
    member: Member,
    card: Box<[u8]>,
    state: SeatState,
}

#[derive(Clone, Copy, Debug)]
enum SeatState {
    Here(LinkId),
    Gone(Ending),
}

impl Hub {
    pub(crate) fn new(terms: Terms, now: Nanos, deadline: Option<Nanos>) -> Self {
        let seats = (0..terms.world).map(|_| None).collect();
        let phase = Phase::Gathering;
        let (links, store, doorman, told) = Default::default();
        let actions = Vec::new();
        let (began, next_beat, last_tick, next_link) = (now, now, now, 0);
        #[rustfmt::skip]
        let hub = Self {
            terms, began, deadline, phase, links, seats, store, doorman, actions, next_link,
            next_beat, last_tick, told, abandoned: false,
        };
        hub
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.doorman.counts)
    }

    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The longest frame that `link` may send.
    pub(crate) fn frame_max(&self, link: LinkId) -> usize {
        match self.links.get(&link) {
            Some(link) if !link.stage.is_stranger() => FRAME_MAX,
            _ => STRANGER_FRAME_MAX,
        }
    }

    /// Whether it is rank 0's own connection, which tells of the others what they may tell better.
    pub(crate) fn is_own(&self, link: LinkId) -> bool {
        self.links.get(&link).and_then(|link| link.stage.rank()) == Some(Rank(0))
    }

    /// Whether there is nobody left to serve.
    pub(crate) fn is_done(&self) -> bool {
        match self.phase {
            // Those who are still to come would else find nobody, and not learn why.
            Phase::Failed(Failure::World { .. } | Failure::Unable { .. }) => {
                self.told.len() >= self.seats.len()
            }
            _ => self.links.values().all(|link| link.stage.is_stranger()),
        }
    }

    /// Whether it is settled that the job does not begin.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.phase, Phase::Failed(_))
    }

    /// Somebody connected.
    pub(crate) fn connected(&mut self, from: SocketAddr, now: Nanos) -> LinkId {
        let strangers = self.links.iter().filter(|(_, link)| link.stage.is_stranger());
        let oldest = strangers.clone().min_by_key(|(id, link)| (link.since, **id));
        if let Some((&oldest, _)) = oldest
            && strangers.count() >= STRANGERS_MAX
        {
            self.send_away(oldest, Why::CrowdedOut, now);
        }
        let id = LinkId(self.next_link);
        self.next_link += 1;
        self.links.insert(id, Link { from, since: now, heard: now, stage: Stage::Fresh });
        id
    }

    /// A frame came, or what is none.
    pub(crate) fn received(&mut self, id: LinkId, frame: Result<&[u8], Malformed>, now: Nanos) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        let message = frame.and_then(Message::decode);
        let said = frame.unwrap_or_default();
        match (&mut link.stage, message) {
            (Stage::Fresh, Ok(Message::Hello(hello))) => self.challenge(id, hello, said, now),
            (Stage::Fresh, Ok(Message::Foreign { version })) => {
                self.refuse(id, Reason::Version);
                self.send_away(id, Why::OtherVersion(version), now);
            }
            (Stage::Challenged { .. }, Ok(Message::Proof(tag))) => self.proof(id, &tag, now),
            (Stage::Arriving { .. }, Ok(Message::Card(card))) => self.card(id, card, now),
            (Stage::Arriving { .. }, Ok(Message::Beat)) => {}
            (Stage::Arriving { .. }, Ok(Message::Failed(Failure::Unable { why, .. }))) => {
                self.declined(id, why);
            }
            (&mut Stage::Seated { rank }, Ok(message)) => self.talk(id, rank, message, now),
            (_, Ok(_) | Err(_)) => self.misspoke(id, now),
        }
    }

    /// Nobody can be let in any more, for a limit of this process. Of a job that gathers and has no
    /// stranger who might go, that is the end; whether it is.
    pub(crate) fn no_room(&mut self, error: &SystemError) -> bool {
        let crowd = self.links.values().any(|link| link.stage.is_stranger());
        if crowd || self.phase != Phase::Gathering {
            return false;
        }
        let (rank, room) = (Rank(0), self.links.len());
        let s = if room == 1 { "" } else { "s" };
        let why = format!("it has no room for more than {room} connection{s}: {error}");
        self.fail(Failure::unable(rank, &why));
        true
    }

    /// Says to all who come that rank 0 cannot be in the job.
    pub(crate) fn decline(&mut self, why: &str) {
        self.told.insert(Rank(0));
        self.fail(Failure::unable(Rank(0), why));
    }

    /// The rank at `id` came to say that it cannot be in the job.
    fn declined(&mut self, id: LinkId, why: Box<str>) {
        let Some(rank) = self.links.get(&id).and_then(|link| link.stage.rank()) else { return };
        if self.phase == Phase::Gathering {
            self.fail(Failure::Unable { rank, why });
        } else {
            self.forget(id);
        }
    }

    /// The connection is gone.
    pub(crate) fn closed(&mut self, id: LinkId, now: Nanos) {
        match self.links.get(&id).map(|link| &link.stage) {
            None => {}
            Some(&Stage::Seated { rank }) => self.end(rank, Ending::Dead(How::ConnectionClosed)),
            Some(Stage::Arriving { .. }) => drop(self.links.remove(&id)),
            Some(Stage::Fresh | Stage::Challenged { .. }) => {
                self.send_away(id, Why::GaveUp, now);
            }
        }
    }

    /// Time went by. To be called after what had arrived by then was given to
    /// [`received`](Self::received).
    pub(crate) fn tick(&mut self, now: Nanos) {
        let pace = self.terms.pace;
        // Who was stopped itself has no ground to call others silent.
        if now.since(self.last_tick).0 > pace.lost_after.0 / 2 {
            self.links.values_mut().for_each(|link| link.heard = now);
        }
        self.last_tick = now;
        let mut due: Vec<LinkId> = self.links.keys().copied().collect();
        due.sort();
        for id in due {
            let Some(link) = self.links.get(&id) else { continue };
            let silent = now.since(link.heard) > pace.lost_after;
            match &link.stage {
                Stage::Fresh | Stage::Challenged { .. } => {
                    if now.since(link.since) > PROOF_WITHIN {
                        self.send_away(id, Why::TooSlow, now);
                    }
                }
                Stage::Arriving { .. } if silent => self.forget(id),
                &Stage::Seated { rank } if silent => {
                    self.end(rank, Ending::Dead(How::HeartbeatLost));
                }
                Stage::Arriving { .. } | Stage::Seated { .. } => {}
            }
        }
        if self.phase == Phase::Gathering && self.deadline.is_some_and(|deadline| now >= deadline) {
            let (ranks, count) = self.absent();
            self.fail(Failure::Absent { ranks, count, waited: now.since(self.began) });
        }
        if now >= self.next_beat {
            self.next_beat = now.saturating_add(pace.beat);
            let beat = match self.phase {
                Phase::Gathering => {
                    let (ranks, count) = self.absent();
                    Message::Waiting { ranks, count }
                }
                _ => Message::Beat,
            };
            self.send_all(&beat);
        }
    }

    fn talk(&mut self, id: LinkId, rank: Rank, message: Message, now: Nanos) {
        match message {
            Message::Beat => {}
            // Its bound is used up: without it the job cannot begin.
            Message::Leave if self.phase == Phase::Gathering => {
                let (ranks, count) = self.absent();
                self.fail(Failure::Absent { ranks, count, waited: now.since(self.began) });
            }
            Message::Leave => self.end(rank, Ending::Left),
            Message::SawExit { rank, epoch } => self.saw_exit(id, rank, epoch),
            Message::Abandon => {
                self.abandoned = true;
                self.end(rank, Ending::Dead(How::ConnectionClosed));
            }
            Message::Ask { request, question } => self.ask(id, rank, request, question),
            _ => {
                tracing::warn!(target: "pontoon::job", %rank, "a rank sent what it may not send");
                self.end(rank, Ending::Dead(How::ConnectionClosed));
            }
        }
    }

    /// The rank at `id` saw the process of `rank` end, and asks how.
    fn saw_exit(&mut self, id: LinkId, rank: Rank, epoch: u32) {
        let Some(Some(seat)) = self.seats.get(rank.0 as usize) else { return };
        if seat.member.epoch != epoch {
            return;
        }
        match seat.state {
            SeatState::Here(_) => self.end(rank, Ending::Dead(How::Exited)),
            SeatState::Gone(ending) => self.send(id, &Message::Ended { rank, epoch, ending }),
        }
    }

    fn ask(&mut self, id: LinkId, rank: Rank, request: Request, question: Question) {
        let (seats, gathering) = (&self.seats, self.phase == Phase::Gathering);
        let replies = self.store.ask((id, request), rank, question, |rank| {
            match seats.get(rank.0 as usize) {
                None => Err(()),
                Some(None) if gathering => Ok(None),
                Some(None) => Err(()),
                Some(Some(seat)) => Ok(match seat.state {
                    SeatState::Here(_) => None,
                    SeatState::Gone(ending) => Some(ending),
                }),
            }
        });
        self.reply(replies);
    }

    fn reply(&mut self, replies: Vec<Reply>) {
        for ((link, request), answer) in replies {
            match answer {
                // Each for itself would be as many bytes as all have, times their number.
                Answer::Parts(parts) if self.links.contains_key(&link) => {
                    let sends = parts.frame(request).map(|bytes| Action::Send(link, bytes));
                    self.actions.extend(sends);
                }
                answer => self.send(link, &Message::Tell { request, answer }),
            }
        }
    }

    /// `rank` is here no more. While the job gathers, that only leaves its seat free.
    fn end(&mut self, rank: Rank, ending: Ending) {
        let Some(Some(seat)) = self.seats.get_mut(rank.0 as usize) else { return };
        let SeatState::Here(link) = seat.state else { return };
        let epoch = seat.member.epoch;
        self.store.link_closed(link);
        match self.phase {
            Phase::Running => {
                seat.state = SeatState::Gone(ending);
                tracing::info!(target: "pontoon::job", member = %seat.member, %ending, "a rank ended");
                let ended = Message::Ended { rank, epoch, ending };
                self.send_all_but(Some(link), &ended);
                let replies = self.store.rank_ended(rank, ending);
                self.reply(replies);
            }
            _ => self.seats[rank.0 as usize] = None,
        }
        // To itself too: who was only stopped learns it from this. Last: one that left may end its
        // process as soon as it has this, and those who see that have heard of its leaving by then.
        self.send(link, &Message::Ended { rank, epoch, ending });
        self.forget(link);
        self.look_who_is_left();
    }

    /// Takes rank 0 for dead once all others are gone, and some of them did: what it did alone from then on
    /// would be another job. Those that are left otherwise do without those who took it for dead, and one
    /// that left in good order had all it wanted.
    fn look_who_is_left(&mut self) {
        let died = |seat: &Option<Seat>| {
            let state = seat.as_ref().map(|seat| seat.state);
            matches!(state, Some(SeatState::Gone(Ending::Dead(_))))
        };
        if self.abandoned && self.phase == Phase::Running && self.seats.iter().skip(1).all(died) {
            self.abandoned = false;
            self.end(Rank(0), Ending::Dead(How::HeartbeatLost));
        }
    }

    fn fail(&mut self, failure: Failure) {
        let message = Message::Failed(failure.clone());
        let mut ranks: Vec<_> = self.links.iter().collect();
        ranks.sort_by_key(|it| *it.0);
        let told = ranks.into_iter().filter_map(|(&id, link)| Some((id, link.stage.rank()?)));
        for (id, rank) in told.collect::<Vec<_>>() {
            self.told.insert(rank);
            self.send(id, &message);
            self.forget(id);
        }
        self.phase = Phase::Failed(failure);
    }

    /// The ranks that are not here: the first of them, and how many.
    fn absent(&self) -> (Vec<Rank>, u32) {
        let absent = (0..).map(Rank).zip(&self.seats).filter(|it| it.1.is_none());
        let count = absent.clone().count() as u32;
        (absent.map(|it| it.0).take(ABSENT_SHOWN).collect(), count)
    }

    /// What one says that makes no sense ends it.
    fn misspoke(&mut self, id: LinkId, now: Nanos) {
        match self.links.get(&id).map(|link| &link.stage) {
            Some(&Stage::Seated { rank }) => {
                tracing::warn!(target: "pontoon::job", %rank, "a rank sent what is no message");
                self.end(rank, Ending::Dead(How::ConnectionClosed));
            }
            _ => self.send_away(id, Why::Garbage, now),
        }
    }

    fn send_away(&mut self, id: LinkId, why: Why, now: Nanos) {
        if let Some(link) = self.links.get(&id) {
            self.doorman.note(why, link.from, now);
            self.forget(id);
        }
    }

    fn refuse(&mut self, id: LinkId, reason: Reason) {
        self.send(id, &Message::Refused(Refused::because(reason)));
    }

    fn forget(&mut self, id: LinkId) {
        if self.links.remove(&id).is_some() {
            self.actions.push(Action::Close(id));
        }
    }

    fn send(&mut self, id: LinkId, message: &Message) {
        if self.links.contains_key(&id) {
            self.actions.push(Action::Send(id, message.frame().into()));
        }
    }

    /// To all that have proved to be ranks.
    fn send_all(&mut self, message: &Message) {
        self.send_all_but(None, message);
    }

    fn send_all_but(&mut self, but: Option<LinkId>, message: &Message) {
        let frame: Arc<[u8]> = message.frame().into();
        let is_told = |id: LinkId, link: &Link| Some(id) != but && !link.stage.is_stranger();
        let ranks = self.links.iter().filter(|&(&id, link)| is_told(id, link));
        let sends = ranks.map(|(&id, _)| Action::Send(id, Arc::clone(&frame)));
        self.actions.extend(sends);
    }

    /// To all that have a seat: those who arrive are told when they have theirs.
    fn send_seated(&mut self, frame: &Arc<[u8]>) {
        let here = self.seats.iter().flatten().filter_map(|seat| match seat.state {
            SeatState::Here(link) => Some(link),
            SeatState::Gone(_) => None,
        });
        self.actions.extend(here.map(|link| Action::Send(link, Arc::clone(frame))));
    }
}
