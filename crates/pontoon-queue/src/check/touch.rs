//! What each entry does to which bytes of which allocation.

use std::{collections::BTreeMap, ops::Range};

use super::{
    program::{Act, BufferId, Mode, Program},
    validate::Places,
};

/// What an entry does to a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    read: bool,
    write: bool,
    atomic: bool,
}

/// What kinds of effects never conflict with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    Readers,
    Atomics,
    /// Conflicts with its own kind too.
    Alone,
}

impl Effect {
    pub(super) fn writes(self) -> bool {
        self.write || self.atomic
    }

    pub(super) fn conflicts(self, other: Self) -> bool {
        self.company() != other.company() || self.company() == Company::Alone
    }

    pub(super) fn company(self) -> Company {
        match (self.read, self.write, self.atomic) {
            (_, false, false) => Company::Readers,
            (false, false, true) => Company::Atomics,
            _ => Company::Alone,
        }
    }

    fn add(&mut self, mode: Mode) {
        match mode {
            Mode::Read => self.read = true,
            Mode::Write => self.write = true,
            Mode::ReadWrite => (self.read, self.write) = (true, true),
            Mode::Atomic => self.atomic = true,
        }
    }
}

/// One run of bytes to which an entry does the same.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    pub(super) entry: usize,
    pub(super) range: Range<u64>,
    pub(super) effect: Effect,
    /// The earlier entries that freed what the bytes were reached through.
    pub(super) freed_by: Vec<usize>,
    pub(super) is_free: bool,
}

/// Of each allocation that is touched, the touches, in the order of the program.
pub(super) fn touches(program: &Program, places: &Places) -> BTreeMap<BufferId, Vec<Touch>> {
    let mut touches = BTreeMap::<_, Vec<_>>::new();
    let mut frees = vec![Vec::new(); program.buffers.len()];
    for (entry, what) in program.entries.iter().enumerate() {
        let mut own = BTreeMap::<_, Vec<_>>::new();
        let mut add = |buffer: BufferId, range: &Range<u64>, mode, frees: &[Vec<usize>]| {
            let (allocation, bytes) = places.bytes(buffer, range);
            if !bytes.is_empty() {
                let freed_by = freed_by(program, frees, buffer);
                own.entry(allocation).or_default().push((bytes, mode, freed_by));
            }
        };
        for access in what.accesses() {
            add(access.buffer, &access.range, access.mode, &frees);
        }
        let is_free = if let Act::Free(buffer) = what.act {
            add(buffer, &(0..program.buffers[buffer.0].size), Mode::Write, &frees);
            frees[buffer.0].push(entry);
            true
        } else {
            false
        };
        for (allocation, parts) in own {
            touches.entry(allocation).or_default().extend(disjoint(entry, &parts, is_free));
        }
    }
    touches
}

type Part = (Range<u64>, Mode, Vec<usize>);

/// The earlier entries that freed the buffer or one that it is a view of.
fn freed_by(program: &Program, frees: &[Vec<usize>], buffer: BufferId) -> Vec<usize> {
    let mut all = Vec::new();
    let mut at = Some(buffer);
    while let Some(buffer) = at {
        all.extend_from_slice(&frees[buffer.0]);
        at = program.buffers[buffer.0].of.map(|(of, _)| of);
    }
    all.sort_unstable();
    all
}

/// Parts that may overlap become ones that do not.
fn disjoint(entry: usize, parts: &[Part], is_free: bool) -> Vec<Touch> {
    let touch = |range: Range<u64>, parts: &mut dyn Iterator<Item = &Part>| {
        let mut touch =
            Touch { entry, range, effect: Effect::default(), freed_by: Vec::new(), is_free };
        for (_, mode, freed_by) in parts {
            touch.effect.add(*mode);
            touch.freed_by.extend_from_slice(freed_by);
        }
        touch.freed_by.sort_unstable();
        touch.freed_by.dedup();
        touch
    };
    if let [(range, ..)] = parts {
        return vec![touch(range.clone(), &mut parts.iter())];
    }
    let mut bounds: Vec<_> =
        parts.iter().flat_map(|(range, ..)| [range.start, range.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let cuts = bounds.windows(2).filter_map(|pair| {
        let inside = |part: &&Part| part.0.start <= pair[0] && pair[1] <= part.0.end;
        let any = parts.iter().any(|part| inside(&part));
        any.then(|| touch(pair[0]..pair[1], &mut parts.iter().filter(inside)))
    });
    cuts.collect()
}
