//! How a window is set aside.

use std::sync::RwLock;

use pontoon_signal::{Block, shim::AtomicU64};
use rustix::io::Errno;

use super::{Service, Tracking, Window};
use crate::{
    Feature, Features, ReserveError, abi, bits::Bits, descriptor::Descriptor, error::system,
    features::pagemap, noted::Noted, reserved::Reserved, source::Pattern,
};

impl Window {
    /// Sets `bytes` aside, rounded up to whole pages, with what `features` has.
    ///
    /// # Errors
    ///
    /// [`ReserveError`], with what to do about it.
    pub fn reserve(
        features: &Features,
        bytes: usize,
        service: Service,
    ) -> Result<Self, ReserveError> {
        Self::check_features(features, service, &[])?;
        let rounded = bytes.checked_next_multiple_of(rustix::param::page_size());
        let rounded = rounded.filter(|rounded| *rounded > 0);
        let rounded = rounded.ok_or(ReserveError::Size { bytes })?;
        let tracking = Self::tracking(features, rounded / rustix::param::page_size())?;
        Self::over(*features, service, tracking, || Reserved::new(rounded), None)
    }

    /// Sets addresses aside at which the pages of `home` can be seen: what is stored there is stored
    /// here, and the other way round, without a copy. A page of it is mapped by
    /// [`map_in`](Self::map_in), once whoever fills `home` has filled it; until then it is absent.
    ///
    /// `home` is all of a mapping with a file, such as [`SharedMap::create`](pontoon_signal::SharedMap::create)
    /// makes. First writes are noted by the kernel or not at all, and pages cannot be moved out. Pages that are
    /// dropped are absent here and stay in `home`.
    ///
    /// # Errors
    ///
    /// [`ReserveError::NoFile`] of another block; else as [`reserve`](Self::reserve).
    pub fn alias(
        features: &Features,
        home: &Block,
        service: Service,
    ) -> Result<Self, ReserveError> {
        Self::check_features(features, service, &[Feature::MinorShmem])?;
        let file = home.file().filter(|_| home.is_whole()).ok_or(ReserveError::NoFile)?;
        let bytes = home.bytes();
        if !bytes.is_multiple_of(rustix::param::page_size()) {
            return Err(ReserveError::Size { bytes });
        }
        let mut features = features.without(Feature::Move);
        if !features.has(Feature::WriteProtectShmem) {
            features = features.without(Feature::WriteProtect);
        }
        let tracking = match Self::tracking(&features, 1)? {
            // Whether a page of a file is mapped cannot be asked.
            Tracking::Faults(_) => Tracking::None,
            other => other,
        };
        let shared = || Reserved::shared(file, bytes);
        Self::over(features, service, tracking, shared, Some(home.clone()))
    }

    fn check_features(
        features: &Features,
        service: Service,
        more: &[Feature],
    ) -> Result<(), ReserveError> {
        if let Some(refusal) = features.refusal() {
            return Err(ReserveError::Unavailable(refusal));
        }
        let signal: &[_] = if service == Service::InThread { &[Feature::SigBus] } else { &[] };
        let mut required = [&[Feature::Missing], signal, more].into_iter().flatten();
        let lacks = required.find(|it| !features.has(**it));
        lacks.map_or(Ok(()), |&lacks| Err(ReserveError::Lacks(lacks)))
    }

    fn over(
        features: Features,
        service: Service,
        tracking: Tracking,
        reserve: impl FnOnce() -> Result<Reserved, pontoon_signal::SystemError>,
        home: Option<Block>,
    ) -> Result<Self, ReserveError> {
        let page = rustix::param::page_size();
        let (descriptor, kernel_faults) =
            Self::open(&features, service, &tracking, home.is_some())?;
        let reserved = reserve()?;
        let mut mode = abi::UFFDIO_REGISTER_MODE_MISSING;
        if !matches!(tracking, Tracking::None) {
            mode |= abi::UFFDIO_REGISTER_MODE_WP;
        }
        if home.is_some() {
            mode |= abi::UFFDIO_REGISTER_MODE_MINOR;
        }
        descriptor.register(&reserved, mode).map_err(system("UFFDIO_REGISTER"))?;
        let pages = reserved.bytes() / page;
        let poisoned = features.has(Feature::Poison).then(|| Bits::new(pages)).transpose()?;
        Ok(Self {
            reserved,
            descriptor,
            tracking,
            features,
            service,
            kernel_faults,
            page,
            poisoned,
            poisons: AtomicU64::new(0),
            zeros: Pattern::new(0),
            home,
            access: RwLock::default(),
            served: AtomicU64::new(0),
        })
    }

    fn tracking(features: &Features, pages: usize) -> Result<Tracking, ReserveError> {
        if !features.has(Feature::WriteProtect) {
            return Ok(Tracking::None);
        }
        if features.has(Feature::WriteProtectAsync) && features.has(Feature::PagemapScan) {
            let pagemap = pagemap().map_err(system("open"))?;
            return Ok(Tracking::Kernel { pagemap });
        }
        Ok(Tracking::Faults(Noted::new(pages)?))
    }

    /// A descriptor, and whether faults of the kernel's own come to it.
    fn open(
        features: &Features,
        service: Service,
        tracking: &Tracking,
        alias: bool,
    ) -> Result<(Descriptor, bool), ReserveError> {
        use Feature::{
            MinorShmem, Move, Poison, SigBus, WriteProtect, WriteProtectAsync, WriteProtectShmem,
            WriteProtectUnpopulated,
        };
        let mut wanted = features.agreed(&[Poison, Move]);
        if alias {
            wanted |= features.agreed(&[MinorShmem]);
        }
        wanted |= match service {
            Service::InThread => features.agreed(&[SigBus]),
            Service::Served => features.exact_address(),
        };
        wanted |= match tracking {
            Tracking::Kernel { .. } => {
                features.agreed(&[WriteProtect, WriteProtectUnpopulated, WriteProtectAsync])
            }
            Tracking::Faults(_) => features.agreed(&[WriteProtect]),
            Tracking::None => 0,
        };
        if alias && !matches!(tracking, Tracking::None) {
            wanted |= features.agreed(&[WriteProtectShmem]);
        }
        let user_only = features.has(Feature::UserModeOnly);
        // A server can end a fault that a system call makes, if it may: in the thread nobody can.
        let kernel_too = match service {
            Service::Served if user_only => Descriptor::open(wanted, false).ok(),
            _ => None,
        };
        let kernel_faults = kernel_too.is_some() || service == Service::Served && !user_only;
        let opened = kernel_too.map_or_else(|| Descriptor::open(wanted, user_only), Ok);
        opened.map(|(descriptor, _)| (descriptor, kernel_faults)).map_err(|errno| match errno {
            Errno::PERM | Errno::NOSYS => ReserveError::Unavailable(system("userfaultfd")(errno)),
            errno => system("userfaultfd")(errno).into(),
        })
    }
}
