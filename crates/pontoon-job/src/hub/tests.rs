use super::*;
use crate::{
    HostId, Process, ProcessId,
    token::Side,
    wire::{Answer, FrameReader},
};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// A hub, its clock, and what its callers were sent.
struct Play {
    hub: Hub,
    now: Nanos,
    sent: HashMap<LinkId, Vec<Message>>,
    frames: HashMap<LinkId, FrameReader>,
    closed: Vec<LinkId>,
}

impl Play {
    fn new(world: u32, rejoin: bool) -> Self {
        let pace = Pace::new(Duration::from_millis(100), Duration::from_secs(1));
        let terms = Terms { job: "j".into(), world, token: token(), pace, rejoin };
        let now = Nanos(1_000 * MS);
        let hub = Hub::new(terms, now, Some(Nanos(11_000 * MS)));
        let (sent, frames) = Default::default();
        Self { hub, now, sent, frames, closed: Vec::new() }
    }

    fn running(world: u32, rejoin: bool) -> (Self, Vec<LinkId>) {
        let mut play = Self::new(world, rejoin);
        let links = (0..world).map(|rank| play.join(rank, 0)).collect();
        assert_eq!(play.hub.phase, Phase::Running);
        play.clear();
        (play, links)
    }

    fn clear(&mut self) {
        self.sent.clear();
        self.closed.clear();
    }

    fn act(&mut self) {
        for action in self.hub.take_actions() {
            match action {
                Action::Send(link, bytes) => {
                    let frames = self.frames.entry(link).or_default();
                    frames.push(&bytes);
                    while let Some(frame) = frames.next(FRAME_MAX).unwrap() {
                        self.sent.entry(link).or_default().push(Message::decode(frame).unwrap());
                    }
                }
                Action::Close(link) => self.closed.push(link),
            }
        }
    }

    fn call(&mut self) -> LinkId {
        let link = self.hub.connected(([10, 0, 0, 1], 5).into(), self.now);
        self.act();
        link
    }

    fn say(&mut self, link: LinkId, message: &Message) {
        self.hub.received(link, Ok(&message.frame()[4..]), self.now);
        self.act();
    }

    /// Calls, says hello and proves it; stops short of the card.
    fn prove(&mut self, rank: u32, epoch: u32, with: &Token) -> LinkId {
        let link = self.call();
        let hello = Message::Hello(hello(rank, self.hub.terms.world, epoch));
        self.say(link, &hello);
        let Some(Message::Challenge(nonce)) = self.sent.get_mut(&link).and_then(Vec::pop) else {
            panic!("no challenge")
        };
        let proof = with.prove(Side::Rank, &hello.frame()[4..], &nonce);
        self.say(link, &Message::Proof(proof));
        link
    }

    fn join(&mut self, rank: u32, epoch: u32) -> LinkId {
        let link = self.prove(rank, epoch, &token());
        self.say(link, &Message::Card(Box::from(*b"card")));
        link
    }

    /// Lets time go by in small steps, in which `beating` say that they live.
    fn pass(&mut self, ms: u64, beating: &[LinkId]) {
        for _ in 0..ms / 50 {
            self.now = self.now.saturating_add(Nanos(50 * MS));
            for &link in beating {
                self.say(link, &Message::Beat);
            }
            self.hub.tick(self.now);
            self.act();
        }
    }

    fn sent(&self, link: LinkId) -> &[Message] {
        self.sent.get(&link).map_or(&[], |sent| sent)
    }

    fn ends(&self, link: LinkId) -> Vec<(u32, Ending)> {
        let ends = self.sent(link).iter().filter_map(|message| match message {
            Message::Ended { rank, ending, .. } => Some((rank.0, *ending)),
            _ => None,
        });
        ends.collect()
    }

    fn refusal(&self, link: LinkId) -> Option<&Reason> {
        match self.sent(link).last() {
            Some(Message::Refused(refused)) if self.closed.contains(&link) => Some(&refused.reason),
            _ => None,
        }
    }
}

fn token() -> Token {
    Token::parse(&[b'7'; 64]).unwrap()
}

fn hello(rank: u32, world: u32, epoch: u32) -> Hello {
    let id = ProcessId { pid: 100 + rank, start_time: epoch.into() };
    let process = Process { host: HostId([1; 32]), host_name: "node".into(), id };
    Hello { rank: Rank(rank), world, epoch, nonce: [3; 32], process, job: "j".into() }
}

