//! A team: what kernels of several ranks do together, built on puts and signals.
//!
//! - E1: nobody writes to a member before that one has said, in the same call, that its bytes are free.
//! - E2: after a call that failed a member makes no other: who is still in that call would take it for the
//!   same.
//! - E3: a sum is formed in the order of the members from the last to the root, in either shape, so that it
//!   is the same bit for bit.

use core::{fmt, ops::Range, slice, time::Duration};
use std::sync::{Arc, Mutex, OnceLock};

use pontoon_signal::{Bound, Host, Nanos, Os, Rank, Seq, Slot, WaitError};

use crate::{CommError, Port, SendError, Weak, channel::locked};

/// How what one member has gets to the others, or what they have to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The root sends to each, and receives from each.
    Flat,
    /// Each sends on to the next what it receives, in pieces of so many bytes: while one piece is on its
    /// way from one to the next, others are between others.
    Ring {
        /// Above zero, and a multiple of the size of what is summed.
        piece: usize,
    },
}

/// What is summed, by its places in the team's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summed {
    /// What each member has, and where the root has the sum.
    pub bytes: Range<usize>,
    /// Where what comes from others lands: the root needs room from here on for as many bytes of all
    /// others in [`Shape::Flat`], and every member but the last for those of one in a ring.
    pub landing: usize,
    /// The size of an element in bytes.
    pub element: usize,
}

/// The way to one other member and back.
#[derive(Clone, Debug)]
pub struct Member {
    /// From the team's memory here to the same there, with a signal that tells of data.
    pub data: Port,
    /// The same, with a signal that tells that bytes are free.
    pub ready: Port,
    /// The member's signals here, of data and of free bytes.
    pub incoming: [Slot; 2],
}

/// The others, as one member's kernels reach them. A handle.
///
/// All members make the same calls in the same order, each from one kernel at a time. A call that fails
/// breaks the team for this member (E2); the others find out by their bounds. The bytes are
/// named by their places in the team's memory, and no call holds a slice of them: a kernel declares them as
/// written and looks at them only before and after.
#[derive(Clone, Debug)]
pub struct Team {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    own: usize,
    /// By their places; the own one is empty.
    members: Vec<Option<Member>>,
    /// What was said and heard so far, by member.
    counts: Mutex<Vec<Counts>>,
    /// Set when a call failed: others may be in the middle of it, and would meet the next one.
    broken: OnceLock<()>,
}

/// Where both of a member's signals here will be next, from where they were when the team was formed.
#[derive(Clone, Copy, Debug)]
struct Counts {
    data: Seq,
    ready: Seq,
}

impl Team {
    /// The team whose places are those of `members`, in which the own one is empty.
    ///
    /// # Errors
    ///
    /// [`CommError::Places`] unless exactly one place is empty.
    pub fn new(members: Vec<Option<Member>>) -> Result<Self, CommError> {
        let empty = members.iter().filter(|member| member.is_none()).count();
        let own = members.iter().position(Option::is_none).filter(|_| empty == 1);
        let own = own.ok_or(CommError::Places { empty, size: members.len() })?;
        let counts = members.iter().map(|member| {
            let value =
                |at: usize| member.as_ref().map_or(Seq::new(0), |it| it.incoming[at].value());
            Counts { data: value(0), ready: value(1) }
        });
        let counts = Mutex::new(counts.collect());
        Ok(Self { inner: Arc::new(Inner { own, members, counts, broken: OnceLock::new() }) })
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.inner.members.len()
    }

    /// The own place.
    pub fn own(&self) -> usize {
        self.inner.own
    }

