//! The suite that holds a link to the clauses of [`Link`].
//!
//! A link's tests implement [`LinkSubject`] and call [`run_all`], once for each way that ranks can be
//! connected, and with counters that start anywhere. Each function checks one clause and panics with
//! a sentence that names it. Every wait is bounded: a link that hangs fails.
//!
//! The ranks of a world live in one process. A thread each calls [`Link::progress`], so that a link
//! without threads of its own moves as well; waits at a rank are by [`Link::wait`].

mod adds;
mod atomics;
mod bounds;
mod bytes;
mod death;
mod delegate;
mod handles;
mod order;
mod regions;
mod signals;
mod transfers;

#[doc(inline)]
pub use crate::delegate_link;
pub use adds::{
    l5_a_strong_signal_vouches_for_additions, l7_a_posted_addition_brings_what_was_there,
    l7_posted_additions_lose_nothing, l8_a_posted_addition_does_not_wait,
};
pub use atomics::l7_atomic_operations_lose_nothing;
pub use bounds::{l8_a_bound_ends_a_flush, l10_no_more_than_the_depth_is_under_way};
pub use death::{l1_keys_of_a_former_life_are_stale, l9_the_dead_fail_at_once_and_alone};
pub use handles::{
    capabilities_stay_as_they_are, handles_of_others_are_refused, l11_each_operation_is_explained,
};
pub use order::{
    l3_a_fence_keeps_what_follows_behind, l4_a_flush_says_that_all_is_there,
    l5_a_strong_signal_vouches_for_all, l5_a_weak_signal_vouches_for_its_write,
};
pub use regions::{
    l1_a_deregistered_region_is_out_of_reach, l1_keys_that_open_nothing,
    l1_ranges_outside_are_refused,
};
pub use signals::l6_a_signal_is_a_publish;
pub use transfers::{
    l2_operations_are_numbered, l2_what_is_done_is_there_and_its_buffer_free,
    l2_what_is_under_way_outlives_its_handles, l2_what_was_taken_over_may_change,
};

