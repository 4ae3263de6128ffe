//! What memory is, to whoever copies it: whether the kernel may take it away, or it is a device's.

use core::fmt;
use std::{
    fs::File,
    io::{BufRead, BufReader},
};

use pontoon_signal::Block;

/// Where memory is, and whether it stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// The host's. The kernel may write it to disk, and an access may wait for it.
    Host,
    /// The host's, locked: no access waits for the kernel.
    Pinned,
    /// A device's, mapped into this process: loads cross a bus, and are slow one by one.
    Accelerator,
}

impl Placement {
    /// That of a block, by what the kernel tells of the mapping that has its first byte (`VmFlags` of
    /// `/proc/self/smaps`, see `proc_pid_smaps(5)`); `None` if it does not tell.
    ///
    /// # Blocks
    ///
    /// As long as it takes to read that file, which grows with the mappings of the process.
    pub fn of(block: &Block) -> Option<Self> {
        let smaps = BufReader::new(File::open("/proc/self/smaps").ok()?);
        of_address(block.base().addr().get(), smaps)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host memory, not locked",
            Self::Pinned => "host memory, locked",
            Self::Accelerator => "memory of a device",
        })
    }
}

fn of_address(address: usize, smaps: impl BufRead) -> Option<Placement> {
    let mut is_its = false;
    for line in smaps.lines() {
        let line = line.ok()?;
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if is_its {
                return Some(of_flags(flags));
            }
        } else if let Some(found) = addresses(&line) {
            is_its = found.contains(&address);
        }
    }
    None
}

/// The addresses that the first line of a mapping begins with; `None` for its other lines.
fn addresses(line: &str) -> Option<core::ops::Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

fn of_flags(flags: &str) -> Placement {
    let has = |flag| flags.split_whitespace().any(|other| other == flag);
    if has("io") || has("pf") {
        // Pages that are no memory of the kernel's.
        Placement::Accelerator
    } else if has("lo") {
        Placement::Pinned
    } else {
        Placement::Host
    }
}

#[cfg(test)]
mod tests {
    use super::{Placement, of_address};
    use pontoon_signal::Block;

    const SMAPS: &str = "\
7f0000000000-7f0000002000 rw-s 00000000 00:01 3 /memfd:a-b (deleted)
Size:                  8 kB
VmFlags: rd wr sh mr mw me ms lo sd
7f0000002000-7f0000003000 rw-s 00000000 00:06 4 /dev/dri/card0
Size:                  4 kB
VmFlags: rd wr sh mr mw me ms pf io de dd sd
7f0000003000-7f0000004000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac sd
";

    #[test]
    fn memory_is_what_the_flags_of_its_mapping_say() {
        let of = |address| of_address(address, SMAPS.as_bytes());
        assert_eq!(of(0x7f00_0000_0000), Some(Placement::Pinned));
        assert_eq!(of(0x7f00_0000_1fff), Some(Placement::Pinned));
        assert_eq!(of(0x7f00_0000_2000), Some(Placement::Accelerator));
        assert_eq!(of(0x7f00_0000_3000), Some(Placement::Host));
        assert_eq!(of(0x7f00_0000_4000), None);
    }

    #[test]
    fn memory_that_is_locked_is_pinned() {
        let block = Block::private("placement", 1 << 16).unwrap();
        assert_eq!(Placement::of(&block), Some(Placement::Host));
        block.lock().unwrap();
        assert_eq!(Placement::of(&block), Some(Placement::Pinned));
    }

    /// The kernel maps pages of its own into each process, as a driver maps those of a device.
    #[test]
    fn what_a_driver_maps_is_no_memory_of_the_hosts() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let Some(line) = maps.lines().find(|line| line.ends_with("[vvar]")) else {
            eprintln!("skipped: no [vvar] on this kernel");
            return;
        };
        let address = super::addresses(line).unwrap().start;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        assert_eq!(of_address(address, smaps.as_bytes()), Some(Placement::Accelerator));
    }
}
