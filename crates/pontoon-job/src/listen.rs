//! Where rank 0 listens, and how the others find the address.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs},
    sync::mpsc::channel,
};

use pontoon_signal::{Nanos, SystemError};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::{JoinError, Master, sys};

/// Rank 0's listener.
///
/// On the address that was given, if it is one of this machine. On all addresses if a name was
/// given: the name may lead to another address here than elsewhere, as Debian's own name does,
/// 127.0.1.1.
pub(crate) fn listen(master: &Master) -> Result<TcpListener, JoinError> {
    let port = master.port;
    let on = |ip: IpAddr| SocketAddr::new(ip, port);
    let (v4, v6) = (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED));
    let (first, then) = match literal(&master.host) {
        Some(ip) => (ip, if ip.is_ipv4() { v4 } else { v6 }),
        // Takes IPv4 too.
        None => (v6, v4),
    };
    let elsewhere = |error: &io::Error| {
        let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        error.kind() == ErrorKind::AddrNotAvailable || code == Some(rustix::io::Errno::AFNOSUPPORT)
    };
    let (address, bound) = match bind(on(first)) {
        Err(error) if elsewhere(&error) => {
            if error.kind() == ErrorKind::AddrNotAvailable {
                let (host, on) = (&*master.host, on(then));
                tracing::warn!(
                    target: "pontoon::job",
                    "MASTER_ADDR is {host}, which is no address of this host: rank 0 listens on {on}; \
                     if the others do not reach it there, give all ranks an address of this host"
                );
            }
            (on(then), bind(on(then)))
        }
        bound => (on(first), bound),
    };
    bound.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => JoinError::PortInUse { address },
        _ => JoinError::CannotListen { address, error: sys::system_error("bind", &error) },
    })
}

/// All addresses are those of IPv4 too, whatever `net.ipv6.bindv6only` says.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if address.is_ipv4() || !address.ip().is_unspecified() {
        return TcpListener::bind(address);
    }
    // The option has to be set before the binding, which the standard library does not let.
    let (family, kind) = (AddressFamily::INET6, SocketType::STREAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// As the standard library's.
const BACKLOG: i32 = 128;

/// The address at which this machine reaches its own listener.
pub(crate) fn from_here(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

fn literal(host: &str) -> Option<IpAddr> {
    match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => host.parse().ok(),
    }
}

/// Why a name leads to no address.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// The answer did not come in time.
    Late,
    /// There is none; in the system's words.
    Refused(Box<str>),
    /// A limit of this process or machine.
    Limit(SystemError),
}

/// The addresses that `master`'s name leads to.
///
/// # Blocks
///
/// As long as `within` allows. The system's own look-up has no bound, so a thread of its own makes
/// it, and is left to itself when it takes longer.
pub(crate) fn resolve(master: &Master, within: Nanos) -> Result<Vec<SocketAddr>, Unresolved> {
    if let Ok(ip) = master.host.parse() {
        return Ok(vec![SocketAddr::new(ip, master.port)]);
    }
    let (tell, told) = channel();
    let (host, port) = (master.host.clone(), master.port);
    let look_up = move || {
        let found = (&*host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let _ = tell.send(found);
    };
    sys::spawn("pontoon-resolve", look_up).map_err(Unresolved::Limit)?;
    match told.recv_timeout(within.as_duration()) {
        Ok(Ok(found)) if found.is_empty() => Err(Unresolved::Refused("the name is known".into())),
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => {
            let limit = sys::system_error("getaddrinfo", &error);
            let is_limit = limit.is_limit();
            Err(if is_limit { Unresolved::Limit(limit) } else { refused(&error) })
        }
        Err(_) => Err(Unresolved::Late),
    }
}

fn refused(error: &io::Error) -> Unresolved {
    Unresolved::Refused(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::{from_here, listen, resolve};
    use crate::{JoinError, Master};
    use pontoon_signal::Nanos;
    use rustix::net::sockopt;
    use std::net::TcpStream;

    fn master(host: &str, port: u16) -> Master {
        Master { host: host.into(), port }
    }

    #[test]
    fn a_given_address_is_the_only_one_listened_on() {
        let address = listen(&master("127.0.0.9", 0)).unwrap().local_addr().unwrap();
        assert_eq!(address.ip().to_string(), "127.0.0.9");
        let address = listen(&master("localhost", 0)).unwrap().local_addr().unwrap();
        assert!(address.ip().is_loopback());
    }

    #[test]
    fn a_name_or_an_address_of_another_machine_is_listened_for_on_all() {
        for host in ["some-name.invalid", "192.0.2.7"] {
            let address = listen(&master(host, 0)).unwrap().local_addr().unwrap();
            assert!(address.ip().is_unspecified(), "{host}: {address}");
            assert!(from_here(address).ip().is_loopback());
        }
    }

    #[test]
    fn all_addresses_are_those_of_both_versions() {
        let listener = listen(&master("some-name.invalid", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        if listener.local_addr().unwrap().is_ipv6() {
            assert!(!sockopt::ipv6_v6only(&listener).unwrap());
        }
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn a_port_in_use_is_told_with_what_to_do() {
        let listener = listen(&master("127.0.0.9", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let error = listen(&master("127.0.0.9", address.port())).unwrap_err();
        assert_eq!(error, JoinError::PortInUse { address });
        let text = error.to_string();
        assert!(text.contains("MASTER_PORT") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn names_and_addresses_are_found() {
        let within = Nanos(10_000_000_000);
        assert_eq!(resolve(&master("127.0.0.9", 7), within).unwrap()[0].to_string(), "127.0.0.9:7");
        assert_eq!(resolve(&master("::1", 7), within).unwrap()[0].to_string(), "[::1]:7");
        assert!(resolve(&master("localhost", 7), within).unwrap()[0].ip().is_loopback());
        assert!(resolve(&master("no-such-name.invalid", 7), within).is_err());
    }
}
