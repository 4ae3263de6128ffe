//! Devices of the machine: RDMA ports, NVIDIA GPUs and network interfaces.

use rustix::fs::{Access, access};

use super::source::{names, read};
use super::{Finding, Group, Subject};

const RDMA: Subject = Subject {
    group: Group::Devices,
    name: "rdma-ports",
    used_for: "memory of other hosts, by RDMA: where UCX uses it, and without UCX not in this version",
    how_to_get: "a network card with RDMA and its driver; without one, in software: modprobe \
                 rdma_rxe; rdma link add rxe0 type rxe netdev eth0",
};
const NVIDIA_DRIVER: Subject = Subject {
    group: Group::Devices,
    name: "nvidia-driver",
    used_for: "NVIDIA GPUs as devices (not in this version)",
    how_to_get: "an NVIDIA GPU and its driver: www.nvidia.com/drivers",
};
const NVIDIA_GPUS: Subject = Subject {
    group: Group::Devices,
    name: "nvidia-gpus",
    used_for: "NVIDIA GPUs as devices (not in this version)",
    how_to_get: "an NVIDIA GPU and its driver; in a container docker --gpus all",
};
const NETWORK: Subject = Subject {
    group: Group::Devices,
    name: "network",
    used_for: "ranks and links between hosts",
    how_to_get: "ip link set INTERFACE up, as root; in a container a network other than none",
};

/// Interfaces named in the report; a host of containers has hundreds.
const NAMED: usize = 6;

pub(super) fn probe() -> Vec<Finding> {
    vec![
        rdma(&ports(), any_open("/dev/infiniband", "uverbs")),
        nvidia_driver(read("/proc/driver/nvidia/version").as_deref()),
        nvidia_gpus(&numbered(&names("/dev"), "nvidia"), opens("/dev/nvidiactl")),
        network(&interfaces()),
    ]
}

fn opens(path: &str) -> bool {
    access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
}

fn any_open(folder: &str, prefix: &str) -> bool {
    numbered(&names(folder), prefix).iter().any(|name| opens(&format!("{folder}/{name}")))
}

/// The names that are `prefix` and a number.
fn numbered(names: &[String], prefix: &str) -> Vec<String> {
    let is_numbered = |name: &&String| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    names.iter().filter(is_numbered).cloned().collect()
}

/// A port of an RDMA device.
struct Port {
    name: String,
    link: Option<String>,
    /// Such as `4: ACTIVE`.
    state: Option<String>,
    /// Such as `100 Gb/sec (4X EDR)`.
    rate: Option<String>,
}

fn ports() -> Vec<Port> {
    const ROOT: &str = "/sys/class/infiniband";
    let mut ports = Vec::new();
    for device in names(ROOT) {
        for port in names(format!("{ROOT}/{device}/ports")) {
            let at = |file| read(format!("{ROOT}/{device}/ports/{port}/{file}"));
            let name = format!("{device}/{port}");
            ports.push(Port { name, link: at("link_layer"), state: at("state"), rate: at("rate") });
        }
    }
    ports
}

fn rdma(ports: &[Port], verbs_open: bool) -> Finding {
    if ports.is_empty() {
        return RDMA.missing();
    }
    let state = |port: &Port| {
        let state = port.state.as_deref().unwrap_or("state unknown");
        state.split_once(": ").map_or(state, |(_, word)| word).to_owned()
    };
    let words: Vec<String> = ports
        .iter()
        .map(|port| {
            let parts = [port.link.clone(), Some(state(port)), port.rate.clone()];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("{} {}", port.name, parts.join(" "))
        })
        .collect();
    let mut found = words.join("; ");
    if !verbs_open {
        found += "; /dev/infiniband/uverbs* is closed to this user";
    }
    RDMA.ok_if(verbs_open && ports.iter().any(|port| state(port) == "ACTIVE"), found)
}

