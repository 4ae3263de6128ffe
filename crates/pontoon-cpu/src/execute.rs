//! Running a kernel or a copy.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrayvec::ArrayVec;
use pontoon_hal::{ACCESSES_MAX, Accesses, Cause, Command, Hazard};
use pontoon_signal::Nanos;

use crate::{
    kernel::{Context, Kernel},
    memory::{Borrow, Holder, Region},
    queue::CpuCommand,
    shared::Shared,
    spans::SpanKind,
};

/// Runs a command that a look gave out.
pub(crate) fn run(command: CpuCommand, shared: &Shared) -> Result<Done, Cause> {
    // Dropping the kernel may drop what it captured, which is as little to be trusted as the
    // kernel. It is gone before the completion is published: then its regions are free.
    let ran = catch_unwind(AssertUnwindSafe(move || match &command {
        Command::Launch { kernel, accesses, arguments, label } => {
            launch(kernel, accesses, arguments, label, shared)
        }
        Command::Copy { from, to, label } => copy(from, to, label, shared),
        _ => Err(Cause::Panicked("a command this device does not know".into())),
    }));
    ran.unwrap_or_else(|panic| Err(panicked(panic)))
}

/// What a completed command cost.
pub(crate) struct Done {
    pub(crate) started: Nanos,
    pub(crate) took: Nanos,
    pub(crate) kind: SpanKind,
}

fn launch(
    kernel: &Kernel,
    accesses: &Accesses<Region>,
    arguments: &[u64],
    label: &'static str,
    shared: &Shared,
) -> Result<Done, Cause> {
    let holder = Holder { label, device: Some(shared.rank) };
    let borrows: Result<ArrayVec<_, ACCESSES_MAX>, Hazard> =
        accesses.iter().map(|access| Borrow::of(access, holder)).collect();
    let mut borrows = borrows.map_err(Cause::Hazard)?;
    let started = shared.begin();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        kernel.run(&mut Context::new(shared.rank, &mut borrows, arguments));
    }));
    let took = shared.end(started);
    ran.map_err(panicked)?;
    Ok(Done { started, took, kind: SpanKind::Work })
}

fn panicked(panic: Box<dyn Any + Send>) -> Cause {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => Arc::from(*text),
        (_, Some(text)) => Arc::from(text.as_str()),
        _ => Arc::from("no message"),
    };
    dispose(panic);
    Cause::Panicked(message)
}

/// Drops what was thrown. What that throws is given up: it could go on for ever.
pub(crate) fn dispose(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}

fn copy(
    from: &pontoon_hal::Access<Region>,
    to: &pontoon_hal::Access<Region>,
    label: &'static str,
    shared: &Shared,
) -> Result<Done, Cause> {
    let holder = Holder { label, device: Some(shared.rank) };
    let from = Borrow::of(from, holder).map_err(Cause::Hazard)?;
    let mut to = Borrow::of(to, holder).map_err(Cause::Hazard)?;
    let started = shared.begin();
    to.bytes_mut().copy_from_slice(from.bytes());
    Ok(Done { started, took: shared.end(started), kind: SpanKind::Work })
}
