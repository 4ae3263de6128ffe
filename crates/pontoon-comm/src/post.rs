//! A task as calls of a link.

use pontoon_hal::link::{LinkError, Order};
use pontoon_signal::Seq;

use crate::{
    Operation, Task,
    channel::{Channel, NoSignal, Route},
};

/// Why a link did not take a task.
pub(crate) enum Refused {
    /// There is no room under way, or the signal is in use.
    Later,
    /// It is no task of this version, or of no route.
    Unknown,
    Link(LinkError),
}

/// Hands `task` to the link. Gives the link's number of it, and the bytes it moves.
pub(crate) fn post(channel: &Channel, route: &Route, task: &Task) -> Result<(Seq, u64), Refused> {
    let number = |number: u64| usize::try_from(number).map_err(|_| Refused::Unknown);
    let to = number(task.to)?;
    let range = || -> Result<_, Refused> {
        let (from, bytes) = (number(task.from)?, number(task.bytes)?);
        Ok(from..from.checked_add(bytes).ok_or(Refused::Unknown)?)
    };
    let link = &channel.link;
    let order = if task.strong { Order::Strong } else { Order::Weak };
    let signal = || {
        route.try_signal().map_err(|no| match no {
            NoSignal::Busy => Refused::Later,
            NoSignal::None => Refused::Unknown,
        })
    };
    let posted = match task.operation {
        Operation::Put => link.write(&route.source, range()?, &route.target, to),
        Operation::PutSignal => {
            let (mut signal, target) = (signal()?, &route.target);
            link.write_signal(&route.source, range()?, target, to, &mut signal, task.n, order)
        }
        Operation::Signal => link.signal(&mut *signal()?, task.n, order),
        Operation::Get => link.read(&route.target, to, &route.source, range()?),
        Operation::PutValue => link.write_inline(&task.from.to_ne_bytes(), &route.target, to),
        Operation::Add => link.post_add(&route.target, to, task.bytes, None),
        Operation::FetchAdd => {
            let reply = (&route.source, number(task.from)?);
            link.post_add(&route.target, to, task.bytes, Some(reply))
        }
    };
    match posted {
        Ok(seq) => Ok((seq, task.moved())),
        Err(LinkError::Full { .. }) => Err(Refused::Later),
        Err(error) => Err(Refused::Link(error)),
    }
}
