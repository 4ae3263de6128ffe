//! What producers fill and consumers check: work bound by arithmetic, not by memory.

/// Splits a counter into words that look random (SplitMix64, Steele et al., OOPSLA 2014).
#[inline(always)]
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Fills `words` with what `seed` gives from position `first` on.
pub(super) fn fill(words: &mut [u64], seed: u64, first: u64) {
    let start = mix(seed).wrapping_add(first.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut counter = start;
    for word in words {
        counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        *word = mix(counter);
    }
}

/// A checksum in which every word and its place count. No step loses a bit, so a
/// single wrong word always shows. It takes about as long as filling.
pub(super) fn checksum(words: &[u64]) -> u64 {
    words
        .iter()
        .fold(words.len() as u64, |sum, &word| (sum ^ word).wrapping_mul(0x517c_c1b7_2722_0a95))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fill_what_the_whole_would() {
        let mut whole = [0; 12];
        fill(&mut whole, 7, 0);
        let mut chunks = [0; 12];
        for (index, chunk) in chunks.chunks_mut(5).enumerate() {
            fill(chunk, 7, index as u64 * 5);
        }
        assert_eq!(whole, chunks);
        fill(&mut chunks, 8, 0);
        assert_ne!(whole, chunks);
    }

    #[test]
    fn the_checksum_notices_a_bit_an_order_and_a_length() {
        let sum = checksum(&[1, 2, 3]);
        assert_ne!(sum, checksum(&[1, 2, 2]));
        assert_ne!(sum, checksum(&[2, 1, 3]));
        assert_ne!(sum, checksum(&[1, 2, 3, 0]));
        assert_ne!(checksum(&[0]), checksum(&[0, 0]));
    }
}
