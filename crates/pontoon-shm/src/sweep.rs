//! What crashed jobs leave behind, recognised and removed.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use pontoon_signal::{Life, ProcessId};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, openat, unlinkat},
    io::Errno,
};

use crate::{
    FolderError,
    folder::{OWNER, OWNER_HEAD, failed, is_name, is_there, kind_of, open_folder, owner_text},
};

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The jobs of which nobody is alive, and whose folders are gone.
    pub removed: Vec<String>,
    /// The jobs that somebody is in, or that another sweep is at.
    pub live: Vec<String>,
    /// What is left alone because it is not wholly known: not a job's folder, or one with something
    /// in it that pontoon does not put there.
    pub foreign: Vec<String>,
}

/// Removes the folders below `base` of jobs whose ranks are all dead. Two sweeps at once, or one
/// beside a job that starts, do each other no harm.
///
/// # Errors
///
/// [`FolderError`] if `base` cannot be read, or is not this user's alone. One that is not there has
/// nothing in it.
pub fn sweep(base: &Path) -> Result<Swept, FolderError> {
    let mut swept = Swept::default();
    let folder = match open_folder(CWD, base, base) {
        Err(FolderError::System { error, .. }) if error.code == Errno::NOENT.raw_os_error() => {
            return Ok(swept);
        }
        opened => opened?,
    };
    for name in names(&folder).map_err(failed(base, "getdents"))? {
        let list = match fate(&folder, base, &name) {
            Fate::Removed => &mut swept.removed,
            Fate::Live => &mut swept.live,
            Fate::Foreign => &mut swept.foreign,
            Fate::Gone => continue,
        };
        list.push(OsStr::from_bytes(&name).to_string_lossy().into_owned());
    }
    Ok(swept)
}

enum Fate {
    Removed,
    Live,
    Foreign,
    /// Another sweep was faster, or its job ended in order.
    Gone,
}

/// Removes the job `name` if nobody is alive in it.
fn fate(base: &OwnedFd, path: &Path, name: &[u8]) -> Fate {
    let Some(job) = std::str::from_utf8(name).ok().filter(|name| is_name(name)) else {
        return Fate::Foreign;
    };
    let folder = match open_folder(base, Path::new(job), &path.join(job)) {
        Ok(folder) => folder,
        Err(FolderError::System { error, .. }) if error.code == Errno::NOENT.raw_os_error() => {
            return Fate::Gone;
        }
        Err(_) => return Fate::Foreign,
    };
    // Its processes hold the lock from before they put anything there (D2 of the folder).
    if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Fate::Live;
    }
    if !is_there(&folder) {
        return Fate::Gone;
    }
    let Ok(files) = names(&folder) else { return Fate::Foreign };
    let kinds: Option<Vec<_>> = files
        .iter()
        .map(|name| std::str::from_utf8(name).ok().and_then(|name| Some((name, kind_of(name)?))))
        .collect();
    let Some(kinds) = kinds else { return Fate::Foreign };
    for (file, _) in kinds.iter().filter(|(_, kind)| *kind == OWNER) {
        match owner(&folder, file) {
            // One whose lock was lost, for it is on a file system without: its process tells.
            // One that cannot be looked at now is left to the next sweep.
            Some(process) if process.look() != Life::Gone => return Fate::Live,
            Some(_) => {}
            None => return Fate::Foreign,
        }
    }
    // All of it is known, and nobody is alive. Whoever joins meanwhile waits for the lock, and then
    // finds that the folder is gone.
    for (file, _) in kinds {
        let _ = unlinkat(&folder, file, AtFlags::empty());
    }
    match unlinkat(base, job, AtFlags::REMOVEDIR) {
        Ok(()) => {
            tracing::info!(target: "pontoon::folder", job, "removed what a dead job left");
            Fate::Removed
        }
        Err(_) => Fate::Foreign,
    }
}

fn names(folder: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Pid and start time in an owner's file; `None` if that is not what it is.
fn owner(folder: &OwnedFd, name: &str) -> Option<ProcessId> {
    // Opening a pipe of that name must not wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty()).ok()?;
    let mut bytes = [0; 256];
    let len = rustix::io::read(&file, &mut bytes).ok()?;
    parse(std::str::from_utf8(&bytes[..len]).ok()?)
}

pub(crate) fn parse(text: &str) -> Option<ProcessId> {
    // A process that was killed between making its file and writing it is dead, for it held the
    // lock; it is pid 0, which nobody is.
    if text.is_empty() {
        return Some(ProcessId { pid: 0, start_time: 0 });
    }
    let mut lines = text.lines();
    (lines.next()? == OWNER_HEAD).then_some(())?;
    let pid = lines.next()?.strip_prefix("pid ")?.parse().ok()?;
    let start_time = lines.next()?.strip_prefix("started ")?.parse().ok()?;
    // No other bytes than its process wrote: of a number that was cut off, as by a full file system,
    // another one is left, whose process is not the one to look at.
    (owner_text(pid, start_time) == text).then_some(ProcessId { pid, start_time })
}

#[cfg(test)]
mod tests {
    use super::parse;
    use pontoon_signal::ProcessId;

    #[test]
    fn an_owner_is_known_or_foreign() {
        assert_eq!(
            parse("pontoon owner 1\npid 7\nstarted 99\n"),
            Some(ProcessId { pid: 7, start_time: 99 })
        );
        assert_eq!(parse(""), Some(ProcessId { pid: 0, start_time: 0 }));
        for text in [
            "pid 7\nstarted 99\n",
            "pontoon owner 2\npid 7\nstarted 99\n",
            "pontoon owner 1\npid 7\n",
            "pontoon owner 1\npid -7\nstarted 9\n",
            "pontoon owner 1\npid 7\nstarted 9\nand more\n",
            "pontoon owner 1\npid 7\nstarted 9",
            "pontoon owner 1\npid 7\nstarted 09\n",
            "pontoon owner 1\npid +7\nstarted 9\n",
            "pontoon owner 1\r\npid 7\nstarted 9\n",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
