//! What a server has, from one client to the next.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use pontoon::{hal::paging::PAGE, smc::Export};

/// Memory of a server: pages that are zero are not kept.
pub(super) struct Memory {
    bytes: usize,
    pages: BTreeMap<usize, Box<[u8]>>,
}

impl Memory {
    /// So many bytes, all zero.
    pub(super) fn zeroed(bytes: usize) -> Self {
        Self { bytes, pages: BTreeMap::new() }
    }

    /// The bytes of a file.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        // Opening a pipe would wait for somebody to write to it.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let (mut file, mut pages, mut bytes) = (File::open(path)?, BTreeMap::new(), 0);
        loop {
            let mut page = Vec::with_capacity(PAGE);
            let read = (&mut file).take(PAGE as u64).read_to_end(&mut page)?;
            page.resize(PAGE, 0);
            if !is_zero(&page) {
                pages.insert(bytes / PAGE, page.into());
            }
            bytes += read;
            if read < PAGE {
                return Ok(Self { bytes, pages });
            }
        }
    }

    /// How many bytes it has: the last page may have more.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many pages it has.
    pub(super) fn pages(&self) -> usize {
        self.bytes.div_ceil(PAGE)
    }

    /// Puts it into an export, which is all zero.
    pub(super) fn put(&self, export: &Export) {
        for (page, bytes) in &self.pages {
            export.write(page * PAGE, bytes);
        }
    }

    /// Takes over what was changed in an export that this was [put](Self::put) into. How many pages.
    pub(super) fn take(&mut self, export: &Export) -> usize {
        let mut changed = 0;
        for page in 0..self.pages() {
            // What was put there has changed once.
            let before = u64::from(self.pages.contains_key(&page));
            if export.version(page * PAGE) == Some(before) {
                continue;
            }
            let mut bytes = vec![0; PAGE];
            export.read(page * PAGE, &mut bytes);
            changed += 1;
            if is_zero(&bytes) {
                self.pages.remove(&page);
            } else {
                self.pages.insert(page, bytes.into());
            }
        }
        changed
    }

    /// Writes it to a file that is there: who reads it finds the bytes of before or of now.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        // Where it is a link, what it leads to.
        let path = fs::canonicalize(path)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = path.with_file_name(name);
        let saved = self.write(&new, &path).and_then(|()| fs::rename(&new, &path));
        if saved.is_err() {
            // It failed already, and that is told.
            let _ = fs::remove_file(&new);
        }
        saved
    }

    fn write(&self, new: &Path, old: &Path) -> io::Result<()> {
        let mut file = File::create_new(new)?;
        file.set_permissions(fs::metadata(old)?.permissions())?;
        file.set_len(self.bytes as u64)?;
        for (page, bytes) in &self.pages {
            let at = page * PAGE;
            let len = PAGE.min(self.bytes.saturating_sub(at));
            file.seek(SeekFrom::Start(at as u64))?;
            file.write_all(&bytes[..len])?;
        }
        file.sync_all()
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, process};

    #[test]
    fn what_is_read_is_what_is_saved() {
        let folder = env::temp_dir().join(format!("pontoon-memory-{}", process::id()));
        fs::create_dir(&folder).unwrap();
        let (from, to, link) = (folder.join("from"), folder.join("to"), folder.join("link"));
        for bytes in [1, PAGE, 3 * PAGE + 5] {
            let mut content = vec![0; bytes];
            content[bytes - 1] = 7;
            fs::write(&from, &content).unwrap();
            let memory = Memory::of_file(&from).unwrap();
            assert_eq!((memory.bytes(), memory.pages.len()), (bytes, 1));
            fs::write(&to, "something else").unwrap();
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&to, &link).unwrap();
            memory.save(&link).unwrap();
            assert_eq!(fs::read(&to).unwrap(), content);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        assert!(Memory::of_file(&folder).is_err());
        assert_eq!(Memory::of_file(Path::new("/dev/null")).map(|it| it.bytes()).ok(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