    /// Gives all members what `root` has at `bytes`.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the bytes of the others are then as they may be, and may yet be written, and the team is
    /// [broken](SendError::Broken). [`SendError::NoMember`], [`SendError::Pieces`], [`SendError::OutOfRange`] and
    /// [`SendError::NoSignal`] come before anything is done, and break nothing.
    ///
    /// # Blocks
    ///
    /// Until this member has its bytes and has sent them on, as long as `bound` allows.
    pub fn broadcast(
        &self,
        root: usize,
        bytes: Range<usize>,
        shape: Shape,
        bound: Bound,
    ) -> Result<(), SendError> {
        let call = self.call(root, bound)?;
        whole_pieces(&bytes, shape, 1)?;
        self.fits(&bytes, |_| 0)?;
        self.whole(self.broadcast_by(&call, root, &bytes, shape))
    }

    fn broadcast_by(
        &self,
        call: &Call<'_>,
        root: usize,
        bytes: &Range<usize>,
        shape: Shape,
    ) -> Result<(), SendError> {
        let (own, size) = (self.own(), self.size());
        match shape {
            Shape::Flat if own == root => {
                let others = (0..size).filter(|at| *at != root);
                others.clone().try_for_each(|other| call.wait_ready(other))?;
                others.clone().try_for_each(|other| call.put(other, bytes.clone(), bytes.start))?;
                others.clone().try_for_each(|other| call.quiet(other))
            }
            Shape::Flat => {
                call.say_ready(root)?;
                call.wait_data(root)
            }
            Shape::Ring { piece } => {
                let (before, after) = call.neighbours();
                before.map_or(Ok(()), |before| call.say_ready(before))?;
                after.map_or(Ok(()), |after| call.wait_ready(after))?;
                for part in pieces(bytes, piece) {
                    before.map_or(Ok(()), |before| call.wait_data(before))?;
                    let start = part.start;
                    after.map_or(Ok(()), |after| call.put(after, part, start))?;
                }
                after.map_or(Ok(()), |after| call.quiet(after))
            }
        }
    }

    /// Adds up at `root` what all members have at the summed bytes. `add` adds up what is at its first ranges, in
    /// their order, and then what is at its last one, where the sum is to be. The bytes of the others are then as
    /// they may be.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the bytes are then as they may be, and may yet be written, and the team is
    /// [broken](SendError::Broken). [`SendError::NoMember`], [`SendError::Pieces`], [`SendError::OutOfRange`],
    /// [`SendError::Overlap`] and [`SendError::NoSignal`] come before anything is done, and break nothing.
    ///
    /// # Blocks
    ///
    /// Until this member has done its part, as long as `bound` allows.
    pub fn reduce(
        &self,
        root: usize,
        summed: Summed,
        shape: Shape,
        bound: Bound,
        add: impl FnMut(&[Range<usize>], Range<usize>),
    ) -> Result<(), SendError> {
        let Summed { bytes, landing, element } = summed;
        let call = self.call(root, bound)?;
        whole_pieces(&bytes, shape, element.max(1))?;
        // Of how many others something lands at each.
        let size = self.size();
        let senders = |at: usize| match shape {
            Shape::Flat if at == root => size - 1,
            Shape::Flat => 0,
            Shape::Ring { .. } => usize::from((at + 1) % size != root),
        };
        let lands = |parts| landing..landing.saturating_add(bytes.len().saturating_mul(parts));
        self.fits(&bytes, |at| if senders(at) > 0 { lands(senders(at)).end } else { 0 })?;
        // All are asked the same: who only sends refuses what would overwrite another's.
        let landing_bytes = lands((0..size).map(senders).max().unwrap_or(0));
        let are_apart = landing_bytes.end <= bytes.start || bytes.end <= landing_bytes.start;
        if !are_apart && !landing_bytes.is_empty() {
            return Err(SendError::Overlap { summed: bytes, landing: landing_bytes });
        }
        self.whole(self.reduce_by(&call, root, &bytes, landing, shape, add))
    }

