//! Windows on memory of other ranks of a world, over each link, each rank in a thread of its own.

mod common;

use std::sync::Mutex;

use pontoon::signal::shim::Ordering::Relaxed;

use common::{bound, ranks, room};
use pontoon::{
    Rank, World,
    hal::conformance::part,
    smc::{
        Arrival, Extent, Faults, Feature, Features, MapError, Mapped, Pool, Settings, Window,
        on_this_thread,
    },
    ucx::Library,
    world::{Options, Transport, WorldError},
};

const PAGE: usize = 4096;
const BYTES: usize = 64 * PAGE;

#[test]
fn ranks_share_memory_over_shm() {
    shared("smc-shm", room(), Faults::InThread);
    shared("smc-served", room(), Faults::Threads(2));
}

#[test]
fn ranks_share_memory_over_ucx() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    shared("smc-ucx", room().with_transport(Transport::Ucx), Faults::Auto);
}

/// Rank 0 has memory; two others write words of their own in all pages, and in the end all find all.
fn shared(name: &str, options: Options, faults: Faults) {
    let found = ranks(
        name,
        3,
        |_| options,
        |world| {
            let me = world.rank().0 as usize;
            let sums = if me == 0 { home(&world) } else { client(&world, me, faults) };
            world.barrier("end", bound()).unwrap();
            world.leave(bound()).unwrap();
            sums
        },
    );
    let all: u64 = (0..64).map(|page| page * 1000 + 1 + page * 1000 + 2).sum();
    assert_eq!(found, [all, all, all]);
}

fn home(world: &World) -> u64 {
    let export = world.export("memory", BYTES, bound()).unwrap();
    assert!(export.write(24, &7_u64.to_ne_bytes()));
    for stage in ["written", "released", "read", "fresh"] {
        world.barrier(stage, bound()).unwrap();
    }
    let word = |at: usize| {
        let mut bytes = [0; 8];
        assert!(export.read(at, &mut bytes));
        u64::from_ne_bytes(bytes)
    };
    (0..64).map(|page| word(page * PAGE + 8) + word(page * PAGE + 16)).sum()
}

fn client(world: &World, me: usize, faults: Faults) -> u64 {
    world.barrier("written", bound()).unwrap();
    let mut settings = Settings::for_pages(128);
    // A loaded machine is no dead home.
    settings.deadline = std::time::Duration::from_secs(20);
    let pool = Pool::new(settings).unwrap();
    let home = world.home(&pool, Rank(0), "memory", bound()).unwrap();
    let extent = Extent::new(0..BYTES, home, 0);
    let window = Mapped::open(&pool, vec![extent], faults).unwrap();
    let _stack = on_this_thread().unwrap();
    let word = |at: usize| window.word(at).unwrap();
    assert_eq!(word(24).load(Relaxed), 7);
    for page in 0..64 {
        word(page * PAGE + 8 * me).store((page * 1000 + me) as u64, Relaxed);
    }
    window.release(0..BYTES, bound()).unwrap();
    world.barrier("released", bound()).unwrap();
    window.acquire(0..BYTES, bound()).unwrap();
    let sum = (0..64)
        .map(|page| word(page * PAGE + 8).load(Relaxed) + word(page * PAGE + 16).load(Relaxed))
        .sum();
    let cell = window.cell(BYTES - 8).unwrap();
    cell.fetch_add(1, bound()).unwrap();
    let home = world.home(&pool, Rank(0), "memory", bound()).unwrap();
    let other = Mapped::open(&pool, vec![Extent::new(0..BYTES, home, 0)], faults).unwrap();
    let handle = Window::clone(&other);
    drop(other);
    assert_eq!(handle.word(24).unwrap().load(Relaxed), 7, "its pages come as long as it is there");
    world.barrier("read", bound()).unwrap();
    assert_eq!(cell.load_fresh(bound()), Ok(2));
    world.barrier("fresh", bound()).unwrap();
    assert_eq!(pool.registrations(), 1);
    sum
}

