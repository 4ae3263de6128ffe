//! What the link does for each operation, in words.

use pontoon_hal::link::{Explanation, Operation, Order};
use pontoon_signal::Rank;

use super::NAME;

const PIECES: &str = "a message for each 240 KiB: where, and the bytes, sent with it";
const APPLY: &str = "the peer's handler looks the key up and copies them into place";
const PUBLISH: &str = "the last one's handler publishes in the peer's table, and wakes who sleeps";
const ORDER: &str = "nothing between: messages to a peer are handled in their order";
const ANSWER: &str = "the answer, waited for within the bound";
const COUNT: &str = "grow the completions once UCX has sent it all";

pub(crate) fn explain(peer: Rank, operation: Operation, mapped: bool) -> Explanation {
    let steps = if mapped { direct(operation) } else { messages(operation) };
    Explanation { operation, peer, link: NAME, steps: steps.iter().copied().collect() }
}

fn messages(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Write => &[PIECES, APPLY, COUNT],
        Operation::Read => &[
            "a message that asks for the bytes",
            "the peer's handler looks the key up and sends them",
            "they land in their place",
            "grow the completions once they are there",
        ],
        Operation::WriteSignal(_) => &[PIECES, ORDER, APPLY, PUBLISH, COUNT],
        Operation::Signal(_) => &[
            "a message",
            ORDER,
            "its handler publishes in the peer's table, and wakes who sleeps",
            COUNT,
        ],
        Operation::Add => &["a message", "the peer's handler adds, atomically", ANSWER],
        Operation::PostAdd => &[
            "a message",
            "the peer's handler adds, atomically",
            "its answer's handler stores what was there, if that is wanted",
            "grow the completions once it is there",
        ],
        Operation::CompareSwap => {
            &["a message", "the peer's handler compares and swaps, atomically", ANSWER]
        }
        Operation::Fence => &[ORDER],
        Operation::Flush => &["a message, handled after all before it", ANSWER],
        _ => &["not an operation of this link"],
    }
}

const COPY: &str = "copy the bytes into the peer's memory, mapped here by UCX";
const GATHER: &str = "acquire the completions, so that other threads' operations are covered";
const STORE: &str = "publish in the peer's table: a release store of the counter";
const WAKE: &str = "wake the peer if it sleeps there";
const OVER: &str = "grow the completions";

fn direct(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Write => &[COPY, OVER],
        Operation::Read => &["copy the bytes out of the peer's memory, mapped here by UCX", OVER],
        Operation::WriteSignal(Order::Strong) => &[COPY, GATHER, STORE, WAKE, OVER],
        Operation::WriteSignal(Order::Weak) => &[COPY, STORE, WAKE, OVER],
        Operation::Signal(Order::Strong) => &[GATHER, STORE, WAKE, OVER],
        Operation::Signal(Order::Weak) => &[STORE, WAKE, OVER],
        Operation::Add => &["fetch-and-add on the word in the peer's memory", OVER],
        Operation::PostAdd => &[
            "fetch-and-add on the word in the peer's memory",
            "store what it was, if that is wanted",
            OVER,
        ],
        Operation::CompareSwap => &["compare-and-swap on the word in the peer's memory", OVER],
        Operation::Fence => &[GATHER, "a sequentially consistent fence of this processor"],
        Operation::Flush => &[GATHER, "nothing to wait for: what was posted is performed"],
        _ => &["not an operation of this link"],
    }
}
