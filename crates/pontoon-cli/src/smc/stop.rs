//! How a server is ended.

use std::{
    io,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use pontoon::{Bound, job::Env};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

/// Whether this process was asked to end, by SIGINT or SIGTERM. A second one ends it as it always does.
pub(super) struct Stop(Arc<OnceLock<()>>);

/// How long one word to the server may take, and how long it is until the next.
const WORD: Duration = Duration::from_millis(100);

impl Stop {
    /// From now on the signals are heeded. Who waits as the server for `client` is told that none comes.
    pub(super) fn heed(client: Env) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let asked = Arc::new(OnceLock::new());
        let asked_too = Arc::clone(&asked);
        let heed = move || {
            if signals.forever().next().is_none() {
                return;
            }
            let _ = asked_too.set(());
            // Again and again, for it may have begun to wait just now.
            while Arc::strong_count(&asked_too) > 1 {
                if let Some(signal) = signals.pending().next() {
                    // It ends the process, or there is nothing that could be done.
                    let _ = emulate_default_handler(signal);
                }
                let decline = pontoon::job::Options::default();
                decline.decline(&client, "the server was told to end", Bound::within(WORD));
                thread::sleep(WORD);
            }
        };
        thread::Builder::new().name("pontoon-stop".into()).spawn(heed)?;
        Ok(Self(asked))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.get().is_some()
    }
}
