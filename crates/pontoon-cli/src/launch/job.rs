//! A job as its launcher sees it: one loop over agents, signals and output until all is over.
//!
//! - J1: no rank starts before every host has answered.
//! - J2: once the end is ordered, the job is over within the grace and [`STUCK`], whether hosts
//!   answer or not; only output that nobody reads can hold it longer, until a second SIGINT. A SIGTERM
//!   or SIGHUP that was handed on orders the end when its grace is over.
//! - J3: however it ends, each agent that can still hear of it has the grace to end its ranks with
//!   all that they started, before what leads to it is killed.

use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    error::LaunchError,
    link::{Link, SHELL_ENDS, files},
    output::Output,
    poll::{For, ready},
    signals::{Signals, asks_for_the_end, handed_on, name},
    verdict::{Failed, Failure, Next, Tolerance, Verdict},
    wire::{Frame, Order, Plan, Said, read},
};

/// How long after the grace a host may take to end its ranks.
const STUCK: Duration = Duration::from_secs(10);
/// How long output that is not waited for may still take.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often anything is looked at.
const IDLE: Duration = Duration::from_secs(1);

/// What a job is, apart from where it runs.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) ranks: u32,
    pub(super) command: Vec<Vec<u8>>,
    pub(super) folder: Vec<u8>,
    pub(super) variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// The port of rank 0, instead of one that its host has free.
    pub(super) port: Option<u16>,
    pub(super) grace: Duration,
    pub(super) start_within: Duration,
    pub(super) silence: Duration,
    pub(super) tolerance: Tolerance,
}

/// What is ready in a turn.
#[derive(Clone, Copy, Debug)]
enum Source {
    Signals,
    Output,
    Reply(usize),
    Complaint(usize),
    Room(usize),
}

/// A job that was opened.
#[derive(Debug)]
pub(super) struct Job {
    spec: Spec,
    links: Vec<Link>,
    output: Output,
    signals: Signals,
    verdict: Verdict,
    /// When the plans went out.
    began: Option<Instant>,
    spoke: Instant,
    pids: BTreeMap<u32, u32>,
    /// Ranks that have not ended.
    living: Vec<bool>,
    interrupted: bool,
    /// When ranks are killed that a signal which asks for their end did not end, and that signal.
    kill_at: Option<(Instant, Signal)>,
    /// Whether output is read only to get at what follows it.
    discards: bool,
    /// When ranks that do not end by themselves are ended.
    end_at: Option<Instant>,
    /// When hosts that do not answer are left to themselves.
    give_up_at: Option<Instant>,
    fault: Option<LaunchError>,
    buffer: Vec<u8>,
}

impl Job {
    pub(super) fn new(spec: Spec, links: Vec<Link>, output: Output, signals: Signals) -> Self {
        Self {
            verdict: Verdict::new(spec.ranks, spec.tolerance),
            living: vec![true; spec.ranks as usize],
            spec,
            links,
            output,
            signals,
            began: None,
            spoke: Instant::now(),
            pids: BTreeMap::new(),
            interrupted: false,
            kill_at: None,
            discards: false,
            end_at: None,
            give_up_at: None,
            fault: None,
            buffer: vec![0; 64 << 10],
        }
    }

