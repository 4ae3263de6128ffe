//! A file that is there whole or not at all.

use std::{
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process,
};

/// A file that is written beside its place and then put there. What is there already and is no
/// plain file, such as a pipe, is written directly.
#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    /// Where it is written meanwhile; removed unless it was put in its place.
    beside: Option<PathBuf>,
    file: File,
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
    pub(super) fn create(path: &Path) -> Result<Self, TraceError> {
        let failed = |error| TraceError { path: path.to_owned(), error, early: true };
        let opened = match fs::metadata(path) {
            Ok(there) if !there.is_file() => {
                File::options().write(true).open(path).map(|file| (file, None))
            }
            // A link stays one: what it names is replaced.
            Ok(_) => fs::canonicalize(path).and_then(|path| open_beside(&path)),
            Err(_) => open_beside(path),
        };
        let (file, beside) = opened.map_err(failed)?;
        Ok(Self { path: path.to_owned(), beside, file })
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Writes all of it by `write` and puts it in its place.
    pub(super) fn write(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), TraceError> {
        let mut out = BufWriter::new(&self.file);
        let mut written = write(&mut out).and_then(|()| out.flush());
        drop(out);
        if let (Ok(()), Some(beside)) = (&written, &self.beside) {
            let place = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
            written = fs::rename(beside, place);
        }
        if written.is_ok() {
            self.beside = None;
        }
        written.map_err(|error| TraceError { path: self.path.clone(), error, early: false })
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

fn open_beside(path: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.partial", process::id()));
    let beside = path.with_file_name(beside);
    Ok((File::create(&beside)?, Some(beside)))
}
