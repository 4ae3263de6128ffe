//! The flags that an instruction leaves.

use pontoon_hal::guard::mask;

pub(super) const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
pub(super) const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
pub(super) const DIRECTION: u64 = 1 << 10;
const OVERFLOW: u64 = 1 << 11;
/// Those that arithmetic sets.
const ALL: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// How an instruction sets flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// None.
    Nothing,
    /// As the sum of what was there, this, and the carry if it is `with`.
    Sum { other: u64, with: bool },
    /// As what was there less this, and less the carry if it is `with`.
    Difference { other: u64, with: bool },
    /// As a sum with 1, but the carry stays.
    Increment,
    /// As a difference with 1, but the carry stays.
    Decrement,
    /// As 0 less what was there.
    Negation,
    /// As a bitwise operation.
    Bits,
    /// The carry as that bit was.
    Bit { number: u32 },
    /// As this less what was there.
    Comparison { accumulator: u64 },
    /// Zero as that both are alike, and nothing else.
    Alike { expected: u64 },
}

impl Leaves {
    /// The flags behind the instruction, which made `new` of `old`, values of `bytes` bytes.
    pub(super) fn after(self, before: u64, old: u64, new: u64, bytes: usize) -> u64 {
        let (mask, carry) = (mask(bytes), before & CARRY);
        match self {
            Self::Nothing => before,
            Self::Sum { other, with } => {
                set(before, ALL, sum(old, other & mask, if with { carry } else { 0 }, bytes))
            }
            Self::Difference { other, with } => {
                let borrow = if with { carry } else { 0 };
                set(before, ALL, difference(old, other & mask, borrow, bytes))
            }
            Self::Increment => set(before, ALL & !CARRY, sum(old, 1, 0, bytes)),
            Self::Decrement => set(before, ALL & !CARRY, difference(old, 1, 0, bytes)),
            Self::Negation => set(before, ALL, difference(0, old, 0, bytes)),
            Self::Bits => set(before, ALL, of_result(new, bytes)),
            Self::Bit { number } => set(before, CARRY, old >> number & 1),
            Self::Comparison { accumulator } => {
                set(before, ALL, difference(accumulator & mask, old, 0, bytes))
            }
            Self::Alike { expected } => {
                set(before, ZERO, if expected & mask == old { ZERO } else { 0 })
            }
        }
    }
}

/// `before` with those flags as they are in `now`.
fn set(before: u64, which: u64, now: u64) -> u64 {
    before & !which | now & which
}

fn sum(one: u64, other: u64, carry: u64, bytes: usize) -> u64 {
    let wide = u128::from(one) + u128::from(other) + u128::from(carry);
    let result = wide as u64 & mask(bytes);
    let carried = if wide >> (8 * bytes) != 0 { CARRY } else { 0 };
    let overflow = is_negative((one ^ result) & (other ^ result), bytes);
    of_result(result, bytes) | carried | of_steps(one ^ other ^ result, overflow)
}

fn difference(one: u64, other: u64, borrow: u64, bytes: usize) -> u64 {
    let result = one.wrapping_sub(other).wrapping_sub(borrow) & mask(bytes);
    let wide = u128::from(other) + u128::from(borrow);
    let borrowed = if u128::from(one) < wide { CARRY } else { 0 };
    let overflow = is_negative((one ^ other) & (one ^ result), bytes);
    of_result(result, bytes) | borrowed | of_steps(one ^ other ^ result, overflow)
}

fn of_result(result: u64, bytes: usize) -> u64 {
    let parity = if (result as u8).count_ones().is_multiple_of(2) { PARITY } else { 0 };
    let zero = if result == 0 { ZERO } else { 0 };
    let sign = if is_negative(result, bytes) { SIGN } else { 0 };
    parity | zero | sign
}

/// `carries` has the bits into which something was carried.
fn of_steps(carries: u64, overflow: bool) -> u64 {
    carries & ADJUST | if overflow { OVERFLOW } else { 0 }
}

fn is_negative(value: u64, bytes: usize) -> bool {
    value >> (8 * bytes - 1) & 1 != 0
}

/// Whether the condition that an instruction names by that number holds: its lowest bit turns the rest round.
pub(super) fn holds(condition: u8, flags: u64) -> bool {
    let is = |flag: u64| flags & flag != 0;
    let less = is(SIGN) != is(OVERFLOW);
    let base = match condition >> 1 {
        0 => is(OVERFLOW),
        1 => is(CARRY),
        2 => is(ZERO),
        3 => is(CARRY) || is(ZERO),
        4 => is(SIGN),
        5 => is(PARITY),
        6 => less,
        _ => less || is(ZERO),
    };
    base != (condition & 1 != 0)
}
