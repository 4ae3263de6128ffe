//! Stores that are trapped do what the processor would have done: memory, registers and flags.
#![cfg(all(not(pontoon_loom), target_arch = "x86_64"))]
#![allow(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

mod bare;
mod trapped;

use bare::{Code, Machine, has_zmm};
use pontoon_hal::paging::Paging;
use pontoon_signal::{
    Span, Words,
    shim::{AtomicU64, Ordering::Relaxed},
};
use proptest::prelude::*;
use trapped::{PAGE, PAGES, Trapped, trapped};

/// What an instruction does with its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Width {
    Byte,
    Word,
    Double,
    Quad,
    Vector,
}

#[derive(Clone, Copy, Debug)]
enum Immediate {
    None,
    Byte,
    Full,
}

/// A form of an instruction whose first operand is memory.
#[derive(Clone, Copy, Debug)]
struct Form {
    prefix: &'static [u8],
    opcode: &'static [u8],
    /// The second part of the opcode, or none where there is a register.
    extension: Option<u8>,
    immediate: Immediate,
    /// Whether it reads what is there.
    modifies: bool,
    widths: &'static [Width],
}

use Width::{Byte, Double, Quad, Vector, Word};
const FULL: &[Width] = &[Word, Double, Quad];
const VECTOR: &[Width] = &[Vector];

const fn form(opcode: &'static [u8], extension: Option<u8>, widths: &'static [Width]) -> Form {
    Form { prefix: &[], opcode, extension, immediate: Immediate::None, modifies: false, widths }
}

const fn changing(opcode: &'static [u8], extension: Option<u8>, widths: &'static [Width]) -> Form {
    Form { modifies: true, ..form(opcode, extension, widths) }
}

const fn with(immediate: Immediate, form: Form) -> Form {
    Form { immediate, ..form }
}

const fn after(prefix: &'static [u8], opcode: &'static [u8], widths: &'static [Width]) -> Form {
    Form { prefix, ..form(opcode, None, widths) }
}

/// Of the groups of arithmetic each but the comparison, which stores nothing.
const ARITHMETIC: [u8; 7] = [0, 1, 2, 3, 4, 5, 6];

fn forms() -> Vec<Form> {
    let mut all = vec![
        form(&[0x88], None, &[Byte]),
        form(&[0x89], None, FULL),
        with(Immediate::Byte, form(&[0xC6], Some(0), &[Byte])),
        with(Immediate::Full, form(&[0xC7], Some(0), FULL)),
        form(&[0x0F, 0xC3], None, &[Double, Quad]),
        form(&[0x0F, 0x38, 0xF1], None, FULL),
        changing(&[0x86], None, &[Byte]),
        changing(&[0x87], None, FULL),
        changing(&[0xFE], Some(0), &[Byte]),
        changing(&[0xFF], Some(0), FULL),
        changing(&[0xFE], Some(1), &[Byte]),
        changing(&[0xFF], Some(1), FULL),
        changing(&[0xF6], Some(2), &[Byte]),
        changing(&[0xF7], Some(2), FULL),
        changing(&[0xF6], Some(3), &[Byte]),
        changing(&[0xF7], Some(3), FULL),
        changing(&[0x0F, 0xB0], None, &[Byte]),
        changing(&[0x0F, 0xB1], None, FULL),
        changing(&[0x0F, 0xC0], None, &[Byte]),
        changing(&[0x0F, 0xC1], None, FULL),
        changing(&[0x0F, 0xC7], Some(1), &[Double]),
        after(&[], &[0x0F, 0x11], VECTOR),
        after(&[], &[0x0F, 0x29], VECTOR),
        after(&[], &[0x0F, 0x2B], VECTOR),
        after(&[], &[0x0F, 0x13], VECTOR),
        after(&[], &[0x0F, 0x17], VECTOR),
        after(&[0x66], &[0x0F, 0x11], VECTOR),
        after(&[0x66], &[0x0F, 0x29], VECTOR),
        after(&[0x66], &[0x0F, 0x7F], VECTOR),
        after(&[0x66], &[0x0F, 0xE7], VECTOR),
        after(&[0x66], &[0x0F, 0xD6], VECTOR),
        after(&[0x66], &[0x0F, 0x7E], &[Double, Quad]),
        after(&[0xF3], &[0x0F, 0x7F], VECTOR),
        after(&[0xF3], &[0x0F, 0x11], VECTOR),
        after(&[0xF2], &[0x0F, 0x11], VECTOR),
    ];
    const OPERATIONS: [([u8; 1], [u8; 1]); 7] = [
        ([0x00], [0x01]),
        ([0x08], [0x09]),
        ([0x10], [0x11]),
        ([0x18], [0x19]),
        ([0x20], [0x21]),
        ([0x28], [0x29]),
        ([0x30], [0x31]),
    ];
    for (byte, full) in &OPERATIONS {
        all.push(changing(byte, None, &[Byte]));
        all.push(changing(full, None, FULL));
    }
    for group in ARITHMETIC {
        all.push(with(Immediate::Byte, changing(&[0x80], Some(group), &[Byte])));
        all.push(with(Immediate::Full, changing(&[0x81], Some(group), FULL)));
        all.push(with(Immediate::Byte, changing(&[0x83], Some(group), FULL)));
    }
    for group in 5..8 {
        all.push(with(Immediate::Byte, changing(&[0x0F, 0xBA], Some(group), FULL)));
    }
    const CONDITIONS: [[u8; 2]; 16] = {
        let mut all = [[0x0F, 0x90]; 16];
        let mut number = 0;
        while number < 16 {
            all[number][1] += number as u8;
            number += 1;
        }
        all
    };
    for condition in &CONDITIONS {
        all.push(form(condition, Some(0), &[Byte]));
    }
    all
}

