//! How a rank calls rank 0, and both prove that they know the token.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use pontoon_signal::{Nanos, Rank, SystemError};
use rustix::{event::poll, io::Errno};

use crate::{
    Env, JoinError, Process,
    listen::{Unresolved, resolve},
    socket::Socket,
    sys::{now, system_error, timespec},
    token::{Side, random},
    wire::{Failure, Hello, Message, Pace, Reason, Refused, STRANGER_FRAME_MAX, VERSION},
};

/// The longest that one call may take.
const CALL: Nanos = Nanos(2_000_000_000);
/// The pause after the first call that failed; it doubles up to the next.
const PAUSE: Nanos = Nanos(20_000_000);
const PAUSE_MAX: Nanos = Nanos(320_000_000);

/// How one call ended.
enum Failed {
    /// Perhaps rank 0 is not up yet, or had too many strangers at its door.
    Again(Option<SystemError>),
    /// To call again would change nothing.
    For(JoinError),
}

impl From<JoinError> for Failed {
    fn from(error: JoinError) -> Self {
        Self::For(error)
    }
}

/// Calls rank 0 until it answers; `at` is its address where that is known.
///
/// # Blocks
///
/// Until `deadline`.
pub(crate) fn call(
    env: &Env,
    process: &Process,
    at: Option<SocketAddr>,
    deadline: Option<Nanos>,
) -> Result<(Socket, SocketAddr, Pace), JoinError> {
    let began = now();
    let mut pause = PAUSE;
    let (mut tries, mut last, mut refused) = (0, None, None);
    loop {
        let until = deadline.unwrap_or(Nanos(u64::MAX)).min(now().saturating_add(CALL));
        let addresses = match at {
            Some(address) => Ok(vec![address]),
            None => resolve(&env.master, until.since(now())),
        };
        // The name of a machine that is still to start may not be known yet.
        let (addresses, unresolved) = match addresses {
            Ok(addresses) => (addresses, None),
            Err(Unresolved::Limit(error)) => return Err(cannot_call(env, error)),
            Err(unresolved) => (Vec::new(), Some(unresolved)),
        };
        // The last try has little time, and its answer may be late where one before was clear.
        if let Some(Unresolved::Refused(why)) = &unresolved {
            refused = Some(why.clone());
        }
        tries += u32::from(unresolved.is_none());
        match call_each(env, process, &addresses, until) {
            Ok(called) => return Ok(called),
            Err(Failed::For(error)) => return Err(error),
            Err(Failed::Again(_)) if unresolved.is_some() => {}
            Err(Failed::Again(error)) => last = error,
        }
        let left = deadline.map_or(pause, |deadline| deadline.since(now()));
        if left == Nanos(0) {
            let (rank, master, waited) = (env.rank, env.master.clone(), now().since(began));
            return Err(match unresolved {
                Some(_) => JoinError::NoAddress { master, why: refused },
                None => JoinError::NoMaster { rank, master, tries, waited, last },
            });
        }
        thread::sleep(pause.min(left).as_duration());
        pause = Nanos(pause.0 * 2).min(PAUSE_MAX);
    }
}

/// Tells rank 0 that this process cannot be in the job.
///
/// # Blocks
///
/// Until rank 0 has heard it, or `until`.
pub(crate) fn decline(env: &Env, why: &str, until: Nanos) {
    let Ok(process) = Process::current() else { return };
    // Who does not get there has nobody to tell.
    let Ok((mut socket, _, _)) = call(env, &process, None, Some(until)) else { return };
    let said = Message::Failed(Failure::unable(env.rank, why)).frame();
    let mut open = socket.send(said.into()).is_ok();
    // Rank 0 closes once it has heard.
    while open && now() < until {
        let _ = poll(&mut [socket.poll_fd()], Some(&timespec(until.since(now()))));
        open = socket.flush().and_then(|()| socket.discard()).is_ok();
    }
}

/// Calls the addresses of one name in turn. Each has its share of the time, so that one behind which
/// packets are lost leaves some to the next.
fn call_each(
    env: &Env,
    process: &Process,
    addresses: &[SocketAddr],
    until: Nanos,
) -> Result<(Socket, SocketAddr, Pace), Failed> {
    let mut last = None;
    for (at, &address) in addresses.iter().enumerate() {
        let share = until.since(now()).0 / (addresses.len() - at) as u64;
        match call_once(env, process, address, now().saturating_add(Nanos(share))) {
            Ok((socket, pace)) => return Ok((socket, address, pace)),
            Err(Failed::Again(error)) => last = error,
            Err(failed) => return Err(failed),
        }
    }
    Err(Failed::Again(last))
}

fn call_once(
    env: &Env,
    process: &Process,
    address: SocketAddr,
    until: Nanos,
) -> Result<(Socket, Pace), Failed> {
    let failed = |call| move |error: io::Error| failed(env, call, &error);
    let left = until.since(now()).as_duration().max(Duration::from_millis(1));
    let stream = TcpStream::connect_timeout(&address, left).map_err(failed("connect"))?;
    // On one machine, a call to a port that nobody listens on can come out at itself, and would
    // then keep rank 0 from listening there.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(Failed::Again(Some(of_connection(Errno::CONNREFUSED))));
    }
    let mut socket = Socket::new(stream).map_err(failed("setsockopt"))?;
    let pace = shake_hands(env, process, address, &mut socket, until)?;
    socket.give_up_after(pace.lost_after);
    Ok((socket, pace))
}

