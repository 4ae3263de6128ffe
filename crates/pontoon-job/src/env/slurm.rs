//! Slurm says where things are in a notation of its own.

use std::ffi::{OsStr, OsString};

/// The first node of a list such as `gpu[01-03,07],cpu1`.
pub(super) fn first_node(list: &str) -> Option<Box<str>> {
    let (prefix, rest) = match list.find(['[', ',']) {
        None => (list, None),
        Some(at) if list[at..].starts_with(',') => (&list[..at], None),
        Some(at) => (&list[..at], Some(&list[at + 1..])),
    };
    let node = match rest {
        None => prefix.to_owned(),
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            let first = inside.split([',', '-']).next()?;
            let (suffix, _) = after.split_once(',').unwrap_or((after, ""));
            // A suffix with brackets of its own would be a second dimension.
            if first.is_empty() || suffix.contains('[') {
                return None;
            }
            format!("{prefix}{first}{suffix}")
        }
    };
    let plain = |char: char| char.is_ascii_alphanumeric() || "-._:".contains(char);
    (!node.is_empty() && node.chars().all(plain)).then(|| node.into())
}

/// Whether `id` is of a step that `srun` started. Slurm numbers the batch script, the interactive shell
/// and the like from the greatest 32-bit numbers downwards (`SLURM_MAX_NORMAL_STEP_ID`, slurm.h).
pub(super) fn is_step(id: &OsStr) -> bool {
    const NORMAL_MAX: u32 = 0xffff_fff0;
    // What is no number is refused later, by name.
    let number = id.to_str().and_then(|id| id.trim().parse::<u32>().ok());
    number.is_none_or(|id| id <= NORMAL_MAX)
}

/// What is set and what is not, if Slurm's variables name a rank and no step that it would be of. Of
/// rank 0 they tell nothing: a batch script is that, by what its Slurm sets, and no rank of anything.
pub(super) fn without_a_step(
    found: &dyn Fn(&str) -> Option<OsString>,
) -> Option<(&'static str, &'static str)> {
    let (rank, world, step) = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID");
    let id = found(rank)?;
    if id.to_str().is_some_and(|id| id.trim() == "0") {
        return None;
    }
    match (found(world), found(step)) {
        (None, _) => Some((rank, world)),
        (Some(_), None) => Some((rank, step)),
        _ => None,
    }
}

/// A port for step `step` of job `job`: 15000 to 30999.
pub(super) fn port(job: u32, step: u32) -> u16 {
    const FIRST: u32 = 15_000;
    const PORTS: u32 = 16_000;
    // Below 31,000, so it fits.
    (FIRST + job.wrapping_mul(31).wrapping_add(step) % PORTS) as u16
}

#[cfg(test)]
mod tests {
    use super::{first_node, port};

    #[test]
    fn the_first_node_of_every_kind_of_list() {
        for (list, first) in [
            ("node1", "node1"),
            ("a.b-c,d", "a.b-c"),
            ("node[01-03,07]", "node01"),
            ("node[7]", "node7"),
            ("node[3,1]-ib,x", "node3-ib"),
            ("gpu[01-03],cpu[1-2]", "gpu01"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(first_node(list).as_deref(), Some(first), "{list}");
        }
        for wrong in ["", "node[", "node[]", "node[1", "a[1-2]b[3]", "a b", ",a", "n$(x)"] {
            assert_eq!(first_node(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_port_is_below_the_ephemeral_ones() {
        for (job, step) in [(0, 0), (u32::MAX, u32::MAX), (4242, 1)] {
            assert!((15_000..31_000).contains(&port(job, step)));
        }
        assert_ne!(port(7, 0), port(7, 1));
        assert_ne!(port(7, 0), port(8, 0));
    }
}
