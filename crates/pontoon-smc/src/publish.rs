//! Releases that end in something that others wait for.

use core::ops::Range;

use pontoon_hal::link::{Link, LinkError, Order, RemoteSignal};
use pontoon_signal::Bound;

use crate::{Released, SmcError, Window, clock::Clock, extent::Place, release::late};

impl Window {
    /// [Releases](Self::release) the pages of `bytes`, then grows `signal` by `n`: who waits for that, the home or any other
    /// rank, and acquires, has all that was released. `link` is the one that `signal` is of. The signal vouches for
    /// what was posted to its peer before too, by [cells](Self::cell) for one.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; then nobody was told. What was not released is kept: call it again, and what is home by then
    /// is not sent twice.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows. The signal is on its way when it returns.
    pub fn release_signal(
        &self,
        bytes: Range<usize>,
        link: &dyn Link,
        signal: &mut RemoteSignal,
        n: u32,
        bound: Bound,
    ) -> Result<Released, SmcError> {
        let mut clock = Clock::bound(bound);
        let released = self.release(bytes, bound)?;
        // All of it is performed at home by now: whatever way the signal takes, it comes after.
        loop {
            match link.signal(signal, n, Order::Strong) {
                Ok(_) => return Ok(released),
                Err(LinkError::Full { peer, depth }) => {
                    link.progress();
                    if !clock.pause() {
                        return Err(LinkError::Full { peer, depth }.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// [Releases](Self::release) the pages of `bytes`, then adds `n` to the word at `flag`, for kernels that run at home
    /// meanwhile and poll that word there: one that has seen it grow, and acquires, has all that was released. Gives what
    /// the word was.
    ///
    /// # Errors
    ///
    /// [`SmcError`]; then the word did not grow, but after a time-out, when it may yet. [`SmcError::Unable`] if the link's
    /// additions are none to the processors at home, or if not all of it has the same home: of two, none says anything
    /// of the other.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn publish(
        &self,
        bytes: Range<usize>,
        flag: usize,
        n: u64,
        bound: Bound,
    ) -> Result<u64, SmcError> {
        let mut clock = Clock::bound(bound);
        let cell = self.cell(flag)?;
        self.extent_of(flag..flag + 8)?.writable()?;
        let before = self.one_home(&bytes, flag, &mut clock)?;
        if !before.home.has_system_atomics() {
            return Err(before.unable(
                "a flag that running kernels may trust: the link's additions are none to the processors at home",
                "release, and have them wait for a signal (Window::release_signal)",
            ));
        }
        self.release(bytes.clone(), clock.left())?;
        let now = self.one_home(&bytes, flag, &mut clock)?;
        if now.generation != before.generation {
            return Err(now.unable(
                "a flag for what was released to the home before it",
                "acquire, and publish again",
            ));
        }
        // What was posted beside the release is there before too.
        now.home.fence()?;
        cell.fetch_add(n, clock.left())
    }

    /// Where both are at home.
    fn one_home(
        &self,
        bytes: &Range<usize>,
        flag: usize,
        clock: &mut Clock,
    ) -> Result<Place, SmcError> {
        let extent = self.extent_of(flag..flag + 8)?;
        let place = extent.place(clock).ok_or_else(|| late(extent, clock.waited()))?;
        for (extent, _) in self.extents(bytes)? {
            if extent.rank() != place.home.rank() {
                return Err(place.unable(
                    "a flag for bytes that another rank has",
                    "publish what each home has by a flag of its own there",
                ));
            }
        }
        Ok(place)
    }
}
