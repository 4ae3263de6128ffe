//! Queues of several lanes.

use super::*;

#[test]
fn a_launch_queue_needs_a_barrier_between_its_lanes() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let spec =
        QueueSpec { completion: Completion::Launch { lanes: 2 }, ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, spec, "wide").unwrap();
    let stream = session.stream_over(queue, "wide").unwrap();
    let buffer = numbers(&device, 4);
    let (add, double) = (add(), double());
    session.launch(stream, "double", &double, [buffer.write(..)], []).unwrap();
    let refused = session.launch(stream, "add", &add, [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(refused, Refusal::Missing(_)), "{refused}");
    for barrier in [Barrier::Streams(vec![stream]), Barrier::Device] {
        for _ in 0..2 {
            let mut batch = session.batch();
            batch.barrier(barrier.clone()).launch("add", &add, [buffer.write(..)], [1]);
            session.submit(stream, batch.seal().unwrap()).unwrap();
        }
    }
    session.drain(stream, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [4; 4]);
}
