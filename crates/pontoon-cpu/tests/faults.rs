//! What fails says who, what and how far, takes down what needed it and nothing else, and hangs
//! nobody.

mod common;

use std::{panic::panic_any, sync::Arc, thread, time::Duration};

use common::*;
use pontoon_cpu::{CpuQueue, Kernel, Region};
use pontoon_hal::{
    Access, Cause, Device, Engine, HostAccessError, Memory, Mode, OpenQueueError, Queue,
    SubmitError, fault_reason,
};
use pontoon_signal::{Bound, Rank, Seq, WaitError};

fn failing() -> Kernel {
    Kernel::new(|context| panic!("out of {} apples", context.argument(0)))
}

#[test]
fn a_panic_names_device_queue_command_position_and_cause() {
    let device = device(7, 1, 4);
    let mut queue = device.open_queue(Engine::Compute, "orchard").unwrap();
    let start = queue.submitted();
    let failed = submit(&mut queue, launch("pick", &failing(), &[], &[12]));
    let fault = fault(&queue, failed);
    assert_eq!(
        fault.to_string(),
        format!(
            "device 7 queue orchard: pick (completion {failed}) failed: the kernel panicked: out \
             of 12 apples"
        )
    );
    assert_eq!(failed, start + 1);
    let again = try_submit(&mut queue, launch("pick", &failing(), &[], &[12])).unwrap_err();
    assert_eq!(again, fault);
}

#[test]
fn a_panic_without_words_is_a_fault_all_the_same() {
    let device = device(7, 1, 4);
    let mut queue = device.open_queue(Engine::Compute, "quiet").unwrap();
    let failed = submit(&mut queue, launch("mute", &Kernel::new(|_| panic_any(7)), &[], &[]));
    assert_eq!(fault(&queue, failed).cause, Cause::Panicked("no message".into()));
}

/// Devices 1 -> 2 -> 3, each queue waiting for the one before.
fn chain(first: &mut CpuQueue, later: &mut [CpuQueue], root: Seq) -> Vec<Seq> {
    let mut before = (first.completions().clone(), root);
    let nothing = Kernel::new(|_| {});
    let mut positions = Vec::new();
    for queue in later {
        submit(queue, wait(&before.0, before.1));
        let done = submit(queue, launch("after", &nothing, &[], &[]));
        positions.push(done);
        before = (queue.completions().clone(), done);
    }
    positions
}

#[test]
fn a_chain_of_devices_learns_the_root_of_a_failure() {
    let devices = [1, 2, 3].map(|rank| device(rank, 1, 8));
    let mut queues = devices.each_ref().map(|d| d.open_queue(Engine::Compute, "chain").unwrap());
    let (_publisher, slot) = gate(50);
    let [first, later @ ..] = &mut queues;
    submit(first, launch("hold", &hold_until(&slot).0, &[], &[0]));
    let root = submit(first, launch("pick", &failing(), &[], &[1]));
    let positions = chain(first, later, root);
    for (queue, position) in later.iter().zip(positions) {
        let fault = fault(queue, position);
        let Cause::Wait(WaitError::Aborted { reason, by, .. }) = fault.cause else {
            panic!("{fault}")
        };
        assert_eq!((reason, by), (fault_reason::PANICKED, Rank(1)));
        assert_eq!(fault.command, "wait");
    }
}

#[test]
fn a_chain_of_devices_learns_who_is_dead() {
    let devices = [1, 2, 3].map(|rank| device(rank, 1, 8));
    let mut queues = devices.each_ref().map(|d| d.open_queue(Engine::Compute, "chain").unwrap());
    let (publisher, slot) = gate(50);
    let [first, later @ ..] = &mut queues;
    let root = submit(first, wait(&slot, publisher.value() + 1));
    let positions = chain(first, later, root);
    devices[0].kill();
    for (queue, position) in later.iter().zip(positions) {
        let fault = fault(queue, position);
        let Cause::Wait(WaitError::PeerDead { rank, .. }) = fault.cause else { panic!("{fault}") };
        assert_eq!(rank, Rank(1));
    }
    assert_eq!(fault(first, root).cause, Cause::DeviceLost);
}

