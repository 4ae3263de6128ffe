//! How one who calls becomes a rank: hello, challenge, proof, card.

use std::sync::Arc;

use pontoon_signal::Nanos;

use super::{Action, Hub, LinkId, Phase, Seat, SeatState, Stage, strangers::Why};
use crate::{
    JoinError, Member,
    membership::{EPOCH_MAX, Ending, How},
    token::{self, Side, Tag},
    wire::{Failure, Hello, Message, Reason},
};

impl Hub {
    pub(super) fn challenge(&mut self, id: LinkId, hello: Hello, said: &[u8], now: Nanos) {
        let Ok(nonce) = token::random() else {
            return self.send_away(id, Why::CrowdedOut, now);
        };
        if let Some(link) = self.links.get_mut(&id) {
            link.stage = Stage::Challenged { hello: hello.into(), said: said.into(), nonce };
            self.send(id, &Message::Challenge(nonce));
        }
    }

    pub(super) fn proof(&mut self, id: LinkId, tag: &Tag, now: Nanos) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let stage = std::mem::replace(&mut link.stage, Stage::Fresh);
        let Stage::Challenged { hello, said, nonce } = stage else { return };
        let token = &self.terms.token;
        if !token.verifies(tag, Side::Rank, &said, &nonce) {
            self.refuse(id, Reason::Token);
            return self.send_away(id, Why::WrongToken, now);
        }
        let proof = token.prove(Side::Store, &said, &nonce);
        if hello.job != self.terms.job {
            self.refuse(id, Reason::Job { ours: self.terms.job.clone() });
            return self.send_away(id, Why::OtherJob, now);
        }
        let Hello { rank, world, epoch, process, .. } = *hello;
        let ours = self.terms.world;
        if world != ours {
            self.refuse(id, Reason::World { ours });
            self.forget(id);
            if self.phase == Phase::Gathering {
                self.fail(Failure::World { rank, theirs: world, ours });
            }
            self.told.insert(rank);
            return;
        }
        if rank.0 >= ours || epoch > EPOCH_MAX {
            return self.misspoke(id, now);
        }
        let member = Member { rank, epoch, process };
        if !self.may_sit(id, &member) {
            return;
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.stage = Stage::Arriving { member };
            self.send(id, &Message::Welcome { proof, pace: self.terms.pace });
            if self.phase == Phase::Gathering {
                let (ranks, count) = self.absent();
                self.send(id, &Message::Waiting { ranks, count });
            }
        }
    }

    /// Whether `member` may have its seat; if not, it was told why.
    fn may_sit(&mut self, id: LinkId, member: &Member) -> bool {
        let refused = match (&self.phase, &self.seats[member.rank.0 as usize]) {
            (Phase::Failed(failure), _) => {
                let failed = Message::Failed(failure.clone());
                self.told.insert(member.rank);
                self.send(id, &failed);
                self.forget(id);
                return false;
            }
            (_, None) => return true,
            (phase, Some(seat)) => match seat.state {
                SeatState::Here(_) if member.epoch <= seat.member.epoch => {
                    let Member { process, epoch, .. } = &seat.member;
                    Reason::Taken { by: process.clone(), epoch: *epoch }
                }
                SeatState::Gone(_) if self.terms.rejoin && member.epoch <= seat.member.epoch => {
                    Reason::Stale { epoch: seat.member.epoch }
                }
                _ if *phase == Phase::Gathering || self.terms.rejoin => return true,
                _ => Reason::Closed,
            },
        };
        let why = refusal(member, &refused);
        tracing::warn!(target: "pontoon::job", "refused a rank: {why}");
        self.refuse(id, refused);
        self.forget(id);
        false
    }

    pub(super) fn card(&mut self, id: LinkId, card: Box<[u8]>, now: Nanos) {
        let Some(link) = self.links.get(&id) else { return };
        let Stage::Arriving { member } = &link.stage else { return self.misspoke(id, now) };
        let member = member.clone();
        let rank = member.rank;
        // Another may have taken the seat since the proof.
        if !self.may_sit(id, &member) {
            return;
        }
        if let Some(Seat { state: SeatState::Here(_), .. }) = &self.seats[rank.0 as usize] {
            self.end(rank, Ending::Dead(How::Replaced));
        }
        let frame: Arc<[u8]> =
            Message::Member { member: member.clone(), card: card.clone() }.frame().into();
        if self.phase == Phase::Running {
            self.send_seated(&frame);
        }
        self.seats[rank.0 as usize] = Some(Seat { member, card, state: SeatState::Here(id) });
        if let Some(link) = self.links.get_mut(&id) {
            link.stage = Stage::Seated { rank };
        }
        match self.phase {
            Phase::Running => {
                let roster = self.roster();
                self.actions.push(Action::Send(id, roster));
            }
            Phase::Gathering if self.seats.iter().all(Option::is_some) => {
                self.phase = Phase::Running;
                let roster = self.roster();
                self.send_seated(&roster);
            }
            _ => {}
        }
    }

    /// All that one who begins has to know, in one piece that all can share.
    fn roster(&self) -> Arc<[u8]> {
        let mut frames = Vec::new();
        let mut ends = Vec::new();
        for seat in self.seats.iter().flatten() {
            let (member, card) = (seat.member.clone(), seat.card.clone());
            let (rank, epoch) = (member.rank, member.epoch);
            frames.extend(Message::Member { member, card }.frame());
            if let SeatState::Gone(ending) = seat.state {
                ends.extend(Message::Ended { rank, epoch, ending }.frame());
            }
        }
        frames.extend(Message::Start.frame());
        frames.extend(ends);
        frames.into()
    }
}

/// What is said here of one that may not have its seat, for one of the reasons there are for that.
pub(super) fn refusal(member: &Member, reason: &Reason) -> String {
    let Member { rank, epoch, process } = member.clone();
    let said = match reason.clone() {
        Reason::Taken { by, epoch } => JoinError::Taken { rank, ours: process, by, epoch },
        Reason::Stale { epoch: last } => JoinError::Stale { rank, ours: epoch, last },
        _ => JoinError::Closed { rank },
    };
    said.to_string()
}
