//! Registered memory.
#![allow(unsafe_code)] // memory that others write, and calls of C functions

use std::{
    ffi::c_void,
    fmt,
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

use pontoon_signal::{Mapping, SharedMap, shim::AtomicU64};

use crate::{
    Context, OutOfRange, SetupError, Status,
    context::refused,
    envelope::{self, Kind},
    ffi::{
        UCP_MEM_ATTR_FIELD_ADDRESS, UCP_MEM_ATTR_FIELD_LENGTH, UCP_MEM_MAP_ALLOCATE,
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        UCP_MEM_MAP_PARAM_FIELD_LENGTH, UcpMem, UcpMemAttr, UcpMemMapParams,
    },
};

/// Memory of the program's own that can be registered.
///
/// # Safety
///
/// `[base, base + bytes)` is mapped readable and writable, and stays so and where it is, as long as
/// the value lives. No Rust reference to bytes of it exists while a peer may write them.
pub unsafe trait Backing: Send + Sync + 'static {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;
    /// How many bytes there are.
    fn bytes(&self) -> usize;
}

// SAFETY: a shared map stays mapped where it is until it is dropped, and hands out its address
// only.
unsafe impl Backing for SharedMap {
    fn base(&self) -> NonNull<u8> {
        self.base()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

/// Registered memory. A clone is the same memory; it stays registered while any of them lives, and
/// while UCX may touch it for an operation that was not waited for to its end.
///
/// What peers write there is ordered by nothing but a signal. Reading bytes that a peer writes
/// meanwhile gives old ones or new ones, each as it happens.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Inner>,
}

/// Invariant R1: `[base, base + bytes)` is mapped and registered as `memh` until `drop`.
/// R2: no reference to the bytes is ever made but of [`Region::word`], which is atomic.
struct Inner {
    context: Context,
    memh: NonNull<UcpMem>,
    base: NonNull<u8>,
    bytes: usize,
    /// Dropped after the registration.
    _backing: Option<Arc<dyn Backing>>,
}

// SAFETY: R1, R2: the memory belongs to the value, not to a thread.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`; concurrent copies are those of the docs of `Region`.
unsafe impl Sync for Inner {}

impl Region {
    pub(crate) fn map(context: &Context, backing: Arc<dyn Backing>) -> Result<Self, SetupError> {
        let (base, bytes) = (backing.base(), backing.bytes());
        let mut params = UcpMemMapParams::unset();
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        (params.address, params.length) = (base.as_ptr().cast(), bytes);
        let memh = register(context, &params)?;
        let inner = Inner { context: context.clone(), memh, base, bytes, _backing: Some(backing) };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn allocate(context: &Context, bytes: usize) -> Result<Self, SetupError> {
        let mut params = UcpMemMapParams::unset();
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        (params.length, params.flags) = (bytes, UCP_MEM_MAP_ALLOCATE);
        let memh = register(context, &params)?;
        let mut attr = UcpMemAttr::unset();
        attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
        // SAFETY: U1; the handle is fresh, and `attr` is room for the answer.
        let code = unsafe { (context.api().ucp_mem_query)(memh.as_ptr(), &raw mut attr) };
        let base = Status(code).check().map(|()| NonNull::new(attr.address.cast::<u8>()));
        let Ok(Some(base)) = base else {
            // SAFETY: U1, X1; the handle is ours and nobody has seen it.
            unsafe { (context.api().ucp_mem_unmap)(context.raw(), memh.as_ptr()) };
            return Err(refused("ucp_mem_query", Status(code)));
        };
        let inner = Inner { context: context.clone(), memh, base, bytes, _backing: None };
        let region = Self { inner: Arc::new(inner) };
        // UCX promises memory, not zeroes.
        // SAFETY: R1, and nobody else has the region yet.
        unsafe { ptr::write_bytes(base.as_ptr(), 0, bytes) };
        Ok(region)
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// What a peer needs to reach it: give this to [`Endpoint::remote`](crate::Endpoint::remote).
    ///
    /// # Errors
    ///
    /// What UCX says.
    pub fn key(&self) -> Result<Vec<u8>, SetupError> {
        let (api, context) = (self.inner.context.api(), self.inner.context.raw());
        let (mut buffer, mut bytes) = (ptr::null_mut::<c_void>(), 0);
        let memh = self.inner.memh.as_ptr();
        // SAFETY: U1, X1, R1; the two places are room for the answer.
        let code = unsafe { (api.ucp_rkey_pack)(context, memh, &raw mut buffer, &raw mut bytes) };
        Status(code).check().map_err(|status| refused("ucp_rkey_pack", status))?;
        let mut body = Vec::with_capacity(16 + bytes);
        body.extend((self.inner.base.as_ptr() as u64).to_le_bytes());
        body.extend((self.inner.bytes as u64).to_le_bytes());
        // SAFETY: the call that succeeded left so many bytes there.
        body.extend(unsafe { slice::from_raw_parts(buffer.cast::<u8>(), bytes) });
        // SAFETY: U1; the buffer is what was packed, and is not used again.
        unsafe { (api.ucp_rkey_buffer_release)(buffer) };
        Ok(envelope::seal(Kind::Region, &body))
    }

    /// The counter at byte `offset`. It orders nothing by itself.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also if its address is not a multiple of 8.
    #[inline]
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, OutOfRange> {
        let at = self.at(offset, 8)?.cast::<u64>();
        if !at.is_aligned() {
            return Err(OutOfRange { asked: offset..offset + 8, bytes: self.inner.bytes });
        }
        // SAFETY: R1, R2: eight mapped bytes, aligned, for as long as `self` is borrowed.
        Ok(unsafe { AtomicU64::from_ptr(at) })
    }

    /// Copies `into.len()` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`]; nothing was copied.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        let from = self.at(offset, into.len())?;
        // SAFETY: R1, R2; `into` is no part of the region, of which no reference is ever made.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `from` to `offset` and on.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`]; nothing was copied.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        let into = self.at(offset, from.len())?;
        // SAFETY: as for `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
        Ok(())
    }

    /// The address of `len` bytes from `offset` on.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfRange> {
        OutOfRange::check(offset, len, self.inner.bytes)?;
        // SAFETY: R1, the offset is within the region or at its end.
        Ok(unsafe { self.inner.base.add(offset) }.as_ptr())
    }

    pub(crate) fn memh(&self) -> *mut UcpMem {
        self.inner.memh.as_ptr()
    }
}

// SAFETY: R1, R2.
unsafe impl Mapping for Region {
    fn base(&self) -> NonNull<u8> {
        self.inner.base
    }

    fn bytes(&self) -> usize {
        self.inner.bytes
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("bytes", &self.inner.bytes).finish_non_exhaustive()
    }
}

fn register(context: &Context, params: &UcpMemMapParams) -> Result<NonNull<UcpMem>, SetupError> {
    if params.length == 0 {
        return Err(SetupError::Empty);
    }
    let mut memh = ptr::null_mut();
    // SAFETY: U1, X1; the memory is mapped or to be allocated, and `memh` is room for the answer.
    let code = unsafe { (context.api().ucp_mem_map)(context.raw(), params, &raw mut memh) };
    Status(code).check().map_err(|status| refused("ucp_mem_map", status))?;
    NonNull::new(memh).ok_or(refused("ucp_mem_map", Status(code)))
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: U1, X1, R1; whoever could use it holds the region, so nobody does.
        unsafe { (self.context.api().ucp_mem_unmap)(self.context.raw(), self.memh.as_ptr()) };
    }
}
