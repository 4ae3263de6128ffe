//! The handler of SIGSEGV, and the pages whose stores it makes.
#![allow(unsafe_code)] // A signal handler is a C function.

use core::{ffi::c_void, fmt, fmt::Write as _, ops::Range};
use std::sync::{Arc, Mutex, TryLockError};

use iced_x86::Instruction;
use libc::{SIGSEGV, c_int, siginfo_t};
use pontoon_hal::guard::{Guard, Refusal, STORE_MAX, Storer, Unmade};
use pontoon_signal::{
    SystemError,
    shim::{AtomicU64, Ordering::Relaxed, yield_now},
};

use super::{
    decode::{self, Effect, Gets, Modify, RAX, RCX, RDI, RDX, RSI, Strings},
    memory,
    registers::{self, Machine, Registers},
    tell::{Line, Told},
};
use crate::{
    Installed, ServeError, Served, Window,
    service::{Delivered, Hook},
    table::{Place, Table},
};

/// How many ranges of a process may be guarded.
const RANGES_MAX: usize = 64;
/// String moves that are made at the same time: others wait for them.
const BUFFERS: usize = 4;
/// How often a string move may find that what it reads is not there, in a row.
const TRIES: u64 = 10_000;

static RANGES: Table<Record, RANGES_MAX> = Table::new();
// SAFETY: `on_sigsegv` does nothing that a handler may not do, wherever a thread is.
static HOOK: Hook = unsafe { Hook::new(SIGSEGV, on_sigsegv) };

/// A range of guarded pages and who makes their stores.
struct Record {
    window: Arc<Window>,
    /// Where they are.
    within: Range<u64>,
    storer: Arc<dyn Storer>,
    buffers: [Mutex<Box<[u8]>>; BUFFERS],
    /// String moves in a row that could not read.
    unread: AtomicU64,
    told: Told,
}

/// Pages that are guarded.
struct Guarded {
    place: Option<Place>,
}

/// Has `storer` make the stores to `pages` of `window`, once they are read only.
pub(crate) fn guard(
    window: &Arc<Window>,
    pages: Range<usize>,
    storer: Arc<dyn Storer>,
) -> Result<Box<dyn Guard>, ServeError> {
    decode::learn();
    registers::learn();
    HOOK.reinstall()?;
    let (first, page) = (window.addresses().start, window.page_bytes() as u64);
    let within = first + pages.start as u64 * page..first + pages.end as u64 * page;
    let record = Record {
        window: Arc::clone(window),
        within: within.clone(),
        storer,
        buffers: core::array::from_fn(|_| Mutex::new(vec![0; STORE_MAX].into())),
        unread: AtomicU64::new(0),
        told: Told::new(),
    };
    let place = RANGES.insert(within, record);
    let place = place.map_err(|_| ServeError::Full { windows: RANGES_MAX })?;
    Ok(Box::new(Guarded { place: Some(place) }))
}

/// Whether our handler of SIGSEGV is in force, which guarded pages need: a library that is loaded later may have
/// installed its own.
///
/// # Errors
///
/// What the kernel says.
pub fn check_stores() -> Result<Installed, SystemError> {
    HOOK.check()
}

/// Puts our handler of SIGSEGV in force if it is not, in front of the one that is: that one gets what is not for
/// guarded pages.
///
/// # Errors
///
/// [`ServeError::TakenOver`] after many times, or what the kernel says.
pub fn reinstall_stores() -> Result<(), ServeError> {
    HOOK.reinstall()
}

/// The handler. It must not unwind: a panic of a storer's ends the process here.
extern "C" fn on_sigsegv(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: K1, the kernel calls it so; and so does another's handler that knows of ours.
    let delivered = unsafe { Delivered::new(signal, info, context) };
    HOOK.handle(delivered, |delivered| {
        let address = delivered.address() as u64;
        let served = RANGES.find(address, |record| record.serve(&delivered));
        served.unwrap_or(Served::NotMine)
    });
}

impl Record {
    fn serve(&self, delivered: &Delivered) -> Served {
        if !self.window.is_here() || !delivered.is_write() {
            return Served::NotMine; // a child's own mapping, or no store
        }
        let mut registers = Registers::of(delivered);
        let address = delivered.address() as u64;
        let mut code = [0; memory::CODE];
        let instruction = Self::read(registers.instruction(), &mut code);
        let made = self.make(&instruction, &mut registers, address);
        made.unwrap_or_else(|why| {
            self.refuse(&instruction, &registers, code, address, why);
            Served::NotMine
        })
    }

    /// The instruction at an address.
    fn read(address: u64, code: &mut [u8; memory::CODE]) -> Instruction {
        for beyond in [false, true] {
            // SAFETY: K3, the processor was about to make it; and of its page alone it was no whole one.
            let length = unsafe { memory::code(address, beyond, code) };
            if let Some(instruction) = decode::decode(&code[..length], address) {
                return instruction;
            }
        }
        Instruction::new()
    }

