//! Rank 0: the one whose kernels, or whose host, send.

use std::collections::VecDeque;

use pontoon::{
    Access, Bound, CpuDevice, Engine, Kernel, Seq, Stream,
    comm::{Comm, CommReport, Mode, Port, Settings, Trigger},
    hal::link::{Order, Remote, RemoteSignal},
    signal::{Host, Nanos, Os, Rank, TunedRing, Waiter},
    world::Way,
};
use rustix::time::{ClockId, clock_gettime};

use super::{
    kernels::{
        LARGE, Outcome, WINDOW, WORDS, computing, firing, putting, putting_over, sending,
        streaming, streaming_by, waiting_in_vain,
    },
    side::{Mine, lazily},
    step::{Before, Led},
};
use crate::bench::{
    BenchError,
    pin::pin_to,
    ranks::{Seat, talk::PATIENCE},
};

/// Messages of the host's that a kernel works on, and those that the link does: a window in all.
const EACH: usize = WINDOW / 2;

/// Rank 0's part of both halves.
pub(super) struct Initiator {
    stream: Stream<CpuDevice>,
    comm: Comm,
    way: Way,
    source: Mine,
    target: Remote,
    kernels: Vec<Kernels>,
    /// What triggers are prepared by.
    port: Port,
    computing: Kernel,
    outcome: Outcome,
    /// Of the messages that the host sends.
    signal: RemoteSignal,
    answers: Waiter,
    answered: Seq,
    cpu: f64,
    reported: CommReport,
    /// Where proxies are to be, and where this thread.
    seats: [usize; 2],
}

/// Those of one way.
struct Kernels {
    led: Led,
    one: Kernel,
    many: Kernel,
    puts: Kernel,
}

impl Initiator {
    pub(super) fn open(
        seat: Seat<'_>,
        device: &CpuDevice,
        way: Way,
        source: Mine,
        target: Remote,
        answers: Waiter,
    ) -> Result<Self, BenchError> {
        let stream = Stream::open(device, Engine::Compute, "initiate")?;
        pin_to(seat.proxy)?;
        let comm = Comm::open(Rank(0), patient(Settings::default()))?;
        pin_to(seat.host)?;
        let auto = way.port(&comm, &source.shared, &target, Some(way.signal(0)?))?;
        let outcome = Outcome::default();
        let kernels = |led, port: &Port| {
            let with = |kernel: fn(Port, Outcome) -> Kernel| kernel(port.clone(), outcome.clone());
            Kernels { led, one: with(sending), many: with(streaming), puts: with(putting) }
        };
        let mut all = vec![kernels(Led::Auto, &auto)];
        for (led, mode) in [(Led::Direct, Mode::Direct), (Led::Ring, Mode::Ring)] {
            // Where the peer's memory is not mapped, a step that asks for it fails.
            if let Ok(port) = auto.in_mode(mode) {
                all.push(kernels(led, &port));
            }
        }
        let signal = way.signal(1)?;
        let (answered, reported) = (answers.value(), comm.report());
        let (kernels, computing, cpu) = (all, computing(), 0.0);
        Ok(Self {
            stream,
            comm,
            way,
            source,
            target,
            kernels,
            port: auto,
            computing,
            outcome,
            signal,
            answers,
            answered,
            cpu,
            reported,
            seats: [seat.proxy, seat.host],
        })
    }

    /// Sends `count` messages from `number` on, each once the one before was answered.
    pub(super) fn messages(
        &mut self,
        led: Led,
        bytes: usize,
        count: u32,
        number: u64,
    ) -> Result<(), BenchError> {
        let kernel = match led {
            // It ends with the kernel: the proxy would look at it in all that is measured later.
            Led::Triggered => firing(self.trigger(0, bytes)?, self.outcome.clone()),
            _ => self.kernel(led, |kernels| &kernels.one)?,
        };
        let before = busy();
        for number in number..number + u64::from(count) {
            let access = Access::write(&self.source.region, 0..bytes);
            let computed = self.stream.launch("message", &kernel, [access], [number])?;
            if led == Led::Host {
                computed.wait(Bound::within(PATIENCE))?;
                self.send(0, bytes)?;
            }
            self.await_answer()?;
        }
        self.cpu = busy().since(before).0 as f64 / f64::from(count.max(1));
        Ok(())
    }

