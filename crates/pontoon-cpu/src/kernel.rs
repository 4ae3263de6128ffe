//! Kernels: closures over typed views of what their command declared.

use std::{fmt, mem, ops::Range, sync::Arc};

use arrayvec::ArrayVec;
use bytemuck::Pod;
use pontoon_hal::{ACCESSES_MAX, Mode};
use pontoon_signal::Rank;

use crate::memory::{Borrow, Part};

/// A kernel of a CPU device. Made once and launched often: launching copies a pointer.
#[derive(Clone)]
pub struct Kernel {
    run: Arc<Run>,
}

type Run = dyn Fn(&mut Context<'_>) + Send + Sync;

impl Kernel {
    /// A kernel that runs `run`. A panic in it becomes a fault of the queue. It has to return: a
    /// thread cannot be stopped, so dropping the device waits for it.
    pub fn new(run: impl Fn(&mut Context<'_>) + Send + Sync + 'static) -> Self {
        Self { run: Arc::new(run) }
    }

    pub(crate) fn run(&self, context: &mut Context<'_>) {
        (self.run)(context);
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernel")
    }
}

/// What a running kernel can reach.
#[derive(Debug)]
pub struct Context<'a> {
    device: Rank,
    views: ArrayVec<View<'a>, ACCESSES_MAX>,
    arguments: &'a [u64],
}

/// A slice is made when the kernel asks for one (R1): what it does not ask for, or is done with, it
/// can lend to a peer that writes there while the kernel runs.
#[derive(Debug)]
enum View<'a> {
    Read(Part<'a>),
    Write(Part<'a>),
    Taken,
}

impl<'a> Context<'a> {
    pub(crate) fn new(device: Rank, borrows: &'a mut [Borrow<'_>], arguments: &'a [u64]) -> Self {
        let views = borrows.iter_mut().map(Borrow::part).map(|part| match part.mode() {
            Mode::Read => View::Read(part),
            Mode::Write => View::Write(part),
        });
        Self { device, views: views.collect(), arguments }
    }

    /// The elements of access `index`, which was declared for reading.
    ///
    /// # Panics
    ///
    /// If there is no such access, it was declared for writing, or its bytes are no whole number
    /// of aligned `T`s.
    pub fn read<T: Pod>(&self, index: usize) -> &'a [T] {
        match self.views.get(index) {
            Some(View::Read(part)) => cast(bytemuck::try_cast_slice(part.bytes()), index),
            Some(_) => panic!("access {index} was declared for writing"),
            None => panic!("access {index} was not declared"),
        }
    }

    /// The elements of access `index`, which was declared for writing. Each can be had once. A kernel
    /// that tells a peer to write there has to be done with them by then.
    ///
    /// # Panics
    ///
    /// If there is no such access, it was declared for reading, it was had before, or its bytes
    /// are no whole number of aligned `T`s.
    pub fn write<T: Pod>(&mut self, index: usize) -> &'a mut [T] {
        match self.views.get_mut(index) {
            Some(View::Read(_)) => panic!("access {index} was declared for reading"),
            Some(view) => match mem::replace(view, View::Taken) {
                View::Write(part) => {
                    cast(bytemuck::try_cast_slice_mut(part.into_bytes_mut()), index)
                }
                _ => panic!("access {index} was taken before"),
            },
            None => panic!("access {index} was not declared"),
        }
    }

    /// Elements of access `index`, which was declared for reading: those alone, so that a peer may
    /// be writing the others meanwhile.
    ///
    /// # Panics
    ///
    /// As [`read`](Self::read); if there are no such elements.
    pub fn read_part<T: Pod>(&self, index: usize, elements: Range<usize>) -> &'a [T] {
        match self.views.get(index) {
            Some(View::Read(part)) => {
                let bytes = part.piece_bytes(bytes_of::<T>(&elements));
                cast(bytemuck::try_cast_slice(within(bytes, index, &elements)), index)
            }
            Some(_) => panic!("access {index} was declared for writing"),
            None => panic!("access {index} was not declared"),
        }
    }

    /// Elements of access `index`, which was declared for writing: those alone, and until the next look
    /// at any access for writing, so that a peer may be told to write them afterwards.
    ///
    /// # Panics
    ///
    /// As [`write`](Self::write); if there are no such elements.
    pub fn write_part<T: Pod>(&mut self, index: usize, elements: Range<usize>) -> &mut [T] {
        match self.views.get_mut(index) {
            Some(View::Write(part)) => {
                let bytes = part.piece_bytes_mut(bytes_of::<T>(&elements));
                cast(bytemuck::try_cast_slice_mut(within(bytes, index, &elements)), index)
            }
            Some(View::Read(_)) => panic!("access {index} was declared for reading"),
            Some(View::Taken) => panic!("access {index} was taken before"),
            None => panic!("access {index} was not declared"),
        }
    }

    /// Scalar argument `index`.
    ///
    /// # Panics
    ///
    /// If the launch gave fewer.
    pub fn argument(&self, index: usize) -> u64 {
        match self.arguments.get(index) {
            Some(&argument) => argument,
            None => panic!("argument {index} was not given"),
        }
    }

    /// The device it runs on.
    pub fn device(&self) -> Rank {
        self.device
    }
}

/// Saturating, so that too many elements are as few as any that are not there.
fn bytes_of<T>(elements: &Range<usize>) -> Range<usize> {
    let size = size_of::<T>();
    elements.start.saturating_mul(size)..elements.end.saturating_mul(size)
}

fn within<B>(bytes: Option<B>, index: usize, elements: &Range<usize>) -> B {
    match bytes {
        Some(bytes) => bytes,
        None => panic!("access {index} has no elements {}..{}", elements.start, elements.end),
    }
}

fn cast<T>(result: Result<T, bytemuck::PodCastError>, index: usize) -> T {
    match result {
        Ok(elements) => elements,
        Err(error) => panic!("access {index} does not hold such elements: {error}"),
    }
}
