//! t
pub(crate) mod measure;
use crate::bench::BenchError;
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args, _: &mut impl std::io::Write) -> Result<(), BenchError> {
    Ok(())
}
