//! What a stranger says to rank 0 of a job: frames, the handshake, a token, and how it plays with a
//! job.
#![no_main]

mod bounded;
mod seeds;

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: seeds::write(pontoon_job::fuzz::seeds()), |bytes: &[u8]| {
    pontoon_job::fuzz::judge(bytes);
});
