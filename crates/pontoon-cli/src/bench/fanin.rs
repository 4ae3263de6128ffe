use std::io::Write;
use super::{BenchError, Options};
use crate::figures::Printer;
pub(super) fn run<W: Write>(_o: &Options, _p: &mut Printer<W>) -> Result<(), BenchError> { Ok(()) }