    /// Sends `count` messages from `number` on, a window of them under way. Gives how many a second.
    pub(super) fn load(
        &mut self,
        led: Led,
        bytes: usize,
        count: u32,
        number: u64,
    ) -> Result<f64, BenchError> {
        let kernel = match led {
            Led::Triggered => {
                let triggers = (0..WINDOW).map(|place| self.trigger(place * bytes, bytes));
                streaming_by(triggers.collect::<Result<_, _>>()?, self.outcome.clone())
            }
            _ => self.kernel(led, |kernels| &kernels.many)?,
        };
        let start = Os.now();
        if led == Led::Host {
            self.load_by_host(bytes, number..number + u64::from(count))?;
        } else {
            let access = Access::write(&self.source.region, 0..WINDOW * bytes);
            let arguments = [number, count.into(), bytes as u64];
            drop(self.stream.launch("messages", &kernel, [access], arguments)?);
        }
        self.await_answer()?;
        Ok(f64::from(count) * 1e9 / Os.now().since(start).0 as f64)
    }

    /// A kernel a message: it cannot say before its end that bytes are to be sent.
    fn load_by_host(
        &mut self,
        bytes: usize,
        numbers: std::ops::Range<u64>,
    ) -> Result<(), BenchError> {
        let bound = Bound::within(PATIENCE);
        let (mut computed, mut sent) = (VecDeque::with_capacity(EACH), VecDeque::new());
        for (message, number) in numbers.enumerate() {
            if computed.len() == EACH
                && let Some((at, fence)) = computed.pop_front()
            {
                pontoon::Fence::wait(&fence, bound)?;
                sent.push_back(self.send(at, bytes)?);
            }
            if sent.len() == EACH
                && let Some(oldest) = sent.pop_front()
            {
                self.way.done(oldest, bound)?;
            }
            let at = message % WINDOW * bytes;
            let access = Access::write(&self.source.region, at..at + bytes);
            let fence = self.stream.launch("message", &self.computing, [access], [number])?;
            computed.push_back((at, fence));
        }
        for (at, fence) in computed {
            fence.wait(bound)?;
            self.send(at, bytes)?;
        }
        Ok(())
    }

    /// Puts of 8 bytes by the proxy: nanoseconds until all are done.
    pub(super) fn puts(&mut self, puts: u32, number: u64) -> Result<f64, BenchError> {
        let kernel = self.kernel(Led::Ring, |kernels| &kernels.puts)?;
        let access = Access::write(&self.source.region, 0..WORDS * size_of::<u64>());
        let done = self.stream.launch("puts", &kernel, [access], [number, puts.into()])?;
        self.await_answer()?;
        done.wait(Bound::within(PATIENCE))?;
        Ok(self.outcome.nanos())
    }

    /// Puts of so many bytes over rings like these: nanoseconds until all are done. Then the host tells
    /// rank 1.
    pub(super) fn rings(
        &mut self,
        ring: TunedRing,
        bytes: usize,
        number: u64,
    ) -> Result<f64, BenchError> {
        pin_to(self.seats[0])?;
        let comm = Comm::open(Rank(0), patient(Settings::default().with(ring)));
        pin_to(self.seats[1])?;
        let (comm, (span, count)) = (comm?, rings_load(bytes));
        let port = |_| Ok(self.way.port(&comm, &self.source.shared, &self.target, None)?);
        // One each: ports are dealt to rings in turn.
        let ports = (0..ring.rings).map(port).collect::<Result<Vec<Port>, BenchError>>()?;
        let ports: Result<Vec<_>, _> = ports.iter().map(|port| port.in_mode(Mode::Ring)).collect();
        let kernel = putting_over(ports?, self.outcome.clone());
        let access = Access::write(&self.source.region, 0..span);
        let arguments = [number, count, bytes as u64];
        let done = self.stream.launch("rings", &kernel, [access], arguments)?;
        done.wait(Bound::within(PATIENCE))?;
        self.outcome.check()?;
        let Self { way, signal, .. } = self;
        way.tell(signal, 1, Order::Strong)?;
        self.await_answer()?;
        Ok(self.outcome.nanos())
    }

    /// A wait through a proxy that is gone: nanoseconds beyond its bound.
    pub(super) fn dead_proxy(&mut self) -> Result<f64, BenchError> {
        let comm = Comm::open(Rank(0), Settings::default())?;
        let port = self.way.port(&comm, &self.source.shared, &self.target, None)?;
        let port = port.in_mode(Mode::Ring)?;
        comm.kill_proxy();
        let kernel = waiting_in_vain(port, self.outcome.clone());
        let access = Access::write(&self.source.region, 0..size_of::<u64>());
        let done = self.stream.launch("in vain", &kernel, [access], [])?;
        done.wait(Bound::within(PATIENCE))?;
        self.outcome.check()?;
        Ok(self.outcome.nanos())
    }

