//! What a session tells `tracing`.

use std::{
    fmt,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::Engine;
use pontoon_queue::{Buffer, Patience, Session};
use pontoon_signal::{Rank, Seq};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Writes down each event: its message, then its fields.
#[derive(Clone, Default)]
struct Listener {
    events: Arc<Mutex<Vec<String>>>,
    /// Dropped when the host waits, after it has given up once.
    gate: Arc<Mutex<Option<mpsc::Sender<()>>>>,
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            // Differs between runs.
            "session" => self.fields.push_str(" session"),
            name => self.fields.push_str(&format!(" {name}={value:?}")),
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pontoon::fence"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let Words { message, fields } = words;
        let mut events = self.events.lock().unwrap();
        if message == "wait" && events.iter().any(|event| event.starts_with("expired")) {
            self.gate.lock().unwrap().take();
        }
        events.push(format!("{message}:{fields}"));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn device(rank: u32) -> CpuDevice {
    let start = Seq::new(u64::MAX - 2);
    CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

#[test]
fn the_life_of_a_fence_is_told() {
    let devices = [device(0), device(1)];
    let listener = Listener::default();
    tracing::subscriber::with_default(listener.clone(), || {
        let mut session = Session::auto().with_patience(patience());
        let [first, second] =
            [0, 1].map(|at| session.stream(&devices[at], Engine::Compute, ["a", "b"][at]).unwrap());
        let buffer = Buffer::<_, u32>::allocate(&devices[0], 4).unwrap();
        let (sender, gate) = mpsc::channel::<()>();
        *listener.gate.lock().unwrap() = Some(sender);
        let gate = Mutex::new(gate);
        // It ends when the sender is dropped.
        let slow = Kernel::new(move |_| {
            let _ = gate.lock().unwrap().recv();
        });
        let nothing = Kernel::new(|_| {});
        session.launch(first, "slow", &slow, [buffer.write(..)], []).unwrap();
        let fence = session.launch(second, "after", &nothing, [buffer.write(..)], []).unwrap();
        session.wait(&fence, Patience::within(Duration::from_millis(5))).unwrap_err();
        let _ = session.wait(&fence, patience()).unwrap();
        let done = session.semaphore("done");
        for label in ["goes", "stays"] {
            let mut batch = session.batch();
            batch.wait_semaphore(done, if label == "goes" { 1 } else { 2 });
            batch.launch(label, &nothing, [], []);
            session.submit(first, batch.seal().unwrap()).unwrap();
        }
        session.signal(done, 1).unwrap();
        session.close(done).unwrap();
    });
    let edge = "edge: session device=1 queue=\"b\" position=0 on_device=0 on_queue=\"a\" \
                on_position=1 on_label=\"slow\"";
    let expected = [
        "created: session device=0 queue=\"a\" position=1 label=\"slow\"",
        edge,
        "created: session device=1 queue=\"b\" position=2 label=\"after\"",
        "wait: session device=1 queue=\"b\" position=2 label=\"after\"",
        "expired: session device=1 queue=\"b\" position=2 label=\"after\"",
        "wait: session device=1 queue=\"b\" position=2 label=\"after\"",
        "complete: session device=1 queue=\"b\" position=2 label=\"after\"",
        "parked: session device=0 queue=\"a\" label=\"goes\"",
        "parked: session device=0 queue=\"a\" label=\"stays\"",
        "created: session device=0 queue=\"a\" position=2 label=\"goes\"",
        "released: session device=0 queue=\"a\" label=\"goes\"",
        "given up: session device=0 queue=\"a\" label=\"stays\"",
    ];
    assert_eq!(*listener.events.lock().unwrap(), expected);
}
