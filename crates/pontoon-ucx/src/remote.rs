//! A peer's memory.
#![allow(unsafe_code)] // calls of C functions

use std::{
    fmt,
    ptr::{self, NonNull},
};

use crate::{
    Endpoint, Mapped, OperationError, OutOfRange, Region, SetupError, Status, Swap,
    context::refused,
    endpoint::copy,
    engine::Held,
    envelope::{self, EnvelopeError, Kind},
    ffi::{
        UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_CSWAP, UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_MEMH,
        UCP_OP_ATTR_FIELD_REPLY_BUFFER, UCS_OK, UcpRequestParam, UcpRkey, ucp_dt_make_contig,
    },
    operation::{Operation, reply},
};

/// A region of a peer's, as its key describes it.
///
/// Operations take effect in any order, but for those that a [`fence`](Endpoint::fence) stands
/// between. On TCP they are messages behind the scenes, and nothing happens while the peer makes no
/// progress.
#[derive(Clone)]
pub struct Remote {
    endpoint: Endpoint,
    /// Invariant K1: a key of the endpoint, which keeps it until it is closed.
    key: NonNull<UcpRkey>,
    base: u64,
    bytes: usize,
    /// Where it is mapped here, if it is.
    mapped: Option<NonNull<u8>>,
}

// SAFETY: K1; the key is used by who has the core.
unsafe impl Send for Remote {}
// SAFETY: as for `Send`.
unsafe impl Sync for Remote {}

impl Remote {
    pub(crate) fn unpack(endpoint: &Endpoint, key: &[u8]) -> Result<Self, SetupError> {
        let body = envelope::open(Kind::Region, key)?;
        let Some((head, packed)) = body.split_at_checked(16) else {
            return Err(EnvelopeError::Short { bytes: body.len(), wanted: 16 }.into());
        };
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let (base, bytes) = (word(0), word(8));
        let bytes = usize::try_from(bytes).ok().filter(|_| base.checked_add(bytes).is_some());
        let bytes = bytes.ok_or(EnvelopeError::Spoiled)?;
        let inner = endpoint.inner();
        let unpack = inner.engine.api().ucp_ep_rkey_unpack;
        let mut raw = ptr::null_mut();
        let core = inner.engine.enter().map_err(|_| SetupError::FromHandler)?;
        if let Some(status) = inner.state.failure() {
            return Err(refused("ucp_ep_rkey_unpack", status));
        }
        // SAFETY: U1, W2, E1; the packed key came whole from a peer of this version.
        let code = unsafe { unpack(inner.raw(), packed.as_ptr().cast(), &raw mut raw) };
        Status(code).check().map_err(|status| refused("ucp_ep_rkey_unpack", status))?;
        let key = NonNull::new(raw).ok_or(refused("ucp_ep_rkey_unpack", Status(code)))?;
        inner.keep_key(key);
        let mut mapped = ptr::null_mut();
        // SAFETY: U1, W2, K1; `mapped` is room for the answer.
        let code = unsafe { (inner.engine.api().ucp_rkey_ptr)(raw, base, &raw mut mapped) };
        drop(core);
        let mapped = NonNull::new(mapped.cast()).filter(|_| code == UCS_OK);
        Ok(Self { endpoint: endpoint.clone(), key, base, bytes, mapped })
    }

