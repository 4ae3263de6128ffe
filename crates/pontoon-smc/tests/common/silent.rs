//! A link to a home that stops answering, and answers again, or is dead.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use super::Happening;
use pontoon_hal::{
    conformance::link::delegate_link,
    link::{Link, LinkError, Operation, Order, Registered, Remote, RemoteSignal},
};
use pontoon_signal::{
    Block, Bound, Ending, Publisher, Rank, Seq, SignalTable, Slot, SlotId, TableShape,
};

type Posted = Box<dyn FnOnce(&dyn Link) + Send>;

/// What is posted while it is silent is performed when it answers again, in order; its numbers and their
/// counter are its own.
pub(crate) struct Silent {
    inner: Arc<dyn Link>,
    completions: Slot,
    state: Mutex<State>,
}

struct State {
    silent: bool,
    /// Whether only what adds is not answered.
    adds_nothing: bool,
    /// How many posts are refused as one too many, from the next on.
    full: u32,
    /// How many posts it answers yet, if it is to be silent then.
    answered: Option<u32>,
    /// How many posts it answers yet, if it is to die then.
    last: Option<u32>,
    /// What comes before the next read from there.
    before: Option<(usize, Happening)>,
    late: VecDeque<Posted>,
    done: Publisher,
    posted: u64,
}

