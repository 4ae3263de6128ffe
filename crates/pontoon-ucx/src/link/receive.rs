//! What is done with messages: the owner's side of every operation.

use std::sync::Arc;

use pontoon_signal::{ClaimError, Ending, SlotId, shim::Ordering::Relaxed};

use super::{
    NAME,
    flight::{Adding, Answer},
    header::{Header, Kind, SIGNAL},
    home::Home,
    key::Stretch,
    life::{Inbound, Life},
};
use crate::{Body, Handler, Place, Status};

/// The code with which a life ends whose messages came in another order than they were sent in.
const OUT_OF_ORDER: i32 = 1;
/// The code with which a life ends that read what its peer has not, or no more.
const NOTHING_TO_READ: i32 = 2;

/// Applies what peers send.
///
/// The header and the range of every message are looked at before anything is done. A stranger's costs a
/// count and nothing else; one of a peer's that names what is not there is counted with that peer, which
/// learns of it.
pub(crate) struct Receiver {
    pub(crate) home: Arc<Home>,
}

impl Handler for Receiver {
    fn arrived(&mut self, header: &[u8], bytes: usize) -> Option<Place> {
        let (header, life) = self.known(header)?;
        if life.alive().is_err() {
            return None;
        }
        match header.kind {
            Kind::Data => return self.data(&life, &header, bytes),
            Kind::Answer => {
                self.answered(&life, &header);
                return None;
            }
            _ => {}
        }
        if !life.inbound().follows(header.number) {
            let ending = Ending::LinkFailed { code: OUT_OF_ORDER };
            self.home.end(&life, ending, "order of messages");
            return None;
        }
        match header.kind {
            Kind::Write => return self.write(&life, &header, bytes),
            Kind::Signal => self.signal(&life, &header),
            Kind::Read => self.read(&life, &header),
            Kind::Add | Kind::CompareSwap => self.word(&life, &header),
            Kind::Flush => {
                let refused = life.inbound().refused;
                life.answer(self.home.rank(), header.number, Answer::done(0, refused));
            }
            Kind::Attach => self.attach(&life, &header),
            Kind::Detach => drop(life.inbound().publishers.remove(&header.slot)),
            Kind::Data | Kind::Answer => {}
        }
        None
    }

    fn landed(&mut self, header: &[u8], outcome: Result<usize, Status>) {
        let Some(header) = Header::decode(header) else { return };
        // Of whoever it was when it began to land.
        let Some(life) = self.home.whoever(header.rank, header.cookie) else { return };
        match header.kind {
            Kind::Write if outcome.is_err() => self.refuse(&life, "its data did not come"),
            Kind::Write if header.flags & SIGNAL != 0 => self.signal(&life, &header),
            Kind::Data => {
                let kept = life.flight().landed(header.number, outcome.is_ok());
                drop(kept);
                if outcome.is_err() {
                    // No completion can say that it is not there.
                    self.home.end(&life, Ending::LinkFailed { code: NOTHING_TO_READ }, "read");
                }
            }
            _ => {}
        }
    }
}

impl Receiver {
    /// The header, and whose message it is. A stranger's is counted.
    fn known(&self, header: &[u8]) -> Option<(Header, Arc<Life>)> {
        let Some(header) = Header::decode(header) else {
            self.home.refuse("it is none of a link's", None);
            return None;
        };
        let life = self.home.sender(header.rank, header.cookie);
        if life.is_none() {
            self.home.refuse("nobody has a card that says so", Some(header.rank));
        }
        Some((header, life?))
    }

    fn refuse(&self, life: &Life, why: &'static str) {
        life.inbound().refused += 1;
        self.home.refuse(why, Some(life.rank));
    }

    /// `bytes` bytes of the region that a message names.
    fn stretch(&self, header: &Header, bytes: usize) -> Option<(Stretch, usize)> {
        let stretch = self.home.listed(header.nonce)?;
        let at = stretch.place(header.offset, bytes)?;
        Some((stretch, at))
    }

    fn write(&self, life: &Life, header: &Header, bytes: usize) -> Option<Place> {
        let Some((stretch, offset)) = self.stretch(header, bytes) else {
            self.refuse(life, "no such region, or range");
            return None;
        };
        Some(Place { region: stretch.region, offset })
    }

    fn signal(&self, life: &Life, header: &Header) {
        let mut inbound = life.inbound();
        let Inbound { publishers, .. } = &mut *inbound;
        let grows_by = u32::try_from(header.first);
        match (publishers.get_mut(&header.slot), grows_by) {
            (Some(publisher), Ok(n)) => {
                publisher.pub_release(n);
            }
            _ => {
                drop(inbound);
                self.refuse(life, "a signal that it has not attached");
            }
        }
    }

