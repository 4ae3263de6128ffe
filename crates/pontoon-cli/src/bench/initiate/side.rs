//! One rank: what both have, and what rank 1 does, to whom the messages come.
//!
//! Rank 1 takes the time: the first word of a message is when it was decided to send it, by the clock
//! that all processes of a machine have in common. It looks at every message, after the time is
//! taken: at the first of each kind whole, at the others at both ends.

use pontoon::{
    Bound, CpuDevice, CpuSpec, Memory, Rank, Region, Seq,
    hal::link::{Order, RemoteSignal},
    signal::{Host, Nanos, Os, Waiter},
    world::{Options, Shared, Transport, Way, World, WorldError},
};

use super::{
    initiator::{Initiator, rings_load},
    kernels::{WINDOW, WORDS},
    step::{Led, Step},
};
use crate::bench::{
    BenchError,
    ranks::{
        Half, Seat,
        talk::{PATIENCE, Talk},
    },
    work::{checksum, fill},
};

/// Bytes of the memory that messages leave from and go to.
const SPAN: usize = 64 << 20;
/// The same where the largest messages are not sent.
const SPAN_UCX: usize = 16 << 20;
/// Counters that a rank grows at the other: the port's, and the host's.
const SLOTS: u32 = 2;
/// Messages before those that are timed.
const WARM_UP: u32 = 1;

/// One rank.
pub(in crate::bench) struct Side {
    world: World,
    /// Kept open: its memory and its stream are.
    _device: CpuDevice,
    talk: Talk,
    /// The number of the next message.
    number: u64,
    part: Part,
}

enum Part {
    Sends(Initiator),
    Receives(Receiver),
}

/// Memory of this rank.
pub(super) struct Mine {
    /// For its own processor to look at.
    pub(super) region: Region,
    pub(super) shared: Shared,
}

impl Half for Side {
    fn join(seat: Seat<'_>) -> Result<Result<Self, String>, BenchError> {
        let (transport, span) =
            if seat.ucx { (Transport::Ucx, SPAN_UCX) } else { (Transport::Shm, SPAN) };
        let bound = Bound::within(PATIENCE);
        let options = Options::default()
            .with_transport(transport)
            .with_slots(SLOTS)
            .with_heap(span + (1 << 20))
            .with_lost_after(PATIENCE)
            .with_bound(bound);
        let world = match World::open_in(seat.env, options) {
            Ok(world) => world,
            Err(WorldError::NoWay { why, .. }) => return Ok(Err(why)),
            Err(error) => return Err(error.into()),
        };
        let (rank, other) = (world.rank(), Rank(1 - world.rank().0));
        let device = CpuDevice::open(rank, CpuSpec { units: 1, ..CpuSpec::default() })?;
        let block = world.segment().allocate(span)?;
        let shared = world.share("messages", &block, bound)?;
        let mine = Mine { region: device.region_over(block)?, shared };
        let (target, way) = (world.find(other, "messages", bound)?, world.way(other)?);
        let heard = |slot| -> Result<Heard, BenchError> {
            let waiter = world.incoming(other, slot)?.waiter();
            Ok(Heard { at: waiter.value(), waiter })
        };
        let part = if rank == Rank(0) {
            Part::Sends(Initiator::open(seat, &device, way, mine, target, heard(0)?.waiter)?)
        } else {
            let (of_kernels, of_host) = (heard(0)?, heard(1)?);
            let answer = way.signal(0)?;
            let (landing, seen, checked) = (mine, Nanos(0), Vec::new());
            Part::Receives(Receiver { way, of_kernels, of_host, answer, landing, seen, checked })
        };
        let talk = Talk::open(seat.table, rank.0)?;
        // Nobody calls before the other has taken its slots.
        world.barrier("initiate", bound)?;
        Ok(Ok(Self { world, _device: device, talk, number: 1, part }))
    }

