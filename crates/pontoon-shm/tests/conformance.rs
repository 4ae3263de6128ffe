//! The link keeps the contract of links, wherever the counters start.

use std::{any::Any, sync::Arc};

use pontoon_hal::conformance::link::{HEAP_BYTES, LinkSubject, Member, SLOTS, run_all};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{Rank, Segment, SegmentShape, Seq, TableShape};

/// Ranks that map each other's segments, their counters starting there.
struct Shm {
    start: u64,
}

/// What a rank keeps: its segment, and its link as itself.
struct Own {
    segment: Segment,
    link: Arc<ShmLink>,
    epoch: u32,
}

impl Shm {
    fn member(&self, at: usize, ranks: usize, epoch: u32) -> Member {
        let signals = TableShape::new(ranks as u32, SLOTS).starting_at(Seq::new(self.start));
        let shape = SegmentShape { signals, ..SegmentShape::new(1, 1, HEAP_BYTES) };
        let whose = identity(*b"a job of a test.", Rank(at as u32), ranks as u32, epoch);
        let segment = Segment::create(shape, whose).unwrap();
        let link = Arc::new(ShmLink::new(segment.clone()));
        let (signals, heap) = (segment.signals().clone(), segment.heap().clone());
        let own = Own { segment, link: Arc::clone(&link), epoch };
        Member { link, signals, heap, own: Box::new(own) }
    }
}

fn own(member: &Member) -> &Own {
    member.own.downcast_ref().expect("a member of this subject")
}

/// The segment as another process would map it.
fn mapped(member: &Member) -> Segment {
    let file = own(member).segment.file().expect("a memfd").try_clone_to_owned().unwrap();
    Segment::open(file).unwrap()
}

impl LinkSubject for Shm {
    fn open(&self, ranks: u32) -> Vec<Member> {
        let count = ranks as usize;
        let members: Vec<_> = (0..count).map(|at| self.member(at, count, 0)).collect();
        for (at, member) in members.iter().enumerate() {
            for (other, peer) in members.iter().enumerate().filter(|(other, _)| *other != at) {
                own(member).link.connect(Rank(other as u32), mapped(peer)).unwrap();
            }
        }
        members
    }

    /// All are of one process: `tests/processes.rs` kills for real.
    fn kill(&self, _: &mut [Member], _: usize) -> bool {
        false
    }

    fn restart(&self, members: &mut [Member], at: usize) -> bool {
        let next = self.member(at, members.len(), own(&members[at]).epoch + 1);
        members[at] = next;
        for other in (0..members.len()).filter(|other| *other != at) {
            let (there, here) = (mapped(&members[at]), mapped(&members[other]));
            own(&members[other]).link.reconnect(Rank(at as u32), there).unwrap();
            own(&members[at]).link.connect(Rank(other as u32), here).unwrap();
        }
        true
    }

    /// A peer takes no part in what is done to its memory: `tests/processes.rs` stops one.
    fn hold(&self, _: &Member) -> Option<Box<dyn Any>> {
        None
    }
}

#[test]
fn counters_that_start_at_zero() {
    run_all(&Shm { start: 0 });
}

#[test]
fn counters_that_wrap() {
    run_all(&Shm { start: u64::MAX - 2 });
}

#[test]
fn counters_that_turn_negative() {
    run_all(&Shm { start: (1 << 63) - 5 });
}

#[test]
fn what_is_done_is_counted() {
    let members = Shm { start: 0 }.open(2);
    let region = members[1].link.register(&members[1].heap.part(0..64).unwrap()).unwrap();
    let key = region.key().unwrap();
    let (link, stranger) = (&members[0].link, [1; 48]);
    let to = link.attach(Rank(1), key).unwrap();
    link.write_inline(&[1, 2, 3], &to, 0).unwrap();
    link.write_inline(&[4; 8], &to, 8).unwrap();
    let stranger = pontoon_hal::link::RegionKey::from_bytes(stranger).unwrap();
    assert!(link.attach(Rank(1), &stranger).is_err());
    let report = link.report();
    assert_eq!((report.posted, report.bytes, report.refused, report.quarantined), (2, 11, 1, 0));
}
