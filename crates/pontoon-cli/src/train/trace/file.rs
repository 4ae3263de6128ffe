//! A file that is there whole or not at all.

use std::{
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process,
};

/// A file that is written beside its place and then put there, all in one go when its time comes: a
/// run that is interrupted leaves nothing. A device, such as `/dev/null`, is written directly.
#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    is_device: bool,
}

/// Why there is no trace.
#[derive(Debug)]
pub(crate) struct TraceError {
    path: PathBuf,
    error: io::Error,
    /// Nothing was run yet.
    early: bool,
}

impl TraceError {
    /// Whether the path is to blame, and nothing was run.
    pub(crate) fn is_bad_input(&self) -> bool {
        self.early
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write the trace {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for TraceError {}

impl TraceFile {
    /// Sees to it that the file can be written.
    pub(super) fn create(path: &Path) -> Result<Self, TraceError> {
        let failed = |error| TraceError { path: path.to_owned(), error, early: true };
        let is_device = match fs::metadata(path) {
            Ok(there) if there.file_type().is_char_device() => true,
            Ok(there) if !there.is_file() => {
                return Err(failed(io::Error::other("it is there and is no plain file")));
            }
            _ => false,
        };
        let file = Self { path: path.to_owned(), is_device };
        let tried = if is_device {
            File::options().write(true).open(path).map(drop)
        } else {
            Partial::create(&file.place()).map(drop)
        };
        tried.map_err(failed)?;
        Ok(file)
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Writes all of it by `write` and puts it in its place.
    pub(super) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), TraceError> {
        let written = if self.is_device {
            File::options().write(true).open(&self.path).and_then(|file| write_all(&file, write))
        } else {
            Partial::create(&self.place()).and_then(|partial| {
                write_all(&partial.file, write)?;
                partial.put()
            })
        };
        written.map_err(|error| TraceError { path: self.path, error, early: false })
    }

    /// A link stays one: what it names is replaced.
    fn place(&self) -> PathBuf {
        fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }
}

fn write_all(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}

/// A file beside the place that it will have; removed unless it was put there.
struct Partial<'p> {
    beside: PathBuf,
    place: &'p Path,
    file: File,
}

impl<'p> Partial<'p> {
    fn create(place: &'p Path) -> io::Result<Self> {
        let mut beside = place.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        beside.push(format!(".{}.partial", process::id()));
        let beside = place.with_file_name(beside);
        Ok(Self { file: File::create(&beside)?, beside, place })
    }

    fn put(self) -> io::Result<()> {
        fs::rename(&self.beside, self.place)
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        // It is gone if it was put in its place.
        let _ = fs::remove_file(&self.beside);
    }
}