    /// Makes the store. Why it cannot be made, if it cannot.
    fn make(
        &self,
        instruction: &Instruction,
        registers: &mut Registers<'_>,
        address: u64,
    ) -> Result<Served, &'static str> {
        let effect = Effect::of(instruction, registers)?;
        let (at, length) = effect.place();
        let end = at.checked_add(length as u64).ok_or("it wraps round")?;
        if !(at..end).contains(&address) {
            return Err("it was read as a store to another address");
        }
        if at < self.within.start || end > self.within.end {
            return Err("it reaches beyond the pages that are written through");
        }
        match effect {
            Effect::Store { bytes, length, .. } => {
                kept(self.storer.store(self.offset(at), &bytes[..length]))?;
            }
            Effect::Change(modify) => self.modify(modify, registers)?,
            Effect::Strings(strings) => {
                return self.strings(&strings, instruction, registers);
            }
        }
        registers.go_on_at(instruction.next_ip());
        Ok(Served::Again)
    }

    fn modify(&self, modify: Modify, registers: &mut Registers<'_>) -> Result<(), &'static str> {
        let Modify { at, bytes, change, sets, gets } = modify;
        let (old, is_lost) = match self.storer.change(self.offset(at), bytes, change) {
            Ok(old) => (old, false),
            Err(Unmade::Lost { reads }) => (reads & pontoon_hal::guard::mask(bytes), true),
            Err(Unmade::Refused(why)) => return Err(why),
        };
        // A swap that was lost was not made, whatever its value reads as.
        let new = if is_lost { None } else { change.of(old, bytes) };
        let flags = sets.after(registers.flags(), old, new.unwrap_or(old), bytes);
        let is_swap = matches!(gets, Gets::Accumulator(_) | Gets::Pair);
        let flags = if is_lost && is_swap { flags & !super::flags::ZERO } else { flags };
        registers.set_flags(flags);
        match (gets, new) {
            (Gets::Part(part), _) | (Gets::Accumulator(part), None) => {
                let whole = registers.general(part.number);
                registers.set_general(part.number, part.put(whole, old));
            }
            (Gets::Pair, None) => {
                registers.set_general(RAX, old & 0xFFFF_FFFF);
                registers.set_general(RDX, old >> 32);
            }
            _ => {}
        }
        Ok(())
    }

    /// Moves or fills as many elements as go into one store. The processor makes the instruction again for the rest.
    fn strings(
        &self,
        strings: &Strings,
        instruction: &Instruction,
        registers: &mut Registers<'_>,
    ) -> Result<Served, &'static str> {
        let free = self.buffers.iter().find_map(|buffer| match buffer.try_lock() {
            Ok(buffer) => Some(buffer),
            Err(TryLockError::Poisoned(buffer)) => Some(buffer.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        let Some(mut buffer) = free else {
            yield_now();
            return Ok(Served::Again);
        };
        let element = strings.element;
        let batch = strings
            .batch(&self.within, u64::MAX)
            .ok_or("it reaches beyond the pages that are written through")?;
        let mut elements = batch.elements;
        if let Some(from) = batch.from {
            let read = memory::copy(from, &mut buffer[..elements as usize * element]);
            // From behind, the first elements are the last in memory.
            if read < elements as usize * element && strings.backwards {
                elements = 1;
                let from = strings.from.unwrap_or(from);
                if memory::copy(from, &mut buffer[..element]) < element {
                    elements = 0;
                }
            } else {
                elements = (read / element) as u64;
            }
            if elements == 0 {
                return self.unread();
            }
            self.unread.store(0, Relaxed);
        } else {
            let value = &strings.value.to_le_bytes()[..element];
            let filled = &mut buffer[..elements as usize * element];
            filled.chunks_exact_mut(element).for_each(|place| place.copy_from_slice(value));
        }
        let to =
            if strings.backwards { strings.behind(strings.to, elements - 1) } else { batch.to };
        kept(self.storer.store(self.offset(to), &buffer[..elements as usize * element]))?;
        registers.set_general(RDI, strings.behind(strings.to, elements));
        if let Some(from) = strings.from {
            registers.set_general(RSI, strings.behind(from, elements));
        }
        if strings.repeats {
            registers.set_general(RCX, strings.count - elements);
        }
        if !strings.repeats || elements == strings.count {
            registers.go_on_at(instruction.next_ip());
        }
        Ok(Served::Again)
    }

    /// What is to be moved is not there: the processor, which reads it before it stores, is let to fault on it.
    fn unread(&self) -> Result<Served, &'static str> {
        if self.unread.fetch_add(1, Relaxed) < TRIES {
            return Ok(Served::Again);
        }
        Err("what it moves cannot be read by process_vm_readv")
    }

    fn refuse(
        &self,
        instruction: &Instruction,
        registers: &Registers<'_>,
        code: [u8; 15],
        address: u64,
        why: &'static str,
    ) {
        let mut name = Line { bytes: [0; 20], used: 0 };
        // What has no room is left out.
        let _ = write!(name, "{:?}", instruction.mnemonic());
        let refusal = Refusal {
            instruction: registers.instruction(),
            code,
            length: instruction.len(),
            name: name.bytes,
            address,
            why,
        };
        self.told.tell(&refusal);
        self.storer.refused(&refusal);
    }

    fn offset(&self, address: u64) -> usize {
        (address - self.window.addresses().start) as usize
    }
}

/// A store that was lost is the storer's to tell of.
fn kept(made: Result<(), Unmade>) -> Result<(), &'static str> {
    match made {
        Ok(()) | Err(Unmade::Lost { .. }) => Ok(()),
        Err(Unmade::Refused(why)) => Err(why),
    }
}

impl Guard for Guarded {}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guarded({:?})", self.place)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            drop(RANGES.remove(place));
        }
    }
}
