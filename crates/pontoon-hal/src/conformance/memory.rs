//! The clauses of [`Memory`].

use std::time::Duration;

use super::{Bench, Checked, Subject, queue::holding};
use crate::{Access, AllocateError, Device, HostAccessError, Memory, Mode, Queue};

/// M1 and M2: a new region is zeroed, and its size and address stay. The address shows to the host
/// only in that its contents stay: that it is a page's, and that the pages have been touched, is
/// left to each backend's own tests.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn m1_m2_new_regions<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "M1", 1);
    let mut queue = bench.queue("dirty");
    for round in 0..20 {
        for count in [1, 3, 1024, 5000] {
            let region = bench.region(count);
            bench.holds(&region, 0);
            bench.holds_true("a region has another size", region.bytes() == 4 * count);
            bench.holds_true("a region is another's", region.device() == bench.device.rank());
            // Dirty when it is given back: the next one is zeroed all the same.
            bench.finish(&mut queue, bench.fill(&region, round + 1));
            bench.holds(&region, round + 1);
        }
    }
    let odd = bench.device.allocate(7);
    bench.holds_true("seven bytes are not seven", odd.is_ok_and(|region| region.bytes() == 7));
    let none = bench.device.allocate(0);
    bench.holds_true("there is a region of nothing", matches!(none, Err(AllocateError::Empty)));
    let huge = bench.device.allocate(usize::MAX);
    bench.holds_true("all of memory was allocated", huge.is_err());
    Checked::Partly("look at addresses and page faults, which the backend's own tests have")
}

/// M3: a host access that meets a running command, where either writes, is refused with a hazard
/// and does nothing; every other goes on, and none out of range.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn m3_host_accesses_meet_commands<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "M3", 1);
    let mut queue = bench.queue("holder");
    for mode in [Mode::Write, Mode::Read] {
        let region = bench.region(32);
        let access = Access { memory: region.clone(), range: 0..64, mode };
        let held = holding(&bench, &mut queue, &access, Duration::from_secs(1));
        let mut bytes = [7; 4];
        let (read, write) = (region.host_read(60, &mut bytes), region.host_write(60, &[9; 4]));
        let (beside, nothing) = (region.host_write(64, &[9; 4]), region.host_write(32, &[]));
        let met = queue.completions().value() != held;
        bench.reached(queue.completions(), held);
        bench.holds_true("the kernel ended before it was met: it holds for a second", met);
        match (mode, read) {
            (Mode::Read, Ok(())) => bench.holds_true("a read read nothing", bytes == [0; 4]),
            (Mode::Write, Err(HostAccessError::Hazard(hazard))) => {
                bench.holds_true("a refused read wrote to its buffer", bytes == [7; 4]);
                bench.holds_true("a hazard names another holder", hazard.holder == "hold");
                bench.holds_true("a hazard is elsewhere", hazard.on == Some(bench.device.rank()));
                bench.holds_true("a hazard is of others", hazard.refused == (60..64, Mode::Read));
            }
            (mode, other) => panic!("M3: a read met a kernel that has it to {mode:?}: {other:?}"),
        }
        let refused = matches!(write, Err(HostAccessError::Hazard(_)));
        bench.holds_true("a write met a running kernel and was not refused", refused);
        bench.holds_true("bytes that nobody has were refused", beside.is_ok());
        bench.holds_true("no bytes at all were refused", nothing.is_ok());
        let elements = bench.read(&region);
        bench.holds_true("a refused write wrote", elements[15] == 0);
        bench.holds_true("a granted write did not", elements[16] == 0x0909_0909);
    }
    let region = bench.region(1);
    for (offset, count) in [(0, 5), (4, 1), (5, 0), (usize::MAX, 2)] {
        let refused = |result| matches!(result, Err(HostAccessError::OutOfRange { .. }));
        let read = refused(region.host_read(offset, &mut vec![0; count]));
        let write = refused(region.host_write(offset, &vec![0; count]));
        bench.holds_true("the host reached past the end", read && write);
    }
    bench.holds_true("nothing at the end is refused", region.host_read(4, &mut []).is_ok());
    Checked::Yes
}

/// M4: clones name the same memory, which lives as long as a handle or a command that names it.
///
/// # Panics
///
/// If the device breaks the clause.
pub fn m4_clones_name_the_same_memory<S: Subject>(subject: &S) -> Checked {
    let bench = Bench::new(subject, "M4", 1);
    let twin = Bench::new(subject, "M4", 1);
    let (region, other) = (bench.region(16), twin.region(16));
    let clone = region.clone();
    bench.holds_true("a clone is another region", clone.id() == region.id());
    bench.holds_true(
        "two regions share an id, of devices that share a rank",
        other.id() != region.id(),
    );
    let written = clone.host_write(0, &[1, 0, 0, 0]);
    bench.holds_true("a clone cannot be written", written.is_ok());
    bench.holds_true("a clone is other memory", bench.read(&region)[0] == bench.read(&clone)[0]);
    bench.holds_true("regions of two devices are one", bench.read(&other)[0] == 0);

    // The command has the only handle by the time it runs.
    let mut queue = bench.queue("last");
    let mut gate = super::Gate::new();
    let result = bench.region(16);
    for round in 0..20 {
        if queue.depth() > 1 {
            bench.submit(&mut queue, bench.wait(&gate.slot, gate.opened));
        }
        let region = bench.region(16);
        region.host_write(60, &[5, 0, 0, 0]).expect("the host has it alone");
        let position = bench.submit(&mut queue, bench.add(&region, &result, round));
        drop(region);
        if round == 0 {
            gate.open();
        }
        bench.reached(queue.completions(), position);
        bench.holds_true(
            "a region died before its command ran",
            bench.read(&result)[15] == 5 + round,
        );
    }
    Checked::Yes
}
