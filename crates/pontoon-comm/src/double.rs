//! Two halves of the memory that a port sends from: one is filled while the other is on its way.

use core::{
    fmt,
    ops::{Deref, DerefMut},
};

use bytemuck::Pod;
use pontoon_signal::Bound;

use crate::{Port, SendError, Strong, Ticket, ticket::Until};

/// A send buffer in two halves. A half is given out to be filled once it was sent, and cannot be written
/// any more once it is given to be sent: neither can be forgotten.
///
/// ```no_run
/// # use pontoon_comm::{DoubleBuffer, Port, SendError};
/// # use pontoon_signal::Bound;
/// # fn kernel(port: &Port, words: &mut [u64], bound: Bound) -> Result<(), SendError> {
/// let mut buffer = DoubleBuffer::over(port, words); // as a kernel has them of an access
/// for round in 0..100 {
///     let mut half = buffer.fill(bound)?; // waits for the half that was sent two rounds ago
///     half.fill(round);
///     half.send_signal(0, 1)?; // and goes on at once
/// }
/// buffer.finish(bound)
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # use pontoon_comm::{DoubleBuffer, Port, SendError};
/// # use pontoon_signal::Bound;
/// # fn kernel(port: &Port, words: &mut [u64], bound: Bound) -> Result<(), SendError> {
/// # let mut buffer = DoubleBuffer::over(port, words);
/// let mut half = buffer.fill(bound)?;
/// half.send_signal(0, 1)?;
/// half[0] = 1; // does not compile: it is on its way
/// # Ok(())
/// # }
/// ```
pub struct DoubleBuffer<'b, T: Pod> {
    port: &'b Port,
    halves: [&'b mut [T]; 2],
    sent: [Until; 2],
    next: usize,
}

impl<'b, T: Pod> DoubleBuffer<'b, T> {
    /// The two halves of `all`; of an odd number the last is left out.
    pub fn over(port: &'b Port, all: &'b mut [T]) -> Self {
        let half = all.len() / 2;
        let (first, rest) = all.split_at_mut(half);
        let halves = [first, &mut rest[..half]];
        Self { port, halves, sent: [Until::Done; 2], next: 0 }
    }

    /// The half whose turn it is, once what was sent from it is on its way no more.
    ///
    /// # Errors
    ///
    /// As [`Ticket::wait`]; the half stays where it is.
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows.
    pub fn fill(&mut self, bound: Bound) -> Result<Half<'_, 'b, T>, SendError> {
        self.settle(self.next, bound)?;
        Ok(Half { buffer: self })
    }

    /// Waits until all that was sent is on its way no more.
    ///
    /// # Errors
    ///
    /// As [`Ticket::wait`].
    ///
    /// # Blocks
    ///
    /// As long as `bound` allows, for each half.
    pub fn finish(mut self, bound: Bound) -> Result<(), SendError> {
        // The older one first.
        for half in [self.next, 1 - self.next] {
            self.settle(half, bound)?;
        }
        Ok(())
    }

    fn settle(&mut self, half: usize, bound: Bound) -> Result<(), SendError> {
        let parts = self.port.parts();
        parts.wait_until(self.sent[half], bound)?;
        self.sent[half] = Until::Done;
        Ok(())
    }
}

impl<T: Pod> Drop for DoubleBuffer<'_, T> {
    /// Waits as a ticket does that is dropped.
    fn drop(&mut self) {
        for until in self.sent {
            drop(Ticket::of(self.port.parts(), until));
        }
    }
}

impl<T: Pod> fmt::Debug for DoubleBuffer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DoubleBuffer(2 x {} to rank {})", self.halves[0].len(), self.port.peer())
    }
}

/// A half that may be filled.
pub struct Half<'d, 'b, T: Pod> {
    buffer: &'d mut DoubleBuffer<'b, T>,
}

impl<T: Pod> Half<'_, '_, T> {
    /// Sends it to the peer's region, from `to` on.
    ///
    /// # Errors
    ///
    /// As [`Port::put`]; it was not sent, and its turn has not passed.
    ///
    /// # Blocks
    ///
    /// As [`Port::put`].
    pub fn send(self, to: usize) -> Result<(), SendError> {
        let DoubleBuffer { port, halves, sent, next } = self.buffer;
        sent[*next] = port.put(&*halves[*next], to)?.into_until();
        *next = 1 - *next;
        Ok(())
    }

    /// As [`send`](Self::send), then grows the port's signal by `n`, which vouches for it and for what was
    /// sent before.
    ///
    /// # Errors
    ///
    /// As [`Port::put_signal`]; it was not sent, and its turn has not passed.
    ///
    /// # Blocks
    ///
    /// As [`Port::put`].
    pub fn send_signal(self, to: usize, n: u32) -> Result<(), SendError> {
        let DoubleBuffer { port, halves, sent, next } = self.buffer;
        sent[*next] = port.put_signal(&*halves[*next], to, n, Strong)?.into_until();
        *next = 1 - *next;
        Ok(())
    }
}

impl<T: Pod> Deref for Half<'_, '_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer.halves[self.buffer.next]
    }
}

impl<T: Pod> DerefMut for Half<'_, '_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.buffer.halves[self.buffer.next]
    }
}

impl<T: Pod> fmt::Debug for Half<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Half({} of {:?})", self.buffer.next, self.buffer)
    }
}
