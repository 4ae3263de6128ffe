//! A thread kept on one processor for a while: two that wake each other are often put on one, where
//! what they measure is the scheduler.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// While it lives the thread that made it runs on one processor; then where it could before.
pub(super) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Keeps the calling thread on `cpu`; `None` if the kernel does not allow it.
    pub(super) fn to(cpu: u32) -> Option<Self> {
        let cpu = usize::try_from(cpu).ok().filter(|&cpu| cpu < CpuSet::MAX_CPU)?;
        let before = sched_getaffinity(None).ok()?;
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).ok()?;
        Some(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Refused only if these processors were taken away meanwhile; it stays where it is then.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_where_it_was_told_and_then_where_it_was_before() {
        let now = || sched_getaffinity(None).unwrap();
        let before = now();
        let cpu = (0..CpuSet::MAX_CPU).rfind(|&cpu| before.is_set(cpu)).unwrap();
        let pinned = Pinned::to(cpu as u32).unwrap();
        assert_eq!((now().count(), now().is_set(cpu)), (1, true));
        drop(pinned);
        assert_eq!(now(), before);
        assert!(Pinned::to(u32::MAX).is_none());
        assert_eq!(now(), before);
    }
}
