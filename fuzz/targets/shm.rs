//! What other processes leave for the link of one host: keys, requests for a segment, the files of
//! owners.
#![no_main]

mod bounded;
mod seeds;

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: seeds::write(pontoon_shm::fuzz::seeds()), |bytes: &[u8]| {
    pontoon_shm::fuzz::judge(bytes);
});
