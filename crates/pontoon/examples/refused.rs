//! One program for each thing that a session refuses, and what it says: `cargo run -p pontoon
//! --example refused`.

use std::{error::Error, time::Duration};

use pontoon::{
    Buffer, CpuDevice, Engine, Failure, Kernel, Patience, Refusal, Runtime, Session, StreamId,
    queue::Completed,
};

type Outcome = Result<(), Box<dyn Error>>;
type Program = fn(&Runtime) -> Outcome;

fn main() -> Result<(), Failure> {
    let runtime = Runtime::cpu(2)?;
    let programs: [(&str, Program); 8] = [
        ("read after write", read_after_write),
        ("write after read", write_after_read),
        ("write after write", write_after_write),
        ("host read too early", host_read),
        ("use after free", use_after_free),
        ("two streams wait for each other", circle),
        ("a wait for what nobody signals", never_signalled),
        ("a command that takes too long", timed_out),
    ];
    for (name, program) in programs {
        match program(&runtime) {
            Ok(()) => return Err(format!("{name}: nothing was refused").into()),
            Err(error) => println!("{name}\n    {error}\n"),
        }
    }
    Ok(())
}

/// A session that checks, with a stream on each of two devices and a buffer.
struct Setting<'d> {
    session: Session<'d, CpuDevice>,
    first: StreamId,
    second: StreamId,
    buffer: Buffer<pontoon::cpu::Region, u32>,
}

impl<'d> Setting<'d> {
    fn new(runtime: &'d Runtime) -> Result<Self, Box<dyn Error>> {
        let [one, other, ..] = runtime.devices() else { return Err("two devices".into()) };
        let mut session = Session::check();
        let first = session.stream(one, Engine::Compute, "first")?;
        let second = session.stream(other, Engine::Compute, "second")?;
        Ok(Self { buffer: Buffer::allocate(one, 64)?, session, first, second })
    }

    fn writes(&mut self, on: StreamId, label: &'static str) -> Result<(), Refusal> {
        let kernel = Kernel::new(|kernel| kernel.write::<u32>(0).fill(1));
        self.session.launch(on, label, &kernel, [self.buffer.write(..)], []).map(drop)
    }

    fn reads(&mut self, on: StreamId, label: &'static str) -> Result<(), Refusal> {
        let kernel = Kernel::new(|_| {});
        self.session.launch(on, label, &kernel, [self.buffer.read(8..16)], []).map(drop)
    }
}

fn read_after_write(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    it.writes(it.first, "produce")?;
    Ok(it.reads(it.second, "consume")?)
}

fn write_after_read(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    it.reads(it.first, "save")?;
    Ok(it.writes(it.second, "refill")?)
}

fn write_after_write(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    it.writes(it.first, "clear")?;
    Ok(it.writes(it.second, "accumulate")?)
}

fn host_read(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    it.writes(it.first, "download")?;
    it.session.to_vec(&it.buffer)?;
    Ok(())
}

fn use_after_free(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    it.writes(it.first, "produce")?;
    it.session.drain(it.first, Patience::default())?;
    it.session.free(&it.buffer)?;
    Ok(it.reads(it.second, "consume")?)
}

fn circle(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    let (ping, pong) = (it.session.semaphore("ping"), it.session.semaphore("pong"));
    let nothing = Kernel::new(|_| {});
    for (stream, label, wait, signal) in
        [(it.first, "serve", pong, ping), (it.second, "return", ping, pong)]
    {
        let mut batch = it.session.batch();
        batch.wait_semaphore(wait, 1).launch(label, &nothing, [], []).signal(signal, 1);
        it.session.submit(stream, batch.seal()?)?;
    }
    Ok(())
}

fn never_signalled(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    let ready = it.session.semaphore("ready");
    let mut batch = it.session.batch();
    batch.wait_semaphore(ready, 1).launch("consume", &Kernel::new(|_| {}), [], []);
    let fence = it.session.submit(it.first, batch.seal()?)?;
    let _: Completed = it.session.wait(&fence, Patience::default())?;
    Ok(())
}

fn timed_out(runtime: &Runtime) -> Outcome {
    let mut it = Setting::new(runtime)?;
    let slow = Kernel::new(|_| std::thread::sleep(Duration::from_millis(200)));
    let slow = it.session.launch(it.first, "simulate", &slow, [it.buffer.write(..)], [])?;
    it.session.stream_wait(it.second, &slow)?;
    it.reads(it.second, "render")?;
    Ok(it.session.drain(it.second, Patience::within(Duration::from_millis(20)))?)
}
