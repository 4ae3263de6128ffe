//! Windows whose releases end in something that other ranks wait for, and values that are written at home, over each link.

mod common;

use common::{bound, ranks, room};
use pontoon::{
    Rank, World,
    hal::{conformance::part, link::RemoteSignal},
    signal::{Seq, Waiter, fence_system, shim::Ordering::Relaxed},
    smc::{Extent, Faults, Mapped, Pool, Settings, SmcError, on_this_thread},
    ucx::Library,
    world::{Options, Transport},
};

const PAGE: usize = 4096;
const PAGES: usize = 32;
const BYTES: usize = PAGES * PAGE;
/// A word of the last page, which is no other's.
const FLAG: usize = BYTES - 8;
const ROUNDS: u64 = 40;
const HOME: Rank = Rank(0);
const WRITER: Rank = Rank(1);
const READER: Rank = Rank(2);

#[test]
fn who_is_told_has_all_over_shm() {
    told("told-shm", room(), Faults::InThread);
}

#[test]
fn who_is_told_has_all_over_ucx() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    told("told-ucx", room().with_transport(Transport::Ucx), Faults::Auto);
}

/// A rank stores to all pages, and tells home by a flag there and another rank by a signal: both have it all then.
fn told(name: &str, options: Options, faults: Faults) {
    ranks(
        name,
        3,
        |_| options,
        |world| {
            match world.rank() {
                HOME => home(&world),
                WRITER => writer(&world, faults),
                _ => reader(&world, faults),
            }
            world.barrier("end", bound()).unwrap();
            world.leave(bound()).unwrap();
        },
    );
}

fn window(world: &World, faults: Faults) -> Mapped {
    let mut settings = Settings::for_pages(128);
    // A loaded machine is no dead home.
    settings.deadline = std::time::Duration::from_secs(20);
    let pool = Pool::new(settings).unwrap();
    let home = world.home(&pool, HOME, "memory", bound()).unwrap();
    let mut extents = vec![Extent::new(0..BYTES, home, 0)];
    if world.rank() == WRITER {
        let other = world.home(&pool, READER, "other", bound()).unwrap();
        extents.push(Extent::new(BYTES..BYTES + PAGE, other, 0).uncached());
    }
    Mapped::open(&pool, extents, faults).unwrap()
}

/// A counter that a peer grows here, and how far it has to be after so many times.
struct Heard {
    peer: Rank,
    waiter: Waiter,
    next: Seq,
}

impl Heard {
    fn of(world: &World, peer: Rank) -> Self {
        let slot = world.incoming(peer, 0).unwrap();
        let next = slot.value();
        Self { peer, waiter: slot.into_uncounted_waiter(), next }
    }

    fn once_more(&mut self, world: &World) {
        self.next = self.next + 1;
        let observed = world.way(self.peer).unwrap();
        let observed = observed.wait(&self.waiter, self.next, bound(), "told");
        let _ = observed.unwrap().acq_fence();
    }
}

fn tell(world: &World, signal: &mut RemoteSignal) {
    let order = pontoon::hal::link::Order::Weak;
    let _ = world.way(signal.peer()).unwrap().tell(signal, 1, order).unwrap();
}

fn home(world: &World) {
    let export = world.export("memory", BYTES, bound()).unwrap();
    let mut answer = world.way(WRITER).unwrap().signal(0).unwrap();
    world.barrier("there", bound()).unwrap();
    let word = |at: usize| {
        let mut bytes = [0; 8];
        assert!(export.read(at, &mut bytes));
        u64::from_ne_bytes(bytes)
    };
    for round in 1..=ROUNDS {
        // As a kernel does that runs here: it polls a word of the memory, which nobody signals.
        let started = std::time::Instant::now();
        while word(FLAG) < round {
            assert!(started.elapsed() < std::time::Duration::from_secs(30), "round {round}");
            std::thread::yield_now();
        }
        fence_system();
        for page in 0..PAGES {
            assert_eq!(word(page * PAGE + 8 * page), round, "page {page}");
        }
        tell(world, &mut answer);
    }
    world.barrier("values", bound()).unwrap();
    world.barrier("written", bound()).unwrap();
    let mut row = vec![0; 40_000];
    assert!(export.read(PAGE + 4, &mut row));
    for (at, bytes) in row.chunks(4).enumerate() {
        assert_eq!(f32::from_ne_bytes(bytes.try_into().unwrap()), at as f32);
    }
    assert_eq!(word(20 * PAGE), 2 * 1000);
}

