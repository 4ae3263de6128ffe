//! What the link does for each operation, in words.

use pontoon_hal::link::{Explanation, Operation, Order};
use pontoon_signal::Rank;

use crate::link::NAME;

const COPY: &str = "copy the bytes into the peer's memory, mapped here";
const GATHER: &str = "acquire the completions, so that other threads' operations are covered";
const PUBLISH: &str = "publish in the peer's table: a release store of the counter";
const WAKE: &str = "wake the peer if it sleeps there";
const COUNT: &str = "grow the completions";

pub(crate) fn explain(peer: Rank, operation: Operation) -> Explanation {
    let steps: &[&'static str] = match operation {
        Operation::Write => &[COPY, COUNT],
        Operation::Read => &["copy the bytes out of the peer's memory, mapped here", COUNT],
        Operation::WriteSignal(Order::Strong) => &[COPY, GATHER, PUBLISH, WAKE, COUNT],
        Operation::WriteSignal(Order::Weak) => &[COPY, PUBLISH, WAKE, COUNT],
        Operation::Signal(Order::Strong) => &[GATHER, PUBLISH, WAKE, COUNT],
        Operation::Signal(Order::Weak) => &[PUBLISH, WAKE, COUNT],
        Operation::Add => &["fetch-and-add on the word in the peer's memory", COUNT],
        Operation::PostAdd => &[
            "fetch-and-add on the word in the peer's memory",
            "store what it was, if that is wanted",
            COUNT,
        ],
        Operation::CompareSwap => &["compare-and-swap on the word in the peer's memory", COUNT],
        Operation::Fence => &[GATHER, "a sequentially consistent fence of this processor"],
        Operation::Flush => &[GATHER, "nothing to wait for: what was posted is performed"],
        _ => &["not an operation of this link"],
    };
    Explanation { operation, peer, link: NAME, steps: steps.iter().copied().collect() }
}
