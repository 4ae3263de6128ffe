//! What this kernel has, asked once and never assumed.

use core::fmt;

use pontoon_signal::SystemError;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{
    abi,
    descriptor::{self, Descriptor},
    error::system,
};

/// Something that a kernel has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Feature {
    /// userfaultfd itself: faults on absent pages of anonymous memory.
    Missing,
    /// Faults of user code alone, which needs no privileges.
    UserModeOnly,
    /// A fault raises SIGBUS in the thread that made it.
    SigBus,
    /// Pages that tell of the first write to them.
    WriteProtect,
    /// Write protection of pages that are absent.
    WriteProtectUnpopulated,
    /// First writes are noted by the kernel, without a fault.
    WriteProtectAsync,
    /// What was written is told and protected again in one step.
    PagemapScan,
    /// Pages that raise SIGBUS until they are filled.
    Poison,
    /// Pages that change their address.
    Move,
    /// Faults on pages of shared memory that are there and not mapped.
    MinorShmem,
    /// Write protection of pages of shared memory.
    WriteProtectShmem,
}

impl Feature {
    /// Every feature there is.
    pub const ALL: [Self; 11] = [
        Self::Missing,
        Self::UserModeOnly,
        Self::SigBus,
        Self::WriteProtect,
        Self::WriteProtectUnpopulated,
        Self::WriteProtectAsync,
        Self::PagemapScan,
        Self::Poison,
        Self::Move,
        Self::MinorShmem,
        Self::WriteProtectShmem,
    ];

    /// The kernel's bit, of those that userfaultfd itself has bits for.
    const fn bit(self) -> Option<u64> {
        Some(match self {
            Self::SigBus => abi::UFFD_FEATURE_SIGBUS,
            Self::WriteProtect => abi::UFFD_FEATURE_PAGEFAULT_FLAG_WP,
            Self::WriteProtectUnpopulated => abi::UFFD_FEATURE_WP_UNPOPULATED,
            Self::WriteProtectAsync => abi::UFFD_FEATURE_WP_ASYNC,
            Self::Poison => abi::UFFD_FEATURE_POISON,
            Self::Move => abi::UFFD_FEATURE_MOVE,
            Self::MinorShmem => abi::UFFD_FEATURE_MINOR_SHMEM,
            Self::WriteProtectShmem => abi::UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
            Self::Missing | Self::UserModeOnly | Self::PagemapScan => return None,
        })
    }

    /// The first Linux that has it.
    pub const fn since(self) -> &'static str {
        match self {
            Self::Missing => "4.3",
            Self::UserModeOnly => "5.11",
            Self::SigBus => "4.14",
            Self::WriteProtect => "5.7",
            Self::WriteProtectUnpopulated => "6.4",
            Self::WriteProtectAsync | Self::PagemapScan => "6.7",
            Self::Poison => "6.6",
            Self::Move => "6.8",
            Self::MinorShmem => "5.14",
            Self::WriteProtectShmem => "5.19",
        }
    }

    /// What it is for.
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Missing => "userfaultfd: windows whose pages come when they are touched",
            Self::UserModeOnly => "userfaultfd without privileges",
            Self::SigBus => "faults served in the thread that made them",
            Self::WriteProtect => "pages that tell of the first write to them",
            Self::WriteProtectUnpopulated => "write protection of pages that are absent",
            Self::WriteProtectAsync => "first writes noted without a fault",
            Self::PagemapScan => "written pages told and protected again in one step",
            Self::Poison => "pages that raise SIGBUS until they are filled",
            Self::Move => "pages taken away as a whole, whoever writes them",
            Self::MinorShmem => "pages of shared memory mapped when they are touched",
            Self::WriteProtectShmem => {
                "pages of shared memory that tell of the first write to them"
            }
        }
    }

    /// What is done without it, or what to do about it.
    pub const fn instead(self) -> &'static str {
        match self {
            Self::Missing => {
                "there are no windows: a kernel with CONFIG_USERFAULTFD, in a container a seccomp \
                 profile that allows userfaultfd (Docker's does not), else copy explicitly"
            }
            Self::UserModeOnly => {
                "without privileges it needs `sysctl vm.unprivileged_userfaultfd=1`"
            }
            Self::SigBus => "use Service::Served, whose faults take 5 to 10 times as long",
            Self::WriteProtect => "which pages were written is not known: compare all of them",
            Self::WriteProtectUnpopulated => "pages are protected once they are there",
            Self::WriteProtectAsync => "each first write takes a fault, some 4 us instead of 0.8",
            Self::PagemapScan => {
                "each first write takes a fault, some 4 us instead of 0.8; a process that gave up \
                 privileges may not open /proc/self/pagemap before prctl(PR_SET_DUMPABLE, 1)"
            }
            Self::Poison => "pages are replaced by a pattern, one by one, and raise no signal",
            Self::Move => "write-protect the pages, copy them, then drop them",
            Self::MinorShmem => "pages are copied in, not mapped",
            Self::WriteProtectShmem => "which pages of an alias were written is not known",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (Linux {}); {}", self.purpose(), self.since(), self.instead())
    }
}

