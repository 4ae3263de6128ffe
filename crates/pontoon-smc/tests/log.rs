//! What a pool says in the log of a home that does not answer: a line a burst, however many accesses wait in vain.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    fmt,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use common::{Client, Plain, pair, silent::Silent};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_smc::{Extent, Pool, Settings};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

const PAGES: usize = 128;

/// The lines of a log, as their messages and how many accesses they tell of.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(String, u64)>>>);

struct Fields(String, u64);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "accesses" {
            self.1 = value;
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pontoon::smc" && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new(), 0);
        event.record(&mut fields);
        self.0.lock().unwrap().push((fields.0, fields.1));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    /// How many accesses each line about them tells of.
    fn of_accesses(&self) -> Vec<u64> {
        let lines = self.0.lock().unwrap();
        let of = lines.iter().filter(|(text, _)| text.contains("waited for pages in vain"));
        of.map(|&(_, accesses)| accesses).collect()
    }
}

#[test]
fn accesses_that_wait_in_vain_are_a_line_a_burst() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let pair = pair(PAGES);
    let silent = Silent::over(&pair.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let mut settings = Settings::for_pages(256);
    (settings.deadline, settings.ahead) = (Duration::from_millis(5), 1);
    // Each of them waits.
    (settings.threshold, settings.burst) = (1000, Duration::from_secs(2));
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&link, pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extents = vec![Extent::new(0..PAGES * PAGE, home, 0)];
    let client = Client::new(pool.window(plain.clone(), extents).unwrap(), plain);
    silent.be_silent(true);
    let started = Instant::now();
    let mut pages = 0..PAGES;
    let told = |all: u64| {
        let waiting = Instant::now();
        while lines.of_accesses().iter().sum::<u64>() < all {
            assert!(waiting.elapsed() < Duration::from_secs(30), "{:?}", lines.of_accesses());
            thread::sleep(Duration::from_millis(5));
        }
    };
    client.touch(pages.next().unwrap());
    told(1);
    let first = started.elapsed();
    for page in pages.by_ref().take(60) {
        client.touch(page);
    }
    let is_within = started.elapsed() + Duration::from_millis(100) < first + Duration::from_secs(2);
    if is_within {
        assert_eq!(lines.of_accesses(), [1], "one of a burst");
    }
    told(61);
    assert!(started.elapsed() >= Duration::from_secs(2) || !is_within);
    let bursts = lines.of_accesses();
    let most = 2 + started.elapsed().as_secs() as usize / 2;
    assert!(bursts.len() <= most, "{bursts:?} in {:?}", started.elapsed());
    assert_eq!(bursts.iter().sum::<u64>(), 61, "each access is in a line");
}
