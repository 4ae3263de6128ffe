//! Devices without memory or threads: a queue notes what it is given, and a command is over when the
//! test says so.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use pontoon_hal::{
    Access, AllocateError, Capabilities, Command, CommandOf, Device, Engine, FaultCell,
    HostAccessError, Memory, Mode, OpenQueueError, Queue, QueueReport, RegionId, SubmitError,
};
use pontoon_signal::{
    Bound, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape, WaitError,
};

use crate::program::Touch;

/// Most lanes of all queues together.
const LANES: u32 = 24;
/// So near the end that every counter wraps.
const START: Seq = Seq::new(u64::MAX - 2);

/// What the devices were given and the host did, in one order.
pub(crate) struct World {
    table: SignalTable,
    lanes: Vec<Lane>,
    pub(crate) log: Vec<Node>,
    regions: u64,
}

struct Lane {
    slot: Slot,
    publisher: Publisher,
    /// Of each of its events, the place in the log.
    given: Vec<usize>,
    over: u64,
}

/// A command or something that the host did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// `None` for the host.
    pub(crate) lane: Option<usize>,
    pub(crate) label: &'static str,
    pub(crate) touches: Vec<Touch>,
    /// The first events of a lane that it waits for.
    pub(crate) waits: Vec<(usize, u64)>,
    /// How many events of each lane were over by then.
    pub(crate) over: Vec<u64>,
}

impl World {
    /// How many lanes have been opened.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn given(&self, lane: usize) -> u64 {
        self.lanes[lane].given.len() as u64
    }

    /// The place in the log of event `count - 1`.
    pub(crate) fn node(&self, lane: usize, count: u64) -> usize {
        self.lanes[lane].given[count as usize - 1]
    }

    /// The first events of a lane become complete, after all that they wait for.
    pub(crate) fn run_to(&mut self, lane: usize, count: u64) {
        while self.lanes[lane].over < count {
            let at = self.lanes[lane].given[self.lanes[lane].over as usize];
            for (other, count) in self.log[at].waits.clone() {
                self.run_to(other, count);
            }
            self.lanes[lane].over += 1;
            self.lanes[lane].publisher.pub_release(1);
        }
    }

    pub(crate) fn run_all(&mut self) {
        for lane in 0..self.lanes.len() {
            self.run_to(lane, self.given(lane));
        }
    }

    /// How many events of a lane are over.
    pub(crate) fn over_of(&self, lane: usize) -> u64 {
        self.lanes[lane].over
    }

    fn over(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.over).collect()
    }

    /// Notes something that the host did.
    pub(crate) fn host(
        &mut self,
        label: &'static str,
        touches: Vec<Touch>,
        waits: Vec<(usize, u64)>,
    ) {
        let over = self.over();
        self.log.push(Node { lane: None, label, touches, waits, over });
    }

    fn place_of(&self, slot: &Slot, target: Seq) -> Option<(usize, u64)> {
        let lane = self.lanes.iter().position(|lane| lane.slot.is(slot))?;
        Some((lane, target.get().wrapping_sub(START.get())))
    }
}

/// A device.
pub(crate) struct Mock {
    rank: Rank,
    depth: u32,
    world: Arc<Mutex<World>>,
}

impl Mock {
    /// Devices that share a log.
    pub(crate) fn devices(count: usize, depth: u32) -> Vec<Self> {
        let table = SignalTable::in_process(TableShape::new(1, LANES).starting_at(START));
        let world = World { table, lanes: Vec::new(), log: Vec::new(), regions: 0 };
        let world = Arc::new(Mutex::new(world));
        let device = |at| Self { rank: Rank(at as u32), depth, world: Arc::clone(&world) };
        (0..count).map(device).collect()
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

impl Device for Mock {
    type Memory = Region;
    type Kernel = ();
    type Queue = MockQueue;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::least(4096)
    }

    fn allocate(&self, bytes: usize) -> Result<Region, AllocateError> {
        let mut world = self.world();
        world.regions += 1;
        Ok(Region { id: RegionId(world.regions - 1), bytes })
    }

    fn open_queue(&self, _: Engine, _: &str) -> Result<MockQueue, OpenQueueError> {
        let mut world = self.world();
        let at = world.lanes.len();
        let id = SlotId::new(0, at as u32);
        let (publisher, slot) = (world.table.publisher(id).unwrap(), world.table.slot(id).unwrap());
        let lane = Lane { slot: slot.clone(), publisher, given: Vec::new(), over: 0 };
        world.lanes.push(lane);
        let (world, depth) = (Arc::clone(&self.world), self.depth);
        Ok(MockQueue { at, slot, depth, faults: FaultCell::default(), world })
    }

    fn synchronize(&self, _: Bound) -> Result<(), WaitError> {
        self.world().run_all();
        Ok(())
    }
}

/// A size and a number.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    id: RegionId,
    bytes: usize,
}

impl Memory for Region {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn id(&self) -> RegionId {
        self.id
    }

    fn device(&self) -> Rank {
        Rank(0)
    }

    fn host_read(&self, _: usize, _: &mut [u8]) -> Result<(), HostAccessError> {
        Ok(())
    }

    fn host_write(&self, _: usize, _: &[u8]) -> Result<(), HostAccessError> {
        Ok(())
    }
}

/// A lane's queue.
pub(crate) struct MockQueue {
    at: usize,
    slot: Slot,
    depth: u32,
    faults: FaultCell,
    world: Arc<Mutex<World>>,
}

impl Queue for MockQueue {
    type Memory = Region;
    type Kernel = ();

    fn submit(&mut self, command: CommandOf<Self>) -> Result<Seq, SubmitError<CommandOf<Self>>> {
        let mut world = self.world.lock().unwrap();
        let lane = &world.lanes[self.at];
        if lane.given.len() as u64 - lane.over >= u64::from(self.depth) {
            return Err(SubmitError::Full(command));
        }
        let (mut touches, mut waits) = (Vec::new(), Vec::new());
        match &command {
            Command::Launch { accesses, .. } => touches.extend(accesses.iter().map(touch)),
            Command::Copy { from, to, .. } => touches.extend([touch(from), touch(to)]),
            Command::Wait { slot, target, .. } => {
                let place = world.place_of(slot, *target);
                waits.push(place.expect("a wait for what a device has been given"));
            }
            _ => unreachable!("no such command"),
        }
        let (lane, label, over) = (Some(self.at), command.label(), world.over());
        let place = world.log.len();
        world.log.push(Node { lane, label, touches, waits, over });
        world.lanes[self.at].given.push(place);
        let given = world.given(self.at);
        Ok(Seq::new(START.get().wrapping_add(given)))
    }

    fn completions(&self) -> &Slot {
        &self.slot
    }

    fn submitted(&self) -> Seq {
        let given = self.world.lock().unwrap().given(self.at);
        Seq::new(START.get().wrapping_add(given))
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn faults(&self) -> &FaultCell {
        &self.faults
    }

    fn report(&self) -> QueueReport {
        QueueReport::default()
    }
}

fn touch(access: &Access<Region>) -> Touch {
    let Range { start, end } = access.range;
    Touch {
        buffer: access.memory.id.0 as usize,
        range: start..end,
        writes: access.mode == Mode::Write,
    }
}

/// A label that says which command it is.
pub(crate) fn label(number: usize) -> &'static str {
    static LABELS: OnceLock<Vec<&'static str>> = OnceLock::new();
    let make = || (0..4096).map(|number| &*format!("w{number}").leak()).collect();
    LABELS.get_or_init(make)[number]
}