    /// That the memory of every member has the bytes, and reaches to where `lands_to` says that what it receives
    /// ends; and that each can be told. All members find the same, before anything is sent.
    fn fits(
        &self,
        bytes: &Range<usize>,
        lands_to: impl Fn(usize) -> usize,
    ) -> Result<(), SendError> {
        for (at, member) in self.inner.members.iter().enumerate() {
            let Some(Member { data, ready, .. }) = member else { continue };
            let (own, other) = (data.source_bytes(), data.target_bytes());
            for (at, peer, all) in [(self.own(), data.own(), own), (at, data.peer(), other)] {
                let end = bytes.end.max(lands_to(at));
                if bytes.start > bytes.end || end > all {
                    let asked = bytes.start.min(end)..end;
                    return Err(SendError::OutOfRange { peer, asked, bytes: all });
                }
            }
            data.needs_a_signal(1)?;
            ready.needs_a_signal(1)?;
        }
        Ok(())
    }

    fn reduce_by(
        &self,
        call: &Call<'_>,
        root: usize,
        bytes: &Range<usize>,
        landing: usize,
        shape: Shape,
        mut add: impl FnMut(&[Range<usize>], Range<usize>),
    ) -> Result<(), SendError> {
        let (own, size, len) = (self.own(), self.size(), bytes.len());
        // Where a part of the bytes lands, of the member that is `after` places behind the root.
        let at = |after: usize, part: &Range<usize>| {
            let start = landing + (after - 1) * len + (part.start - bytes.start);
            start..start + part.len()
        };
        match shape {
            Shape::Flat if own == root => {
                let others = (0..size).filter(|at| *at != root);
                others.clone().try_for_each(|other| call.say_ready(other))?;
                others.clone().try_for_each(|other| call.wait_data(other))?;
                // E3: from the last on.
                let landed: Vec<_> = (1..size).rev().map(|after| at(after, bytes)).collect();
                if !landed.is_empty() {
                    add(&landed, bytes.clone());
                }
                Ok(())
            }
            Shape::Flat => {
                let after = (own + size - root) % size;
                call.wait_ready(root)?;
                call.put(root, bytes.clone(), at(after, bytes).start)?;
                call.quiet(root)
            }
            Shape::Ring { piece } => {
                // Towards the root: what comes from behind is added, and goes on to who is before.
                let (before, after) = call.neighbours();
                after.map_or(Ok(()), |after| call.say_ready(after))?;
                before.map_or(Ok(()), |before| call.wait_ready(before))?;
                for part in pieces(bytes, piece) {
                    if let Some(after) = after {
                        call.wait_data(after)?;
                        add(slice::from_ref(&at(1, &part)), part.clone());
                    }
                    if let Some(before) = before {
                        let to = at(1, &part).start;
                        call.put(before, part, to)?;
                    }
                }
                before.map_or(Ok(()), |before| call.quiet(before))
            }
        }
    }

    fn call(&self, root: usize, bound: Bound) -> Result<Call<'_>, SendError> {
        if root >= self.size() {
            return Err(SendError::NoMember { place: root, size: self.size() });
        }
        if self.inner.broken.get().is_some() {
            return Err(SendError::Broken);
        }
        Ok(Call { team: &self.inner, root, bound, began: Os.now() })
    }

    /// Keeps E2.
    fn whole(&self, done: Result<(), SendError>) -> Result<(), SendError> {
        done.inspect_err(|_| {
            let _ = self.inner.broken.set(());
        })
    }
}

/// That the bytes, and the pieces that they go in, are whole elements.
fn whole_pieces(bytes: &Range<usize>, shape: Shape, element: usize) -> Result<(), SendError> {
    let piece = match shape {
        Shape::Ring { piece } => piece,
        Shape::Flat => element,
    };
    if piece == 0 || !piece.is_multiple_of(element) {
        return Err(SendError::Pieces { piece, element });
    }
    let all = bytes.len();
    if all.is_multiple_of(element) {
        Ok(())
    } else {
        Err(SendError::Pieces { piece: all, element })
    }
}

