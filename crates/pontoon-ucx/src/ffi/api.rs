//! The functions of libucp that are called, found by name.

use core::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::{
    StatusPtr, UcpAddress, UcpAmHandlerParam, UcpConfig, UcpContext, UcpEp, UcpEpParams, UcpMem,
    UcpMemAttr, UcpMemMapParams, UcpParams, UcpRequestParam, UcpRkey, UcpWorker, UcpWorkerParams,
    UcsStatus,
};

macro_rules! api {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions that are called. All are of 1.13, and of every version since.
        #[derive(Clone, Copy, Debug)]
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Api {
            /// Finds them in `library`.
            ///
            /// # Errors
            ///
            /// The name of the first that is not there.
            ///
            /// # Safety
            ///
            /// `library` is libucp of a version with these declarations, and stays loaded for as
            /// long as any of them may be called.
            pub unsafe fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {$(
                    $name: {
                        // SAFETY: the caller vouches for the declarations.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0")) };
                        *found.map_err(|_| stringify!($name))?
                    },
                )+})
            }
        }
    };
}

api! {
    ucp_get_version(*mut c_uint, *mut c_uint, *mut c_uint);
    ucp_config_read(*const c_char, *const c_char, *mut *mut UcpConfig) -> UcsStatus;
    ucp_config_modify(*mut UcpConfig, *const c_char, *const c_char) -> UcsStatus;
    ucp_config_release(*mut UcpConfig);
    ucp_init_version(c_uint, c_uint, *const UcpParams, *const UcpConfig, *mut *mut UcpContext)
        -> UcsStatus;
    ucp_cleanup(*mut UcpContext);

    ucp_worker_create(*mut UcpContext, *const UcpWorkerParams, *mut *mut UcpWorker) -> UcsStatus;
    ucp_worker_destroy(*mut UcpWorker);
    ucp_worker_get_address(*mut UcpWorker, *mut *mut UcpAddress, *mut usize) -> UcsStatus;
    ucp_worker_release_address(*mut UcpWorker, *mut UcpAddress);
    ucp_worker_progress(*mut UcpWorker) -> c_uint;
    ucp_worker_get_efd(*mut UcpWorker, *mut c_int) -> UcsStatus;
    ucp_worker_arm(*mut UcpWorker) -> UcsStatus;
    ucp_worker_fence(*mut UcpWorker) -> UcsStatus;
    ucp_worker_set_am_recv_handler(*mut UcpWorker, *const UcpAmHandlerParam) -> UcsStatus;

    ucp_ep_create(*mut UcpWorker, *const UcpEpParams, *mut *mut UcpEp) -> UcsStatus;
    ucp_ep_close_nbx(*mut UcpEp, *const UcpRequestParam) -> StatusPtr;
    ucp_ep_flush_nbx(*mut UcpEp, *const UcpRequestParam) -> StatusPtr;

    ucp_mem_map(*mut UcpContext, *const UcpMemMapParams, *mut *mut UcpMem) -> UcsStatus;
    ucp_mem_unmap(*mut UcpContext, *mut UcpMem) -> UcsStatus;
    ucp_mem_query(*const UcpMem, *mut UcpMemAttr) -> UcsStatus;
    ucp_rkey_pack(*mut UcpContext, *mut UcpMem, *mut *mut c_void, *mut usize) -> UcsStatus;
    ucp_rkey_buffer_release(*mut c_void);
    ucp_ep_rkey_unpack(*mut UcpEp, *const c_void, *mut *mut UcpRkey) -> UcsStatus;
    ucp_rkey_destroy(*mut UcpRkey);
    ucp_rkey_ptr(*mut UcpRkey, u64, *mut *mut c_void) -> UcsStatus;

    ucp_put_nbx(*mut UcpEp, *const c_void, usize, u64, *mut UcpRkey, *const UcpRequestParam)
        -> StatusPtr;
    ucp_get_nbx(*mut UcpEp, *mut c_void, usize, u64, *mut UcpRkey, *const UcpRequestParam)
        -> StatusPtr;
    ucp_atomic_op_nbx(
        *mut UcpEp, c_uint, *const c_void, usize, u64, *mut UcpRkey, *const UcpRequestParam
    ) -> StatusPtr;
    ucp_am_send_nbx(
        *mut UcpEp, c_uint, *const c_void, usize, *const c_void, usize, *const UcpRequestParam
    ) -> StatusPtr;
    ucp_am_recv_data_nbx(
        *mut UcpWorker, *mut c_void, *mut c_void, usize, *const UcpRequestParam
    ) -> StatusPtr;
    ucp_request_check_status(*mut c_void) -> UcsStatus;
    ucp_request_free(*mut c_void);
}
