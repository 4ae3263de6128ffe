use super::{BenchError, Options};
use crate::figures::Printer;
use std::io::Write;
pub(super) fn run<W: Write>(_o: &Options, _p: &mut Printer<W>) -> Result<(), BenchError> {
    Ok(())
}
