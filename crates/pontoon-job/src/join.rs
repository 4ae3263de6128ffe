//! How a process joins its job, and how the job is kept.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, channel, sync_channel},
    },
    time::Duration,
};

use pontoon_signal::{Bound, Nanos};

use crate::{
    Env, How, Job, JoinError, Membership, Process, Watcher,
    client::{MASTER, call, decline, failure_error},
    control::{Control, Shared, VERDICT},
    hub::{Hub, Terms},
    job::{GRACE, receive},
    listen::{from_here, listen},
    server::Server,
    socket::Socket,
    sys::{now, spawn, system_error},
    wire::{CARD_MAX, Failure, Message, Pace},
};

/// How a job is kept. Rank 0's hold for all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    beat: Duration,
    lost_after: Duration,
    rejoin: bool,
}

impl Default for Options {
    /// A heartbeat every 100 ms, a loss after 1 s of silence; who is gone may not come back.
    fn default() -> Self {
        let (beat, lost_after) = (Duration::from_millis(100), Duration::from_secs(1));
        Self { beat, lost_after, rejoin: false }
    }
}

impl Options {
    /// A heartbeat every `beat`, at least 1 ms.
    pub fn beat_every(self, beat: Duration) -> Self {
        Self { beat, ..self }
    }

    /// A rank is dead when nothing was heard of it for so long; at least two heartbeats.
    pub fn lost_after(self, lost_after: Duration) -> Self {
        Self { lost_after, ..self }
    }

    /// A rank that is gone may come back, started again with a greater epoch.
    pub fn allow_rejoin(self) -> Self {
        Self { rejoin: true, ..self }
    }

    /// Joins the job that `env` names, showing `card` to all others.
    ///
    /// A card has at most 64 KiB, and all of them 32 MiB: in a job of more than 512 ranks each has
    /// its share of that. Rank 0 listens and decides; it is to be told how the job is kept. The job
    /// begins when all ranks are there. A rank that comes back joins the job that runs.
    ///
    /// # Errors
    ///
    /// [`JoinError`]; at every rank that is there the same if ranks are absent.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn join(&self, env: &Env, card: &[u8], bound: Bound) -> Result<Job, JoinError> {
        let pace = Pace::new(self.beat, self.lost_after);
        if pace.beat < Nanos(1_000_000) || pace.lost_after.0 / 2 < pace.beat.0 {
            let Pace { beat, lost_after } = pace;
            return Err(JoinError::Pace { beat, lost_after });
        }
        // Each rank is sent the cards of all.
        let max = CARD_MAX.min(CARDS_MAX / env.world.max(1) as usize);
        if card.len() > max {
            return Err(JoinError::CardTooLong { bytes: card.len(), max });
        }
        let began = now();
        let deadline = bound.deadline().map(|it| began.saturating_add(it.into()));
        let process = Process::current()
            .map_err(|error| JoinError::System(system_error("read /proc/self", &error)))?;
        let server = match env.rank {
            MASTER => {
                let served = listen(&env.master).and_then(|listener| {
                    Ok(Server::start(listener, self.hub(env, pace, deadline), pace)?)
                });
                if let Err(JoinError::System(error)) = &served {
                    self.decline_as(env, &error.to_string(), deadline);
                }
                Some(served?)
            }
            _ => None,
        };
        let at = server.as_ref().map(|server| from_here(server.address()));
        let met = Job::meet(env, process, card, at, (began, deadline));
        let error = match met {
            Ok(mut job) => {
                job.server = server;
                return Ok(job);
            }
            Err(error) => error,
        };
        // The others would wait for this rank, or call where nobody listens any more.
        match (&error, server) {
            (JoinError::World { .. } | JoinError::Unable { .. }, Some(server)) => {
                server.end_by(stragglers(deadline));
            }
            (JoinError::System(error), Some(server)) => {
                server.decline_by(error.to_string(), stragglers(deadline));
            }
            (JoinError::System(error), None) => {
                self.decline_as(env, &error.to_string(), deadline);
            }
            // Who cannot call can leave no word either, before it has given up what it holds.
            _ => {}
        }
        Err(error)
    }

    /// Tells the others that this process, which has not joined, cannot be in the job, so that none
    /// waits for it. Where that is not to be had, they learn it by their bound.
    ///
    /// # Blocks
    ///
    /// Three seconds at most, and not longer than `bound` allows.
    pub fn decline(&self, env: &Env, why: &str, bound: Bound) {
        let deadline = bound.deadline().map(|it| now().saturating_add(it.into()));
        self.decline_as(env, why, deadline);
    }

    fn decline_as(&self, env: &Env, why: &str, deadline: Option<Nanos>) {
        let until = stragglers(deadline);
        if env.world < 2 {
            return;
        }
        if env.rank != MASTER {
            return decline(env, why, until);
        }
        let pace = Pace::new(self.beat, self.lost_after);
        let mut hub = self.hub(env, pace, Some(until));
        hub.decline(why);
        if let Ok(listener) = listen(&env.master) {
            // Without it the others learn nothing, which they bear.
            let _ = Server::serve_here(listener, hub, pace, until);
        }
    }

    fn hub(&self, env: &Env, pace: Pace, deadline: Option<Nanos>) -> Hub {
        let (job, token) = (env.job.clone(), env.token.clone());
        let terms = Terms { job, world: env.world, token, pace, rejoin: self.rejoin };
        Hub::new(terms, now(), deadline)
    }
}