#[test]
fn a_kill_ends_what_runs_what_waits_and_the_host_s_wait() {
    for round in 0..50 {
        let device = device(4, 2, 4);
        let (publisher, slot) = gate(50);
        let mut busy = device.open_queue(Engine::Compute, "busy").unwrap();
        let mut held = device.open_queue(Engine::Compute, "held").unwrap();
        let region = device.allocate(4096).unwrap();
        let (kernel, began) = hold_until(&slot);
        let access = [Access::write(&region, 0..4096)];
        let first = submit(&mut busy, launch("run", &kernel, &access, &[1]));
        let second = submit(&mut busy, launch("next", &kernel, &[], &[1]));
        let waiting = submit(&mut held, wait(&slot, publisher.value() + 1));
        let host = thread::spawn({
            let slot = busy.completions().clone();
            move || ended(&slot, second)
        });
        reached(&began, Seq::new(1));
        if round % 2 == 0 {
            thread::yield_now();
        }
        device.kill();
        let dead = |error| matches!(error, WaitError::PeerDead { rank: Rank(4), .. });
        assert!(dead(host.join().unwrap()));
        assert!(dead(ended(busy.completions(), first)));
        assert!(dead(ended(held.completions(), waiting)));
        let late = device.open_queue(Engine::Compute, "late").unwrap_err();
        assert_eq!(late, OpenQueueError::DeviceLost);
        assert!(device.synchronize(Bound::within(PATIENCE)).is_err());
        let mut publisher = publisher;
        publisher.pub_release(1);
        drop(device);
        assert_eq!(busy.completions().value() + 1, first, "something completed on a lost device");
        assert_eq!(held.completions().value() + 1, waiting);
        region.host_write(0, &[0]).expect("the kernel gave its bytes back");
    }
}

#[test]
fn two_that_nothing_orders_are_named_both() {
    let devices = [1, 2].map(|rank| device(rank, 1, 8));
    let region = devices[0].allocate(256).unwrap();
    let mut queues = devices.each_ref().map(|d| d.open_queue(Engine::Compute, "q").unwrap());
    let (mut publisher, slot) = gate(50);
    let access = [Access::write(&region, 0..128)];
    let (kernel, began) = hold_until(&slot);
    let held = submit(&mut queues[0], launch("writer", &kernel, &access, &[1]));
    reached(&began, Seq::new(1));
    let target = devices[1].allocate(64).unwrap();
    let (from, to) = (Access::read(&region, 64..128), Access::write(&target, 0..64));
    let refused = submit(&mut queues[1], copy("reader", from, to));
    let fault = fault(&queues[1], refused);
    publisher.pub_release(1);
    reached(queues[0].completions(), held);
    let text = fault.to_string();
    let id = region.id();
    assert_eq!(
        text,
        format!(
            "device 2 queue q: reader (completion {refused}) failed: it would read bytes 64..128 \
             of {id} while writer on device 1 writes bytes 0..128: wait for its fence first"
        )
    );
}

#[test]
fn the_host_meets_a_command_and_is_told() {
    let device = device(1, 1, 8);
    let region = device.allocate(256).unwrap();
    let mut queue = device.open_queue(Engine::Compute, "q").unwrap();
    let (mut publisher, slot) = gate(50);
    let access = [Access::read(&region, 0..128)];
    let (kernel, began) = hold_until(&slot);
    let held = submit(&mut queue, launch("reader", &kernel, &access, &[1]));
    reached(&began, Seq::new(1));
    region.host_read(0, &mut [0; 256]).unwrap();
    let Err(HostAccessError::Hazard(hazard)) = region.host_write(100, &[0; 100]) else { panic!() };
    assert_eq!((hazard.refused, hazard.holder), ((100..200, Mode::Write), "reader"));
    publisher.pub_release(1);
    reached(queue.completions(), held);
}

