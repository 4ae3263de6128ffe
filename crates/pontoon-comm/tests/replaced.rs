//! Rings that take the place of others: after a task was refused or given up, and when a peer is started again.
#![cfg(not(pontoon_loom))]

mod common;
#[path = "common/held.rs"]
mod held;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Side, open, pair};
use held::{Before, Held, Line, Log, settle, until};
use pontoon_comm::{Comm, Mode, Port, SendError, Settings, Strong, Weak};
use pontoon_hal::link::{Link, LinkError, Order};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{Bound, Ending, Rank, Segment, SegmentShape, Seq, SlotId};

const PATIENCE: Duration = Duration::from_millis(500);
const STRONG: Option<Order> = Some(Order::Strong);

fn in_time() -> Bound {
    Bound::within(Duration::from_secs(20))
}

/// So many rings to each peer, which are given up soon.
fn comm(rings: u32) -> Comm {
    let mut settings = Settings::default();
    (settings.stall, settings.patience) = (Duration::from_secs(60), PATIENCE);
    settings.rings = rings;
    open(0, settings)
}

fn lines(log: &Log) -> Vec<Line> {
    log.lock().expect("whole").clone()
}

/// A port without a signal.
fn plain(link: &Arc<Held>, side: &Side, comm: &Comm) -> Port {
    let over: Arc<dyn Link> = Arc::clone(link) as _;
    comm.port(&over, side.source.clone(), side.target.clone(), None).expect("a port")
}

/// Ports over both rings of the channel that new ports go by.
fn two_ports(link: &Arc<Held>, side: &Side, comm: &Comm, slots: [u32; 2]) -> [Port; 2] {
    // So that the numbers of ports that are gone are free.
    settle(comm);
    slots.map(|slot| link.port(side, comm, slot))
}

/// Gives up a fetch of `port`, and then has the link do it, so that nothing of its ring is left undone.
fn end_a_ring(link: &Arc<Held>, side: &Side, comm: &Comm, port: &Port) {
    let (posted, rings) = (link.posted(), comm.report().rings);
    let ticket = port.get(0, side.words(0, 1)).expect("room");
    until("the post", || link.posted() == posted + 1);
    thread::scope(|scope| {
        scope.spawn(|| drop(ticket));
        until("its ring to be replaced", || {
            drop(plain(link, side, comm));
            comm.report().rings > rings
        });
        link.complete(1);
    });
    assert!(!link.has_ended(), "it was done in time");
    assert!(port.signal(1, Weak).is_err(), "it is closed");
}

/// Puts by `putter`, and leaves it under way.
fn put(link: &Held, side: &Side, putter: &Port) {
    let posted = link.posted();
    drop(putter.put(&*side.words(16, 2), 0).expect("room").detach());
    until("the post", || link.posted() == posted + 1);
}

/// That a strong signal of `teller` waits for what is under way by other rings.
fn is_held_back(link: &Held, teller: &Port) {
    let posted = link.posted();
    let told = teller.with_patience(PATIENCE / 4).signal(1, Strong).map(drop);
    assert!(matches!(told, Err(SendError::TimedOut { .. })), "{told:?}");
    assert_eq!(link.posted(), posted, "it vouched for what was not done");
}

/// That a strong signal of `teller` is sent.
fn is_sent(link: &Held, log: &Log, teller: &Port) {
    let posted = link.posted();
    let mut ticket = teller.signal(1, Strong).expect("nothing is under way");
    until("the post", || link.posted() == posted + 1);
    assert_eq!(lines(log).last(), Some(&("a", 0, STRONG)));
    link.complete(1);
    ticket.wait(in_time()).expect("done");
}

/// Has a task of `port` refused, which ends its ring with that undone.
fn break_it(link: &Held, port: &Port) {
    link.before(Before::Refusal { at: link.posted() + 1 });
    let told = port.signal(1, Weak).expect("room").wait(in_time());
    assert!(matches!(told, Err(SendError::Link(LinkError::Foreign(_)))), "{told:?}");
    link.before(Before::Nothing);
}

/// That strong signals of `port` are refused, each time, and weak ones are not.
fn is_refused(link: &Held, port: &Port) {
    for _ in 0..2 {
        let told = port.signal(1, Strong).map(drop);
        assert!(matches!(told, Err(SendError::Link(LinkError::Foreign(_)))), "{told:?}");
    }
    let posted = link.posted();
    let mut weak = port.signal(1, Weak).expect("it vouches for itself");
    until("the post", || link.posted() == posted + 1);
    link.complete(1);
    weak.wait(in_time()).expect("done");
}

