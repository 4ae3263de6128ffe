//! Guarded pages: they can be read, and each store to them is made by somebody else, elsewhere.
//!
//! What the processor was about to do is known by its instruction, which whoever guards the pages
//! reads ([`Paging::guard`](crate::paging::Paging::guard)); where the bytes go is the business of a [`Storer`].

use core::fmt;

/// The most bytes of one store: those of a string move. A longer one is made in parts.
pub const STORE_MAX: usize = 64 << 10;

/// What an instruction makes of a value of 1, 2, 4 or 8 bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds, and forgets the carry.
    Add(u64),
    /// Keeps the bits that are set here too.
    And(u64),
    /// Sets bits.
    Or(u64),
    /// Turns bits.
    Xor(u64),
    /// Makes it 0 less the value.
    Negate,
    /// Makes it that.
    Set(u64),
    /// Makes it `new` if it is `expected`.
    Swap {
        /// What it has to be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
}

impl Change {
    /// What becomes of `old`, a value of so many bytes; `None` if it stays.
    pub fn of(self, old: u64, bytes: usize) -> Option<u64> {
        let mask = mask(bytes);
        let new = match self {
            Self::Add(n) => old.wrapping_add(n),
            Self::And(bits) => old & bits,
            Self::Or(bits) => old | bits,
            Self::Xor(bits) => old ^ bits,
            Self::Negate => old.wrapping_neg(),
            Self::Set(value) => value,
            Self::Swap { expected, new } if expected & mask == old & mask => new,
            Self::Swap { .. } => return None,
        };
        Some(new & mask)
    }
}

/// All ones in the lowest `bytes` bytes.
pub const fn mask(bytes: usize) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

/// Why a store was not made, or is not known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmade {
    /// It went nowhere, or may come yet, and the [`Storer`] remembers that: the thread goes on.
    Lost {
        /// What an instruction that reads the old value is given.
        reads: u64,
    },
    /// It cannot be made, for this reason: the thread gets the signal that it would have got.
    Refused(&'static str),
}

/// Who makes the stores to guarded pages.
///
/// It is asked in a signal handler, on the thread whose store it is: it neither allocates nor locks what that
/// thread may hold, panics never, touches no page that is not in place, and comes back within a bound of
/// its own. When it comes back the thread goes on behind its instruction.
pub trait Storer: Send + Sync {
    /// Makes `bytes` be from byte `at` of the window on: [`STORE_MAX`] of them at most, all of guarded pages.
    ///
    /// # Errors
    ///
    /// [`Unmade`].
    fn store(&self, at: usize, bytes: &[u8]) -> Result<(), Unmade>;

    /// Changes the value of `bytes` bytes at byte `at` of the window, at once against all others that change it. Gives
    /// what it was.
    ///
    /// # Errors
    ///
    /// [`Unmade`].
    fn change(&self, at: usize, bytes: usize, change: Change) -> Result<u64, Unmade>;

    /// Is told of a store that was not made, before its thread gets its signal.
    fn refused(&self, refusal: &Refusal);
}

/// A store that was not made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The instruction's address.
    pub instruction: u64,
    /// Its bytes: the first `length` of them.
    pub code: [u8; 15],
    /// How many those are.
    pub length: usize,
    /// Its name, and zeros behind.
    pub name: [u8; 20],
    /// The address that it was to store to.
    pub address: u64,
    /// Why it was not.
    pub why: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        let name = core::str::from_utf8(&self.name[..end]).unwrap_or("?");
        write!(f, "the instruction {name} at {:#x} (", self.instruction)?;
        for (index, byte) in self.code[..self.length.min(15)].iter().enumerate() {
            write!(f, "{}{byte:02x}", if index == 0 { "" } else { " " })?;
        }
        write!(
            f,
            ") was not made at {:#x}, which is written through: {}; use plain moves there, or a cell",
            self.address, self.why
        )
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({self})")
    }
}

/// Pages that are guarded, as long as this is kept; afterwards each store to them raises SIGSEGV.
pub trait Guard: Send + Sync + fmt::Debug {}

#[cfg(test)]
mod tests {
    use super::{Change, Refusal};

    #[test]
    fn a_change_is_of_its_bytes_alone() {
        assert_eq!(Change::Add(1).of(0xFF, 1), Some(0));
        assert_eq!(Change::Negate.of(1, 2), Some(0xFFFF));
        assert_eq!(Change::Set(u64::MAX).of(0, 4), Some(0xFFFF_FFFF));
        let swap = Change::Swap { expected: 0x1_05, new: 7 };
        assert_eq!((swap.of(0x2_05, 1), swap.of(0x2_05, 2)), (Some(7), None));
    }

    #[test]
    fn a_refusal_says_which_instruction_where_why_and_what_to_do() {
        let mut name = [0; 20];
        name[..3].copy_from_slice(b"Shl");
        let mut code = [0; 15];
        code[..2].copy_from_slice(&[0xD1, 0x27]);
        let refusal =
            Refusal { instruction: 0x40, code, length: 2, name, address: 0x80, why: "no" };
        let text = refusal.to_string();
        for part in ["Shl", "0x40", "(d1 27)", "0x80", ": no;", "cell"] {
            assert!(text.contains(part), "{text} does not say {part}");
        }
    }
}