#[test]
fn views_that_were_not_declared_so_are_faults() {
    let device = device(1, 1, 8);
    let region = device.allocate(64).unwrap();
    let read = |range| vec![Access::read(&region, range)];
    let write = |range| vec![Access::write(&region, range)];
    let cases: [(Kernel, Vec<Access<Region>>, &str); 15] = [
        (
            Kernel::new(|c| assert!(c.read::<u32>(1).is_empty())),
            read(0..4),
            "access 1 was not declared",
        ),
        (
            Kernel::new(|c| assert!(c.write::<u32>(1).is_empty())),
            read(0..4),
            "access 1 was not declared",
        ),
        (
            Kernel::new(|c| assert!(c.read::<u32>(0).is_empty())),
            write(0..4),
            "access 0 was declared for writing",
        ),
        (Kernel::new(|c| c.write::<u32>(0).fill(1)), read(0..4), "declared for reading"),
        (
            Kernel::new(|c| {
                c.write::<u32>(0).fill(1);
                c.write::<u32>(0).fill(2);
            }),
            write(0..4),
            "access 0 was taken before",
        ),
        (
            Kernel::new(|c| assert!(c.read::<u32>(0).is_empty())),
            read(0..6),
            "does not hold such elements",
        ),
        (
            Kernel::new(|c| assert!(c.read::<u64>(0).is_empty())),
            read(4..12),
            "does not hold such elements",
        ),
        (Kernel::new(|c| c.write::<u16>(0).fill(1)), write(1..5), "does not hold such elements"),
        (Kernel::new(|c| assert_eq!(c.argument(1), 0)), read(0..4), "argument 1 was not given"),
        (
            Kernel::new(|c| assert!(c.read_part::<u32>(0, 0..1).is_empty())),
            write(0..4),
            "access 0 was declared for writing",
        ),
        (
            Kernel::new(|c| assert!(c.read_part::<u32>(0, 1..3).is_empty())),
            read(0..8),
            "access 0 has no elements 1..3",
        ),
        (
            Kernel::new(|c| assert!(c.read_part::<u32>(0, usize::MAX - 1..usize::MAX).is_empty())),
            read(0..8),
            "access 0 has no elements",
        ),
        (Kernel::new(|c| c.write_part::<u32>(0, 0..1).fill(1)), read(0..4), "declared for reading"),
        (Kernel::new(|c| c.write_part::<u32>(0, 0..3).fill(1)), write(0..8), "no elements 0..3"),
        (
            Kernel::new(|c| {
                c.write::<u32>(0).fill(1);
                c.write_part::<u32>(0, 0..1).fill(2);
            }),
            write(0..4),
            "access 0 was taken before",
        ),
    ];
    for (kernel, accesses, message) in cases {
        let mut queue = device.open_queue(Engine::Compute, "views").unwrap();
        let position = submit(&mut queue, launch("look", &kernel, &accesses, &[0]));
        let fault = fault(&queue, position);
        assert!(fault.to_string().contains(message), "{fault} does not say: {message}");
        region.host_write(0, &[0; 64]).expect("a fault gives the bytes back");
    }
}

#[test]
fn parts_of_views_are_those_and_no_more() {
    let device = device(1, 1, 8);
    let region = device.allocate(64).unwrap();
    let mut queue = device.open_queue(Engine::Compute, "views").unwrap();
    let kernel = Kernel::new(|context| {
        context.write_part::<u32>(0, 1..3).fill(7);
        context.write_part::<u32>(0, 2..4).fill(9);
        assert_eq!(context.write_part::<u32>(0, 0..5), [0, 7, 9, 9, 0]);
        assert!(context.write_part::<u32>(0, 3..3).is_empty());
        // Whole, after its parts.
        assert_eq!(context.write::<u32>(0).len(), 14);
    });
    let done = submit(&mut queue, launch("parts", &kernel, &[Access::write(&region, 8..64)], &[]));
    reached(queue.completions(), done);
    let look = Kernel::new(|context| {
        assert_eq!(context.read_part::<u32>(0, 3..6), [7, 9, 9]);
        assert_eq!(context.read_part::<u32>(0, 15..16), [0]);
    });
    let done = submit(&mut queue, launch("look", &look, &[Access::read(&region, 0..64)], &[]));
    reached(queue.completions(), done);
}

