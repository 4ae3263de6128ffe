//! How UCX is set up.

use std::{env, fmt, time::Duration};

use crate::Version;

/// The sizes of what TCP sends and gets in one piece.
const TCP_SEGMENTS: [&str; 2] = ["TCP_TX_SEG_SIZE", "TCP_RX_SEG_SIZE"];
/// From then on a transport's setting is called in a configuration as it is in the environment;
/// before, without the transport's name.
const PREFIXED: Version = Version { major: 1, minor: 17, release: 0 };

/// How UCX is set up. What is not said here is UCX's own choice, or that of the `UCX_…` variables
/// of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) transports: Option<String>,
    pub(crate) devices: Option<String>,
    pub(crate) keepalive: Duration,
    pub(crate) peer_errors: bool,
    pub(crate) more: Vec<(String, String)>,
}

impl Options {
    /// The transports, as in `UCX_TLS`: `tcp`, `posix`, `rc`. Several are separated by commas.
    #[must_use]
    pub fn transports(mut self, names: &str) -> Self {
        self.transports = Some(names.to_owned());
        self
    }

    /// The network devices, as in `UCX_NET_DEVICES`: `lo`, `eth0`, `mlx5_0:1`.
    #[must_use]
    pub fn devices(mut self, names: &str) -> Self {
        self.devices = Some(names.to_owned());
        self
    }

    /// How often a silent peer is looked at. UCX's own 20 s would let a dead one pass for alive
    /// that long.
    #[must_use]
    pub fn keepalive(mut self, every: Duration) -> Self {
        self.keepalive = every;
        self
    }

    /// Any other setting of UCX by its name without `UCX_`, whatever the environment says.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.more.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Endpoints that do not notice a peer's death: for measuring what noticing costs.
    #[doc(hidden)]
    #[must_use]
    pub fn without_peer_errors(mut self) -> Self {
        self.peer_errors = false;
        self
    }

    /// The transports and devices asked for, by the caller or by variables.
    pub(crate) fn asked(&self) -> Asked {
        self.asked_of(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn asked_of(&self, variable: impl Fn(&'static str) -> Option<String>) -> Asked {
        let choice = |given: &Option<String>, name| match given {
            Some(names) => Some(Choice { names: names.clone(), variable: None }),
            None => variable(name).map(|names| Choice { names, variable: Some(name) }),
        };
        let transports = choice(&self.transports, "UCX_TLS");
        Asked { transports, devices: choice(&self.devices, "UCX_NET_DEVICES") }
    }

    /// Whether one of the `wanted` transports may be used. UCX complains of settings that no
    /// transport takes.
    fn may_use(&self, wanted: &[&str]) -> bool {
        let names = self.transports.clone().or_else(|| env::var("UCX_TLS").ok());
        let Some(names) = names else { return true };
        let is_wanted = |name: &str| wanted.contains(&name.trim());
        match names.strip_prefix('^') {
            // All but those named.
            Some(refused) => !refused.split(',').any(is_wanted),
            None => names.split(',').any(is_wanted),
        }
    }

    /// The settings in the order in which they are made.
    pub(crate) fn settings(&self, version: Version) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
        if let Some(names) = &self.transports {
            set("TLS", names);
        }
        if let Some(names) = &self.devices {
            set("NET_DEVICES", names);
        }
        set("KEEPALIVE_INTERVAL", &format!("{}us", self.keepalive.as_micros().max(1)));
        if self.may_use(&["posix", "sysv", "shm", "sm", "mm", "all"]) {
            // Without it an endpoint that is to notice a peer's death finds shared memory
            // unreachable. As a variable it is UCX_POSIX_ERROR_HANDLING; this is its name within.
            set("MM_ERROR_HANDLING", "y");
        }
        if self.may_use(&["tcp", "all"]) {
            // UCX's 8 KiB cost a system call each. With these, streams were two to four times as
            // fast, and nothing slower; docs/design/ucx.md has the figures.
            for name in TCP_SEGMENTS {
                if env::var_os(format!("UCX_{name}")).is_none() {
                    set(if version < PREFIXED { &name["TCP_".len()..] } else { name }, "256k");
                }
            }
        }
        settings.extend(self.more.iter().cloned());
        settings
    }
}

/// The transports and devices that were asked for. Its text is a sentence's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    transports: Option<Choice>,
    devices: Option<Choice>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    names: String,
    /// Which variable it is of; `None` is the caller.
    variable: Option<&'static str>,
}

impl Asked {
    /// Whether a variable of the environment said some of it.
    pub(crate) fn is_of_variables(&self) -> bool {
        [&self.transports, &self.devices].into_iter().flatten().any(|it| it.variable.is_some())
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transports, devices) = (&self.transports, &self.devices);
        match transports {
            None => f.write_str("all")?,
            Some(choice) => choice.fmt(f)?,
        }
        match devices {
            None => f.write_str(" on all devices"),
            Some(choice) => write!(f, " on the devices {choice}"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names, variable } = self;
        match variable {
            None => f.write_str(names),
            Some(name) => write!(f, "{name}={names}"),
        }
    }
}

impl Default for Options {
    /// UCX's choice of transports, and a look at silent peers every 200 ms.
    fn default() -> Self {
        let keepalive = Duration::from_millis(200);
        Self { transports: None, devices: None, keepalive, peer_errors: true, more: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, PREFIXED};
    use crate::Version;
    use crate::{SetupError, Status};

    #[test]
    fn shared_memory_is_told_to_notice_deaths_where_it_is_used() {
        let told = |options: Options| {
            options.settings(Version::OLDEST).iter().any(|it| it.0 == "MM_ERROR_HANDLING")
        };
        assert!(told(Options::default()));
        assert!(told(Options::default().transports("tcp,posix")));
        assert!(told(Options::default().transports("^ib")));
        assert!(!told(Options::default().transports("^shm")));
        assert!(!told(Options::default().transports("tcp,self")));
    }

    #[test]
    fn what_is_not_there_is_told_with_who_asked_for_it() {
        let set = |name: &'static str| match name {
            "UCX_TLS" => Some("nonsense".to_owned()),
            _ => None,
        };
        let status = Status(-14);
        let asked = Options::default().devices("eth9").asked_of(set);
        let text = SetupError::NoTransport { asked, status }.to_string();
        let part = "UCX has no transport of UCX_TLS=nonsense on the devices eth9: no such device";
        assert!(text.starts_with(part) && text.contains("unset the variables"), "{text}");
        let asked = Options::default().transports("tcp").asked_of(|_| None);
        let text = SetupError::NoTransport { asked: asked.clone(), status }.to_string();
        assert!(text.contains("of tcp on all devices") && !text.contains("unset"), "{text}");
        let text = SetupError::Unreachable { call: "ucp_ep_create", asked, status: Status(-6) };
        let text = text.to_string();
        assert!(
            text.contains("destination is unreachable") && text.contains("in common"),
            "{text}"
        );
    }

    #[test]
    fn what_the_caller_sets_comes_last() {
        let options = Options::default().transports("tcp").setting("TX_SEG_SIZE", "8k");
        let settings = options.settings(Version::OLDEST);
        let last = settings.iter().rfind(|it| it.0 == "TX_SEG_SIZE");
        assert_eq!(last.map(|it| &*it.1), Some("8k"));
        let later = Options::default().transports("tcp").settings(PREFIXED);
        assert!(later.iter().any(|it| it.0 == "TCP_TX_SEG_SIZE"), "{later:?}");
        assert!(!settings.iter().any(|it| it.0 == "MM_ERROR_HANDLING"), "{settings:?}");
    }
}
