//! What runs on rank 0's device: kernels that compute, and those that send what they computed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pontoon::{
    Bound, Context, Kernel,
    comm::{Port, SendError, Sent, Strong, Trigger, Weak},
    signal::{
        Host, Nanos, Os,
        shim::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::bench::{BenchError, ranks::talk::PATIENCE, work::fill};

/// Messages that are under way at a time.
pub(super) const WINDOW: usize = 16;
/// Words that puts of 8 bytes go round in.
pub(super) const WORDS: usize = 4096;
/// From so many bytes on a message is a large one.
pub(super) const LARGE: usize = 64 << 10;
/// What a ticket is waited for when the proxy is gone.
const DEAD_WAIT: Duration = Duration::from_millis(10);
/// A proxy that is told to vanish may do a few tasks more before it looks.
const DEAD_TRIES: u32 = 1_000;

/// What kernels say beside what they send. A handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    shared: Arc<(Mutex<Option<BenchError>>, AtomicU64)>,
}

impl Outcome {
    fn of(&self, result: Result<(), BenchError>) {
        if let Err(error) = result {
            *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    fn took(&self, time: Nanos) {
        self.shared.1.store(time.0, Relaxed);
    }

    /// What the last kernel that measures measured.
    pub(super) fn nanos(&self) -> f64 {
        self.shared.1.load(Relaxed) as f64
    }

    /// How a kernel failed, if one did.
    pub(super) fn check(&self) -> Result<(), BenchError> {
        let failed = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

/// The payload of message `number`: its first word is when it was decided to send it, its last one the
/// number if there is room.
pub(super) fn compute(words: &mut [u64], number: u64) {
    fill(words, number, 0);
    if let [_, .., last] = words {
        *last = number;
    }
    words[0] = Os.now().0;
}

/// Computes a message and ends: the host sends it.
pub(super) fn computing() -> Kernel {
    Kernel::new(|context| compute(context.write(0), context.argument(0)))
}

/// Computes a message and sends it.
pub(super) fn sending(port: Port, outcome: Outcome) -> Kernel {
    Kernel::new(move |context| {
        let words = context.write(0);
        compute(words, context.argument(0));
        // The message is answered before its bytes are used again: nobody waits for the ticket.
        let sent = port.put_signal(&*words, 0, 1, Weak).map(|ticket| drop(ticket.detach()));
        outcome.of(sent.map_err(BenchError::Send));
    })
}

/// Computes a message and fires what sends it.
pub(super) fn firing(trigger: Trigger, outcome: Outcome) -> Kernel {
    Kernel::new(move |context| {
        compute(context.write(0), context.argument(0));
        let sent = trigger.fire().map(|ticket| drop(ticket.detach()));
        outcome.of(sent.map_err(BenchError::Send));
    })
}

/// Computes and sends messages one after the other, a window of them under way: those of the numbers from
/// argument 0 on, so many as argument 1, of so many bytes as argument 2.
pub(super) fn streaming(port: Port, outcome: Outcome) -> Kernel {
    Kernel::new(move |context| {
        let send = |message: usize, payload: &[u64]| {
            let to = message % WINDOW * size_of_val(payload);
            Ok(port.put_signal(payload, to, 1, Weak)?.detach())
        };
        outcome.of(stream(context, send));
    })
}

/// The same by triggers, one for each place of the window.
pub(super) fn streaming_by(triggers: Vec<Trigger>, outcome: Outcome) -> Kernel {
    Kernel::new(move |context| {
        let send = |message: usize, _: &[u64]| Ok(triggers[message % WINDOW].fire()?.detach());
        outcome.of(stream(context, send));
    })
}

fn stream(
    context: &mut Context<'_>,
    send: impl Fn(usize, &[u64]) -> Result<Sent, SendError>,
) -> Result<(), BenchError> {
    let words: &mut [u64] = context.write(0);
    let (first, count, bytes) = (context.argument(0), context.argument(1), context.argument(2));
    let each = bytes as usize / size_of::<u64>();
    let mut under_way = VecDeque::with_capacity(WINDOW);
    for (message, number) in (first..first + count).enumerate() {
        if under_way.len() == WINDOW
            && let Some(oldest) = under_way.pop_front()
        {
            wait(&oldest)?;
        }
        let at = message % WINDOW * each;
        let payload = &mut words[at..at + each];
        compute(payload, number);
        under_way.push_back(send(message, payload)?);
    }
    under_way.iter().try_for_each(wait)
}

fn wait(sent: &Sent) -> Result<(), BenchError> {
    let waiter = sent.slot.uncounted_waiter();
    waiter.wait_ge_bounded(sent.seq, Bound::within(PATIENCE))?.acq_fence();
    Ok(())
}

/// Puts words one at a time, as many as argument 1, and measures until all are done; then signals.
pub(super) fn putting(port: Port, outcome: Outcome) -> Kernel {
    Kernel::new(move |context| outcome.of(put(context, &port, &outcome)))
}

fn put(context: &mut Context<'_>, port: &Port, outcome: &Outcome) -> Result<(), BenchError> {
    let words: &mut [u64] = context.write(0);
    fill(words, context.argument(0), 0);
    let words = &*words;
    let start = Os.now();
    for number in 0..context.argument(1) as usize {
        let at = number % WORDS;
        let ticket = port.put(&words[at..=at], at * size_of::<u64>())?;
        // All are waited for at the end.
        std::mem::forget(ticket);
    }
    port.quiet(Bound::within(PATIENCE))?;
    outcome.took(Os.now().since(start));
    drop(port.signal(1, Strong)?.detach());
    Ok(())
}

/// Puts as many messages as argument 1, each of so many bytes as argument 2, over `ports` in turn, and
/// measures until all are done. Large ones come rarely: each once the one before is done.
pub(super) fn putting_over(ports: Vec<Port>, outcome: Outcome) -> Kernel {
    Kernel::new(move |context| outcome.of(put_over(context, &ports, &outcome)))
}

fn put_over(
    context: &mut Context<'_>,
    ports: &[Port],
    outcome: &Outcome,
) -> Result<(), BenchError> {
    let words: &mut [u64] = context.write(0);
    let (count, bytes) = (context.argument(1), context.argument(2) as usize);
    fill(words, context.argument(0), 0);
    let (words, each) = (&*words, bytes / size_of::<u64>());
    let (places, bound) = (words.len() / each, Bound::within(PATIENCE));
    let start = Os.now();
    for (message, port) in (0..count as usize).zip(ports.iter().cycle()) {
        let at = message % places * each;
        let mut ticket = port.put(&words[at..at + each], at * size_of::<u64>())?;
        if bytes >= LARGE {
            ticket.wait(bound)?;
        } else {
            std::mem::forget(ticket);
        }
    }
    ports.iter().try_for_each(|port| port.quiet(bound))?;
    outcome.took(Os.now().since(start));
    Ok(())
}

/// Waits for a ticket that nobody will ever do, and measures how much longer than it should.
pub(super) fn waiting_in_vain(port: Port, outcome: Outcome) -> Kernel {
    Kernel::new(move |_| {
        outcome.of(wait_in_vain(&port).map(|over| outcome.took(over)));
    })
}

fn wait_in_vain(port: &Port) -> Result<Nanos, BenchError> {
    for _ in 0..DEAD_TRIES {
        let mut ticket = port.put_value(0, 0)?;
        let start = Os.now();
        let waited = ticket.wait(Bound::within(DEAD_WAIT));
        let took = Os.now().since(start);
        match waited {
            Ok(()) => {}
            Err(SendError::TimedOut { .. }) => return Ok(took.since(Nanos::from(DEAD_WAIT))),
            Err(error) => return Err(error.into()),
        }
    }
    Err(BenchError::Count { what: "proxies gone", expected: 1, found: 0 })
}