const LOST: Ending = Ending::Dead(How::HeartbeatLost);
const CUT: Ending = Ending::Dead(How::ConnectionClosed);

#[test]
fn a_job_begins_when_the_last_card_is_there() {
    let mut play = Play::new(2, false);
    let first = play.join(0, 0);
    assert!(matches!(play.sent(first)[0], Message::Welcome { .. }));
    let second = play.prove(1, 0, &token());
    assert!(!play.sent(first).contains(&Message::Start));
    play.say(second, &Message::Card(Box::default()));
    for link in [first, second] {
        let roster = &play.sent(link)[play.sent(link).len() - 3..];
        assert!(matches!(&roster[0], Message::Member { member, .. } if member.rank == Rank(0)));
        assert!(matches!(&roster[1], Message::Member { member, .. } if member.rank == Rank(1)));
        assert_eq!(roster[2], Message::Start);
    }
}

#[test]
fn a_silent_rank_is_lost_no_sooner_and_no_later_than_the_pace_says() {
    let (mut play, links) = Play::running(3, false);
    play.pass(1_000, &links[..2]);
    assert_eq!(play.ends(links[0]), []);
    play.pass(100, &links[..2]);
    for &link in &links {
        assert_eq!(play.ends(link), [(2, LOST)], "to itself too");
    }
    assert_eq!(play.closed, [links[2]]);
    play.pass(5_000, &links[..2]);
    assert_eq!(play.ends(links[0]).len(), 1, "once");
}

#[test]
fn every_living_rank_hears_of_rank_0_often_enough() {
    let (mut play, links) = Play::running(2, false);
    play.pass(2_000, &links);
    let beats = play.sent(links[1]).iter().filter(|it| **it == Message::Beat).count();
    assert!((19..=21).contains(&beats), "{beats} heartbeats in 2 s");
}

#[test]
fn rank_0_stopped_for_long_does_not_call_the_others_silent() {
    let (mut play, links) = Play::running(3, false);
    play.now = play.now.saturating_add(Nanos(60_000 * MS));
    play.hub.tick(play.now);
    play.act();
    assert_eq!((play.ends(links[0]), play.closed.len()), (vec![], 0));
    play.pass(1_100, &links[..2]);
    assert_eq!(play.ends(links[0]), [(2, LOST)], "but who stays silent is");
}

#[test]
fn rank_0_is_left_behind_once_all_others_died_and_some_took_it_for_dead() {
    let (mut play, links) = Play::running(3, false);
    play.say(links[2], &Message::Abandon);
    assert_eq!(play.ends(links[0]), [(2, CUT)], "one is left with it");
    play.hub.closed(links[1], play.now);
    play.act();
    assert_eq!(play.ends(links[0]), [(2, CUT), (1, CUT), (0, LOST)]);
    // That they died is nothing of the kind, and one that left had all it wanted.
    for last in [None, Some(Message::Leave)] {
        let (mut play, links) = Play::running(3, false);
        let is_left = last.is_some();
        match last {
            Some(leave) => play.say(links[1], &leave),
            None => play.hub.closed(links[1], play.now),
        }
        if is_left {
            play.say(links[2], &Message::Abandon);
        } else {
            play.hub.closed(links[2], play.now);
        }
        play.act();
        let told: Vec<_> = play.ends(links[0]).iter().map(|end| end.0).collect();
        assert_eq!(told, [1, 2]);
    }
}

#[test]
fn strangers_have_their_time_and_no_more() {
    let mut play = Play::new(2, false);
    let rank = play.join(0, 0);
    let (silent, half) = (play.call(), play.call());
    play.say(half, &Message::Hello(hello(1, 2, 0)));
    play.pass(2_000, &[rank]);
    assert_eq!(play.closed, []);
    play.pass(50, &[rank]);
    assert_eq!(play.closed, [silent, half]);
    assert_eq!(play.hub.counts().read().too_slow, 2);
}

