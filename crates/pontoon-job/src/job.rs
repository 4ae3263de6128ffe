//! What can be done in a job.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::JoinHandle,
};

use pontoon_signal::{Bound, Nanos, Rank};

use crate::{
    Env, JoinError, Membership, Options, Process, StoreError, Strangers, Watcher, What,
    control::{Over, Shared},
    server::Server,
    sys::{lock, now},
    wire::{Answer, KEY_MAX, Message, Question, VALUE_MAX},
};

/// A place in a job that runs.
///
/// Dropping it without having [left](Self::leave) is a death to the others, as is the end of the
/// process. Rank 0 keeps the store; when it is gone, questions to it end in
/// [`StoreError::StoreEnded`].
///
/// ```
/// use pontoon_job::{Env, Job};
/// use pontoon_signal::Bound;
///
/// let env = Env::read()?.map_or_else(Env::alone, Ok)?;
/// let job = Job::join(&env, b"what the others should know of me", Bound::default())?;
/// job.membership().on_change(|change| eprintln!("{change}"));
/// job.set(b"greeting", b"hello", Bound::default())?;
/// assert_eq!(job.get(b"greeting", Bound::default())?, b"hello");
/// job.barrier(b"done", Bound::default())?;
/// job.leave(Bound::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Job {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: Box<str>,
    pub(crate) done: Mutex<Receiver<()>>,
    pub(crate) control: Option<JoinHandle<()>>,
    pub(crate) server: Option<Server>,
    /// Kept here too: it sees ends of this machine's processes after rank 0 is gone.
    pub(crate) _watcher: Arc<Watcher>,
}

impl Job {
    /// Joins with the default [`Options`]; see [`Options::join`].
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn join(env: &Env, card: &[u8], bound: Bound) -> Result<Self, JoinError> {
        Options::default().join(env, card, bound)
    }

    /// Which rank this process is.
    pub fn rank(&self) -> Rank {
        self.shared.rank
    }

    /// How many ranks the job has, there or not.
    pub fn world(&self) -> u32 {
        self.shared.membership.world()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who is still there.
    pub fn membership(&self) -> &Membership {
        &self.shared.membership
    }

    /// The card that `rank` showed when it last joined; `None` if the job has no such rank.
    pub fn card(&self, rank: Rank) -> Option<Arc<[u8]>> {
        let state = self.shared.state();
        let (_, card) = state.members.get(rank.0 as usize)?.as_ref()?;
        Some(Arc::clone(card))
    }

    /// Which process `rank` is, or was last; `None` if the job has no such rank.
    pub fn process(&self, rank: Rank) -> Option<Process> {
        let state = self.shared.state();
        let (member, _) = state.members.get(rank.0 as usize)?.as_ref()?;
        Some(member.process.clone())
    }

    /// Where rank 0 listens; `None` elsewhere.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// How many strangers rank 0 sent away so far; `None` elsewhere.
    pub fn strangers(&self) -> Option<Strangers> {
        self.server.as_ref().map(Server::strangers)
    }

    /// Puts `value` under `key`, in place of what was there.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn set(&self, key: &[u8], value: &[u8], bound: Bound) -> Result<(), StoreError> {
        let question =
            Question::Set { key: fitting(key, KEY_MAX)?, value: fitting(value, VALUE_MAX)? };
        self.ask(question, What::Answer, bound).map(drop)
    }

    /// The value of `key`, once it is set.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; that it is not set is [`StoreError::TimedOut`].
    ///
    /// # Blocks
    ///
    /// Until the key is set, as long as `bound` allows.
    pub fn get(&self, key: &[u8], bound: Bound) -> Result<Vec<u8>, StoreError> {
        let question = Question::Get { key: fitting(key, KEY_MAX)? };
        match self.ask(question, What::Key(key.into()), bound)? {
            Answer::Value(value) => Ok(value.into()),
            _ => Err(StoreError::Garbled),
        }
    }

