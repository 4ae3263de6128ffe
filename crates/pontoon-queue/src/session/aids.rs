//! What helps to find an ordering bug, and how the environment turns it on.

use std::{env, ffi::OsStr, sync::OnceLock};

use super::{
    Session,
    dump::Dump,
    full_sync::{FullSync, Unsynced},
    observe::{Added, Observer},
};
use pontoon_hal::Device;

/// All of it is off unless it is asked for.
#[derive(Debug, Default)]
pub(super) struct Aids {
    pub(super) dump: Option<Dump>,
    pub(super) full_sync: Option<FullSync>,
    /// What the host has yet to wait for.
    pub(super) unsynced: Unsynced,
    pub(super) observer: Option<Box<Observer>>,
    pub(super) added: Vec<Added>,
}

/// What the environment asks for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    dump: Option<Dump>,
    full_sync: Option<FullSync>,
}

impl Aids {
    /// What the environment asks for. It is read, and complained of, once a process.
    pub(super) fn from_env() -> Self {
        static ASKED: OnceLock<Asked> = OnceLock::new();
        let asked = ASKED.get_or_init(|| Asked {
            dump: asked("PONTOON_DUMP_DEPS", &Dump::VALUES),
            full_sync: asked("PONTOON_FULL_SYNC", &FullSync::VALUES),
        });
        Self { dump: asked.dump, full_sync: asked.full_sync, ..Self::default() }
    }
}

impl<D: Device> Session<'_, D> {
    /// The same session, which prints who waits for whom whenever a wait of the host expires or a
    /// deadlock or a missing edge is refused. Without it, `PONTOON_DUMP_DEPS` decides.
    pub fn with_dump(mut self, dump: Dump) -> Self {
        self.aids.dump = Some(dump);
        self
    }

    /// The same session, where the host waits after each batch. Without it, `PONTOON_FULL_SYNC`
    /// decides.
    pub fn with_full_sync(mut self, full_sync: FullSync) -> Self {
        self.aids.full_sync = Some(full_sync);
        self
    }
}

/// What a variable of the environment asks for; a value that is not known is told once.
fn asked<T: Copy>(variable: &str, values: &[(&str, Option<T>)]) -> Option<T> {
    let value = env::var_os(variable).filter(|value| !value.is_empty())?;
    read(variable, &value, values).unwrap_or_else(|complaint| {
        eprintln!("{complaint}");
        None
    })
}

fn read<T: Copy>(
    variable: &str,
    value: &OsStr,
    values: &[(&str, Option<T>)],
) -> Result<Option<T>, String> {
    if let Some((_, meant)) = values.iter().find(|(name, _)| value == *name) {
        return Ok(*meant);
    }
    let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
    let [most @ .., last] = &names[..] else { return Ok(None) };
    let value = value.display();
    Err(format!(
        "pontoon: {variable}={value} is not known and changes nothing: use {} or {last}",
        most.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_known_is_told_with_those_that_are() {
        let read_dump = |value: &str| read("PONTOON_DUMP_DEPS", value.as_ref(), &Dump::VALUES);
        assert_eq!(read_dump("json"), Ok(Some(Dump::Json)));
        assert_eq!(read_dump("0"), Ok(None));
        let told = "pontoon: PONTOON_DUMP_DEPS=yes is not known and changes nothing: use 0, 1, json \
                    or dot";
        assert_eq!(read_dump("yes"), Err(told.to_string()));
        let sync = read("PONTOON_FULL_SYNC", "device".as_ref(), &FullSync::VALUES);
        assert_eq!(sync, Ok(Some(FullSync::Device)));
    }
}