#[test]
fn a_view_asked_for_wrongly_is_still_there() {
    let device = device(1, 1, 8);
    let region = device.allocate(64).unwrap();
    let mut queue = device.open_queue(Engine::Compute, "views").unwrap();
    let kernel = Kernel::new(|context| {
        let wrong = std::panic::AssertUnwindSafe(|| context.write::<u32>(0).fill(0));
        assert!(std::panic::catch_unwind(wrong).is_err());
        assert_eq!(context.read::<u32>(0), [0; 16]);
    });
    let access = [Access::read(&region, 0..64)];
    let done = submit(&mut queue, launch("look", &kernel, &access, &[]));
    reached(queue.completions(), done);
}

#[test]
fn every_kind_of_malformed_command_is_refused_by_name() {
    let device = device(1, 1, 8);
    let (region, other) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let mut queue = device.open_queue(Engine::Compute, "strict").unwrap();
    let mut copies = device.open_queue(Engine::Copy, "copies").unwrap();
    let start = queue.submitted();
    let on = |accesses: &[Access<Region>]| launch("bad", &fill(), accesses, &[0]);
    let (r, w) = (|range| Access::read(&region, range), |range| Access::write(&region, range));
    #[expect(clippy::reversed_empty_ranges, reason = "it is what has to be refused")]
    let cases = [
        (on(&[w(60..65)]), "an access is not within its region"),
        (on(&[w(60..usize::MAX)]), "an access is not within its region"),
        (on(&[w(8..4)]), "an access is not within its region"),
        (on(&[r(0..8), w(4..12)]), "two of its accesses overlap and one writes"),
        (on(&[w(0..8), w(0..8)]), "two of its accesses overlap and one writes"),
        (on(&[r(0..8), Access::write(&other, 0..8), w(7..8)]), "overlap and one writes"),
        (copy("bad", r(0..65), w(0..65)), "an access is not within its region"),
        (copy("bad", r(0..8), Access::write(&other, 60..68)), "not within its region"),
        (copy("bad", r(0..8), w(8..17)), "source and destination differ in length"),
        (copy("bad", r(0..8), w(4..12)), "source and destination overlap"),
        (copy("bad", w(0..8), w(8..16)), "a copy reads its source and writes its destination"),
        (copy("bad", r(0..8), r(8..16)), "a copy reads its source and writes its destination"),
    ];
    for (command, message) in cases {
        let error = queue.submit(command).unwrap_err();
        assert!(matches!(error, SubmitError::Malformed(_)), "{error}");
        assert!(error.to_string().contains(message), "{error} does not say: {message}");
    }
    let error = copies.submit(on(&[w(0..8)])).unwrap_err();
    assert!(error.to_string().contains("the copy engine runs no kernels"), "{error}");
    assert_eq!(queue.submitted(), start, "what was refused was counted");
    // Next to them what is right.
    let good = [
        on(&[w(0..64)]),
        launch("read twice", &Kernel::new(|_| {}), &[r(0..8), r(4..12)], &[]),
        launch("nothing", &Kernel::new(|_| {}), &[w(0..16), w(8..8), r(64..64)], &[]),
        copy("copy", r(0..8), w(8..16)),
        copy("other", r(0..64), Access::write(&other, 0..64)),
    ];
    for command in good {
        let done = submit(&mut queue, command);
        reached(queue.completions(), done);
    }
}

