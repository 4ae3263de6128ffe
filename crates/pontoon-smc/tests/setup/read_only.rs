//! Windows that are read only, and homes whose pages have numbers.
#![allow(dead_code, reason = "each test uses its part")]

use std::sync::Arc;

use crate::common::{Pair, counted::Counted, pair};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_smc::{Extent, Home, Pool, Window};
use pontoon_uffd::{Service, Serving};

pub(crate) const PAGES: usize = 256;
pub(crate) const WHOLE: core::ops::Range<usize> = 0..PAGES * PAGE;
pub(crate) const PATTERN: u64 = 0x5A5A_5A5A_5A5A_5A5A;

/// A home each of whose pages has its number, plus `plus`, in its first word.
pub(crate) fn numbered(plus: u64) -> Pair {
    let pair = pair(PAGES);
    (0..PAGES).for_each(|page| put(&pair, page, page as u64 + plus));
    pair
}

pub(crate) fn put(pair: &Pair, page: usize, value: u64) {
    pair.put_home(page * PAGE, &value.to_ne_bytes());
}

/// The links that a home is reached by: one that says where its memory is mapped here, and one that does not.
pub(crate) fn links(pair: &Pair) -> [Arc<dyn Link>; 2] {
    [Arc::clone(&pair.link), Counted::over(&pair.link, pair.layout.data()) as _]
}

pub(crate) fn home(pool: &Pool, pair: &Pair, link: &Arc<dyn Link>) -> Home {
    pool.home(link, pair.region.clone()).unwrap().unwrap()
}

/// A window of one extent that is read only, over the kernel's paging; `None`, and says so, on a kernel that cannot.
pub(crate) fn real(pool: &Pool, extent: Extent, service: Service) -> Option<(Window, Serving)> {
    super::over(pool, vec![extent.read_only().pattern(PATTERN)], service)
}
