//! Who lets go of a home last.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use common::pair;
use pontoon_hal::link::Remote;
use pontoon_smc::{Pool, Settings};

/// What a link remembers of a region, and who forgets it.
struct Remembered(Arc<Mutex<Option<String>>>);

impl Drop for Remembered {
    fn drop(&mut self) {
        let name = thread::current().name().unwrap_or("?").to_string();
        *self.0.lock().unwrap() = Some(name);
    }
}

/// A handle of a home may go where an access faults, and what goes with the last may take a lock there, or free memory.
#[test]
fn the_keeper_lets_go_of_a_home_last() {
    let (pair, forgotten) = (pair(4), Arc::default());
    let pool = Pool::new(Settings::for_pages(64)).unwrap();
    let remembered = Remembered(Arc::clone(&forgotten));
    let region = Remote::new(pair.region.peer(), pair.region.bytes(), Arc::new(remembered));
    let home = pool.home(&pair.link, region).unwrap().unwrap();
    let other = home.clone();
    drop(home);
    let started = Instant::now();
    let is_forgotten = || forgotten.lock().unwrap().clone();
    while started.elapsed() < Duration::from_millis(200) {
        assert_eq!(is_forgotten(), None, "there is another handle of it");
        thread::yield_now();
    }
    drop(other);
    while is_forgotten().is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "nobody lets go of it");
        thread::yield_now();
    }
    assert_eq!(is_forgotten().as_deref(), Some("pontoon-keeper"));
}