    /// Runs it to its end; its status.
    ///
    /// # Errors
    ///
    /// See [`LaunchError`]; nothing of the job is left where its hosts answer.
    ///
    /// # Blocks
    ///
    /// As long as the job runs.
    pub(super) fn run(mut self) -> Result<u8, LaunchError> {
        self.greet()?;
        self.send_plans();
        while self.links.iter().any(Link::is_open) {
            self.turn()?;
        }
        self.output.close();
        // A user who insists is told the last words too, unless nobody reads them.
        let until = Instant::now() + LAST_WORDS;
        while !self.output.is_written() && (!self.discards || Instant::now() < until) {
            self.turn()?;
        }
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(self.verdict.status()),
        }
    }

    /// Waits until every host has answered (J1).
    fn greet(&mut self) -> Result<(), LaunchError> {
        let opened = Instant::now();
        while self.links.iter().any(|link| link.port.is_none()) {
            if opened.elapsed() > self.spec.start_within {
                let late = self.links.iter().filter(|link| link.port.is_none());
                let hosts = late.map(host_name).collect();
                return Err(LaunchError::Late { hosts, waited: self.spec.start_within });
            }
            self.turn()?;
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Tells every host what to start.
    fn send_plans(&mut self) {
        let port = self.spec.port.or(self.links.first().and_then(|link| link.port)).unwrap_or(0);
        let mut variables = self.spec.variables.clone();
        // Both names: the second is read first, and may come from the user's environment.
        for name in ["MASTER_PORT", "PONTOON_PORT"] {
            variables.push((name.into(), port.to_string().into_bytes()));
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for link in &mut self.links {
            link.order(&Order::Plan(Plan {
                folder: self.spec.folder.clone(),
                command: self.spec.command.clone(),
                variables: variables.clone(),
                ranks: link.ranks.clone(),
                grace_ns: nanos(self.spec.grace),
                silence_ns: nanos(self.spec.silence),
                is_remote: link.is_remote,
            }));
            for line in std::mem::take(&mut link.early) {
                self.output.note(&format!("pontoon launch: {}: {line}", host_name(link)));
            }
        }
        self.began = Some(Instant::now());
    }

    fn turn(&mut self) -> Result<(), LaunchError> {
        let is_crowded = self.output.is_crowded() && !self.discards;
        let failed = |error| LaunchError::System("wait for hosts", error);
        for source in ready(&self.sources(is_crowded), self.patience()).map_err(failed)? {
            match source {
                Source::Signals => {
                    for signal in self.signals.pending() {
                        self.signalled(signal);
                    }
                }
                Source::Output => {
                    if let Some(error) = self.output.woken() {
                        self.fault.get_or_insert(error.into());
                        self.discards = true;
                        self.end();
                    }
                }
                Source::Reply(at) => self.hear(at),
                Source::Complaint(at) => {
                    for line in self.links[at].complaints(&mut self.buffer) {
                        let link = &mut self.links[at];
                        if self.began.is_none() {
                            link.early.push(line);
                        } else {
                            let host = host_name(link);
                            self.output.note(&format!("pontoon launch: {host}: {line}"));
                        }
                    }
                }
                Source::Room(at) => self.links[at].flush(),
            }
        }
        self.watch_hosts(is_crowded);
        if self.end_at.is_some_and(|at| Instant::now() >= at) && self.give_up_at.is_none() {
            let left = self.verdict.running();
            let ranks = if left == 1 { "the rank that does" } else { "the ranks that do" };
            self.output.note(&format!("pontoon launch: ending {ranks} not end: {}", self.alive()));
            self.end();
        }
        if let Some((_, signal)) = self.kill_at.take_if(|(at, _)| Instant::now() >= *at) {
            self.kill_after(signal);
        }
        Ok(())
    }

    /// Kills whoever `signal` did not end within the grace.
    fn kill_after(&mut self, signal: Signal) {
        let (left, signal) = (self.verdict.running(), signal.as_raw());
        if left > 0 {
            let (ranks, grace) = (if left == 1 { "rank" } else { "ranks" }, self.spec.grace);
            let (name, alive) = (name(signal), self.alive());
            self.output.note(&format!(
                "pontoon launch: killing the {ranks} that did not end {grace:?} after {name}: {alive}"
            ));
            self.verdict.stop(signal);
        }
        self.kill();
    }

    fn sources(&self, is_crowded: bool) -> Vec<(Source, BorrowedFd<'_>, For)> {
        let mut sources = vec![
            (Source::Signals, self.signals.fd(), For::Input),
            (Source::Output, self.output.fd(), For::Input),
        ];
        for (at, link) in self.links.iter().enumerate() {
            let [reply, complaint, room] = files(link);
            // Complaints first: they explain why there is no reply.
            sources.extend(complaint.map(|fd| (Source::Complaint(at), fd, For::Input)));
            let reply = reply.filter(|_| !is_crowded);
            sources.extend(reply.map(|fd| (Source::Reply(at), fd, For::Input)));
            sources.extend(room.map(|fd| (Source::Room(at), fd, For::Room)));
        }
        sources
    }

    fn patience(&self) -> Duration {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let end = self.give_up_at.or(self.end_at).map_or(IDLE, until);
        let kill = self.kill_at.map_or(IDLE, |(at, _)| until(at));
        end.min(kill).min(IDLE).min(self.spec.silence / 8).min(self.spec.start_within / 8)
    }

    /// Reads what the agent `at` said.
    fn hear(&mut self, at: usize) {
        let frames = match self.links[at].hear(&mut self.buffer) {
            Ok(frames) => frames,
            Err(error) => return self.lose(at, &error.to_string()),
        };
        for frame in frames {
            match frame {
                Frame::Output { rank, stream, bytes } if !self.discards => {
                    self.output.take(rank, stream, &bytes);
                }
                Frame::Output { .. } => {}
                Frame::Message(payload) => match read(&payload) {
                    Ok(said) => self.told(at, said),
                    Err(error) => return self.lose(at, &error.to_string()),
                },
            }
        }
        if !self.links[at].is_open() && !self.links[at].said_bye {
            let status = self.links[at].status();
            // What explains it may have come with the end.
            for line in self.links[at].complaints(&mut self.buffer) {
                self.links[at].early.push(line);
            }
            let status = status.map_or("its stream ended".to_owned(), |status| status.to_string());
            let why = match self.links[at].early.last() {
                Some(line) => format!("{line} ({status})"),
                None => status,
            };
            self.lose(at, &why);
        }
    }

    fn told(&mut self, at: usize, said: Said) {
        match said {
            Said::Hello { version, port } => {
                let own = env!("CARGO_PKG_VERSION");
                if version == own {
                    self.links[at].port = Some(port);
                } else {
                    let why = format!("it runs pontoon {version}, this is {own}; see --program");
                    self.lose(at, &why);
                }
            }
            Said::Started { rank, pid } => {
                self.pids.insert(rank, pid);
            }
            Said::Stopped { rank } => self.stands(at, rank, true),
            Said::Continued { rank } => self.stands(at, rank, false),
            Said::Ended { rank, how, after_ns } => {
                self.output.finish(rank);
                let after = Duration::from_nanos(after_ns);
                self.ended(at, Failure { rank, what: Failed::Ended(how), after });
            }
            Said::Refused { why } => {
                let on = self.links[at].on_host();
                self.fault.get_or_insert(LaunchError::Refused { on, why });
                self.verdict.end();
                self.kill();
            }
            Said::Alive => {}
            Said::Bye => {
                let link = &mut self.links[at];
                link.said_bye = true;
                link.leave(SHELL_ENDS);
                for rank in link.ranks.clone() {
                    self.output.finish(rank);
                }
            }
        }
    }

    /// A rank ended. One of another host, or that ended before, is no agent's to tell of.
    fn ended(&mut self, at: usize, failure: Failure) {
        let rank = failure.rank;
        let link = &self.links[at];
        if !link.ranks.contains(&rank) || !self.living[rank as usize] {
            return;
        }
        self.living[rank as usize] = false;
        let on = link.on_host();
        let who =
            self.pids.get(&rank).map_or_else(|| on.clone(), |pid| format!(" (pid {pid}{on})"));
        let (next, line) = self.verdict.ended(&who, failure);
        match line {
            Some(line) => self.output.note(&line),
            None if next == Next::Hurry => self.note_still(),
            None => {}
        }
        self.go(next);
    }

    /// A rank was stopped, or goes on.
    fn stands(&mut self, at: usize, rank: u32, still: bool) {
        if !self.links[at].ranks.contains(&rank) || !self.living[rank as usize] {
            return;
        }
        let next = self.verdict.stands(rank, still);
        if next == Next::Hurry {
            self.note_still();
        }
        self.go(next);
    }

    fn note_still(&mut self) {
        let (alive, patience) = (self.alive(), self.spec.tolerance.still);
        let one = self.living.iter().filter(|lives| **lives).count() == 1;
        let (who, it, goes) =
            if one { ("rank", "is", "it goes") } else { ("ranks", "are", "they go") };
        self.output.note(&format!(
            "pontoon launch: {who} {alive} {it} stopped and alone left; unless {goes} on, the job is \
             ended in {patience:?}"
        ));
    }

    fn go(&mut self, next: Next) {
        match next {
            Next::EndAll => self.end(),
            Next::Expect => self.end_at = Some(Instant::now() + self.spec.tolerance.last_words),
            Next::Hurry => self.end_at = Some(Instant::now() + self.spec.tolerance.still),
            Next::GoOn => self.end_at = None,
            Next::Ignore => {}
        }
    }

    /// The ranks that have not ended, with commas between them.
    fn alive(&self) -> String {
        let alive = self.living.iter().zip(0..).filter(|(lives, _)| **lives);
        let ranks: Vec<String> = alive.map(|(_, rank): (_, u32)| rank.to_string()).collect();
        ranks.join(", ")
    }

    /// An agent is gone, or what it says is no agent's.
    fn lose(&mut self, at: usize, why: &str) {
        let host = host_name(&self.links[at]);
        let within = self.parting();
        self.links[at].leave(within);
        let Some(began) = self.began else {
            let why = why.to_owned();
            self.fault.get_or_insert(LaunchError::Unreached { host, why });
            return;
        };
        self.output.note(&format!("pontoon launch: host {host} is lost: {why}"));
        for rank in self.links[at].ranks.clone() {
            self.output.finish(rank);
            self.ended(at, Failure { rank, what: Failed::Lost, after: began.elapsed() });
        }
    }

    /// Hands a signal on. The second SIGINT is SIGKILL, and ends the wait for readers of output; after
    /// SIGTERM and SIGHUP the ranks have the grace, however often they come.
    fn signalled(&mut self, signal: Signal) {
        let raw = signal.as_raw();
        if self.began.is_none() {
            self.fault.get_or_insert(LaunchError::Stopped(raw));
            return;
        }
        if signal == Signal::INT && self.interrupted {
            self.verdict.stop(raw);
            self.discards = true;
            self.kill();
            return;
        }
        for link in &mut self.links {
            link.order(&Order::Signal(raw));
        }
        if matches!(signal, Signal::TERM | Signal::HUP) {
            self.kill_at.get_or_insert((Instant::now() + self.spec.grace, signal));
        }
        self.interrupted |= signal == Signal::INT;
        if asks_for_the_end(signal) && self.verdict.asked(raw) {
            self.output.note(&handed_on(signal, self.verdict.running(), self.spec.grace));
        }
    }

    fn end(&mut self) {
        self.verdict.end();
        self.order_all(&Order::End);
    }

    fn kill(&mut self) {
        self.order_all(&Order::Kill);
    }

    fn order_all(&mut self, order: &Order) {
        self.links.iter_mut().for_each(|link| link.order(order));
        self.give_up_at.get_or_insert(Instant::now() + self.spec.grace + STUCK);
    }

    /// How long an agent that is left may take (J3). Before the plans went out it has no ranks.
    fn parting(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |_| self.spec.grace + SHELL_ENDS)
    }

    /// Keeps up the talk with other hosts, where only silence tells of a loss, and J2. An agent that is
    /// stopped says nothing wherever it is. While nothing is read from them, their silence says nothing.
    fn watch_hosts(&mut self, is_crowded: bool) {
        let silence = self.spec.silence;
        if self.spoke.elapsed() > silence / 4 {
            self.spoke = Instant::now();
            self.links.iter_mut().filter(|link| link.is_remote).for_each(|link| {
                link.order(&Order::Alive);
            });
        }
        if is_crowded {
            self.links.iter_mut().for_each(|link| link.silence.broken());
            self.give_up_at = self.give_up_at.map(|_| Instant::now() + self.spec.grace + STUCK);
        }
        let is_late = self.give_up_at.is_some_and(|at| Instant::now() >= at);
        for at in 0..self.links.len() {
            let link = &mut self.links[at];
            if !link.is_open() {
                link.has_left();
                continue;
            }
            if is_late {
                self.links[at].leave(Duration::ZERO);
                self.lose(at, "it did not end its ranks, and some may be left there");
            } else if self.began.is_some() && link.silence.is_longer_than(silence) {
                self.lose(at, &format!("it has been silent for {silence:?}"));
            }
        }
    }
}

impl Drop for Job {
    /// Keeps J3.
    fn drop(&mut self) {
        let within = self.parting();
        self.links.iter_mut().for_each(|link| link.leave(within));
        while !self.links.iter_mut().all(Link::has_left) {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn host_name(link: &Link) -> String {
    link.host.as_ref().map_or_else(|| "localhost".to_owned(), |host| host.name.clone())
}
