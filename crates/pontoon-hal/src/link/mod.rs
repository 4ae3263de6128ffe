//! A link: the way from one rank to the memory and the signals of others.
//!
//! `region.rs` has what is reached, `error.rs` how it fails, `capability.rs` what a link can do and
//! how it says so.

mod capability;
mod error;
mod kept;
mod region;

use core::{fmt, ops::Range};

use pontoon_signal::{Block, Bound, Ending, Observed, Rank, Seq, Slot, WaitError, Waiter};

pub use capability::{Between, Explanation, LinkCapabilities, Operation, STEPS_MAX};
pub use error::{KeyFault, LinkError};
pub use region::{RegionKey, Registered, Remote, RemoteSignal};

/// How much a signal that follows a write vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// For everything that was posted to this peer before, and for the write it goes with.
    Strong,
    /// For the write it goes with, and for nothing else.
    Weak,
}

/// Where a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Nothing is known against it.
    Alive,
    /// Nothing reaches it any more, for this reason.
    Ended(Ending),
}

/// What a link did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkReport {
    /// Operations posted.
    pub posted: u64,
    /// Bytes that they carry.
    pub bytes: u64,
    /// L8: buffers that are kept because what was to be done with them is not known to be over.
    pub quarantined: u64,
    /// Messages of others that were refused: an unknown key, a range outside, a wrong form.
    pub refused: u64,
}

/// The ways from one rank to others over one transport.
///
/// A peer is a rank that the link was connected to when it was made, or later by a call of its own.
/// All calls may be made from any thread.
///
/// - L1: of a peer's memory a link reaches what was registered there and whose key was handed over,
///   and nothing else. A range outside is refused before anything is done. A key cannot be guessed,
///   and is worth nothing once its region is registered no more or its owner was restarted.
/// - L2: operations on a peer are numbered from 1, each number once; those of one thread in the order
///   it posted them, and those of several in any order among each other. Once the peer's
///   [completions](Self::completions) are at or past a number, that operation and all of lower
///   numbers are done on this side: what was read is there, and what was written from may be used
///   again. Until then its bytes belong to the link, whatever becomes of the handles. What is refused
///   has no number.
/// - L3: what is posted to a peer after a [`fence`](Self::fence) is performed there after what was
///   posted before it.
/// - L4: a [`flush`](Self::flush) that succeeds says that all that was posted to the peer before is
///   performed there: whoever at the peer learns of the flush and acquires it sees it.
/// - L5: whoever at the peer acquires the counter of a [`write_signal`](Self::write_signal) or a
///   [`signal`](Self::signal) sees what its [`Order`] vouches for.
/// - L6: a signal lands in the peer's table in the row of this rank, as a publish does: who sleeps on
///   it wakes, and the last publish and its producer can be read there.
/// - L7: additions and `compare_swap` work on aligned 8-byte words in the byte order of the peer, and are
///   atomic against each other from every rank. Against the peer's own processors they are where the
///   link says so ([`LinkCapabilities::system_atomics`]).
/// - L8: no call lasts longer than its bound, and those without one never wait, but for
///   [`attach_signal`](Self::attach_signal). What is under way
///   when a bound ends or a peer dies may still touch its buffers: the link keeps them until it is
///   certain that nothing will, and counts them.
/// - L9: once a peer is known to be dead or out of reach, every operation on it fails with that, at
///   once. Its completions end as soon as nothing touches the bytes of what was under way any more. It
///   stays so, and other peers notice nothing.
/// - L10: at most [`LinkCapabilities::depth`] operations on a peer are under way. One more is refused
///   with [`LinkError::Full`], and nothing was done.
/// - L11: what [`explain`](Self::explain) tells is what the link does.
pub trait Link: Send + Sync + fmt::Debug {
    /// Its name: `shm`, `ucx`.
    fn name(&self) -> &'static str;

    /// The rank at this end.
    fn rank(&self) -> Rank;

    /// What it can do on the way to `peer`.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchPeer`].
    fn capabilities(&self, peer: Rank) -> Result<LinkCapabilities, LinkError>;

    /// Where `peer` stands. One that the link never heard of has ended too.
    fn peer_state(&self, peer: Rank) -> PeerState;

    /// L9: tells the link that `peer` has ended: whoever watches over the job knows first.
    fn end_peer(&self, peer: Rank, ending: Ending);

    /// Makes `block` known to the link, for as long as the handle lives: to read into, to write
    /// from, and, if its [key](Registered::key) is handed over, to be read and written by others.
    ///
    /// # Errors
    ///
    /// What the transport says.
    fn register(&self, block: &Block) -> Result<Registered, LinkError>;

    /// The region of `peer` that `key` opens.
    ///
    /// # Errors
    ///
    /// [`LinkError::Key`] for one that opens nothing; [`LinkError::PeerDead`].
    fn attach(&self, peer: Rank, key: &RegionKey) -> Result<Remote, LinkError>;

    /// That all of these are this link's, and of one peer: who keeps them for later has it refused now.
    ///
    /// # Errors
    ///
    /// [`LinkError::Foreign`], naming the first that is not.
    fn owns(
        &self,
        from: &Registered,
        to: &Remote,
        signal: Option<&mut RemoteSignal>,
    ) -> Result<(), LinkError>;

