//! Bytes that a kernel has sent and not waited for: the session has them refused until they are sent.

use std::{sync::Arc, time::Duration};

use pontoon::{
    Bound, Buffer, CpuDevice, CpuSpec, Engine, Fence, Kernel, Patience, Rank, Refusal, Session,
    comm::{Comm, Settings},
    hal::link::Link,
    shm::{ShmLink, identity},
    signal::{Segment, SegmentShape},
};

#[test]
fn what_a_trigger_sends_is_refused_to_others_until_it_is_sent() {
    let segments = [0, 1].map(|rank| {
        let whose = identity([9; 16], Rank(rank), 2, 0);
        Segment::create(SegmentShape::new(2, 1, 1 << 16), whose).expect("a segment")
    });
    let [zero, one] = [0, 1].map(|me: usize| {
        let link = ShmLink::new(segments[me].clone());
        link.connect(Rank(1 - me as u32), segments[1 - me].clone()).expect("connected");
        link
    });
    let blocks = [0, 1].map(|me: usize| segments[me].allocate(4096).expect("room"));
    let landing = one.register(&blocks[1]).expect("registered");
    let source = zero.register(&blocks[0]).expect("registered");
    let target = zero.attach(Rank(1), landing.key().expect("a key")).expect("attached");
    let signal = zero.attach_signal(Rank(1), 0).expect("a slot");
    let comm = Comm::open(Rank(0), Settings::default()).expect("a proxy");
    let link: Arc<dyn Link> = Arc::new(zero);
    let port = comm.port(&link, source, target, Some(signal)).expect("a port");
    let calls = port.prepare().put(0..4096, 0).and_then(|calls| calls.signal(1)).expect("in range");
    let trigger = calls.arm().expect("a proxy");

    let device = CpuDevice::open(Rank(0), CpuSpec::default()).expect("a device");
    let bytes = Buffer::<_, u64>::over(device.region_over(blocks[0].clone()).expect("a region"));
    let mut session = Session::check();
    let stream = session.stream(&device, Engine::Compute, "send").expect("a stream");
    let channel = session.channel("rank 1");
    let fill = Kernel::new(|kernel| kernel.write::<u64>(0).fill(kernel.argument(0)));
    let fire = Kernel::new({
        let trigger = trigger.clone();
        move |_| drop(trigger.fire().expect("open").detach())
    });
    let nothing = Kernel::new(|_| {});
    // Standing still, it is sure not to have sent when the next command is submitted.
    comm.stop_proxy(true);
    for round in 1..=3_u32 {
        session.launch(stream, "fill", &fill, [bytes.write(..)], [7]).expect("they are ours");
        session.lend(stream, channel, "send", &fire, [bytes.write(..)], []).expect("ours to lend");
        let refused = session.launch(stream, "fill again", &fill, [bytes.write(..)], [8]);
        let refused = refused.expect_err("they are on their way");
        assert!(matches!(refused, Refusal::Lent { .. }), "{refused}");
        let sent = trigger.done(round);
        let sent = Fence::on(sent.slot, sent.seq, "what was sent");
        let back = session.arrive(stream, channel, "sent", &sent, &nothing).expect("it was lent");
        comm.stop_proxy(false);
        session.wait(&back, Patience::within(Duration::from_secs(60))).expect("it is sent");
        comm.stop_proxy(true);
    }
    let arrived = segments[1].signals().waiter(pontoon::SlotId::new(0, 0)).expect("a slot");
    let three = pontoon::Seq::new(3);
    let _ = arrived.wait_ge_bounded(three, Bound::within(Duration::from_secs(60))).expect("three");
    comm.stop_proxy(false);
}
