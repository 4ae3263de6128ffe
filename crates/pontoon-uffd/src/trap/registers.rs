//! The registers of a thread whose store was trapped.
#![allow(unsafe_code)] // The kernel's structures are given by pointer.

use core::{arch::x86_64::__cpuid_count, marker::PhantomData};

use libc::ucontext_t;
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

use crate::service::Delivered;

/// What an instruction finds: general registers by the processor's numbers, vectors and flags.
pub(super) trait Machine {
    /// All of a general register.
    fn general(&self, number: usize) -> u64;
    /// The lowest `bytes` of a vector register, 64 at most; `None` if the signal does not show them.
    fn vector(&self, number: usize, bytes: usize) -> Option<[u8; 64]>;
    /// RFLAGS.
    fn flags(&self) -> u64;
}

/// The registers that the thread goes on with when the handler returns.
///
/// Invariant K2: `context` is what the handler was given with the signal, which it has to itself until it returns.
pub(super) struct Registers<'d> {
    context: *mut ucontext_t,
    life: PhantomData<&'d Delivered>,
}

/// Where a register is among those of a signal, by the processor's number of it.
const GENERAL: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Parts of the processor's saved state: their numbers in `XCR0`, and where they begin, as the processor says.
/// The upper halves of YMM0 to 15, of ZMM0 to 15, and all of ZMM16 to 31.
const PARTS: [u32; 3] = [2, 6, 7];
static BEGINS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

// Intel's manual of the architecture, volume 1, 13.4: the legacy region, and the header behind it. What the kernel
// adds is in `asm/sigcontext.h`: at 464 a mark, the size of it all, and which parts it holds.
const XMM: usize = 160;
const MARK: (usize, u32) = (464, 0x4650_5853);
const SIZE: usize = 468;
const HOLDS: usize = 512;
const LEGACY: usize = 512;

/// Asks the processor where it saves what: not in a handler, as a virtual machine answers slowly.
pub(super) fn learn() {
    let last = __cpuid_count(0, 0).eax;
    if last < 0xD {
        return;
    }
    for (part, begins) in PARTS.iter().zip(&BEGINS) {
        begins.store(__cpuid_count(0xD, *part).ebx.into(), Relaxed);
    }
}

impl<'d> Registers<'d> {
    pub(super) fn of(delivered: &'d Delivered) -> Self {
        Self { context: delivered.machine(), life: PhantomData }
    }

    fn word(&self, register: i32) -> u64 {
        // SAFETY: K2.
        let value = unsafe { (*self.context).uc_mcontext.gregs[register as usize] };
        value.cast_unsigned()
    }

    fn set_word(&mut self, register: i32, value: u64) {
        // SAFETY: K2.
        unsafe { (*self.context).uc_mcontext.gregs[register as usize] = value.cast_signed() };
    }

    /// The address of the instruction.
    pub(super) fn instruction(&self) -> u64 {
        self.word(libc::REG_RIP)
    }

    pub(super) fn go_on_at(&mut self, address: u64) {
        self.set_word(libc::REG_RIP, address);
    }

    pub(super) fn set_general(&mut self, number: usize, value: u64) {
        self.set_word(GENERAL[number], value);
    }

    pub(super) fn set_flags(&mut self, flags: u64) {
        self.set_word(libc::REG_EFL, flags);
    }

    /// `N` bytes of the saved state, from `at` on; `None` where the signal has none.
    fn saved<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        // SAFETY: K2.
        let state = unsafe { (*self.context).uc_mcontext.fpregs };
        let state = state.cast::<u8>();
        let bytes = if at + N > LEGACY { self.saved_bytes()? } else { LEGACY };
        if state.is_null() || at + N > bytes {
            return None;
        }
        // SAFETY: the kernel saved so many bytes there, and has given the handler their address.
        let from = unsafe { state.add(at) };
        // SAFETY: as above; any bytes are valid.
        Some(unsafe { from.cast::<[u8; N]>().read_unaligned() })
    }

    /// The size of the saved state, if there is more than what all processors have.
    fn saved_bytes(&self) -> Option<usize> {
        let mark = u32::from_ne_bytes(self.saved(MARK.0)?);
        let bytes = u32::from_ne_bytes(self.saved(SIZE)?);
        (mark == MARK.1).then_some(bytes as usize)
    }

    /// `N` bytes of a part, of the register that is the `index`th there. Zeros if it was not in use.
    fn part<const N: usize>(&self, part: usize, index: usize) -> Option<[u8; N]> {
        let begins = BEGINS[part].load(Relaxed) as usize;
        let holds = u64::from_ne_bytes(self.saved(HOLDS)?);
        if begins == 0 {
            return None;
        }
        let in_use = holds & (1 << PARTS[part]) != 0;
        if in_use { self.saved(begins + index * N) } else { Some([0; N]) }
    }
}

impl Machine for Registers<'_> {
    fn general(&self, number: usize) -> u64 {
        self.word(GENERAL[number])
    }

    fn vector(&self, number: usize, bytes: usize) -> Option<[u8; 64]> {
        if number >= 16 {
            return self.part::<64>(2, number - 16);
        }
        let mut all = [0; 64];
        all[..16].copy_from_slice(&self.saved::<16>(XMM + number * 16)?);
        if bytes > 16 {
            all[16..32].copy_from_slice(&self.part::<16>(0, number)?);
        }
        if bytes > 32 {
            all[32..].copy_from_slice(&self.part::<32>(1, number)?);
        }
        Some(all)
    }

    fn flags(&self) -> u64 {
        self.word(libc::REG_EFL)
    }
}
