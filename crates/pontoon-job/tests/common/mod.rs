//! What the tests of this crate share: jobs at addresses of their own, and patience.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::{
    ffi::OsString,
    net::TcpListener,
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use pontoon_job::{Env, Job, JoinError, Options};
use pontoon_signal::Bound;

pub(crate) const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
pub(crate) const OTHER_TOKEN: &str =
    "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn patient() -> Bound {
    Bound::within(PATIENCE)
}

/// A job in which nobody is lost because the machine of the test is busy.
pub(crate) fn options() -> Options {
    Options::default().lost_after(PATIENCE)
}

/// Joins with [`options`].
pub(crate) fn join(env: &Env, card: &[u8], bound: Bound) -> Result<Job, JoinError> {
    options().join(env, card, bound)
}

/// Where a job of a test meets. Each has a loopback address of its own, so that no other job, and
/// no port that the system gives out, gets in its way.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: Mutex<u8> = Mutex::new(1);
        let mut next = NEXT.lock().unwrap();
        *next += 1;
        let pid = std::process::id();
        let host = format!("127.{}.{}.{}", 1 + (pid >> 8) % 254, pid % 256, *next);
        let port = TcpListener::bind((&*host, 0)).unwrap().local_addr().unwrap().port();
        Self { host, port }
    }

    /// What tells a process that it is `rank` of `world` here.
    pub(crate) fn vars(&self, rank: u32, world: u32) -> Vec<(&'static str, String)> {
        vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", world.to_string()),
            ("MASTER_ADDR", self.host.clone()),
            ("MASTER_PORT", self.port.to_string()),
            ("PONTOON_JOB", "test".into()),
            ("PONTOON_TOKEN", TOKEN.into()),
        ]
    }

    pub(crate) fn env(&self, rank: u32, world: u32) -> Env {
        self.env_with(rank, world, &[])
    }

    pub(crate) fn env_with(&self, rank: u32, world: u32, change: &[(&str, &str)]) -> Env {
        let vars = self.vars(rank, world);
        let look_up = |name: &str| {
            let changed = change.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
            let value = changed.or_else(|| Some(vars.iter().find(|it| it.0 == name)?.1.clone()));
            value.map(OsString::from)
        };
        Env::from_lookup(look_up).unwrap().unwrap()
    }

    /// Joins all ranks of a job, one thread each; by rank.
    pub(crate) fn join_all(&self, world: u32, options: Options) -> Vec<Job> {
        let all = self.try_join_all(world, options, patient());
        all.into_iter().map(|joined| joined.unwrap()).collect()
    }

    pub(crate) fn try_join_all(
        &self,
        world: u32,
        options: Options,
        bound: Bound,
    ) -> Vec<Result<Job, JoinError>> {
        let envs: Vec<Env> = (0..world).map(|rank| self.env(rank, world)).collect();
        each(&envs, |env| options.join(env, &card(env.rank.0), bound))
    }
}

/// The card of a rank in these tests.
pub(crate) fn card(rank: u32) -> Vec<u8> {
    format!("card of {rank}").into_bytes()
}

/// Calls `work` with each item on a thread of its own.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = items.iter().map(|item| scope.spawn(move || work(item))).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

/// Polls `seen` until it gives something; fails with `what` when patience ends.
pub(crate) fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = seen() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Fails the test program if `work` takes longer than a hang would.
pub(crate) fn watchdog<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = work();
        let _ = tell.send(());
        result
    });
    match told.recv_timeout(Duration::from_secs(120)) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        },
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hung for two minutes"),
    }
}