#[test]
fn the_oldest_stranger_makes_room_and_no_rank_does() {
    let mut play = Play::new(2, false);
    let (rank, arriving) = (play.join(0, 0), play.prove(1, 0, &token()));
    let strangers: Vec<_> = (0..STRANGERS_MAX + 3).map(|_| play.call()).collect();
    assert_eq!(play.closed, strangers[..3]);
    assert_eq!(play.hub.counts().read().crowded_out, 3);
    play.say(arriving, &Message::Card(Box::default()));
    assert!(play.sent(rank).contains(&Message::Start));
}

#[test]
fn a_wrong_token_is_refused_before_anything_else_is_looked_at() {
    let mut play = Play::new(2, false);
    let _rank = play.join(0, 0);
    let other = Token::parse(&[b'8'; 64]).unwrap();
    for (rank, epoch) in [(0, 0), (1, 0), (900, 0), (1, u32::MAX)] {
        let link = play.prove(rank, epoch, &other);
        assert_eq!(play.refusal(link), Some(&Reason::Token));
    }
    assert_eq!(play.hub.phase, Phase::Gathering);
}

#[test]
fn messages_out_of_turn_end_the_connection() {
    let card = || Message::Card(Box::default());
    let mut play = Play::new(3, false);
    for message in [card(), Message::Beat, Message::Leave, Message::Start, Message::Proof([0; 32])]
    {
        let link = play.call();
        play.say(link, &message);
        assert_eq!(play.closed.pop(), Some(link), "{message:?}");
    }
    let early = play.prove(0, 0, &token());
    play.say(early, &Message::Leave);
    assert_eq!(play.closed, [early]);
    // A rank of a job that runs is dead by that.
    let (mut play, links) = Play::running(2, false);
    play.say(links[1], &card());
    assert_eq!(play.ends(links[0]), [(1, CUT)]);
    let (mut play, links) = Play::running(2, false);
    play.hub.received(links[1], Err(Malformed::TooLong), play.now);
    play.act();
    assert_eq!((play.ends(links[0]), &*play.closed), (vec![(1, CUT)], &links[1..]));
}

#[test]
fn a_rank_that_goes_before_the_beginning_leaves_its_seat_free() {
    let mut play = Play::new(3, false);
    let (zero, one) = (play.join(0, 0), play.join(1, 0));
    play.hub.closed(one, play.now);
    play.act();
    assert_eq!((&play.hub.phase, play.ends(zero)), (&Phase::Gathering, vec![]));
    let two = play.join(2, 0);
    assert!(!play.sent(two).contains(&Message::Start));
    let again = play.join(1, 0);
    for link in [zero, again, two] {
        assert!(play.sent(link).contains(&Message::Start));
    }
}

#[test]
fn the_bound_ends_the_gathering_for_all_and_for_who_comes_later() {
    let mut play = Play::new(3, false);
    let link = play.join(1, 0);
    play.pass(9_950, &[link]);
    let waiting = Message::Waiting { ranks: vec![Rank(0), Rank(2)], count: 2 };
    assert_eq!(play.sent(link).last(), Some(&waiting));
    play.pass(50, &[link]);
    let ranks = vec![Rank(0), Rank(2)];
    let absent = Failure::Absent { ranks, count: 2, waited: Nanos(10_000 * MS) };
    assert_eq!(play.sent(link).last(), Some(&Message::Failed(absent.clone())));
    let late = play.prove(2, 0, &token());
    assert_eq!(play.sent(late).last(), Some(&Message::Failed(absent)));
    assert_eq!(play.closed, [link, late]);
}

#[test]
fn a_world_that_disagrees_is_told_to_those_who_come_later_too() {
    let mut play = Play::new(3, false);
    let zero = play.join(0, 0);
    let link = play.call();
    let hello = Message::Hello(hello(2, 5, 0));
    play.say(link, &hello);
    let Some(Message::Challenge(nonce)) = play.sent.get_mut(&link).and_then(Vec::pop) else {
        panic!("no challenge")
    };
    play.say(link, &Message::Proof(token().prove(Side::Rank, &hello.frame()[4..], &nonce)));
    assert_eq!(play.refusal(link), Some(&Reason::World { ours: 3 }));
    let failed = Message::Failed(Failure::World { rank: Rank(2), theirs: 5, ours: 3 });
    assert_eq!(play.sent(zero).last(), Some(&failed));
    assert!(!play.hub.is_done(), "rank 1 is to be told");
    let late = play.prove(1, 0, &token());
    assert_eq!(play.sent(late), [failed]);
    assert!(play.hub.is_done());
}

