//! Where a job's sockets and named files are: a folder of this user's alone.

use std::{
    env, fmt,
    fs::File,
    io::Write,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use pontoon_signal::{Identity, Rank, SystemError};
use rustix::{
    fs::{
        Access, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, access, flock, fstat,
        mkdirat, openat, stat, unlinkat,
    },
    io::Errno,
};

use crate::{FolderError, error::system};

/// Where jobs have their folders: `$XDG_RUNTIME_DIR/pontoon`, or `/dev/shm/pontoon-UID` where there is
/// none that is this user's and can be written: batch systems, `su` and containers hand the variable on
/// without the folder.
pub fn runtime_base() -> PathBuf {
    base_of(runtime_dir()).0
}

/// Why `$XDG_RUNTIME_DIR` is not where jobs have their folders, if it is set.
pub fn passed_over() -> Option<PassedOver> {
    base_of(runtime_dir()).1
}

fn runtime_dir() -> Option<PathBuf> {
    env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

fn base_of(runtime: Option<PathBuf>) -> (PathBuf, Option<PassedOver>) {
    let uid = rustix::process::geteuid().as_raw();
    let fallback = || PathBuf::from(format!("/dev/shm/pontoon-{uid}"));
    let Some(folder) = runtime else { return (fallback(), None) };
    match unusable(&folder, uid) {
        None => (folder.join("pontoon"), None),
        Some(why) => (fallback(), Some(PassedOver { folder, why })),
    }
}

/// Why `folder` is none for the sockets of user `uid`, if so.
fn unusable(folder: &Path, uid: u32) -> Option<Unusable> {
    if !folder.is_absolute() {
        return Some(Unusable::Relative);
    }
    let found = match stat(folder) {
        Ok(found) => found,
        Err(errno) => return Some(Unusable::Refused(errno)),
    };
    if !FileType::from_raw_mode(found.st_mode).is_dir() {
        return Some(Unusable::NoFolder);
    }
    if found.st_uid != uid {
        return Some(Unusable::OfUser(found.st_uid));
    }
    // Who can write to it can put another folder in the place of one there (D1).
    if found.st_mode & 0o022 != 0 {
        return Some(Unusable::Open(found.st_mode & 0o7777));
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK).err().map(Unusable::Refused)
}

/// That a folder named by `XDG_RUNTIME_DIR` is not used, and why. Its text is a sentence's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    folder: PathBuf,
    why: Unusable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusable {
    Relative,
    NoFolder,
    OfUser(u32),
    Open(u32),
    Refused(Errno),
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XDG_RUNTIME_DIR, {}, was passed over: ", self.folder.display())?;
        match self.why {
            Unusable::Relative => f.write_str("its path does not begin at /"),
            Unusable::NoFolder => f.write_str("it is no folder"),
            Unusable::OfUser(uid) => write!(f, "it is of user {uid}, not of this one"),
            Unusable::Open(mode) => {
                write!(f, "others may write to it (mode {mode:04o}, and should be 0700)")
            }
            Unusable::Refused(errno) => write!(f, "{errno}"),
        }
    }
}

/// How long a folder may be on its way out before somebody who wants it gives up.
const PATIENCE: Duration = Duration::from_secs(2);
const PRIVATE_FOLDER: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A job's folder, as one of its processes has it open. What that put there goes when this is
/// dropped, and the last to leave takes the folder along.
///
/// Invariant D1: the folder is of mode 0700 and this user's, so nobody else makes, swaps or removes
/// anything in it. D2: as long as this lives it holds the folder's lock, shared; who holds it alone
/// may take the folder away. The kernel gives the lock back when the process ends, however it does.
///
/// ```text
///  BASE/JOB/rank-N.owner     pid and start time of the process that is rank N
///           rank-N.socket    where it hands its segment over
///           rank-N.segment   its segment, if that has a name
/// ```
#[derive(Debug)]
pub struct JobFolder {
    base: OwnedFd,
    job: String,
    path: PathBuf,
    folder: OwnedFd,
    /// What this process put there.
    ours: Mutex<Vec<String>>,
}

impl JobFolder {
    /// Opens the folder of `job` below `base`, and makes both if they are not there.
    ///
    /// # Errors
    ///
    /// [`FolderError`]; what is there and is not this user's alone is refused, and so is a link.
    ///
    /// # Blocks
    ///
    /// Up to two seconds, while somebody removes the folder of an earlier job of that name.
    pub fn join(base: &Path, job: &str) -> Result<Self, FolderError> {
        if !is_name(job) {
            return Err(FolderError::Name { name: job.into() });
        }
        let base_fd = open_private(CWD, base, base)?;
        let path = base.join(job);
        let start = Instant::now();
        loop {
            // Between making, opening and locking it somebody may take it away: nobody is in it yet.
            if let Some(folder) = open_if_kept(&base_fd, Path::new(job), &path)? {
                match flock(&folder, FlockOperation::NonBlockingLockShared) {
                    Ok(()) if is_there(&folder) => {
                        let (job, ours) = (job.into(), Mutex::default());
                        return Ok(Self { base: base_fd, job, path, folder, ours });
                    }
                    Ok(()) | Err(Errno::WOULDBLOCK) => {}
                    Err(errno) => return Err(failed(&path, "flock")(errno)),
                }
            }
            if start.elapsed() > PATIENCE {
                return Err(FolderError::Busy { path });
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that the process of `whose` is that rank, for [`sweep`](crate::sweep).
    ///
    /// # Errors
    ///
    /// [`FolderError::System`].
    pub fn own(&self, whose: &Identity) -> Result<(), FolderError> {
        let name = name(whose.rank, OWNER);
        let file = self.replace(&name)?;
        let text = owner_text(whose.pid, whose.start_time);
        File::from(file).write_all(text.as_bytes()).map_err(|error| {
            let error = SystemError { call: "write", code: error.raw_os_error().unwrap_or(0) };
            FolderError::System { path: self.path.join(&name), error }
        })
    }

    /// A new empty file for the segment of `rank`, which outlives its process: for
    /// [`Segment::create_on`](pontoon_signal::Segment::create_on).
    ///
    /// # Errors
    ///
    /// [`FolderError::System`].
    pub fn create_segment(&self, rank: Rank) -> Result<OwnedFd, FolderError> {
        self.replace(&name(rank, SEGMENT))
    }

    /// The segment's file of `rank`, for reading: for
    /// [`Segment::view`](pontoon_signal::Segment::view).
    ///
    /// # Errors
    ///
    /// [`FolderError::System`].
    pub fn view_segment(&self, rank: Rank) -> Result<OwnedFd, FolderError> {
        let name = name(rank, SEGMENT);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.folder, &name, flags, Mode::empty())
            .map_err(failed(&self.path.join(&name), "openat"))
    }

    /// Where the file of `rank` is handed over.
    pub fn socket(&self, rank: Rank) -> PathBuf {
        self.path.join(name(rank, SOCKET))
    }

    /// Removes what is left of a socket of `rank`, and notes that this process makes the next.
    pub(crate) fn make_way(&self, rank: Rank) -> Result<(), FolderError> {
        self.clear(&name(rank, SOCKET))
    }

    /// Makes the socket of `rank` this user's alone, as a file.
    pub(crate) fn close_to_others(&self, rank: Rank) -> Result<(), FolderError> {
        let name = name(rank, SOCKET);
        rustix::fs::chmodat(&self.folder, &name, PRIVATE_FILE, AtFlags::empty())
            .map_err(failed(&self.path.join(&name), "chmodat"))
    }

    /// A new file of that name, in place of the one a former life left.
    fn replace(&self, name: &str) -> Result<OwnedFd, FolderError> {
        self.clear(name)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path.join(name);
        let file = openat(&self.folder, name, flags, PRIVATE_FILE);
        let file = file.map_err(failed(&path, "openat"))?;
        // Whatever the process's mask is.
        rustix::fs::fchmod(&file, PRIVATE_FILE).map_err(failed(&path, "fchmod"))?;
        Ok(file)
    }

    fn clear(&self, name: &str) -> Result<(), FolderError> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(&self.path.join(name), "unlinkat")(errno)),
        }
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        if !ours.iter().any(|known| known == name) {
            ours.push(name.into());
        }
        Ok(())
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        for name in self.ours.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = unlinkat(&self.folder, name.as_str(), AtFlags::empty());
        }
        // Whoever is still there, or is coming, has the lock too (D2).
        if flock(&self.folder, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_there(&self.folder)
        {
            let _ = unlinkat(&self.base, self.job.as_str(), AtFlags::REMOVEDIR);
        }
    }
}

