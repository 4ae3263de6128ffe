//! What ranks print: whole lines with the rank in front, lines as they are, or a file for each.
//!
//! One thread writes, so that the launcher never waits for a terminal that is stopped or a reader
//! that is slow; while [`Output::is_crowded`], nothing more is read from the ranks.
//!
//! - O1: a line is written by one call, and nothing comes between its parts.
//! - O2: a line longer than [`LONGEST_LINE`] is not kept: it goes on as lines of its own, marked
//!   `[3+]`, or as it is where there are no prefixes.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::wire::Stream;
use crate::stdout::out;

/// How much of a line without an end is kept.
const LONGEST_LINE: usize = 16 << 10;
/// How much may wait for the writer before ranks are no longer read.
const CROWDED: usize = 1 << 20;

/// How output is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Prefixed,
    Plain,
    /// `N.out` and `N.err` in a folder, byte for byte.
    Files(PathBuf),
}

/// Where the writer failed: a file, or one of the launcher's own streams.
#[derive(Debug)]
pub(super) struct OutputError {
    pub(super) at: Option<PathBuf>,
    pub(super) error: io::Error,
}

/// The output of all ranks.
#[derive(Debug)]
pub(super) struct Output {
    form: Form,
    lines: Vec<[Lines; 2]>,
    writer: Writer,
}

impl Output {
    /// Opens it for `ranks` ranks, and with [`Form::Files`] makes every file, empty.
    ///
    /// # Errors
    ///
    /// A file, a pipe or a thread is not to be had.
    pub(super) fn open(form: Form, ranks: u32) -> Result<Self, OutputError> {
        let mut sinks = Vec::new();
        for own in [out().as_fd(), io::stderr().as_fd()] {
            let file = own.try_clone_to_owned().map_err(|error| OutputError { at: None, error })?;
            sinks.push(Sink { file: file.into(), at: None });
        }
        if let Form::Files(folder) = &form {
            let failed = |at: &Path| {
                let at = Some(at.to_owned());
                move |error| OutputError { at, error }
            };
            fs::create_dir_all(folder).map_err(failed(folder))?;
            for rank in 0..ranks {
                for end in ["out", "err"] {
                    let at = folder.join(format!("{rank}.{end}"));
                    let file = File::create(&at).map_err(failed(&at))?;
                    sinks.push(Sink { file, at: Some(at) });
                }
            }
        }
        let lines = (0..ranks).map(|_| Default::default()).collect();
        let writer = Writer::start(sinks).map_err(|error| OutputError { at: None, error })?;
        Ok(Self { form, lines, writer })
    }

    /// Takes what a rank wrote. A rank that is not of the job is ignored.
    pub(super) fn take(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        let Some(lines) = self.lines.get_mut(rank as usize) else { return };
        match &self.form {
            Form::Files(_) => {
                self.writer.push(2 + 2 * rank as usize + stream.index(), bytes.to_vec());
            }
            form => {
                let prefix = (*form == Form::Prefixed).then_some(rank);
                let mut ready = Vec::with_capacity(bytes.len() + 16);
                lines[stream.index()].feed(prefix, bytes, &mut ready);
                self.writer.push(stream.index(), ready);
            }
        }
    }

    /// Writes what `rank` left without an end of line.
    pub(super) fn finish(&mut self, rank: u32) {
        let Some(lines) = self.lines.get_mut(rank as usize) else { return };
        let prefix = (self.form == Form::Prefixed).then_some(rank);
        for stream in Stream::BOTH {
            let mut ready = Vec::new();
            lines[stream.index()].finish(prefix, &mut ready);
            self.writer.push(stream.index(), ready);
        }
    }

    /// Writes a line of the launcher's own to standard error, in order with the rest.
    pub(super) fn note(&self, line: &str) {
        self.writer.push(Stream::Err.index(), format!("{line}\n").into_bytes());
    }

    /// Whether more should wait.
    pub(super) fn is_crowded(&self) -> bool {
        self.writer.shared().waiting > CROWDED
    }