impl Silent {
    pub(crate) fn over(inner: &Arc<dyn Link>) -> Arc<Self> {
        let (table, slot) = (SignalTable::in_process(TableShape::new(1, 1)), SlotId::new(0, 0));
        let done = table.publisher(slot).expect("free");
        let state = State {
            silent: false,
            adds_nothing: false,
            full: 0,
            answered: None,
            last: None,
            before: None,
            late: VecDeque::new(),
            done,
            posted: 0,
        };
        let completions = table.slot(slot).expect("there");
        Arc::new(Self { inner: Arc::clone(inner), completions, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under it")
    }

    /// Answers no more, or does again: then all that was posted meanwhile is performed.
    pub(crate) fn be_silent(&self, silent: bool) {
        let mut state = self.state();
        state.silent = silent;
        if !silent {
            let late = std::mem::take(&mut state.late);
            let count = late.len();
            late.into_iter().for_each(|post| post(&*self.inner));
            state.done.pub_release(u32::try_from(count).expect("few"));
        }
    }

    /// Answers so many posts more, and is silent then.
    pub(crate) fn be_silent_after(&self, posts: u32) {
        self.state().answered = Some(posts);
    }

    /// Dies once so many posts more were answered.
    pub(crate) fn die_after(&self, posts: u32) {
        self.state().last = Some(posts);
    }

    /// Has that happen before something is read from `offset` on the next time.
    pub(crate) fn before_read(&self, offset: usize, happens: impl FnOnce() + Send + 'static) {
        self.state().before = Some((offset, Box::new(happens)));
    }

    /// How many posts there were.
    pub(crate) fn posted(&self) -> u64 {
        self.state().posted
    }

    /// Answers all but additions.
    pub(crate) fn add_nothing(&self, nothing: bool) {
        self.state().adds_nothing = nothing;
    }

    /// Refuses the next posts as one too many.
    pub(crate) fn be_full(&self, posts: u32) {
        self.state().full = posts;
    }

    /// Forgets what was posted and not performed, and is dead.
    pub(crate) fn die(&self) {
        self.completions.end(Ending::PeerDead { rank: Rank(0) });
        self.state().late.clear();
    }

    fn post(&self, post: impl FnOnce(&dyn Link) + Send + 'static) -> Result<Seq, LinkError> {
        self.post_unless(false, post)
    }

    /// Posts what is not performed if `silent`.
    fn post_unless(
        &self,
        silent: bool,
        post: impl FnOnce(&dyn Link) + Send + 'static,
    ) -> Result<Seq, LinkError> {
        if let Some(ending) = self.completions.ending() {
            return Err(LinkError::ended(Rank(0), "silent", ending));
        }
        let mut state = self.state();
        if state.full > 0 {
            state.full -= 1;
            return Err(LinkError::Full { peer: Rank(0), depth: 1 });
        }
        match &mut state.answered {
            Some(0) => (state.silent, state.answered) = (true, None),
            Some(answered) => *answered -= 1,
            None => {}
        }
        state.posted += 1;
        let number = Seq::new(state.posted);
        if silent || state.silent {
            state.late.push_back(Box::new(post));
        } else {
            post(&*self.inner);
            state.done.pub_release(1);
            state.last = state.last.map(|posts| posts - 1);
            if state.last == Some(0) {
                self.completions.end(Ending::PeerDead { rank: Rank(0) });
            }
        }
        Ok(number)
    }

    fn answers(&self, bound: Bound) -> Result<(), LinkError> {
        if let Some(ending) = self.completions.ending() {
            return Err(LinkError::ended(Rank(0), "silent", ending));
        }
        if self.state().silent {
            return Err(self.late(bound));
        }
        Ok(())
    }

    fn late(&self, bound: Bound) -> LinkError {
        let waited = bound.deadline().expect("bounded");
        std::thread::sleep(waited);
        LinkError::TimedOut {
            peer: Rank(0),
            operation: Operation::Add,
            waited: waited.into(),
            done: self.completions.value(),
            posted: self.completions.value() + 1,
        }
    }
}

impl Link for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }
    delegate_link!(inner: rank, capabilities, peer_state, end_peer, register, attach, attach_signal);
    delegate_link!(inner: owns);
    delegate_link!(inner: fence, explain, report);
    fn mapped(
        &self,
        from: &Remote,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<Block>, LinkError> {
        if let Some(ending) = self.completions.ending() {
            return Err(LinkError::ended(Rank(0), "silent", ending));
        }
        self.inner.mapped(from, offset, bytes)
    }
    fn write(
        &self,
        from: &Registered,
        range: Range<usize>,
        to: &Remote,
        offset: usize,
    ) -> Result<Seq, LinkError> {
        let (from, to) = (from.clone(), to.clone());
        self.post(move |link| {
            let _ = link.write(&from, range, &to, offset).expect("written");
        })
    }
    fn write_inline(&self, bytes: &[u8], to: &Remote, offset: usize) -> Result<Seq, LinkError> {
        let (bytes, to) = (bytes.to_vec(), to.clone());
        self.post(move |link| {
            let _ = link.write_inline(&bytes, &to, offset).expect("written");
        })
    }
    fn read(
        &self,
        from: &Remote,
        offset: usize,
        into: &Registered,
        range: Range<usize>,
    ) -> Result<Seq, LinkError> {
        let before = self.state().before.take_if(|(at, _)| *at == offset);
        if let Some((_, happens)) = before {
            happens();
        }
        let (from, into) = (from.clone(), into.clone());
        self.post(move |link| {
            let _ = link.read(&from, offset, &into, range).expect("read");
        })
    }
    fn write_signal(
        &self,
        _: &Registered,
        _: Range<usize>,
        _: &Remote,
        _: usize,
        _: &mut RemoteSignal,
        _: u32,
        _: Order,
    ) -> Result<Seq, LinkError> {
        Err(LinkError::Foreign("a signal: windows send none"))
    }
    fn signal(&self, _: &mut RemoteSignal, _: u32, _: Order) -> Result<Seq, LinkError> {
        Err(LinkError::Foreign("a signal: windows send none"))
    }
    fn post_add(
        &self,
        to: &Remote,
        offset: usize,
        n: u64,
        reply: Option<(&Registered, usize)>,
    ) -> Result<Seq, LinkError> {
        let (to, reply) = (to.clone(), reply.map(|(into, at)| (into.clone(), at)));
        let adds_nothing = self.state().adds_nothing;
        self.post_unless(adds_nothing, move |link| {
            let reply = reply.as_ref().map(|(into, at)| (into, *at));
            let _ = link.post_add(&to, offset, n, reply).expect("added");
        })
    }
    fn add(&self, to: &Remote, offset: usize, n: u64, bound: Bound) -> Result<u64, LinkError> {
        if self.state().adds_nothing {
            return Err(self.late(bound));
        }
        self.answers(bound)?;
        self.inner.add(to, offset, n, bound)
    }
    fn compare_swap(
        &self,
        to: &Remote,
        offset: usize,
        expected: u64,
        new: u64,
        bound: Bound,
    ) -> Result<u64, LinkError> {
        self.answers(bound)?;
        self.inner.compare_swap(to, offset, expected, new, bound)
    }
    fn flush(&self, _: Rank, bound: Bound) -> Result<(), LinkError> {
        self.answers(bound)
    }
    fn completions(&self, _: Rank) -> Result<Slot, LinkError> {
        Ok(self.completions.clone())
    }
}

impl fmt::Debug for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Silent")
    }
}
