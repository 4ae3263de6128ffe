//! libucp, opened at run time.
#![allow(unsafe_code)] // Loading a library runs its code, and its functions are C.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{environment, ffi::Api, signals::Dispositions};

/// The variable that names another library to open than the system's.
const LIBRARY: &str = "PONTOON_UCX_LIBRARY";
/// The name by which every release since 1.0 is found.
const DEFAULT: &str = "libucp.so.0";

/// libucp as it was opened. It stays loaded until the process ends: UCX leaves threads, thread
/// keys and callbacks behind that an unloaded library would take from under them.
///
/// Invariant U1: the functions of `api` may be called for as long as the process runs.
#[derive(Debug)]
pub struct Library {
    pub(crate) api: Api,
    version: Version,
    path: PathBuf,
    handlers_put_back: usize,
}

/// A version of UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes with what programs must be rewritten for.
    pub major: u32,
    /// Changes with what programs may use more of.
    pub minor: u32,
    /// Changes with repairs.
    pub release: u32,
}

impl Version {
    /// The oldest that has all that is used.
    pub const OLDEST: Self = Self { major: 1, minor: 13, release: 0 };
}

impl Library {
    /// Opens the library that `PONTOON_UCX_LIBRARY` names, or else the system's, once in a process.
    ///
    /// UCX's signal handlers and memory hooks stay off whatever the environment says. A UCX that
    /// something else loaded before into this process is used as that left it.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; trying again later is fine.
    ///
    /// # Blocks
    ///
    /// As long as the dynamic linker takes.
    pub fn open() -> Result<&'static Self, OpenError> {
        static OPEN: Mutex<Option<&'static Library>> = Mutex::new(None);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = *open {
            return Ok(library);
        }
        let path = env::var_os(LIBRARY).filter(|path| !path.is_empty());
        let path = path.map_or_else(|| PathBuf::from(DEFAULT), PathBuf::from);
        let library: &'static Self = Box::leak(Box::new(Self::load(&path)?));
        *open = Some(library);
        Ok(library)
    }

    fn load(path: &Path) -> Result<Self, OpenError> {
        let before = Dispositions::now();
        // SAFETY: the constructors of libucp and of what it needs expect nothing of the program
        // but that nobody writes the environment meanwhile, as `environment` says.
        let loaded = environment::for_the_load(|| unsafe { libloading::Library::new(path) });
        let handlers_put_back = before.put_back();
        let loaded = loaded.map_err(|error| OpenError::LibraryAbsent {
            path: path.to_owned(),
            linker: error.to_string(),
        })?;
        // SAFETY: the version is looked at before any other function is called.
        let api = unsafe { Api::find(&loaded) };
        let api = api.map_err(|symbol| OpenError::NotUcp { path: path.to_owned(), symbol })?;
        // U1, from here on.
        std::mem::forget(loaded);
        let version = version(&api);
        if version < Version::OLDEST || version.major != Version::OLDEST.major {
            return Err(OpenError::WrongVersion { path: path.to_owned(), found: version });
        }
        Ok(Self { api, version, path: path.to_owned(), handlers_put_back })
    }

    /// Which version it is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How many signal handlers it took although it was told not to, and was made to give back.
    /// None, of any version there is; who serves page faults may want to know.
    pub fn handlers_put_back(&self) -> usize {
        self.handlers_put_back
    }

    /// As which file or name it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn version(api: &Api) -> Version {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: the three places are written, and nothing else.
    unsafe { (api.ucp_get_version)(&raw mut major, &raw mut minor, &raw mut release) };
    Version { major, minor, release }
}

/// Why UCX is not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such library on this machine.
    LibraryAbsent {
        /// What was looked for.
        path: PathBuf,
        /// What the dynamic linker said.
        linker: String,
    },
    /// It is a library, but not libucp.
    NotUcp {
        /// What was opened.
        path: PathBuf,
        /// The function it does not have.
        symbol: &'static str,
    },
    /// It is older than all that works, or of a later kind.
    WrongVersion {
        /// What was opened.
        path: PathBuf,
        /// Its version.
        found: Version,
    },
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LibraryAbsent { path, linker } => write!(
                f,
                "UCX is absent: {} could not be opened ({linker}); install the package libucx0 \
                 (Debian, Ubuntu) or ucx, or name the library in {LIBRARY}",
                path.display()
            ),
            Self::NotUcp { path, symbol } => write!(
                f,
                "{} is not libucp, it has no {symbol}; {LIBRARY} must name a libucp.so.0",
                path.display()
            ),
            Self::WrongVersion { path, found } => write!(
                f,
                "{} is UCX {found}; pontoon works with {} and later of 1.x: install another \
                 libucx0, or name one in {LIBRARY}",
                path.display(),
                Version::OLDEST
            ),
        }
    }
}

impl core::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::{Library, OpenError, Version};
    use std::path::Path;

    #[test]
    fn an_absent_library_names_the_package() {
        let refused = Library::load(Path::new("libucp-that-is-nowhere.so.0")).unwrap_err();
        assert!(matches!(refused, OpenError::LibraryAbsent { .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("libucx0") && text.contains("libucp-that-is-nowhere"), "{text}");
    }

    #[test]
    fn another_library_is_not_taken_for_it() {
        let refused = Library::load(Path::new("libm.so.6")).unwrap_err();
        let OpenError::NotUcp { symbol, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*symbol, "ucp_get_version");
    }

    #[test]
    fn a_wrong_version_names_both() {
        let found = Version { major: 1, minor: 9, release: 3 };
        assert!(found < Version::OLDEST);
        let text = OpenError::WrongVersion { path: "x".into(), found }.to_string();
        assert!(text.contains("1.9.3") && text.contains("1.13.0"), "{text}");
    }
}
