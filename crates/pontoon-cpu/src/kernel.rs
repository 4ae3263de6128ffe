//! Kernels: closures over typed views of what their command declared.

use std::{fmt, mem, sync::Arc};

use arrayvec::ArrayVec;
use bytemuck::Pod;
use pontoon_hal::{ACCESSES_MAX, Mode};
use pontoon_signal::Rank;

use crate::memory::Borrow;

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

#[derive(Debug)]
enum View<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    Taken,
}

impl<'a> Context<'a> {
    pub(crate) fn new(device: Rank, borrows: &'a mut [Borrow<'_>], arguments: &'a [u64]) -> Self {
        let views = borrows.iter_mut().map(|borrow| match borrow.mode() {
            Mode::Read => View::Read(borrow.bytes()),
            Mode::Write => View::Write(borrow.bytes_mut()),
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
            Some(&View::Read(bytes)) => cast(bytemuck::try_cast_slice(bytes), index),
            Some(_) => panic!("access {index} was declared for writing"),
            None => panic!("access {index} was not declared"),
        }
    }

    /// The elements of access `index`, which was declared for writing. Each can be had once.
    ///
    /// # Panics
    ///
    /// If there is no such access, it was declared for reading, it was had before, or its bytes
    /// are no whole number of aligned `T`s.
    pub fn write<T: Pod>(&mut self, index: usize) -> &'a mut [T] {
        match self.views.get_mut(index) {
            Some(View::Read(_)) => panic!("access {index} was declared for reading"),
            Some(view) => match mem::replace(view, View::Taken) {
                View::Write(bytes) => cast(bytemuck::try_cast_slice_mut(bytes), index),
                _ => panic!("access {index} was taken before"),
            },
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

fn cast<T>(result: Result<T, bytemuck::PodCastError>, index: usize) -> T {
    match result {
        Ok(elements) => elements,
        Err(error) => panic!("access {index} does not hold such elements: {error}"),
    }
}