/// Until when rank 0 stays, when the job does not begin, to tell those who are still to come.
fn stragglers(deadline: Option<Nanos>) -> Nanos {
    let until = now().saturating_add(STRAGGLERS);
    deadline.map_or(until, |deadline| deadline.min(until))
}

impl Job {
    /// Calls rank 0 and waits until all are there; a job that has no server yet.
    fn meet(
        env: &Env,
        process: Process,
        card: &[u8],
        at: Option<SocketAddr>,
        (began, deadline): (Nanos, Option<Nanos>),
    ) -> Result<Self, JoinError> {
        let (mut socket, address, pace) = call(env, &process, at, deadline)?;
        let card = Message::Card(card.into()).frame();
        // A connection that is cut already is noticed by the thread that keeps it.
        let _ = socket.send(card.into());
        let (job, begun) = Job::keep(env, process, (socket, address), pace)?;
        job.gathered(env, &begun, began, deadline).map(|()| job)
    }

    fn keep(
        env: &Env,
        process: Process,
        (socket, address): (Socket, SocketAddr),
        pace: Pace,
    ) -> Result<(Self, Receiver<Begun>), JoinError> {
        let membership = Membership::start(env.world)?;
        let watcher = Arc::new(Watcher::start()?);
        let shared = Arc::new(Shared::new(env.rank, env.epoch, process, membership)?);
        let ((begun, told), (done, ended)) = (channel(), sync_channel(0));
        let control = Control {
            shared: Arc::clone(&shared),
            env: env.clone(),
            address,
            socket,
            pace,
            watcher: Arc::clone(&watcher),
            begun: Some(begun),
            heard: now(),
            next_beat: now(),
            woke: now(),
            suspects: Vec::new(),
            verdict: VERDICT,
        };
        let control = spawn("pontoon-control", move || control.run(done))?;
        let (name, done, control) = (env.job.clone(), Mutex::new(ended), Some(control));
        Ok((Self { shared, name, done, control, server: None, _watcher: watcher }, told))
    }

