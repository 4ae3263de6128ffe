//! What the agent on a host and the launcher say to each other, by the command's own source.
#![no_main]

mod bounded;
mod seeds;
#[path = "../../crates/pontoon-cli/src/launch/wire.rs"]
#[allow(dead_code, reason = "the command uses the rest")]
mod wire;

use std::fmt;

use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};
use wire::{Decoder, Frame, GREETING, How, Order, Plan, Said, Stream, WireError};

fuzz_target!(init: seeds::write(begin()), |bytes: &[u8]| {
    for decoder in [Decoder::plain, Decoder::greeted] {
        let whole = frames(decoder(), bytes, bytes.len().max(1));
        for piece in [1, 7] {
            assert_eq!(whole, frames(decoder(), bytes, piece), "in pieces of {piece}");
        }
        for frame in whole.0 {
            look(frame);
        }
    }
});

/// A frame of a rank's output is the same bytes again, and a message means the same again.
fn look(frame: Frame) {
    match frame {
        Frame::Message(payload) => {
            again::<Order>(&payload);
            again::<Said>(&payload);
        }
        Frame::Output { rank, stream, bytes } => {
            let (again, none) = frames(Decoder::plain(), &wire::output(rank, stream, &bytes), 5);
            assert_eq!((again, none), (vec![Frame::Output { rank, stream, bytes }], None));
        }
    }
}

fn again<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(payload: &[u8]) {
    let Ok(message) = wire::read::<T>(payload) else { return };
    let (frames, none) = frames(Decoder::plain(), &wire::message(&message), usize::MAX);
    assert_eq!(none, None);
    let [Frame::Message(payload)] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(wire::read(payload), Ok(message));
}

fn frames(mut decoder: Decoder, bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<WireError>) {
    let mut frames = Vec::new();
    for bytes in bytes.chunks(piece) {
        decoder.feed(bytes);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn begin() -> Vec<Vec<u8>> {
    let plan = Plan {
        folder: b"/srv".to_vec(),
        command: vec![b"train".to_vec(), b"\xff".to_vec()],
        variables: vec![(b"A".to_vec(), b"b=c".to_vec())],
        ranks: vec![0, u32::MAX],
        grace_ns: 7,
        silence_ns: 9,
        is_remote: true,
    };
    let orders = [Order::Plan(plan), Order::Signal(15), Order::End, Order::Kill, Order::Alive];
    let said = [
        Said::Hello { version: "0.1".into(), port: 9 },
        Said::Started { rank: 1, pid: 2 },
        Said::Ended { rank: 1, how: How::Signal(9), after_ns: 3 },
        Said::Ended { rank: 1, how: How::Status(-1), after_ns: 3 },
        Said::Refused { why: "no \u{e9}".into() },
        Said::Bye,
    ];
    let mut seeds: Vec<_> = orders.iter().map(wire::message).collect();
    seeds.extend(said.iter().map(wire::message));
    seeds.extend(Stream::BOTH.map(|stream| wire::output(7, stream, b"\0\xff\n")));
    let all = seeds.concat();
    seeds.push([b"Welcome to b!\n", GREETING, &all].concat());
    seeds
}
