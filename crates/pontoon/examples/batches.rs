//! Batches, events and semaphores: a producer on one device, two consumers on another, and a third
//! stream whose batch is submitted before what it waits for. `cargo run -p pontoon --example batches`.

use pontoon::{Buffer, Engine, Failure, Kernel, Patience, Runtime, Session};

fn main() -> Result<(), Failure> {
    let runtime = Runtime::cpu(2)?;
    let [left, right] = runtime.devices() else { return Err("two devices".into()) };
    let mut session = Session::check();
    let produce = session.stream(left, Engine::Compute, "produce")?;
    let [even, odd, sum] =
        ["even", "odd", "sum"].map(|label| session.stream(right, Engine::Compute, label));
    let (even, odd, sum) = (even?, odd?, sum?);
    let numbers = Buffer::<_, u64>::allocate(left, 1024)?;
    let parts = Buffer::<_, u64>::allocate(right, 3)?;
    let counted = Kernel::new(|kernel| {
        kernel.write::<u64>(0).iter_mut().zip(1..).for_each(|(number, next)| *number = next);
    });
    let every_second = Kernel::new(|kernel| {
        let first = kernel.argument(0) as usize;
        kernel.write::<u64>(1)[0] = kernel.read::<u64>(0).iter().skip(first).step_by(2).sum();
    });
    let add = Kernel::new(|kernel| kernel.write::<u64>(1)[0] = kernel.read::<u64>(0).iter().sum());

    // Submitted first: parked until both signals have been submitted.
    let (evens, odds) = (session.semaphore("evens"), session.semaphore("odds"));
    let mut batch = session.batch();
    batch.wait_semaphore(evens, 1).wait_semaphore(odds, 1);
    batch.launch("add", &add, [parts.read(..2), parts.write(2..)], []);
    let added = session.submit(sum, batch.seal()?)?;
    print!("{}", session.pending());

    let ready = session.event("ready");
    let mut batch = session.batch();
    batch.launch("count", &counted, [numbers.write(..)], []).record(ready);
    session.submit(produce, batch.seal()?)?;
    for (at, stream, done) in [(0, even, evens), (1, odd, odds)] {
        let mut batch = session.batch();
        batch.wait_event(ready);
        batch.launch("pick", &every_second, [numbers.read(..), parts.write(at..=at)], [at as u64]);
        batch.signal(done, 1);
        session.submit(stream, batch.seal()?)?;
    }
    let _ = session.wait(&added, Patience::default())?;
    println!("{:?}", session.to_vec(&parts)?); // [262144, 262656, 524800]
    Ok(())
}