/// One instruction with RDI and this displacement as its address. `None` if there is none with that register.
fn encode(form: &Form, width: Width, register: u8, rex: bool, number: u64) -> Option<Vec<u8>> {
    let register = form.extension.unwrap_or(register);
    let general = form.extension.is_none() && width != Vector;
    let is_vector = width == Vector || form.opcode == [0x0F, 0x7E];
    let mut bytes = Vec::new();
    let rex_bits = 0x40 | u8::from(width == Quad) << 3 | (register >> 3) << 2;
    let rex = rex || rex_bits != 0x40;
    let is_high = width == Byte && !rex;
    if general && !is_vector && !is_high && matches!(register, 4 | 7) {
        return None; // the stack, or the address
    }
    if width == Word {
        bytes.push(0x66);
    }
    bytes.extend(form.prefix);
    if rex {
        bytes.push(rex_bits);
    }
    bytes.extend(form.opcode);
    bytes.push(0b10_000_111 | (register & 7) << 3);
    bytes.extend(DISPLACEMENT.to_le_bytes());
    let length = match (form.immediate, width) {
        (Immediate::None, _) => 0,
        (Immediate::Byte, _) => 1,
        (Immediate::Full, Word) => 2,
        (Immediate::Full, _) => 4,
    };
    bytes.extend(&number.to_le_bytes()[..length]);
    Some(bytes)
}

const DISPLACEMENT: i32 = 0x1234;

/// The bytes that an access of the form touches at most.
fn span(form: &Form, width: Width) -> usize {
    match width {
        _ if form.opcode == [0x0F, 0xC7] => 8,
        Byte => 1,
        Word => 2,
        Double => 4,
        Quad => 8,
        Vector => 16,
    }
}

/// Flags that are defined behind every form: not the adjust flag, which bitwise operations leave as they like.
const COMPARED: u64 = 0x8D5 & !0x10 | 0x400;

/// Runs the code on plain memory and on the window, and compares all that is left.
fn compare(trapped: &Trapped, code: &Code, machine: &Machine, at: usize, memory: &[u8]) {
    let home = &trapped.home;
    let plain = Words::zeroed(PAGES * PAGE / 8).expect("memory");
    Span::of(plain.block(), 0..memory.len()).expect("within").put(memory);
    home.put(0, memory);
    let run = |base: usize| {
        let mut machine = machine.clone();
        machine.general[7] = (base + at).wrapping_sub(DISPLACEMENT as usize) as u64;
        code.run(&mut machine);
        machine.general[7] = machine.general[7].wrapping_sub(base as u64);
        machine
    };
    let expected = run(plain.block().base().as_ptr().addr());
    let found = run(home.paged.base().as_ptr().addr());
    let what = code.bytes();
    for number in 0..16 {
        assert_eq!(
            found.general[number], expected.general[number],
            "register {number} after {what:02x?} with {machine:x?}"
        );
    }
    assert_eq!(
        found.flags & COMPARED,
        expected.flags & COMPARED,
        "flags after {what:02x?} with {machine:x?}: {:x} for {:x}",
        found.flags,
        expected.flags
    );
    let mut bytes = vec![0; PAGES * PAGE];
    Span::of(plain.block(), 0..bytes.len()).expect("within").get(&mut bytes);
    let kept = home.bytes();
    let differs = (0..bytes.len()).find(|&at| bytes[at] != kept[at]);
    assert_eq!(differs, None, "memory after {what:02x?} with {machine:x?}");
}