/// A call that failed. What a limit of this process refuses, it refuses the next time too.
fn failed(env: &Env, call: &'static str, error: &io::Error) -> Failed {
    // A time-out of the standard library's has no code.
    if error.raw_os_error().is_none() {
        return Failed::Again(None);
    }
    let error = system_error(call, error);
    if error.is_limit() { cannot_call(env, error).into() } else { Failed::Again(Some(error)) }
}

fn cannot_call(env: &Env, error: SystemError) -> JoinError {
    JoinError::CannotCall { rank: env.rank, master: env.master.clone(), error }
}

fn of_connection(errno: Errno) -> SystemError {
    SystemError { call: "connect", code: errno.raw_os_error() }
}

fn shake_hands(
    env: &Env,
    process: &Process,
    address: SocketAddr,
    socket: &mut Socket,
    until: Nanos,
) -> Result<Pace, Failed> {
    let closed = |_| Failed::Again(Some(of_connection(Errno::CONNRESET)));
    let nonce = random().map_err(JoinError::Random)?;
    let (process, job) = (process.clone(), env.job.clone());
    let (rank, world, epoch) = (env.rank, env.world, env.epoch);
    let hello = Message::Hello(Hello { rank, world, epoch, nonce, process, job }).frame();
    let said = hello[4..].to_vec();
    socket.send(hello.into()).map_err(closed)?;
    let challenge = match answer(socket, address, until)? {
        Message::Challenge(nonce) => nonce,
        other => return Err(refusal(env, address, other).into()),
    };
    let proof = env.token.prove(Side::Rank, &said, &challenge);
    socket.send(Message::Proof(proof).frame().into()).map_err(closed)?;
    match answer(socket, address, until)? {
        Message::Welcome { proof, pace } => {
            if env.token.verifies(&proof, Side::Store, &said, &challenge) {
                Ok(pace)
            } else {
                Err(JoinError::Impostor { address }.into())
            }
        }
        other => Err(refusal(env, address, other).into()),
    }
}

/// The next message of rank 0, or of who takes its place.
fn answer(socket: &mut Socket, address: SocketAddr, until: Nanos) -> Result<Message, Failed> {
    let not_pontoon = |_| Failed::For(JoinError::NotPontoon { address });
    let mut open = true;
    loop {
        if let Some(frame) = socket.next_frame(STRANGER_FRAME_MAX).map_err(not_pontoon)? {
            return Message::decode(frame).map_err(not_pontoon);
        }
        if !open {
            return Err(Failed::Again(Some(of_connection(Errno::CONNRESET))));
        }
        let left = until.since(now());
        if left == Nanos(0) {
            return Err(Failed::Again(None));
        }
        let mut fds = [socket.poll_fd()];
        let _ = poll(&mut fds, Some(&timespec(left)));
        open = socket.flush().and_then(|()| socket.receive()).is_ok();
    }
}

/// What a message means that sends this rank away.
pub(crate) fn refusal(env: &Env, address: SocketAddr, message: Message) -> JoinError {
    let Env { rank, world, epoch, .. } = *env;
    match message {
        Message::Failed(failure) => failure_error(env.world, failure),
        Message::Refused(Refused { version, reason }) => match reason {
            Reason::Version => JoinError::Version { ours: VERSION, theirs: version },
            Reason::Token => JoinError::Token { rank, address },
            Reason::Job { ours } => JoinError::Job { ours: env.job.clone(), theirs: ours },
            Reason::World { ours } => JoinError::World { rank, theirs: world, rank_0: ours },
            Reason::Taken { by, epoch } => match Process::current() {
                Ok(ours) => JoinError::Taken { rank, ours, by, epoch },
                Err(_) => JoinError::Taken { rank, ours: by.clone(), by, epoch },
            },
            Reason::Stale { epoch: last } => JoinError::Stale { rank, ours: epoch, last },
            Reason::Closed => JoinError::Closed { rank },
        },
        _ => JoinError::NotPontoon { address },
    }
}

pub(crate) fn failure_error(world: u32, failure: Failure) -> JoinError {
    match failure {
        Failure::Absent { ranks, count, waited } => {
            JoinError::Absent { ranks, count, world, waited }
        }
        Failure::World { rank, theirs, ours } => JoinError::World { rank, theirs, rank_0: ours },
        Failure::Unable { rank, why } => JoinError::Unable { rank, why },
    }
}

/// Rank 0.
pub(crate) const MASTER: Rank = Rank(0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hub::{Hub, Terms},
        server::Server,
    };
    use pontoon_signal::Rank;
    use std::net::TcpListener;

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [&silent, &listener].map(|it| it.local_addr().unwrap());
        let mut env = Env::alone().unwrap();
        (env.rank, env.world) = (Rank(1), 2);
        let (job, token) = (env.job.clone(), env.token.clone());
        let pace = Pace::new(Duration::from_millis(100), Duration::from_secs(30));
        let terms = Terms { job, world: 2, token, pace, rejoin: false };
        let _server = Server::start(listener, Hub::new(terms, now(), None), pace).unwrap();
        let process = Process::current().unwrap();
        // As often as a caller would within its bound.
        let mut calls = (0..10).map(|_| {
            let until = now().saturating_add(CALL);
            call_each(&env, &process, &addresses, until)
        });
        let called = calls.find_map(Result::ok).expect("rank 0 answers at the second");
        assert_eq!(called.1, addresses[1]);
    }
}
