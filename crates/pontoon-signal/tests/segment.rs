//! Segments: laid out by one side, found or refused by the other.
#![cfg(not(pontoon_loom))]

use std::os::fd::OwnedFd;

use pontoon_signal::{
    Bound, HeapFull, Identity, Nanos, Rank, Record, RecordKind, Segment, SegmentError,
    SegmentShape, SegmentState, Seq, SharedMap, SlotId,
};

const VERSION_AT: usize = 8;
const LAYOUT_AT: usize = 16;
const HEAP_BYTES_AT: usize = 80 + 5 * 16 + 8;
const PENDING_OFFSET_AT: usize = 80 + 16;

fn identity() -> Identity {
    let job = *b"sixteen bytes it";
    let (pid, start_time, created) = (std::process::id(), 99, Nanos(5));
    Identity { job, rank: Rank(1), world: 3, epoch: 2, pid, start_time, created }
}

fn segment() -> Segment {
    Segment::create(SegmentShape::new(3, 4, 3 << 12), identity()).unwrap()
}

fn file(segment: &Segment) -> OwnedFd {
    segment.file().unwrap().try_clone_to_owned().unwrap()
}

/// Opens a new segment of which `change` changed some bytes.
fn opened_after(at: usize, change: impl Fn(&mut u8)) -> Result<Segment, SegmentError> {
    let segment = segment();
    let file = file(&segment);
    let mut byte = [0];
    rustix::io::pread(&file, &mut byte, at as u64).unwrap();
    change(&mut byte[0]);
    rustix::io::pwrite(&file, &byte, at as u64).unwrap();
    Segment::open(file)
}

#[test]
fn both_sides_see_one_segment() {
    let ours = segment();
    let theirs = Segment::open(file(&ours)).unwrap();
    assert_eq!(theirs.identity(), identity());
    assert_eq!(theirs.state(), SegmentState::New);
    ours.set_state(SegmentState::Joined);
    assert_eq!(theirs.state(), SegmentState::Joined);

    let slot = SlotId::new(2, 3);
    let mut publisher = theirs.signals().publisher(slot).unwrap();
    publisher.pub_release(7);
    let waiter = ours.signals().waiter(slot).unwrap();
    waiter.wait_ge_bounded(Seq::new(7), Bound::default()).unwrap().acq_fence();

    let record = Record { kind: RecordKind::JOINED, rank: Rank(2), ..Record::default() };
    ours.recorder().add(record);
    assert_eq!(theirs.recorder().read(), [record]);
    let wait = ours.pending().enter(slot, Seq::new(8), Nanos(1), None, "the next one");
    assert_eq!(theirs.pending().read()[0].label, "the next one");
    drop(wait);
    assert_eq!(theirs.pending().read(), []);
}

#[test]
fn regions_are_apart_and_end_with_the_heap() {
    let segment = segment();
    let heap = segment.heap();
    let (first, second) = (segment.allocate(1).unwrap(), segment.allocate(4097).unwrap());
    assert_eq!(heap.offset_of(&first), Some(0));
    assert_eq!(heap.offset_of(&second), Some(4096));
    let full = segment.allocate(1).unwrap_err();
    assert_eq!(full, HeapFull { asked: 1, left: 0, bytes: 3 << 12 });
    assert!(segment.allocate(usize::MAX).is_err());
    assert!(full.to_string().contains("larger heap"));
}

#[test]
fn a_mismatch_names_both_sides() {
    let version = opened_after(VERSION_AT, |byte| *byte += 1).unwrap_err();
    assert!(matches!(version, SegmentError::Version { theirs: (5, _), ours: (4, _) }), "{version}");
    for part in ["version 5", "version 4", "same release"] {
        assert!(version.to_string().contains(part), "{version}");
    }
    let layout = opened_after(LAYOUT_AT, |byte| *byte ^= 1).unwrap_err();
    let SegmentError::Version { theirs, ours } = layout else { panic!("{layout}") };
    assert_eq!((theirs.0, theirs.1 ^ 1), ours);
}

#[test]
fn what_is_none_is_refused() {
    let noise = opened_after(0, |byte| *byte ^= 1).unwrap_err();
    assert!(matches!(noise, SegmentError::NotASegment { .. }), "{noise}");
    let beyond = opened_after(HEAP_BYTES_AT + 5, |byte| *byte = 1).unwrap_err();
    assert!(matches!(beyond, SegmentError::Malformed { section: 5, .. }), "{beyond}");
    let askew = opened_after(PENDING_OFFSET_AT, |byte| *byte += 8).unwrap_err();
    assert!(matches!(askew, SegmentError::Malformed { section: 1, .. }), "{askew}");
    let map = SharedMap::create("empty", 1).unwrap();
    let empty = Segment::open(map.file().unwrap().try_clone_to_owned().unwrap()).unwrap_err();
    assert_eq!(empty, SegmentError::NotASegment { found: 0 });
    let huge = SegmentShape::new(1, 1, usize::MAX - 4096);
    assert_eq!(Segment::create(huge, identity()).unwrap_err(), SegmentError::TooLarge);
}

