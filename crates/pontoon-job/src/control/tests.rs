use super::*;
use crate::{ProcessId, Standing, sys::spawn, wire::Question};
use std::{
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel, sync_channel},
    time::{Duration, Instant},
};

const PATIENCE: Nanos = Nanos(30_000_000_000);

/// Rank 1 of three. The test plays rank 0; one of the others is a process that sleeps.
struct Play {
    rank_0: Socket,
    shared: Arc<Shared>,
    child: Child,
    begun: Receiver<Result<(), JoinError>>,
    _watcher: Arc<Watcher>,
}

impl Drop for Play {
    fn drop(&mut self) {
        self.shared.stop();
        self.shared.membership.stop();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Play {
    fn start(verdict: Nanos, sleeps: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let rank_0 = Socket::new(listener.accept().unwrap().0).unwrap();
        let membership = Membership::start(3).unwrap();
        let process = Process::current().unwrap();
        let shared = Shared::new(Rank(1), 0, process.clone(), membership).unwrap();
        let (shared, watcher) = (Arc::new(shared), Arc::new(Watcher::start().unwrap()));
        let (begun, told) = channel();
        let beat = Duration::from_secs(1);
        let control = Control {
            shared: Arc::clone(&shared),
            env: Env::alone().unwrap(),
            address,
            socket: Socket::new(stream).unwrap(),
            pace: Pace::new(beat, Duration::from_secs(30)),
            watcher: Arc::clone(&watcher),
            begun: Some(begun),
            heard: now(),
            next_beat: now(),
            woke: now(),
            suspects: Vec::new(),
            verdict,
        };
        let (done, _) = sync_channel(0);
        spawn("control", move || control.run(done)).unwrap();

        let child = Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().unwrap();
        let sleeper = ProcessId::of(child.id()).unwrap().unwrap();
        let mut play = Self { rank_0, shared, child, begun: told, _watcher: watcher };
        for rank in 0..3 {
            let id = if rank == sleeps { sleeper } else { process.id };
            let process = Process { id, ..process.clone() };
            let member = Member { rank: Rank(rank), epoch: 0, process };
            play.say(Message::Member { member, card: Box::default() });
        }
        play.say(Message::Start);
        play.begun.recv_timeout(PATIENCE.as_duration()).unwrap().unwrap();
        play
    }

    fn say(&mut self, message: Message) {
        self.rank_0.send(message.frame().into()).unwrap();
    }

    /// The next message that is no heartbeat.
    fn hear(&mut self) -> Message {
        let until = Instant::now() + PATIENCE.as_duration();
        while Instant::now() < until {
            match self.rank_0.next_frame(FRAME_MAX).unwrap().map(Message::decode) {
                Some(Ok(Message::Beat)) => {}
                Some(message) => return message.unwrap(),
                None => {
                    let _ = poll(&mut [self.rank_0.poll_fd()], Some(&timespec(Nanos(1_000_000))));
                    self.rank_0.receive().unwrap();
                }
            }
        }
        panic!("nothing was said");
    }

    fn standing(&self) -> Standing {
        let until = Instant::now() + PATIENCE.as_duration();
        loop {
            match self.shared.membership.of(Rank(2)).unwrap() {
                Standing::Alive => assert!(Instant::now() < until, "rank 2 does not end"),
                ended => return ended,
            }
            std::thread::yield_now();
        }
    }
}

impl Play {
    /// Why nothing is answered any more.
    fn over(&self) -> Over {
        let (to, answer) = sync_channel(1);
        match self.shared.open(to) {
            Ok(_) => {
                let ended = answer.recv_timeout(PATIENCE.as_duration()).unwrap_err();
                assert_eq!(ended, std::sync::mpsc::RecvTimeoutError::Disconnected);
                self.shared.state().over.unwrap()
            }
            Err(over) => over,
        }
    }
}

const SAW: Message = Message::SawExit { rank: Rank(2), epoch: 0 };

#[test]
fn an_exit_is_what_rank_0_says_it_is() {
    let mut play = Play::start(PATIENCE, 2);
    play.child.kill().unwrap();
    assert_eq!(play.hear(), SAW);
    // Its goodbye is on the way still: it is not taken for dead meanwhile, in turns that are over
    // when a question comes.
    let ask = Message::Ask { request: 0, question: Question::Forget };
    play.shared.post(ask.clone());
    assert_eq!(play.hear(), ask);
    assert!(play.shared.membership.is_alive(Rank(2)));
    play.say(Message::Ended { rank: Rank(2), epoch: 0, ending: Ending::Left });
    assert!(matches!(play.standing(), Standing::Left { .. }));
}

#[test]
fn an_exit_on_which_rank_0_says_nothing_is_a_death() {
    let mut play = Play::start(VERDICT, 2);
    play.child.kill().unwrap();
    assert_eq!(play.hear(), SAW);
    assert!(matches!(play.standing(), Standing::Dead { how: How::Exited, .. }));
}

#[test]
fn what_rank_0_may_not_say_ends_the_connection() {
    for message in [Message::Leave, Message::Proof([0; 32])] {
        let mut play = Play::start(VERDICT, 2);
        play.say(message);
        let over = play.over();
        assert_eq!(over, Over::Store(Ending::Dead(How::ConnectionClosed)));
    }
}

#[test]
fn rank_0_is_gone_with_its_process_though_its_connection_is_open() {
    // As when a child of it keeps the connection.
    let mut play = Play::start(PATIENCE, 0);
    play.child.kill().unwrap();
    assert_eq!(play.over(), Over::Store(Ending::Dead(How::Exited)));
    assert!(!play.shared.membership.is_alive(Rank(0)));
    // Unless it said goodbye first.
    let mut play = Play::start(PATIENCE, 0);
    play.say(Message::Ended { rank: Rank(0), epoch: 0, ending: Ending::Left });
    play.child.kill().unwrap();
    assert_eq!(play.over(), Over::Store(Ending::Left));
}
