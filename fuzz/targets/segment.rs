//! A file of any bytes, opened as a segment and as a table of signals: refused, or of use without a
//! fault.
#![no_main]

mod bounded;
mod guarded;
mod seeds;

use std::{os::fd::OwnedFd, slice, sync::OnceLock, time::Duration};

use guarded::Guarded;
use libfuzzer_sys::{Corpus, fuzz_target};
use pontoon_signal::{
    Block, Bound, ClaimError, Ending, Identity, LINE_BYTES, Listed, Nanos, PublishedRegion, Rank,
    Record, Segment, SegmentShape, SegmentState, Seq, SignalTable, SlotId, TableShape,
};
use rustix::fs::{MemfdFlags, SealFlags};

fuzz_target!(init: seeds::write(begin()), |bytes: &[u8]| -> Corpus {
    let bytes = &changed(bytes)[..];
    let opened = Segment::open(file(bytes)).map(|segment| segment.identity());
    // The same bytes once more, where a step outside ends the process.
    let guarded = Segment::in_block(Block::of(Guarded::of(bytes)));
    if bytes.len() >= LINE_BYTES && bytes.len().is_multiple_of(LINE_BYTES) {
        assert_eq!(opened, guarded.as_ref().map(Segment::identity).map_err(Clone::clone));
    }
    let table = SignalTable::open(file(bytes));
    if let Ok(table) = &table {
        signal(table, None);
    }
    if let Ok(segment) = &guarded {
        use_all(segment);
    }
    if guarded.is_ok() || table.is_ok() { Corpus::Keep } else { Corpus::Reject }
});

/// The bytes as they are, or, if they begin with the number of a base, that with some bytes changed:
/// each by a word of what place and what to add, so that few bytes reach all of its numbers.
fn changed(bytes: &[u8]) -> Vec<u8> {
    static BASES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let bases = BASES.get_or_init(bases);
    let Some((first, changes)) = bytes.split_first() else { return Vec::new() };
    let Some(base) = bases.get(usize::from(*first)) else { return bytes.to_vec() };
    let mut base = base.clone();
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let at = if at < 512 { at } else { at * 8 % base.len() };
        base[at] = base[at].wrapping_add(change[2]);
    }
    base
}

/// The bases, and a change of each.
fn begin() -> Vec<Vec<u8>> {
    let bases = bases();
    let changes = (0..bases.len() as u8).map(|base| vec![base, 20, 2, 1, 24, 1, 1]);
    let changes: Vec<_> = changes.collect();
    [bases, changes].concat()
}

/// A file as it is handed over.
fn file(bytes: &[u8]) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("fuzzed", flags).expect("a file in memory");
    assert_eq!(rustix::io::write(&file, bytes), Ok(bytes.len()));
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("a new file takes seals");
    file
}

/// Does all that a peer, its owner's successor and a reader do with a segment.
fn use_all(segment: &Segment) {
    let within = |block: &Block| segment.block().offset_of(block).is_some();
    assert!(within(segment.heap()) && within(segment.rings()));
    let process = segment.identity().process();
    assert!(!process.to_string().is_empty());
    let _ = segment.state();
    segment.set_state(SegmentState::Left);
    signal(segment.signals(), Some(segment));

    let pending = segment.pending();
    let wait = pending.enter(SlotId::new(1, 2), Seq::new(3), Nanos(4), None, "a label");
    let _ = (pending.read(), pending.unwritten());
    drop(wait);
    let recorder = segment.recorder();
    recorder.add(Record::default());
    let _ = (recorder.read(), recorder.counts());

    let regions = segment.regions();
    let listed = regions.list(PublishedRegion { nonce: 1, offset: 2, bytes: 3 });
    if let Some(listed) = listed {
        assert!(regions.find(listed).is_some() && regions.is_listed(listed));
        assert!(regions.listing(listed).is_some_and(|listing| listing.holds()));
        regions.withdraw(listed);
        assert_eq!(regions.find(listed), None);
    }
    for at in [0, 1, regions.entries(), u32::MAX] {
        let listed = Listed { at, stamp: 2 };
        let (found, is) = (regions.find(listed), regions.is_listed(listed));
        assert!(at < regions.entries() || (found.is_none() && !is), "entry {at}");
    }
    for bytes in [1, 4096, usize::MAX] {
        let part = segment.allocate(bytes);
        assert!(part.is_ok_and(|part| segment.heap().offset_of(&part).is_some()) || bytes > 0);
    }
}

