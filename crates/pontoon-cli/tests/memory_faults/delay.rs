//! How long a thread was ready and had no processor.

use std::{fs::File, os::unix::fs::FileExt, time::Duration};

/// The calling thread's; it counts nothing where the kernel does not tell (`CONFIG_SCHED_INFO`).
pub(crate) struct Delay(Option<File>);

impl Delay {
    pub(crate) fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// All of it so far: the second number, in nanoseconds.
    pub(crate) fn so_far(&self) -> Duration {
        let mut text = [0; 96];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let text = std::str::from_utf8(&text[..read.unwrap_or(0)]).unwrap_or_default();
        let waited = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        Duration::from_nanos(waited.unwrap_or(0))
    }
}
