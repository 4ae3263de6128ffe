//! The bytes of a server's memory, by plain loads.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    path::PathBuf,
};

use super::{ToolError, client::Reach};
use crate::size;
use crate::stdout::stdout;

/// Writes bytes of a server's memory to standard output, read by plain loads.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    reach: Reach,
    /// From which byte on.
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = size::bytes)]
    at: usize,
    /// How many; all from there on, unless given.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    bytes: Option<usize>,
    /// Writes to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<(), ToolError> {
    options.reach.to_read(|client| {
        let range = client.range(options.at, options.bytes)?;
        let mut output: Box<dyn Write> = match &options.output {
            Some(path) => Box::new(File::create(path).map_err(|error| ToolError::File {
                path: path.clone(),
                verb: "write",
                error,
            })?),
            None => Box::new(stdout()),
        };
        let (mut buffer, mut wrote) = (Vec::new(), 0);
        for piece in client.pieces(range) {
            buffer.resize(piece.len(), 0);
            client.get(piece.start, &mut buffer).map_err(|loss| ToolError::Cut { loss, wrote })?;
            match output.write_all(&buffer).and_then(|()| output.flush()) {
                // Who reads it has read enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                Err(error) => return Err(ToolError::Output(error)),
                Ok(()) => wrote += buffer.len() as u64,
            }
        }
        Ok(())
    })
}