#[test]
fn a_rank_that_cannot_come_ends_the_job_for_all_at_once() {
    let mut play = Play::new(3, false);
    let zero = play.join(0, 0);
    let two = play.prove(2, 0, &token());
    // Whatever rank it names, it is its own.
    play.say(two, &Message::Failed(Failure::unable(Rank(1), "no memory")));
    let failed = Message::Failed(Failure::unable(Rank(2), "no memory"));
    assert_eq!((play.sent(zero).last(), play.sent(two).last()), (Some(&failed), Some(&failed)));
    assert!(!play.hub.is_done(), "rank 1 is to be told");
    let late = play.prove(1, 0, &token());
    assert_eq!(play.sent(late), [failed]);
    assert!(play.hub.is_done());

    // Of a job that runs it is no part.
    let (mut play, links) = Play::running(2, true);
    play.say(links[1], &Message::Leave);
    play.clear();
    let again = play.prove(1, 1, &token());
    play.say(again, &Message::Failed(Failure::unable(Rank(1), "no memory")));
    assert_eq!((play.sent(links[0]), &*play.closed), (&[][..], &[again][..]));
    assert_eq!(play.hub.phase, Phase::Running);
}

#[test]
fn a_want_of_room_ends_what_gathers_and_nothing_else() {
    let full = SystemError { call: "accept", code: rustix::io::Errno::MFILE.raw_os_error() };
    let mut play = Play::new(3, false);
    let zero = play.join(0, 0);
    let stranger = play.call();
    assert!(!play.hub.no_room(&full), "the stranger may go, or be a rank");
    play.hub.closed(stranger, play.now);
    assert!(play.hub.no_room(&full));
    play.act();
    let Some(Message::Failed(Failure::Unable { rank: Rank(0), why })) = play.sent(zero).last()
    else {
        panic!("{:?}", play.sent(zero))
    };
    assert!(why.contains("more than 1 connection") && why.contains("ulimit -n"), "{why}");
    let (mut play, _) = Play::running(2, false);
    assert!(!play.hub.no_room(&full));
    assert_eq!(play.hub.phase, Phase::Running);
}

#[test]
fn a_rank_that_is_refused_is_told_of_in_words() {
    let Message::Hello(Hello { process, .. }) = Message::Hello(hello(1, 2, 0)) else { panic!() };
    let member = Member { rank: Rank(1), epoch: 0, process: process.clone() };
    for (reason, part) in [
        (Reason::Taken { by: process, epoch: 0 }, "is that rank already"),
        (Reason::Stale { epoch: 3 }, "a PONTOON_EPOCH above 3"),
        (Reason::Closed, "takes nobody back"),
    ] {
        let text = door::refusal(&member, &reason);
        assert!(text.contains(part) && !text.contains(['{', '\n']), "{text}");
    }
}

#[test]
fn an_exit_that_a_rank_saw_is_told_to_all_and_how_a_rank_left_to_who_asks() {
    let (mut play, links) = Play::running(3, false);
    play.say(links[1], &Message::SawExit { rank: Rank(2), epoch: 1 });
    assert_eq!(play.ends(links[0]), [], "another start of it");
    play.say(links[1], &Message::SawExit { rank: Rank(2), epoch: 0 });
    let exited = [(2, Ending::Dead(How::Exited))];
    assert_eq!((&*play.ends(links[0]), &*play.ends(links[1])), (&exited[..], &exited[..]));

    let (mut play, links) = Play::running(3, false);
    play.say(links[2], &Message::Leave);
    play.clear();
    play.say(links[1], &Message::SawExit { rank: Rank(2), epoch: 0 });
    assert_eq!(play.ends(links[1]), [(2, Ending::Left)]);
    assert_eq!(play.ends(links[0]), []);
    play.say(links[1], &Message::SawExit { rank: Rank(77), epoch: 0 });
}

