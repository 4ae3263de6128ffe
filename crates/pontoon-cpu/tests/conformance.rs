//! The CPU device keeps the contracts of devices, in every size, and where counters wrap.

use std::{thread, time::Duration};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::conformance::{Subject, Work, run_all};
use pontoon_signal::{Load, Rank, Seq};

struct Cpu(CpuSpec);

impl Subject for Cpu {
    type Device = CpuDevice;

    fn open(&self, rank: Rank) -> CpuDevice {
        CpuDevice::open(rank, self.0).unwrap()
    }

    fn kernel(&self, _: &CpuDevice, work: Work) -> Kernel {
        match work {
            Work::Fill => Kernel::new(|context| {
                let value = context.argument(0) as u32;
                context.write::<u32>(0).fill(value);
            }),
            Work::Add => Kernel::new(|context| {
                let (from, value) = (context.read::<u32>(0), context.argument(0) as u32);
                for (to, from) in context.write::<u32>(1).iter_mut().zip(from) {
                    *to = from + value;
                }
            }),
            Work::Fail => Kernel::new(|_| panic!("asked to")),
            // Slowness, not synchronisation: a unit that is busy without a core.
            Work::Hold => Kernel::new(|context| {
                thread::sleep(Duration::from_nanos(context.argument(0)));
            }),
        }
    }

    fn lose(&self, device: &CpuDevice) -> bool {
        device.kill();
        true
    }
}

fn holds(units: u32, depth: u32, start: u64) {
    let spec = CpuSpec { units, depth, start: Seq::new(start), ..CpuSpec::default() };
    println!("{spec:?}");
    run_all(&Cpu(spec));
}

#[test]
fn the_default_device() {
    run_all(&Cpu(CpuSpec::default()));
}

#[test]
fn one_unit_and_one_command_at_a_time() {
    holds(1, 1, 0);
}

#[test]
fn one_unit_and_short_queues_whose_counters_wrap() {
    holds(1, 4, 0u64.wrapping_sub(3));
}

#[test]
fn two_units_and_one_command_at_a_time_whose_counters_wrap() {
    holds(2, 1, 0u64.wrapping_sub(2));
}

#[test]
fn two_units_and_queues_whose_counters_pass_32_bits() {
    holds(2, 4, (1 << 32) - 3);
}

#[test]
fn four_units_whose_counters_turn_negative() {
    holds(4, 128, (1 << 63) - 2);
}

#[test]
fn two_units_without_an_atomic_load() {
    run_all(&Cpu(CpuSpec { atomic_load: Load::CompareSwap, ..CpuSpec::default() }));
}
