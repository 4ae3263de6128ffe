//! What a store does, by its instruction and the registers it finds.

use iced_x86::{Decoder, DecoderError, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use pontoon_hal::guard::{Change, mask};

use super::{
    flags::{DIRECTION, Leaves, holds},
    registers::Machine,
};

/// A general register, or the part of it that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The processor's number.
    pub(super) number: usize,
    pub(super) bytes: usize,
    /// The second byte of it.
    high: bool,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Stores the first `length` of `bytes`.
    Store { at: u64, bytes: [u8; 64], length: usize },
    /// Changes a value by what it was.
    Change(Modify),
    /// Moves or fills elements, one after the other.
    Strings(Strings),
}

/// A change, and what it leaves in the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modify {
    pub(super) at: u64,
    pub(super) bytes: usize,
    pub(super) change: Change,
    pub(super) sets: Leaves,
    /// What the value was goes there: always, or if a swap was not made.
    pub(super) gets: Gets,
}

/// Where what a value was goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gets {
    Nowhere,
    Part(Part),
    /// If the swap was not made.
    Accumulator(Part),
    /// If the swap was not made: RAX has the lower half of it and RDX the upper.
    Pair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strings {
    pub(super) to: u64,
    /// Where they are moved from; else each is `value`.
    pub(super) from: Option<u64>,
    pub(super) value: u64,
    pub(super) element: usize,
    pub(super) count: u64,
    /// Whether RCX counts them.
    pub(super) repeats: bool,
    pub(super) backwards: bool,
}

/// Makes the decoder's tables, which it does at its first use: not in a handler.
pub(super) fn learn() {
    let _ = decode(&[0x90], 0);
}

/// The instruction of `code` at `address`. `None` if it goes on behind them.
pub(super) fn decode(code: &[u8], address: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::new();
    decoder.decode_out(&mut instruction);
    (decoder.last_error() != DecoderError::NoMoreBytes).then_some(instruction)
}

const UNKNOWN: &str = "its effect is not known";
const SEGMENT: &str = "it goes by a segment, whose base is not known";
const MASKED: &str = "it stores some of its elements only";

impl Effect {
    /// What `instruction` does. Why that is not known, if it is not.
    pub(super) fn of(
        instruction: &Instruction,
        machine: &dyn Machine,
    ) -> Result<Self, &'static str> {
        if instruction.op_mask() != Register::None {
            return Err(MASKED);
        }
        match instruction.op0_kind() {
            OpKind::MemoryESRDI => strings(instruction, machine).map(Self::Strings),
            OpKind::Memory => {
                let address = instruction.virtual_address(0, 0, |register, _, _| match register {
                    Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
                    other => Part::of(other).map(|part| part.read(machine)),
                });
                let at = address.ok_or(SEGMENT)?;
                plain(instruction, machine, at)
                    .or_else(|| vector(instruction, machine, at))
                    .or_else(|| modify(instruction, machine, at).map(Self::Change))
                    .ok_or(UNKNOWN)
            }
            _ => Err(UNKNOWN),
        }
    }

    /// Where its bytes begin and how many there are; of strings, those of the element that comes first.
    pub(super) fn place(&self) -> (u64, usize) {
        match *self {
            Self::Store { at, length, .. } => (at, length),
            Self::Change(Modify { at, bytes, .. }) => (at, bytes),
            Self::Strings(Strings { to, element, .. }) => (to, element),
        }
    }
}

/// A store of a general register, a number or a condition.
fn plain(instruction: &Instruction, machine: &dyn Machine, at: u64) -> Option<Effect> {
    use Mnemonic::{Mov, Movbe, Movnti};
    let (value, length) = match instruction.mnemonic() {
        Mov | Movnti => operand(instruction, machine)?,
        Movbe => {
            let (value, length) = operand(instruction, machine)?;
            (value.swap_bytes() >> (64 - 8 * length), length)
        }
        other => (u64::from(holds(condition(other)?, machine.flags())), 1),
    };
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    Some(Effect::Store { at, bytes, length })
}

/// The number of a condition that is stored.
fn condition(mnemonic: Mnemonic) -> Option<u8> {
    use Mnemonic::{
        Seta, Setae, Setb, Setbe, Sete, Setg, Setge, Setl, Setle, Setne, Setno, Setnp, Setns, Seto,
        Setp, Sets,
    };
    const ALL: [Mnemonic; 16] = [
        Seto, Setno, Setb, Setae, Sete, Setne, Setbe, Seta, Sets, Setns, Setp, Setnp, Setl, Setge,
        Setle, Setg,
    ];
    ALL.iter().position(|&it| it == mnemonic).map(|number| number as u8)
}

