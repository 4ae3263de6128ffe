use super::{
    samples::{all, hello, process},
    *,
};
use crate::Process;
use proptest::prelude::*;

fn read_back(frame: &[u8]) -> Message {
    let mut frames = FrameReader::default();
    frames.push(frame);
    Message::decode(frames.next(FRAME_MAX).unwrap().unwrap()).unwrap()
}

#[test]
fn every_message_survives_the_wire_in_any_pieces() {
    let mut stream = Vec::new();
    for message in all() {
        assert_eq!(read_back(&message.frame()), message);
        stream.extend(message.frame());
    }
    for piece in [1, 2, 3, 7, 1000, stream.len()] {
        let (mut frames, mut read) = (FrameReader::default(), Vec::new());
        for bytes in stream.chunks(piece) {
            frames.push(bytes);
            while let Some(frame) = frames.next(FRAME_MAX).unwrap() {
                read.push(Message::decode(frame).unwrap());
            }
        }
        assert_eq!(read, all(), "in pieces of {piece}");
    }
}

#[test]
fn a_message_cut_short_or_with_more_behind_is_refused() {
    for message in all() {
        let frame = message.frame();
        for end in 5..frame.len() {
            assert!(Message::decode(&frame[4..end]).is_err(), "{message:?} cut at {end}");
        }
        let longer: Vec<u8> = frame[4..].iter().copied().chain([0]).collect();
        assert_eq!(Message::decode(&longer), Err(Malformed::Trailing), "{message:?}");
    }
}

#[test]
fn another_version_is_told_apart_whatever_follows() {
    let mut frame = Message::Hello(hello()).frame();
    frame[13..15].copy_from_slice(&9u16.to_le_bytes());
    assert_eq!(read_back(&frame), Message::Foreign { version: 9 });
    assert_eq!(Message::decode(&frame[4..15]), Ok(Message::Foreign { version: 9 }));

    let mut frame = Message::Refused(Refused::because(Reason::Token)).frame();
    frame[13..15].copy_from_slice(&9u16.to_le_bytes());
    let refused = Refused { version: 9, reason: Reason::Version };
    assert_eq!(read_back(&frame), Message::Refused(refused));
}

#[test]
fn a_length_is_judged_before_anything_is_kept_for_it() {
    let mut frames = FrameReader::default();
    frames.push(&(STRANGER_FRAME_MAX as u32 + 1).to_le_bytes());
    assert_eq!(frames.next(STRANGER_FRAME_MAX), Err(Malformed::TooLong));
    assert_eq!(frames.next(FRAME_MAX), Ok(None));
    let mut none = FrameReader::default();
    none.push(&[0; 4]);
    assert_eq!(none.next(FRAME_MAX), Err(Malformed::Short));
    // A list of four billion ranks, none of which is there.
    let mut ask = Writer::frame();
    ask.u8(15).u64(1).u8(3).bytes(b"name").u32(u32::MAX);
    assert_eq!(Message::decode(&ask.finish()[4..]), Err(Malformed::TooLong));
    let mut ask = Writer::frame();
    ask.u8(15).u64(1).u8(3).bytes(b"name").u32(4096);
    assert_eq!(Message::decode(&ask.finish()[4..]), Err(Malformed::Short));
}

#[test]
fn a_name_that_would_disturb_a_log_is_refused() {
    for job in ["two\nlines", "bell\u{7}", "\u{1b}[2J"] {
        let frame = Message::Hello(Hello { job: job.into(), ..hello() }).frame();
        assert_eq!(Message::decode(&frame[4..]), Err(Malformed::Text), "{job:?}");
    }
    let mut frame = Message::Hello(hello()).frame();
    let end = frame.len();
    frame[end - 1] = 0xff;
    assert_eq!(Message::decode(&frame[4..]), Err(Malformed::Text));
}

#[test]
fn every_hello_fits_what_a_stranger_may_send() {
    let process = Process { host_name: "h".repeat(64).into(), ..process() };
    let longest = Hello { job: "j".repeat(128).into(), process, ..hello() };
    assert!(Message::Hello(longest).frame().len() <= STRANGER_FRAME_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_a_message_that_reads_back_the_same_or_is_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u8..20,
    ) {
        for bytes in [bytes.clone(), [vec![kind], bytes].concat()] {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(Message::decode(&message.frame()[4..]), Ok(message));
            }
        }
    }

    #[test]
    fn a_message_with_bytes_changed_does_no_harm(
        index in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut frame = index.get(&all()).frame();
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        let mut frames = FrameReader::default();
        frames.push(&frame);
        while let Ok(Some(frame)) = frames.next(FRAME_MAX) {
            if let Ok(message) = Message::decode(frame) {
                prop_assert_eq!(Message::decode(&message.frame()[4..]), Ok(message));
            }
        }
    }
}
