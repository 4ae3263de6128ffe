//! Whom rank 0 goes on without, and whom it cannot leave behind.

use std::time::Instant;

use pontoon::Rank;

use super::{super::OnPeerDeath, Progress};
use crate::train::{error::TrainError, plan::Absence, way::ranks::exchange::Peer};

impl Progress<'_, '_> {
    /// Leaves out whoever died, or gives up with `error`. So it does if a rank that lives was not sent what
    /// it should have been, or nobody knows: left alone it would wait in vain, and what is sent twice would
    /// count as two steps.
    pub(super) fn go_on_after(&mut self, error: TrainError) -> Result<(), TrainError> {
        let among = self.run.job.shared.among;
        // The next session would use the memory that this one's commands still use.
        if self.ranks.on_death == OnPeerDeath::End || matches!(error, TrainError::Stuck { .. }) {
            return Err(error);
        }
        // What failed here by itself would fail again, and no news of a death is to be waited for.
        if !error.may_follow_from_a_death() {
            return Err(self.because_unsent(&[], error));
        }
        let news = self.news();
        // That others took this rank for dead is nothing to go on after.
        if news.is_empty() || news.contains(&Rank(0)) {
            return Err(error);
        }
        if self.unsent(&news).is_some() {
            return Err(self.because_unsent(&news, error));
        }
        let each = among.here as usize;
        for rank in news {
            self.absent |= 1 << rank.0;
            if self.done == self.run.plan.steps() {
                self.run.progress.warn(&format!("rank {rank} died when all steps were done"));
                continue;
            }
            let first = rank.0 as usize * each;
            let absence = Absence { devices: first..first + each, from: self.done };
            self.run.progress.warn(&format!(
                "rank {rank} died; the others go on without its part from step {} on",
                self.done
            ));
            self.lost.push((rank, absence));
        }
        Ok(())
    }

    /// The error of a rank that lives and was not sent what it should have been, if there is one; else `error`.
    fn because_unsent(&self, died: &[Rank], error: TrainError) -> TrainError {
        match self.unsent(died) {
            Some(peer) => {
                let error = Box::new(peer.failure().unwrap_or(error));
                TrainError::Unsent { rank: peer.rank, steps: self.done, error }
            }
            None => error,
        }
    }

    /// Who was not sent what it should have been, and is neither left out nor among `died`. None is who left
    /// in order, which only a rank does that has the parameters of all steps: the word that they are there
    /// may come too late.
    fn unsent(&self, died: &[Rank]) -> Option<&Peer> {
        let has_left = |rank| {
            let gone = self.ranks.world.deaths();
            gone.iter().any(|death| death.rank == rank && death.how.is_none())
        };
        let is_unsent = |peer: &&Peer| {
            let is_there = !self.is_absent(peer.rank) && !died.contains(&peer.rank);
            let is_unsent = peer.failure().is_some() || is_in(self.unsent, peer.rank);
            is_there && is_unsent && !has_left(peer.rank)
        };
        self.others.iter().map(|other| &other.peer).find(is_unsent)
    }

    /// Why a message could not be sent to a rank that is there, if one could not.
    pub(super) fn failure(&self) -> Option<TrainError> {
        self.unsent(&[])?.failure()
    }

    /// Who has died that is not left out yet, once anybody has, and all who were not sent what they should
    /// have been: a wait or a send may have failed by a death just before that is known. Who left in order is
    /// none of them.
    fn news(&self) -> Vec<Rank> {
        let until = Instant::now() + self.ranks.news;
        let mut known = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let deaths = self.ranks.world.deaths_beyond(known, left);
            known = deaths.len();
            let died = deaths.iter().filter(|death| death.how.is_some()).map(|death| death.rank);
            let news: Vec<_> = died.filter(|&rank| !self.is_absent(rank)).collect();
            let are_all = !news.is_empty() && self.unsent(&news).is_none();
            if are_all || left.is_zero() {
                return news;
            }
        }
    }

    /// Who may lack the parameters of the last step. That a rank left may be known only after what failed by
    /// it.
    pub(super) fn unsent_at_end(&self) -> Option<&Peer> {
        let until = Instant::now() + self.ranks.news;
        loop {
            let gone = self.ranks.world.deaths();
            let peer = self.unsent(&[])?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || gone.iter().any(|death| death.rank == peer.rank) {
                return Some(peer);
            }
            self.ranks.world.deaths_beyond(gone.len(), left);
        }
    }
}

/// Whether `rank` is one of those whose bit is set.
pub(super) fn is_in(ranks: u64, rank: Rank) -> bool {
    ranks >> rank.0 & 1 == 1
}
