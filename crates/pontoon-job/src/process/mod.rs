//! Processes of all machines: which one, on which machine, and a watcher that tells when one ends.

mod watch;

use std::{fmt, fs, io, path::Path};

use pontoon_signal::ProcessId;
use rustix::system::uname;

pub use watch::Watcher;

/// Which machine, which numbering of its processes and which network: two processes with the same can
/// watch each other, and share memory. A network namespace counts as a host of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(pub(crate) [u8; Self::BYTES]);

impl HostId {
    pub(crate) const BYTES: usize = 32;

    /// This machine, as this process sees it: its boot's id, the pid and the network namespace.
    ///
    /// # Errors
    ///
    /// If `/proc` does not say.
    pub fn current() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let hex: Vec<u8> = boot.bytes().filter(u8::is_ascii_hexdigit).collect();
        let mut id = [0; Self::BYTES];
        crate::hex::decode(&hex, &mut id[..16]).ok_or(io::ErrorKind::InvalidData)?;
        for (kind, at) in [("pid", 16), ("net", 24)] {
            let namespace = rustix::fs::stat(Path::new("/proc/self/ns").join(kind))?;
            id[at..at + 8].copy_from_slice(&namespace.st_ino.to_le_bytes());
        }
        Ok(Self(id))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({})", crate::hex::encode(&self.0))
    }
}

/// A process anywhere: its machine and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its machine.
    pub host: HostId,
    /// What people call the machine.
    pub host_name: Box<str>,
    /// Which one of the machine.
    pub id: ProcessId,
}

/// The longest host name told to others; Linux allows 64 bytes.
pub(crate) const HOST_NAME_MAX: usize = 64;

impl Process {
    /// This process.
    ///
    /// # Errors
    ///
    /// If `/proc` does not say.
    pub fn current() -> io::Result<Self> {
        let name: String = uname().nodename().to_string_lossy().into_owned();
        let plain = name.chars().filter(|char| char.is_ascii_graphic()).take(HOST_NAME_MAX);
        Ok(Self {
            host: HostId::current()?,
            host_name: plain.collect::<String>().into(),
            id: ProcessId::current().map_err(|error| io::Error::from_raw_os_error(error.code))?,
        })
    }

    /// Whether it can be watched from `other`'s machine and pid namespace.
    pub fn shares_host_with(&self, other: &Self) -> bool {
        self.host == other.host
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.id, self.host_name)
    }
}

#[cfg(test)]
mod tests {
    use super::{HostId, Path, Process};

    #[test]
    fn this_host_is_the_same_each_time() {
        let id = HostId::current().unwrap();
        assert_eq!(id, HostId::current().unwrap());
        // As the links spell it: pid:[4026531836].
        for (kind, bytes) in [("pid", &id.0[16..24]), ("net", &id.0[24..])] {
            let link = std::fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap();
            let inode = u64::from_le_bytes(bytes.try_into().unwrap());
            assert_eq!(link.to_str().unwrap(), format!("{kind}:[{inode}]"));
        }
        let me = Process::current().unwrap();
        assert!(me.shares_host_with(&me));
        assert!(me.to_string().starts_with(&format!("pid {} on ", std::process::id())));
    }
}
