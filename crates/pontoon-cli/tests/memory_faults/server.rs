//! `pontoon smc serve`, here or on a host of its own, once more each time that it was killed.

use std::{env, fs, path::PathBuf, process::Command};

use pontoon::{job::Env, world::Transport};
use rustix::process::Signal;

use crate::common::{
    Place, Process, TOKEN,
    hosts::{Hosts, script},
    pontoon,
};

/// Pages of the memory.
pub(crate) const PAGES: usize = 128;
pub(crate) const PAGE: usize = 4096;
pub(crate) const WORDS: usize = PAGE / 8;
pub(crate) const BYTES: usize = PAGES * PAGE;
/// Words of a page that threads write: the first ones, one each. The others are the server's.
pub(crate) const OWN: usize = 8;

/// What the server has in a word that nobody wrote, in its start `start`, which counts from 1.
pub(crate) fn base(start: u64, word: usize) -> u64 {
    1 << 56 | start << 32 | word as u64
}

/// Of which start the server's word `word` is `found`, if it is of any.
pub(crate) fn start_of(word: usize, found: u64) -> Option<u64> {
    let start = found >> 32 & 0xFF_FFFF;
    (start > 0 && found == base(start, word)).then_some(start)
}

/// A server, and where it is met.
pub(crate) struct Server<'h> {
    place: Place,
    host: Option<(&'h Hosts, u32)>,
    file: PathBuf,
    starts: u64,
    process: Option<Process>,
}

impl Server<'static> {
    /// On the host of this process.
    pub(crate) fn here() -> Self {
        Self::at(Place::new(), None)
    }
}

impl<'h> Server<'h> {
    /// On another.
    pub(crate) fn on(hosts: &'h Hosts, number: u32) -> Self {
        let host = hosts.address(number as usize).to_owned();
        Self::at(Place { host, port: 29500 }, Some((hosts, number)))
    }

    fn at(place: Place, host: Option<(&'h Hosts, u32)>) -> Self {
        let name = format!("pontoon-memory-{}-{}", std::process::id(), place.host);
        Self { place, host, file: env::temp_dir().join(name), starts: 0, process: None }
    }

    /// Starts it, with contents that tell which start it is.
    pub(crate) fn start(&mut self, transport: Transport) {
        self.starts += 1;
        let words = (0..BYTES / 8).map(|word| base(self.starts, word).to_ne_bytes());
        fs::write(&self.file, words.collect::<Vec<_>>().concat()).expect("written");
        let file = self.file.to_str().expect("text");
        let (at, by) = (format!("{}:{}", self.place.host, self.place.port), transport.to_string());
        let serve = ["smc", "serve", "--listen", &at, "--file", file, "--save", "--transport", &by];
        let serve = pontoon(&serve);
        let mut command = match self.host {
            None => serve,
            Some((hosts, number)) => {
                let mut command = Command::new(script());
                command.args(["exec", &hosts.name(number)]);
                command.arg(serve.get_program()).args(serve.get_args());
                command
            }
        };
        command.env("PONTOON_TOKEN", TOKEN);
        self.process = Some(Process::start(&mut command));
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let ended = self.process.take().expect("started").end("the server");
        assert!(!ended.err.contains("error: "), "it was well until then: {ended:?}");
    }

    /// Has it end, and say what its memory is then.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        self.signal(Signal::TERM);
        let ended = self.process.take().expect("started").end("the server");
        assert!(ended.status.success() && !ended.err.contains("error: "), "{ended:?}");
        fs::read(&self.file).expect("saved")
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let process = self.process.as_mut().expect("started");
        assert!(process.signal(signal), "the server ended by itself");
    }

    /// Takes its host's cable out, or puts it in.
    pub(crate) fn cut(&self, out: bool) {
        let (hosts, number) = self.host.expect("a host of its own");
        hosts.run(&[if out { "cut" } else { "heal" }, &hosts.name(number)]);
    }

    /// Which start of it this is.
    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }

    /// The place of its client.
    pub(crate) fn env(&self) -> Env {
        let variables = self.place.variables(1, 2);
        let env = Env::from_lookup(|name| match name {
            "PONTOON_JOB" => Some("smc".into()),
            name => variables.iter().find(|it| it.0 == name).map(|it| it.1.clone().into()),
        });
        env.expect("an environment").expect("a job")
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}
