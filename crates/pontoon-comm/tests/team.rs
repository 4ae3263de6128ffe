//! What members of a team do together: each is a thread here, with a link and a proxy of its own.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{open, patient, settings, words};
use pontoon_comm::{Comm, CommError, Member, Mode, SendError, Shape, Summed, Team};
use pontoon_hal::link::{Link, RegionKey};
use pontoon_shm::{ShmLink, identity};
use pontoon_signal::{Block, Bound, Ending, Rank, Segment, SegmentShape, Seq, SlotId, TableShape};

/// Words of a member's own, and then as many for each of the others.
const WORDS: usize = 256;

struct One {
    team: Team,
    block: Block,
    link: Arc<dyn Link>,
    _comm: Comm,
}

/// A team of so many, whose counters start at `start`, all of whose members send in `mode`.
fn team(size: u32, start: u64, mode: Option<Mode>) -> Vec<One> {
    team_of(&vec![WORDS * size as usize; size as usize], start, mode)
}

/// The same, whose members' memory has so many words.
fn team_of(words: &[usize], start: u64, mode: Option<Mode>) -> Vec<One> {
    let size = words.len() as u32;
    let segments: Vec<_> = (0..size)
        .map(|rank| {
            let signals = TableShape::new(size, 2).starting_at(Seq::new(start));
            let heap = SegmentShape::new(1, 1, WORDS * 8 * (size as usize + 1));
            let shape = SegmentShape { signals, ..heap };
            Segment::create(shape, identity([1; 16], Rank(rank), size, 0)).expect("a segment")
        })
        .collect();
    let links: Vec<Arc<dyn Link>> = (0..size as usize)
        .map(|me| {
            let link = ShmLink::new(segments[me].clone());
            for peer in (0..size).filter(|peer| *peer as usize != me) {
                link.connect(Rank(peer), segments[peer as usize].clone()).expect("connected");
            }
            Arc::new(link) as Arc<dyn Link>
        })
        .collect();
    let blocks: Vec<_> = segments
        .iter()
        .zip(words)
        .map(|(segment, words)| segment.allocate(words * 8).expect("room"))
        .collect();
    let sources: Vec<_> =
        links.iter().zip(&blocks).map(|(link, block)| link.register(block).expect("ok")).collect();
    let keys: Vec<RegionKey> =
        sources.iter().map(|source| source.key().expect("a key").clone()).collect();
    let mut all = Vec::new();
    for me in 0..size as usize {
        let (comm, link) = (open(me as u32, settings()), &links[me]);
        let members = (0..size).map(|peer| {
            (peer as usize != me).then(|| {
                let target = link.attach(Rank(peer), &keys[peer as usize]).expect("attached");
                let port = |slot| {
                    let signal = link.attach_signal(Rank(peer), slot).expect("a slot");
                    let port = comm.port(link, sources[me].clone(), target.clone(), Some(signal));
                    let port = port.expect("a port");
                    mode.map_or(port.clone(), |mode| port.in_mode(mode).expect("mapped"))
                };
                let incoming = [0, 1].map(|slot| {
                    let slot = SlotId { producer: Rank(peer), slot };
                    segments[me].signals().slot(slot).expect("a slot")
                });
                Member { data: port(0), ready: port(1), incoming }
            })
        });
        let team = Team::new(members.collect()).expect("one is empty");
        all.push(One { team, block: blocks[me].clone(), link: Arc::clone(link), _comm: comm });
    }
    all
}

