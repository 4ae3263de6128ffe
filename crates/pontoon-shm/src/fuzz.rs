//! What `fuzz/` does with bytes that strangers or dead processes left. Built for it and for tests
//! alone.

use std::sync::OnceLock;

use pontoon_hal::link::{KeyFault, RegionKey};
use pontoon_signal::{Identity, Listed, Nanos, PublishedRegion, Rank, Segment, SegmentShape};

use crate::{
    Secret,
    folder::owner_text,
    handover::{REQUEST_BYTES, request, requested},
    region::Key,
    sweep::parse,
};

/// Bytes as a region's key, as a request for a segment and as the file of a rank's owner. Whether
/// they were any of these.
///
/// # Panics
///
/// If something is done with them that may not be.
pub fn judge(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes);
    key(bytes) | asked(bytes) | text.is_ok_and(owner)
}

/// What to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let listed = Listed { at: 0, stamp: 2 };
    let region = PublishedRegion { nonce: 7, offset: 64, bytes: 128 };
    let key = Key { rank: RANK, epoch: EPOCH, listed, region };
    let huge = PublishedRegion { offset: u64::MAX - 8, bytes: 16, ..region };
    let keys = [key, Key { epoch: 0, ..key }, Key { region: huge, ..key }];
    let keys = keys.into_iter().filter_map(|key| key.encode());
    let mut seeds: Vec<_> = keys.map(|key| key.as_bytes().to_vec()).collect();
    seeds.push(request(&Secret::new(*b"0123456789abcdef")).to_vec());
    seeds.extend([owner_text(7, 99), owner_text(u32::MAX, u64::MAX)].map(String::into_bytes));
    seeds
}

const RANK: Rank = Rank(3);
const EPOCH: u32 = 9;

/// A key is the same bytes again. What its owner does not list it does not open, and what it lists
/// only within the owner's heap.
fn key(bytes: &[u8]) -> bool {
    let Some(given) = RegionKey::from_bytes(bytes) else { return false };
    let owner = owner_segment();
    let Some(key) = Key::decode(&given) else {
        assert_eq!(Key::open(&given, owner).map(drop), Err(KeyFault::Form));
        return false;
    };
    assert_eq!(key.encode().as_ref(), Some(&given));
    assert!(Key::open(&given, owner).is_err(), "nothing is listed");
    let Some(listed) = owner.regions().list(key.region) else { return true };
    let opened = Key { rank: RANK, epoch: EPOCH, listed, ..key };
    let opened = opened.encode().map(|key| Key::open(&key, owner));
    let (offset, bytes) = (key.region.offset, key.region.bytes);
    let end = offset.checked_add(bytes).filter(|end| *end <= owner.heap().bytes() as u64);
    match opened {
        Some(Ok((listing, block))) => {
            assert_eq!((block.bytes() as u64, end.is_some()), (bytes, true));
            assert_eq!(owner.heap().offset_of(&block), Some(offset as usize));
            assert!(listing.holds());
        }
        refused => assert!(end.is_none(), "a listed region was refused: {:?}", refused.map(drop)),
    }
    owner.regions().withdraw(listed);
    true
}

fn owner_segment() -> &'static Segment {
    static OWNER: OnceLock<Segment> = OnceLock::new();
    OWNER.get_or_init(|| {
        let (job, created) = (*b"sixteen bytes it", Nanos(5));
        let whose =
            Identity { job, rank: RANK, world: 4, epoch: EPOCH, pid: 1, start_time: 2, created };
        Segment::create(SegmentShape::new(4, 1, 8192), whose).expect("memory for a segment")
    })
}

/// A request is the same bytes again.
fn asked(bytes: &[u8]) -> bool {
    let Ok(bytes) = <&[u8; REQUEST_BYTES]>::try_from(bytes) else { return false };
    let Some(secret) = requested(bytes) else { return false };
    assert_eq!(request(&Secret::new(*secret)), *bytes);
    true
}

/// The file of an owner is the same bytes again; an empty one is of a process that is dead.
fn owner(text: &str) -> bool {
    let Some(process) = parse(text) else { return false };
    assert!(text.is_empty() || owner_text(process.pid, process.start_time) == text, "{text:?}");
    true
}

#[cfg(test)]
mod tests {
    use super::{judge, seeds};

    #[test]
    fn what_fuzzing_begins_with_is_known() {
        for seed in seeds() {
            assert!(judge(&seed), "{seed:?}");
        }
    }
}