pub(crate) const OWNER: &str = "owner";
const SOCKET: &str = "socket";
const SEGMENT: &str = "segment";
pub(crate) const OWNER_HEAD: &str = "pontoon owner 1";

/// What the file of an owner says.
pub(crate) fn owner_text(pid: u32, started: u64) -> String {
    format!("{OWNER_HEAD}\npid {pid}\nstarted {started}\n")
}

fn name(rank: Rank, what: &str) -> String {
    format!("rank-{rank}.{what}")
}

/// Whether a job can be called so: its name is a file's, and part of a socket's path.
pub(crate) fn is_name(job: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&job.len()) && job.bytes().all(usual) && !job.starts_with('.')
}

/// What a file of a job's folder is called after its rank; `None` of a name that none has.
pub(crate) fn kind_of(name: &str) -> Option<&'static str> {
    let (rank, kind) = name.strip_prefix("rank-")?.split_once('.')?;
    let digits = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
    [OWNER, SOCKET, SEGMENT].into_iter().find(|known| digits && *known == kind)
}

/// Opens a folder of this user's alone, and makes it if there is none.
fn open_private(at: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, FolderError> {
    match mkdirat(&at, name, PRIVATE_FOLDER) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(path, "mkdirat")(errno)),
    }
    open_folder(at, name, path)
}

