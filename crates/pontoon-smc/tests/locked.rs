//! Pools and the limit of memory that may be locked.
#![cfg(not(pontoon_loom))]

use std::thread;

use pontoon_hal::Placement;
use pontoon_smc::{Pool, Settings};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, capabilities, set_capabilities},
};

/// What may be locked without the privilege to lock any: less than a pool takes.
const LIMIT: u64 = 64 << 10;

fn may_lock_any() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
}

/// Of this thread alone.
fn give_up_the_privilege() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
}

#[test]
fn a_pool_is_locked_where_that_is_allowed_and_goes_on_where_it_is_not() {
    let settings = Settings::for_pages(64);
    if may_lock_any() {
        let pool = Pool::new(settings.clone()).unwrap();
        assert_eq!(pool.placement(), Some(Placement::Pinned));
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(LIMIT), maximum }).unwrap();
    let refused = thread::spawn(move || {
        give_up_the_privilege();
        let pool = Pool::new(settings).unwrap();
        pool.placement()
    });
    assert_eq!(refused.join().unwrap(), Some(Placement::Host));
    let mut unasked = Settings::for_pages(64);
    unasked.lock = false;
    assert_eq!(Pool::new(unasked).unwrap().placement(), Some(Placement::Host));
}