    fn lead(&mut self, word: u64) -> Result<f64, BenchError> {
        let step = Step::of(word).ok_or(BenchError::OutOfStep)?;
        let Part::Sends(sender) = &mut self.part else { return Err(BenchError::OutOfStep) };
        if let Step::Ask(before) = step {
            return Ok(sender.ask(before));
        }
        self.talk.tell(word);
        let number = self.number;
        self.number += numbers(step);
        let ours = match step {
            Step::Messages { led, bytes, count } => {
                sender.messages(led, bytes as usize, WARM_UP, number)?;
                let number = number + u64::from(WARM_UP);
                sender.messages(led, bytes as usize, count, number)?;
                None
            }
            Step::Load { led, bytes, count } => {
                Some(sender.load(led, bytes as usize, count, number)?)
            }
            Step::Puts { puts } => Some(sender.puts(puts, number)?),
            Step::Rings { ring, bytes } => Some(sender.rings(ring, bytes as usize, number)?),
            Step::DeadProxy => Some(sender.dead_proxy()?),
            Step::Ask(_) | Step::End => None,
        };
        let theirs = self.talk.answer()?;
        Ok(ours.unwrap_or(theirs))
    }

    fn follow(&mut self) -> Result<bool, BenchError> {
        let step = Step::of(self.talk.next()?).ok_or(BenchError::OutOfStep)?;
        let Part::Receives(receiver) = &mut self.part else { return Err(BenchError::OutOfStep) };
        let number = self.number;
        self.number += numbers(step);
        let measured = match step {
            Step::Messages { led, bytes, count } => {
                receiver.messages(led, bytes as usize, WARM_UP, number)?;
                receiver.messages(led, bytes as usize, count, number + u64::from(WARM_UP))?
            }
            Step::Load { led, bytes, count } => {
                receiver.load(led, bytes as usize, count, number)?;
                0.0
            }
            Step::Puts { puts } => {
                receiver.puts(Led::Ring, WORDS.min(puts as usize), number)?;
                0.0
            }
            Step::Rings { bytes, .. } => {
                let (span, _) = rings_load(bytes as usize);
                receiver.puts(Led::Host, span / size_of::<u64>(), number)?;
                0.0
            }
            Step::DeadProxy | Step::Ask(_) | Step::End => 0.0,
        };
        self.talk.done(measured);
        Ok(step != Step::End)
    }

    fn end() -> u64 {
        Step::End.word()
    }

    fn leave(self) -> Result<(), BenchError> {
        let Self { world, part, .. } = self;
        // The ports first: they hold the way.
        drop(part);
        Ok(world.leave(Bound::within(PATIENCE))?)
    }
}

/// How many numbers a step takes.
fn numbers(step: Step) -> u64 {
    match step {
        Step::Messages { count, .. } => u64::from(WARM_UP + count),
        Step::Load { count, .. } => count.into(),
        Step::Puts { .. } | Step::Rings { .. } => 1,
        Step::DeadProxy | Step::Ask(_) | Step::End => 0,
    }
}

/// Rank 1's part.
struct Receiver {
    way: Way,
    of_kernels: Heard,
    of_host: Heard,
    answer: RemoteSignal,
    landing: Mine,
    /// When the last message was seen.
    seen: Nanos,
    /// Kinds of messages of which one was looked at whole.
    checked: Vec<(Led, usize)>,
}

/// A counter that grows here.
struct Heard {
    waiter: Waiter,
    at: Seq,
}

impl Receiver {
    /// Nanoseconds from deciding to send a message until it is seen here: the median.
    fn messages(
        &mut self,
        led: Led,
        bytes: usize,
        count: u32,
        number: u64,
    ) -> Result<f64, BenchError> {
        let mut each = Vec::with_capacity(count as usize);
        for number in number..number + u64::from(count) {
            let seen = self.wait(led, 1, eagerly())?;
            let [decided] = self.landed(0)?;
            if decided <= self.seen.0 || decided > seen.0 {
                let expected = self.seen.0;
                let what = "is when a message was sent: it is not between the last one and now,";
                return Err(BenchError::Count { what, expected, found: decided });
            }
            self.seen = seen;
            each.push((seen.0 - decided) as f64);
            self.check(led, 0, bytes, number)?;
            self.tell()?;
        }
        each.sort_unstable_by(f64::total_cmp);
        Ok(each.get(each.len() / 2).copied().unwrap_or_default())
    }