/// Does all that may be done to the lines of a table, the last one too.
fn signal(table: &SignalTable, segment: Option<&Segment>) {
    let outside = SlotId::new(0, u32::MAX);
    let Err(ClaimError::NoSuchSlot { first, producers, slots, .. }) = table.waiter(outside) else {
        panic!("so many slots are in no file");
    };
    let last = Rank(first.0.wrapping_add(producers - 1));
    for slot in [SlotId { producer: first, slot: 0 }, SlotId { producer: last, slot: slots - 1 }] {
        line(table, slot, segment);
    }
    for ending in [Ending::PeerDead { rank: first }, Ending::LinkFailed { code: 1 }] {
        assert!(table.evict(last, 7, ending).is_ok());
        assert!(table.end_producer(first, ending).is_ok());
        table.end_all(ending);
    }
    assert_eq!(table.time_points(), (vec![], 0));
}

fn line(table: &SignalTable, slot: SlotId, segment: Option<&Segment>) {
    let line = table.line(slot).expect("a line of the table");
    if let Some(segment) = segment {
        let (first, line) = (segment.block().base().addr().get(), (&raw const *line).addr());
        let end = first + segment.block().bytes();
        assert!(first <= line && line + LINE_BYTES <= end, "line of {slot:?} at {line:#x}");
    }
    let waiter = table.waiter(slot).expect("as above");
    let target = waiter.value() + 1;
    let bound = Bound::within(Duration::from_micros(10));
    for waited in
        [waiter.try_wait(target).map(drop), waiter.wait_ge_bounded(target, bound).map(drop)]
    {
        if let Err(error) = waited {
            assert!(!error.to_string().is_empty());
        }
    }
    let _ = (waiter.last_publish(), line.producer(), line.publishes(), line.ending());
    match table.publisher(slot) {
        Ok(mut publisher) => {
            let value = publisher.pub_release(1);
            assert_eq!(value, publisher.value());
            assert!(waiter.try_wait(value).is_ok_and(|seen| seen.is_some()));
            publisher.retire();
        }
        Err(taken) => assert!(!taken.to_string().is_empty()),
    }
    if let Ok(publisher) = table.shared_publisher(slot) {
        let second = publisher.clone();
        let _ = (publisher.pub_release(u32::MAX), second.acquire());
        publisher.retire();
    }
}

fn bases() -> Vec<Vec<u8>> {
    let (job, created) = (*b"sixteen bytes it", Nanos(5));
    let whose =
        Identity { job, rank: Rank(1), world: 2, epoch: 2, pid: 7, start_time: 99, created };
    let traced = TableShape::new(1, 2).starting_at(Seq::new(u64::MAX)).first_rank(Rank(u32::MAX));
    let shape = |ring_bytes, heap_bytes| SegmentShape {
        signals: TableShape::new(2, 2),
        pending: 2,
        records: 4,
        regions: 2,
        ring_bytes,
        heap_bytes,
    };
    let mut seeds = Vec::new();
    for shape in [shape(0, 0), shape(64, 4096), SegmentShape { signals: traced, ..shape(0, 8) }] {
        let segment = Segment::create(shape, whose).expect("memory for a segment");
        seeds.push(bytes(segment.block()));
        seeds.push(with_its_table_last(bytes(segment.block())));
        let publisher = segment.signals().publisher(SlotId { producer: Rank(1), slot: 0 });
        segment.recorder().add(Record::default());
        segment.regions().list(PublishedRegion { nonce: 1, offset: 0, bytes: 8 });
        let wait = segment.pending().enter(SlotId::new(1, 2), Seq::new(3), Nanos(4), None, "it");
        seeds.push(bytes(segment.block()));
        drop((wait, publisher));
        let block = segment.signals().shape();
        let table = SignalTable::shared(block).expect("memory for a table");
        let file = table.file().expect("its own").try_clone_to_owned().expect("a descriptor");
        let mut page = vec![0; rustix::param::page_size()];
        assert_eq!(rustix::io::pread(&file, &mut page, 0), Ok(page.len()));
        seeds.push(page);
    }
    seeds
}

/// A segment with its table where the file ends: a line more would lie outside.
fn with_its_table_last(mut segment: Vec<u8>) -> Vec<u8> {
    const BYTES_AT: usize = 24;
    const TABLE_AT: usize = 80;
    let end = segment.len();
    let word = |at| u64::from_ne_bytes(*segment[at..].first_chunk().expect("a header")) as usize;
    let (from, bytes) = (word(TABLE_AT), word(TABLE_AT + 8));
    segment.extend_from_within(from..from + bytes);
    for (at, word) in [(TABLE_AT, end), (BYTES_AT, end + bytes)] {
        segment[at..at + 8].copy_from_slice(&(word as u64).to_ne_bytes());
    }
    segment
}

fn bytes(block: &Block) -> Vec<u8> {
    // SAFETY: it is mapped, and nobody else has it.
    unsafe { slice::from_raw_parts(block.base().as_ptr(), block.bytes()) }.to_vec()
}
