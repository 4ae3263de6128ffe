//! What this user has set, or may: the profile of bounds, and how many files may be open.

use std::{io::ErrorKind, path::Path};

use pontoon::signal::{Profile, ProfileError};
use rustix::process::{Resource, getrlimit};

use super::{Finding, Group, Subject};

const NOFILE: Subject = Subject {
    group: Group::Settings,
    name: "nofile",
    used_for: "open files: each region of a device and each table between processes is one",
    how_to_get: "ulimit -n 4096, or a `nofile` line in /etc/security/limits.conf and a new login; \
                 systemd LimitNOFILE=4096; docker --ulimit nofile=4096",
};
const PROFILE: Subject = Subject {
    group: Group::Settings,
    name: "profile",
    used_for: "bounds of waits measured on this machine, instead of the same for all",
    how_to_get: "run pontoon tune",
};

/// 64 devices of the training job have some 1200 regions; this leaves room for the user's own.
const NOFILE_ENOUGH: u64 = 4096;

pub(super) fn probe() -> Vec<Finding> {
    let limit = getrlimit(Resource::Nofile);
    let location = Profile::location();
    let loaded = location.as_ref().map(Profile::load);
    vec![nofile(limit.current, limit.maximum), profile(location.as_deref(), loaded)]
}

/// Judges the soft and the hard limit; `None` is no limit.
fn nofile(soft: Option<u64>, hard: Option<u64>) -> Finding {
    let words =
        |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let mut found = words(soft);
    if hard != soft {
        found += &format!(", may be raised to {}", words(hard));
    }
    NOFILE.ok_if(soft.is_none_or(|limit| limit >= NOFILE_ENOUGH), found)
}

fn profile(file: Option<&Path>, loaded: Option<Result<Profile, ProfileError>>) -> Finding {
    match (file, loaded) {
        (Some(file), Some(Ok(_))) => PROFILE.ok(format!("found at {}", file.display())),
        (_, Some(Err(error))) if !is_absent(&error) => PROFILE.limited(format!("broken: {error}")),
        _ => PROFILE.missing(),
    }
}

fn is_absent(error: &ProfileError) -> bool {
    matches!(error, ProfileError::Unreadable { error, .. } if error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_limit_of_open_files_says_how_far_it_may_be_raised() {
        let found = nofile(Some(1024), Some(1_048_576));
        assert_eq!(
            (found.state, found.found.as_deref()),
            (State::Limited, Some("1024, may be raised to 1048576"))
        );
        assert_eq!(nofile(Some(4096), Some(4096)).state, State::Ok);
        assert_eq!(nofile(None, None).found.as_deref(), Some("unlimited"));
    }

    #[test]
    fn a_profile_is_there_or_not_or_broken() {
        let at = Path::new("p");
        let parsed = |text: &str| Some(Profile::parse(text.as_bytes(), at));
        let good: String = ["thread", "process"]
            .map(|path| format!("{path}.spin 1\n{path}.yields 1\n{path}.deadline_ns 1\n"))
            .concat();
        let found = profile(Some(at), parsed(&format!("version 1\n{good}")));
        assert_eq!((found.state, found.found.as_deref()), (State::Ok, Some("found at p")));
        let broken = profile(Some(at), parsed("version 2\n"));
        assert_eq!(broken.state, State::Limited);
        assert!(broken.found.is_some_and(|text| text.starts_with("broken: p, line 1: expected")));
        let absent = Some(Profile::load("/nonexistent/profile"));
        assert_eq!(profile(Some(at), absent).state, State::Missing);
        assert_eq!(profile(None, None).state, State::Missing);
    }
}
