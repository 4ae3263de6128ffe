//! A context: UCX set up for this process, and the memory it knows.
#![allow(unsafe_code)] // calls of C functions

use std::{
    ffi::CString,
    ptr::{self, NonNull},
    sync::Arc,
};

use crate::{
    Asked, Backing, Library, Options, Region, SetupError, Status, Version, Worker,
    ffi::{
        Api, UCP_FEATURE_AM, UCP_FEATURE_AMO64, UCP_FEATURE_RMA, UCP_FEATURE_WAKEUP,
        UCP_PARAM_FIELD_FEATURES, UCP_PARAM_FIELD_MT_WORKERS_SHARED, UcpConfig, UcpContext,
        UcpParams,
    },
    limit,
};

/// The version of the interface that the declarations are of; later libraries serve it.
const INTERFACE: (u32, u32) = (1, 13);

/// UCX set up for this process. A clone is the same context.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<Inner>,
}

/// Invariant X1: `raw` is a context from `ucp_init` until `drop`. X2: UCX locks it itself, as it
/// was asked to be shared, so any thread may map memory while another makes progress.
#[derive(Debug)]
struct Inner {
    library: &'static Library,
    raw: NonNull<UcpContext>,
    options: Options,
}

// SAFETY: X2.
unsafe impl Send for Inner {}
// SAFETY: X2.
unsafe impl Sync for Inner {}

impl Context {
    /// Sets UCX up.
    ///
    /// # Errors
    ///
    /// [`SetupError::Files`] where it could not be told later; [`SetupError::Setting`] and [`SetupError::NoTransport`] if `options` ask for what is not
    /// there, else [`SetupError::Refused`].
    pub fn open(library: &'static Library, options: Options) -> Result<Self, SetupError> {
        limit::room()?;
        let config = Config::of(library, &options)?;
        let mut params = UcpParams::unset();
        params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
        params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        params.mt_workers_shared = 1;
        let mut raw = ptr::null_mut();
        let init = library.api.ucp_init_version;
        let (major, minor) = INTERFACE;
        // SAFETY: U1; parameters and configuration live, and `raw` is room for the answer.
        let code = unsafe { init(major, minor, &raw const params, config.raw, &raw mut raw) };
        Status(code).check().map_err(|status| match limit::met(status) {
            Some(error) => SetupError::Limit { call: "ucp_init", status, error },
            None => SetupError::NoTransport { asked: options.asked(), status },
        })?;
        let raw = NonNull::new(raw).ok_or(refused("ucp_init", Status(code)))?;
        Ok(Self { inner: Arc::new(Inner { library, raw, options }) })
    }

    /// Registers memory that the program has. `tcp` reaches it as well as any; shared memory does
    /// not, and sends messages behind the scenes: see [`allocate`](Self::allocate).
    ///
    /// # Errors
    ///
    /// [`SetupError::Empty`], or what UCX says.
    pub fn map(&self, backing: Arc<dyn Backing>) -> Result<Region, SetupError> {
        Region::map(self, backing)
    }

    /// Allocates memory that UCX can let peers reach in the fastest way: on one host by their own
    /// loads and stores.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map).
    pub fn allocate(&self, bytes: usize) -> Result<Region, SetupError> {
        Region::allocate(self, bytes)
    }

    /// Creates the worker that carries all this process sends and gets.
    ///
    /// # Errors
    ///
    /// What UCX says.
    pub fn worker(&self) -> Result<Worker, SetupError> {
        Worker::create(self)
    }

    /// The library it was set up with.
    pub fn library(&self) -> &'static Library {
        self.inner.library
    }

    pub(crate) fn api(&self) -> &'static Api {
        &self.inner.library.api
    }

    pub(crate) fn raw(&self) -> *mut UcpContext {
        self.inner.raw.as_ptr()
    }

    /// Whether UCX has atomic operations for the endpoints of this context.
    ///
    /// From 1.16 on, where its new protocols are the default, none of those for atomics is for
    /// endpoints that notice a peer's death. Asked for one, UCX does not refuse: it fails the
    /// endpoint, and so the peer.
    pub fn has_atomics(&self) -> bool {
        let first_without = Version { major: 1, minor: 16, release: 0 };
        !self.notices_death() || self.library().version() < first_without
    }

    /// What its transports and devices were to be.
    pub(crate) fn asked(&self) -> Asked {
        self.inner.options.asked()
    }

    pub(crate) fn notices_death(&self) -> bool {
        self.inner.options.peer_errors
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: X1; regions and workers hold the context, so they are gone.
        unsafe { (self.library.api.ucp_cleanup)(self.raw.as_ptr()) };
    }
}

/// A configuration, released when dropped.
struct Config<'a> {
    api: &'a Api,
    raw: *mut UcpConfig,
}

impl<'a> Config<'a> {
    fn of(library: &'a Library, options: &Options) -> Result<Self, SetupError> {
        let api = &library.api;
        let mut raw = ptr::null_mut();
        // SAFETY: U1; null names stand for the usual ones, and `raw` is room for the answer.
        let code = unsafe { (api.ucp_config_read)(ptr::null(), ptr::null(), &raw mut raw) };
        Status(code).check().map_err(|status| refused("ucp_config_read", status))?;
        let config = Self { api, raw };
        for (name, value) in options.settings(library.version()) {
            config.set(&name, &value)?;
        }
        Ok(config)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), SetupError> {
        let wrong =
            |status| SetupError::Setting { name: name.to_owned(), value: value.to_owned(), status };
        // A zero within would cut the text short.
        let invalid = |_| wrong(Status(-5));
        let c_name = CString::new(name).map_err(invalid)?;
        let c_value = CString::new(value).map_err(|_| wrong(Status(-5)))?;
        let modify = self.api.ucp_config_modify;
        // SAFETY: U1; the configuration and both strings live.
        Status(unsafe { modify(self.raw, c_name.as_ptr(), c_value.as_ptr()) })
            .check()
            .map_err(wrong)
    }
}

impl Drop for Config<'_> {
    fn drop(&mut self) {
        // SAFETY: U1; the configuration is ours, and a context keeps a copy.
        unsafe { (self.api.ucp_config_release)(self.raw) };
    }
}

pub(crate) fn refused(call: &'static str, status: Status) -> SetupError {
    match limit::met(status) {
        Some(error) => SetupError::Limit { call, status, error },
        None => SetupError::Refused { call, status },
    }
}