/// Has each member do `work`, and gives what came of it.
fn each<R: Send>(all: &[One], work: impl Fn(usize, &One) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            all.iter().enumerate().map(|(at, one)| scope.spawn(move || work(at, one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

const SHAPES: [Shape; 4] = [
    Shape::Flat,
    Shape::Ring { piece: 1 << 20 },
    Shape::Ring { piece: 64 },
    Shape::Ring { piece: 8 },
];

#[test]
fn all_have_what_the_root_has() {
    for (size, start) in [(1, 0), (2, u64::MAX - 1), (4, 7)] {
        for mode in [None, Some(Mode::Ring), Some(Mode::Direct)] {
            let all = team(size, start, mode);
            let mut round = 0;
            for shape in SHAPES {
                for root in 0..size as usize {
                    round += 1;
                    let number = round * 1000;
                    // A part in the middle; what is around it stays.
                    let bytes = 64..WORDS * 8 - 64;
                    each(&all, |at, one| {
                        let own = words(&one.block, 0, WORDS);
                        own.fill(if at == root { number } else { 1 });
                        // Nobody holds a slice while others write.
                        one.team
                            .broadcast(root, bytes.clone(), shape, patient())
                            .expect("all are there");
                        let own = words(&one.block, 0, WORDS);
                        assert!(
                            own[8..WORDS - 8].iter().all(|word| *word == number),
                            "{shape:?} {at}"
                        );
                        let around = if at == root { number } else { 1 };
                        assert!(
                            own[..8].iter().chain(&own[WORDS - 8..]).all(|word| *word == around)
                        );
                    });
                }
            }
        }
    }
}

fn summed(bytes: std::ops::Range<usize>, landing: usize, element: usize) -> Summed {
    Summed { bytes, landing, element }
}

/// What a member adds: numbers whose sum depends on the order.
fn number(at: usize, word: usize) -> f64 {
    1e16_f64.powi((at % 2) as i32) / (3.0 + word as f64) + 1.0 / (1.0 + at as f64)
}

#[test]
fn a_sum_is_the_same_in_every_shape() {
    for (size, start) in [(1, 0), (2, u64::MAX), (5, 0)] {
        let all = team(size, start, None);
        for root in 0..size as usize {
            let expected: Vec<u64> = (0..WORDS)
                .map(|word| {
                    // From the last of those behind the root.
                    let behind =
                        (1..size as usize).rev().map(|after| (root + after) % size as usize);
                    let mut sum = None;
                    for at in behind {
                        let own = number(at, word);
                        sum = Some(sum.map_or(own, |sum: f64| sum + own));
                    }
                    sum.map_or(number(root, word), |sum| number(root, word) + sum).to_bits()
                })
                .collect();
            for shape in SHAPES {
                let sums = each(&all, |at, one| {
                    for (word, place) in words(&one.block, 0, WORDS).iter_mut().enumerate() {
                        *place = number(at, word).to_bits();
                    }
                    let value = |at: usize| f64::from_bits(words(&one.block, at, 1)[0]);
                    let add = |landed: &[std::ops::Range<usize>], bytes: std::ops::Range<usize>| {
                        for at in bytes.clone().step_by(8) {
                            let landed =
                                landed.iter().map(|from| value(from.start + at - bytes.start));
                            let landed =
                                landed.reduce(|sum, next| sum + next).expect("one at least");
                            words(&one.block, at, 1)[0] = (value(at) + landed).to_bits();
                        }
                    };
                    let landing = WORDS * 8;
                    one.team
                        .reduce(root, summed(0..WORDS * 8, landing, 8), shape, patient(), add)
                        .expect("all are there");
                    words(&one.block, 0, WORDS).to_vec()
                });
                assert_eq!(sums[root], expected, "{shape:?} of {size} at {root}");
            }
        }
    }
}

/// A member that is dead, or does not come, is an outcome within the bound, and is named.
#[test]
fn a_member_that_does_not_come_is_named() {
    for shape in [Shape::Flat, Shape::Ring { piece: 64 }] {
        let all = team(3, 0, None);
        let short = Bound::within(Duration::from_secs(2));
        let ends = each(&all, |at, one| {
            let started = Instant::now();
            // The last one is slow for ever.
            let ended = (at < 2).then(|| one.team.broadcast(0, 0..64, shape, short));
            assert!(started.elapsed() < Duration::from_secs(20));
            ended
        });
        let named = |end: &Option<Result<(), SendError>>| {
            let error = end.as_ref().expect("it called").as_ref().expect_err("one is missing");
            assert!(matches!(error, SendError::Member { .. }), "{error}");
            error.to_string()
        };
        let missing = "of rank 2 its bytes to be free was waited for: waited ";
        let who = if shape == Shape::Flat { &ends[0] } else { &ends[1] };
        assert!(named(who).starts_with(missing), "{}", named(who));
        // Whose call failed makes no other: who is still in it would take that for the same.
        let failed = |at: &usize| matches!(ends[*at], Some(Err(_)));
        for at in (0..2).filter(failed) {
            let next = all[at].team.broadcast(0, 0..64, shape, patient()).expect_err("out of step");
            assert_eq!(next, SendError::Broken, "{at}");
        }
    }
    let all = team(2, 0, None);
    let dead = Ending::PeerDead { rank: Rank(1) };
    all[0].link.end_peer(Rank(1), dead);
    let error = all[0].team.broadcast(0, 0..64, Shape::Flat, patient()).expect_err("it is dead");
    assert!(error.is_peer_lost(), "{error}");
    let error = all[0].team.broadcast(2, 0..64, Shape::Flat, patient()).expect_err("no such place");
    assert_eq!(error, SendError::NoMember { place: 2, size: 2 });
    for (members, empty) in [(vec![None, None], 2), (Vec::new(), 0)] {
        let size = members.len();
        let told = Team::new(members).expect_err("whose is it?");
        assert_eq!(told, CommError::Places { empty, size });
        let text = format!("of the {size} places of a team {empty} are empty: leave one empty");
        assert!(told.to_string().starts_with(&text), "{told}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_breaks_nothing() {
    let all = team(3, 0, None);
    let len = WORDS * 8;
    for (bytes, landing, element, shape, part) in [
        (
            0..len,
            len,
            8,
            Shape::Ring { piece: 12 },
            "12 bytes are no whole number of elements of 8",
        ),
        (0..len - 4, len, 8, Shape::Flat, "no whole number of elements of 8 bytes"),
        (0..len, len + 8, 8, Shape::Flat, "are not within the region of 6144 bytes"),
        (0..len, usize::MAX - 8, 8, Shape::Ring { piece: 64 }, "are not within the region"),
        (0..4 * len, 0, 8, Shape::Ring { piece: 64 }, "are not within the region"),
    ] {
        let add =
            |_: &[std::ops::Range<usize>], _: std::ops::Range<usize>| panic!("nothing to add");
        let error = all[0].team.reduce(0, summed(bytes, landing, element), shape, patient(), add);
        let error = error.expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
    let ends = each(&all, |_, one| one.team.broadcast(0, 0..64, Shape::Flat, patient()));
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
}

/// What makes no sense is refused by each member for itself, and breaks nothing.
#[test]
fn a_call_out_of_the_memory_or_over_itself_is_refused() {
    let all = team(3, 0, None);
    let whole = WORDS * 8 * 3;
    let (flat, ring) = (Shape::Flat, Shape::Ring { piece: 64 });
    for One { team, .. } in &all {
        for asked in [whole - 8..whole + 8, usize::MAX - 8..usize::MAX] {
            for shape in [flat, ring] {
                let told = team.broadcast(0, asked.clone(), shape, patient());
                assert!(matches!(told, Err(SendError::OutOfRange { .. })), "{told:?}");
            }
        }
        let sum = |bytes: std::ops::Range<usize>, landing, shape| {
            let summed = Summed { bytes, landing, element: 8 };
            team.reduce(0, summed, shape, patient(), |_, _| panic!("nothing is summed"))
        };
        // Two others land behind each other where one does in a ring.
        for (bytes, landing, shape) in
            [(0..128, 0, flat), (0..128, 120, ring), (256..384, 136, ring), (256..384, 8, flat)]
        {
            let told = sum(bytes.clone(), landing, shape);
            assert!(matches!(told, Err(SendError::Overlap { .. })), "{bytes:?} {landing} {told:?}");
        }
        let told = sum(0..128, whole - 64, ring).map_err(|error| error.to_string());
        assert!(told.is_err_and(|error| error.contains("are not within the region")));
    }
    // Beside each other they are apart, and nobody's team is broken.
    let sums = each(&all, |at, one| {
        words(&one.block, 0, WORDS * 3).fill(at as u64 + 1);
        let summed = Summed { bytes: 256..384, landing: 0, element: 8 };
        one.team.reduce(0, summed, flat, patient(), |parts, sum| {
            for part in parts {
                for word in 0..sum.len() / 8 {
                    let (from, to) = (part.start + 8 * word, sum.start + 8 * word);
                    words(&one.block, to, 1)[0] += words(&one.block, from, 1)[0];
                }
            }
        })
    });
    assert_eq!(sums, [Ok(()), Ok(()), Ok(())]);
    assert!(words(&all[0].block, 256, 16).iter().all(|word| *word == 6));
}

/// Adds up words, as a kernel does.
fn add_words(one: &One) -> impl FnMut(&[std::ops::Range<usize>], std::ops::Range<usize>) {
    |parts, sum| {
        for part in parts {
            for word in (0..sum.len()).step_by(8) {
                words(&one.block, sum.start + word, 1)[0] +=
                    words(&one.block, part.start + word, 1)[0];
            }
        }
    }
}

/// Who receives nothing needs no room for it, wherever the root is.
#[test]
fn room_is_asked_of_who_receives() {
    const LEN: usize = WORDS * 8;
    for root in 0..3 {
        for (shape, wide) in [(Shape::Flat, 1), (Shape::Ring { piece: 64 }, 2)] {
            // Those from the root on, which have one more part for each that lands there at once.
            let parts = |at: usize| match (at + 3 - root) % 3 < wide {
                false => 1,
                true if shape == Shape::Flat => 3,
                true => 2,
            };
            let all = team_of(&[0, 1, 2].map(|at| WORDS * parts(at)), 0, None);
            let sums = each(&all, |at, one| {
                words(&one.block, 0, WORDS).fill(at as u64 + 1);
                one.team.reduce(root, summed(0..LEN, LEN, 8), shape, patient(), add_words(one))
            });
            assert_eq!(sums, [Ok(()), Ok(()), Ok(())], "{shape:?} to {root}");
            assert_eq!(words(&all[root].block, 0, WORDS), [6; WORDS], "{shape:?} to {root}");
        }
    }
}

/// Memory that is too small at one is refused by all, who name it, before anything is sent.
#[test]
fn what_does_not_fit_at_another_is_refused_by_all() {
    const LEN: usize = WORDS * 8;
    let flat = Shape::Flat;
    for (small, at, shape, whose) in [
        (WORDS * 2, 1, flat, "of 4096 bytes of rank 1"),
        (WORDS, 2, Shape::Ring { piece: 64 }, "of 2048 bytes of rank 2"),
        (WORDS - 1, 0, flat, "of 2040 bytes of rank 0"),
    ] {
        let mut sizes = [WORDS * 3; 3];
        sizes[at] = small;
        let all = team_of(&sizes, 0, None);
        let told = each(&all, |_, one| {
            let add = |_: &[_], _| panic!("nothing is summed");
            one.team.reduce(1, summed(0..LEN, LEN, 8), shape, patient(), add)
        });
        let named = |told: &Result<(), SendError>| {
            told.as_ref().is_err_and(|error| error.to_string().ends_with(whose))
        };
        assert!(told.iter().all(named), "{whose}: {told:?}");
        let past = each(&all, |_, one| one.team.broadcast(1, 0..small * 8 + 8, flat, patient()));
        assert!(past.iter().all(named), "{whose}: {past:?}");
        let fits = each(&all, |_, one| one.team.broadcast(1, 0..small * 8, flat, patient()));
        assert_eq!(fits, [Ok(()), Ok(()), Ok(())], "{whose}: it breaks nothing");
    }
}

/// Pieces of no bytes would be sent for ever.
#[test]
fn pieces_of_nothing_are_refused() {
    let (all, shape) = (team(2, 0, None), Shape::Ring { piece: 0 });
    for One { team, .. } in &all {
        let sum = |element| {
            team.reduce(0, summed(0..64, 64, element), shape, patient(), |_, _| panic!("no piece"))
        };
        let told = [(sum(8), 8), (sum(0), 1), (team.broadcast(0, 0..64, shape, patient()), 1)];
        for (told, element) in told {
            assert_eq!(told, Err(SendError::Pieces { piece: 0, element }));
            let text = told.expect_err("it was").to_string();
            let wanted = format!("pieces of 0 bytes never get there: take a multiple of {element}");
            assert!(text.starts_with(&wanted), "{text}");
        }
    }
    let ends = each(&all, |_, one| one.team.broadcast(0, 0..64, Shape::Flat, patient()));
    assert_eq!(ends, [Ok(()), Ok(())], "it breaks nothing");
}

/// Nothing lands where there are no others, so nothing is overwritten.
#[test]
fn a_team_of_one_has_its_sum() {
    let all = team(1, 0, None);
    for shape in SHAPES {
        for landing in [0, 64, usize::MAX] {
            let add = |_: &[_], _| panic!("nothing to add");
            let told = all[0].team.reduce(0, summed(0..128, landing, 8), shape, patient(), add);
            assert_eq!(told, Ok(()), "{shape:?} {landing}");
        }
    }
}
