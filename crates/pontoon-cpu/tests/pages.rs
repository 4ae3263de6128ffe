//! Regions begin on pages, at one address for all devices, and are touched before any kernel.

mod common;

use std::sync::mpsc;

use common::*;
use pontoon_cpu::Kernel;
use pontoon_hal::{Access, Device, Engine, Memory, Queue};

/// Page faults of this thread so far that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name is the second field and may hold anything, a closing parenthesis last.
    stat[stat.rfind(')').unwrap()..].split(' ').nth(8).unwrap().parse().unwrap()
}

/// M1: no kernel pays for the first touch of a page.
#[test]
fn a_kernel_meets_no_untouched_page() {
    const PAGES: usize = 4096;
    let device = device(1, 1, 4);
    let page = device.capabilities().page_bytes;
    let region = device.allocate(PAGES * page).unwrap();
    let (sender, receiver) = mpsc::channel();
    let kernel = Kernel::new(move |context| {
        let bytes = context.write::<u8>(0);
        faults();
        let before = faults();
        bytes.iter_mut().step_by(page).for_each(|byte| *byte = 1);
        sender.send(faults() - before).unwrap();
    });
    let mut queue = device.open_queue(Engine::Compute, "touch").unwrap();
    let all = Access::write(&region, 0..region.bytes());
    let done = submit(&mut queue, launch("touch", &kernel, &[all], &[]));
    reached(queue.completions(), done);
    let met = receiver.recv().unwrap();
    println!("{met} page faults over {PAGES} pages");
    assert!(met < PAGES as u64 / 16, "{met} page faults over {PAGES} pages");
}

/// M1, M2, C4: the first byte of a region is a page's, and has one address everywhere and always.
#[test]
fn a_region_begins_on_a_page_and_has_one_address() {
    let devices = [device(1, 1, 4), device(2, 1, 4)];
    let page = devices[0].capabilities().page_bytes;
    for bytes in [1, 7, page - 1, page, page + 1, 10 * page] {
        let region = devices[0].allocate(bytes).unwrap();
        let (sender, receiver) = mpsc::channel();
        let kernel = Kernel::new(move |context| {
            sender.send(context.read::<u8>(0).as_ptr().addr()).unwrap();
        });
        for device in devices.iter().cycle().take(4) {
            let mut queue = device.open_queue(Engine::Compute, "look").unwrap();
            let first = Access::read(&region, 0..1);
            let done = submit(&mut queue, launch("look", &kernel, &[first], &[]));
            reached(queue.completions(), done);
        }
        let found: Vec<_> = (0..4).map(|_| receiver.recv().unwrap()).collect();
        assert!(found.iter().all(|address| *address == found[0]), "{found:?}");
        assert_eq!(found[0] % page, 0, "a region of {bytes} bytes begins at {:#x}", found[0]);
    }
}
