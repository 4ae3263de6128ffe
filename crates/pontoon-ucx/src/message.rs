//! Active messages: data that a handler at the other end puts in its place.
#![allow(unsafe_code)] // UCX calls back with pointers

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    slice,
    sync::Arc,
};

use pontoon_signal::shim::{AtomicU64, Ordering::Relaxed, UnsafeCell};

use crate::{
    Region, Status,
    engine::InHandler,
    ffi::{
        Api, UCP_AM_RECV_ATTR_FLAG_RNDV, UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_MEMH,
        UCP_OP_ATTR_FIELD_USER_DATA, UCS_INPROGRESS, UCS_OK, UcpAmRecvParam, UcpRequestParam,
        UcpWorker, UcsStatus,
    },
    status::outcome,
};

/// What is done with messages of one kind.
///
/// UCX calls it from within whoever makes progress, one message at a time, with the worker in hand:
/// it must be short, and calls of this crate that need the worker are refused there
/// ([`OperationError::FromHandler`](crate::OperationError::FromHandler)). A panic costs the message
/// it came from and is counted in [`WorkerReport`](crate::WorkerReport).
///
/// - H1: `arrived` is called once for every message. UCX promises no order; over TCP and shared
///   memory, where an endpoint has one way for all messages, it is that in which they were sent.
/// - H2: `landed` is called once its data are in their place, before `arrived` of the next message
///   if they came with it ([`Manner::Eager`]), and any time later if they were fetched.
/// - H3: `landed` is not called where `arrived` gave no place.
pub trait Handler: Send {
    /// A message with `bytes` bytes of data has arrived. Gives where they go; `None` drops them.
    fn arrived(&mut self, header: &[u8], bytes: usize) -> Option<Place>;

    /// The data are in their place, or never will be: the sender died, or the place was too small.
    fn landed(&mut self, header: &[u8], outcome: Result<usize, Status>);
}

/// Where the data of a message go.
#[derive(Clone, Debug)]
pub struct Place {
    /// The region.
    pub region: Region,
    /// The first byte.
    pub offset: usize,
}

/// How the data of a message travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As UCX finds best for their size.
    #[default]
    Auto,
    /// With the header; the receiver copies them once.
    Eager,
    /// Fetched by the receiver into their place.
    Rendezvous,
}

/// The data of a message.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// None.
    Nothing,
    /// These, copied.
    Copied(&'a [u8]),
    /// `bytes` bytes of a region from `offset` on, which stay as they are until it is done.
    Of {
        /// The region.
        region: &'a Region,
        /// The first byte.
        offset: usize,
        /// How many.
        bytes: usize,
    },
}

/// A handler as UCX knows it.
///
/// Invariant A1: a slot is used by whoever has the worker in hand, as UCX calls back only from
/// within calls of the worker; and its handler is never called from within itself.
pub(crate) struct Slot {
    pub(crate) handler: UnsafeCell<Box<dyn Handler>>,
    pub(crate) worker: NonNull<UcpWorker>,
    pub(crate) api: &'static Api,
    pub(crate) panics: AtomicU64,
}

// SAFETY: A1, and a handler can be sent.
unsafe impl Send for Slot {}
// SAFETY: A1: `handler` is reached by one thread at a time; `panics` is atomic.
unsafe impl Sync for Slot {}

/// `OUT_OF_RANGE`: the place is too small for the data.
const OUT_OF_RANGE: Status = Status(-19);

impl Slot {
    fn call<R>(&self, call: impl FnOnce(&mut dyn Handler) -> R) -> Option<R> {
        let called = catch_unwind(AssertUnwindSafe(|| {
            self.handler.with_mut(|handler| {
                // SAFETY: A1.
                let handler = unsafe { &mut *handler };
                call(handler.as_mut())
            })
        }));
        if called.is_err() {
            self.panics.fetch_add(1, Relaxed);
        }
        called.ok()
    }
}

/// Data that are being fetched.
struct Landing {
    slot: Arc<Slot>,
    header: Box<[u8]>,
    _place: Place,
}

