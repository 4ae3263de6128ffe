//! Where a server is to be met.

use std::{
    env, error, fmt,
    io::ErrorKind,
    net::{IpAddr, Ipv6Addr, TcpListener},
    str::FromStr,
};

use pontoon::job::{Env, EnvError, Master};

use super::ToolError;

/// An address and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place(Master);

/// Not an address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace;

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected an address and a port from 1 to 65535, such as 192.0.2.7:4000 or [::1]:4000",
        )
    }
}

impl error::Error for NoPlace {}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (host, port) = text.rsplit_once(':').ok_or(NoPlace)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_whole =
            bare.map_or(!host.contains([':', '[', ']']), |bare| bare.parse::<Ipv6Addr>().is_ok());
        let host = bare.unwrap_or(host);
        let digits = !port.starts_with('+');
        let port = port.parse().ok().filter(|&port| digits && port != 0).ok_or(NoPlace)?;
        let is_name = !host.is_empty() && !host.contains(char::is_whitespace);
        (is_whole && is_name).then(|| Self(Master { host: host.into(), port })).ok_or(NoPlace)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Place {
    /// A rank's place in a job of two that meets here. The token is the environment's.
    pub(super) fn env(&self, rank: u32) -> Result<Env, ToolError> {
        let env = Env::from_lookup(|name| match name {
            "RANK" => Some(rank.to_string().into()),
            "WORLD_SIZE" => Some("2".into()),
            "MASTER_ADDR" => Some(self.0.host.to_string().into()),
            "MASTER_PORT" => Some(self.0.port.to_string().into()),
            "PONTOON_JOB" => Some("smc".into()),
            "PONTOON_TOKEN" | "PONTOON_TOKEN_FILE" => env::var_os(name),
            _ => None,
        });
        match env {
            Ok(Some(env)) => Ok(env),
            Ok(None) | Err(EnvError::NoToken) => Err(ToolError::NoToken),
            Err(error) => Err(ToolError::Env(error)),
        }
    }

    /// That it is of this host, and nobody listens here. What else may be wrong with it is found when it is listened on.
    pub(super) fn is_free(&self) -> Result<(), ToolError> {
        // As rank 0 listens for a name: anywhere.
        let host = self.0.host.parse().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        match TcpListener::bind((host, self.0.port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                Err(ToolError::InUse(self.clone()))
            }
            // Rank 0 of a job would listen on all addresses then, which nobody asked for.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                Err(ToolError::NotHere(self.clone()))
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(ToolError::Kept(self.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The same place as this host reaches it: a name may lead elsewhere, or nowhere.
    pub(super) fn as_seen_here(&self) -> Self {
        match self.0.host.parse::<IpAddr>() {
            Ok(_) => self.clone(),
            Err(_) => Self(Master { host: "127.0.0.1".into(), port: self.0.port }),
        }
    }

    /// What to give to clients, which cannot call an address that stands for all of a host's.
    pub(super) fn for_clients(&self) -> String {
        match self.0.host.parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() => format!("ADDRESS:{}", self.0.port),
            _ => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for text in ["127.0.0.1:4000", "[::1]:1", "alpha.example:65535"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        assert_eq!("0.0.0.0:7".parse::<Place>().unwrap().for_clients(), "ADDRESS:7");
        assert_eq!("[::1]:7".parse::<Place>().unwrap().for_clients(), "[::1]:7");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in [
            "",
            "alpha",
            ":1",
            "alpha:",
            "alpha:0",
            "alpha:65536",
            "a b:1",
            "::1:4",
            "[::1:4",
            "a:+1",
        ] {
            assert_eq!(text.parse::<Place>(), Err(NoPlace), "{text:?}");
        }
    }
}
