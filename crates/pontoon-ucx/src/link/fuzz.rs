//! What a peer's bytes are to a link.

use std::sync::OnceLock;

use pontoon_hal::link::{Link, RegionKey, Registered};
use pontoon_signal::{Identity, Listed, Nanos, Rank, Segment, SegmentShape};

use super::{
    Card, UcxLink,
    header::{HEADER_BYTES, Header, Kind, SIGNAL},
    key::{Key, Registration},
    receive::Receiver,
};
use crate::{Handler, Library, Options, Status};

const US: Rank = Rank(0);
const PEER: Rank = Rank(1);

/// A header is the same bytes again.
pub(crate) fn header(bytes: &[u8]) -> bool {
    let header = Header::decode(bytes);
    header.inspect(|header| assert_eq!(header.encode(), bytes)).is_some()
}

/// A key is the same bytes again.
pub(crate) fn key(bytes: &[u8]) -> bool {
    let Some(given) = RegionKey::from_bytes(bytes) else { return false };
    let opened = Key::open(&given, PEER, 2);
    opened.inspect(|key| assert_eq!(key.seal().as_ref(), Some(&given))).is_ok()
}

/// A card is the same bytes again.
pub(crate) fn card(bytes: &[u8]) -> bool {
    Card::open(bytes).inspect(|card| assert_eq!(card.seal(), bytes)).is_ok()
}

/// A link that hears what a peer may send.
pub(crate) struct Receivers {
    link: UcxLink,
    region: Registered,
    nonce: u64,
}

/// How a message of the script is given: whether its rank and cookie are made right, its number, and
/// its nonce.
const RIGHT_SENDER: u8 = 1;
const RIGHT_NUMBER: u8 = 2;
const RIGHT_NONCE: u8 = 4;
const FAILS: u8 = 8;
const STEP: usize = 1 + 4 + HEADER_BYTES;

impl Receivers {
    pub(crate) fn of_this_machine() -> Option<&'static Self> {
        static RECEIVERS: OnceLock<Option<Receivers>> = OnceLock::new();
        let receivers = RECEIVERS.get_or_init(|| {
            Library::open().ok()?;
            let (job, created) = (*b"sixteen bytes it", Nanos(5));
            let whose =
                Identity { job, rank: US, world: 2, epoch: 0, pid: 1, start_time: 2, created };
            let segment = Segment::create(SegmentShape::new(2, 4, 8192), whose);
            let segment = segment.expect("memory for a segment");
            let heap = segment.heap().clone();
            let options = Options::default().transports("tcp").devices("lo");
            let link = UcxLink::open(segment, options).expect("a link over the loopback");
            let block = heap.part(64..4096).expect("a part of the heap");
            let region = link.register(&block).expect("a region");
            let nonce = region.data::<Registration>().expect("of this link").nonce;
            Some(Self { link, region, nonce })
        });
        receivers.as_ref()
    }

    /// Hears messages in the name of a new life of the peer. A place that is given for data is within
    /// the region that the peer has the key of.
    pub(crate) fn hear(&self, script: &[u8]) {
        let card = self.link.card(PEER).expect("a card");
        let cookie = Card::open(&card).expect("our own card").cookie;
        let mut receiver = Receiver { home: self.link.home.clone() };
        let mut number = 0;
        for step in script.chunks_exact(STEP) {
            let (&flags, &[a, b, c, d]) = (&step[0], step[1..].first_chunk().expect("a step"));
            let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
            let mut said = [0; HEADER_BYTES];
            said.copy_from_slice(&step[5..]);
            if flags & RIGHT_SENDER != 0 {
                said[8..12].copy_from_slice(&PEER.0.to_le_bytes());
                said[16..24].copy_from_slice(&cookie.to_le_bytes());
            }
            if flags & RIGHT_NUMBER != 0 {
                number += 1;
                said[24..32].copy_from_slice(&u64::to_le_bytes(number));
            }
            if flags & RIGHT_NONCE != 0 {
                said[32..40].copy_from_slice(&self.nonce.to_le_bytes());
            }
            let outcome = if flags & FAILS == 0 { Ok(bytes) } else { Err(Status(-25)) };
            let Some(place) = receiver.arrived(&said, bytes) else { continue };
            let heap = self.link.segment().block().offset_of(self.region.block());
            let start = heap.expect("a part of the segment");
            let within = start..=start + self.region.block().bytes();
            let end = place.offset + bytes;
            assert!(within.contains(&place.offset) && within.contains(&end), "{place:?}");
            receiver.landed(&said, outcome);
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let listed = Listed { at: 0, stamp: 2 };
    let key = Key { rank: PEER, epoch: 2, nonce: 7, bytes: 64, place: 128, listed, behind: 0 };
    let address = crate::envelope::seal(crate::envelope::Kind::Address, b"somewhere");
    let card = Card { rank: PEER, epoch: 2, cookie: 9, pid: 17, segment: address.clone(), address };
    let mut seeds = vec![key.seal().map_or(Vec::new(), |key| key.as_bytes().to_vec()), card.seal()];
    let mut script = Vec::new();
    for kind in 1..=10 {
        let mut said = Header { offset: 8, first: 16, flags: SIGNAL, ..Header::of(Kind::Write) };
        said.slot = 1;
        let mut said = said.encode();
        said[4] = kind;
        seeds.push(said.to_vec());
        script.extend([&[7], &16_u32.to_le_bytes()[..], &said].concat());
    }
    // A slot is attached, and then signalled.
    let mut attached = script[6 * STEP..7 * STEP].to_vec();
    attached.extend(&script);
    seeds.extend([script, attached]);
    seeds
}