/// A store of a vector register, or a part of one.
fn vector(instruction: &Instruction, machine: &dyn Machine, at: u64) -> Option<Effect> {
    use Mnemonic::*;
    let (number, all) = vector_register(instruction.op1_register())?;
    let (skip, length) = match instruction.mnemonic() {
        Movaps | Movups | Movapd | Movupd | Movdqa | Movdqu | Movntps | Movntpd | Movntdq
        | Vmovaps | Vmovups | Vmovapd | Vmovupd | Vmovdqa | Vmovdqu | Vmovntps | Vmovntpd
        | Vmovntdq | Vmovdqa32 | Vmovdqa64 | Vmovdqu8 | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 => {
            (0, all)
        }
        Movss | Vmovss | Movd | Vmovd => (0, 4),
        Movsd | Vmovsd | Movq | Vmovq | Movlps | Vmovlps | Movlpd | Vmovlpd => (0, 8),
        Movhps | Vmovhps | Movhpd | Vmovhpd => (8, 8),
        Vextractf128 | Vextracti128 => {
            let upper = instruction.try_immediate(2).ok()? & 1;
            (16 * upper as usize, 16)
        }
        _ => return None,
    };
    let register = machine.vector(number, all)?;
    let mut bytes = [0; 64];
    bytes[..length].copy_from_slice(&register[skip..skip + length]);
    Some(Effect::Store { at, bytes, length })
}

/// The number of a vector register, and its bytes.
fn vector_register(register: Register) -> Option<(usize, usize)> {
    let classes = [(Register::XMM0, 16), (Register::YMM0, 32), (Register::ZMM0, 64)];
    classes.into_iter().find_map(|(first, bytes)| {
        let number = (register as usize).checked_sub(first as usize).filter(|&it| it < 32)?;
        Some((number, bytes))
    })
}

/// An instruction that makes something of what is there.
fn modify(instruction: &Instruction, machine: &dyn Machine, at: u64) -> Option<Modify> {
    use Mnemonic::{
        Adc, Add, And, Btc, Btr, Bts, Cmpxchg, Cmpxchg8b, Dec, Inc, Neg, Not, Or, Sbb, Sub, Xadd,
        Xchg, Xor,
    };
    let mnemonic = instruction.mnemonic();
    let change =
        |bytes, change, sets| Some(Modify { at, bytes, change, sets, gets: Gets::Nowhere });
    let alone = || alone(instruction);
    match mnemonic {
        Inc => change(alone()?, Change::Add(1), Leaves::Increment),
        Dec => change(alone()?, Change::Add(u64::MAX), Leaves::Decrement),
        Not => change(alone()?, Change::Xor(u64::MAX), Leaves::Nothing),
        Neg => change(alone()?, Change::Negate, Leaves::Negation),
        Bts | Btr | Btc => bit(instruction, machine, at),
        Cmpxchg8b => {
            let pair = |low: usize, high: usize| {
                machine.general(low) & mask(4) | machine.general(high) << 32
            };
            let (expected, new) = (pair(RAX, RDX), pair(RBX, RCX));
            let (change, sets) = (Change::Swap { expected, new }, Leaves::Alike { expected });
            Some(Modify { at, bytes: 8, change, sets, gets: Gets::Pair })
        }
        _ => {
            let (other, bytes) = operand(instruction, machine)?;
            let carry = machine.flags() & super::flags::CARRY;
            match mnemonic {
                Add => change(bytes, Change::Add(other), Leaves::Sum { other, with: false }),
                Adc => {
                    let sum = other.wrapping_add(carry);
                    change(bytes, Change::Add(sum), Leaves::Sum { other, with: true })
                }
                Sub => {
                    let sum = other.wrapping_neg();
                    change(bytes, Change::Add(sum), Leaves::Difference { other, with: false })
                }
                Sbb => {
                    let sum = other.wrapping_add(carry).wrapping_neg();
                    change(bytes, Change::Add(sum), Leaves::Difference { other, with: true })
                }
                And => change(bytes, Change::And(other), Leaves::Bits),
                Or => change(bytes, Change::Or(other), Leaves::Bits),
                Xor => change(bytes, Change::Xor(other), Leaves::Bits),
                Xchg | Xadd | Cmpxchg => {
                    let part = Part::of(instruction.op1_register())?;
                    let accumulator = Part { number: RAX, bytes, high: false };
                    let expected = accumulator.read(machine);
                    let (change, sets, gets) = match mnemonic {
                        Xchg => (Change::Set(other), Leaves::Nothing, Gets::Part(part)),
                        Xadd => {
                            let sets = Leaves::Sum { other, with: false };
                            (Change::Add(other), sets, Gets::Part(part))
                        }
                        _ => (
                            Change::Swap { expected, new: other },
                            Leaves::Comparison { accumulator: expected },
                            Gets::Accumulator(accumulator),
                        ),
                    };
                    Some(Modify { at, bytes, change, sets, gets })
                }
                _ => None,
            }
        }
    }
}