use std::{
    any::Any,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pontoon_signal::{
    Block, Bound, Rank, Seq, SignalTable, SlotId, Waiter,
    shim::{AtomicU32, Ordering::*},
};

use super::{Checked, PATIENCE};
use crate::link::{Link, LinkError, RegionKey, Registered, Remote, RemoteSignal};

/// How many slots the table of each rank has for each other at least.
pub const SLOTS: u32 = 4;
/// How large the heap of each rank is at least.
pub const HEAP_BYTES: usize = 16 << 20;

/// A rank of a world under test.
#[derive(Debug)]
pub struct Member {
    /// Its link, connected with all others.
    pub link: Arc<dyn Link>,
    /// Its table, where the others' signals land: [`SLOTS`] slots a rank, ranks from 0 on.
    pub signals: SignalTable,
    /// Memory that the link can open to others, [`HEAP_BYTES`] of it.
    pub heap: Block,
    /// Whatever the subject keeps of it.
    pub own: Box<dyn Any + Send + Sync>,
}

/// A way to connect ranks.
pub trait LinkSubject: Sync {
    /// Opens ranks 0 to `ranks`, each connected with all others, in this order.
    fn open(&self, ranks: u32) -> Vec<Member>;

    /// Ends rank `at` as if its process had died, and tells the others no more than a death would.
    /// Whether it can; where not, a check tells the others, by [`Link::end_peer`].
    fn kill(&self, members: &mut [Member], at: usize) -> bool;

    /// Starts rank `at` again, which was killed, and connects the others with it anew. Whether the
    /// link can.
    fn restart(&self, members: &mut [Member], at: usize) -> bool;

    /// Keeps the link of `member` from making progress, until what it gives is dropped; `None` if it
    /// cannot.
    fn hold(&self, member: &Member) -> Option<Box<dyn Any>>;
}

type Check<S> = fn(&S) -> Checked;

/// Checks every clause and prints which; goes on past a broken one.
///
/// # Panics
///
/// If the link breaks a clause.
pub fn run_all<S: LinkSubject>(subject: &S) {
    let clauses: [(&str, Check<S>); 24] = [
        ("L1 ranges", l1_ranges_outside_are_refused),
        ("L1 keys", l1_keys_that_open_nothing),
        ("L1 deregistered", l1_a_deregistered_region_is_out_of_reach),
        ("L1 stale", l1_keys_of_a_former_life_are_stale),
        ("L2 numbers", l2_operations_are_numbered),
        ("L2 bytes", l2_what_is_done_is_there_and_its_buffer_free),
        ("L2 handles", l2_what_is_under_way_outlives_its_handles),
        ("L2 inline", l2_what_was_taken_over_may_change),
        ("L3", l3_a_fence_keeps_what_follows_behind),
        ("L4", l4_a_flush_says_that_all_is_there),
        ("L5 weak", l5_a_weak_signal_vouches_for_its_write),
        ("L5 strong", l5_a_strong_signal_vouches_for_all),
        ("L6", l6_a_signal_is_a_publish),
        ("L5 additions", l5_a_strong_signal_vouches_for_additions),
        ("L7", l7_atomic_operations_lose_nothing),
        ("L7 posted", l7_a_posted_addition_brings_what_was_there),
        ("L7 posted at once", l7_posted_additions_lose_nothing),
        ("L8", l8_a_bound_ends_a_flush),
        ("L8 posted", l8_a_posted_addition_does_not_wait),
        ("L9", l9_the_dead_fail_at_once_and_alone),
        ("L10", l10_no_more_than_the_depth_is_under_way),
        ("L11", l11_each_operation_is_explained),
        ("capabilities", capabilities_stay_as_they_are),
        ("handles", handles_of_others_are_refused),
    ];
    let mut broken = Vec::new();
    for (clause, check) in clauses {
        // One broken clause hides no other.
        match catch_unwind(AssertUnwindSafe(|| check(subject))) {
            Ok(Checked::Yes) => println!("checked {clause}"),
            Ok(Checked::Partly(missing)) => println!("checked {clause} in part: no {missing}"),
            Ok(Checked::No(missing)) => println!("skipped: {clause} needs {missing}"),
            Err(_) => broken.push(clause),
        }
    }
    assert!(broken.is_empty(), "the link breaks {}", broken.join(", "));
}

/// Ranks under test, and the threads that move their links.
struct World<'s, S: LinkSubject> {
    subject: &'s S,
    clause: &'static str,
    members: Vec<Member>,
    movers: Vec<Option<Mover>>,
}

