//! Handles to what a session has. Each knows its session, so that one of another is refused.

use std::fmt;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident $word:literal),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name {
            pub(crate) session: u32,
            pub(crate) index: u32,
        }

        impl $name {
            pub(crate) fn new(session: u32, index: usize) -> Self {
                Self { session, index: u32::try_from(index).unwrap_or(u32::MAX) }
            }

            /// Its place in `session`'s list.
            pub(crate) fn in_session(self, session: u32) -> Result<usize, Foreign> {
                if self.session == session {
                    return Ok(self.index as usize);
                }
                Err(Foreign { what: $word, index: self.index, of: self.session, used_in: session })
            }
        }
    )*};
}

id! {
    /// A queue of a session.
    QueueId "queue",
    /// A stream of a session.
    StreamId "stream",
    /// An event of a session.
    EventId "event",
    /// A semaphore of a session.
    SemaphoreId "semaphore",
    /// A channel of a session.
    ChannelId "channel",
}

/// A collective of a session. Its number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveId {
    pub(crate) session: u32,
    pub(crate) members: u32,
    pub(crate) serial: u64,
}

impl CollectiveId {
    /// Its number and its members in `session`.
    pub(crate) fn in_session(self, session: u32) -> Result<(u64, u32), Foreign> {
        if self.session == session {
            return Ok((self.serial, self.members));
        }
        let index = u32::try_from(self.serial).unwrap_or(u32::MAX);
        Err(Foreign { what: "collective", index, of: self.session, used_in: session })
    }
}

/// A handle that was used in another session than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// What kind of handle it is.
    pub what: &'static str,
    /// Its number.
    pub index: u32,
    /// The number of its session.
    pub of: u32,
    /// The number of the session that it was used in.
    pub used_in: u32,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, index, of, used_in } = self;
        write!(f, "{what} {index} is of session {of} and was used in session {used_in}")
    }
}

impl std::error::Error for Foreign {}
