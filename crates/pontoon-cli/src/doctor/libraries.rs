//! Libraries of the system. That of UCX is opened as a job would do it; the others are looked for where
//! the loader would look, and never opened: a file that is found may still not load.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pontoon::ucx;

use super::source::names;
use super::{Finding, Group, Subject};

/// A library and where it may lie beside the loader's folders.
struct Library {
    subject: Subject,
    /// The file name, or its part before a version: `libnvrtc.so` stands for `libnvrtc.so.13` too.
    file: &'static str,
    elsewhere: &'static [&'static str],
}

const fn library(
    name: &'static str,
    file: &'static str,
    used_for: &'static str,
    how_to_get: &'static str,
) -> Library {
    let subject = Subject { group: Group::Libraries, name, used_for, how_to_get };
    Library { subject, file, elsewhere: &[] }
}

pub(super) const UCX: Subject = Subject {
    group: Group::Libraries,
    name: "libucp",
    used_for: "links between hosts, by UCX",
    how_to_get: "apt install libucx0; one elsewhere is named in PONTOON_UCX_LIBRARY",
};

const LIBRARIES: [Library; 5] = [
    library(
        "libibverbs",
        "libibverbs.so.1",
        "memory of other hosts, by RDMA without UCX (not in this version)",
        "apt install libibverbs1 ibverbs-providers",
    ),
    library(
        "librdmacm",
        "librdmacm.so.1",
        "connecting to other hosts for RDMA without UCX (not in this version)",
        "apt install librdmacm1",
    ),
    library(
        "libcuda",
        "libcuda.so.1",
        "NVIDIA GPUs as devices (not in this version)",
        "NVIDIA's driver: www.nvidia.com/drivers, or the distribution's package of it",
    ),
    Library {
        elsewhere: &["/usr/local/cuda/lib64", "/usr/local/cuda/lib"],
        ..library(
            "libnvrtc",
            "libnvrtc.so",
            "compiling CUDA kernels as they are needed (not in this version)",
            "pip install nvidia-cuda-nvrtc, or the CUDA toolkit; then its folder in \
             LD_LIBRARY_PATH",
        )
    },
    library(
        "libopencl",
        "libOpenCL.so.1",
        "OpenCL devices (not in this version)",
        "apt install ocl-icd-libopencl1",
    ),
];

const OPENCL_DRIVERS: Subject = Subject {
    group: Group::Libraries,
    name: "opencl-drivers",
    used_for: "the devices behind OpenCL; PoCL makes one of the processor (not in this version)",
    how_to_get: "apt install pocl-opencl-icd",
};

/// The list of the loader's cache comes at once, or something is wrong with it.
const LIST_TIMEOUT: Duration = Duration::from_millis(800);

pub(super) fn probe() -> Vec<Finding> {
    let known = known_libraries();
    let mut findings = vec![ucx(ucx::Library::open())];
    findings.extend(LIBRARIES.iter().map(|library| library.judge(&known, Path::exists)));
    findings.push(opencl_drivers());
    findings
}

/// Judges by what opening it gave.
fn ucx(opened: Result<&ucx::Library, ucx::OpenError>) -> Finding {
    match opened {
        Ok(library) => UCX.ok(format!("UCX {}, {}", library.version(), library.path().display())),
        Err(ucx::OpenError::LibraryAbsent { .. }) => UCX.missing(),
        // There, and of no use.
        Err(error) => UCX.limited(error.to_string()),
    }
}

impl Library {
    /// Judges by the files that the loader knows, in its order, then by those it does not look at.
    fn judge(&self, known: &[PathBuf], exists: impl Fn(&Path) -> bool) -> Finding {
        if let Some(path) = known.iter().find(|path| self.is(path) && exists(path)) {
            return self.subject.ok(path.display().to_string());
        }
        let stray = self.elsewhere.iter().map(|folder| Path::new(folder).join(self.file));
        match stray.into_iter().find(|path| exists(path)) {
            Some(path) => {
                self.subject.limited(format!("{}, where the loader does not look", path.display()))
            }
            None => self.subject.missing(),
        }
    }