/// Judges by the first line of `/proc/driver/nvidia/version`.
fn nvidia_driver(text: Option<&str>) -> Finding {
    let Some(line) = text.and_then(|text| text.lines().next()) else {
        return NVIDIA_DRIVER.missing();
    };
    let version = line
        .split_whitespace()
        .find(|word| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    NVIDIA_DRIVER.ok(match (version, line.contains("Open Kernel Module")) {
        (Some(version), true) => format!("{version}, open kernel module"),
        (Some(version), false) => version.to_owned(),
        (None, _) => line.to_owned(),
    })
}

fn nvidia_gpus(gpus: &[String], control_open: bool) -> Finding {
    if gpus.is_empty() {
        return NVIDIA_GPUS.missing();
    }
    let paths: Vec<String> = gpus.iter().map(|gpu| format!("/dev/{gpu}")).collect();
    let mut found = paths.join(", ");
    if !control_open {
        found += "; /dev/nvidiactl is closed to this user";
    }
    NVIDIA_GPUS.ok_if(control_open, found)
}

/// A network interface other than the loopback.
struct Interface {
    name: String,
    up: bool,
    mbit_per_s: Option<u64>,
}

fn interfaces() -> Vec<Interface> {
    names("/sys/class/net")
        .into_iter()
        .filter(|name| name != "lo")
        .map(|name| {
            let [operstate, speed] = ["operstate", "speed"]
                .map(|file| read(format!("/sys/class/net/{name}/{file}")).unwrap_or_default());
            // Minus one, or no answer at all, stands for a speed that is not known.
            let mbit_per_s = speed.parse().ok().filter(|&speed| speed > 0);
            Interface { name, up: operstate == "up", mbit_per_s }
        })
        .collect()
}

fn network(interfaces: &[Interface]) -> Finding {
    let up: Vec<&Interface> = interfaces.iter().filter(|interface| interface.up).collect();
    let mut words: Vec<String> = up
        .iter()
        .take(NAMED)
        .map(|Interface { name, mbit_per_s, .. }| format!("{name} up, {}", speed(*mbit_per_s)))
        .collect();
    if up.len() > NAMED {
        words.push(format!("{} more up", up.len() - NAMED));
    }
    match (up.len(), interfaces.len() - up.len()) {
        (0, 0) => NETWORK.missing(),
        (0, down) => NETWORK.limited(format!("{down} down")),
        (_, 0) => NETWORK.ok(words.join("; ")),
        (_, down) => NETWORK.ok(format!("{}; {down} down", words.join("; "))),
    }
}

fn speed(mbit_per_s: Option<u64>) -> String {
    match mbit_per_s {
        None => "speed not told".to_owned(),
        Some(mbit) if mbit >= 1000 && mbit % 1000 == 0 => format!("{} Gbit/s", mbit / 1000),
        Some(mbit) if mbit >= 1000 => format!("{}.{} Gbit/s", mbit / 1000, mbit % 1000 / 100),
        Some(mbit) => format!("{mbit} Mbit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn port(name: &str, state: &str) -> Port {
        Port {
            name: name.to_owned(),
            link: Some("InfiniBand".to_owned()),
            state: Some(state.to_owned()),
            rate: Some("100 Gb/sec (4X EDR)".to_owned()),
        }
    }

    #[test]
    fn a_port_must_be_active_and_open() {
        let ports = [port("mlx5_0/1", "4: ACTIVE"), port("mlx5_1/1", "1: DOWN")];
        let found = rdma(&ports, true);
        assert_eq!(found.state, State::Ok);
        assert_eq!(
            found.found.as_deref(),
            Some(
                "mlx5_0/1 InfiniBand ACTIVE 100 Gb/sec (4X EDR); \
                 mlx5_1/1 InfiniBand DOWN 100 Gb/sec (4X EDR)"
            )
        );
        assert_eq!(rdma(&ports, false).state, State::Limited);
        assert_eq!(rdma(&ports[1..], true).state, State::Limited);
        assert_eq!(rdma(&[], true).state, State::Missing);
        let silent = Port { name: "rxe0/1".to_owned(), link: None, state: None, rate: None };
        assert_eq!(rdma(&[silent], true).found.as_deref(), Some("rxe0/1 state unknown"));
    }

    #[test]
    fn the_driver_version_is_found_in_either_form() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 \
                      19:39:15 UTC 2024\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
        assert_eq!(nvidia_driver(Some(closed)).found.as_deref(), Some("535.183.01"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release \
                    Build  (dvs-builder@U22)\n";
        assert_eq!(nvidia_driver(Some(open)).found.as_deref(), Some("580.159, open kernel module"));
        let numbered = "NVRM version: Kernel Module 64  580.159";
        assert_eq!(nvidia_driver(Some(numbered)).found.as_deref(), Some("580.159"));
        assert_eq!(nvidia_driver(Some("strange")).found.as_deref(), Some("strange"));
        assert_eq!(nvidia_driver(Some("")).state, State::Missing);
        assert_eq!(nvidia_driver(None).state, State::Missing);
    }

    #[test]
    fn gpus_are_told_from_the_drivers_other_files() {
        let dev =
            ["nvidia", "nvidia-uvm", "nvidia0", "nvidia12", "nvidiactl", "null"].map(str::to_owned);
        let gpus = numbered(&dev, "nvidia");
        assert_eq!(gpus, ["nvidia0", "nvidia12"]);
        assert_eq!(nvidia_gpus(&gpus, true).found.as_deref(), Some("/dev/nvidia0, /dev/nvidia12"));
        assert_eq!(nvidia_gpus(&gpus, false).state, State::Limited);
        assert_eq!(nvidia_gpus(&[], true).state, State::Missing);
    }

    #[test]
    fn speeds_read_well() {
        assert_eq!(speed(None), "speed not told");
        assert_eq!(speed(Some(100)), "100 Mbit/s");
        assert_eq!(speed(Some(2500)), "2.5 Gbit/s");
        assert_eq!(speed(Some(200_000)), "200 Gbit/s");
    }

    #[test]
    fn many_interfaces_are_counted_not_listed() {
        let interface = |index: u32, up| Interface {
            name: format!("veth{index}"),
            up,
            mbit_per_s: Some(10_000),
        };
        let mut all: Vec<Interface> = (0..9).map(|index| interface(index, true)).collect();
        all.push(interface(9, false));
        let found = network(&all).found.expect("interfaces");
        assert!(found.starts_with("veth0 up, 10 Gbit/s; "), "{found}");
        assert!(found.ends_with("veth5 up, 10 Gbit/s; 3 more up; 1 down"), "{found}");
        assert_eq!(network(&all[9..]).state, State::Limited);
        assert_eq!(network(&[]).state, State::Missing);
    }
}