    /// Readable when there is room again, when writing failed and when all is written.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.writer.woken.as_fd()
    }

    /// Takes note of [`Output::fd`]; the error, once, if writing failed. What comes after a
    /// failure is dropped.
    pub(super) fn woken(&mut self) -> Option<OutputError> {
        let mut bytes = [0; 64];
        super::poll::read(&mut self.writer.woken, &mut bytes);
        self.writer.shared().failed.take()
    }

    /// Says that nothing more will come.
    pub(super) fn close(&self) {
        self.writer.shared().closed = true;
        self.writer.shared.changed.notify_one();
    }

    /// Whether all is written, after [`Output::close`].
    pub(super) fn is_written(&self) -> bool {
        self.writer.shared().finished
    }
}

/// The begin of a line whose end has not come.
#[derive(Debug, Default)]
struct Lines {
    partial: Vec<u8>,
    /// Whether `partial` goes on with a line whose begin was written.
    continues: bool,
}

impl Lines {
    /// Adds to `ready` the lines that `bytes` complete.
    fn feed(&mut self, prefix: Option<u32>, bytes: &[u8], ready: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (mut body, ends) = match piece.strip_suffix(b"\n") {
                Some(body) => (body, true),
                None => (piece, false),
            };
            while body.len() > LONGEST_LINE - self.partial.len() {
                let (now, later) = body.split_at(LONGEST_LINE - self.partial.len());
                self.partial.extend_from_slice(now);
                self.cut(prefix, ready);
                body = later;
            }
            self.partial.extend_from_slice(body);
            if ends {
                self.partial.push(b'\n');
                self.write(prefix, ready);
                self.continues = false;
            }
        }
    }

    fn cut(&mut self, prefix: Option<u32>, ready: &mut Vec<u8>) {
        self.write(prefix, ready);
        if prefix.is_some() {
            ready.push(b'\n');
        }
        self.continues = true;
    }

    fn finish(&mut self, prefix: Option<u32>, ready: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.cut(prefix, ready);
        }
        self.continues = false;
    }

    fn write(&mut self, prefix: Option<u32>, ready: &mut Vec<u8>) {
        if let Some(rank) = prefix {
            let more = if self.continues { "+" } else { "" };
            ready.extend_from_slice(format!("[{rank}{more}] ").as_bytes());
        }
        ready.append(&mut self.partial);
    }
}

/// A file to write to.
#[derive(Debug)]
struct Sink {
    file: File,
    at: Option<PathBuf>,
}

/// What the writer's thread and the launcher share.
#[derive(Debug, Default)]
struct Shared {
    pieces: VecDeque<(usize, Vec<u8>)>,
    /// Bytes not yet written.
    waiting: usize,
    closed: bool,
    finished: bool,
    failed: Option<OutputError>,
}

