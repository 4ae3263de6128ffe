//! Many devices and queues on few cores: everything comes on, in order, with the right data.

mod common;

use common::*;
use pontoon_cpu::{CpuDevice, CpuQueue, Kernel, Region};
use pontoon_hal::{Access, Device, Engine, Queue};
use pontoon_signal::Seq;

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        // The constants of Knuth's MMIX; the high half is the good one.
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// One step of a token: access 1 becomes access 0 with its history hashed in, after argument 1
/// rounds of work.
fn step() -> Kernel {
    Kernel::new(|context| {
        let (from, token) = (context.read::<u32>(0), context.argument(0) as u32);
        for round in 0..context.argument(1) {
            std::hint::black_box(round);
        }
        let to = context.write::<u32>(1);
        for (index, (to, from)) in to.iter_mut().zip(from).enumerate() {
            *to = mix(*from, token, index as u32);
        }
    })
}

fn mix(from: u32, token: u32, index: u32) -> u32 {
    from.rotate_left(5) ^ token.wrapping_mul(0x9E37_79B1) ^ index
}

const ELEMENTS: usize = 256;

/// A place on the ring: a queue of some device, and the region that it writes.
struct Place {
    queue: CpuQueue,
    region: Region,
    /// The place and position that last read this region, to be waited for before it is written.
    read: Option<(usize, Seq)>,
    written: Option<Seq>,
}

/// A token goes `steps` times from place to place, in an order that the dice choose; each step
/// waits for the one before, on another queue and mostly another device.
fn hand_around(devices: &[CpuDevice], queues: usize, steps: u32, dice: &mut Dice) {
    let mut places: Vec<Place> = (0..devices.len() * queues)
        .map(|index| {
            let device = &devices[index % devices.len()];
            Place {
                queue: device.open_queue(Engine::Compute, "place").unwrap(),
                region: device.allocate(4 * ELEMENTS).unwrap(),
                read: None,
                written: None,
            }
        })
        .collect();
    let step_kernel = step();
    let mut expected = vec![0; ELEMENTS];
    let mut at = 0;
    for token in 0..steps {
        let next = (at + 1 + dice.below(places.len() as u64 - 1) as usize) % places.len();
        if let Some(written) = places[at].written {
            let slot = places[at].queue.completions().clone();
            submit(&mut places[next].queue, wait(&slot, written));
        }
        if let Some((reader, position)) = places[next].read {
            let slot = places[reader].queue.completions().clone();
            submit(&mut places[next].queue, wait(&slot, position));
        }
        let accesses = [
            Access::read(&places[at].region, 0..4 * ELEMENTS),
            Access::write(&places[next].region, 0..4 * ELEMENTS),
        ];
        let arguments = [u64::from(token), dice.below(2000)];
        let done =
            submit(&mut places[next].queue, launch("step", &step_kernel, &accesses, &arguments));
        places[at].read = Some((next, done));
        (places[next].written, places[next].read) = (Some(done), None);
        for (index, element) in expected.iter_mut().enumerate() {
            *element = mix(*element, token, index as u32);
        }
        at = next;
        // Now and then every step is looked at, else only how it all ends.
        if token % 64 < 4 {
            reached(places[at].queue.completions(), done);
            assert_eq!(elements(&places[at].region), expected, "after step {token}");
        }
    }
    let done = places[at].written.unwrap();
    reached(places[at].queue.completions(), done);
    assert_eq!(elements(&places[at].region), expected);
    for place in &places {
        assert_eq!(place.queue.fault(), None);
    }
}

#[test]
fn four_devices_hand_a_token_around() {
    let devices = [0, 1, 2, 3].map(|rank| device(rank, 2, 8));
    hand_around(&devices, 3, 2000, &mut Dice(1));
}

#[test]
fn sixteen_devices_hand_a_token_around() {
    let devices: Vec<_> = (0..16).map(|rank| device(rank, 1, 4)).collect();
    hand_around(&devices, 2, 2000, &mut Dice(2));
}

#[test]
fn four_devices_with_queues_of_one_command_hand_a_token_around() {
    let devices = [0, 1, 2, 3].map(|rank| device(rank, 1, 1));
    hand_around(&devices, 1, 1000, &mut Dice(3));
}

#[test]
fn two_tokens_cross_on_the_same_devices() {
    let devices = [0, 1, 2].map(|rank| device(rank, 2, 4));
    std::thread::scope(|scope| {
        for seed in 4..6 {
            let devices = &devices;
            scope.spawn(move || hand_around(devices, 2, 1000, &mut Dice(seed)));
        }
    });
}

/// D1 with every chance to be missed: while one unit is busy for as long as it takes, the other
/// must see what comes on any other queue, whatever it was looking at just before.
#[test]
fn no_unit_sleeps_beside_a_queue_that_can_go_on() {
    let mut dice = Dice(7);
    let device = device(1, 2, 64);
    let mut queues: Vec<_> =
        (0..3).map(|_| device.open_queue(Engine::Compute, "one of three").unwrap()).collect();
    let nothing = Kernel::new(|context| {
        for round in 0..context.argument(0) {
            std::hint::black_box(round);
        }
    });
    for _ in 0..3000 {
        // Something short for the units to look around by.
        for _ in 0..dice.below(20) {
            let queue = &mut queues[dice.below(3) as usize];
            let work = dice.below(200);
            submit(queue, launch("short", &nothing, &[], &[work]));
        }
        let blocked = dice.below(3) as usize;
        let other = (blocked + 1 + dice.below(2) as usize) % 3;
        // It fails, and with it the test, if the other queue's command does not come to run.
        let target = queues[other].submitted() + 1;
        let (kernel, _) = hold_until(queues[other].completions());
        let held = submit(&mut queues[blocked], launch("hold", &kernel, &[], &[target.get()]));
        for _ in 0..dice.below(3000) {
            std::hint::spin_loop();
        }
        submit(&mut queues[other], launch("let go", &nothing, &[], &[0]));
        reached(queues[blocked].completions(), held);
    }
}
