//! Structures of `ucp.h` and `ucp_def.h`, field by field.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// A `ucp_context`, known by its address only.
#[repr(C)]
#[derive(Debug)]
pub struct UcpContext([u8; 0]);

/// A `ucp_config`.
#[repr(C)]
#[derive(Debug)]
pub struct UcpConfig([u8; 0]);

/// A `ucp_worker`.
#[repr(C)]
#[derive(Debug)]
pub struct UcpWorker([u8; 0]);

/// A `ucp_address`.
#[repr(C)]
#[derive(Debug)]
pub struct UcpAddress([u8; 0]);

/// A `ucp_ep`.
#[repr(C)]
#[derive(Debug)]
pub struct UcpEp([u8; 0]);

/// A `ucp_mem`.
#[repr(C)]
#[derive(Debug)]
pub struct UcpMem([u8; 0]);

/// A `ucp_rkey`.
#[repr(C)]
#[derive(Debug)]
pub struct UcpRkey([u8; 0]);

/// `ucs_status_t`: packed, so that a function leaves all but the lowest byte of its answer as it
/// was.
pub type UcsStatus = i8;

/// Null, a status as a pointer, or a request: `UCS_PTR_*` tell them apart.
pub type StatusPtr = *mut c_void;

/// `ucp_params_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpParams {
    pub field_mask: u64,
    pub features: u64,
    pub request_size: usize,
    pub request_init: Option<unsafe extern "C" fn(*mut c_void)>,
    pub request_cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
    pub tag_sender_mask: u64,
    pub mt_workers_shared: c_int,
    pub estimated_num_eps: usize,
    pub estimated_num_ppn: usize,
    pub name: *const c_char,
}

/// `ucp_worker_params_t`; its processor mask is `ucs_cpu_set_t` of 1024 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpWorkerParams {
    pub field_mask: u64,
    pub thread_mode: c_uint,
    pub cpu_mask: [u64; 16],
    pub events: c_uint,
    pub user_data: *mut c_void,
    pub event_fd: c_int,
    pub flags: u64,
    pub name: *const c_char,
    pub am_alignment: usize,
    pub client_id: u64,
}

/// `ucs_sock_addr_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcsSockAddr {
    pub addr: *const c_void,
    pub addrlen: u32,
}

/// `ucp_err_handler_cb_t`.
pub type ErrorCallback = unsafe extern "C" fn(arg: *mut c_void, ep: *mut UcpEp, status: UcsStatus);

/// `ucp_err_handler_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpErrHandler {
    pub cb: Option<ErrorCallback>,
    pub arg: *mut c_void,
}

/// `ucp_ep_params_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpEpParams {
    pub field_mask: u64,
    pub address: *const UcpAddress,
    pub err_mode: c_uint,
    pub err_handler: UcpErrHandler,
    pub user_data: *mut c_void,
    pub flags: c_uint,
    pub sockaddr: UcsSockAddr,
    pub conn_request: *mut c_void,
    pub name: *const c_char,
    pub local_sockaddr: UcsSockAddr,
}

/// `ucp_mem_map_params_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpMemMapParams {
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    pub flags: c_uint,
    pub prot: c_uint,
    pub memory_type: c_uint,
}

/// `ucp_mem_attr_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpMemAttr {
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    pub mem_type: c_uint,
}

/// `ucp_am_recv_data_nbx_callback_t`.
pub type DataCallback = unsafe extern "C" fn(
    request: *mut c_void,
    status: UcsStatus,
    length: usize,
    user_data: *mut c_void,
);

/// `ucp_request_param_t`. The union of callbacks holds the one that is used.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpRequestParam {
    pub op_attr_mask: u32,
    pub flags: u32,
    pub request: *mut c_void,
    pub cb: Option<DataCallback>,
    pub datatype: u64,
    pub user_data: *mut c_void,
    pub reply_buffer: *mut c_void,
    pub memory_type: c_uint,
    pub recv_info: *mut c_void,
    pub memh: *mut UcpMem,
}

/// `ucp_am_recv_param_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpAmRecvParam {
    pub recv_attr: u64,
    pub reply_ep: *mut UcpEp,
}

/// `ucp_am_recv_callback_t`.
pub type MessageCallback = unsafe extern "C" fn(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const UcpAmRecvParam,
) -> UcsStatus;

/// `ucp_am_handler_param_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UcpAmHandlerParam {
    pub field_mask: u64,
    pub id: c_uint,
    pub flags: u32,
    pub cb: Option<MessageCallback>,
    pub arg: *mut c_void,
}

/// All fields unset: what a mask leaves out is not read.
macro_rules! unset {
    ($($name:ident),+) => {$(
        impl $name {
            /// With an empty mask.
            pub const fn unset() -> Self {
                // SAFETY: integers, null pointers and absent functions are all zero bytes.
                unsafe { core::mem::zeroed() }
            }
        }
    )+};
}
unset!(
    UcpParams,
    UcpWorkerParams,
    UcpEpParams,
    UcpMemMapParams,
    UcpMemAttr,
    UcpRequestParam,
    UcpAmHandlerParam
);