    fn gathered(
        &self,
        env: &Env,
        begun: &Receiver<Begun>,
        began: Nanos,
        deadline: Option<Nanos>,
    ) -> Begun {
        let lost = || JoinError::Lost { how: How::ConnectionClosed };
        match receive(begun, deadline.map(|it| it.since(now()))) {
            Ok(begun) => return begun,
            Err(RecvTimeoutError::Disconnected) => return Err(lost()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Without this rank the job does not begin: rank 0 tells all the same.
        self.shared.leave();
        match receive(begun, Some(GRACE)) {
            // The goodbye crossed the news: rank 0 has it by now, or will.
            Ok(Ok(())) => Err(JoinError::TooLate { waited: now().since(began) }),
            Ok(failed) => failed,
            Err(RecvTimeoutError::Disconnected) => Err(lost()),
            Err(RecvTimeoutError::Timeout) => {
                let (mut ranks, mut count) = self.shared.state().absent.clone();
                if ranks.contains(&env.rank) {
                    ranks.retain(|rank| *rank != env.rank);
                    count -= 1;
                }
                let waited = now().since(began);
                Err(failure_error(env.world, Failure::Absent { ranks, count, waited }))
            }
        }
    }
}

/// The most bytes that all cards have together; half of what a rank may have unread.
const CARDS_MAX: usize = 32 << 20;

/// Whether the job began.
type Begun = Result<(), JoinError>;

/// How long rank 0 stays, when the ranks disagree or one cannot come, to tell those who are still to
/// come; and how long a rank that cannot come tries to say so.
const STRAGGLERS: Nanos = Nanos(3_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ending, Member, StoreError, wire::FRAME_MAX};
    use pontoon_signal::Rank;
    use rustix::event::poll;
    use std::net::{TcpListener, TcpStream};

    const WATCHDOG: Nanos = Nanos(30_000_000_000);

    /// Rank 1 of two, and the connection by which the test plays rank 0.
    fn keep() -> (Env, Job, Receiver<Begun>, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let rank_0 = Socket::new(listener.accept().unwrap().0).unwrap();
        let mut env = Env::alone().unwrap();
        (env.rank, env.world) = (Rank(1), 2);
        let pace = Pace::new(Duration::from_secs(1), Duration::from_secs(30));
        let to = (Socket::new(stream).unwrap(), address);
        let (job, begun) = Job::keep(&env, Process::current().unwrap(), to, pace).unwrap();
        (env, job, begun, rank_0)
    }

    fn begin(rank_0: &mut Socket) {
        for rank in [0, 1].map(Rank) {
            let member = Member { rank, epoch: 0, process: Process::current().unwrap() };
            let member = Message::Member { member, card: Box::default() };
            rank_0.send(member.frame().into()).unwrap();
        }
        rank_0.send(Message::Start.frame().into()).unwrap();
    }

    /// Takes what comes until rank 1 leaves.
    fn hear_leave(rank_0: &mut Socket) {
        let until = now().saturating_add(WATCHDOG);
        while now() < until {
            match rank_0.next_frame(FRAME_MAX).unwrap().map(Message::decode) {
                Some(Ok(Message::Leave)) => return,
                Some(_) => {}
                None => {
                    let _ = poll(&mut [rank_0.poll_fd()], Some(&crate::sys::timespec(GRACE)));
                    rank_0.receive().unwrap();
                }
            }
        }
        panic!("it does not leave");
    }

    #[test]
    fn a_job_that_begins_when_this_rank_has_left_is_not_joined() {
        let (env, job, begun, mut rank_0) = keep();
        let (began, job) = (now(), &job);
        let joined = std::thread::scope(|scope| {
            let joined = scope.spawn(move || job.gathered(&env, &begun, began, Some(began)));
            hear_leave(&mut rank_0);
            begin(&mut rank_0);
            joined.join().unwrap()
        });
        match joined.unwrap_err() {
            error @ JoinError::TooLate { .. } => {
                assert!(error.to_string().contains("give it a longer bound"), "{error}");
            }
            // The start came after the grace.
            error => assert!(matches!(error, JoinError::Absent { .. }), "{error}"),
        }
    }

    #[test]
    fn who_left_is_told_that_and_nothing_about_rank_0() {
        let (_env, job, begun, mut rank_0) = keep();
        begin(&mut rank_0);
        begun.recv_timeout(WATCHDOG.as_duration()).unwrap().unwrap();
        job.shared.leave();
        hear_leave(&mut rank_0);
        let ended = Message::Ended { rank: Rank(1), epoch: 0, ending: Ending::Left };
        rank_0.send(ended.frame().into()).unwrap();
        let asked = job.barrier(b"b", Bound::within(WATCHDOG.as_duration()));
        assert_eq!(asked, Err(StoreError::Left));
        assert!(!StoreError::Left.to_string().contains("rank 0"));
    }
}
