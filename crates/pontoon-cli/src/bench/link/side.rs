//! One rank of the ping-pong over a link, and of the same without one.
//!
//! Both ranks share their memory by [`World`] and reach each other's by what it gives: the link that
//! programs use. Waits spin for as long as the bound allows, as the rivals' do. A rank calls by a put
//! and a signal; neither looks at the payload in the timed part, for the rivals do not either.

use std::{collections::VecDeque, time::Duration};

use pontoon::{
    Bound, CpuDevice, CpuSpec, Memory, Rank, Region,
    hal::link::{Order, Remote, RemoteSignal},
    signal::{Block, Host, LineRef, Nanos, Os, SlotId, Waiter, bare_copy, shim::Ordering::Relaxed},
    world::{Options, Shared, Transport, Way, World, WorldError},
};
use rustix::time::{ClockId, clock_gettime};

use super::{LARGEST, step::Step};
use crate::bench::{
    BenchError,
    pingpong::{SPIN, raw_publish, raw_wait},
    ranks::{
        Half, Seat,
        rank::OWN,
        talk::{PATIENCE, Talk},
    },
};

/// Signals by which the ranks call each other, taken in turn: how far a line is from two cores
/// depends on where it lies.
const CALLS: u32 = 32;
/// The first of the rival's payloads in the ranks' own table, behind its flags.
const PAYLOAD: u32 = CALLS;
const _: () = assert!(PAYLOAD + CALLS <= OWN);
/// How far apart the small payloads of different calls land.
const STRIDE: usize = 128;
const LANDING: usize = LARGEST + 4096;

/// How many puts a stream has under way.
const WINDOW: usize = 16;
/// Trips before those that are timed.
const WARM_UP: u32 = 2;
/// Blocks that a step's trips are timed in.
const BLOCKS: u32 = 5;

/// One rank.
pub(in crate::bench) struct Side {
    me: u32,
    world: World,
    way: Way,
    calls: Vec<Call>,
    blocks: usize,
    source: Mine,
    landing: Mine,
    /// What the bare copy goes to: memory of the same kind, at the same place within a page.
    spare: Block,
    /// The other's landing.
    target: Remote,
    raw: Vec<RawCall>,
    talk: Talk,
}

/// Memory of this rank.
struct Mine {
    block: Block,
    /// The same, for its own processor to look at.
    region: Region,
    shared: Shared,
}

/// A counter that grows there, and one that grows here. Both are at the same value between trips.
struct Call {
    signal: RemoteSignal,
    waiter: Waiter,
    at: usize,
}

/// The same of bare words.
struct RawCall {
    payload: LineRef,
    mine: LineRef,
    theirs: LineRef,
    at: u64,
}

impl Half for Side {
    fn join(seat: Seat<'_>) -> Result<Result<Self, String>, BenchError> {
        let Seat { table, env, ucx, .. } = seat;
        let transport = if ucx { Transport::Ucx } else { Transport::Shm };
        let options = Options::default()
            .with_transport(transport)
            .with_slots(CALLS)
            .with_lost_after(PATIENCE);
        let bound = Bound::within(PATIENCE);
        let world = match World::open_in(env, options.with_bound(bound)) {
            Ok(world) => world,
            Err(WorldError::NoWay { why, .. }) => return Ok(Err(why)),
            Err(error) => return Err(error.into()),
        };
        let me = world.rank().0;
        let other = Rank(1 - me);
        let device = CpuDevice::open(world.rank(), CpuSpec::default())?;
        let mine = |name, bytes| -> Result<Mine, BenchError> {
            let block = world.segment().allocate(bytes)?;
            let (region, shared) =
                (device.region_over(block.clone())?, world.share(name, &block, bound)?);
            Ok(Mine { block, region, shared })
        };
        let (source, landing) = (mine("source", LANDING)?, mine("landing", LANDING)?);
        let spare = world.segment().allocate(LANDING)?;
        let target = world.find(other, "landing", bound)?;
        let way = world.way(other)?;
        let calls = (0..CALLS)
            .map(|slot| {
                let waiter = world.incoming(other, slot)?.waiter();
                let at = slot as usize * STRIDE;
                Ok(Call { signal: way.signal(slot)?, waiter, at })
            })
            .collect::<Result<_, BenchError>>()?;
        let raw = (0..CALLS)
            .map(|slot| {
                let line = |row, slot| table.line(SlotId::new(row, slot));
                let payload = line(me, PAYLOAD + slot)?;
                Ok(RawCall { payload, mine: line(me, slot)?, theirs: line(1 - me, slot)?, at: 0 })
            })
            .collect::<Result<_, BenchError>>()?;
        let (blocks, talk) = (0, Talk::open(table, me)?);
        // Nobody calls before the other has taken its slots.
        world.barrier("calls", bound)?;
        Ok(Ok(Self { me, world, way, calls, blocks, source, landing, spare, target, raw, talk }))
    }