    fn load(&mut self, led: Led, bytes: usize, count: u32, number: u64) -> Result<(), BenchError> {
        self.seen = self.wait(led, count, lazily())?;
        // What is left are the last ones, in the places that they go round in.
        for message in count.saturating_sub(WINDOW as u32)..count {
            let at = message as usize % WINDOW * bytes;
            self.check(led, at, bytes, number + u64::from(message))?;
        }
        self.tell()
    }

    /// What was put piece by piece, once rank 0's kernel or its host tells of it.
    fn puts(&mut self, led: Led, words: usize, seed: u64) -> Result<(), BenchError> {
        self.seen = self.wait(led, 1, lazily())?;
        let mut expected = vec![0; words];
        fill(&mut expected, seed, 0);
        self.compare("puts by the proxy", 0, &expected)?;
        self.tell()
    }

    /// Waits for `n` more messages. When they were seen.
    fn wait(&mut self, led: Led, n: u32, bound: Bound) -> Result<Nanos, BenchError> {
        let heard = if led == Led::Host { &mut self.of_host } else { &mut self.of_kernels };
        heard.at = heard.at + n;
        self.way.wait(&heard.waiter, heard.at, bound, "message")?.acq_fence();
        Ok(Os.now())
    }

    /// Fails unless message `number` lies at byte `at`.
    fn check(&mut self, led: Led, at: usize, bytes: usize, number: u64) -> Result<(), BenchError> {
        if bytes <= size_of::<u64>() {
            return Ok(());
        }
        let last = at + bytes - size_of::<u64>();
        let [found] = self.landed(last)?;
        BenchError::unless_equal("is the number at a message's end", number, found)?;
        if self.checked.contains(&(led, bytes)) {
            return Ok(());
        }
        self.checked.push((led, bytes));
        let mut expected = vec![0; bytes / size_of::<u64>()];
        fill(&mut expected, number, 0);
        let inner = expected.len() - 1;
        self.compare(led.name(), at + size_of::<u64>(), &expected[1..inner])
    }

    fn compare(&self, what: &'static str, at: usize, words: &[u64]) -> Result<(), BenchError> {
        let mut found = vec![0_u64; words.len()];
        self.landing.region.host_read(at, bytemuck::cast_slice_mut(&mut found))?;
        if found == words {
            return Ok(());
        }
        let [expected, found] = [words, &found].map(checksum);
        Err(BenchError::Checksum { what, expected, found })
    }

    /// The word at byte `at`.
    fn landed(&self, at: usize) -> Result<[u64; 1], BenchError> {
        let mut word = [0_u64];
        self.landing.region.host_read(at, bytemuck::cast_slice_mut(&mut word))?;
        Ok(word)
    }

    /// Has rank 0 go on.
    fn tell(&mut self) -> Result<(), BenchError> {
        self.way.tell(&mut self.answer, 1, Order::Weak)?;
        Ok(self.way.flush(Bound::within(PATIENCE))?)
    }
}

/// Spins, for what is timed; ends all the same.
fn eagerly() -> Bound {
    Bound::within(PATIENCE).spinning(u32::MAX)
}