/// So many cases, and no file of those that failed: each says all there is to say.
fn quick(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

fn machines() -> impl Strategy<Value = Machine> {
    // Values that are near each other and near their ends meet the flags.
    let value = prop_oneof![
        any::<u64>(),
        (0_u64..4).prop_map(|small| small.wrapping_sub(2)),
        prop_oneof![Just(0x80_u64), Just(0x8000), Just(0x8000_0000), Just(1 << 63), Just(0x7F)]
    ];
    (proptest::collection::vec(value, 16), any::<u16>(), any::<[u8; 32]>()).prop_map(
        |(general, flags, seed)| {
            let mut machine = Machine::new();
            machine.general.copy_from_slice(&general);
            machine.flags = u64::from(flags) & 0x8D5 | 2;
            for (number, register) in machine.vectors.iter_mut().enumerate() {
                for (at, byte) in register.0.iter_mut().enumerate() {
                    *byte = seed[at % 32].wrapping_mul(3).wrapping_add((number * 7 + at) as u8);
                }
            }
            machine
        },
    )
}

#[test]
fn a_trapped_store_leaves_what_the_processor_leaves() {
    let Some(trapped) = trapped() else { return };
    let forms = forms();
    let ran = AtomicU64::new(0);
    let cases = quick(3000);
    let number = 0..forms.len();
    proptest!(cases, |(
        number in number, which in 0_usize..3, register in 0_u8..16, rex: bool, lock: bool, value: u64,
        place in 0..2 * PAGE, machine in machines(), near: bool,
    )| {
        let form = &forms[number];
        let width = form.widths[which % form.widths.len()];
        let Some(mut bytes) = encode(form, width, register, rex, value) else { return Ok(()) };
        let span = span(form, width);
        // A change is within a word, and some moves want to be aligned.
        let align = if form.modifies { span } else if width == Vector { 16 } else { 1 };
        let at = place / align * align;
        if lock && form.modifies && form.opcode != [0x87] {
            bytes.insert(0, 0xF0);
        }
        let mut memory: Vec<u8> = (0..PAGES * PAGE).map(|at| (at * 13 % 251) as u8).collect();
        if near {
            // So that swaps are made, and sums come to nothing.
            let accumulator = machine.general[0].to_le_bytes();
            memory[at..at + 8].copy_from_slice(&accumulator);
            if form.opcode == [0x0F, 0xC7] {
                let upper = machine.general[2].to_le_bytes();
                memory[at + 4..at + 8].copy_from_slice(&upper[..4]);
            }
        }
        let (stores, changes) = (trapped.home.stores.load(Relaxed), trapped.home.changes.load(Relaxed));
        compare(&trapped, &Code::new(&bytes), &machine, at, &memory);
        let made = trapped.home.stores.load(Relaxed) - stores;
        let changed = trapped.home.changes.load(Relaxed) - changes;
        prop_assert_eq!((made, changed), if form.modifies { (0, 1) } else { (1, 0) });
        ran.fetch_add(1, Relaxed);
    });
    assert!(ran.load(Relaxed) > 2000, "{ran:?} of 3000 had an encoding");
    assert_eq!(*trapped.home.refusals.lock().unwrap(), []);
}

/// A bit that a register names may lie before the value or behind it.
#[test]
fn a_bit_by_a_register_is_the_bit_there() {
    let Some(trapped) = trapped() else { return };
    proptest!(quick(500), |(
        operation in 0_usize..3, wide: bool, bit in -4000_i64..4000, machine in machines(),
    )| {
        let opcode = [0xAB, 0xB3, 0xBB][operation];
        let mut machine = machine;
        machine.general[1] = bit as u64;
        let mut bytes = if wide { vec![0x48] } else { vec![] };
        bytes.extend([0x0F, opcode, 0b10_001_111]);
        bytes.extend(DISPLACEMENT.to_le_bytes());
        let memory: Vec<u8> = (0..PAGES * PAGE).map(|at| (at * 7 % 253) as u8).collect();
        compare(&trapped, &Code::new(&bytes), &machine, PAGE, &memory);
    });
}

#[test]
fn wide_vectors_are_stored_whole() {
    let Some(trapped) = trapped() else { return };
    if !std::is_x86_feature_detected!("avx") {
        return eprintln!("skipped: the processor has no AVX");
    }
    let memory = vec![0x5A; PAGES * PAGE];
    let mut machine = Machine::new();
    for (number, register) in machine.vectors.iter_mut().enumerate() {
        register.0.iter_mut().enumerate().for_each(|(at, byte)| *byte = (number * 67 + at) as u8);
    }
    machine.flags = 2;
    let modrm = |register: u8| 0b10_000_111 | (register & 7) << 3;
    let mut codes = Vec::new();
    for register in 0..16_u8 {
        let inverted = u8::from(register < 8) << 7;
        // VEX of two bytes: the register's upper bit, no second source, the length, the prefix.
        for (length, prefix, opcode) in
            [(0, 2, 0x7F), (4, 2, 0x7F), (4, 0, 0x11), (4, 1, 0xE7), (0, 1, 0x29), (4, 1, 0x7F)]
        {
            let mut bytes = vec![0xC5, inverted | 0x78 | length | prefix, opcode, modrm(register)];
            bytes.extend(DISPLACEMENT.to_le_bytes());
            codes.push(bytes);
        }
        // The upper half of a register alone.
        let mut bytes = vec![0xC4, inverted | 0x63, 0x7D, 0x19, modrm(register)];
        bytes.extend(DISPLACEMENT.to_le_bytes());
        bytes.push(1);
        codes.push(bytes);
    }
    if has_zmm() {
        for register in 0..32_u8 {
            let upper = u8::from(register & 8 == 0) << 7 | u8::from(register & 16 == 0) << 4;
            for length in [0x00, 0x20, 0x40] {
                // vmovdqu64, of which a short displacement counts in lengths and a long one does not.
                let mut bytes =
                    vec![0x62, upper | 0x61, 0xFE, 0x08 | length, 0x7F, modrm(register)];
                bytes.extend(DISPLACEMENT.to_le_bytes());
                codes.push(bytes);
            }
        }
    } else {
        eprintln!("skipped: the processor has no AVX-512; registers of 512 bits are left out");
    }
    for bytes in codes {
        for at in [PAGE, 2 * PAGE - 32] {
            compare(&trapped, &Code::new(&bytes), &machine, at, &memory);
        }
    }
    assert_eq!(*trapped.home.refusals.lock().unwrap(), []);
}

#[test]
fn string_moves_are_one_store_each() {
    let Some(trapped) = trapped() else { return };
    let source: Vec<u8> = (0..PAGES * PAGE).map(|at| (at * 31 % 241) as u8).collect();
    proptest!(quick(400), |(
        operation in 0_usize..4, wide in 0_u8..3, count in 0_usize..1100, backwards: bool, repeats: bool,
        at in 0_usize..500,
    )| {
        let opcode = [0xA4, 0xA5, 0xAA, 0xAB][operation];
        let mut bytes = Vec::new();
        if repeats {
            bytes.push(0xF3);
        }
        let element = match (opcode & 1, wide) {
            (0, _) => 1,
            (_, 0) => 2,
            (_, 1) => 4,
            _ => 8,
        };
        match element {
            2 => bytes.insert(0, 0x66),
            8 => bytes.push(0x48),
            _ => {}
        }
        bytes.push(opcode);
        let mut machine = Machine::new();
        machine.flags = if backwards { 0x402 } else { 2 };
        machine.general[0] = 0x1122_3344_5566_7788;
        machine.general[1] = count as u64;
        let start = if backwards { count.max(1) * element } else { 0 };
        machine.general[6] = source.as_ptr().addr() as u64 + start as u64;
        let memory = vec![0xA5; PAGES * PAGE];
        let before = trapped.home.stores.load(Relaxed);
        // There is no displacement.
        let at = at + start + DISPLACEMENT as usize;
        compare(&trapped, &Code::new(&bytes), &machine, at, &memory);
        let expected = u64::from(count > 0 || !repeats);
        prop_assert_eq!(trapped.home.stores.load(Relaxed) - before, expected);
    });
}

/// A move whose source is the window itself, and overlaps: each element is seen by the next.
#[test]
fn a_string_move_within_the_window_sees_what_it_moved() {
    let Some(trapped) = trapped() else { return };
    let base = trapped.home.paged.base().as_ptr().addr();
    for (backwards, apart) in [(false, 3_i64), (true, -5), (false, -9), (false, 4096), (true, 64)] {
        let mut memory: Vec<u8> = (0..PAGES * PAGE).map(|at| (at * 17 % 239) as u8).collect();
        trapped.home.put(0, &memory);
        let mut machine = Machine::new();
        machine.flags = if backwards { 0x402 } else { 2 };
        let (count, from) = (300_usize, 5000_i64);
        machine.general[1] = count as u64;
        machine.general[6] = base as u64 + from as u64;
        machine.general[7] = (base as i64 + from + apart) as u64;
        Code::new(&[0xF3, 0xA4]).run(&mut machine);
        for step in 0..count as i64 {
            let step = if backwards { -step } else { step };
            memory[(from + apart + step) as usize] = memory[(from + step) as usize];
        }
        assert!(trapped.home.bytes() == memory, "{backwards} {apart}");
        assert_eq!(machine.general[1], 0);
    }
}