    /// Adds to the number under `key`, which begins at 0 and is kept as 8 bytes, little-endian. The
    /// sum, which wraps.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn add(&self, key: &[u8], delta: i64, bound: Bound) -> Result<i64, StoreError> {
        let question = Question::Add { key: fitting(key, KEY_MAX)?, delta };
        match self.ask(question, What::Answer, bound)? {
            Answer::Sum(sum) => Ok(sum),
            _ => Err(StoreError::Garbled),
        }
    }

    /// Waits until all ranks have come to the barrier `name`. It can be used again at once.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; [`Ended`](StoreError::Ended) as soon as a rank is gone.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn barrier(&self, name: &[u8], bound: Bound) -> Result<(), StoreError> {
        self.all_gather(name, &[], bound).map(drop)
    }

    /// Gives `part` to all ranks, and takes theirs: by rank.
    ///
    /// # Errors
    ///
    /// As for [`barrier`](Self::barrier).
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn all_gather(
        &self,
        name: &[u8],
        part: &[u8],
        bound: Bound,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let ranks: Vec<Rank> = (0..self.world()).map(Rank).collect();
        self.gather_among(name, &ranks, part, bound)
    }

    /// As [`all_gather`](Self::all_gather), among `ranks` only: each once, ascending, this one with
    /// them. All must name the same.
    ///
    /// # Errors
    ///
    /// As for [`barrier`](Self::barrier).
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn gather_among(
        &self,
        name: &[u8],
        ranks: &[Rank],
        part: &[u8],
        bound: Bound,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        if ranks.len() > self.world() as usize {
            return Err(StoreError::NoGroup);
        }
        let question = Question::Gather {
            name: fitting(name, KEY_MAX)?,
            ranks: ranks.into(),
            part: fitting(part, VALUE_MAX)?,
        };
        match self.ask(question, What::Gathering(name.into()), bound)? {
            Answer::Parts(parts) => Ok(parts.to_vec()),
            _ => Err(StoreError::Garbled),
        }
    }

    fn ask(&self, question: Question, what: What, bound: Bound) -> Result<Answer, StoreError> {
        let began = now();
        let (to, answer) = sync_channel(1);
        let request = self.shared.open(to).map_err(|over| self.no_answer(over))?;
        self.shared.post(Message::Ask { request, question });
        let mut given = receive(&answer, bound.deadline().map(Nanos::from));
        if let Err(RecvTimeoutError::Timeout) = given {
            // Others may have been answered with our part by now. Rank 0 decides which it is, so
            // that a gathering never ends for some and not for others.
            self.shared.post(Message::Ask { request, question: Question::Forget });
            given = receive(&answer, Some(GRACE));
        }
        let timed_out = StoreError::TimedOut { what, waited: now().since(began) };
        let answer = match given {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.shared.close(request);
                return Err(timed_out);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let over = self.shared.state().over;
                return Err(self.no_answer(over.unwrap_or(Over::Left)));
            }
        };
        match answer {
            Answer::Ended { rank, ending } => Err(StoreError::Ended { rank, ending }),
            Answer::Forgotten => Err(timed_out),
            Answer::NoNumber => Err(StoreError::NoNumber),
            Answer::Full => Err(StoreError::Full),
            Answer::TooMany => Err(StoreError::TooMany),
            Answer::NoGroup => Err(StoreError::NoGroup),
            answer => Ok(answer),
        }
    }

    fn no_answer(&self, over: Over) -> StoreError {
        match over {
            Over::Store(ending) => StoreError::StoreEnded { ending },
            Over::Excluded(how) => StoreError::Excluded { how },
            Over::Left => StoreError::Left,
        }
    }

    /// Leaves in good order: to the others this is no death. Rank 0 waits for them to leave first,
    /// as long as `bound` allows: without it they would not hear of each other any more.
    ///
    /// # Errors
    ///
    /// [`StoreError::TimedOut`] if rank 0 does not answer; the connection is closed all the same.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn leave(mut self, bound: Bound) -> Result<(), StoreError> {
        let began = now();
        let left = bound.deadline().map(Nanos::from);
        self.shared.leave();
        if let Err(RecvTimeoutError::Timeout) = receive(&lock(&self.done), left) {
            return Err(StoreError::TimedOut { what: What::Answer, waited: now().since(began) });
        }
        if let Some(server) = self.server.take() {
            server.end_by(left.map_or(Nanos(u64::MAX), |left| began.saturating_add(left)));
        }
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(control) = self.control.take()
            && control.join().is_err()
        {
            tracing::error!(target: "pontoon::job", "the thread that keeps the job panicked");
        }
        self.shared.membership.stop();
    }
}

/// How long after a bound rank 0 may take to say how things stood when it was used up.
pub(crate) const GRACE: Nanos = Nanos(500_000_000);

fn fitting(bytes: &[u8], max: usize) -> Result<Box<[u8]>, StoreError> {
    if bytes.len() > max {
        return Err(StoreError::TooLong { bytes: bytes.len(), max });
    }
    Ok(bytes.into())
}

/// The next of `from`, waiting at most `within`, or as long as it takes.
pub(crate) fn receive<T>(from: &Receiver<T>, within: Option<Nanos>) -> Result<T, RecvTimeoutError> {
    match within {
        Some(within) => from.recv_timeout(within.as_duration()),
        None => from.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}
