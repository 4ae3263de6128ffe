//! What `fuzz/` does with a peer's bytes. Built for it and for tests alone.

use crate::{
    envelope::{self, Kind},
    link::fuzz::{Receivers, card, header, key},
};

const KINDS: [Kind; 4] = [Kind::Address, Kind::Region, Kind::Card, Kind::Key];

/// Bytes as an envelope, as what is in one, as a message's header and as the messages of a peer.
/// Whether they were any of these.
///
/// # Panics
///
/// If something is done with them that may not be.
pub fn judge(bytes: &[u8]) -> bool {
    let mut known = header(bytes);
    for kind in KINDS {
        let sealed = envelope::seal(kind, bytes);
        assert_eq!(envelope::open(kind, &sealed), Ok(bytes));
        known |= key(&sealed) | card(&sealed);
    }
    // As they are, and with a digest that is right.
    for bytes in [bytes, &envelope::resealed(bytes)] {
        for kind in KINDS {
            let Ok(body) = envelope::open(kind, bytes) else { continue };
            assert_eq!(envelope::seal(kind, body), bytes);
            known = true;
        }
        known |= key(bytes) | card(bytes);
    }
    known
}

/// Bytes as the messages of a peer to a link over the UCX of this machine, if there is one.
///
/// # Panics
///
/// If something is done with them that may not be.
pub fn receive(bytes: &[u8]) {
    if let Some(receivers) = Receivers::of_this_machine() {
        receivers.hear(bytes);
    }
}

/// What to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    crate::link::fuzz::seeds()
}

#[cfg(test)]
mod tests {
    use super::{judge, receive, seeds};

    #[test]
    fn what_fuzzing_begins_with_does_no_harm() {
        let known = seeds().iter().filter(|seed| judge(seed)).count();
        assert!(known >= 12, "{known} seeds are known");
        seeds().iter().for_each(|seed| receive(seed));
    }
}
