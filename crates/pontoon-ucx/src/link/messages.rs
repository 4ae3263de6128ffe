//! Operations by message: what is sent, and how an answer is waited for.

use std::sync::Arc;

use pontoon_hal::link::{KeyFault, LinkError, Operation};
use pontoon_signal::{Bound, Nanos, Seq};

use super::{
    NAME, UcxLink,
    flight::{Answer, DEPTH, Flight},
    header::{Header, Kind, SIGNAL},
    home::Home,
    key::{Opened, Stretch},
    life::{Life, ending_of},
    post::send,
};
use crate::{Body, OperationError, Status};

/// The data of a message: with UCX's header and ours they fit one segment of TCP, so that the peer copies
/// them once. `docs/design/link-ucx.md` has what other sizes cost.
const PIECE: usize = 240 << 10;

/// What is sent of a write: `bytes` bytes, and where from.
#[derive(Clone, Copy)]
pub(super) enum Data<'a> {
    Of(&'a Stretch, usize),
    Copied(&'a [u8]),
}

/// Sends one message that is no operation. Gives its number.
pub(super) fn say(home: &Home, life: &Arc<Life>, header: Header) -> Result<u64, LinkError> {
    ask(home, life, header, None, |_, _| ())
}

/// Sends one message, a part of `operation`; `note` is told its number before it is sent.
pub(super) fn ask(
    home: &Home,
    life: &Arc<Life>,
    header: Header,
    operation: Option<Seq>,
    note: impl FnOnce(&mut Flight, u64),
) -> Result<u64, LinkError> {
    let endpoint = life.endpoint()?;
    let inner = endpoint.inner();
    let mut core = inner.enter("a message").map_err(|error| lost(life, &error))?;
    let number = {
        let mut flight = life.flight();
        if !flight.take(1) {
            drop(flight);
            return Err(life.lost(LinkError::PeerDead { peer: life.rank }));
        }
        let number = flight.next_message();
        note(&mut flight, number);
        number
    };
    let header = life.address(home.rank(), Header { number, ..header }).encode();
    match send(life, inner, &mut core, &header, Body::Nothing, operation) {
        Ok(false) => Ok(number),
        Ok(true) => {
            let mut flight = life.flight();
            if let Some(operation) = operation {
                flight.over(operation, 1);
            }
            flight.let_go(1);
            Ok(number)
        }
        Err(status) => {
            drop(core);
            life.flight().let_go(1);
            Err(unsent(home, life, status))
        }
    }
}

/// Ends a life whose peer misses a message: nothing after it would be taken.
fn unsent(home: &Home, life: &Arc<Life>, status: Status) -> LinkError {
    home.end(life, ending_of(life.rank, status), "ucp_am_send_nbx");
    life.lost(LinkError::PeerDead { peer: life.rank })
}

/// What a failure of the engine is to a link.
fn lost(life: &Life, error: &OperationError) -> LinkError {
    let code = match error {
        OperationError::PeerFailed { status, .. } | OperationError::Refused { status, .. } => {
            status.0.into()
        }
        _ => 0,
    };
    life.lost(LinkError::Failed { peer: life.rank, link: NAME, call: "ucp_am_send_nbx", code })
}

impl UcxLink {
    /// Posts a write of `bytes` bytes to `offset` of a region, in pieces; the last carries the signal.
    pub(super) fn post(
        &self,
        opened: &Opened,
        offset: usize,
        (data, bytes): (Data<'_>, usize),
        signal: Option<(u32, u32)>,
    ) -> Result<Seq, LinkError> {
        let (life, home) = (&opened.life, &self.home);
        let pieces = bytes.div_ceil(PIECE).max(1);
        let endpoint = life.endpoint()?;
        let inner = endpoint.inner();
        let mut core = inner.enter("a write").map_err(|error| lost(life, &error))?;
        let (operation, first) = {
            let mut flight = life.flight();
            if !flight.take(pieces as u64) {
                drop(flight);
                return Err(life.lost(LinkError::PeerDead { peer: life.rank }));
            }
            let Some(operation) = flight.begin(pieces as u32, bytes) else {
                flight.let_go(pieces as u64);
                return Err(LinkError::Full { peer: life.rank, depth: DEPTH });
            };
            let first = flight.next_message();
            for _ in 1..pieces {
                flight.next_message();
            }
            (operation, first)
        };
        // Sent at once.
        let mut over = 0;
        for piece in 0..pieces {
            let at = piece * PIECE;
            let length = (bytes - at).min(PIECE);
            let mut header = Header {
                number: first + piece as u64,
                nonce: opened.nonce,
                offset: (offset + at) as u64,
                ..Header::of(Kind::Write)
            };
            if let (Some((slot, n)), true) = (signal, piece + 1 == pieces) {
                (header.flags, header.slot, header.first) = (SIGNAL, slot, n.into());
            }
            let body = match data {
                _ if length == 0 => Body::Nothing,
                Data::Of(stretch, from) => {
                    let offset = stretch.at + from + at;
                    Body::Of { region: &stretch.region, offset, bytes: length }
                }
                Data::Copied(from) => Body::Copied(&from[at..at + length]),
            };
            let header = life.address(home.rank(), header).encode();
            match send(life, inner, &mut core, &header, body, Some(operation)) {
                Ok(done) => over += u32::from(done),
                Err(status) => {
                    drop(core);
                    life.flight().let_go(u64::from(over) + (pieces - piece) as u64);
                    return Err(unsent(home, life, status));
                }
            }
        }
        if over > 0 {
            let mut flight = life.flight();
            flight.over(operation, over);
            flight.let_go(over.into());
        }
        Ok(operation)
    }

    /// Asks the peer, and waits for its answer and for all that was posted before.
    pub(super) fn question(
        &self,
        life: &Arc<Life>,
        header: Header,
        (operation, bytes): (Operation, Option<usize>),
        bound: Bound,
    ) -> Result<Answer, LinkError> {
        let mut number_of = None;
        if let Some(bytes) = bytes {
            let begun = life.flight().begin(1, bytes);
            number_of = Some(begun.ok_or(LinkError::Full { peer: life.rank, depth: DEPTH })?);
        }
        let until = if operation == Operation::Flush { life.flight().counts().0 } else { 0 };
        let number = ask(&self.home, life, header, None, |flight, number| {
            flight.ask(number, number_of);
        })?;
        let mut answer = None;
        let waited = self.worker.wait_until(bound, || {
            let mut flight = life.flight();
            answer = answer.or_else(|| flight.take_answer(number));
            (answer.is_some() && flight.counts().1 >= until) || life.alive().is_err()
        });
        let waited = match waited {
            Ok(Ok(())) => Nanos(0),
            Ok(Err(waited)) => waited,
            Err(error) => return Err(lost(life, &error)),
        };
        if let Some(answer) = answer.filter(|_| life.flight().counts().1 >= until) {
            return Ok(answer);
        }
        let mut flight = life.flight();
        flight.give_up(number);
        let (posted, done) = flight.counts();
        drop(flight);
        life.alive()?;
        let (peer, done, posted) = (life.rank, Seq::new(done), Seq::new(posted));
        Err(LinkError::TimedOut { peer, operation, waited, done, posted })
    }

    /// An atomic operation on the word at `offset` of a region.
    pub(super) fn word(
        &self,
        opened: &Opened,
        offset: usize,
        header: Header,
        operation: Operation,
        bound: Bound,
    ) -> Result<u64, LinkError> {
        let header = Header { nonce: opened.nonce, offset: offset as u64, ..header };
        let answer = self.question(&opened.life, header, (operation, Some(8)), bound)?;
        match answer.code {
            Answer::DONE => Ok(answer.first),
            _ => Err(LinkError::Key { peer: opened.life.rank, why: KeyFault::Unknown }),
        }
    }
}
