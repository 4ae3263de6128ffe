//! How a store that was refused is told of, in a handler.
#![allow(unsafe_code)] // A line is written where nothing may be allocated.

use core::fmt::{self, Write as _};

use pontoon_hal::guard::Refusal;
use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed};

/// Instructions that are told of: a program that has more of them has said enough.
const MOST: usize = 16;

/// The instructions that were told of.
pub(super) struct Told([AtomicU64; MOST]);

impl Told {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MOST])
    }

    /// Writes a line to standard error, once an instruction.
    pub(super) fn tell(&self, refusal: &Refusal) {
        let instruction = refusal.instruction;
        let is_new = self.0.iter().find_map(|told| {
            match told.compare_exchange(0, instruction, Relaxed, Relaxed) {
                Ok(_) => Some(true),
                Err(other) => (other == instruction).then_some(false),
            }
        });
        if is_new != Some(true) {
            return;
        }
        let mut line = Line { bytes: [0; 512], used: 0 };
        // What has no room is left out.
        let _ = writeln!(line, "pontoon: {refusal}");
        // SAFETY: it reads those bytes.
        let _ = unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.used) };
    }
}

/// A line without an allocation.
pub(super) struct Line<const N: usize> {
    pub(super) bytes: [u8; N],
    pub(super) used: usize,
}

impl<const N: usize> fmt::Write for Line<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = text.len().min(N - self.used);
        self.bytes[self.used..self.used + bytes].copy_from_slice(&text.as_bytes()[..bytes]);
        self.used += bytes;
        Ok(())
    }
}