/// A thread that calls `progress` until this is dropped.
struct Mover {
    stop: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    fn of(member: &Member) -> Self {
        let (link, stop) = (Arc::clone(&member.link), Arc::new(AtomicU32::new(0)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while stopped.load(Relaxed) == 0 {
                if !link.progress() {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.stop.store(1, Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, the link did, and the check fails on what that left undone.
            let _ = thread.join();
        }
    }
}

fn patient() -> Bound {
    Bound::within(PATIENCE)
}

impl<'s, S: LinkSubject> World<'s, S> {
    fn new(subject: &'s S, clause: &'static str, ranks: u32) -> Self {
        let members = subject.open(ranks);
        assert_eq!(members.len(), ranks as usize, "{clause}: a world of {ranks} ranks");
        let movers = members.iter().map(|member| Some(Mover::of(member))).collect();
        Self { subject, clause, members, movers }
    }

    fn link(&self, at: usize) -> &dyn Link {
        &*self.members[at].link
    }

    /// The bytes `range` of the heap of rank `at`.
    #[track_caller]
    fn part(&self, at: usize, range: Range<usize>) -> Block {
        let part = self.members[at].heap.part(range.clone());
        part.unwrap_or_else(|| panic!("{}: the heap has no bytes {range:?}", self.clause))
    }

    #[track_caller]
    fn registered(&self, at: usize, range: Range<usize>) -> Registered {
        self.good("register", self.link(at).register(&self.part(at, range)))
    }

    /// The region that rank `from` attaches by the key of `region`, as it would come over a wire.
    #[track_caller]
    fn remote(&self, from: usize, to: usize, region: &Registered) -> Remote {
        self.good("attach", self.link(from).attach(rank(to), &self.key(region)))
    }

    #[track_caller]
    fn key(&self, region: &Registered) -> RegionKey {
        let key = region.key().and_then(|key| RegionKey::from_bytes(key.as_bytes().to_vec()));
        key.unwrap_or_else(|| panic!("{}: a part of the heap has no key", self.clause))
    }

    #[track_caller]
    fn signal(&self, from: usize, to: usize, slot: u32) -> RemoteSignal {
        self.good("attach a signal", self.link(from).attach_signal(rank(to), slot))
    }

    /// A waiter at rank `at` on a slot of the row of `from`.
    #[track_caller]
    fn waiter(&self, at: usize, from: usize, slot: u32) -> Waiter {
        let slot = SlotId { producer: rank(from), slot };
        let waiter = self.members[at].signals.waiter(slot);
        waiter.unwrap_or_else(|error| panic!("{}: {error}", self.clause))
    }

    #[track_caller]
    fn good<T>(&self, what: &str, result: Result<T, LinkError>) -> T {
        result.unwrap_or_else(|error| panic!("{}: {what}: {error}", self.clause))
    }

    /// Posts, as soon as there is room.
    #[track_caller]
    fn post(&self, at: usize, mut operation: impl FnMut() -> Result<Seq, LinkError>) -> Seq {
        let start = Instant::now();
        loop {
            match operation() {
                Err(LinkError::Full { .. }) => {
                    self.link(at).progress();
                    self.still_patient(start, "a link that was full has room again");
                    thread::yield_now();
                }
                result => return self.good("a good operation was refused", result),
            }
        }
    }

    /// Waits until operation `number` on `to` is done.
    #[track_caller]
    fn done(&self, from: usize, to: usize, number: Seq) {
        let slot = self.good("completions", self.link(from).completions(rank(to)));
        self.reached(from, &slot.waiter(), number);
    }

    /// Waits at rank `at`, and acquires.
    #[track_caller]
    fn reached(&self, at: usize, waiter: &Waiter, target: Seq) {
        match self.link(at).wait(waiter, target, patient()) {
            Ok(observed) => drop(observed.acq_fence()),
            Err(error) => panic!("{}: what was posted did not come: {error}", self.clause),
        }
    }

    #[track_caller]
    fn flush(&self, from: usize, to: usize) {
        self.good("flush", self.link(from).flush(rank(to), patient()));
    }

    #[track_caller]
    fn holds(&self, what: &str, truth: bool) {
        assert!(truth, "{}: {what}", self.clause);
    }

    #[track_caller]
    fn still_patient(&self, start: Instant, what: &str) {
        assert!(start.elapsed() < PATIENCE, "{}: {what} within {PATIENCE:?}", self.clause);
    }

    /// Polls until `done`, as long as patience lasts.
    #[track_caller]
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            self.still_patient(start, what);
            thread::yield_now();
        }
    }

    /// Keeps rank `at` from making progress; `None` if the link cannot be kept.
    fn hold(&mut self, at: usize) -> Option<Box<dyn Any>> {
        let held = self.subject.hold(&self.members[at])?;
        self.movers[at] = None;
        Some(held)
    }

    fn let_go(&mut self, at: usize, held: Box<dyn Any>) {
        drop(held);
        self.movers[at] = Some(Mover::of(&self.members[at]));
    }

    /// Kills rank `at`, and tells the others who cannot know. Whether there was a death.
    fn kill(&mut self, at: usize) -> bool {
        self.movers[at] = None;
        let died = self.subject.kill(&mut self.members, at);
        for other in (0..self.members.len()).filter(|&other| other != at) {
            let link = self.link(other);
            let notices = link.capabilities(rank(at)).is_ok_and(|can| can.notices_death);
            if !died || !notices {
                link.end_peer(rank(at), pontoon_signal::Ending::PeerDead { rank: rank(at) });
            }
        }
        died
    }
}

impl<S: LinkSubject> Drop for World<'_, S> {
    /// The links stop before the threads that move them are gone, or their ends would not be told.
    fn drop(&mut self) {
        self.movers.clear();
    }
}

fn rank(at: usize) -> Rank {
    Rank(at as u32)
}
