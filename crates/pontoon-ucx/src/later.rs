//! Messages that are sent once a handler has returned: its answers.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use pontoon_signal::shim::{AtomicU32, Ordering::Relaxed};

use crate::{
    Body, Endpoint, Manner, Region,
    engine::{Core, Held},
};

/// What is to be sent by whoever makes progress next.
#[derive(Default)]
pub(crate) struct Outbox {
    /// How many there are. A hint, so that progress need not lock.
    count: AtomicU32,
    waiting: Mutex<VecDeque<Outgoing>>,
}

struct Outgoing {
    endpoint: Endpoint,
    id: u16,
    header: Vec<u8>,
    data: Data,
}

/// What a message that was sent leaves behind.
pub(crate) struct Over {
    _held: Vec<Held>,
    _data: Data,
    _endpoint: Endpoint,
}

enum Data {
    Copied(Vec<u8>),
    Of(Region, usize, usize),
}

impl Outbox {
    pub(crate) fn push(&self, endpoint: &Endpoint, id: u16, header: &[u8], body: Body<'_>) {
        let data = match body {
            Body::Nothing => Data::Copied(Vec::new()),
            Body::Copied(bytes) => Data::Copied(bytes.to_vec()),
            Body::Of { region, offset, bytes } => Data::Of(region.clone(), offset, bytes),
        };
        let outgoing = Outgoing { endpoint: endpoint.clone(), id, header: header.to_vec(), data };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(outgoing);
        self.count.store(waiting.len() as u32, Relaxed);
    }

    /// Whether something is to be sent.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Sends what there is, and gives what is over, to be dropped without the core.
    pub(crate) fn send(&self, core: &mut Core) -> Vec<Over> {
        let mut over = Vec::new();
        // One at a time: to send may call handlers, who may put more here.
        while let Some(Outgoing { endpoint, id, header, data }) = self.pop() {
            let body = match &data {
                Data::Copied(bytes) => Body::Copied(bytes),
                Data::Of(region, offset, bytes) => {
                    Body::Of { region, offset: *offset, bytes: *bytes }
                }
            };
            let held = endpoint.inner().send_unattended(core, id, &header, body);
            over.push(Over { _held: held, _data: data, _endpoint: endpoint });
        }
        over
    }

    /// Forgets what was not sent: nobody makes progress any more.
    pub(crate) fn clear(&self) {
        while self.pop().is_some() {}
    }

    fn pop(&self) -> Option<Outgoing> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let first = waiting.pop_front();
        self.count.store(waiting.len() as u32, Relaxed);
        first
    }
}

impl Endpoint {
    /// Has a message sent by whoever makes progress next. It may be called from a
    /// [`Handler`](crate::Handler), whose answers these are; they go in the order of the calls.
    ///
    /// Nothing tells whether it arrives: who waits for the answer has a bound. If the endpoint has
    /// failed it is dropped.
    pub fn send_later(&self, id: u16, header: &[u8], body: Body<'_>) {
        self.inner().engine.outbox.push(self, id, header, body);
    }
}

impl crate::endpoint::Inner {
    /// Sends without anybody who waits; gives what earlier ones held that are done by now.
    fn send_unattended(
        &self,
        core: &mut Core,
        id: u16,
        header: &[u8],
        body: Body<'_>,
    ) -> Vec<Held> {
        let mut over = self.reap(core);
        if self.state.failure().is_some() {
            return over;
        }
        // A range that is none is the handler's own fault, and nobody is there to be told.
        if let Ok((answer, held)) = self.begin_send(core, id, header, body, Manner::Auto, None) {
            over.extend(self.leave_unattended(core, answer, held));
        }
        over
    }
}
