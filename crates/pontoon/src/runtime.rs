//! The devices of this process.

use pontoon_cpu::{CpuDevice, CpuSpec, OpenDeviceError};
use pontoon_signal::Rank;

/// Each device has threads of its own, and an idle one wakes now and then: beyond this the machine would
/// be busy with that alone.
const DEVICES_MAX: u32 = 256;

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
        if devices > DEVICES_MAX {
            let (asked, most) = (devices, DEVICES_MAX);
            return Err(OpenDeviceError::TooManyDevices { asked, most });
        }
        let devices = (0..devices).map(|rank| CpuDevice::open(Rank(rank), spec));
        Ok(Self { devices: devices.collect::<Result<_, _>>()? })
    }

    /// The devices, by rank.
    pub fn devices(&self) -> &[CpuDevice] {
        &self.devices
    }
}

#[cfg(test)]
mod tests {
    use super::Runtime;

    #[test]
    fn too_many_devices_are_refused_before_one_is_opened() {
        let refused = Runtime::cpu(100_000).unwrap_err().to_string();
        assert_eq!(refused, "a runtime has at most 256 CPU devices, not 100000");
    }
}
