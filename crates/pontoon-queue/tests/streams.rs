//! Streams and fences over CPU devices, with counters that start anywhere.

use std::time::Duration;

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::{Cause, Engine, Memory};
use pontoon_queue::{Buffer, Fence, Stream, StreamError};
use pontoon_signal::{Bound, Rank, Seq, SignalTable, SlotId, TableShape, WaitError};

const STARTS: [u64; 3] = [0, u32::MAX as u64 - 2, u64::MAX - 2];

/// Catches a hang; no healthy wait comes near it.
fn bound() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn device(rank: u32, start: u64, depth: u32) -> CpuDevice {
    let spec = CpuSpec { start: Seq::new(start), depth, ..CpuSpec::default() };
    CpuDevice::open(Rank(rank), spec).unwrap()
}

fn compute(device: &CpuDevice, label: &str) -> Stream<CpuDevice> {
    Stream::open(device, Engine::Compute, label).unwrap().with_patience(bound())
}

/// Adds argument 0 to each element of access 1, read from access 0.
fn add() -> Kernel {
    Kernel::new(|kernel| {
        let by = kernel.argument(0) as u32;
        for (to, from) in kernel.write::<u32>(1).iter_mut().zip(kernel.read::<u32>(0)) {
            *to = from.wrapping_add(by);
        }
    })
}

#[test]
fn a_fence_orders_streams_of_two_devices_step_after_step() {
    for start in STARTS {
        let (left, right) = (device(0, start, 4), device(1, start, 4));
        let a = Buffer::<_, u32>::allocate(&left, 64).unwrap();
        let b = Buffer::<_, u32>::allocate(&right, 64).unwrap();
        let (mut there, mut back) = (compute(&left, "there"), compute(&right, "back"));
        let add = add();
        let mut returned: Option<Fence> = None;
        for _ in 0..200 {
            if let Some(returned) = &returned {
                there.wait(returned, bound()).unwrap();
            }
            let sent = there.launch("there", &add, [a.read(..), b.write(..)], [1]).unwrap();
            back.wait(&sent, bound()).unwrap();
            returned = Some(back.launch("back", &add, [b.read(..), a.write(..)], [1]).unwrap());
        }
        returned.unwrap().wait(bound()).unwrap();
        assert_eq!(a.to_vec().unwrap(), [400; 64], "from {start}");
    }
}

#[test]
fn a_full_queue_makes_the_submitter_wait_for_room() {
    for start in STARTS {
        let device = device(0, start, 2);
        let buffer = Buffer::<_, u32>::allocate(&device, 1).unwrap();
        let mut stream = compute(&device, "deep");
        let bump = Kernel::new(|kernel| kernel.write::<u32>(0)[0] += 1);
        for _ in 0..100 {
            stream.launch("bump", &bump, [buffer.write(..)], []).unwrap();
        }
        stream.fence().wait(bound()).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [100]);
        assert_eq!(stream.report().completed, 100);
    }
}

#[test]
fn no_room_within_the_patience_is_said_and_the_stream_goes_on() {
    let device = device(0, 0, 2);
    let table = SignalTable::in_process(TableShape::new(1, 1).first_rank(Rank(7)));
    let mut publisher = table.publisher(SlotId::new(7, 0)).unwrap();
    let gate = Fence::on(table.slot(SlotId::new(7, 0)).unwrap(), Seq::new(1), "gate");
    let patience = Bound::within(Duration::from_millis(5));
    let mut stream = compute(&device, "held").with_patience(patience);
    stream.wait(&gate, bound()).unwrap();
    let nothing = Kernel::new(|_| {});
    let refused = (0..10).find_map(|_| stream.launch("nothing", &nothing, [], []).err());
    assert!(matches!(refused, Some(StreamError::NoRoom(_))), "{refused:?}");
    publisher.pub_release(1);
    stream.fence().wait(bound()).unwrap();
    stream.launch("nothing", &nothing, [], []).unwrap().wait(bound()).unwrap();
}

