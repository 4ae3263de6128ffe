//! What a target begins with.

use std::{env, fs, path::Path};

/// Writes `seeds` to the folder that `PONTOON_FUZZ_SEEDS` names, if it names one.
pub(crate) fn write(seeds: Vec<Vec<u8>>) {
    let Some(folder) = env::var_os("PONTOON_FUZZ_SEEDS") else { return };
    assert!(!seeds.is_empty(), "a target begins with something");
    for (at, seed) in seeds.iter().enumerate() {
        let path = Path::new(&folder).join(format!("seed-{at:03}"));
        fs::write(&path, seed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
