//! The link keeps the contract of links, over each transport and wherever the counters start.

use std::{any::Any, sync::Arc, time::Duration};

use pontoon_hal::{
    conformance::{
        link::{HEAP_BYTES, LinkSubject, Member, SLOTS, run_all},
        part,
    },
    link::{Between, KeyFault, LinkError, Registered},
};
use pontoon_signal::{
    Bound, Identity, Nanos, Rank, Segment, SegmentShape, Seq, Span, TableShape, WaitError,
    shim::Ordering::Relaxed,
};
use pontoon_ucx::{Library, Options, UcxLink};

/// Ranks that reach each other by UCX, their counters starting there.
struct Ucx {
    options: Options,
    /// Whether UCX allocates their segments, so that they can be mapped.
    allocated: bool,
    start: u64,
}

/// What a rank keeps: its link as itself, and which start of the rank it is of.
struct Own {
    link: Arc<UcxLink>,
    epoch: u32,
}

/// The ways to be tested; `None` after saying that there is no UCX.
fn over(transport: &str, allocated: bool, start: u64) -> Option<Ucx> {
    part::needed("ucx", Library::open())?;
    let options = match transport {
        "tcp" => Options::default().transports("tcp").devices("lo"),
        other => Options::default().transports(other),
    };
    Some(Ucx { options, allocated, start })
}

impl Ucx {
    fn member(&self, at: usize, ranks: usize, epoch: u32) -> Member {
        let signals = TableShape::new(ranks as u32, SLOTS).starting_at(Seq::new(self.start));
        let shape = SegmentShape { signals, ..SegmentShape::new(1, 1, HEAP_BYTES) };
        let (rank, pid) = (Rank(at as u32), std::process::id());
        let whose = Identity {
            job: *b"a job of a test.",
            rank,
            world: ranks as u32,
            epoch,
            pid,
            start_time: 0,
            created: Nanos(0),
        };
        let options = self.options.clone();
        let link = if self.allocated {
            UcxLink::allocate(shape, whose, options)
        } else {
            UcxLink::open(Segment::create(shape, whose).unwrap(), options)
        };
        let link = Arc::new(link.unwrap());
        let (signals, heap) = (link.segment().signals().clone(), link.segment().heap().clone());
        let own = Own { link: Arc::clone(&link), epoch };
        Member { link, signals, heap, own: Box::new(own) }
    }
}

fn own(member: &Member) -> &Own {
    member.own.downcast_ref().expect("a member of this subject")
}

impl LinkSubject for Ucx {
    fn open(&self, ranks: u32) -> Vec<Member> {
        let count = ranks as usize;
        let members: Vec<_> = (0..count).map(|at| self.member(at, count, 0)).collect();
        let pairs = (0..count).flat_map(|at| (0..count).map(move |other| (at, other)));
        let pairs: Vec<_> = pairs.filter(|(at, other)| at != other).collect();
        let card = |&(at, other): &(usize, usize)| {
            (at, other, own(&members[at]).link.card(Rank(other as u32)).unwrap())
        };
        let cards: Vec<_> = pairs.iter().map(card).collect();
        for (at, other, card) in cards {
            own(&members[other]).link.connect(Rank(at as u32), &card).unwrap();
        }
        members
    }

    /// All are of one process: `tests/link_processes.rs` kills for real.
    fn kill(&self, _: &mut [Member], _: usize) -> bool {
        false
    }

    fn restart(&self, members: &mut [Member], at: usize) -> bool {
        let next = self.member(at, members.len(), own(&members[at]).epoch + 1);
        members[at] = next;
        for other in (0..members.len()).filter(|other| *other != at) {
            let (new, old) = (&own(&members[at]).link, &own(&members[other]).link);
            let cards = (new.card(Rank(other as u32)).unwrap(), old.card(Rank(at as u32)).unwrap());
            old.reconnect(Rank(at as u32), &cards.0).unwrap();
            new.connect(Rank(other as u32), &cards.1).unwrap();
        }
        true
    }

    fn hold(&self, member: &Member) -> Option<Box<dyn Any>> {
        let link = Arc::clone(&own(member).link);
        link.set_thread(false).unwrap();
        Some(Box::new(Hold(link)))
    }
}

/// A link without its thread.
struct Hold(Arc<UcxLink>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.set_thread(true).unwrap();
    }
}

const NEAR_THE_END: u64 = u64::MAX - 2;

