//! L11, capabilities, and handles that are another's.

use super::{Checked, LinkSubject, World, patient, rank};
use crate::link::{Between, LinkError, Operation, Order};

const OPERATIONS: [Operation; 11] = [
    Operation::Write,
    Operation::Read,
    Operation::WriteSignal(Order::Strong),
    Operation::WriteSignal(Order::Weak),
    Operation::Signal(Order::Strong),
    Operation::Signal(Order::Weak),
    Operation::Add,
    Operation::PostAdd,
    Operation::CompareSwap,
    Operation::Fence,
    Operation::Flush,
];

/// L11: each operation is explained, by steps, as this link's on that peer.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn l11_each_operation_is_explained<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "L11", 2);
    let link = world.link(0);
    for operation in OPERATIONS {
        let told = world.good("explain", link.explain(rank(1), operation));
        let named = (told.operation, told.peer, told.link) == (operation, rank(1), link.name());
        world.holds(&format!("the {operation} is explained as another: {told}"), named);
        let steps = !told.steps.is_empty() && told.steps.iter().all(|step| !step.is_empty());
        world.holds(&format!("the {operation} has no steps"), steps);
        println!("{told}");
    }
    let nobody = link.explain(rank(9), Operation::Write);
    let told = matches!(nobody, Err(LinkError::NoSuchPeer { .. }));
    world.holds("an operation on a rank that was never connected is explained", told);
    Checked::Yes
}

/// What a link can do on the way to a peer stays as it is while that is connected, and makes sense.
///
/// # Panics
///
/// If the link breaks the clause.
pub fn capabilities_stay_as_they_are<S: LinkSubject>(subject: &S) -> Checked {
    let world = World::new(subject, "capabilities", 2);
    let link = world.link(0);
    let can = world.good("capabilities", link.capabilities(rank(1)));
    world.holds("a mapped peer takes part", !can.mapped || can.one_sided);
    let release = can.between == Between::Release;
    world.holds("a release store orders what is not mapped", !release || can.mapped);
    let region = world.registered(1, 0..4096);
    let (to, local) = (world.remote(0, 1, &region), world.registered(0, 0..4096));
    world.post(0, || link.write(&local, 0..4096, &to, 0));
    world.flush(0, 1);
    let after = world.good("capabilities", link.capabilities(rank(1)));
    world.holds("capabilities changed", after == can);
    world.holds("a link has another rank", link.rank() == rank(0) && !link.name().is_empty());
    Checked::Yes
}

/// A region, a signal or registered memory of another link, or of another peer than the rest, is
/// refused, and nothing was done.
///
/// # Panics
///
/// If the link takes one.
pub fn handles_of_others_are_refused<S: LinkSubject>(subject: &S) -> Checked {
    let [world, other] = [(); 2].map(|()| World::new(subject, "handles", 3));
    let regions = [&world, &other].map(|world| world.registered(1, 0..4096));
    let (to, theirs) = (world.remote(0, 1, &regions[0]), other.remote(0, 1, &regions[1]));
    let (local, foreign) = (world.registered(0, 0..4096), other.registered(0, 0..4096));
    let mut signal = world.signal(0, 1, 0);
    let (mut elsewhere, mut others) = (world.signal(0, 2, 0), other.signal(0, 1, 0));
    let link = world.link(0);
    let refused = |what: &str, result: Result<(), LinkError>| {
        let told = matches!(result, Err(LinkError::Foreign(_)));
        assert!(told, "handles: {what} was not refused as another's: {result:?}");
    };
    refused("registered memory", link.write(&foreign, 0..8, &to, 0).map(drop));
    refused("registered memory", link.read(&to, 0, &foreign, 0..8).map(drop));
    refused("a region", link.write(&local, 0..8, &theirs, 0).map(drop));
    refused("a region", link.write_inline(&[1], &theirs, 0).map(drop));
    refused("a region", link.read(&theirs, 0, &local, 0..8).map(drop));
    refused("a region", link.post_add(&theirs, 0, 1, None).map(drop));
    refused("registered memory", link.post_add(&to, 0, 1, Some((&foreign, 0))).map(drop));
    refused("a region", link.add(&theirs, 0, 1, patient()).map(drop));
    refused("a region", link.compare_swap(&theirs, 0, 0, 1, patient()).map(drop));
    refused("a signal", link.signal(&mut others, 1, Order::Weak).map(drop));
    let order = Order::Weak;
    let tell = |signal: &mut _| link.write_signal(&local, 0..8, &to, 0, signal, 1, order).map(drop);
    refused("another link's signal", tell(&mut others));
    refused("another peer's signal", tell(&mut elsewhere));
    refused("registered memory", link.owns(&foreign, &to, None));
    refused("a region", link.owns(&local, &theirs, None));
    refused("another link's signal", link.owns(&local, &to, Some(&mut others)));
    refused("another peer's signal", link.owns(&local, &to, Some(&mut elsewhere)));
    world.good("owns", link.owns(&local, &to, Some(&mut signal)));
    let number = world.post(0, || link.signal(&mut signal, 1, order));
    world.holds("a refused operation has a number", number.get() == 1);
    Checked::Yes
}
