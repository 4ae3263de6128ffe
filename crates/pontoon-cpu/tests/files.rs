//! Regions are limited by memory, not by how many files a process may have open.

use pontoon_cpu::{CpuDevice, CpuSpec};
use pontoon_hal::{Device, Memory};
use pontoon_signal::Rank;
use rustix::process::{Resource, Rlimit};

/// One test alone: the limit is the process's.
#[test]
fn there_may_be_more_regions_than_files() {
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    let device = CpuDevice::open(Rank(0), CpuSpec::default()).unwrap();
    let regions: Vec<_> = (0..2000)
        .map(|count| {
            let region = device.allocate(4).unwrap_or_else(|error| panic!("{count}: {error}"));
            region.host_write(0, &[1; 4]).unwrap();
            region
        })
        .collect();
    println!("{} regions under a limit of 64 files", regions.len());
}
