//! Memory of this process for others, one after the other.

use std::{io::Write, path::PathBuf, time::Duration};

use pontoon::{
    Bound, Rank, World,
    job::{Ending, Env, JoinError, StoreError},
    shm::identity,
    signal::{Segment, SegmentShape},
    smc::Layout,
    world::{self, Transport, WorldError},
};

use super::{
    BYTES, DONE, LOST_AFTER, MEMORY, READY, ROUND, ToolError, memory::Memory, place::Place,
    stop::Stop,
};
use crate::{
    counted::counted,
    doctor::bytes,
    duration::LONGEST,
    number::within,
    size,
    stdout::stdout,
    voice::{self, on_one_line},
};

/// Serves memory to `cat`, `fill` and `stat`, one after the other, until SIGINT or SIGTERM.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Where clients are awaited; an address of this host, or 0.0.0.0 for all of them.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Place,
    /// So much memory, all zero; K, M, G and T are units.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::bytes)]
    bytes: usize,
    /// As much memory as the file has bytes, and those.
    #[arg(long, value_name = "FILE", conflicts_with = "bytes")]
    file: Option<PathBuf>,
    /// Writes what the memory is in the end back to the file.
    #[arg(long, requires = "file")]
    save: bool,
    /// Ends after so many clients.
    #[arg(long, value_name = "N", value_parser = within(1..=u32::MAX))]
    clients: Option<u32>,
    /// What clients are reached by, who have to ask for the same: shared memory on one host and UCX between hosts,
    /// unless given.
    #[arg(long, value_name = "auto|shm|ucx", default_value = "auto")]
    transport: Transport,
}

/// How often the server looks whether it is to end while it has a client.
const LOOK: Duration = Duration::from_millis(100);
/// What a heap needs beside the memory.
const HEAP: usize = 1 << 20;

pub(super) fn run(options: &Options) -> Result<(), ToolError> {
    let env = options.listen.env(0)?;
    let mut memory = match &options.file {
        Some(path) => Memory::of_file(path).map_err(|error| ToolError::File {
            path: path.clone(),
            verb: "read",
            error,
        })?,
        None => Memory::zeroed(options.bytes),
    };
    if memory.bytes() == 0 {
        return Err(ToolError::Nothing);
    }
    options.listen.is_free()?;
    there_is_room(memory.bytes())?;
    let stop = Stop::heed(options.listen.as_seen_here().env(1)?).map_err(ToolError::Signals)?;
    let (place, all) = (options.listen.for_clients(), memory.bytes());
    let transport = match options.transport {
        Transport::Auto => String::new(),
        other => format!(" --transport {other}"),
    };
    tell(&format!(
        "serving {} ({}) at {}; read it with `pontoon smc cat --connect {place}{transport}`",
        bytes(all as u64),
        counted(all as u64, "byte"),
        options.listen
    ));
    let served = serve(options, &env, &mut memory, &stop);
    // Whatever ended it, what clients have released is kept.
    if let Some(path) = options.file.as_ref().filter(|_| options.save) {
        memory.save(path).map_err(|error| ToolError::Save { path: path.clone(), error })?;
        tell(&format!("saved {} to {}", counted(all as u64, "byte"), path.display()));
    }
    served
}

/// Whether so much can be served: no client is told to come before that is known.
fn there_is_room(bytes: usize) -> Result<(), ToolError> {
    let (shape, whose) = (SegmentShape::new(2, 2, heap(bytes)), identity([0; 16], Rank(0), 2, 0));
    Segment::create(shape, whose).map(drop).map_err(|error| WorldError::from(error).into())
}

/// What a segment needs to export so many bytes.
fn heap(bytes: usize) -> usize {
    Layout::of(bytes).region().saturating_add(HEAP)
}

fn serve(options: &Options, env: &Env, memory: &mut Memory, stop: &Stop) -> Result<(), ToolError> {
    let mut served = 0;
    while !stop.is_asked() && options.clients.is_none_or(|most| served < most) {
        match one(options, env, memory, stop) {
            Ok(client) => {
                served += 1;
                tell(&format!("client {served}, {client}"));
            }
            Err(_) if stop.is_asked() => {}
            Err(error) if is_of_client(&error) => {
                voice::say(&format!("warning: a client was not served: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Serves one client. What it was, and did.
fn one(
    options: &Options,
    env: &Env,
    memory: &mut Memory,
    stop: &Stop,
) -> Result<String, WorldError> {
    let round = Bound::within(ROUND);
    let spec = world::Options::default()
        .with_slots(1)
        .with_heap(heap(memory.bytes()))
        .with_transport(options.transport)
        .with_lost_after(LOST_AFTER)
        .with_bound(Bound::within(LONGEST));
    let world = World::open_in(env, spec)?;
    let export = world.export(MEMORY, memory.bytes(), round)?;
    memory.put(&export);
    world.job().set(BYTES, &(memory.bytes() as u64).to_le_bytes(), round)?;
    world.barrier(READY, round)?;
    let end = until_done(&world, stop);
    let pages = memory.pages() as u64;
    let changed = counted(memory.take(&export, world.segment().block()) as u64, "page");
    let who = world.job().process(Rank(1)).map_or_else(String::new, |it| it.to_string());
    let link = world.way(Rank(1))?.link().name();
    drop(export);
    if matches!(end, End::Done | End::Left) {
        // It has what it wanted; whether it hears of that is its own affair.
        let _ = world.leave(round);
    }
    let ended = match end {
        End::Done => "and was done".into(),
        End::Left => "and gave up".into(),
        End::Stopped => "and was cut off: this server is told to end".into(),
        End::Died(error) => format!("and did not end well: {error}"),
    };
    Ok(format!("{who} over {link}: changed {changed} of {pages} {ended}"))
}

/// How a client's time ended.
enum End {
    Done,
    Left,
    Stopped,
    Died(WorldError),
}

fn until_done(world: &World, stop: &Stop) -> End {
    loop {
        match world.barrier(DONE, Bound::within(LOOK)) {
            Ok(()) => return End::Done,
            Err(WorldError::Store(StoreError::TimedOut { .. })) if stop.is_asked() => {
                return End::Stopped;
            }
            Err(WorldError::Store(StoreError::TimedOut { .. })) => {}
            Err(WorldError::Store(StoreError::Ended { ending: Ending::Left, .. })) => {
                return End::Left;
            }
            Err(error) => return End::Died(error),
        }
    }
}

/// Whether it is a client's fault or misfortune, and the next may fare better.
fn is_of_client(error: &WorldError) -> bool {
    use WorldError as E;
    match error {
        E::Join(error) => matches!(
            error,
            JoinError::Unable { .. }
                | JoinError::World { .. }
                | JoinError::Lost { .. }
                | JoinError::Absent { .. }
        ),
        E::Env(_) | E::Segment(_) | E::Folder { .. } | E::Heap(_) => false,
        _ => true,
    }
}

/// A line for whoever started this, if anybody listens.
fn tell(text: &str) {
    let mut out = stdout();
    let _ = writeln!(out, "{}", on_one_line(text)).and_then(|()| out.flush());
}
