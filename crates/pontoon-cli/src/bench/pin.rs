//! Two CPUs to measure on, and threads kept on them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::BenchError;

/// Two CPUs that this process may use: the first and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuPair {
    pub(crate) near: usize,
    pub(crate) far: usize,
}

impl CpuPair {
    /// `None` if there is only one.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(crate) fn usable() -> Result<Option<Self>, BenchError> {
        Ok(match usable()?[..] {
            [near, far, ..] => Some(Self { near, far }),
            _ => None,
        })
    }
}

/// The CPUs that this thread may use.
///
/// # Errors
///
/// What the kernel says.
pub(super) fn usable() -> Result<Vec<usize>, BenchError> {
    let set = sched_getaffinity(None).map_err(|errno| system("sched_getaffinity", errno))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps the calling thread on `cpu`.
///
/// # Errors
///
/// What the kernel says.
pub(crate) fn pin_to(cpu: usize) -> Result<(), BenchError> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(BenchError::NoCpu { cpu, most: CpuSet::MAX_CPU - 1 });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| system("sched_setaffinity", errno))
}

fn system(call: &'static str, errno: rustix::io::Errno) -> BenchError {
    BenchError::System { call, error: errno.into() }
}
