//! Releases that end in something that others wait for: never before all of it is home.
#![cfg(not(pontoon_loom))]

mod common;

use std::{sync::Arc, time::Duration};

use common::{Client, Pair, Plain, modest::Modest, pair, patient, silent::Silent};
use pontoon_hal::{
    link::{Link, LinkError},
    paging::PAGE,
};
use pontoon_signal::{Bound, Rank};
use pontoon_smc::{Extent, Pool, Settings, SmcError};

const PAGES: usize = 64;
const FLAG: usize = 32 * PAGE;

fn scene(over: impl Fn(&Arc<dyn Link>) -> Arc<dyn Link>) -> (Pair, Client) {
    let pair = pair(PAGES);
    let mut settings = Settings::for_pages(64);
    settings.deadline = Duration::from_millis(50);
    let pool = Pool::new(settings).unwrap();
    let home = pool.home(&over(&pair.link), pair.region.clone()).unwrap().unwrap();
    let plain = Plain::new(PAGES);
    let extents = vec![Extent::new(0..PAGES * PAGE, home, 0)];
    let client = Client::new(pool.window(plain.clone(), extents).unwrap(), plain);
    (pair, client)
}

#[test]
fn a_signal_goes_out_once_all_is_home() {
    let silent = std::sync::Mutex::new(None);
    let (pair, client) = scene(|link| {
        let over = Silent::over(link);
        *silent.lock().unwrap() = Some(Arc::clone(&over));
        over
    });
    let silent = silent.into_inner().unwrap().unwrap();
    let mut signal = pair.link.attach_signal(Rank(0), 3).unwrap();
    let before = signal.value();
    client.store(5, 1);
    client.store(9 * PAGE, 2);
    // Both writes, and one of two announcements.
    silent.be_silent_after(3);
    let short = Bound::within(Duration::from_millis(30));
    let mut release =
        |bound| client.window.release_signal(0..PAGES * PAGE, &*pair.link, &mut signal, 2, bound);
    release(short).unwrap_err();
    silent.be_silent(false);
    let released = release(patient()).unwrap();
    assert_eq!((released.pages, pair.at_home(5), pair.at_home(9 * PAGE)), (2, 1, 2));
    // With nothing to release it is told all the same.
    assert_eq!(release(patient()).unwrap().pages, 0);
    assert_eq!(signal.value(), before + 4, "twice, and not when it failed");
    // A link that has no room for it yet is asked again, and another link's is refused.
    let foreign = scene(Arc::clone).0;
    let refused = client.window.release_signal(0..PAGE, &*foreign.link, &mut signal, 1, patient());
    assert!(matches!(refused, Err(SmcError::Link(LinkError::Foreign(_)))), "{refused:?}");
    assert_eq!(signal.value(), before + 4);
}

#[test]
fn a_flag_for_kernels_grows_once_all_is_home() {
    let silent = std::sync::Mutex::new(None);
    let (pair, client) = scene(|link| {
        let over = Silent::over(link);
        *silent.lock().unwrap() = Some(Arc::clone(&over));
        over
    });
    let silent = silent.into_inner().unwrap().unwrap();
    client.touch(32);
    client.store(5, 1);
    // An addition is answered, and no write.
    silent.be_silent_after(0);
    let short = Bound::within(Duration::from_millis(30));
    client.window.publish(0..PAGE, FLAG, 1, short).unwrap_err();
    assert_eq!(pair.at_home(FLAG), 0, "it was told of what is not there");
    silent.be_silent(false);
    assert_eq!(client.window.publish(0..PAGE, FLAG, 1, patient()), Ok(0));
    assert_eq!((pair.at_home(5), pair.at_home(FLAG), client.load(FLAG)), (1, 1, 1));
    assert_eq!(client.window.publish(0..PAGE, FLAG, 2, patient()), Ok(1));
    assert_eq!(pair.at_home(FLAG), 3);
    client.window.publish(0..PAGE, FLAG + 4, 1, patient()).unwrap_err();
    client.window.publish(0..PAGE, PAGES * PAGE, 1, patient()).unwrap_err();
}

/// A link that cannot say it to running kernels says so, and nothing is released.
#[test]
fn a_link_that_cannot_publish_is_named() {
    let (pair, client) = scene(Modest::over);
    client.store(5, 1);
    let refused = client.window.publish(0..PAGE, FLAG, 1, patient()).unwrap_err();
    assert!(matches!(refused, SmcError::Unable { home: Rank(0), link: "modest", .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("release_signal") && !text.contains('\n'), "{text}");
    assert_eq!((pair.at_home(5), pair.at_home(FLAG)), (0, 0));
}
