//! A server of memory that is killed and started again, stopped, and cut off, while threads of a client read and write
//! its memory by plain loads and stores: each access ends in time, and what is read is what was written, what the server
//! has, or the pattern. A word goes back to what its home was started again with, and to what it was before stores of which the
//! window tells that they are lost: to nothing else. In the end home has what the window has, byte for byte.

#[path = "../common/mod.rs"]
mod common;

mod client;
mod delay;
mod ledger;
mod server;
mod workers;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use client::{Client, Healed};
use common::{Chance, hosts::Hosts, number};
use ledger::Ledger;
use pontoon::{
    hal::conformance::part,
    smc::{Feature, Features},
    ucx::Library,
    world::Transport,
};
use rustix::process::Signal;
use server::Server;
use workers::work;

/// Faults of the ordinary run, of which two fifths are between hosts.
const FAULTS: u32 = 30;

fn faults() -> u32 {
    number("PONTOON_MEMORY_FAULTS", FAULTS)
}

fn windows() -> Option<()> {
    let features = Features::probe();
    let needed = [Feature::Missing, Feature::SigBus, Feature::WriteProtect, Feature::Move];
    let lacking = needed.into_iter().find(|&feature| !features.has(feature));
    part::needed("userfaultfd", lacking.map_or(Ok(()), Err))
}

/// What becomes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is killed, and started again with other contents.
    Kill,
    /// It is stopped, for a while.
    Stop,
    /// Its cable is out, for a while.
    Cut,
}

#[test]
fn a_client_outlives_its_server_over_shm() {
    let Some(()) = windows() else { return };
    let server = Server::here();
    survive("over shm", server, Transport::Shm, &[Fault::Kill, Fault::Stop], faults() * 3 / 5);
}

#[test]
fn a_client_outlives_its_server_between_hosts() {
    let Some(()) = windows() else { return };
    let Some(_) = part::needed("ucx", Library::open()) else { return };
    let Some(hosts) = Hosts::up("mf", 2) else { return };
    let all = [Fault::Kill, Fault::Stop, Fault::Cut];
    let share = faults() - faults() * 3 / 5;
    // All threads of the client are of the second host.
    hosts.inside(2, || {
        survive("between hosts", Server::on(&hosts, 1), Transport::Auto, &all, share);
    });
}

fn survive(what: &str, mut server: Server, transport: Transport, kinds: &[Fault], faults: u32) {
    let mut chance = Chance::new(what);
    server.start(transport);
    let mut client = Client::new(&server, transport);
    let (ledger, mut counts) = (Ledger::new(), [0_u32; 3]);
    let (mut healed, mut slowest) = ([0_u32; 3], Duration::ZERO);
    thread::scope(|scope| {
        let window = client.window();
        let (ledger, over) = (&ledger, ledger.over());
        let seeds: Vec<u32> = (0..workers::THREADS).map(|_| chance.below(u32::MAX)).collect();
        let workers = (0..).zip(seeds).map(|(me, seed)| {
            let window = Arc::clone(&window);
            scope.spawn(move || work(&window, ledger, me, seed))
        });
        let workers: Vec<_> = workers.collect();
        for _ in 0..faults {
            thread::sleep(Duration::from_millis(chance.below(60).into()));
            let fault = chance.of(kinds);
            counts[fault as usize] += 1;
            let began = Instant::now();
            match fault {
                Fault::Kill => {
                    server.kill();
                    thread::sleep(Duration::from_millis(chance.below(80).into()));
                    ledger.starts_again();
                    server.start(transport);
                }
                Fault::Stop => {
                    server.signal(Signal::STOP);
                    thread::sleep(Duration::from_millis(chance.below(400).into()));
                    server.signal(Signal::CONT);
                }
                Fault::Cut => {
                    server.cut(true);
                    thread::sleep(Duration::from_millis(chance.below(800).into()));
                    server.cut(false);
                }
            }
            let how: Healed = client.heal(&mut server, ledger, fault == Fault::Kill);
            healed[how as usize] += 1;
            slowest = slowest.max(began.elapsed());
        }
        drop(over);
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
    let found = ledger.counts();
    let statistics = client.window().statistics();
    println!(
        "{what}: {faults} faults ({} kills, {} stops, {} cuts), healed {} by themselves, {} by joining, {} by starting \
         the server again; {found}; the longest fault took {slowest:?}; {statistics:?}",
        counts[0], counts[1], counts[2], healed[0], healed[1], healed[2],
    );
    let (here, home) = (client.end(), server.end());
    let differ = (0..here.len()).filter(|&at| here[at] != home[at]).count();
    println!("{what}: {} bytes of home compared with the window's, {differ} differ", home.len());
    assert_eq!((here.len(), differ), (home.len(), 0));
    assert!(found.accesses > 0 && found.stores > 0);
}
