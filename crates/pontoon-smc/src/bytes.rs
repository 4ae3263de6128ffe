//! What changed in a page, and how a change is put into a page that others write: to the byte.
//!
//! A page has three sides: *live*, which threads store to at any time; *twin*, what home had of it when the
//! two last agreed; and *new*, what home has of it now. Where live and twin differ, this side has written;
//! where new and twin differ, another has.

use core::ops::Range;

use pontoon_signal::{
    LINE_WORDS, first_difference,
    shim::{AtomicU64, Ordering::Relaxed},
};

const WORD: usize = 8;

/// All ones in each byte of `word` that is not zero.
#[inline]
fn mask(word: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let high = (((word & LOW) + LOW) | word) & !LOW;
    (high >> 7) * 0xFF
}

/// Tells of the bytes in which `live` differs from `twin`, as the longest ranges in order.
pub(crate) fn diff(live: &[AtomicU64], twin: &[AtomicU64], mut found: impl FnMut(Range<usize>)) {
    let mut open: Option<Range<usize>> = None;
    let mut line = 0;
    loop {
        line = first_difference(live, twin, line);
        if line == live.len() {
            break;
        }
        let words = line..(line + LINE_WORDS).min(live.len());
        line = words.end;
        for word in words {
            let change = live[word].load(Relaxed) ^ twin[word].load(Relaxed);
            // The lowest byte is the first in memory, whatever the machine's order.
            let mut left = mask(change.to_le());
            let mut at = word * WORD;
            while left != 0 {
                let skipped = left.trailing_zeros() as usize / 8;
                left = left.unbounded_shr(skipped as u32 * 8);
                at += skipped;
                let bytes = left.trailing_ones() as usize / 8;
                left = left.unbounded_shr(bytes as u32 * 8);
                match &mut open {
                    Some(open) if open.end == at => open.end = at + bytes,
                    _ => {
                        if let Some(whole) = open.replace(at..at + bytes) {
                            found(whole);
                        }
                    }
                }
                at += bytes;
            }
        }
    }
    if let Some(last) = open {
        found(last);
    }
}

/// Whether two pages have the same bytes.
pub(crate) fn are_same(live: &[AtomicU64], twin: &[AtomicU64]) -> bool {
    first_difference(live, twin, 0) == live.len()
}

/// What a merge came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Bytes that home has others of.
    pub(crate) bytes: u64,
    /// Those of them that were written here too, to something else, and are home's now.
    pub(crate) conflicts: u64,
}

/// Who has the last word about a byte that was written here and is another at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// Home: somebody else wrote it there.
    Home,
    /// This side: it is another home than the one that the twin is of, and has not got it yet.
    Here,
    /// This side, of the whole word: that home may not have what was released of the word before either.
    HereWhole,
}

/// Puts the bytes in which `new` differs from `twin` into `live`, and makes `twin` as `new`. No store of
/// another thread is lost, but those to these very bytes, if home has the last word.
pub(crate) fn merge(
    live: &[AtomicU64],
    new: &[AtomicU64],
    twin: &[AtomicU64],
    last: Last,
) -> Merged {
    let mut merged = Merged::default();
    for ((live, new), twin) in live.iter().zip(new).zip(twin) {
        let (now, before) = (new.load(Relaxed), twin.load(Relaxed));
        if now == before {
            continue;
        }
        let differ = mask(now ^ before);
        let mut seen = live.load(Relaxed);
        let theirs = loop {
            let theirs = match last {
                Last::Home => differ,
                Last::Here => differ & !mask(seen ^ before),
                Last::HereWhole if seen != before => 0,
                Last::HereWhole => differ,
            };
            let put = seen & !theirs | now & theirs;
            match live.compare_exchange_weak(seen, put, Relaxed, Relaxed) {
                Ok(_) => break theirs,
                Err(changed) => seen = changed,
            }
        };
        twin.store(now, Relaxed);
        merged.bytes += u64::from(theirs.count_ones() / 8);
        let both = mask(seen ^ before) & mask(seen ^ now) & theirs;
        merged.conflicts += u64::from(both.count_ones() / 8);
    }
    merged
}

/// The words that have any of these bytes.
pub(crate) fn whole_words(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / WORD * WORD..bytes.end.next_multiple_of(WORD)
}

/// Copies the bytes `range` of `from` to those of `to` from `at` on, which lie as they do in their words.
pub(crate) fn copy_bytes(from: &[AtomicU64], range: Range<usize>, to: &[AtomicU64], at: usize) {
    debug_assert_eq!(range.start % WORD, at % WORD, "bytes keep their place in a word");
    let mut byte = range.start;
    while byte < range.end {
        let word = byte / WORD;
        let end = range.end.min((word + 1) * WORD);
        let value = from[word].load(Relaxed);
        let onto = &to[word + at / WORD - range.start / WORD];
        if end - byte == WORD {
            onto.store(value, Relaxed);
        } else {
            let keep = !in_memory(byte % WORD..end - word * WORD);
            onto.store(onto.load(Relaxed) & keep | value & !keep, Relaxed);
        }
        byte = end;
    }
}