/// What this kernel has, for this process. Its text names what is lacking, a line each.
///
/// ```
/// use pontoon_uffd::{Feature, Features};
///
/// let features = Features::probe();
/// for feature in features.lacking() {
///     println!("without {feature}");
/// }
/// // What happens on an older kernel can be tried on this one.
/// assert!(!features.without(Feature::Poison).has(Feature::Poison));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    bits: u16,
    /// The kernel's own bits.
    kernel: u64,
    refusal: Option<SystemError>,
}

impl Features {
    /// Asks the kernel.
    pub fn probe() -> Self {
        let mut features = Self { bits: 0, kernel: 0, refusal: None };
        let (opened, user_only) = match Descriptor::open(0, true) {
            // Kernels before 5.11 do not know the flag.
            Err(Errno::INVAL) => (Descriptor::open(0, false), false),
            other => (other, true),
        };
        match opened {
            Ok((_, bits)) => {
                features.kernel = bits;
                features.add(Feature::Missing);
                if user_only {
                    features.add(Feature::UserModeOnly);
                }
                let has = |it: &Feature| it.bit().is_some_and(|bit| bits & bit != 0);
                Feature::ALL.into_iter().filter(has).for_each(|it| features.add(it));
            }
            Err(errno) => features.refusal = Some(system("userfaultfd")(errno)),
        }
        if scans() {
            features.add(Feature::PagemapScan);
        }
        features
    }

    /// Whether the kernel has `feature`.
    pub const fn has(&self, feature: Feature) -> bool {
        self.bits & (1 << feature as u8) != 0
    }

    /// The same without `feature`, and without what cannot be had without it: nobody will ask the
    /// kernel for it. So an older kernel can be tried on a newer one.
    #[must_use]
    pub const fn without(&self, feature: Feature) -> Self {
        let gone = match feature {
            Feature::Missing => u16::MAX,
            Feature::WriteProtect => {
                1 << feature as u8
                    | 1 << Feature::WriteProtectUnpopulated as u8
                    | 1 << Feature::WriteProtectAsync as u8
                    | 1 << Feature::WriteProtectShmem as u8
            }
            // The kernel counts the one as part of the other.
            Feature::WriteProtectUnpopulated => {
                1 << feature as u8 | 1 << Feature::WriteProtectAsync as u8
            }
            other => 1 << other as u8,
        };
        Self { bits: self.bits & !gone, ..*self }
    }

    /// What it lacks.
    pub fn lacking(&self) -> impl Iterator<Item = Feature> {
        let this = *self;
        Feature::ALL.into_iter().filter(move |it| !this.has(*it))
    }

    /// Why there is no userfaultfd at all, if that is so.
    pub const fn refusal(&self) -> Option<SystemError> {
        self.refusal
    }

    /// The kernel's bits of those of `wanted` that there are.
    pub(crate) fn agreed(&self, wanted: &[Feature]) -> u64 {
        let bits = wanted.iter().filter(|it| self.has(**it)).filter_map(|it| it.bit());
        bits.fold(0, |all, bit| all | bit)
    }

    /// The bit for faults told with their address, where the kernel has it: it has no other use.
    pub(crate) fn exact_address(&self) -> u64 {
        self.kernel & abi::UFFD_FEATURE_EXACT_ADDRESS
    }

    fn add(&mut self, feature: Feature) {
        self.bits |= 1 << feature as u8;
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(refusal) = self.refusal {
            return write!(f, "{refusal}: {}", Feature::Missing.instead());
        }
        let mut lacking = self.lacking().peekable();
        if lacking.peek().is_none() {
            return f.write_str("all that userfaultfd can be used for here");
        }
        lacking.try_for_each(|it| writeln!(f, "lacks {it}"))
    }
}

/// Whether the kernel knows `PAGEMAP_SCAN`, and this process may use it.
fn scans() -> bool {
    let nothing = &mut abi::ScanArgument::default();
    pagemap().is_ok_and(|file| descriptor::scan(file.as_fd(), nothing, &mut []).is_ok())
}

/// The page map of this process.
pub(crate) fn pagemap() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::{Feature, Features};
    use pontoon_signal::SystemError;

    #[test]
    fn what_is_taken_away_takes_what_rests_on_it() {
        let all = Features { bits: 0x7ff, kernel: 0, refusal: None };
        assert_eq!(all.lacking().count(), 0);
        for feature in Feature::ALL {
            let less = all.without(feature);
            assert!(all.has(feature) && !less.has(feature), "{feature}");
            assert!(less.to_string().contains(feature.since()), "{less}");
        }
        assert!(!all.without(Feature::WriteProtectUnpopulated).has(Feature::WriteProtectAsync));
        assert_eq!(all.without(Feature::Missing).lacking().count(), Feature::ALL.len());
        assert!(all.without(Feature::Move).has(Feature::Poison));
    }

    #[test]
    fn a_refusal_says_what_was_refused_and_what_to_do() {
        let refusal = SystemError { call: "userfaultfd", code: 1 };
        let text = Features { bits: 0, kernel: 0, refusal: Some(refusal) }.to_string();
        assert!(text.contains("userfaultfd") && text.contains("seccomp"), "{text}");
    }
}