#[derive(Debug, Default)]
struct Channel {
    state: Mutex<Shared>,
    changed: Condvar,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing in here is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that writes. It is not joined: one that a stopped terminal holds ends with the
/// process.
#[derive(Debug)]
struct Writer {
    shared: Arc<Channel>,
    woken: File,
}

impl Writer {
    fn start(sinks: Vec<Sink>) -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        super::poll::never_block(&woken)?;
        super::poll::never_block(&wake)?;
        let shared = Arc::new(Channel::default());
        let own = Arc::clone(&shared);
        let wake = File::from(OwnedFd::from(wake));
        thread::Builder::new()
            .name("launch-output".to_owned())
            .spawn(move || write_all(&own, sinks, wake))?;
        Ok(Self { shared, woken: OwnedFd::from(woken).into() })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    fn push(&self, sink: usize, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let mut shared = self.shared();
        shared.waiting += bytes.len();
        shared.pieces.push_back((sink, bytes));
        drop(shared);
        self.shared.changed.notify_one();
    }
}

/// The writer's thread. After a failure it goes on taking pieces, and drops those of the sink that
/// failed: the job is ended meanwhile, and what explains it may go elsewhere.
fn write_all(shared: &Channel, mut sinks: Vec<Sink>, mut wake: File) {
    let mut broken = vec![false; sinks.len()];
    loop {
        let mut state = shared.lock();
        while state.pieces.is_empty() && !state.closed {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let pieces = mem::take(&mut state.pieces);
        let was_crowded = state.waiting > CROWDED;
        drop(state);
        let mut written = 0;
        let mut failed = None;
        for (to, bytes) in &pieces {
            written += bytes.len();
            if broken[*to] {
                continue;
            }
            if let Err(error) = write_whole(&mut sinks[*to].file, bytes) {
                broken[*to] = true;
                failed.get_or_insert(OutputError { at: sinks[*to].at.clone(), error });
            }
        }
        let mut state = shared.lock();
        state.waiting -= written;
        let is_news = failed.is_some();
        if is_news {
            state.failed = failed;
        }
        state.finished = state.closed && state.pieces.is_empty();
        let finished = state.finished;
        drop(state);
        if is_news || was_crowded || finished {
            // A full pipe wakes as well.
            let _ = wake.write(&[1]);
        }
        if finished {
            return;
        }
    }
}

/// Writes all of `bytes`, also to a terminal that another process has made not to block.
fn write_whole(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let room = [((), file.as_fd(), super::poll::For::Room)];
                super::poll::ready(&room, std::time::Duration::from_secs(1))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(prefix: Option<u32>, pieces: &[&[u8]]) -> Vec<u8> {
        let (mut lines, mut ready) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.feed(prefix, piece, &mut ready);
        }
        lines.finish(prefix, &mut ready);
        ready
    }

    #[test]
    fn lines_are_whole_and_have_their_rank() {
        let all = shown(Some(3), &[b"on", b"e\n\ntw", b"o\nth\xffree"]);
        assert_eq!(all, b"[3] one\n[3] \n[3] two\n[3] th\xffree\n");
        let all = shown(None, &[b"on", b"e\n\ntw", b"o\nth\xffree"]);
        assert_eq!(all, b"one\n\ntwo\nth\xffree");
        let mut ready = Vec::new();
        Lines::default().feed(None, b"not yet", &mut ready);
        assert_eq!(ready, b"");
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_marked() {
        for over in [0, 1, LONGEST_LINE, LONGEST_LINE + 1] {
            let line = vec![b'x'; LONGEST_LINE + over];
            let parts: Vec<_> = line.chunks(LONGEST_LINE).collect();
            let mut wanted = Vec::new();
            for (at, part) in parts.iter().enumerate() {
                wanted.extend_from_slice(if at == 0 { b"[3] " } else { b"[3+] " });
                wanted.extend_from_slice(part);
                wanted.push(b'\n');
            }
            let with_end = [line.as_slice(), b"\n"].concat();
            for text in [&line, &with_end] {
                assert!(shown(Some(3), &[text]) == wanted, "{over} over");
                let pieces: Vec<_> = text.chunks(1000).collect();
                assert!(shown(Some(3), &pieces) == wanted, "{over} over, in pieces");
            }
        }
        let mut lines = Lines::default();
        let mut ready = Vec::new();
        for _ in 0..100 {
            lines.feed(Some(3), &[b'x'; 5000], &mut ready);
            assert!(lines.partial.len() <= LONGEST_LINE);
        }
        let mut after = Vec::new();
        lines.feed(Some(3), b"\nshort\n", &mut after);
        assert!(after.ends_with(b"\n[3] short\n"), "{after:?}");
    }

    proptest! {
        #[test]
        fn without_prefixes_no_byte_is_added_or_lost(
            pieces in prop::collection::vec(prop::collection::vec(0_u8..12, 0..9000), 0..12),
        ) {
            // Of twelve bytes one ends a line; with 200 none does.
            for add in [0, 200] {
                let bytes: Vec<Vec<u8>> =
                    pieces.iter().map(|piece| piece.iter().map(|b| b + add).collect()).collect();
                let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
                prop_assert_eq!(shown(None, &slices), bytes.concat());
            }
        }
    }
}
