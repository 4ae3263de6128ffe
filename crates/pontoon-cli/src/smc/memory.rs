//! What a server has, from one client to the next.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, Write},
    ops::Range,
    os::fd::AsFd,
    path::Path,
};

use pontoon::{hal::paging::PAGE, signal::Block, smc::Export};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

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

    /// Takes over what was changed in an export, of memory in `all`, that this was [put](Self::put) into. How many
    /// pages.
    pub(super) fn take(&mut self, export: &Export, all: &Block) -> usize {
        let pages = versions(export, all, self.pages()).flatten();
        pages.filter(|page| self.take_page(export, *page)).count()
    }

    /// Takes over a page, if it was changed. Whether it was.
    fn take_page(&mut self, export: &Export, page: usize) -> bool {
        // What was put there has changed once.
        let before = u64::from(self.pages.contains_key(&page));
        if export.version(page * PAGE) == Some(before) {
            return false;
        }
        let mut bytes = vec![0; PAGE];
        export.read(page * PAGE, &mut bytes);
        if is_zero(&bytes) {
            self.pages.remove(&page);
        } else {
            self.pages.insert(page, bytes.into());
        }
        true
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
            file.seek(io::SeekFrom::Start(at as u64))?;
            file.write_all(&bytes[..len])?;
        }
        file.sync_all()
    }
}

/// What a page's version takes, and each begins where the one before it ends: [`Layout`](pontoon::smc::Layout).
const VERSION: usize = 8;

/// The pages that have another version than zero, and some that have not: all that anything was put into, or that was
/// changed.
fn versions(export: &Export, all: &Block, pages: usize) -> impl Iterator<Item = Range<usize>> {
    let whole = 0..pages * VERSION;
    let bytes = match all.file().zip(all.offset_of(export.block())) {
        // Where the file has nothing they are zero, and looking at them would take memory for that.
        Some((file, at)) => {
            Data::of(file, at..at + whole.end).map(|data| data.start - at..data.end - at).collect()
        }
        None => vec![whole],
    };
    bytes.into_iter().map(|data| data.start / VERSION..data.end.div_ceil(VERSION))
}

/// Where a file has something between two places: what is not among it is zero.
struct Data<F> {
    file: F,
    left: Range<usize>,
}

impl<F: AsFd> Data<F> {
    fn of(file: F, range: Range<usize>) -> Self {
        Self { file, left: range }
    }
}

impl<F: AsFd> Iterator for Data<F> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.left.is_empty() {
            return None;
        }
        let from = match seek(&self.file, SeekFrom::Data(self.left.start as u64)) {
            Err(Errno::NXIO) => self.left.end,
            // A kind of file of which that is not known: all of it.
            found => found.map_or(self.left.start, |at| at as usize),
        };
        if from >= self.left.end {
            return None;
        }
        let to = seek(&self.file, SeekFrom::Hole(from as u64));
        let to = to.map_or(self.left.end, |at| self.left.end.min(at as usize));
        self.left.start = to;
        Some(from..to)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pontoon::{
        Rank,
        shm::identity,
        signal::{Segment, SegmentShape},
        smc::Layout,
    };
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

    /// An export that it was put into, and the segment that has that.
    fn exported(memory: &Memory) -> (Block, Export) {
        let region = Layout::of(memory.bytes()).region();
        let (shape, whose) = (SegmentShape::new(2, 2, region), identity([0; 16], Rank(0), 2, 0));
        let segment = Segment::create(shape, whose).unwrap();
        let export = Export::over(segment.allocate(region).unwrap()).unwrap();
        memory.put(&export);
        (segment.block().clone(), export)
    }

    #[test]
    fn what_was_changed_is_taken_over_wherever_it_is() {
        // Versions of 512 pages are on one page: first and last of one, and one behind a hole.
        let pages = [0, 511, 512, 5000, 99_999];
        let mut memory = Memory::zeroed(100_000 * PAGE);
        for (round, changed) in [(7, &pages[..]), (8, &pages[1..3]), (0, &pages[..4]), (9, &[])] {
            let (all, export) = exported(&memory);
            for page in changed {
                assert!(export.write(page * PAGE + 5, &[round]));
            }
            assert_eq!(memory.take(&export, &all), changed.len(), "{round}");
            let (_, again) = exported(&memory);
            for page in changed {
                let mut byte = [1];
                assert!(again.read(page * PAGE + 5, &mut byte));
                assert_eq!(byte, [round]);
            }
        }
        assert_eq!(memory.pages.into_keys().collect::<Vec<_>>(), [99_999]);
    }

    #[test]
    fn nothing_is_looked_at_where_a_file_has_nothing() {
        let memory = Memory::zeroed(1 << 36);
        let (all, export) = exported(&memory);
        export.write(1 << 30, &[1]);
        let looked: usize = versions(&export, &all, memory.pages()).map(|pages| pages.len()).sum();
        assert!((1..=1 << 18).contains(&looked), "{looked} of {}", memory.pages());
    }
}
