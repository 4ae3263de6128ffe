//! Lines of 64 bytes compared at once.
#![allow(unsafe_code)] // Words that others write are compared by instructions of our own.

use crate::shim::AtomicU64;

/// The words of a line.
pub const LINE_WORDS: usize = 8;

/// The first line from word `from` on in which `a` and `b`, of the same length, differ, by its first
/// word; their length if none does. Words behind the last whole line are a line of their own.
///
/// # Panics
///
/// They are not of the same length, or `from` is not within it.
///
/// Why it may read what others write: the instructions are assembly, of which the compiler knows no
/// more than of a foreign function, and one that loads each byte by a relaxed load does the same: every
/// byte that an instruction loads, however wide it is, is that of one store (Intel SDM volume 3,
/// 9.1.1). A line that is found equal was so at the moments its bytes were loaded; each is loaded
/// once. Twice as fast as a loop over atomics, which no compiler makes vectors of.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub fn first_difference(a: &[AtomicU64], b: &[AtomicU64], from: usize) -> usize {
    assert!(a.len() == b.len() && from <= a.len(), "pages of the same size");
    let whole = from + (a.len() - from) / LINE_WORDS * LINE_WORDS;
    if from == whole {
        return from; // behind the last whole line, or at the end
    }
    let mut at = from * 8;
    // SAFETY: it loads bytes `at` to `whole * 8` of both, which are within; it writes registers alone.
    unsafe {
        core::arch::asm!(
            "2:",
            "movdqu {x0}, [{a} + {at}]",
            "movdqu {x1}, [{a} + {at} + 16]",
            "movdqu {x2}, [{a} + {at} + 32]",
            "movdqu {x3}, [{a} + {at} + 48]",
            "movdqu {y0}, [{b} + {at}]",
            "movdqu {y1}, [{b} + {at} + 16]",
            "movdqu {y2}, [{b} + {at} + 32]",
            "movdqu {y3}, [{b} + {at} + 48]",
            "pcmpeqb {x0}, {y0}",
            "pcmpeqb {x1}, {y1}",
            "pcmpeqb {x2}, {y2}",
            "pcmpeqb {x3}, {y3}",
            "pand {x0}, {x1}",
            "pand {x2}, {x3}",
            "pand {x0}, {x2}",
            "pmovmskb {mask:e}, {x0}",
            "cmp {mask:e}, 0xffff",
            "jne 3f",
            "add {at}, 64",
            "cmp {at}, {end}",
            "jb 2b",
            "3:",
            a = in(reg) a.as_ptr(),
            b = in(reg) b.as_ptr(),
            end = in(reg) whole * 8,
            at = inout(reg) at,
            mask = out(reg) _,
            x0 = out(xmm_reg) _, x1 = out(xmm_reg) _, x2 = out(xmm_reg) _, x3 = out(xmm_reg) _,
            y0 = out(xmm_reg) _, y1 = out(xmm_reg) _, y2 = out(xmm_reg) _, y3 = out(xmm_reg) _,
            options(nostack),
        );
    }
    at / 8
}

/// As above, by atomics.
///
/// # Panics
///
/// As above.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
pub fn first_difference(a: &[AtomicU64], b: &[AtomicU64], from: usize) -> usize {
    use crate::shim::Ordering::Relaxed;
    assert!(a.len() == b.len() && from <= a.len(), "pages of the same size");
    let whole = from + (a.len() - from) / LINE_WORDS * LINE_WORDS;
    let lines =
        a[from..whole].chunks_exact(LINE_WORDS).zip(b[from..whole].chunks_exact(LINE_WORDS));
    for (line, (a, b)) in lines.enumerate() {
        let differ = |bits, at: usize| bits | a[at].load(Relaxed) ^ b[at].load(Relaxed);
        if (0..LINE_WORDS).fold(0, differ) != 0 {
            return from + line * LINE_WORDS;
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::{LINE_WORDS, first_difference};
    use crate::shim::AtomicU64;
    use alloc::vec::Vec;

    fn words(len: usize, other: Option<usize>) -> Vec<AtomicU64> {
        let word = |at| AtomicU64::new(if other == Some(at) { 1 << (at % 64) } else { 0 });
        (0..len).map(word).collect()
    }

    #[test]
    fn the_first_line_that_differs_is_found_whatever_byte_it_is() {
        for len in [0, 1, 7, 8, 9, 64, 67, 512] {
            let zero = words(len, None);
            let whole = len / LINE_WORDS * LINE_WORDS;
            for from in (0..=len).step_by(LINE_WORDS) {
                assert_eq!(first_difference(&zero, &words(len, None), from), from.max(whole));
                for other in 0..whole {
                    let found = first_difference(&zero, &words(len, Some(other)), from);
                    let line = other / LINE_WORDS * LINE_WORDS;
                    let expected = if line >= from { line } else { from.max(whole) };
                    assert_eq!(found, expected, "{len} words, word {other} other, from {from}");
                }
            }
        }
    }
}
