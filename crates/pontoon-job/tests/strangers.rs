//! Those who do not belong to the job, and are not to disturb it.

mod common;

use common::{PATIENCE, Place, card, each, join, options, patient, until, watchdog};
use pontoon_job::{Job, JoinError};
use pontoon_signal::Rank;
use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Instant,
};

const MAGIC: &[u8; 8] = b"pontoonJ";

/// A job of two whose rank 1 has not come yet.
struct Half {
    place: Place,
    first: thread::JoinHandle<Result<Job, JoinError>>,
}

impl Half {
    fn start() -> Self {
        let place = Place::new();
        let env = place.env(0, 2);
        let first = thread::spawn(move || join(&env, &card(0), patient()));
        Self { place, first }
    }

    fn connect(&self) -> TcpStream {
        let connect = || TcpStream::connect((&*self.place.host, self.place.port)).ok();
        let stream = until("rank 0 to listen", connect);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Lets rank 1 come; the job, which must be whole.
    fn complete(self) -> [Job; 2] {
        let second = join(&self.place.env(1, 2), &card(1), patient()).unwrap();
        let first = self.first.join().unwrap().unwrap();
        assert_eq!(&*first.card(Rank(1)).unwrap(), card(1));
        [first, second]
    }
}

/// Reads until the other side closes; what it sent. A reset is an end too.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => all,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => all,
        Err(error) => panic!("not closed: {error}"),
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], body].concat()
}

#[test]
fn garbage_is_refused_and_counted() {
    watchdog(|| {
        let half = Half::start();
        let garbage: [&[u8]; 6] = [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            &[0xff; 4096],
            &[0; 64],
            &frame(&[0; 100]),
            &frame(b"\x01notmagicandmore"),
            &frame(b"\x04a proof of thirty-two bytes......"),
        ];
        for bytes in garbage {
            let mut stream = half.connect();
            let _ = stream.write_all(bytes);
            assert_eq!(read_to_end(&mut stream), b"", "{bytes:?}");
        }
        let [first, second] = half.complete();
        assert_eq!(first.strangers().unwrap().garbage, garbage.len() as u64);
        drop((first, second));
    });
}

#[test]
fn another_version_is_told_both_versions() {
    watchdog(|| {
        let half = Half::start();
        let mut stream = half.connect();
        let hello = [&b"\x01"[..], MAGIC, &7u16.to_le_bytes(), b"whatever version 7 says"].concat();
        stream.write_all(&frame(&hello)).unwrap();
        // Refused, by version 1, because of the version.
        let refused = [&b"\x02"[..], MAGIC, &1u16.to_le_bytes(), b"\x00"].concat();
        assert_eq!(read_to_end(&mut stream), frame(&refused));
        let [first, second] = half.complete();
        assert_eq!(first.strangers().unwrap().other_version, 1);
        drop((first, second));
    });
}

/// What plays rank 0 for one caller, and answers its hello with `answer`.
fn play_master(place: &Place, answers: &[&[u8]]) -> JoinError {
    let listener = TcpListener::bind((&*place.host, place.port)).unwrap();
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
    let player = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for answer in answers {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut body = vec![0; u32::from_le_bytes(length) as usize];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(&frame(&answer)).unwrap();
        }
        let _ = stream.read(&mut [0; 64]);
    });
    let error = join(&place.env(1, 2), b"", patient()).unwrap_err();
    player.join().unwrap();
    error
}

#[test]
fn a_rank_0_of_another_version_is_named_with_both() {
    watchdog(|| {
        let refused = [&b"\x02"[..], MAGIC, &9u16.to_le_bytes(), b"in words of version 9"].concat();
        let error = play_master(&Place::new(), &[&refused]);
        assert_eq!(error, JoinError::Version { ours: 1, theirs: 9 });
        let text = error.to_string();
        assert!(text.contains("version 1") && text.contains("rank 0 version 9"), "{text}");
    });
}

#[test]
fn who_does_not_know_the_token_is_not_taken_for_rank_0() {
    watchdog(|| {
        let challenge = [&b"\x03"[..], &[5; 32]].concat();
        let welcome = [&b"\x05"[..], &[6; 32], &[1; 16]].concat();
        let error = play_master(&Place::new(), &[&challenge, &welcome]);
        assert!(matches!(error, JoinError::Impostor { .. }), "{error:?}");
    });
}

