//! A device with nothing to do leaves the cores alone.

mod common;

use std::{thread, time::Duration};

use common::*;
use pontoon_cpu::Kernel;
use pontoon_hal::{Device, Engine, Queue};

/// Processor time of this process, in ticks of a hundredth of a second.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name is the second field and may hold anything, a closing parenthesis last.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    [12, 13].iter().map(|&field| fields[field].parse::<u64>().unwrap()).sum()
}

/// One test alone: it is the process that is measured.
#[test]
fn idle_devices_use_next_to_no_processor_time() {
    let devices = [0, 1, 2, 3].map(|rank| device(rank, 2, 16));
    let (_publisher, slot) = gate(50);
    let mut queues = Vec::new();
    for device in &devices {
        // Some have run, some never, and one each is held by a wait for long.
        for index in 0..4 {
            let mut queue = device.open_queue(Engine::Compute, "idle").unwrap();
            if index > 0 {
                let done = submit(&mut queue, launch("once", &Kernel::new(|_| {}), &[], &[]));
                reached(queue.completions(), done);
            }
            if index > 2 {
                submit(&mut queue, wait(&slot, slot.value() + 1));
            }
            queues.push(queue);
        }
    }
    let before = ticks();
    // What is measured is a time without anything to do.
    let time = Duration::from_secs(2);
    thread::sleep(time);
    let used = ticks() - before;
    let percent = used as f64 / time.as_secs_f64();
    println!("4 idle devices (12 threads, 16 queues) use {percent:.1} % of a core");
    assert!(percent < 20.0, "4 idle devices use {percent:.1} % of a core");
    drop(queues);
}