    fn read(&self, life: &Life, header: &Header) {
        let bytes = usize::try_from(header.first).unwrap_or(usize::MAX);
        let Some((stretch, offset)) = self.stretch(header, bytes) else {
            self.refuse(life, "no such region to read, or range");
            let answer = Answer::refused(Answer::UNKNOWN);
            return life.answer(self.home.rank(), header.number, answer);
        };
        let data =
            Header { rank: self.home.rank(), number: header.number, ..Header::of(Kind::Data) };
        life.answer_later(data, Body::Of { region: &stretch.region, offset, bytes });
    }

    /// An atomic operation on a word.
    fn word(&self, life: &Life, header: &Header) {
        let answer = match self.stretch(header, 8) {
            None => {
                self.refuse(life, "no such region, or word");
                Answer::refused(Answer::UNKNOWN)
            }
            Some((stretch, at)) => match stretch.region.word(at) {
                Err(_) => {
                    self.refuse(life, "no word is there");
                    Answer::refused(Answer::UNKNOWN)
                }
                Ok(word) if header.kind == Kind::Add => {
                    Answer::done(word.fetch_add(header.first, Relaxed), 0)
                }
                Ok(word) => {
                    let (expected, new) = (header.first, header.second);
                    let swapped = word.compare_exchange(expected, new, Relaxed, Relaxed);
                    let (Ok(found) | Err(found)) = swapped;
                    Answer::done(found, 0)
                }
            },
        };
        life.answer(self.home.rank(), header.number, answer);
    }

    fn attach(&self, life: &Life, header: &Header) {
        let slot = SlotId { producer: life.rank, slot: header.slot };
        let answer = match self.home.segment.signals().publisher(slot) {
            Ok(publisher) => {
                let value = publisher.value().get();
                life.inbound().publishers.insert(header.slot, publisher);
                Answer::done(value, 0)
            }
            Err(ClaimError::Taken { by, .. }) => Answer {
                code: Answer::TAKEN,
                first: by.rank.0.into(),
                second: by.generation.into(),
                third: by.pid.into(),
            },
            Err(ClaimError::NoSuchSlot { first, producers, slots, .. }) => Answer {
                code: Answer::NO_SLOT,
                first: first.0.into(),
                second: producers.into(),
                third: slots.into(),
            },
            Err(_) => Answer::refused(Answer::UNKNOWN),
        };
        life.answer(self.home.rank(), header.number, answer);
    }

    /// Where the bytes go that a read asked for.
    fn data(&self, life: &Arc<Life>, header: &Header, bytes: usize) -> Option<Place> {
        let (landing, is_read) = {
            let mut flight = life.flight();
            (flight.landing(header.number, bytes), flight.is_read(header.number))
        };
        if landing.is_none() && is_read {
            // Another number of bytes than was asked for, or twice: no others will come.
            self.home.end(life, Ending::LinkFailed { code: NOTHING_TO_READ }, "read");
        }
        landing.map(|stretch| Place { region: stretch.region, offset: stretch.at })
    }

    fn answered(&self, life: &Arc<Life>, header: &Header) {
        let Header { flags: code, first, second, nonce: third, number, .. } = *header;
        let mut flight = life.flight();
        if flight.is_read(number) {
            // What was to be read is not there, and nothing but the completions can say so.
            drop(flight);
            let ending = Ending::LinkFailed { code: NOTHING_TO_READ };
            tracing::warn!(target: "pontoon::link", link = NAME, peer = life.rank.0,
                "a read of a region that is registered no more");
            return self.home.end(life, ending, "read");
        }
        if let Some(adding) = flight.take_add(number) {
            drop(flight);
            return self.added(life, adding, code, first);
        }
        flight.answered(number, Answer { code, first, second, third });
    }

    /// The answer to an addition that was posted. One that the peer refused is told as a refused write is,
    /// or, if its old value is to be somewhere, as a refused read.
    fn added(&self, life: &Arc<Life>, adding: Adding, code: u8, old: u64) {
        let Adding { operation, offset, reply } = &adding;
        if code != Answer::DONE && reply.is_some() {
            let ending = Ending::LinkFailed { code: NOTHING_TO_READ };
            tracing::warn!(target: "pontoon::link", link = NAME, peer = life.rank.0, offset,
                "an addition to a word that is registered no more, or not on its place");
            return self.home.end(life, ending, "post_add");
        }
        let mut flight = life.flight();
        // With the flight in hand: who finds the life ended and nothing in hand has the bytes back.
        if life.alive().is_err() {
            return;
        }
        // It was looked for when it was posted.
        if let Some(place) = reply.as_ref().and_then(|(into, _)| into.region.word(into.at).ok()) {
            place.store(old, Relaxed);
        }
        flight.over(*operation, 1);
    }
}
