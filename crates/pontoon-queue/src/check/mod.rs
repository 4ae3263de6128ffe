//! Whether a program's accesses are ordered, and whether it ends.
//!
//! A [`Program`] says what host threads did with devices: accesses, waits, signals, frees.
//! [`check`] answers two questions by one model of it:
//!
//! - What can run at all? The program is run with devices that take no time; what is stuck then is
//!   a deadlock or a wait that is never signalled.
//! - What is ordered? A vector clock for each start tells what must have ended before it, in every
//!   run; two accesses to the same bytes that it does not order are a hazard.
//!
//! ```
//! use pontoon_queue::check::{Access, Act, Buffer, BufferId, Command, Entry, Finding, HazardKind,
//!     Mode, Program, Queue, QueueId, ThreadId, Work, check};
//!
//! let touch = |mode| Access { buffer: BufferId(0), range: 0..64, mode };
//! let submit = |queue, mode| Entry {
//!     thread: ThreadId(0),
//!     act: Act::Submit(
//!         QueueId(queue),
//!         Command::Work(Work { accesses: vec![touch(mode)], ..Work::default() }),
//!     ),
//! };
//! let program = Program {
//!     buffers: vec![Buffer { of: None, size: 64 }],
//!     queues: vec![Queue::default(), Queue::default()],
//!     threads: 1,
//!     entries: vec![submit(0, Mode::Write), submit(1, Mode::Read)],
//!     ..Program::default()
//! };
//! let findings = check(&program)?;
//! let [Finding::Hazard(hazard)] = findings.as_slice() else { panic!("{findings:?}") };
//! assert_eq!((hazard.kind, hazard.first, hazard.second), (HazardKind::ReadAfterWrite, 0, 1));
//! # Ok::<(), pontoon_queue::check::ProgramError>(())
//! ```

mod circle;
mod finding;
mod hazards;
mod order;
mod program;
mod run;
mod signals;
mod stuck;
mod touch;
mod validate;

pub use finding::{Finding, Hazard, HazardKind};
pub use program::{
    Access, Act, Buffer, BufferId, ClassId, CollectiveId, Command, Entry, EntryId, EventId, FifoId,
    HostWait, LockId, Mode, Program, Queue, QueueId, Raise, Semaphore, SemaphoreId, SemaphoreWait,
    Signal, ThreadId, Work,
};
pub use validate::ProgramError;

use order::Order;
use run::Run;
use validate::Places;

/// Finds all that is wrong with a program: first the hazards, then what never ends.
///
/// # Errors
/// The program names something that it does not have.
pub fn check(program: &Program) -> Result<Vec<Finding>, ProgramError> {
    let places = Places::of(program)?;
    let mut run = Run::new(program);
    run.go_on();
    let order = Order::of(&run);
    let ranks = hazards::ranks(&run);
    let mut hazards: Vec<_> = touch::touches(program, &places)
        .iter()
        .flat_map(|(&buffer, touches)| hazards::hazards(&run, &order, &ranks, buffer, touches))
        .collect();
    hazards.sort_by_key(|it| (it.second, it.first, it.buffer, it.range.start));
    let mut findings: Vec<_> = hazards.into_iter().map(Finding::Hazard).collect();
    findings.extend(stuck::stuck(&mut run));
    Ok(findings)
}