/// An instruction that sets, clears or turns one bit: of the value at `at`, or, by a register, of those beside it.
fn bit(instruction: &Instruction, machine: &dyn Machine, at: u64) -> Option<Modify> {
    let (number, bytes, at) = if let Some(part) = Part::of(instruction.op1_register()) {
        let unused = 64 - 8 * part.bytes as u32;
        let number = (part.read(machine) << unused).cast_signed() >> unused;
        let bits = 8 * part.bytes as i64;
        let beside = number.div_euclid(bits) * part.bytes as i64;
        (number.rem_euclid(bits) as u32, part.bytes, at.wrapping_add_signed(beside))
    } else {
        let bytes = alone(instruction)?;
        (instruction.try_immediate(1).ok()? as u32 % (8 * bytes as u32), bytes, at)
    };
    let bit = 1 << number;
    let change = match instruction.mnemonic() {
        Mnemonic::Bts => Change::Or(bit),
        Mnemonic::Btr => Change::And(!bit),
        _ => Change::Xor(bit),
    };
    Some(Modify { at, bytes, change, sets: Leaves::Bit { number }, gets: Gets::Nowhere })
}

/// The elements that are moved or filled.
fn strings(instruction: &Instruction, machine: &dyn Machine) -> Result<Strings, &'static str> {
    use Mnemonic::{Movsb, Movsd, Movsq, Movsw, Stosb, Stosd, Stosq, Stosw};
    let element = match instruction.mnemonic() {
        Movsb | Stosb => 1,
        Movsw | Stosw => 2,
        Movsd | Stosd => 4,
        Movsq | Stosq => 8,
        _ => return Err(UNKNOWN),
    };
    let from = match instruction.op1_kind() {
        OpKind::MemorySegRSI => match instruction.segment_prefix() {
            Register::FS | Register::GS => return Err(SEGMENT),
            _ => Some(machine.general(RSI)),
        },
        OpKind::Register => None,
        _ => return Err(UNKNOWN),
    };
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    Ok(Strings {
        to: machine.general(RDI),
        from,
        value: machine.general(RAX) & mask(element),
        element,
        count: if repeats { machine.general(RCX) } else { 1 },
        repeats,
        backwards: machine.flags() & DIRECTION != 0,
    })
}

/// The second operand, and the bytes of both.
fn operand(instruction: &Instruction, machine: &dyn Machine) -> Option<(u64, usize)> {
    if instruction.op1_kind() == OpKind::Register {
        let part = Part::of(instruction.op1_register())?;
        return Some((part.read(machine), part.bytes));
    }
    let bytes = alone(instruction)?;
    Some((instruction.try_immediate(1).ok()? & mask(bytes), bytes))
}

/// The bytes of the value, where no register says it.
fn alone(instruction: &Instruction) -> Option<usize> {
    use iced_x86::MemorySize::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    Some(match instruction.memory_size() {
        UInt8 | Int8 => 1,
        UInt16 | Int16 => 2,
        UInt32 | Int32 => 4,
        UInt64 | Int64 => 8,
        _ => return None,
    })
}

pub(super) const RAX: usize = 0;
pub(super) const RCX: usize = 1;
pub(super) const RDX: usize = 2;
const RBX: usize = 3;
pub(super) const RSI: usize = 6;
pub(super) const RDI: usize = 7;

impl Part {
    /// The part that `register` is; `None` if it is no general one.
    fn of(register: Register) -> Option<Self> {
        let index = |first: Register, count: usize| {
            (register as usize).checked_sub(first as usize).filter(|&it| it < count)
        };
        if let Some(at) = index(Register::AL, 20) {
            // AL to BL, AH to BH, then the low bytes of the other twelve.
            let number = if at < 4 { at } else { at - 4 };
            return Some(Self { number, bytes: 1, high: (4..8).contains(&at) });
        }
        let classes = [(Register::AX, 2), (Register::EAX, 4), (Register::RAX, 8)];
        classes
            .into_iter()
            .find_map(|(first, bytes)| Some(Self { number: index(first, 16)?, bytes, high: false }))
    }

    fn read(self, machine: &dyn Machine) -> u64 {
        let all = machine.general(self.number);
        if self.high { all >> 8 & 0xFF } else { all & mask(self.bytes) }
    }

    /// What the whole register is once this part of it is `value`.
    pub(super) fn put(self, whole: u64, value: u64) -> u64 {
        match (self.bytes, self.high) {
            (1, true) => whole & !0xFF00 | (value & 0xFF) << 8,
            (1 | 2, _) => whole & !mask(self.bytes) | value & mask(self.bytes),
            // The upper half of the register is cleared.
            _ => value & mask(self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Effect, decode};
    use crate::trap::registers::Machine;
    use proptest::prelude::*;

    /// Registers that are all alike.
    struct Alike(u64);

    impl Machine for Alike {
        fn general(&self, _: usize) -> u64 {
            self.0
        }

        fn vector(&self, _: usize, _: usize) -> Option<[u8; 64]> {
            Some([self.0 as u8; 64])
        }

        fn flags(&self) -> u64 {
            self.0
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_bytes_are_too_strange(code in proptest::collection::vec(any::<u8>(), 0..16), value: u64) {
            if let Some(instruction) = decode(&code, value)
                && let Ok(effect) = Effect::of(&instruction, &Alike(value))
            {
                let (_, length) = effect.place();
                prop_assert!((1..=64).contains(&length));
            }
        }
    }
}