    fn lead(&mut self, word: u64) -> Result<f64, BenchError> {
        let step = Step::of(word).ok_or(BenchError::OutOfStep)?;
        self.talk.tell(word);
        let measured = self.take(step)?;
        let theirs = self.talk.answer()?;
        match step {
            Step::Verify { .. } => {
                let wrong = (measured + theirs) as u64;
                BenchError::unless_equal("bytes that arrived wrong", 0, wrong)?;
                Ok(0.0)
            }
            Step::Idle { .. } => Ok(measured.max(theirs)),
            _ => Ok(measured),
        }
    }

    fn follow(&mut self) -> Result<bool, BenchError> {
        let step = Step::of(self.talk.next()?).ok_or(BenchError::OutOfStep)?;
        let measured = self.take(step)?;
        self.talk.done(measured);
        Ok(step != Step::End)
    }

    fn end() -> u64 {
        Step::End.word()
    }

    fn leave(self) -> Result<(), BenchError> {
        Ok(self.world.leave(Bound::within(PATIENCE))?)
    }
}

impl Side {
    fn take(&mut self, step: Step) -> Result<f64, BenchError> {
        let leads = self.me == 0;
        match step {
            Step::Verify { bytes } => self.verify(bytes as usize),
            Step::Put { bytes, trips } => {
                let mut call = self.next_call();
                call.trips(bytes as usize, WARM_UP, leads)?;
                one_way(trips, |trips| call.trips(bytes as usize, trips, leads))
            }
            Step::PutEach { bytes, trips } => {
                let mut call = self.next_call();
                call.trips(bytes as usize, WARM_UP, leads)?;
                Ok(median(trips, 1, |trips| call.trips(bytes as usize, trips, leads))? / 2.0)
            }
            Step::Raw { bytes: 8, trips } => self.raw(trips, |raw, at| raw.store(at)),
            Step::Raw { bytes, trips } => {
                let (from, to) = (self.source.block.clone(), self.spare.clone());
                self.raw(trips, |_, _| bare_copy(&from, &to, bytes as usize))
            }
            Step::Flag { trips } => self.raw(trips, |_, _| {}),
            Step::Copy { bytes, times } if leads => {
                let copy = |times| {
                    (0..times)
                        .for_each(|_| bare_copy(&self.source.block, &self.spare, bytes as usize));
                    Ok(())
                };
                copy(1)?;
                median(BLOCKS, times / BLOCKS, copy)
            }
            Step::Stream { bytes, puts } => self.stream(bytes as usize, puts),
            Step::Idle { ms } => self.idle(Duration::from_millis(ms.into())),
            Step::Copy { .. } | Step::End => Ok(0.0),
        }
    }

    /// How many bytes arrived wrong.
    fn verify(&mut self, bytes: usize) -> Result<f64, BenchError> {
        let pattern = |rank: u32| {
            let seed = bytes as u32 ^ (rank + 1) << 16;
            (0..bytes as u32).map(move |at| ((at ^ seed).wrapping_mul(0x9E37_79B9) >> 24) as u8)
        };
        self.source.region.host_write(0, &pattern(self.me).collect::<Vec<_>>())?;
        let leads = self.me == 0;
        let mut call = self.next_call();
        let at = call.offset(bytes);
        call.trips(bytes, 1, leads)?;
        let mut found = vec![0; bytes];
        self.landing.region.host_read(at, &mut found)?;
        let wrong = found.iter().zip(pattern(1 - self.me)).filter(|(it, sent)| **it != *sent);
        Ok(wrong.count() as f64)
    }

    /// The rival, which moves its payload by `put`: nanoseconds one way.
    fn raw(&mut self, trips: u32, put: impl Fn(&RawCall, u64) + Copy) -> Result<f64, BenchError> {
        let leads = self.me == 0;
        // The other may still be on its way here, longer than a bare spin should last.
        self.next_call().trips(8, 1, leads)?;
        let raw = &mut self.raw[(self.blocks - 1) % CALLS as usize];
        raw.trips(WARM_UP, leads, put)?;
        one_way(trips, |trips| raw.trips(trips, leads, put))
    }

