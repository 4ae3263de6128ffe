//! What a peer sends over UCX: cards, keys, and messages, which a link hears where this machine has
//! UCX.
#![no_main]

mod bounded;
mod seeds;

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: seeds::write(pontoon_ucx::fuzz::seeds()), |bytes: &[u8]| {
    pontoon_ucx::fuzz::judge(bytes);
    pontoon_ucx::fuzz::receive(bytes);
});
