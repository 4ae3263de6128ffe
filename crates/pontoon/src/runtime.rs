//! The devices of this process.

use pontoon_cpu::{CpuDevice, CpuSpec, OpenDeviceError};
use pontoon_signal::Rank;

/// The devices of this process, numbered from 0.
///
/// Dropping it ends the devices once the commands that run have ended: a kernel that never returns
/// keeps the drop waiting, since a thread cannot be stopped.
#[derive(Debug)]
pub struct Runtime {
    devices: Vec<CpuDevice>,
}

impl Runtime {
    /// Opens `devices` CPU devices of the default size. They may outnumber the cores; with none the
    /// runtime is empty.
    ///
    /// # Errors
    ///
    /// See [`OpenDeviceError`].
    pub fn cpu(devices: u32) -> Result<Self, OpenDeviceError> {
        Self::cpu_of(devices, CpuSpec::default())
    }

    /// Opens `devices` CPU devices of the size `spec`.
    ///
    /// # Errors
    ///
    /// See [`OpenDeviceError`].
    pub fn cpu_of(devices: u32, spec: CpuSpec) -> Result<Self, OpenDeviceError> {
        let devices = (0..devices).map(|rank| CpuDevice::open(Rank(rank), spec));
        Ok(Self { devices: devices.collect::<Result<_, _>>()? })
    }

    /// The devices, by rank.
    pub fn devices(&self) -> &[CpuDevice] {
        &self.devices
    }
}