    /// What it knows of what it did before.
    pub(super) fn ask(&mut self, before: Before) -> f64 {
        let (now, then) = (self.comm.report(), self.reported);
        match before {
            Before::Cpu => self.cpu,
            Before::Depth => now.deepest as f64,
            Before::Use => {
                self.reported = now;
                let busy = now.busy_rounds - then.busy_rounds;
                let all = busy + now.idle_rounds - then.idle_rounds;
                100.0 * busy as f64 / all.max(1) as f64
            }
        }
    }

    /// The host's own way: what a kernel wrote, and the signal for it.
    fn send(&mut self, at: usize, bytes: usize) -> Result<Seq, BenchError> {
        let Self { way, source, target, signal, .. } = self;
        let range = at..at + bytes;
        Ok(way.write_signal(&source.shared, range, target, at, signal, 1, Order::Weak)?)
    }

    fn await_answer(&mut self) -> Result<(), BenchError> {
        self.answered = self.answered + 1;
        match self.way.wait(&self.answers, self.answered, lazily(), "answer") {
            Ok(observed) => {
                observed.acq_fence();
                self.outcome.check()
            }
            // A kernel that did not send has told why.
            Err(error) => self.outcome.check().and(Err(error.into())),
        }
    }

    /// What sends `bytes` from `at` on, and their signal, whenever it is fired.
    fn trigger(&self, at: usize, bytes: usize) -> Result<Trigger, BenchError> {
        Ok(self.port.prepare().put(at..at + bytes, at)?.signal(1)?.arm()?)
    }

    fn kernel(&self, led: Led, which: impl Fn(&Kernels) -> &Kernel) -> Result<Kernel, BenchError> {
        if led == Led::Host {
            return Ok(self.computing.clone());
        }
        let found = self.kernels.iter().find(|kernels| kernels.led == led);
        found.map(|kernels| which(kernels).clone()).ok_or(BenchError::OutOfStep)
    }
}

/// Puts of so many bytes: the bytes of memory that they go round in, and how many they are.
pub(super) fn rings_load(bytes: usize) -> (usize, u64) {
    if bytes >= LARGE { (4 * bytes, 16) } else { (WORDS * size_of::<u64>(), 100_000) }
}

/// The same rings, whose proxy may be without a processor for as long as a step waits: what is measured on a busy
/// machine takes longer, and does not fail.
fn patient(mut settings: Settings) -> Settings {
    (settings.stall, settings.patience) = (PATIENCE, PATIENCE);
    settings
}

/// The processor time of this process so far.
fn busy() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        thread,
        time::{Duration, Instant},
    };

    use pontoon::{
        Bound, Seq,
        comm::{Comm, Mode, Settings},
        hal::link::Link,
        shm::{ShmLink, identity},
        signal::{Rank, Segment, SegmentShape, TunedRing},
    };

    use super::{PATIENCE, patient};

    /// Longer than a ring that nobody has set anything of lets its proxy stand still.
    const STILL: Duration = Duration::from_secs(2);

    #[test]
    fn a_proxy_without_a_processor_does_not_end_a_measurement() {
        let ring = TunedRing { depth: 64, batch: 8, rings: 2 };
        let settings = patient(Settings::default().with(ring));
        assert_eq!((settings.depth, settings.batch, settings.rings), (64, 8, 2));
        assert!(STILL > Settings::default().stall);
        let segments = [0, 1].map(|rank| {
            let shape = SegmentShape::new(2, 2, 1 << 16);
            Segment::create(shape, identity([0; 16], Rank(rank), 2, 0)).expect("a segment")
        });
        let [one, two] = segments.each_ref().map(|segment| ShmLink::new(segment.clone()));
        one.connect(Rank(1), segments[1].clone()).expect("connected");
        let [source, landing] = [&one, &two].map(|link| {
            link.register(&link.segment().allocate(64).expect("room")).expect("registered")
        });
        let target = one.attach(Rank(1), landing.key().expect("a key")).expect("attached");
        let link: Arc<dyn Link> = Arc::new(one);
        let comm = Comm::open(Rank(0), settings).expect("a proxy");
        let port = comm.port(&link, source, target, None).expect("a port");
        let port = port.in_mode(Mode::Ring).expect("always");
        comm.stop_proxy(true);
        drop(port.put_value(1, 0).expect("room").detach());
        let started = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(STILL);
                comm.stop_proxy(false);
            });
            port.quiet(Bound::within(PATIENCE)).expect("it goes on in time");
        });
        assert!(started.elapsed() >= STILL);
        assert_eq!(port.progress().done, Seq::new(1));
    }
}
