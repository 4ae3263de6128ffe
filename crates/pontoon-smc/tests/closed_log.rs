//! A window whose home is dead is closed within a bound, and a line of the log says what is lost.
#![cfg(not(pontoon_loom))]

mod common;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Client, Plain, lines::Lines, pair, silent::Silent, until};
use pontoon_hal::{link::Link, paging::PAGE};
use pontoon_smc::{Extent, OpenError, Pool, Settings};

const PAGES: usize = 32;
const LOST: &str = "a window was dropped, and what was stored to it and not released is lost";

#[test]
fn what_a_dead_home_does_not_take_is_one_line_and_its_number_is_given_again() {
    let lines = Lines::of_all();
    let (well, lame) = (pair(PAGES), pair(PAGES));
    let mut settings = Settings::for_pages(128);
    settings.deadline = Duration::from_millis(300);
    (settings.threshold, settings.ahead) = (1000, 1);
    let pool = Pool::new(settings.clone()).unwrap();
    let home = pool.home(&well.link, well.region.clone()).unwrap().unwrap();
    let open = |plain: &Arc<Plain>| {
        pool.window(plain.clone(), vec![Extent::new(0..PAGES * PAGE, home.clone(), 0)])
    };
    // All numbers but one are taken all the time.
    let plains: Vec<_> = (0..63).map(|_| Plain::new(PAGES)).collect();
    let _others: Vec<_> = plains.iter().map(|plain| open(plain).unwrap()).collect();
    for (round, is_dead) in [true, false].into_iter().enumerate() {
        let silent = Silent::over(&lame.link);
        let link: Arc<dyn Link> = Arc::clone(&silent) as _;
        let lame = pool.home(&link, lame.region.clone()).unwrap().unwrap();
        let plain = Plain::new(PAGES);
        let extents = vec![Extent::new(0..PAGES * PAGE, lame.clone(), 0)];
        let client = Client::new(pool.window(plain.clone(), extents).unwrap(), plain.clone());
        (0..PAGES).for_each(|page| client.touch(page));
        for page in [3, 4, 5, 9] {
            client.store(page * PAGE, 1);
        }
        assert_eq!(open(&Plain::new(PAGES)).map(drop), Err(OpenError::Windows));
        if is_dead {
            silent.die();
        } else {
            silent.be_silent(true);
        }
        let started = Instant::now();
        drop(client);
        let again = Plain::new(PAGES);
        until("its number", || open(&again).is_ok());
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert!(started.elapsed() >= Duration::from_millis(300), "it was not tried for long");
        until("its pages", || pool.resident() == 0 && Arc::strong_count(&plain) == 1);
        // Once for each of these windows.
        let told = lines.with(LOST);
        assert_eq!(told.len(), round + 1, "{told:?}");
        let line = &told[round];
        let bytes = format!("[{:?}, {:?}]", 3 * PAGE..6 * PAGE, 9 * PAGE..10 * PAGE);
        assert_eq!((line.field("homes"), line.field("bytes")), ("[0]", &*bytes));
        assert_eq!(line.field("window"), "63");
        until("the next one to be closed", || Arc::strong_count(&again) == 1);
    }
    // What home has is no loss.
    let client = Plain::new(PAGES);
    let client = Client::new(open(&client).unwrap(), client);
    client.store(0, 1);
    drop(client);
    until("it to be home", || well.at_home(0) == 1);
    assert_eq!(lines.with(LOST).len(), 2);
    // A pool that goes says so too, once its time is over.
    let silent = Silent::over(&lame.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let going = Pool::new(settings.clone()).unwrap();
    let home = going.home(&link, lame.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extents = vec![Extent::new(0..PAGES * PAGE, home, 0)];
    let client = Client::new(going.window(plain.clone(), extents).unwrap(), plain);
    (3..5).for_each(|page| client.store(page * PAGE, 1));
    silent.be_silent(true);
    let started = Instant::now();
    drop((client, going));
    assert!(started.elapsed() >= Duration::from_millis(300), "it was not tried for long");
    let told = lines.with(LOST);
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[2].field("bytes"), format!("[{:?}]", 3 * PAGE..5 * PAGE));
    // What could not be put back is lost at once.
    settings.deadline = Duration::from_secs(20);
    let silent = Silent::over(&lame.link);
    let link: Arc<dyn Link> = Arc::clone(&silent) as _;
    let short = Pool::new(settings).unwrap();
    let home = short.home(&link, lame.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extents = vec![Extent::new(0..PAGES * PAGE, home, 0)];
    let client = Client::new(short.window(plain.clone(), extents).unwrap(), plain.clone());
    client.store(7 * PAGE, 1);
    silent.be_silent(true);
    plain.lose();
    drop(client);
    until("it to be closed", || Arc::strong_count(&plain) == 1);
    let told = lines.with(LOST);
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[3].field("bytes"), format!("[{:?}]", 7 * PAGE..8 * PAGE));
}
