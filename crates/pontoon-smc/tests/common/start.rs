//! A home that may be started again.

use std::sync::Arc;

use pontoon_hal::link::Link;
use pontoon_smc::{Home, Pool};

use super::{Pair, pair, silent::Silent};

/// One start of a home: its memory, and the link to it.
pub(crate) struct Start {
    pub(crate) pair: Pair,
    pub(crate) silent: Arc<Silent>,
}

impl Start {
    pub(crate) fn new(pages: usize) -> Self {
        let pair = pair(pages);
        let silent = Silent::over(&pair.link);
        Self { pair, silent }
    }

    pub(crate) fn link(&self) -> Arc<dyn Link> {
        Arc::clone(&self.silent) as _
    }

    pub(crate) fn home(&self, pool: &Pool) -> Home {
        pool.home(&self.link(), self.pair.region.clone()).unwrap().unwrap()
    }
}