    /// The memory itself, where it is mapped here: on one host, if the peer had UCX
    /// [allocate](crate::Context::allocate) it.
    #[inline]
    pub fn mapped(&self) -> Option<Mapped<'_>> {
        self.mapped.map(|base| Mapped::of(self, base))
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The way there.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Copies `bytes` bytes of `from`, from its byte `offset` on, to byte `to` and on.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was begun.
    pub fn put(
        &self,
        to: usize,
        from: &Region,
        offset: usize,
        bytes: usize,
    ) -> Result<Operation<'_>, OperationError> {
        const WHAT: &str = "a put";
        let (there, here) = (self.at(to, bytes)?, from.at(offset, bytes)?);
        let inner = self.endpoint.inner();
        let core = inner.enter(WHAT)?;
        let param = in_region(from);
        let put = inner.engine.api().ucp_put_nbx;
        let key = self.key.as_ptr();
        // SAFETY: U1, W2, E1, K1; the region is held until it is done.
        let answer = unsafe { put(inner.raw(), here.cast(), bytes, there, key, &raw const param) };
        let held = if answer.is_null() { Held::Nothing } else { Held::Region(from.clone()) };
        inner.settle(core, WHAT, answer, held)
    }

    /// Copies `from` to byte `to` and on; `from` may be reused at once.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was begun.
    pub fn put_copy(&self, to: usize, from: &[u8]) -> Result<Operation<'_>, OperationError> {
        const WHAT: &str = "a put";
        let there = self.at(to, from.len())?;
        let inner = self.endpoint.inner();
        let mut core = inner.enter(WHAT)?;
        let mut held = copy(&mut core, &[from]);
        let param = UcpRequestParam::unset();
        let put = inner.engine.api().ucp_put_nbx;
        let (here, key) = (held.first().cast(), self.key.as_ptr());
        // SAFETY: U1, W2, E1, K1; the copy is held until it is done.
        let answer = unsafe { put(inner.raw(), here, from.len(), there, key, &raw const param) };
        inner.settle(core, WHAT, answer, held)
    }

    /// Copies `bytes` bytes from byte `from` on into `into`, to its byte `offset` and on.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was begun.
    pub fn get(
        &self,
        from: usize,
        into: &Region,
        offset: usize,
        bytes: usize,
    ) -> Result<Operation<'_>, OperationError> {
        const WHAT: &str = "a get";
        let (there, here) = (self.at(from, bytes)?, into.at(offset, bytes)?);
        let inner = self.endpoint.inner();
        let core = inner.enter(WHAT)?;
        let param = in_region(into);
        let get = inner.engine.api().ucp_get_nbx;
        let key = self.key.as_ptr();
        // SAFETY: U1, W2, E1, K1; the region is held until it is done.
        let answer = unsafe { get(inner.raw(), here.cast(), bytes, there, key, &raw const param) };
        inner.settle(core, WHAT, answer, Held::Region(into.clone()))
    }

    /// Adds `n` to the word at byte `to`, atomically.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was begun.
    pub fn add(&self, to: usize, n: u64) -> Result<Operation<'_>, OperationError> {
        let (operation, _) = self.atomic("an add", UCP_ATOMIC_OP_ADD, to, [n, 0])?;
        Ok(operation)
    }

    /// Writes `new` to the word at byte `to` if it is `expected`, atomically; gives what it was.
    ///
    /// # Errors
    ///
    /// [`OperationError`]; nothing was begun.
    pub fn compare_swap(
        &self,
        to: usize,
        expected: u64,
        new: u64,
    ) -> Result<Swap<'_>, OperationError> {
        const WHAT: &str = "a compare-and-swap";
        let (operation, found) = self.atomic(WHAT, UCP_ATOMIC_OP_CSWAP, to, [expected, new])?;
        Ok(Swap { operation, found })
    }

    /// Begins an atomic operation with an operand, and a second one where the reply goes. Also
    /// gives the reply, as far as it is there.
    fn atomic(
        &self,
        what: &'static str,
        opcode: u32,
        to: usize,
        operands: [u64; 2],
    ) -> Result<(Operation<'_>, u64), OperationError> {
        let there = self.at(to, 8)?;
        if !there.is_multiple_of(8) {
            return Err(OutOfRange { asked: to..to + 8, bytes: self.bytes }.into());
        }
        let inner = self.endpoint.inner();
        if !inner.engine.context.has_atomics() {
            return Err(OperationError::Refused {
                what,
                peer: inner.peer.clone(),
                status: UNSUPPORTED,
            });
        }
        let mut core = inner.enter(what)?;
        let mut held = copy(&mut core, &operands.map(u64::to_ne_bytes).each_ref().map(|o| &o[..]));
        let mut param = UcpRequestParam::unset();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = ucp_dt_make_contig(8);
        let here = held.first();
        if opcode == UCP_ATOMIC_OP_CSWAP {
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
            // SAFETY: two words were copied there.
            param.reply_buffer = unsafe { here.add(8) }.cast();
        }
        let (call, key) = (inner.engine.api().ucp_atomic_op_nbx, self.key.as_ptr());
        // SAFETY: U1, W2, E1, K1; the copies are held until it is done.
        let answer =
            unsafe { call(inner.raw(), opcode, here.cast(), 1, there, key, &raw const param) };
        let found = if answer.is_null() { reply(&held).unwrap_or_default() } else { 0 };
        Ok((inner.settle(core, what, answer, held)?, found))
    }

    /// The peer's address of `len` bytes from `offset` on.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<u64, OutOfRange> {
        OutOfRange::check(offset, len, self.bytes)?;
        Ok(self.base + offset as u64)
    }
}

/// What UCX should answer to an atomic operation where it has none.
const UNSUPPORTED: Status = Status(-22);

fn in_region(region: &Region) -> UcpRequestParam {
    let mut param = UcpRequestParam::unset();
    param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    param.memh = region.memh();
    param
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("endpoint", &self.endpoint)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