    /// Nanoseconds a put.
    fn stream(&mut self, bytes: usize, puts: u32) -> Result<f64, BenchError> {
        let leads = self.me == 0;
        self.next_call().trips(8, 1, leads)?;
        let mut spent = Nanos(0);
        if leads {
            let (bound, mut under_way) = (patience(), VecDeque::with_capacity(WINDOW));
            let start = Os.now();
            for _ in 0..puts {
                if under_way.len() == WINDOW
                    && let Some(oldest) = under_way.pop_front()
                {
                    self.way.done(oldest, bound)?;
                }
                under_way.push_back(self.way.write(
                    &self.source.shared,
                    0..bytes,
                    &self.target,
                    0,
                )?);
            }
            self.way.flush(bound)?;
            spent = Os.now().since(start);
        }
        // The other rank waits for this meanwhile.
        self.next_call().trips(8, 1, leads)?;
        Ok(spent.0 as f64 / f64::from(puts.max(1)))
    }

    /// How much of a core this process takes while it waits, in percent.
    fn idle(&mut self, time: Duration) -> Result<f64, BenchError> {
        let call = self.next_call();
        let (start, busy) = (Os.now(), busy());
        // The usual bound, which spins for a moment and then sleeps.
        match call.way.wait(
            &call.call.waiter,
            call.call.signal.value() + 1,
            Bound::within(time),
            "idle",
        ) {
            Err(error) if error.is_timeout() => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(BenchError::OutOfStep),
        }
        let (took, busy) = (Os.now().since(start).0, self::busy().since(busy).0);
        Ok(busy as f64 / took as f64 * 100.0)
    }

    fn next_call(&mut self) -> Calling<'_> {
        let index = self.blocks % self.calls.len();
        self.blocks += 1;
        let (call, way) = (&mut self.calls[index], &self.way);
        Calling { call, way, source: &self.source.shared, target: &self.target }
    }
}

/// What a trip needs.
struct Calling<'s> {
    call: &'s mut Call,
    way: &'s Way,
    source: &'s Shared,
    target: &'s Remote,
}

impl Calling<'_> {
    /// Where a payload of so many bytes lands.
    fn offset(&self, bytes: usize) -> usize {
        // Larger ones take in many lines by themselves, and keep to their place within a page.
        if bytes <= STRIDE { self.call.at } else { 0 }
    }

    fn trips(&mut self, bytes: usize, trips: u32, leads: bool) -> Result<(), BenchError> {
        let (bound, offset) = (patience(), self.offset(bytes));
        let Self { call, way, source, target } = self;
        let mut theirs = call.signal.value();
        let put = |signal: &mut RemoteSignal| {
            way.write_signal(source, 0..bytes, target, offset, signal, 1, Order::Weak)
        };
        for _ in 0..trips {
            theirs = theirs + 1;
            if leads {
                put(&mut call.signal)?;
            }
            way.wait(&call.waiter, theirs, bound, "trip")?.acq_fence();
            if !leads {
                put(&mut call.signal)?;
            }
        }
        Ok(())
    }
}

impl RawCall {
    /// A word of payload, as a copy of eight bytes would.
    #[inline(always)]
    fn store(&self, at: u64) {
        self.payload.word().store(!at, Relaxed);
    }

    #[inline(always)]
    fn trips(
        &mut self,
        trips: u32,
        leads: bool,
        put: impl Fn(&Self, u64),
    ) -> Result<(), BenchError> {
        let (mine, theirs) = (self.mine.word(), self.theirs.word());
        let until = self.at + u64::from(trips);
        for at in self.at + 1..=until {
            if leads {
                put(self, at);
                raw_publish::<SPIN>(mine, at);
            }
            raw_wait::<SPIN>(theirs, at)?;
            if !leads {
                put(self, at);
                raw_publish::<SPIN>(mine, at);
            }
        }
        self.at = until;
        Ok(())
    }
}

/// Spins as the rivals do, and ends all the same.
fn patience() -> Bound {
    Bound::within(PATIENCE).spinning(u32::MAX)
}

/// Nanoseconds of a trip one way.
fn one_way(trips: u32, work: impl FnMut(u32) -> Result<(), BenchError>) -> Result<f64, BenchError> {
    Ok(median(BLOCKS, trips / BLOCKS, work)? / 2.0)
}

/// The median of so many `blocks` of `count` in nanoseconds each: one in which the CPU was taken
/// away does not count.
fn median(
    blocks: u32,
    count: u32,
    mut work: impl FnMut(u32) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let (mut each, count) = (Vec::with_capacity(blocks as usize), count.max(1));
    for _ in 0..blocks {
        let start = Os.now();
        work(count)?;
        each.push(Os.now().since(start).0 as f64 / f64::from(count));
    }
    each.sort_unstable_by(f64::total_cmp);
    Ok(each.get(each.len() / 2).copied().unwrap_or_default())
}

/// The processor time of this process so far.
fn busy() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