    /// Slot `slot` of this rank's row in the signal table of `peer`: this rank becomes its producer.
    ///
    /// # Errors
    ///
    /// [`LinkError::Slot`] if there is none or it is taken.
    ///
    /// # Blocks
    ///
    /// Not where the peer's table is mapped here; else until the peer has answered, within a bound of the
    /// link's own of some seconds.
    fn attach_signal(&self, peer: Rank, slot: u32) -> Result<RemoteSignal, LinkError>;

    /// Writes the bytes `range` of `from` to `to`, from `offset` on. Gives the operation's number.
    ///
    /// # Errors
    ///
    /// [`LinkError`]; nothing was done.
    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError>;

    /// As [`write`](Self::write), of bytes that are taken over before it returns: at most
    /// [`LinkCapabilities::inline_bytes`].
    ///
    /// # Errors
    ///
    /// [`LinkError`]; nothing was done.
    fn write_inline(&self, bytes: &[u8], to: &Remote, offset: usize) -> Result<Seq, LinkError>;

    /// Reads from `from`, from `offset` on, into the bytes `range` of `into`.
    ///
    /// # Errors
    ///
    /// [`LinkError`]; nothing was done.
    fn read(
        &self,
        from: &Remote,
        offset: usize,
        into: &Registered,
        range: Range<usize>,
    ) -> Result<Seq, LinkError>;

    /// The `bytes` bytes of `from` from `offset` on, where they are mapped in this process: who copies from there at once
    /// has what a [`read`](Self::read) would bring. `None` where they are not, by any
    /// link that does not know better. No [report](Self::report) counts it.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    fn mapped(
        &self,
        from: &Remote,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<Block>, LinkError> {
        let _ = (from, offset, bytes);
        Ok(None)
    }

    /// Writes as [`write`](Self::write) does, then grows `signal`, which is the same peer's, by `n`.
    ///
    /// # Errors
    ///
    /// [`LinkError`]; neither was done.
    #[expect(
        clippy::too_many_arguments,
        reason = "what, from where, to where, and then whom to tell"
    )]
    fn write_signal(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
        signal: &mut RemoteSignal,
        n: u32,
        order: Order,
    ) -> Result<Seq, LinkError>;

    /// Grows `signal` by `n`.
    ///
    /// # Errors
    ///
    /// [`LinkError`]; nothing was done.
    fn signal(&self, signal: &mut RemoteSignal, n: u32, order: Order) -> Result<Seq, LinkError>;

    /// Adds `n` to the word at `offset` of `to`, without waiting for it. Gives the operation's number: once
    /// that is done, what the word was is in `reply`, at the place of a word, as a number
    /// of this rank's. Without a `reply` nobody asks.
    ///
    /// # Errors
    ///
    /// [`LinkError`]; nothing was done.
    fn post_add(
        &self,
        to: &Remote,
        offset: usize,
        n: u64,
        reply: Option<(&Registered, usize)>,
    ) -> Result<Seq, LinkError>;

    /// Adds `n` to the word at `offset` of `to`. Gives what it was.
    ///
    /// # Errors
    ///
    /// [`LinkError`]. After a time-out the addition may have been done, or may yet be.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    fn add(&self, to: &Remote, offset: usize, n: u64, bound: Bound) -> Result<u64, LinkError>;

    /// Puts `new` in the word at `offset` of `to` if it is `expected`. Gives what it was.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    fn compare_swap(
        &self,
        to: &Remote,
        offset: usize,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, LinkError>;

    /// L3: keeps what comes after behind what came before, at `peer`.
    ///
    /// # Errors
    ///
    /// [`LinkError::PeerDead`], [`LinkError::Failed`].
    fn fence(&self, peer: Rank) -> Result<(), LinkError>;

    /// L4: waits until all that was posted to `peer` is performed there.
    ///
    /// # Errors
    ///
    /// [`LinkError::TimedOut`] says how far it got.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    fn flush(&self, peer: Rank, bound: Bound) -> Result<(), LinkError>;

    /// L2: the counter of operations on `peer` that are done on this side.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchPeer`].
    fn completions(&self, peer: Rank) -> Result<Slot, LinkError>;

    /// Whether what goes to and from `peer` moves on without [`progress`](Self::progress), which then
    /// need not be called between two polls. It stays as it was when the peer was connected.
    fn moves_by_itself(&self, peer: Rank) -> bool {
        let _ = peer;
        true
    }

    /// Moves on what is under way, without waiting. Whether there was anything to do.
    fn progress(&self) -> bool {
        false
    }

    /// Waits on a counter that this link moves: a [completion](Self::completions), or a signal that a
    /// peer sends here. The caller's thread does the link's work meanwhile, which saves a wake-up.
    ///
    /// # Errors
    ///
    /// As [`Waiter::wait_ge_bounded`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    fn wait<'w>(
        &self,
        waiter: &'w Waiter,
        target: Seq,
        bound: Bound,
    ) -> Result<Observed<'w>, WaitError> {
        waiter.wait_ge_bounded(target, bound)
    }

    /// What `operation` on `peer` is made of.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchPeer`].
    fn explain(&self, peer: Rank, operation: Operation) -> Result<Explanation, LinkError>;

    /// What it did so far.
    fn report(&self) -> LinkReport;
}
