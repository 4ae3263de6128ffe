//! Messages to try things with.

use super::*;
use crate::{
    HostId, Member, Process, ProcessId,
    membership::{Ending, How},
};
use pontoon_signal::{Nanos, Rank};

pub(super) fn process() -> Process {
    let id = ProcessId { pid: 77, start_time: u64::MAX };
    Process { host: HostId([9; 32]), host_name: "node-1".into(), id }
}

pub(super) fn hello() -> Hello {
    Hello {
        rank: Rank(3),
        world: 8,
        epoch: 1,
        nonce: [7; 32],
        process: process(),
        job: "a job é".into(),
    }
}

/// One of each kind, and of each kind of part.
pub(crate) fn all() -> Vec<Message> {
    let (rank, epoch) = (Rank(3), 2);
    let member = Member { rank, epoch, process: process() };
    let ask = |question| Message::Ask { request: 1, question };
    let tell = |answer| Message::Tell { request: u64::MAX, answer };
    let refuse = |reason| Message::Refused(Refused::because(reason));
    let (some, key) = (|| vec![Rank(1), Rank(2)], || Box::from(*b"key"));
    let mut all = vec![
        Message::Hello(hello()),
        refuse(Reason::Version),
        refuse(Reason::Token),
        refuse(Reason::Job { ours: "other".into() }),
        refuse(Reason::World { ours: 4 }),
        refuse(Reason::Taken { by: process(), epoch }),
        refuse(Reason::Stale { epoch }),
        refuse(Reason::Closed),
        Message::Challenge([1; 32]),
        Message::Proof([2; 32]),
        Message::Welcome {
            proof: [3; 32],
            pace: Pace { beat: Nanos(4), lost_after: Nanos(u64::MAX) },
        },
        Message::Card(Box::from([0; 100])),
        Message::Member { member, card: Box::default() },
        Message::Start,
        Message::Waiting { ranks: some(), count: 900 },
        Message::Failed(Failure::Absent { ranks: some(), count: 2, waited: Nanos(9) }),
        Message::Failed(Failure::World { rank, theirs: 4, ours: 8 }),
        Message::Failed(Failure::unable(rank, "no memory")),
        Message::Failed(Failure::unable(rank, &"ü".repeat(2_000))),
        Message::Beat,
        Message::Leave,
        Message::SawExit { rank, epoch },
        Message::Abandon,
        ask(Question::Set { key: key(), value: Box::from([1; 9]) }),
        ask(Question::Get { key: key() }),
        ask(Question::Add { key: key(), delta: -1 }),
        ask(Question::Gather { name: key(), ranks: some().into(), part: Box::from([1; 9]) }),
        ask(Question::Forget),
        tell(Answer::Done),
        tell(Answer::Value(Box::from([1; 9]))),
        tell(Answer::Sum(i64::MIN)),
        tell(Answer::Parts(Parts::of(&[&[], &[1; 9]]))),
        tell(Answer::Ended { rank, ending: Ending::Left }),
        tell(Answer::NoNumber),
        tell(Answer::Full),
        tell(Answer::TooMany),
        tell(Answer::NoGroup),
        tell(Answer::Forgotten),
    ];
    let hows = [How::Exited, How::ConnectionClosed, How::HeartbeatLost, How::Replaced];
    for ending in hows.map(Ending::Dead).into_iter().chain([Ending::Left]) {
        all.push(Message::Ended { rank, epoch, ending });
    }
    all
}
