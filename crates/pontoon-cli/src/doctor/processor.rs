//! Processors: which, how many, and what makes their figures differ.

use super::source::{Process, count_ranges, field, read};
use super::{Finding, Group, Subject};

const CPU: Subject = Subject {
    group: Group::Processor,
    name: "cpu",
    used_for: "CPU devices; figures compare only between machines of one model",
    how_to_get: "set by the machine",
};
const CPUS: Subject = Subject {
    group: Group::Processor,
    name: "cpus",
    used_for: "threads that wait by spinning: each needs a processor of its own",
    how_to_get: "give the process more processors: taskset -c, docker --cpuset-cpus, a larger VM",
};
const CPU_LIMIT: Subject = Subject {
    group: Group::Processor,
    name: "cpu-limit",
    used_for: "spinning: a control group that is throttled stands still for tens of milliseconds",
    how_to_get: "raise or lift the limit: docker --cpus, systemd CPUQuota=, Kubernetes limits.cpu",
};
const NUMA: Subject = Subject {
    group: Group::Processor,
    name: "numa-nodes",
    used_for: "placing memory near the threads that use it (not in this version)",
    how_to_get: "set by the machine; numactl --cpunodebind=0 --membind=0 stays on one node",
};
const CACHE_LINE: Subject = Subject {
    group: Group::Processor,
    name: "cache-line",
    used_for: "laying out counters: pontoon keeps each on 128 bytes of its own",
    how_to_get: "set by the processor; some virtual machines do not tell",
};
const CLOCK: Subject = Subject {
    group: Group::Processor,
    name: "clock",
    used_for: "deadlines and measurements: the processor's own counter is read without a system call",
    how_to_get: "boot with clocksource=tsc, where the processor's counter is stable",
};
const HYPERVISOR: Subject = Subject {
    group: Group::Processor,
    name: "hypervisor",
    used_for: "trusting latencies: a guest's processors may be paused, and waking another costs more",
    how_to_get: "measure on the machine itself, or on a guest with processors of its own",
};

/// The processor's own counter, by its name on each architecture.
const COUNTERS: [&str; 2] = ["tsc", "arch_sys_counter"];

pub(super) fn probe(process: &Process) -> Vec<Finding> {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let online = read("/sys/devices/system/cpu/online").as_deref().and_then(count_ranges);
    let nodes = read("/sys/devices/system/node/online").as_deref().and_then(count_ranges);
    let usable = process.usable_cpus;
    vec![
        CPU.ok(model(&cpuinfo)),
        cpus(usable, online),
        cpu_limit(limit(), usable),
        nodes.map_or_else(|| NUMA.missing(), |nodes| NUMA.ok(nodes.to_string())),
        cache_line(),
        clock(read("/sys/devices/system/clocksource/clocksource0/current_clocksource").as_deref()),
        hypervisor(&cpuinfo, read("/sys/class/dmi/id/sys_vendor").as_deref()),
    ]
}

fn model(cpuinfo: &str) -> String {
    let architecture = std::env::consts::ARCH;
    match field(cpuinfo, "model name") {
        Some(model) => format!("{model}, {architecture}"),
        None => architecture.to_owned(),
    }
}

fn cpus(usable: Option<usize>, online: Option<usize>) -> Finding {
    match (usable, online) {
        (Some(usable), Some(online)) => {
            let found = format!("{usable} usable of {online} online");
            CPUS.ok_if(usable >= 2 && usable >= online, found)
        }
        (Some(count), None) => CPUS.ok_if(count >= 2, format!("{count} usable")),
        (None, Some(count)) => CPUS.ok_if(count >= 2, format!("{count} online")),
        (None, None) => CPUS.missing(),
    }
}

/// The tightest limit of the control groups this process is in, in processors.
fn limit() -> Option<f64> {
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let mut limits = Vec::new();
    for level in levels(group_of(&groups, "")) {
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let text = read(format!("{root}{level}/cpu.max"));
            limits.extend(text.as_deref().and_then(quota));
        }
    }
    for level in levels(group_of(&groups, "cpu")) {
        for root in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"] {
            let [quota_us, period_us] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
                .map(|file| read(format!("{root}{level}/{file}")).unwrap_or_default());
            limits.extend(quota(&format!("{quota_us} {period_us}")));
        }
    }
    limits.into_iter().reduce(f64::min)
}

/// The path of the control group that holds `controller`, from `/proc/self/cgroup`; the empty name
/// asks for the group of version 2, which holds all.
fn group_of<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// A group and all above it, as suffixes of the root. A container may not see its own path but
/// sees its group as the root.
fn levels(group: Option<&str>) -> Vec<&str> {
    let mut levels = Vec::new();
    let mut rest = group.map(|path| path.trim_end_matches('/'));
    while let Some(path) = rest {
        levels.push(path);
        rest = path.rfind('/').map(|end| &path[..end]);
    }
    levels
}