/// `bytes` in pieces of so many, which are not zero.
fn pieces(bytes: &Range<usize>, piece: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = bytes.end;
    (bytes.start..end).step_by(piece).map(move |start| start..end.min(start.saturating_add(piece)))
}

/// A call that is under way.
struct Call<'t> {
    team: &'t Inner,
    root: usize,
    bound: Bound,
    began: Nanos,
}

impl Call<'_> {
    fn left(&self) -> Bound {
        self.bound.less(Os.now().since(self.began))
    }

    /// No call lasts longer than its own bound for room in a ring.
    fn patience(&self) -> Duration {
        self.left().deadline().unwrap_or(Duration::MAX)
    }

    /// Who is before this member on the way from the root, and who behind.
    fn neighbours(&self) -> (Option<usize>, Option<usize>) {
        let (own, size) = (self.team.own, self.team.members.len());
        let place = (own + size - self.root) % size;
        let before = (place > 0).then(|| (own + size - 1) % size);
        let after = (place + 1 < size).then(|| (own + 1) % size);
        (before, after)
    }

    fn member(&self, at: usize) -> Result<&Member, SendError> {
        let size = self.team.members.len();
        let member = self.team.members.get(at).and_then(Option::as_ref);
        member.ok_or(SendError::NoMember { place: at, size })
    }

    /// E1: this member's bytes are free for `other`.
    fn say_ready(&self, other: usize) -> Result<(), SendError> {
        let ready = self.member(other)?.ready.with_patience(self.patience());
        ready.signal(1, Weak)?.wait(self.left())
    }

    fn put(&self, other: usize, from: Range<usize>, to: usize) -> Result<(), SendError> {
        self.member(other)?.data.with_patience(self.patience()).send_range(from, to, 1)
    }

    fn quiet(&self, other: usize) -> Result<(), SendError> {
        self.member(other)?.data.quiet(self.left())
    }

    fn wait_data(&self, other: usize) -> Result<(), SendError> {
        let target = {
            let counts = &mut locked(&self.team.counts)[other];
            counts.data = counts.data + 1;
            counts.data
        };
        self.wait(other, 0, target)
    }

    fn wait_ready(&self, other: usize) -> Result<(), SendError> {
        let target = {
            let counts = &mut locked(&self.team.counts)[other];
            counts.ready = counts.ready + 1;
            counts.ready
        };
        self.wait(other, 1, target)
    }

    fn wait(&self, other: usize, which: usize, target: Seq) -> Result<(), SendError> {
        let member = self.member(other)?;
        let waiter = member.incoming[which].uncounted_waiter();
        match member.data.wait_on(&waiter, target, self.left()) {
            Ok(observed) => {
                let _ = observed.acq_fence();
                Ok(())
            }
            Err(error) => {
                let for_data = which == 0;
                Err(SendError::Member { peer: member.data.peer(), for_data, error })
            }
        }
    }
}

/// Who a wait of a team is for.
pub(crate) fn waited_for(
    f: &mut fmt::Formatter<'_>,
    peer: Rank,
    for_data: bool,
    error: &WaitError,
) -> fmt::Result {
    let what = if for_data { "what it sends" } else { "its bytes to be free" };
    write!(f, "of rank {peer} {what} was waited for: {error}")
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn pieces_are_all_of_it_and_no_more() {
        let all = |bytes, piece| {
            let ends = pieces(&bytes, piece).map(|part| (part.start, part.end));
            ends.collect::<Vec<_>>()
        };
        assert_eq!(all(3..10, 4), [(3, 7), (7, 10)]);
        assert_eq!(all(3..10, 7), [(3, 10)]);
        assert_eq!(all(3..10, usize::MAX), [(3, 10)]);
        assert_eq!(all(3..3, 4), []);
        assert_eq!(all(0..2, 1), [(0, 1), (1, 2)]);
    }
}