/// What goes by a ring and by the one that replaced it is in one order.
#[test]
fn strong_by_an_old_channel_and_a_put_by_the_new() {
    let ([zero, _one], comm, log) = (pair(), comm(2), Log::default());
    let link = Held::over(&zero, "a", &log);
    let [first, old] = two_ports(&link, &zero, &comm, [0, 1]);
    end_a_ring(&link, &zero, &comm, &first);
    let new = link.port(&zero, &comm, 2);
    for (putter, teller) in [(&new, &old), (&old, &new)] {
        put(&link, &zero, putter);
        is_held_back(&link, teller);
        link.complete(1);
        is_sent(&link, &log, teller);
    }
}

/// The same over rings that were replaced twice: the newest waits for the oldest, and the oldest for the newest.
#[test]
fn order_is_kept_over_two_replacements() {
    let ([zero, _one], comm, log) = (pair(), comm(2), Log::default());
    let link = Held::over(&zero, "a", &log);
    let [first, oldest] = two_ports(&link, &zero, &comm, [0, 1]);
    end_a_ring(&link, &zero, &comm, &first);
    let [second, older] = two_ports(&link, &zero, &comm, [2, 3]);
    end_a_ring(&link, &zero, &comm, &second);
    let newest = link.port(&zero, &comm, 4);
    assert_eq!(comm.report().rings, 6);
    let all = [&oldest, &older, &newest];
    for teller in 0..3 {
        for other in (0..3).filter(|other| *other != teller) {
            put(&link, &zero, all[other]);
        }
        for _ in 0..2 {
            is_held_back(&link, all[teller]);
            link.complete(1);
        }
        is_sent(&link, &log, all[teller]);
    }
}

/// Nobody vouches for what a ring beside his own left undone; a port that was opened after it was closed does not
/// mean it.
#[test]
fn strong_fails_for_good_beside_a_ring_that_ended_undone() {
    let ([zero, _one], comm, log) = (pair(), comm(2), Log::default());
    let link = Held::over(&zero, "a", &log);
    let [first, sibling] = two_ports(&link, &zero, &comm, [0, 1]);
    break_it(&link, &first);
    is_refused(&link, &sibling);
    let new = link.port(&zero, &comm, 2);
    is_sent(&link, &log, &new);
    // The same of a ring that was opened after this one, and ends.
    let beside_the_new = link.port(&zero, &comm, 3);
    break_it(&link, &beside_the_new);
    [&sibling, &new].into_iter().for_each(|port| is_refused(&link, port));
    is_sent(&link, &log, &link.port(&zero, &comm, 4));
}

/// The same of one that was opened later and ended, also once nobody has it any more.
#[test]
fn strong_fails_for_good_once_a_newer_ring_has_ended_undone() {
    let ([zero, _one], comm, log) = (pair(), comm(2), Log::default());
    let link = Held::over(&zero, "a", &log);
    let [first, oldest] = two_ports(&link, &zero, &comm, [0, 1]);
    end_a_ring(&link, &zero, &comm, &first);
    is_sent(&link, &log, &oldest);
    let newer = two_ports(&link, &zero, &comm, [2, 3]);
    break_it(&link, &newer[0]);
    is_refused(&link, &oldest);
    break_it(&link, &newer[1]);
    drop(newer);
    settle(&comm);
    assert_eq!(comm.report().rings, 4);
    let newest = link.port(&zero, &comm, 4);
    assert_eq!(comm.report().rings, 4, "those two are forgotten");
    is_refused(&link, &oldest);
    is_sent(&link, &log, &newest);
}

/// Ports of a life of the peer that is over are told so; those that are opened after it was started again go by rings of
/// their own, and mean nothing that was asked of the dead.
#[test]
fn a_peer_that_is_started_again() {
    let ([zero, _one], comm, log) = (pair(), comm(1), Log::default());
    let link = Held::over(&zero, "a", &log);
    let old = link.port(&zero, &comm, 0);
    is_sent(&link, &log, &old);
    put(&link, &zero, &old);
    let former = link.start_again();
    let dead = Ending::PeerDead { rank: Rank(1) };
    former.end(dead);
    let new = link.port(&zero, &comm, 1);
    assert_eq!(comm.report().rings, 2);
    is_sent(&link, &log, &new);
    let told = old.quiet(in_time()).expect_err("the dead do nothing");
    let SendError::Ended { ending, done, wanted, .. } = told else { panic!("{told}") };
    assert_eq!((ending, done, wanted), (dead, Seq::new(1), Seq::new(2)));
    let refused = old.signal(1, Weak).map(drop).expect_err("it is closed");
    assert!(refused.is_peer_lost(), "{refused}");
    is_sent(&link, &log, &new);
    // Nothing was under way of this one when the peer died.
    let idle = link.start_again();
    idle.end(dead);
    is_sent(&link, &log, &link.port(&zero, &comm, 2));
    let told = new.put_value(1, 0).expect("not known yet").wait(in_time());
    assert!(told.as_ref().is_err_and(SendError::is_peer_lost), "{told:?}");
    link.complete(1);
    is_sent(&link, &log, &link.port(&zero, &comm, 3));
}