#[test]
fn a_fence_tells_whether_it_is_complete() {
    let device = device(0, u64::MAX, 8);
    let table = SignalTable::in_process(TableShape::new(1, 1));
    let slot = SlotId::new(0, 0);
    let mut publisher = table.publisher(slot).unwrap();
    let gate = Fence::on(table.slot(slot).unwrap(), Seq::new(0), "gate").later(1);
    let mut stream = compute(&device, "gated");
    assert_eq!(stream.fence().is_complete(), Ok(true), "nothing was submitted");
    stream.wait(&gate, bound()).unwrap();
    let fence = stream.fence();
    assert_eq!(fence.is_complete(), Ok(false));
    let timeout = fence.wait(Bound::within(Duration::from_millis(1))).unwrap_err();
    assert!(timeout.error.is_timeout());
    assert!(timeout.to_string().starts_with("fence of device 0 stream gated: waited"));
    publisher.pub_release(1);
    fence.wait(bound()).unwrap();
    assert_eq!(fence.is_complete(), Ok(true));
}

#[test]
fn a_stream_waits_for_itself_at_no_cost() {
    let device = device(0, 0, 8);
    let mut stream = compute(&device, "own");
    let nothing = Kernel::new(|_| {});
    let fence = stream.launch("nothing", &nothing, [], []).unwrap();
    stream.wait(&fence, bound()).unwrap();
    assert_eq!(stream.fence().target(), fence.target(), "a wait was submitted");
    let later = fence.later(1);
    assert!(matches!(stream.wait(&later, bound()), Err(StreamError::Malformed { .. })));
    // Another device's stream may have the same rank and slot: that one is waited for.
    let twin = self::device(0, 0, 8);
    let other = compute(&twin, "own").fence();
    stream.wait(&other, bound()).unwrap();
    assert_ne!(stream.fence().target(), fence.target(), "the wait was left out");
}

#[test]
fn a_failure_runs_down_the_fences_with_its_root() {
    let devices = [device(0, 0, 8), device(1, 0, 8), device(2, 0, 8)];
    let [mut first, mut second, mut third] = [0, 1, 2].map(|i| compute(&devices[i], "stream"));
    let fail = Kernel::new(|_| panic!("on purpose"));
    let failed = first.launch("fail", &fail, [], []).unwrap();
    second.wait(&failed, bound()).unwrap();
    third.wait(&second.fence(), bound()).unwrap();
    let error = third.fence().wait(bound()).unwrap_err();
    assert!(matches!(error.error, WaitError::Aborted { by: Rank(0), .. }), "{error}");
    assert!(error.to_string().ends_with("(there, a kernel panicked)"), "{error}");
    let root = failed.wait(bound()).unwrap_err().to_string();
    let said = "device 0 queue stream: fail (completion 1) failed: the kernel panicked: on purpose";
    assert_eq!(root, said);
    let fault = first.fault().unwrap();
    assert!(matches!(&fault.cause, Cause::Panicked(text) if &**text == "on purpose"));
    let nothing = Kernel::new(|_| {});
    let refused = first.launch("nothing", &nothing, [], []).unwrap_err();
    assert_eq!(refused, StreamError::Faulted(fault));
}

#[test]
fn what_cannot_run_is_refused_before_it_is_submitted() {
    let device = device(0, 0, 8);
    let buffer = Buffer::<_, u32>::allocate(&device, 4).unwrap();
    let mut stream = compute(&device, "strict");
    let nothing = Kernel::new(|_| {});
    let many = (0..9).map(|_| buffer.read(..));
    let cases = [
        stream.launch("beyond", &nothing, [buffer.read(2..5)], []),
        stream.launch("twice", &nothing, [buffer.read(..2), buffer.write(1..)], []),
        stream.launch("many", &nothing, many, []),
        stream.launch("wordy", &nothing, [], 0..9),
        stream.copy("uneven", buffer.read(..2), buffer.write(3..)),
        stream.copy("onto itself", buffer.read(..3), buffer.write(1..)),
    ];
    for case in cases {
        let error = case.unwrap_err();
        assert!(matches!(error, StreamError::Malformed { .. }), "{error}");
        assert!(error.to_string().starts_with("device 0 stream strict: "), "{error}");
    }
    assert_eq!(stream.fence().is_complete(), Ok(true), "something was submitted");
    assert_eq!(buffer.memory().bytes(), 16);
}
