//! A link whose atomic operations are none to the processors at the other end.

use std::{fmt, ops::Range, sync::Arc};

use pontoon_hal::{
    conformance::link::delegate_link,
    link::{Link, LinkCapabilities, LinkError, Registered, Remote},
};
use pontoon_signal::{Bound, Rank, Seq};

pub(crate) struct Modest {
    inner: Arc<dyn Link>,
}

impl Modest {
    pub(crate) fn over(inner: &Arc<dyn Link>) -> Arc<dyn Link> {
        Arc::new(Self { inner: Arc::clone(inner) })
    }
}

impl Link for Modest {
    fn name(&self) -> &'static str {
        "modest"
    }
    delegate_link!(inner: rank, peer_state, end_peer, register, attach, attach_signal, owns);
    delegate_link!(inner: write_signal, signal, post_add, fence, flush, completions);
    delegate_link!(inner: moves_by_itself, progress, wait, explain, report);

    fn capabilities(&self, peer: Rank) -> Result<LinkCapabilities, LinkError> {
        let mut capabilities = self.inner.capabilities(peer)?;
        capabilities.system_atomics = false;
        Ok(capabilities)
    }

    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        self.inner.write(from, range, to, offset)
    }

    fn write_inline(&self, bytes: &[u8], to: &Remote, offset: usize) -> Result<Seq, LinkError> {
        self.inner.write_inline(bytes, to, offset)
    }

    fn read(
        &self,
        from: &Remote,
        offset: usize,
        into: &Registered,
        range: Range<usize>,
    ) -> Result<Seq, LinkError> {
        self.inner.read(from, offset, into, range)
    }

    fn add(&self, to: &Remote, offset: usize, n: u64, bound: Bound) -> Result<u64, LinkError> {
        self.inner.add(to, offset, n, bound)
    }

    fn compare_swap(
        &self,
        to: &Remote,
        offset: usize,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, LinkError> {
        self.inner.compare_swap(to, offset, expected, new, bound)
    }
}

impl fmt::Debug for Modest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Modest")
    }
}