#[test]
fn what_a_rank_proved_does_not_serve_another_connection() {
    watchdog(|| {
        // A rank proves itself to one who only listens, with a challenge taken from the true rank 0.
        let half = Half::start();
        let decoy = Place::new();
        let listener = TcpListener::bind((&*decoy.host, decoy.port)).unwrap();
        let env = decoy.env(1, 2);
        let short = pontoon_signal::Bound::within(std::time::Duration::from_millis(500));
        let victim = thread::spawn(move || join(&env, b"", short));
        let mut from_victim = listener.accept().unwrap().0;
        let read = |stream: &mut TcpStream| {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut body = vec![0; u32::from_le_bytes(length) as usize];
            stream.read_exact(&mut body).unwrap();
            frame(&body)
        };
        let hello = read(&mut from_victim);
        let mut to_master = half.connect();
        to_master.write_all(&hello).unwrap();
        let challenge = read(&mut to_master);
        from_victim.write_all(&challenge).unwrap();
        let proof = read(&mut from_victim);
        // Replayed on a connection of its own it is worth nothing.
        drop((from_victim, to_master));
        let mut replay = half.connect();
        replay.write_all(&hello).unwrap();
        read(&mut replay);
        replay.write_all(&proof).unwrap();
        let refused = [&b"\x02"[..], MAGIC, &1u16.to_le_bytes(), b"\x01"].concat();
        assert_eq!(read_to_end(&mut replay), frame(&refused));
        drop(listener);
        assert!(victim.join().unwrap().is_err());
        let [first, second] = half.complete();
        assert_eq!(first.strangers().unwrap().wrong_token, 1);
        drop((first, second));
    });
}

#[test]
fn a_slow_loris_is_cut_off() {
    watchdog(|| {
        let half = Half::start();
        let mut silent = half.connect();
        let mut slow = half.connect();
        slow.set_nodelay(true).unwrap();
        let start = Instant::now();
        // A byte at a time of a hello that would be in order.
        let hello = frame(&[&b"\x01"[..], MAGIC, &1u16.to_le_bytes(), &[0; 150]].concat());
        let cut = hello.iter().cycle().position(|byte| {
            thread::sleep(std::time::Duration::from_millis(20));
            slow.write_all(&[*byte]).is_err()
        });
        assert!(cut.is_some());
        assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
        assert_eq!(read_to_end(&mut silent), b"");
        let [first, second] = half.complete();
        assert_eq!(first.strangers().unwrap().too_slow, 2);
        drop((first, second));
    });
}

#[test]
fn a_caller_that_goes_half_way_is_forgotten() {
    watchdog(|| {
        let half = Half::start();
        for bytes in [&b""[..], b"\x05", b"\x05\x00\x00\x00\x01"] {
            let mut stream = half.connect();
            stream.write_all(bytes).unwrap();
            drop(stream);
        }
        let [first, second] = half.complete();
        until("all three to be noticed", || {
            (first.strangers().unwrap().gave_up == 3).then_some(())
        });
        drop((first, second));
    });
}

#[test]
fn two_hundred_strangers_do_not_keep_a_job_from_beginning_or_going_on() {
    watchdog(|| {
        let half = Half::start();
        let mut strangers: Vec<TcpStream> = (0..200)
            .map(|index| {
                let mut stream = half.connect();
                let _ = match index % 3 {
                    0 => Ok(()),
                    1 => stream.write_all(b"\x10\x00\x00\x00\x01"),
                    _ => stream.write_all(&[index as u8; 300]),
                };
                stream
            })
            .collect();
        let jobs = half.complete();
        each(&jobs, |job| {
            for _ in 0..20 {
                job.barrier(b"in the crowd", patient()).unwrap();
            }
            assert_eq!(job.membership().alive().count(), 2);
        });
        strangers.iter_mut().for_each(|stream| drop(read_to_end(stream)));
        let counts = jobs[0].strangers().unwrap();
        assert_eq!(counts.total(), 200, "{counts:?}");
        assert!(counts.garbage >= 66, "{counts:?}");
        drop(jobs);
    });
}

#[test]
fn a_job_that_runs_is_not_disturbed_either() {
    watchdog(|| {
        let jobs = Place::new().join_all(2, options());
        let address = jobs[0].address().unwrap();
        for _ in 0..10 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&[0x55; 2000]).unwrap();
            assert_eq!(read_to_end(&mut stream), b"");
        }
        each(&jobs, |job| job.barrier(b"on", patient()).unwrap());
        assert_eq!(jobs[0].strangers().unwrap().garbage, 10);
    });
}