/// Processors allowed by a quota and a period, as `cpu.max` has them; `None` is no limit.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn cpu_limit(limit: Option<f64>, usable: Option<usize>) -> Finding {
    let Some(limit) = limit else { return CPU_LIMIT.ok("none found") };
    #[expect(clippy::cast_precision_loss, reason = "processors are few")]
    let enough = usable.is_some_and(|usable| limit >= usable as f64);
    CPU_LIMIT.ok_if(enough, format!("the time of {limit:.2} processors"))
}

fn cache_line() -> Finding {
    match read("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size") {
        Some(size) => CACHE_LINE.ok(format!("{size} bytes")),
        None => CACHE_LINE.missing(),
    }
}

fn clock(source: Option<&str>) -> Finding {
    match source {
        Some(source) => CLOCK.ok_if(COUNTERS.contains(&source), source),
        None => CLOCK.missing(),
    }
}

fn hypervisor(cpuinfo: &str, vendor: Option<&str>) -> Finding {
    let guest =
        field(cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor"));
    match (guest, vendor) {
        (true, Some(vendor)) => HYPERVISOR.limited(format!("a guest of one ({vendor})")),
        (true, None) => HYPERVISOR.limited("a guest of one"),
        (false, _) if field(cpuinfo, "flags").is_some() => HYPERVISOR.ok("none reported"),
        (false, _) => HYPERVISOR.ok("not told by this processor"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    const X86_GUEST: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\n\
        model name\t: AMD EPYC 9R14\nflags\t\t: fpu vme hypervisor lahf_lm\n\n\
        processor\t: 1\nmodel name\t: AMD EPYC 9R14\n";
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n";

    #[test]
    fn the_model_is_named_where_it_is_told() {
        assert!(model(X86_GUEST).starts_with("AMD EPYC 9R14, "));
        assert_eq!(model(ARM), std::env::consts::ARCH);
        assert_eq!(model(""), std::env::consts::ARCH);
    }

    #[test]
    fn a_guest_is_told_from_a_machine_and_from_silence() {
        let guest = hypervisor(X86_GUEST, Some("Amazon EC2"));
        assert_eq!(guest.state, State::Limited);
        assert_eq!(guest.found.as_deref(), Some("a guest of one (Amazon EC2)"));
        let own = hypervisor("flags\t: fpu nohypervisor\n", Some("Dell Inc."));
        assert_eq!(own.found.as_deref(), Some("none reported"));
        assert_eq!(hypervisor(ARM, None).found.as_deref(), Some("not told by this processor"));
    }

    #[test]
    fn one_processor_or_a_part_of_them_is_limited() {
        assert_eq!(cpus(Some(2), Some(2)).state, State::Ok);
        assert_eq!(cpus(Some(2), Some(4)).state, State::Limited);
        assert_eq!(cpus(Some(1), Some(1)).state, State::Limited);
        assert_eq!(cpus(Some(8), None).state, State::Ok);
        assert_eq!(cpus(None, None).state, State::Missing);
    }

    #[test]
    fn groups_of_both_versions_are_found_with_all_above_them() {
        let v2 = "0::/system.slice/app.service\n";
        assert_eq!(levels(group_of(v2, "")), ["/system.slice/app.service", "/system.slice", ""]);
        assert_eq!(levels(group_of("0::/\n", "")), [""]);
        let v1 = "5:cpuset:/set\n4:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n0::/u\n";
        assert_eq!(group_of(v1, "cpu"), Some("/docker/ab"));
        assert_eq!(group_of(v1, ""), Some("/u"));
        assert_eq!(group_of("nonsense\n4:cpu\n", "cpu"), None);
        assert!(levels(None).is_empty());
    }

    #[test]
    fn quotas_of_both_versions_parse() {
        assert_eq!(quota("150000 100000"), Some(1.5));
        assert_eq!(quota("max 100000"), None);
        assert_eq!(quota("-1 100000"), None);
        assert_eq!(quota(" "), None);
        assert_eq!(quota("1 0"), None);
    }

    #[test]
    fn a_quota_limits_only_below_the_usable_processors() {
        assert_eq!(cpu_limit(None, Some(2)).state, State::Ok);
        assert_eq!(cpu_limit(Some(2.0), Some(2)).state, State::Ok);
        let limited = cpu_limit(Some(1.5), Some(2));
        assert_eq!(limited.state, State::Limited);
        assert_eq!(limited.found.as_deref(), Some("the time of 1.50 processors"));
    }

    #[test]
    fn only_the_processors_own_counter_is_ok() {
        assert_eq!(clock(Some("tsc")).state, State::Ok);
        assert_eq!(clock(Some("hpet")).state, State::Limited);
        assert_eq!(clock(None).state, State::Missing);
    }
}