#[test]
#[cfg(target_arch = "x86_64")]
fn raw_stores_are_at_home_over_shm() {
    written_through("smc-through", room(), Faults::InThread);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn raw_stores_are_at_home_over_ucx() {
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    written_through("smc-through-ucx", room().with_transport(Transport::Ucx), Faults::Auto);
}

/// Two ranks store to words of their own in all pages of rank 0, and count together: it has all without a release.
#[cfg(target_arch = "x86_64")]
fn written_through(name: &str, options: Options, faults: Faults) {
    let found = ranks(
        name,
        3,
        |_| options,
        |world| {
            let me = world.rank().0 as usize;
            let found = if me == 0 { found_at_home(&world) } else { stored(&world, me, faults) };
            world.barrier("end", bound()).unwrap();
            world.leave(bound()).unwrap();
            found
        },
    );
    let all: u64 = (0..64).map(|page| page * 1000 + 1 + page * 1000 + 2).sum();
    assert_eq!(found, [(all, 128), (0, 0), (0, 0)]);
}

#[cfg(target_arch = "x86_64")]
fn found_at_home(world: &World) -> (u64, u64) {
    let export = world.export("memory", BYTES, bound()).unwrap();
    world.barrier("there", bound()).unwrap();
    world.barrier("stored", bound()).unwrap();
    let word = |at: usize| {
        let mut bytes = [0; 8];
        assert!(export.read(at, &mut bytes));
        u64::from_ne_bytes(bytes)
    };
    ((0..64).map(|page| word(page * PAGE + 8) + word(page * PAGE + 16)).sum(), word(0))
}

#[cfg(target_arch = "x86_64")]
fn stored(world: &World, me: usize, faults: Faults) -> (u64, u64) {
    world.barrier("there", bound()).unwrap();
    let mut settings = Settings::for_pages(128);
    // A loaded machine is no dead home.
    settings.deadline = std::time::Duration::from_secs(20);
    let pool = Pool::new(settings).unwrap();
    let home = world.home(&pool, Rank(0), "memory", bound()).unwrap();
    let window = Mapped::open(&pool, vec![Extent::new(0..BYTES, home, 0)], faults).unwrap();
    let _stack = on_this_thread().unwrap();
    let through = window.write_through(0..BYTES, Arrival::AtHome, bound()).unwrap();
    for page in 0..64 {
        window.word(page * PAGE + 8 * me).unwrap().store((page * 1000 + me) as u64, Relaxed);
        window.word(0).unwrap().fetch_add(1, Relaxed);
    }
    through.check().unwrap();
    world.barrier("stored", bound()).unwrap();
    assert_eq!(window.statistics().trapped, 128);
    drop(through);
    (0, 0)
}

#[test]
fn what_is_no_export_is_refused() {
    let errors = ranks(
        "smc-none",
        2,
        |_| room().with_heap(1 << 20),
        |world| {
            let error = if world.rank() == Rank(0) {
                let block = world.segment().allocate(5000).unwrap();
                let _shared = world.share("block", &block, bound()).unwrap();
                let error = world.export("more", 1 << 30, bound()).map(drop).unwrap_err();
                world.barrier("end", bound()).unwrap();
                error
            } else {
                let pool = Pool::new(Settings::for_pages(64)).unwrap();
                let error = world.home(&pool, Rank(0), "block", bound()).map(drop).unwrap_err();
                world.barrier("end", bound()).unwrap();
                error
            };
            world.leave(bound()).unwrap();
            error
        },
    );
    let [WorldError::Heap(_), WorldError::NotExported { peer: Rank(0), .. }] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert!(errors.iter().all(|error| !error.to_string().contains('\n')));
}

/// A server that ends and is started again, and a client whose window is there all the time.
#[test]
fn a_window_outlives_the_world_of_its_home() {
    let _stack = on_this_thread().unwrap();
    let pool = Pool::new(Settings::for_pages(128)).unwrap();
    let window: Mutex<Option<Mapped>> = Mutex::new(None);
    for start in 1..=3_u64 {
        let job = format!("smc-again-{start}");
        let options = |_| room();
        ranks(&job, 2, options, |world| {
            if world.rank() == Rank(0) {
                let export = world.export("memory", BYTES, bound()).unwrap();
                assert!(export.write(0, &start.to_ne_bytes()));
                world.barrier("written", bound()).unwrap();
                world.barrier("released", bound()).unwrap();
                let mut found = [0; 8];
                assert!(export.read(8, &mut found));
                assert_eq!(u64::from_ne_bytes(found), 100 * start);
            } else {
                let _stack = on_this_thread().unwrap();
                world.barrier("written", bound()).unwrap();
                let mut window = window.lock().unwrap();
                if let Some(window) = &*window {
                    world.heal(window, 0, Rank(0), "memory", 0, bound()).unwrap();
                    window.acquire(0..BYTES, bound()).unwrap();
                } else {
                    let home = world.home(&pool, Rank(0), "memory", bound()).unwrap();
                    let extent = Extent::new(0..BYTES, home, 0);
                    *window = Some(Mapped::open(&pool, vec![extent], Faults::InThread).unwrap());
                }
                let window = window.as_ref().unwrap();
                let word = |at: usize| window.word(at).unwrap();
                assert_eq!(word(0).load(Relaxed), start);
                // What was stored when there was nobody who had it.
                assert_eq!(word(8).load(Relaxed), if start == 1 { 0 } else { 100 * start });
                word(8).store(100 * start, Relaxed);
                window.release(0..BYTES, bound()).unwrap();
                world.barrier("released", bound()).unwrap();
            }
            world.leave(bound()).unwrap();
        });
        let window = window.lock().unwrap();
        let window = window.as_ref().unwrap();
        window.word(8).unwrap().store(100 * (start + 1), Relaxed);
        let pattern = window.word(63 * PAGE).unwrap().load(Relaxed);
        assert_ne!(pattern, 0, "its home is gone");
        let gone = window.release(0..BYTES, bound()).unwrap_err();
        assert!(!gone.to_string().contains('\n'), "{gone}");
        assert_eq!(window.unsent(), vec![0..PAGE]);
    }
}

/// What a kernel lacks is told in one line, with what has it and what to do; what can be done without it is.
#[test]
fn a_kernel_that_lacks_something_is_told_or_done_without() {
    let features = Features::probe();
    let has = features.lacking().next().map_or(Ok(()), Err);
    let Some(()) = part::needed("userfaultfd", has) else { return };
    let options = |_| room();
    ranks("smc-older", 2, options, |world| {
        if world.rank() == Rank(0) {
            let export = world.export("memory", BYTES, bound()).unwrap();
            assert!(export.write(0, &7_u64.to_ne_bytes()));
            world.barrier("written", bound()).unwrap();
            world.barrier("read", bound()).unwrap();
            return world.leave(bound()).unwrap();
        }
        world.barrier("written", bound()).unwrap();
        let pool = Pool::new(Settings::for_pages(128)).unwrap();
        let open = |feature, faults| {
            let home = world.home(&pool, Rank(0), "memory", bound()).unwrap();
            let less = features.without(feature);
            Mapped::open_with(&less, &pool, vec![Extent::new(0..BYTES, home, 0)], faults)
        };
        for (feature, faults, part) in [
            (Feature::Missing, Faults::Auto, "CONFIG_USERFAULTFD"),
            (Feature::WriteProtect, Faults::Auto, "Linux 5.7"),
            (Feature::Move, Faults::Auto, "Linux 6.8"),
            (Feature::SigBus, Faults::InThread, "use Service::Served"),
        ] {
            let refused = open(feature, faults).map(drop).unwrap_err();
            let text = refused.to_string();
            assert!(matches!(refused, MapError::Reserve(_)), "{text}");
            assert!(text.contains(part) && !text.contains('\n'), "{feature:?}: {text}");
        }
        for feature in [Feature::SigBus, Feature::PagemapScan, Feature::WriteProtectAsync] {
            let window = open(feature, Faults::Auto).unwrap();
            let _stack = on_this_thread().unwrap();
            assert_eq!(window.word(0).unwrap().load(Relaxed), 7, "{feature:?}");
            window.word(8).unwrap().store(1, Relaxed);
            assert_eq!(window.release(0..BYTES, bound()).unwrap().pages, 1, "{feature:?}");
        }
        world.barrier("read", bound()).unwrap();
        world.leave(bound()).unwrap();
    });
}