/// `ucp_am_recv_callback_t`; `arg` is a `Slot`.
///
/// # Safety
///
/// UCX calls it as registered: `arg` is a slot of a handler that lives as long as the worker,
/// header and data are as long as it says.
pub(crate) unsafe extern "C" fn arrived(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const UcpAmRecvParam,
) -> UcsStatus {
    // What is dropped here may be the user's as well.
    let _mark = InHandler::begin();
    // SAFETY: the engine keeps its slots until the worker is destroyed.
    let slot = unsafe { &*arg.cast::<Slot>() };
    let header = if header_length == 0 {
        &[][..]
    } else {
        // SAFETY: as the caller promises, for as long as this call lasts.
        unsafe { slice::from_raw_parts(header.cast::<u8>(), header_length) }
    };
    let Some(Some(place)) = slot.call(|handler| handler.arrived(header, length)) else {
        return UCS_OK;
    };
    let Ok(into) = place.region.at(place.offset, length) else {
        slot.call(|handler| handler.landed(header, Err(OUT_OF_RANGE)));
        return UCS_OK;
    };
    // SAFETY: as the caller promises.
    let attributes = unsafe { (*param).recv_attr };
    if attributes & UCP_AM_RECV_ATTR_FLAG_RNDV != 0 {
        // SAFETY: `data` is the descriptor of a message that is being handled now.
        return unsafe { fetch(arg, header, data, into, length, place) };
    }
    if length > 0 {
        // SAFETY: `length` bytes came with the message, and as many are in the place.
        unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), into, length) };
    }
    slot.call(|handler| handler.landed(header, Ok(length)));
    UCS_OK
}

/// Fetches the data of a message into `into`, which is `length` bytes of `place`.
///
/// # Safety
///
/// `arg` is as for [`arrived`], which calls it with the descriptor it was given.
unsafe fn fetch(
    arg: *mut c_void,
    header: &[u8],
    descriptor: *mut c_void,
    into: *mut u8,
    length: usize,
    place: Place,
) -> UcsStatus {
    let slot = arg.cast::<Slot>().cast_const();
    // SAFETY: slots are made by `Arc::new`, and the engine holds one count.
    unsafe { Arc::increment_strong_count(slot) };
    // SAFETY: the count that was just added.
    let slot = unsafe { Arc::from_raw(slot) };
    let (api, worker) = (slot.api, slot.worker);
    let mut param = UcpRequestParam::unset();
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH;
    param.cb = Some(fetched);
    param.memh = place.region.memh();
    let landing = Box::into_raw(Box::new(Landing { slot, header: header.into(), _place: place }));
    param.user_data = landing.cast();
    let receive = api.ucp_am_recv_data_nbx;
    // SAFETY: U1, A1; the descriptor is of this message, and the place is held by `landing`.
    let answer =
        unsafe { receive(worker.as_ptr(), descriptor, into.cast(), length, &raw const param) };
    let ended = match outcome(answer) {
        // `fetched` is called, or was.
        Ok(Some(_)) => return UCS_INPROGRESS,
        Ok(None) => Ok(length),
        Err(status) => Err(status),
    };
    // SAFETY: without a request UCX does not call back, so the box is still ours.
    let landing = unsafe { Box::from_raw(landing) };
    landing.slot.call(|handler| handler.landed(&landing.header, ended));
    UCS_OK
}

/// `ucp_am_recv_data_nbx_callback_t`; `user_data` is a `Landing`.
///
/// # Safety
///
/// UCX calls it once for a request that `fetch` began.
unsafe extern "C" fn fetched(
    request: *mut c_void,
    status: UcsStatus,
    length: usize,
    user_data: *mut c_void,
) {
    let _mark = InHandler::begin();
    // SAFETY: `fetch` left the box to this call.
    let landing = unsafe { Box::from_raw(user_data.cast::<Landing>()) };
    let ended = Status(status).check().map(|()| length);
    landing.slot.call(|handler| handler.landed(&landing.header, ended));
    // SAFETY: U1, A1; the request is done and is not used again.
    unsafe { (landing.slot.api.ucp_request_free)(request) };
}
