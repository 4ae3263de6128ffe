//! The client: a window that is there all the time, and one world after another.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pontoon::{
    Bound, Rank, World,
    signal::shim::Ordering::Relaxed,
    smc::{Extent, Faults, Mapped, Pool, Settings, on_this_thread},
    world::{Options, Transport},
};

use crate::{
    common::WATCHDOG,
    ledger::Ledger,
    server::{BYTES, OWN, PAGES, Server, WORDS, base},
    workers::PATTERN,
};

/// How long an access waits for its page.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);
/// Far beyond what it takes until all is well again.
const HEALED: Duration = Duration::from_secs(60);
/// How long a home is given that answers again, before it is joined anew.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a window came to have what its home has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Healed {
    /// The home answered again.
    ByItself,
    /// The home was started again, and joined.
    Joined,
    /// The home was taken for dead, and so killed, started again, and joined.
    StartedAgain,
}

pub(crate) struct Client {
    window: Arc<Mapped>,
    world: Option<World>,
    transport: Transport,
}

fn round() -> Bound {
    Bound::within(Duration::from_secs(10))
}

impl Client {
    pub(crate) fn new(server: &Server<'_>, transport: Transport) -> Self {
        let world = join(server, transport);
        // Less than there is, so that pages come and go.
        let mut settings = Settings::for_pages(PAGES - PAGES / 4);
        settings.deadline = DEADLINE;
        let pool = Pool::new(settings).expect("a pool");
        let home = world.home(&pool, Rank(0), "memory", round()).expect("a home");
        let extent = Extent::new(0..BYTES, home, 0).pattern(PATTERN);
        let window = Mapped::open(&pool, vec![extent], Faults::Auto).expect("a window");
        Self { window: Arc::new(window), world: Some(world), transport }
    }

    pub(crate) fn window(&self) -> Arc<Mapped> {
        Arc::clone(&self.window)
    }

    /// Waits until the memory is the server's again, and joins it anew if it was started again. One that this takes for
    /// dead, or whose world is over, is started again first: then it is known what its memory is. How it came to be.
    pub(crate) fn heal(
        &mut self,
        server: &mut Server<'_>,
        ledger: &Ledger,
        is_new: bool,
    ) -> Healed {
        let _stack = on_this_thread().expect("a stack");
        let began = Instant::now();
        let (mut is_new, mut healed) = (is_new, Healed::ByItself);
        loop {
            let is_dead = self.world.as_ref().is_none_or(|world| !world.deaths().is_empty());
            if is_new || is_dead || healed == Healed::ByItself && began.elapsed() > PATIENCE {
                self.world = None;
                if !is_new {
                    server.kill();
                    ledger.starts_again();
                    server.start(self.transport);
                }
                let world = join(server, self.transport);
                match world.heal(&self.window, 0, Rank(0), "memory", 0, round()) {
                    Ok(()) => {
                        ledger.is_at(server.starts());
                        healed = if is_new { Healed::Joined } else { Healed::StartedAgain };
                        (self.world, is_new) = (Some(world), false);
                    }
                    Err(error) => println!("a world that was no good: {error}"),
                }
            }
            let last = match self.is_the_servers(server, ledger) {
                Ok(()) => return healed,
                Err(last) => last,
            };
            assert!(began.elapsed() < HEALED, "it does not heal: {last}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Releases all, and says that it is done. What the window has then.
    pub(crate) fn end(mut self) -> Vec<u8> {
        let _stack = on_this_thread().expect("a stack");
        self.window.release(0..BYTES, round()).expect("released");
        self.window.acquire(0..BYTES, round()).expect("acquired");
        assert_eq!(self.window.unsent(), [], "all is home");
        let mut bytes = vec![0; BYTES];
        self.window.get(0, &mut bytes).expect("mapped");
        self.window.check(0..BYTES).expect("no pattern");
        let world = self.world.take().expect("joined");
        world.barrier("smc/done", round()).expect("it is there");
        world.leave(round()).expect("left");
        bytes
    }

    /// Whether all is here what the server has, and nothing of what it had before it was started again.
    fn is_the_servers(&self, server: &Server<'_>, ledger: &Ledger) -> Result<(), String> {
        self.window.check(0..BYTES).map_err(|error| error.to_string())?;
        self.window.acquire(0..BYTES, round()).map_err(|error| error.to_string())?;
        for page in 0..PAGES {
            let word = page * WORDS + OWN + page % (WORDS - OWN);
            let found = self.window.word(word * 8).expect("mapped").load(Relaxed);
            if found == PATTERN {
                return Err(format!(
                    "word {word} is the pattern, {:?}",
                    self.window.check(0..BYTES)
                ));
            }
            assert_eq!(found, base(server.starts(), word), "word {word} after an acquire");
        }
        ledger.note_lost(&self.window);
        Ok(())
    }
}

/// Becomes the server's client, once it is there and has no other.
fn join(server: &Server<'_>, transport: Transport) -> World {
    let began = Instant::now();
    loop {
        let options = Options::default()
            .with_slots(1)
            .with_heap(1 << 20)
            .with_transport(transport)
            .with_lost_after(Duration::from_secs(5))
            .with_bound(round());
        let error = match World::open_in(&server.env(), options) {
            Ok(world) => match world.barrier("smc/ready", round()) {
                Ok(()) => return world,
                Err(error) => error,
            },
            Err(error) => error,
        };
        assert!(began.elapsed() < WATCHDOG, "it cannot be joined: {error}");
        thread::sleep(Duration::from_millis(5));
    }
}
