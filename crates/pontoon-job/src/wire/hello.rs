//! How a connection begins: who calls, and why it is sent away.

use pontoon_signal::Rank;

use super::{MAGIC, Malformed, Reader, VERSION, Writer};
use crate::{HostId, Process, ProcessId, env::JOB_MAX, process::HOST_NAME_MAX, token::Nonce};

/// Who calls. Nothing of it is believed before the proof that covers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) rank: Rank,
    pub(crate) world: u32,
    pub(crate) epoch: u32,
    pub(crate) nonce: Nonce,
    pub(crate) process: Process,
    pub(crate) job: Box<str>,
}

/// A call that is not of this version; all that is known of it.
pub(crate) struct Foreign {
    pub(crate) version: u16,
}

impl Hello {
    pub(super) fn write(&self, to: &mut Writer) {
        to.raw(&MAGIC).u16(VERSION);
        to.u32(self.rank.0).u32(self.world).u32(self.epoch).raw(&self.nonce);
        write_process(to, &self.process);
        to.bytes(self.job.as_bytes());
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Result<Self, Foreign>, Malformed> {
        let version = read_version(from)?;
        if version != VERSION {
            return Ok(Err(Foreign { version }));
        }
        Ok(Ok(Self {
            rank: Rank(from.u32()?),
            world: from.u32()?,
            epoch: from.u32()?,
            nonce: from.array()?,
            process: read_process(from)?,
            job: from.text(JOB_MAX)?,
        }))
    }
}

/// A caller is sent away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The version of whoever refuses.
    pub(crate) version: u16,
    pub(crate) reason: Reason,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The versions differ; also any reason that only another version knows.
    Version,
    Token,
    Job {
        ours: Box<str>,
    },
    /// The caller gave another number of ranks than rank 0 has.
    World {
        ours: u32,
    },
    /// Another process has the rank.
    Taken {
        by: Process,
        epoch: u32,
    },
    /// The rank was here, in this epoch or a later one, and is no more.
    Stale {
        epoch: u32,
    },
    /// The job takes nobody back.
    Closed,
}

impl Refused {
    pub(crate) fn because(reason: Reason) -> Self {
        Self { version: VERSION, reason }
    }

    pub(super) fn write(&self, to: &mut Writer) {
        to.raw(&MAGIC).u16(self.version);
        match &self.reason {
            Reason::Version => to.u8(0),
            Reason::Token => to.u8(1),
            Reason::Job { ours } => to.u8(2).bytes(ours.as_bytes()),
            Reason::World { ours } => to.u8(3).u32(*ours),
            Reason::Taken { by, epoch } => {
                write_process(to.u8(4), by);
                to.u32(*epoch)
            }
            Reason::Stale { epoch } => to.u8(5).u32(*epoch),
            Reason::Closed => to.u8(6),
        };
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = read_version(from)?;
        if version != VERSION {
            // Its reasons may have other numbers; that it is of another version is reason enough.
            let _ = from.rest();
            return Ok(Self { version, reason: Reason::Version });
        }
        let reason = match from.u8()? {
            0 => Reason::Version,
            1 => Reason::Token,
            2 => Reason::Job { ours: from.text(JOB_MAX)? },
            3 => Reason::World { ours: from.u32()? },
            4 => Reason::Taken { by: read_process(from)?, epoch: from.u32()? },
            5 => Reason::Stale { epoch: from.u32()? },
            6 => Reason::Closed,
            kind => return Err(Malformed::Kind(kind)),
        };
        Ok(Self { version, reason })
    }
}

fn read_version(from: &mut Reader<'_>) -> Result<u16, Malformed> {
    if from.array()? != MAGIC {
        return Err(Malformed::Magic);
    }
    from.u16()
}

pub(super) fn write_process(to: &mut Writer, process: &Process) {
    to.u32(process.id.pid).u64(process.id.start_time).raw(&process.host.0);
    to.bytes(process.host_name.as_bytes());
}

pub(super) fn read_process(from: &mut Reader<'_>) -> Result<Process, Malformed> {
    Ok(Process {
        id: ProcessId { pid: from.u32()?, start_time: from.u64()? },
        host: HostId(from.array()?),
        host_name: from.text(HOST_NAME_MAX)?,
    })
}
