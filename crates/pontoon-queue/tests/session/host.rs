//! Waits of the host.

use std::sync::Arc;

use pontoon_signal::shim::{AtomicU32, Ordering::Relaxed};

use super::*;

#[test]
fn a_wait_that_times_out_names_the_chain_to_its_root() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto();
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let buffer = numbers(&devices[0], 4);
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(300)));
    session.launch(first, "slow", &slow, [buffer.write(..)], []).unwrap();
    let fence = session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
    let short = Patience::within(Duration::from_millis(20));
    let failed = session.wait(&fence, short).unwrap_err().to_string();
    for part in ["device 1 queue b at 0 of 2, waiting", "device 0 queue a at 0 of 1, in slow"] {
        assert!(failed.contains(part), "{failed}");
    }
    let _ = session.wait(&fence, patience()).unwrap();
}

#[test]
fn progress_starts_the_time_anew_up_to_the_cap() {
    let device = device(0);
    let mut session = Session::auto();
    let stream = compute(&mut session, &device, "a");
    let open = Arc::new(AtomicU32::new(0));
    let slow = Kernel::new({
        let open = Arc::clone(&open);
        move |_| {
            while open.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut last = None;
    for _ in 0..20 {
        last = Some(session.launch(stream, "slow", &slow, [], []).unwrap());
    }
    let last = last.unwrap();
    let idle = Patience::within(Duration::from_millis(80));
    // All of it is ahead of the wait, however long the launches took.
    open.store(1, Relaxed);
    let capped = session.wait(&last, idle.at_most(Duration::from_millis(100)));
    assert!(capped.is_err(), "200 ms of work were over in 100");
    let _ = session.wait(&last, idle.at_most(Duration::from_secs(60))).unwrap();
}
