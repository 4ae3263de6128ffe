//! Where the ranks of a job run: hosts by name, and which ranks each has.

use std::{error, fmt, net::IpAddr, str::FromStr};

use crate::counted::counted;

/// The most ranks of a job: a number beyond is a slip of the finger.
pub(crate) const RANKS_MAX: u32 = 4096;

/// A host by the name that the remote shell takes and the address that ranks connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) address: String,
}

/// Why a host was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostError {
    /// Neither a name nor a name and an address.
    Form(String),
    /// It was named before.
    Twice(String),
    /// There are more hosts than ranks.
    Idle { hosts: usize, ranks: u32 },
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(text) => {
                write!(f, "{text:?} is no host: expected NAME or NAME=ADDRESS, such as a=10.0.0.1")
            }
            Self::Twice(name) => write!(f, "host {name} is named twice in --hosts"),
            Self::Idle { hosts, ranks } => {
                let ranks = counted(*ranks, "rank");
                write!(f, "{hosts} hosts have nothing to do with {ranks}: name fewer, or ")?;
                f.write_str("raise -n")
            }
        }
    }
}

impl error::Error for HostError {}

impl FromStr for Host {
    type Err = HostError;

    /// `NAME` or `NAME=ADDRESS`. A name may be `user@host`, whose address is `host`. A dash in
    /// front is refused: the remote shell would read an option.
    fn from_str(text: &str) -> Result<Self, HostError> {
        let refused = || HostError::Form(text.to_owned());
        let (name, address) = match text.split_once('=') {
            Some((name, address)) => (name, address),
            None => (text, text.rsplit_once('@').map_or(text, |(_, host)| host)),
        };
        let is_plain = |text: &str, extra: &[char]| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(&c))
        };
        if !is_plain(name, &['.', '-', '_', '@', ':']) || name.starts_with(':') {
            return Err(refused());
        }
        if !is_plain(address, &['.', '-', '_', ':', '%']) {
            return Err(refused());
        }
        Ok(Self { name: name.to_owned(), address: address.to_owned() })
    }
}

impl Host {
    /// Whether its address means another host on each host.
    pub(super) fn is_loopback(&self) -> bool {
        let is_number = |address: IpAddr| address.is_loopback();
        self.address == "localhost" || self.address.parse().is_ok_and(is_number)
    }
}

/// How ranks are dealt to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Map {
    /// Neighbours on one host: ranks 0 and 1 on the first, 2 and 3 on the second
    Block,
    /// In turn: ranks 0 and 2 on the first, 1 and 3 on the second
    RoundRobin,
}

/// The ranks of each host. Counts differ by one at most, and the first hosts have the more.
///
/// # Errors
///
/// A host is named twice, or would have no rank.
pub(crate) fn place(hosts: &[Host], ranks: u32, map: Map) -> Result<Vec<Vec<u32>>, HostError> {
    for (at, host) in hosts.iter().enumerate() {
        if hosts[..at].iter().any(|other| other.name == host.name) {
            return Err(HostError::Twice(host.name.clone()));
        }
    }
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    if count > ranks {
        return Err(HostError::Idle { hosts: hosts.len(), ranks });
    }
    let (each, more) = (ranks / count, ranks % count);
    let of = |host: u32| match map {
        Map::RoundRobin => (host..ranks).step_by(hosts.len()).collect(),
        Map::Block => {
            let first = host * each + host.min(more);
            (first..first + each + u32::from(host < more)).collect()
        }
    };
    Ok((0..count).map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<Host> {
        names.iter().map(|name| name.parse().expect("a host")).collect()
    }

    #[test]
    fn a_name_is_its_own_address_unless_one_is_given() {
        for (text, name, address) in [
            ("a", "a", "a"),
            ("node-7.cluster_b", "node-7.cluster_b", "node-7.cluster_b"),
            ("me@b", "me@b", "b"),
            ("a=10.0.0.1", "a", "10.0.0.1"),
            ("me@b=fd00::1%eth0", "me@b", "fd00::1%eth0"),
            ("b=::1", "b", "::1"),
        ] {
            let host = Host { name: name.to_owned(), address: address.to_owned() };
            assert_eq!(text.parse(), Ok(host), "{text}");
        }
    }

    #[test]
    fn what_a_shell_would_read_as_something_else_is_no_host() {
        let bad =
            ["", "=", "a=", "=1.2.3.4", "-oProxyCommand=x", "a b", "a;b", "a=-1", "$(x)", ":a"];
        for text in bad {
            assert_eq!(text.parse::<Host>(), Err(HostError::Form(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn every_rank_has_one_place() {
        let three = hosts(&["a", "b", "c"]);
        for (map, ranks, wanted) in [
            (Map::Block, 7, vec![vec![0, 1, 2], vec![3, 4], vec![5, 6]]),
            (Map::RoundRobin, 7, vec![vec![0, 3, 6], vec![1, 4], vec![2, 5]]),
            (Map::Block, 3, vec![vec![0], vec![1], vec![2]]),
            (Map::RoundRobin, 3, vec![vec![0], vec![1], vec![2]]),
        ] {
            assert_eq!(place(&three, ranks, map), Ok(wanted), "{map:?} {ranks}");
        }
        for ranks in 3..40 {
            for map in [Map::Block, Map::RoundRobin] {
                let mut all = place(&three, ranks, map).expect("placed").concat();
                all.sort_unstable();
                assert_eq!(all, (0..ranks).collect::<Vec<_>>(), "{map:?} {ranks}");
            }
        }
    }

    #[test]
    fn a_host_without_work_and_a_host_named_twice_are_refused() {
        let idle = HostError::Idle { hosts: 2, ranks: 1 };
        assert_eq!(place(&hosts(&["a", "b"]), 1, Map::Block), Err(idle));
        let twice = HostError::Twice("a".to_owned());
        assert_eq!(place(&hosts(&["a", "b", "a=c"]), 9, Map::Block), Err(twice));
    }
}