/// Sleeps, so that what works has the CPU.
pub(super) fn lazily() -> Bound {
    Bound::within(PATIENCE).spinning(0).yielding(0)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, PoisonError},
        thread,
    };

    use pontoon::signal::{SignalTable, TunedRing};

    use super::*;
    use crate::bench::{
        initiate::step::Before,
        pin::CpuPair,
        ranks::rank::{SHAPE, invite, invited},
        spawn,
    };

    /// A job's folder goes by its name and by its process: here there is one of both.
    static ONE_JOB: Mutex<()> = Mutex::new(());

    /// Both ranks in this process; what each came to.
    fn ranks<T: Send>(
        cpus: CpuPair,
        lead: impl FnOnce(&mut Side) -> Result<T, BenchError> + Send,
    ) -> (Result<T, BenchError>, Result<(), BenchError>) {
        let _only = ONE_JOB.lock().unwrap_or_else(PoisonError::into_inner);
        let table = SignalTable::shared(SHAPE).expect("a table");
        let env = invite(&table).expect("a job");
        let join = |env: &_, cpu| {
            let seat = Seat { table: &table, env, ucx: false, proxy: cpu, host: cpu };
            Side::join(seat).map(|side| side.expect("one host"))
        };
        let sends = || {
            let mut side = join(&env, cpus.near)?;
            let measured = lead(&mut side)?;
            side.lead(Side::end())?;
            side.leave()?;
            Ok(measured)
        };
        let receives = || {
            let mut side = join(&invited(&table, Rank(1))?, cpus.far)?;
            while side.follow()? {}
            side.leave()
        };
        thread::scope(|scope| {
            let (first, second) = (spawn(scope, sends), spawn(scope, receives));
            let first = first.expect("a thread").join().expect("no panic");
            (first, second.expect("a thread").join().expect("no panic"))
        })
    }

    fn usable() -> Option<CpuPair> {
        let cpus = CpuPair::usable().expect("asked");
        if cpus.is_none() {
            println!("skipped: it needs two CPUs, and this process may use one");
        }
        cpus
    }

    #[test]
    fn what_is_measured_is_what_it_is_named_after() {
        let Some(cpus) = usable() else { return };
        let (measured, received) = ranks(cpus, |side| {
            for led in Led::ALL {
                for bytes in [8, 16, 4096] {
                    let took = side.lead(Step::Messages { led, bytes, count: 3 }.word())?;
                    assert!(took > 0.0, "{led:?} {bytes} {took}");
                    assert!(side.lead(Step::Ask(Before::Cpu).word())? > 0.0);
                    // Fewer than are under way at a time, and more.
                    for count in [3, 50] {
                        assert!(side.lead(Step::Load { led, bytes, count }.word())? > 0.0);
                    }
                }
            }
            assert!(side.lead(Step::Puts { puts: 10_000 }.word())? > 0.0);
            for bytes in [8, 1 << 20] {
                let ring = TunedRing { depth: 64, batch: 8, rings: 2 };
                assert!(side.lead(Step::Rings { ring, bytes }.word())? > 0.0);
            }
            let used = side.lead(Step::Ask(Before::Use).word())?;
            assert!(used > 0.0 && used <= 100.0, "{used}");
            assert!(side.lead(Step::Ask(Before::Depth).word())? >= 1.0);
            side.lead(Step::DeadProxy.word())
        });
        received.expect("whole");
        assert!(measured.expect("measured") >= 0.0);
    }

    #[test]
    fn a_message_that_is_not_the_next_one_is_noticed() {
        let Some(cpus) = usable() else { return };
        for led in [Led::Direct, Led::Ring, Led::Host] {
            let (measured, received) = ranks(cpus, |side| {
                side.number += 1;
                side.lead(Step::Messages { led, bytes: 64, count: 1 }.word())
            });
            measured.expect_err("nobody answers");
            let error = received.expect_err("it is another message");
            assert!(error.to_string().contains("is the number at a message's end"), "{error}");
        }
    }

    #[test]
    fn bytes_that_are_wrong_in_the_middle_are_noticed() {
        let Some(cpus) = usable() else { return };
        let ring = TunedRing { depth: 64, batch: 8, rings: 2 };
        for step in [Step::Puts { puts: 100 }, Step::Rings { ring, bytes: 8 }] {
            let (measured, received) = ranks(cpus, |side| {
                side.number += 1;
                side.lead(step.word())
            });
            measured.expect_err("nobody answers");
            let error = received.expect_err("other words");
            assert!(matches!(error, BenchError::Checksum { .. }), "{error}");
        }
    }
}