/// All ones in those bytes of a word, as they lie in memory.
pub(crate) fn in_memory(bytes: Range<usize>) -> u64 {
    let ones = u64::MAX.unbounded_shr(64 - 8 * bytes.len() as u32);
    (ones << (8 * bytes.start)).to_le()
}

#[cfg(test)]
mod tests {
    use super::{LINE_WORDS, Last, Merged, WORD, copy_bytes, diff, merge};
    use core::ops::Range;
    use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};
    use proptest::prelude::*;

    const BYTES: usize = 3 * LINE_WORDS * WORD;

    fn words(bytes: &[u8]) -> Vec<AtomicU64> {
        let words = bytes.chunks(WORD).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        words.map(AtomicU64::new).collect()
    }

    fn bytes(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect()
    }

    fn ranges(live: &[u8], twin: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        diff(&words(live), &words(twin), |range| found.push(range));
        found
    }

    /// Pages that differ in some bytes, alone and in rows, and up to the edges.
    fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
        let alone = (0..BYTES, any::<u8>()).prop_map(|change| vec![change]);
        let row = (0..BYTES, 1..40_usize, any::<u8>())
            .prop_map(|(at, len, byte)| (at..(at + len).min(BYTES)).map(|at| (at, byte)).collect());
        let some = prop::collection::vec(prop_oneof![alone, row], 0..12);
        some.prop_map(|changes| changes.into_iter().flatten().collect())
    }

    fn changed(base: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
        let mut page = base.to_vec();
        changes.iter().for_each(|&(at, byte)| page[at] = byte);
        page
    }

    proptest! {
        #[test]
        fn a_diff_is_each_changed_byte_and_no_other(base: [u8; 16], changes in changes()) {
            let twin = base.repeat(BYTES / 16);
            let live = changed(&twin, &changes);
            let found = ranges(&live, &twin);
            let told: Vec<usize> = found.iter().cloned().flatten().collect();
            let differ: Vec<usize> = (0..BYTES).filter(|&at| live[at] != twin[at]).collect();
            prop_assert_eq!(told, differ);
            for pair in found.windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "two that touch are one");
            }
        }

        #[test]
        fn a_merge_is_home_where_home_changed_and_live_elsewhere(
            base: [u8; 16], here in changes(), there in changes(),
        ) {
            let before = base.repeat(BYTES / 16);
            let (ours, theirs) = (changed(&before, &here), changed(&before, &there));
            let (live, new, twin) = (words(&ours), words(&theirs), words(&before));
            let merged = merge(&live, &new, &twin, Last::Home);
            let mut expected = Merged::default();
            for (at, byte) in bytes(&live).into_iter().enumerate() {
                let is_theirs = theirs[at] != before[at];
                prop_assert_eq!(byte, if is_theirs { theirs[at] } else { ours[at] });
                let is_ours = ours[at] != before[at] && ours[at] != theirs[at];
                expected.bytes += u64::from(is_theirs);
                expected.conflicts += u64::from(is_theirs && is_ours);
            }
            prop_assert_eq!(merged, expected);
            prop_assert_eq!(bytes(&twin), theirs);
        }

        #[test]
        fn copied_bytes_are_those_and_no_others(
            base: [u8; 16], other: [u8; 16], start in 0..64_usize, len in 0..40_usize, words_on in 0..4_usize,
        ) {
            let (from, to) = (base.repeat(BYTES / 16), other.repeat(BYTES / 16));
            let (source, target) = (words(&from), words(&to));
            let at = start + words_on * WORD;
            copy_bytes(&source, start..start + len, &target, at);
            let mut expected = to.clone();
            expected[at..at + len].copy_from_slice(&from[start..start + len]);
            prop_assert_eq!(bytes(&target), expected);
        }
    }

    /// Threads that store to other bytes of the same words lose nothing to a merge.
    #[test]
    fn stores_beside_a_merge_are_kept() {
        let live: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let (new, twin) = (words(&[0; 32]), words(&[0; 32]));
        // Byte 0 is home's and byte 7 a local thread's, changed as a compare and swap does.
        std::thread::scope(|scope| {
            let local = scope.spawn(|| {
                for round in 1..=200_000_u64 {
                    let word = &live[(round % 4) as usize];
                    let mut seen = word.load(Relaxed);
                    let own = (round & 0xFF) << 56;
                    while let Err(now) =
                        word.compare_exchange(seen, seen & (u64::MAX >> 8) | own, Relaxed, Relaxed)
                    {
                        seen = now;
                    }
                    assert_eq!(word.load(Relaxed) >> 56, round & 0xFF, "a store is lost");
                }
            });
            let mut round = 0_u64;
            while !local.is_finished() {
                round += 1;
                new.iter().for_each(|word| word.store(round & 0xFF, Relaxed));
                merge(&live, &new, &twin, Last::Home);
                assert!(live.iter().all(|word| word.load(Relaxed) & 0xFF == round & 0xFF));
            }
        });
    }
}
