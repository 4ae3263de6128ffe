//! A job as strangers play with it: bytes say who connects, what is said and how time goes by.

use std::time::Duration;

use super::*;
use crate::{
    HostId, Process, ProcessId,
    membership::EPOCH_MAX,
    token::Side,
    wire::{FrameReader, samples},
};

const WORLD: u32 = 2;
/// More than strangers may be.
const CALLERS_MAX: usize = STRANGERS_MAX + 20;
const MS: u64 = 1_000_000;

/// What a step of the script is.
#[derive(Clone, Copy)]
enum Step {
    Connect,
    /// The next bytes, as a frame.
    Say,
    /// Frames of no form.
    Babble,
    /// Says hello as a rank, and proves it.
    Prove,
    /// As above, without the token.
    Guess,
    Hang,
    Pass,
}

const STEPS: [Step; 7] =
    [Step::Connect, Step::Say, Step::Babble, Step::Prove, Step::Guess, Step::Hang, Step::Pass];

struct Stage {
    hub: Hub,
    now: Nanos,
    links: Vec<Played>,
}

/// A connection, from its caller's side.
struct Played {
    id: LinkId,
    frames: FrameReader,
    challenge: Option<Nonce>,
    proved: bool,
    closed: bool,
}

/// Plays a job after the script, and looks at all that the hub wants done.
pub(crate) fn play(script: &[u8]) {
    let pace = Pace::new(Duration::from_millis(100), Duration::from_secs(1));
    let Some((rejoin, mut script)) = script.split_first() else { return };
    let terms =
        Terms { job: "j".into(), world: WORLD, token: token(7), pace, rejoin: rejoin & 1 == 1 };
    let now = Nanos(1_000 * MS);
    let hub = Hub::new(terms, now, Some(Nanos(11_000 * MS)));
    let mut stage = Stage { hub, now, links: Vec::new() };
    while let [step, whom, rest @ ..] = script {
        script = stage.step(STEPS[usize::from(*step) % STEPS.len()], *whom, rest);
        stage.look();
    }
}

impl Stage {
    /// Does a step; gives the rest of the script.
    fn step<'s>(&mut self, step: Step, whom: u8, script: &'s [u8]) -> &'s [u8] {
        let at = usize::from(whom) % self.links.len().max(1);
        let said = usize::from(script.first().copied().unwrap_or_default());
        let (now, id) = (self.now, self.links.get(at).map(|link| link.id));
        match (step, id) {
            (Step::Connect, _) => {
                for _ in self.links.len()..CALLERS_MAX.min(self.links.len() + usize::from(whom) + 1)
                {
                    let id = self.hub.connected(([10, 0, 0, 1], 5).into(), now);
                    let frames = FrameReader::default();
                    let (challenge, proved, closed) = (None, false, false);
                    self.links.push(Played { id, frames, challenge, proved, closed });
                    self.look();
                }
            }
            (Step::Say, Some(id)) => {
                let rest = script.get(1..).unwrap_or_default();
                let (frame, rest) = rest.split_at(said.min(rest.len()));
                assert!(frame.len() <= self.hub.frame_max(id));
                self.hub.received(id, Ok(frame), now);
                return rest;
            }
            (Step::Babble, Some(id)) => self.hub.received(id, Err(Malformed::TooLong), now),
            (Step::Prove | Step::Guess, Some(id)) => {
                let key = token(if matches!(step, Step::Prove) { 7 } else { 8 });
                self.prove(at, id, said as u32, &key);
            }
            (Step::Hang, Some(id)) => self.hub.closed(id, now),
            (Step::Pass, _) => {
                self.now = now.saturating_add(Nanos(20 * MS * u64::from(whom)));
                self.hub.tick(self.now);
            }
            (_, None) => {}
        }
        script
    }

    fn prove(&mut self, at: usize, id: LinkId, word: u32, key: &Token) {
        let (rank, world) = (Rank(word % 3), WORLD + u32::from(word > 250));
        // At its end too.
        let epoch = if word > 240 { EPOCH_MAX + word - 245 } else { word >> 3 };
        let host_name = "h".into();
        let process =
            Process { host: HostId([1; 32]), host_name, id: ProcessId { pid: 1, start_time: 2 } };
        let hello = Hello { rank, world, epoch, nonce: [3; 32], process, job: "j".into() };
        let hello = Message::Hello(hello).frame();
        self.hub.received(id, Ok(&hello[4..]), self.now);
        self.look();
        let Some(nonce) = self.links[at].challenge.take() else { return };
        self.links[at].proved = *key == token(7);
        let proof = Message::Proof(key.prove(Side::Rank, &hello[4..], &nonce));
        self.hub.received(id, Ok(&proof.frame()[4..]), self.now);
    }

    /// What is sent is whole messages to those who are there, and to strangers no more than they may
    /// know.
    fn look(&mut self) {
        for action in self.hub.take_actions() {
            let (Action::Send(id, _) | Action::Close(id)) = action;
            let link = self.links.iter_mut().find(|link| link.id == id);
            let link = link.expect("nobody else called");
            assert!(!link.closed, "sent to one that is forgotten");
            let Action::Send(_, bytes) = action else {
                link.closed = true;
                continue;
            };
            link.frames.push(&bytes);
            while let Some(frame) = link.frames.next(FRAME_MAX).expect("frames of the hub's") {
                match Message::decode(frame).expect("a message of the hub's") {
                    Message::Challenge(nonce) => link.challenge = Some(nonce),
                    Message::Refused(_) => {}
                    told => assert!(link.proved, "a stranger was told {told:?}"),
                }
            }
        }
        let strangers = self.hub.links.values().filter(|link| link.stage.is_stranger()).count();
        assert!(strangers <= STRANGERS_MAX, "{strangers} strangers are kept");
    }
}

fn token(digit: u8) -> Token {
    Token::parse(&[b'0' + digit; 2 * Token::BYTES]).expect("hexadecimal digits")
}

/// A job that begins, goes on and ends; and one that is crowded.
pub(crate) fn scripts() -> Vec<Vec<u8>> {
    let say = |whom: u8, message: &Message| {
        let frame = message.frame();
        let length = (frame.len() - 4).min(255);
        [&[1, whom, length as u8], &frame[4..4 + length]].concat()
    };
    let card = Message::Card(Box::from(*b"card"));
    let mut job = vec![1, 0, 1, 3, 0, 0, 3, 1, 1];
    job.extend([say(0, &card), say(1, &card)].concat());
    let mut scripts = vec![[job.clone(), vec![6, 10, 5, 0, 0, 2, 3, 2, 9]].concat()];
    for message in samples::all() {
        scripts.push([&job[..], &say(1, &message), &say(0, &message), &[6, 3]].concat());
    }
    scripts.push(vec![0, 0, 200, 4, 9, 0, 2, 8, 6, 150, 3, 0, 251, 3, 1, 245]);
    scripts
}
