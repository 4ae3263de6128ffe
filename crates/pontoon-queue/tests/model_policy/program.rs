//! What a program may be.

use proptest::{collection::vec, prelude::*};

pub(crate) const STREAMS: usize = 3;
pub(crate) const BUFFERS: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Waits on devices last so short that slow kernels outlast them.
    pub(crate) hasty: bool,
    /// Whether each stream has a device of its own.
    pub(crate) apart: bool,
    pub(crate) acts: Vec<Act>,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Submit(Batch),
    /// Waits for the batch submitted so many before the last.
    Wait(usize),
    Reopen(usize),
    Read(usize),
    Write(usize, u32),
    Progress,
    Drain(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) stream: usize,
    pub(crate) works: Vec<Work>,
    pub(crate) policy: Policy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Error,
    Retry(u32),
    Rollback,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) to: usize,
    pub(crate) from: Option<usize>,
    /// What is there before goes into the result.
    pub(crate) adds: bool,
    pub(crate) by: u32,
    /// How many times it panics half way.
    pub(crate) panics: u32,
    pub(crate) slow: bool,
}

impl Work {
    /// What an element becomes.
    pub(crate) fn result(&self, before: u32, from: u32) -> u32 {
        let kept = if self.adds { before.wrapping_mul(5) } else { 0 };
        kept.wrapping_add(from.wrapping_mul(3)).wrapping_add(self.by)
    }
}

pub(crate) fn program() -> impl Strategy<Value = Program> {
    (any::<bool>(), any::<bool>(), vec(act(), 1..24)).prop_map(|(hasty, apart, acts)| Program {
        hasty,
        apart,
        acts,
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => batch().prop_map(Act::Submit),
        3 => (0..4_usize).prop_map(Act::Wait),
        4 => (0..STREAMS).prop_map(Act::Reopen),
        1 => (0..BUFFERS).prop_map(Act::Read),
        1 => (0..BUFFERS, 1..1000_u32).prop_map(|(buffer, with)| Act::Write(buffer, with)),
        1 => Just(Act::Progress),
        1 => (0..STREAMS).prop_map(Act::Drain),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    let policy = prop_oneof![
        2 => Just(Policy::Error),
        2 => (0..3_u32).prop_map(Policy::Retry),
        2 => Just(Policy::Rollback),
    ];
    (0..STREAMS, vec(work(), 1..4), policy).prop_map(|(stream, mut works, policy)| {
        if policy == Policy::Error {
            // One command: without a policy each stands for itself.
            works.truncate(1);
        }
        let written: Vec<_> = works.iter().map(|work| work.to).collect();
        for work in &mut works {
            let is_own = |from: &usize| match policy {
                Policy::Retry(_) => written.contains(from),
                _ => *from == work.to,
            };
            work.from = work.from.filter(|from| !is_own(from));
            // Done again it has to write the same.
            work.adds &= !matches!(policy, Policy::Retry(_));
        }
        Batch { stream, works, policy }
    })
}

fn work() -> impl Strategy<Value = Work> {
    let panics = prop_oneof![15 => Just(0_u32), 2 => Just(1), 1 => Just(2), 1 => Just(9)];
    let from = prop::option::of(0..BUFFERS);
    (0..BUFFERS, from, any::<bool>(), 1..1000_u32, panics, prop::bool::weighted(0.2))
        .prop_map(|(to, from, adds, by, panics, slow)| Work { to, from, adds, by, panics, slow })
}