#[test]
fn the_other_byte_order_is_told() {
    let segment = segment();
    let file = file(&segment);
    let mut magic = [0; 8];
    rustix::io::pread(&file, &mut magic, 0).unwrap();
    magic.reverse();
    rustix::io::pwrite(&file, &magic, 0).unwrap();
    assert_eq!(Segment::open(file).unwrap_err(), SegmentError::ByteOrder);
}

#[test]
fn the_dead_row_ends_and_no_other() {
    use pontoon_signal::{Ending, WaitError};
    let segment = segment();
    let dead = Ending::PeerDead { rank: Rank(2) };
    assert_eq!(segment.signals().end_producer(Rank(2), dead), Ok(4));
    assert_eq!(segment.signals().end_producer(Rank(2), dead), Ok(0));
    let wait = |rank| {
        let waiter = segment.signals().waiter(SlotId::new(rank, 3)).unwrap();
        waiter
            .wait_ge_bounded(Seq::new(1), Bound::within(std::time::Duration::from_millis(1)))
            .map(|observed| observed.value())
    };
    assert!(matches!(wait(2), Err(WaitError::PeerDead { rank: Rank(2), .. })));
    assert!(wait(1).unwrap_err().is_timeout());
    assert!(segment.signals().end_producer(Rank(3), dead).is_err());
}

/// A segment that is longer than what is mapped of it was cut off, and a header of another size is not
/// the one that this side reads.
#[test]
fn a_segment_that_was_cut_off_is_refused() {
    use std::os::unix::fs::FileExt;
    for (at, spoilt) in [(24, &u64::MAX.to_ne_bytes()[..]), (12, &128u32.to_ne_bytes()[..])] {
        let segment = segment();
        let file = std::fs::File::from(segment.file().unwrap().try_clone_to_owned().unwrap());
        assert!(Segment::open(file.try_clone().unwrap().into()).is_ok());
        file.write_all_at(spoilt, at).unwrap();
        let refused = Segment::open(file.into()).unwrap_err();
        assert!(matches!(refused, SegmentError::Cut { .. }), "{refused}");
    }
}

/// A foreign process may write any number there, and clones of a publisher cannot be refused.
#[test]
fn a_line_that_too_many_share_stays_shared() {
    use pontoon_signal::{SignalTable, TableShape};
    const CLAIM_AT: u64 = 128 + 28;
    let table = SignalTable::shared(TableShape::new(1, 1)).unwrap();
    let slot = SlotId::new(0, 0);
    let file = table.file().unwrap();
    let first = table.shared_publisher(slot).unwrap();
    rustix::io::pwrite(file, &(u32::MAX - 1).to_ne_bytes(), CLAIM_AT).unwrap();
    let clones = [first.clone(), first.clone(), first];
    assert!(table.shared_publisher(slot).is_err());
    for publisher in clones {
        publisher.pub_release(1);
        publisher.retire();
    }
    assert!(table.shared_publisher(slot).is_err() && table.publisher(slot).is_err());
    let waiter = table.waiter(slot).unwrap();
    let _ = waiter.wait_ge_bounded(Seq::new(3), Bound::default()).unwrap();
    let dead = pontoon_signal::Ending::PeerDead { rank: Rank(0) };
    assert_eq!(table.evict(Rank(0), std::process::id(), dead), Ok(1));
    assert!(table.publisher(slot).is_ok());
}

/// What a restarted rank needs: its row open again, though its predecessor never let go of it.
#[test]
fn a_successor_has_the_claims_of_the_dead() {
    use pontoon_signal::{ClaimError, Ending, WaitError};
    let segment = segment();
    let signals = segment.signals();
    let (sole, shared) = (SlotId::new(2, 0), SlotId::new(2, 1));
    let dead = Ending::PeerDead { rank: Rank(2) };
    let publisher = signals.publisher(sole).unwrap();
    let sharer = signals.shared_publisher(shared).unwrap();
    let second = sharer.clone();
    let pid = std::process::id();
    // What another process has stays as it is, and open.
    assert_eq!(signals.evict(Rank(2), pid + 1, dead), Ok(0));
    assert!(matches!(signals.publisher(sole), Err(ClaimError::Taken { .. })));
    assert_eq!(signals.waiter(sole).unwrap().try_wait(Seq::new(1)).unwrap().map(drop), None);
    assert_eq!(signals.evict(Rank(2), pid, dead), Ok(2));
    let waiter = signals.waiter(sole).unwrap();
    let error = waiter.wait_ge_bounded(Seq::new(1), Bound::default()).unwrap_err();
    assert!(matches!(error, WaitError::PeerDead { rank: Rank(2), .. }), "{error}");
    // As the dead do: they drop nothing.
    std::mem::forget((publisher, sharer, second));
    let mut successor = signals.publisher(sole).unwrap();
    successor.pub_release(1);
    let _ = waiter.wait_ge_bounded(Seq::new(1), Bound::default()).unwrap();
    assert!(signals.publisher(shared).is_ok());
}