fn writer(world: &World, faults: Faults) {
    let mut answers = [Heard::of(world, HOME), Heard::of(world, READER)];
    world.barrier("there", bound()).unwrap();
    let window = window(world, faults);
    let _stack = on_this_thread().unwrap();
    let way = world.way(READER).unwrap();
    let mut signal = way.signal(0).unwrap();
    let refused = window.publish(0..BYTES + PAGE, FLAG, 1, bound()).unwrap_err();
    assert!(matches!(refused, SmcError::Unable { home: HOME, .. }), "of two homes: {refused}");
    for round in 1..=ROUNDS {
        for page in 0..PAGES {
            window.word(page * PAGE + 8 * page).unwrap().store(round, Relaxed);
        }
        assert_eq!(window.publish(0..BYTES, FLAG, 1, bound()), Ok(round - 1));
        answers[0].once_more(world);
        for page in 0..PAGES {
            window.word(page * PAGE + 2048).unwrap().store(round, Relaxed);
        }
        let released =
            window.release_signal(0..BYTES, &**way.link(), &mut signal, 1, bound()).unwrap();
        assert_eq!(released.pages, PAGES as u64);
        answers[1].once_more(world);
    }
    world.barrier("values", bound()).unwrap();
    values(&window);
    // A row that is one write, or one for each 64 KiB.
    let row = window.slice::<f32>(PAGE + 4, 10_000).unwrap();
    let all: Vec<f32> = (0..10_000).map(|at| at as f32).collect();
    row.write(0, &all[..9000], bound()).unwrap();
    (9000..10_000).for_each(|at| row.post(at, &all[at..=at]).unwrap());
    row.drain(bound()).unwrap();
    let mut found = vec![0.0; 10_000];
    row.read_fresh(0, &mut found, bound()).unwrap();
    assert_eq!(found, all);
    world.barrier("written", bound()).unwrap();
}

fn reader(world: &World, faults: Faults) {
    let _other = world.export("other", PAGE, bound()).unwrap();
    // Before anybody tells it anything.
    let mut told = Heard::of(world, WRITER);
    world.barrier("there", bound()).unwrap();
    let window = window(world, faults);
    let _stack = on_this_thread().unwrap();
    let mut answer = world.way(WRITER).unwrap().signal(0).unwrap();
    for round in 1..=ROUNDS {
        told.once_more(world);
        window.acquire(0..BYTES, bound()).unwrap();
        for page in 0..PAGES {
            let word = |at: usize| window.word(page * PAGE + at).unwrap().load(Relaxed);
            assert_eq!((word(8 * page), word(2048)), (round, round), "page {page}");
        }
        tell(world, &mut answer);
    }
    world.barrier("values", bound()).unwrap();
    values(&window);
    world.barrier("written", bound()).unwrap();
}

/// Two ranks change values at once: none is lost, and what a link cannot change is refused by name.
fn values(window: &Mapped) {
    let (wide, narrow) = (window.cell_of::<i64>(20 * PAGE), window.cell_of::<i32>(21 * PAGE));
    for _ in 0..1000 {
        wide.as_ref().unwrap().fetch_add(1, bound()).unwrap();
    }
    match narrow.unwrap().fetch_add(1, bound()) {
        Ok(before) => assert!(before < 2),
        Err(refused) => {
            assert!(matches!(refused, SmcError::Unable { link: "ucx", .. }), "{refused}");
        }
    }
}