#[test]
fn a_wait_past_its_bound_names_the_producer_and_others_go_on() {
    let device = device(1, 1, 8);
    let region = device.allocate(64).unwrap();
    let mut late = device.open_queue(Engine::Compute, "late").unwrap();
    let mut other = device.open_queue(Engine::Compute, "other").unwrap();
    let (publisher, slot) = gate(33);
    let position =
        submit(&mut late, wait_within(&slot, publisher.value() + 5, Duration::from_millis(30)));
    let fault = fault(&late, position);
    let text = fault.to_string();
    for part in ["device 1 queue late: wait", "producer 33 slot 0 to reach 5; it is at 0"] {
        assert!(text.contains(part), "{text}");
    }
    let Cause::Wait(error) = fault.cause else { panic!("{text}") };
    assert!(error.is_timeout());
    assert_eq!(late.report().timeouts, 1);
    assert_eq!(device.take_wait_log().timeouts(), 1);
    let done = submit(&mut other, launch("go on", &fill(), &[Access::write(&region, 0..64)], &[3]));
    reached(other.completions(), done);
    assert_eq!(elements(&region), [3; 16]);
}

#[test]
fn a_full_queue_gives_back_the_very_command() {
    let device = device(1, 2, 3);
    let mut queue = device.open_queue(Engine::Compute, "full").unwrap();
    let (mut publisher, slot) = gate(50);
    let (kernel, _) = hold_until(&slot);
    for _ in 0..3 {
        queue.submit(launch("hold", &kernel, &[], &[1])).unwrap();
    }
    let region = device.allocate(64).unwrap();
    // Also when the first has left the ring to run: it is under way.
    for _ in 0..1000 {
        let back = queue.submit(launch("more", &kernel, &[Access::write(&region, 4..8)], &[9]));
        let Err(SubmitError::Full(pontoon_hal::Command::Launch {
            label, accesses, arguments, ..
        })) = back
        else {
            panic!("a fourth of three was taken")
        };
        assert_eq!((label, &arguments[..], &accesses[0].range), ("more", &[9][..], &(4..8)));
        thread::yield_now();
    }
    publisher.pub_release(1);
    reached(queue.completions(), queue.submitted());
}

/// Panics when it is dropped, unless something panics already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("dropped a bomb");
        }
    }
}

/// Throws a bomb when it is dropped.
struct Cluster;

impl Drop for Cluster {
    fn drop(&mut self) {
        panic_any(Bomb);
    }
}

#[test]
fn what_panics_when_it_is_dropped_costs_no_unit() {
    let device = device(1, 1, 8);
    let mut other = device.open_queue(Engine::Compute, "other").unwrap();
    let nothing = Kernel::new(|_| {});
    for round in 0..4 {
        let mut queue = device.open_queue(Engine::Compute, "bombs").unwrap();
        let (mut publisher, slot) = gate(50);
        let opened = publisher.value() + 1;
        submit(&mut queue, wait(&slot, opened));
        let bomb = Bomb;
        let kernel = match round {
            // Captured, and run.
            0 => Kernel::new(move |_| assert_eq!(size_of_val(&bomb), 0)),
            // Thrown.
            1 => {
                std::mem::forget(bomb);
                Kernel::new(|_| panic_any(Cluster))
            }
            // Captured, and never run.
            _ => {
                submit(&mut queue, launch("fail", &failing(), &[], &[1]));
                Kernel::new(move |_| assert_eq!(size_of_val(&bomb), 0))
            }
        };
        let last = submit(&mut queue, launch("bomb", &{ kernel }, &[], &[]));
        if round == 3 {
            // The unit may be the last that has the queue.
            let slot = queue.completions().clone();
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(queue)));
            publisher.pub_release(1);
            ended(&slot, last);
            drop(dropped);
        } else {
            publisher.pub_release(1);
            let fault = fault(&queue, last);
            assert!(matches!(fault.cause, Cause::Panicked(_)), "{fault}");
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(queue)));
        }
        let done = submit(&mut other, launch("go on", &nothing, &[], &[]));
        reached(other.completions(), done);
    }
}