#[test]
fn tcp_with_counters_that_start_at_zero() {
    let Some(subject) = over("tcp", false, 0) else { return };
    run_all(&subject);
}

#[test]
fn tcp_with_counters_that_wrap() {
    let Some(subject) = over("tcp", true, NEAR_THE_END) else { return };
    run_all(&subject);
}

#[test]
fn messages_over_shared_memory_with_counters_that_start_at_zero() {
    let Some(subject) = over("posix", false, 0) else { return };
    run_all(&subject);
}

#[test]
fn messages_over_shared_memory_with_counters_that_wrap() {
    let Some(subject) = over("posix", false, NEAR_THE_END) else { return };
    run_all(&subject);
}

#[test]
fn mapped_memory_with_counters_that_start_at_zero() {
    let Some(subject) = over("posix", true, 0) else { return };
    run_all(&subject);
}

#[test]
fn mapped_memory_with_counters_that_wrap() {
    let Some(subject) = over("posix", true, NEAR_THE_END) else { return };
    run_all(&subject);
}

/// Which way there is depends on the transport and on whose memory it is.
#[test]
fn capabilities_tell_messages_from_mapped_memory() {
    for (transport, allocated, mapped) in [
        ("tcp", false, false),
        ("tcp", true, false),
        ("posix", false, false),
        ("posix", true, true),
    ] {
        let Some(subject) = over(transport, allocated, 0) else { return };
        let members = subject.open(2);
        let can = members[0].link.capabilities(Rank(1)).unwrap();
        let between = if mapped { Between::Release } else { Between::OneMessage };
        let told = (can.mapped, can.one_sided, can.between, can.system_atomics);
        assert_eq!(told, (mapped, mapped, between, true), "{transport}, allocated: {allocated}");
        assert!(can.notices_death);
    }
}

/// What a peer refuses of additions: one that brings nothing is told by the next flush, and one whose old value
/// somebody waits for ends the way, as a read does. Where the peer is mapped both are refused at once, and so is, with
/// any link, what lies on no word's place.
#[test]
fn additions_that_the_peer_refuses_are_told() {
    for (transport, allocated) in [("tcp", false), ("posix", false), ("posix", true)] {
        let Some(subject) = over(transport, allocated, 0) else { return };
        let members = subject.open(2);
        let [near, far] = [0, 1].map(|at: usize| &*members[at].link);
        let register = |at: usize, range| {
            let link = &members[at].link;
            link.register(&members[at].heap.part(range).unwrap()).unwrap()
        };
        let attach = |region: &Registered| near.attach(far.rank(), region.key().unwrap()).unwrap();
        let (off, gone) = (register(1, 4..68), register(1, 128..192));
        let (to_off, to_gone, local) = (attach(&off), attach(&gone), register(0, 0..64));
        drop(gone);
        let unknown = LinkError::Key { peer: Rank(1), why: KeyFault::Unknown };
        let misaligned = LinkError::Misaligned { offset: 8 };
        let in_time = || Bound::within(Duration::from_secs(30));
        let flush = || near.flush(Rank(1), in_time());
        assert_eq!(near.post_add(&to_off, 8, 1, None), Err(misaligned.clone()), "{transport}");
        assert_eq!(near.add(&to_off, 8, 1, in_time()), Err(misaligned), "{transport}");
        match near.post_add(&to_gone, 8, 1, None) {
            Ok(_) => assert_eq!((flush(), allocated), (Err(unknown), false), "{transport}"),
            Err(at_once) => assert_eq!((at_once, allocated), (unknown, true), "{transport}"),
        }
        assert_eq!(flush(), Ok(()), "{transport}: told once");
        let bytes = Span::of(&members[1].heap, 0..256).unwrap();
        assert!((0..256).step_by(8).all(|at| bytes.word(at).unwrap().load(Relaxed) == 0));
        let waited = near.post_add(&to_gone, 8, 1, Some((&local, 8)));
        if allocated {
            assert!(matches!(waited, Err(LinkError::Key { .. })), "{transport}: {waited:?}");
            continue;
        }
        let done = near.completions(Rank(1)).unwrap().waiter();
        let told = near.wait(&done, waited.unwrap(), Bound::within(Duration::from_secs(30)));
        let told = told.map(|_| ()).expect_err("nothing is there to bring");
        assert!(matches!(told, WaitError::LinkFailed { code: 2, .. }), "{transport}: {told}");
    }
}
