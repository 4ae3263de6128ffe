//! Sending: messages in the order of their numbers, and what is told of their end.
#![allow(unsafe_code)] // UCX calls back with pointers

use std::{ffi::c_void, mem, sync::Arc};

use pontoon_signal::Seq;

use super::{MESSAGE, header::HEADER_BYTES, life::Life};
use crate::{
    Body, Manner, Status,
    endpoint::Inner,
    engine::{Core, Held, InHandler},
    ffi::{Api, DataCallback, UcsStatus},
    status::outcome,
};

/// A message under way: until UCX has ended it, its header and its data stay.
struct Sent {
    life: Arc<Life>,
    operation: Option<Seq>,
    held: Held,
    api: &'static Api,
}

/// `ucp_send_nbx_callback_t`.
type SendCallback = unsafe extern "C" fn(*mut c_void, UcsStatus, *mut c_void);

/// Sends a message, a part of `operation`, which the caller has taken in hand. Whether it is done already, and the
/// caller's to let go; if not, it is let go and its part of the operation is over when UCX says so.
pub(crate) fn send(
    life: &Arc<Life>,
    inner: &Inner,
    core: &mut Core,
    header: &[u8; HEADER_BYTES],
    body: Body<'_>,
    operation: Option<Seq>,
) -> Result<bool, Status> {
    let api = inner.engine.api();
    let sent = Sent { life: Arc::clone(life), operation, held: Held::Nothing, api };
    let sent = Box::into_raw(Box::new(sent));
    // SAFETY: two members of one union of UCX's: it calls what is given with a send as this one.
    let callback = unsafe { mem::transmute::<SendCallback, DataCallback>(ended) };
    let told = Some((callback, sent.cast()));
    // Eager: data that are fetched would land after those of later messages.
    let begun = inner.begin_send(core, MESSAGE, header, body, Manner::Eager, told);
    let answer = match begun {
        Ok((answer, held)) => outcome(answer).map(|request| (request, held)),
        Err(_) => Err(Status(-19)),
    };
    match answer {
        Ok((Some(_), held)) => {
            // SAFETY: UCX calls `ended` from within progress only, which needs the core that the
            // caller has: until then the box is this call's.
            unsafe { (*sent).held = held };
            Ok(false)
        }
        Ok((None, held)) => {
            // SAFETY: without a request UCX does not call back, so the box is still ours.
            drop(unsafe { Box::from_raw(sent) });
            drop(core.reuse(held));
            Ok(true)
        }
        Err(status) => {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(sent) });
            Err(status)
        }
    }
}

/// `ucp_send_nbx_callback_t`; `user_data` is a `Sent`.
///
/// # Safety
///
/// UCX calls it once for a request that `send` began.
unsafe extern "C" fn ended(request: *mut c_void, status: UcsStatus, user_data: *mut c_void) {
    let _mark = InHandler::begin();
    // SAFETY: `send` left the box to this call.
    let sent = unsafe { Box::from_raw(user_data.cast::<Sent>()) };
    let mut flight = sent.life.flight();
    // What was not sent is never done: the endpoint has failed, and the completions end.
    if let (true, Some(operation)) = (Status(status).check().is_ok(), sent.operation) {
        flight.over(operation, 1);
    }
    flight.let_go(1);
    drop(flight);
    // SAFETY: U1, W2, as UCX calls back with the core in hand; it is done, and not used again.
    unsafe { (sent.api.ucp_request_free)(request) };
}