/// As [`open_private`]; `None` if somebody took it away as soon as it was made.
fn open_if_kept(at: impl AsFd, name: &Path, path: &Path) -> Result<Option<OwnedFd>, FolderError> {
    match open_private(at, name, path) {
        Err(FolderError::System { error, .. }) if error.code == Errno::NOENT.raw_os_error() => {
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Opens a folder, and refuses one that is not this user's alone, and what is none.
pub(crate) fn open_folder(at: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, FolderError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(at, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => FolderError::NotAFolder { path: path.into() },
        errno => failed(path, "openat")(errno),
    })?;
    let stat = fstat(&folder).map_err(failed(path, "fstat"))?;
    let mode = stat.st_mode & 0o7777;
    if stat.st_uid != rustix::process::geteuid().as_raw() || mode & 0o077 != 0 {
        return Err(FolderError::NotOurs { path: path.into(), found: (stat.st_uid, mode) });
    }
    Ok(folder)
}

/// Whether an open folder still has its name. Of one that is locked alone it stays so: then the name
/// is this folder's, and not that of one made in its place.
pub(crate) fn is_there(folder: &OwnedFd) -> bool {
    fstat(folder).is_ok_and(|stat| stat.st_nlink > 0)
}

pub(crate) fn failed(path: &Path, call: &'static str) -> impl Fn(Errno) -> FolderError {
    let path = path.to_path_buf();
    move |errno| FolderError::System { path: path.clone(), error: system(call)(errno) }
}

#[cfg(test)]
mod tests {
    use super::{PassedOver, base_of, is_name, is_there, kind_of, open_private};
    use rustix::fs::CWD;
    use std::{os::unix::fs::PermissionsExt, path::PathBuf};

    /// A variable that outlived its folder, or is another user's, keeps no rank from its job.
    #[test]
    fn a_runtime_folder_that_cannot_be_used_is_passed_over() {
        let uid = rustix::process::geteuid().as_raw();
        let fallback = std::path::PathBuf::from(format!("/dev/shm/pontoon-{uid}"));
        let ours = std::env::temp_dir().join(format!("pontoon-runtime-{}", std::process::id()));
        let usable = || base_of(Some(ours.clone()));
        let passed = |(base, why): (PathBuf, Option<PassedOver>), part: &str| {
            assert_eq!(base, fallback, "{part}");
            let why = why.expect(part).to_string();
            assert!(why.starts_with("XDG_RUNTIME_DIR, ") && why.contains(part), "{why}");
        };
        assert_eq!(base_of(None), (fallback.clone(), None));
        passed(usable(), "No such file");
        std::fs::create_dir(&ours).unwrap();
        let of_mode = |mode| {
            std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(mode)).unwrap();
            usable()
        };
        let (private, open) = (of_mode(0o700), of_mode(0o770));
        std::fs::remove_dir(&ours).unwrap();
        assert_eq!(private, (ours.join("pontoon"), None));
        passed(open, "others may write to it (mode 0770, and should be 0700)");
        std::fs::write(&ours, "no folder").unwrap();
        let found = usable();
        std::fs::remove_file(&ours).unwrap();
        passed(found, "it is no folder");
        passed(base_of(Some("run".into())), "does not begin at /");
        passed(base_of(Some("/proc/1/fdinfo/none".into())), "os error");
        let others = super::unusable(std::path::Path::new("/proc"), uid + 1);
        assert_eq!(others, Some(super::Unusable::OfUser(0)));
    }

    #[test]
    fn a_name_is_a_file_s_and_stays_in_its_folder() {
        for name in ["a", "job-7", "A_b.c", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a b", "\0", "ü", &"x".repeat(65)] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    /// What keeps a sweep, or a job that ends, from removing a folder that was made in the place of
    /// the one it has locked.
    #[test]
    fn a_folder_that_was_taken_away_is_not_there_though_another_has_its_name() {
        let path = std::env::temp_dir().join(format!("pontoon-there-{}", std::process::id()));
        let open = || open_private(CWD, &path, &path).unwrap();
        let first = open();
        assert!(is_there(&first));
        std::fs::remove_dir(&path).unwrap();
        let second = open();
        assert!(!is_there(&first) && is_there(&second));
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn only_a_rank_s_files_are_known() {
        assert_eq!(kind_of("rank-0.owner"), Some("owner"));
        assert_eq!(kind_of("rank-12.segment"), Some("segment"));
        for name in
            ["rank-.owner", "rank-1", "rank-x.owner", "rank-1.owner.old", "notes", "rank-1."]
        {
            assert_eq!(kind_of(name), None, "{name}");
        }
    }
}
