//! The processes of a job: how they find, know and outlive each other.
//!
//! A launcher tells each process its place by variables, which [`Env`] reads. [`Job::join`] meets
//! the others at rank 0, proves to it and lets it prove that both know the job's [`Token`], and
//! comes back when all are there, with what each of them wanted the others to know. From then on
//! [`Membership`] says without a lock who is alive; a rank that is killed, stopped or cut off is
//! noticed and named at every other, whatever it does. The [`Watcher`] that sees processes of this
//! machine end is of use by itself.
//!
//! Read in this order: [`Env`], [`Job`], [`Membership`], [`Standing`], [`Watcher`].
//! `docs/design/job.md` has the messages drawn, what is authenticated, and every bound.
#![forbid(unsafe_code)]

mod client;
mod control;
mod env;
mod error;
#[cfg(any(test, pontoon_fuzz))]
#[doc(hidden)]
pub mod fuzz;
mod hex;
mod hub;
mod job;
mod join;
mod listen;
mod member;
mod membership;
mod process;
mod server;
mod socket;
mod sys;
mod token;
mod wire;

pub use env::{Env, EnvError, Launcher, Master, WORLD_MAX};
pub use error::{JoinError, StoreError, What};
pub use hub::Strangers;
pub use job::Job;
pub use join::Options;
pub use member::Member;
pub use membership::{Change, Ending, How, Membership, Standing};
pub use pontoon_signal::ProcessId;
pub use process::{HostId, Process, Watcher};
pub use token::{Token, TokenError};