    fn is(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(self.file).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Files in the places that the loader searches, in its order.
fn known_libraries() -> Vec<PathBuf> {
    let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    // An empty entry would be the working folder, which holds no system library.
    let mut known: Vec<PathBuf> = env::split_paths(&path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .flat_map(|folder| files(&folder))
        .collect();
    known.extend(cached(&cache_list().unwrap_or_default(), env::consts::ARCH));
    let multiarch = format!("{}-linux-gnu", env::consts::ARCH);
    for root in ["/", "/usr"] {
        for folder in [Path::new("lib").join(&multiarch), "lib64".into(), "lib".into()] {
            known.extend(files(&Path::new(root).join(folder)));
        }
    }
    known
}

fn files(folder: &Path) -> Vec<PathBuf> {
    names(folder).iter().map(|name| folder.join(name)).collect()
}

/// What `ldconfig -p` prints; `None` if there is none or it does not answer in time.
fn cache_list() -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    // Where no thread is to be had, the folders alone have to do.
    let asking = thread::Builder::new().spawn(move || {
        let list =
            ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"].into_iter().find_map(|program| {
                Command::new(program)
                    .arg("-p")
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .output()
                    .ok()
            });
        // The receiver may have stopped waiting.
        let _ = sender.send(list);
    });
    asking.ok()?;
    let output = receiver.recv_timeout(LIST_TIMEOUT).ok()??;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The paths in the loader's cache that are built for `architecture`.
fn cached(list: &str, architecture: &str) -> Vec<PathBuf> {
    let mark = match architecture {
        "x86_64" => "x86-64",
        "aarch64" => "AArch64",
        _ => "",
    };
    list.lines()
        .filter_map(|line| {
            let (about, path) = line.split_once(" => ")?;
            let kind = about.split_once('(')?.1;
            kind.contains(mark).then(|| PathBuf::from(path.trim()))
        })
        .collect()
}

fn opencl_drivers() -> Finding {
    let folder = env::var_os("OCL_ICD_VENDORS")
        .filter(|folder| !folder.is_empty())
        .map_or_else(|| PathBuf::from("/etc/OpenCL/vendors"), PathBuf::from);
    let drivers: Vec<String> = names(&folder)
        .iter()
        .filter_map(|name| Some(name.strip_suffix(".icd")?.to_owned()))
        .collect();
    if drivers.is_empty() {
        return OPENCL_DRIVERS.missing();
    }
    OPENCL_DRIVERS.ok(format!("{} in {}", drivers.join(", "), folder.display()))
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    const LIST: &str = "4 libs found in cache `/etc/ld.so.cache'\n\
        \tlibucp.so.0 (libc6) => /lib/i386-linux-gnu/libucp.so.0\n\
        \tlibucp.so.0 (libc6,x86-64) => /lib/x86_64-linux-gnu/libucp.so.0\n\
        \tlibcuda.so.1 (libc6,AArch64) => /usr/lib/aarch64-linux-gnu/libcuda.so.1\n\
        \tlibnvrtc-builtins.so.13.0 (libc6,x86-64) => /opt/cuda/libnvrtc-builtins.so.13.0\n\
        \tlibnvrtc.so.13 (libc6,x86-64, OS ABI: Linux 3.2.0) => /opt/cuda/libnvrtc.so.13\n\
        Cache generated by: ldconfig (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36\n";

    fn judged(name: &str, known: &[PathBuf], there: &[&str]) -> Finding {
        let library =
            LIBRARIES.iter().find(|library| library.subject.name == name).expect("a library");
        library.judge(known, |path| there.iter().any(|there| Path::new(there) == path))
    }

    #[test]
    fn the_cache_is_read_for_one_architecture() {
        let x86 = cached(LIST, "x86_64");
        assert_eq!(x86.len(), 3);
        assert_eq!(x86[0], Path::new("/lib/x86_64-linux-gnu/libucp.so.0"));
        assert_eq!(cached(LIST, "aarch64"), [Path::new("/usr/lib/aarch64-linux-gnu/libcuda.so.1")]);
        assert_eq!(cached(LIST, "riscv64").len(), 5);
        assert!(cached("=> (\n => \nx => y", "x86_64").is_empty());
    }

    #[test]
    fn a_library_is_found_by_its_whole_name_and_only_if_it_exists() {
        let known = cached(LIST, "x86_64");
        let nvrtc = judged("libnvrtc", &known, &["/opt/cuda/libnvrtc.so.13"]);
        assert_eq!(nvrtc.found.as_deref(), Some("/opt/cuda/libnvrtc.so.13"));
        let builtins = judged("libnvrtc", &known, &["/opt/cuda/libnvrtc-builtins.so.13.0"]);
        assert_eq!(builtins.state, State::Missing);
        assert_eq!(judged("libcuda", &known, &[]).state, State::Missing, "a broken link");
        let other = [PathBuf::from("/lib/libcuda.so.11")];
        assert_eq!(judged("libcuda", &other, &["/lib/libcuda.so.11"]).state, State::Missing);
    }

    #[test]
    fn the_loaders_order_decides() {
        let known = ["/first/libcuda.so.1", "/second/libcuda.so.1"].map(PathBuf::from);
        let found = judged("libcuda", &known, &["/second/libcuda.so.1", "/first/libcuda.so.1"]);
        assert_eq!(found.found.as_deref(), Some("/first/libcuda.so.1"));
        let found = judged("libcuda", &known, &["/second/libcuda.so.1"]);
        assert_eq!(found.found.as_deref(), Some("/second/libcuda.so.1"));
    }

    #[test]
    fn a_library_out_of_the_loaders_sight_is_limited() {
        let found = judged("libnvrtc", &[], &["/usr/local/cuda/lib64/libnvrtc.so"]);
        assert_eq!(found.state, State::Limited);
    }

    #[test]
    fn the_c_library_of_this_process_is_among_the_known() {
        if cfg!(not(target_env = "gnu")) {
            println!("skipped: needs glibc, this is built for another libc");
            return;
        }
        let known = known_libraries();
        assert!(known.iter().any(|path| path.ends_with("libc.so.6")), "{} known", known.len());
    }
}
