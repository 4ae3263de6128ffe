//! The training job's only source of chance: SplitMix64 streams named by what they decide.

/// What a stream of random numbers decides; streams of one seed are unrelated to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    /// Which samples are held out for the test.
    Split = 1,
    /// The parameters before the first step.
    Init = 2,
    /// The order of the samples in an epoch.
    Order = 3,
    /// The direction in which an image is shifted.
    Shift = 4,
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Opens `stream` of `seed`; `path` names one of its branches, such as `[epoch, sample]`.
    pub(crate) fn open(seed: u64, stream: Stream, path: &[u64]) -> Self {
        let start = Self { state: seed }.next_u64();
        let fold = |state, &word| Self { state: state ^ word }.next_u64();
        Self { state: path.iter().fold(fold(start, &(stream as u64)), fold) }
    }

    /// The next 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number in `0..bound`; the bias is below `bound / 2^64`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u32
    }

    /// A number in `-1.0..1.0`, a multiple of 2^-23.
    pub(crate) fn signed_unit(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// The numbers `0..count` in random order (Fisher-Yates).
    pub(crate) fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for last in (1..count).rev() {
            let other = self.below(last + 1);
            order.swap(last as usize, other as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_sequence() {
        let mut rng = SplitMix64 { state: 1_234_567 };
        let first = [(); 5].map(|()| rng.next_u64());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(first, published);
    }

    #[test]
    fn every_part_of_a_name_changes_the_stream() {
        let first = |seed, stream, path: &[u64]| SplitMix64::open(seed, stream, path).next_u64();
        let mut seen = vec![
            first(1, Stream::Order, &[]),
            first(2, Stream::Order, &[]),
            first(1, Stream::Shift, &[]),
            first(1, Stream::Shift, &[0]),
            first(1, Stream::Shift, &[0, 1]),
            first(1, Stream::Shift, &[1, 0]),
        ];
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn a_permutation_holds_every_number_once_and_moves_some() {
        let order = SplitMix64::open(7, Stream::Order, &[0]).permutation(100);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_eq!(SplitMix64::open(7, Stream::Order, &[0]).permutation(0), [0; 0]);
    }

    #[test]
    fn every_permutation_is_reached() {
        let mut rng = SplitMix64::open(7, Stream::Order, &[]);
        let mut seen: Vec<_> = (0..100).map(|_| rng.permutation(3)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn numbers_stay_in_their_ranges_and_reach_their_ends() {
        let mut rng = SplitMix64::open(3, Stream::Init, &[]);
        let mut counts = [0; 5];
        for _ in 0..1000 {
            counts[rng.below(5) as usize] += 1;
            assert!((-1.0..1.0).contains(&rng.signed_unit()));
        }
        assert!(counts.iter().all(|&count| count > 150), "{counts:?}");
    }
}
