//! The spans that a device keeps: each command once, in order, without an overlap.

mod common;

use common::*;
use pontoon_cpu::{CpuDevice, CpuSpec, Kernel, SpanKind};
use pontoon_hal::{Device, Engine, Purpose, Queue};
use pontoon_signal::{Rank, Seq};

fn traced(trace: u32) -> CpuDevice {
    let start = Seq::new(u64::MAX - 2);
    CpuDevice::open(Rank(3), CpuSpec { trace, start, ..CpuSpec::default() }).unwrap()
}

#[test]
fn every_command_has_a_span_and_a_wait_says_for_what() {
    let device = traced(1000);
    let mut first = device.open_queue(Engine::Compute, "first").unwrap();
    let mut second = device.open_queue(Engine::Compute, "second").unwrap();
    let kernel = Kernel::new(|_| std::hint::black_box(()));
    for _ in 0..50 {
        let done = submit(&mut first, launch("produce", &kernel, &[], &[]));
        submit(&mut second, wait(first.completions(), done));
        submit(&mut second, launch("consume", &kernel, &[], &[]));
    }
    for queue in [&first, &second] {
        until("the commands never ended", || queue.completions().value() == queue.submitted());
    }
    let taken = device.take_spans();
    assert_eq!((taken.spans.len(), taken.dropped), (150, 0));
    for (queue, label, count) in [(&first, "first", 50_usize), (&second, "second", 100)] {
        let of = taken.spans.iter().filter(|span| span.queue == queue.completions().id());
        let of: Vec<_> = of.collect();
        assert!(of.len() == count && of.iter().all(|span| &*span.label == label));
        assert!(of.iter().all(|span| span.start <= span.end), "{of:?}");
        for pair in of.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
            assert_eq!(pair[0].position + 1, pair[1].position);
        }
    }
    for span in &taken.spans {
        let SpanKind::Wait { purpose, signal, target } = span.kind else { continue };
        assert_eq!((purpose, signal), (Purpose::Dependency, first.completions().id()));
        let waited_for =
            taken.spans.iter().find(|other| (other.queue, other.position) == (signal, target));
        let producer = waited_for.expect("what was waited for has a span");
        assert!(producer.end <= span.end, "{producer:?} ended after the wait for it: {span:?}");
    }
    assert!(device.take_spans().spans.is_empty(), "they were taken twice");
}

#[test]
fn what_finds_no_room_is_counted() {
    for (trace, kept, dropped) in [(0, 0, 0), (4, 4, 6)] {
        let device = traced(trace);
        let mut queue = device.open_queue(Engine::Compute, "queue").unwrap();
        let kernel = Kernel::new(|_| {});
        for _ in 0..10 {
            submit(&mut queue, launch("k", &kernel, &[], &[]));
        }
        until("the commands never ended", || queue.completions().value() == queue.submitted());
        let taken = device.take_spans();
        assert_eq!((taken.spans.len(), taken.dropped), (kept, dropped));
    }
}