#[test]
fn who_comes_back_is_shown_the_job_as_it_is() {
    let (mut play, links) = Play::running(3, true);
    play.hub.closed(links[2], play.now);
    play.hub.closed(links[1], play.now);
    play.act();
    play.clear();
    let same = play.prove(2, 0, &token());
    assert_eq!(play.refusal(same), Some(&Reason::Stale { epoch: 0 }));
    let living = play.prove(0, 0, &token());
    assert!(matches!(play.refusal(living), Some(Reason::Taken { epoch: 0, .. })));
    let back = play.join(2, 7);
    let mut epochs = Vec::new();
    for message in play.sent(back) {
        if let Message::Member { member, .. } = message {
            epochs.push((member.rank.0, member.epoch));
        }
    }
    assert_eq!(epochs, [(0, 0), (1, 0), (2, 7)]);
    // Who is gone is told of after the beginning.
    let sent = play.sent(back);
    let start = sent.iter().position(|it| *it == Message::Start).unwrap();
    assert!(matches!(sent[start + 1], Message::Ended { rank: Rank(1), ending: CUT, .. }));
    // To the others only the news.
    let [Message::Member { member, .. }] = play.sent(links[0]) else { panic!("no member") };
    assert_eq!((member.rank, member.epoch), (Rank(2), 7));
}

#[test]
fn questions_are_answered_to_who_asked_and_end_with_the_rank_they_need() {
    let (mut play, links) = Play::running(3, false);
    let ask = |request, question| Message::Ask { request, question };
    let get = || Question::Get { key: Box::from(*b"k") };
    play.say(links[1], &ask(9, get()));
    assert_eq!(play.sent(links[1]), []);
    play.say(links[2], &ask(1, Question::Set { key: Box::from(*b"k"), value: Box::from(*b"v") }));
    let told = Message::Tell { request: 9, answer: Answer::Value(Box::from(*b"v")) };
    assert_eq!(play.sent(links[1]), [told]);
    let ranks: Box<[Rank]> = [Rank(1), Rank(2)].into();
    let gather = Question::Gather { name: Box::from(*b"g"), ranks, part: Box::default() };
    play.say(links[1], &ask(10, gather));
    play.hub.closed(links[2], play.now);
    play.act();
    let ended = Answer::Ended { rank: Rank(2), ending: CUT };
    assert_eq!(play.sent(links[1]).last(), Some(&Message::Tell { request: 10, answer: ended }));
    assert_eq!(play.hub.store.pending(), 0);
}

#[test]
fn who_left_is_told_when_all_others_were() {
    // The links are in no order: one that is right by chance is not right so often.
    for _ in 0..20 {
        let (mut play, links) = Play::running(8, false);
        play.hub.received(links[3], Ok(&Message::Leave.frame()[4..]), play.now);
        let told: Vec<_> = play.hub.take_actions();
        let to = |action: &Action| match action {
            Action::Send(link, _) => (*link, false),
            Action::Close(link) => (*link, true),
        };
        let [.., own, close] = &told[..] else { panic!("{told:?}") };
        assert_eq!((told.len(), to(own), to(close)), (9, (links[3], false), (links[3], true)));
    }
}

#[test]
fn all_who_gathered_are_sent_the_same_bytes_once_encoded() {
    const WORLD: u32 = 16;
    let (mut play, links) = Play::running(WORLD, false);
    let ask = |rank: u32| {
        let ranks = (0..WORLD).map(Rank).collect();
        let part = vec![rank as u8; 1000].into();
        let question = Question::Gather { name: Box::from(*b"g"), ranks, part };
        Message::Ask { request: rank.into(), question }.frame()
    };
    for rank in 0..WORLD {
        play.hub.received(links[rank as usize], Ok(&ask(rank)[4..]), play.now);
    }
    let actions = play.hub.take_actions();
    let mut shared: Vec<Arc<[u8]>> = Vec::new();
    for action in &actions {
        if let Action::Send(_, bytes) = action
            && !shared.iter().any(|it| Arc::ptr_eq(it, bytes))
        {
            shared.push(Arc::clone(bytes));
        }
    }
    let kept: usize = shared.iter().map(|bytes| bytes.len()).sum();
    assert!(kept < 2 * 1000 * WORLD as usize, "{kept} bytes");
    // And it is an answer to each.
    play.hub.actions = actions;
    play.act();
    let parts: Vec<_> = (0..WORLD).map(|rank| vec![rank as u8; 1000]).collect();
    for (rank, &link) in links.iter().enumerate() {
        let [Message::Tell { request, answer: Answer::Parts(told) }] = play.sent(link) else {
            panic!("{:?}", play.sent(link))
        };
        assert_eq!((*request, told.to_vec()), (rank as u64, parts.clone()));
    }
}