/// The same over a link whose peers are started again for real: both ways lead to the peer that there is.
#[test]
fn ports_lead_to_the_life_that_they_were_opened_for() {
    let (comm, shape) = (comm(1), SegmentShape::new(2, 4, 1 << 16));
    let segment = |rank, epoch| {
        Segment::create(shape, identity([0; 16], Rank(rank), 2, epoch)).expect("a segment")
    };
    let (near, mut lives) = (ShmLink::new(segment(0, 0)), Vec::new());
    let source = near.register(&near.segment().allocate(64).expect("room")).expect("registered");
    let (near, mut ports) = (Arc::new(near), Vec::<Port>::new());
    for epoch in 0..3 {
        let far = ShmLink::new(segment(1, epoch));
        let landing = far.register(&far.segment().allocate(64).expect("room")).expect("registered");
        if epoch == 0 {
            near.connect(Rank(1), far.segment().clone()).expect("connected");
        } else {
            near.reconnect(Rank(1), far.segment().clone()).expect("it has a higher epoch");
        }
        let target = near.attach(Rank(1), landing.key().expect("a key")).expect("attached");
        let signal = near.attach_signal(Rank(1), 0).expect("a free slot");
        let link: Arc<dyn Link> = Arc::clone(&near) as _;
        let port = comm.port(&link, source.clone(), target, Some(signal)).expect("a port");
        let ring = port.in_mode(Mode::Ring).expect("always");
        for old in &ports {
            let told = old.put_value(9, 0).and_then(|mut ticket| ticket.wait(in_time()));
            assert!(told.as_ref().is_err_and(SendError::is_peer_lost), "{told:?}");
        }
        let number = u64::from(epoch) + 1;
        for port in [&ring, &port.in_mode(Mode::Direct).expect("mapped")] {
            port.put_value(number, 0).expect("room").wait(in_time()).expect("done");
            port.signal(1, Strong).expect("room").wait(in_time()).expect("done");
        }
        ports.push(ring);
        lives.push((far, landing, number));
    }
    for (far, landing, number) in &lives {
        assert_eq!(common::words(landing.block(), 0, 1), [*number]);
        let heard = far.segment().signals().slot(SlotId::new(0, 0)).expect("there").value();
        assert_eq!(heard, Seq::new(2));
    }
}

/// A call by handles of a life that is over ends its ring as the dead would, and only that.
#[test]
fn a_ring_that_ends_for_a_peer_that_lives_is_replaced() {
    let ([zero, _one], comm, log) = (pair(), comm(1), Log::default());
    let link = Held::over(&zero, "a", &log);
    let stale = link.port(&zero, &comm, 0);
    link.before(Before::Death { at: 1 });
    let told = stale.signal(1, Weak).expect("room").wait(in_time());
    assert_eq!(told, Err(SendError::Link(LinkError::PeerDead { peer: Rank(1) })));
    link.before(Before::Nothing);
    is_sent(&link, &log, &link.port(&zero, &comm, 1));
    assert_eq!(comm.report().rings, 2);
}

/// Who lets go of bytes of a life that is over does not end the one that followed it.
#[test]
fn a_ticket_of_a_former_life_leaves_the_new_one_alone() {
    let ([zero, _one], comm) = (pair(), comm(1));
    let link = Held::over(&zero, "a", &Log::default());
    let old = link.port(&zero, &comm, 0);
    let ticket = old.get(0, zero.words(0, 1)).expect("room");
    until("the post", || link.posted() == 1);
    let former = link.start_again();
    let started = Instant::now();
    drop(ticket);
    assert!(started.elapsed() >= PATIENCE * 2, "{:?}", started.elapsed());
    assert_eq!((link.has_ended(), former.ending()), (false, None));
    former.end(Ending::PeerDead { rank: Rank(1) });
}
