//! Windows over the kernel's paging that are written through.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod read_only;

use std::{sync::Arc, time::Duration};

use crate::common::{Pair, counted::Counted, patient};
use pontoon_hal::{conformance::part, link::Link, paging::PAGE};
use pontoon_smc::{Arrival, Extent, Pool, Settings, Through, Window};
use pontoon_uffd::{Features, Paged, Service, Serving, on_this_thread};

pub(crate) struct Real {
    pub(crate) window: Window,
    pub(crate) through: Through,
    _serving: Serving,
}

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::for_pages(64);
    // A loaded machine is no dead home.
    settings.deadline = Duration::from_secs(20);
    settings
}

/// A window on all of the pair's memory; `None`, and says so, on a kernel that cannot.
pub(crate) fn plain(
    pair: &Pair,
    link: &Arc<dyn Link>,
    settings: Settings,
    service: Service,
) -> Option<(Window, Serving)> {
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(link, pair.region.clone()).unwrap().unwrap();
    over(&pool, vec![Extent::new(0..pair.layout.pages() * PAGE, home, 0)], service)
}

/// A window made of those extents; `None`, and says so, on a kernel that cannot.
pub(crate) fn over(
    pool: &Pool,
    extents: Vec<Extent>,
    service: Service,
) -> Option<(Window, Serving)> {
    let bytes = extents.iter().map(|extent| extent.bytes().end).max().unwrap();
    let paged = part::needed("userfaultfd", Paged::reserve(&Features::probe(), bytes, service))?;
    // For as long as the thread is.
    core::mem::forget(on_this_thread().unwrap());
    let window = pool.window(paged.clone(), extents).unwrap();
    let serving = paged.serve(window.pager(), 2).unwrap();
    Some((window, serving))
}

/// One that is written through.
pub(crate) fn real(
    pair: &Pair,
    link: &Arc<dyn Link>,
    settings: Settings,
    service: Service,
    arrival: Arrival,
) -> Option<Real> {
    let (window, serving) = plain(pair, link, settings, service)?;
    let through = window.write_through(0..window.bytes(), arrival, patient()).unwrap();
    Some(Real { window, through, _serving: serving })
}

/// As most tests want it: all of it, at home at once, over a link that counts.
pub(crate) fn counted(pair: &Pair, service: Service) -> Option<(Real, Arc<Counted>)> {
    let link = Counted::over(&pair.link, pair.layout.data());
    let shared: Arc<dyn Link> = Arc::clone(&link) as _;
    let real = real(pair, &shared, settings(), service, Arrival::AtHome)?;
    Some((real, link))
}

pub(crate) fn at_home(pair: &Pair, at: usize, bytes: usize) -> Vec<u8> {
    (at..at + bytes).map(|at| pair.at_home(at)).collect()
}

pub(crate) const BOTH: [Service; 2] = [Service::InThread, Service::Served];