#[test]
fn a_device_may_be_dropped_by_its_own_kernel() {
    for units in [1, 2] {
        let device = Arc::new(device(1, units, 8));
        let mut queue = device.open_queue(Engine::Compute, "suicide").unwrap();
        let (mut publisher, slot) = gate(50);
        submit(&mut queue, wait(&slot, publisher.value() + 1));
        let owner = Arc::clone(&device);
        let position = submit(
            &mut queue,
            launch("owner", &Kernel::new(move |_| assert_eq!(owner.rank(), Rank(1))), &[], &[]),
        );
        drop(device);
        publisher.pub_release(1);
        let error = ended(queue.completions(), position + 1);
        assert!(matches!(error, WaitError::PeerDead { rank: Rank(1), .. }), "{error}");
        assert_eq!(queue.fault().unwrap().cause, Cause::DeviceLost);
    }
}

#[test]
fn what_never_runs_is_dropped_with_its_queue() {
    enum End {
        Kill,
        Drop,
        Fault,
    }
    for end in [End::Kill, End::Drop, End::Fault] {
        let device = device(1, 2, 8);
        let mut queue = device.open_queue(Engine::Compute, "unrun").unwrap();
        let (mut publisher, slot) = gate(50);
        let token = Arc::new(());
        let captured = Arc::clone(&token);
        let kernel = Kernel::new(move |_| assert_eq!(*captured, ()));
        submit(&mut queue, wait(&slot, publisher.value() + 1));
        submit(&mut queue, launch("fail", &failing(), &[], &[1]));
        submit(&mut queue, launch("unrun", &{ kernel }, &[], &[]));
        let last = queue.submitted();
        let mut device = Some(device);
        match end {
            End::Kill => device.as_ref().unwrap().kill(),
            End::Drop => device = None,
            End::Fault => drop(publisher.pub_release(1)),
        }
        ended(queue.completions(), last);
        assert_eq!(Arc::strong_count(&token), 2, "it was dropped before its queue");
        drop(queue);
        until("what never ran is still there", || Arc::strong_count(&token) == 1);
        drop(device);
    }
}

#[test]
fn a_queue_dropped_while_the_units_sleep_still_runs_and_ends() {
    let device = device(9, 2, 8);
    let region = device.allocate(64).unwrap();
    let (mut publisher, slot) = gate(50);
    for round in 0..200 {
        let mut queue = device.open_queue(Engine::Compute, "dropped").unwrap();
        let completions = queue.completions().clone();
        submit(&mut queue, wait(&slot, publisher.value() + 1));
        let access = [Access::write(&region, 0..64)];
        let last = submit(&mut queue, launch("last", &fill(), &access, &[round]));
        drop(queue);
        publisher.pub_release(1);
        let error = ended(&completions, last + 1);
        assert!(matches!(error, WaitError::PeerDead { rank: Rank(9), .. }), "{error}");
        assert_eq!(completions.value(), last);
        assert_eq!(elements(&region)[0], round as u32);
    }
}

#[test]
fn thousands_of_queues_come_and_go() {
    let device = device(1, 2, 2);
    let nothing = Kernel::new(|_| {});
    for round in 0..3000 {
        let mut queue = None;
        until("there is never room for a queue", || {
            queue = device.open_queue(Engine::Compute, "brief").ok();
            queue.is_some()
        });
        let mut queue = queue.unwrap();
        let done = submit(&mut queue, launch("brief", &nothing, &[], &[]));
        if round % 3 > 0 {
            reached(queue.completions(), done);
        }
    }
    let mut all = Vec::new();
    until("64 queues are not to be had", || {
        all.extend(device.open_queue(Engine::Compute, "all"));
        all.len() == 64
    });
    let one_more = device.open_queue(Engine::Copy, "65").unwrap_err();
    assert_eq!(one_more, OpenQueueError::TooMany { queues: 64 });
    let done = submit(&mut all[63], launch("last", &nothing, &[], &[]));
    reached(all[63].completions(), done);
}
