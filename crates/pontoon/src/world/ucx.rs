//! Connecting the ranks that are reached by UCX.

use pontoon_signal::Rank;
use pontoon_ucx::{LinkSetupError, UcxLink};

use super::{World, WorldError, alive::Left};

/// Connects the link that this rank opened with all of `peers`, each of which opened one too. `host_of`
/// is for errors. All ranks of the job call it, or none: where there are two hosts, each rank has a peer
/// on the other.
pub(super) fn connect(
    world: &World,
    opened: Result<UcxLink, LinkSetupError>,
    peers: &[Rank],
    host_of: &dyn Fn(Rank) -> Box<str>,
    left: &Left,
) -> Result<UcxLink, WorldError> {
    let no_way = |peer: Rank, why: String| WorldError::NoWay { peer, host: host_of(peer), why };
    // All learn at once who has no UCX, and why: nobody is taken for dead who ends for that.
    let lack = opened.as_ref().err().map(LinkSetupError::to_string).unwrap_or_default();
    let lacks = world.job().all_gather(b"pontoon/ucx", lack.as_bytes(), left.now());
    let link = opened.map_err(|error| no_way(peers[0], error.to_string()))?;
    for (lack, rank) in lacks?.iter().zip(0..) {
        if !lack.is_empty() {
            return Err(no_way(Rank(rank), format!("there, {}", String::from_utf8_lossy(lack))));
        }
    }
    for &peer in peers {
        let card = link.card(peer).map_err(|error| no_way(peer, error.to_string()))?;
        world.job().set(&key_of(world.rank, peer), &card, left.now())?;
    }
    for &peer in peers {
        let card = world.get_from(peer, &key_of(peer, world.rank), left)?;
        link.connect(peer, &card).map_err(|why| WorldError::NotConnected {
            peer,
            host: host_of(peer),
            why,
        })?;
    }
    Ok(link)
}

/// Where `from` puts what `to` needs to reach it.
fn key_of(from: Rank, to: Rank) -> Vec<u8> {
    format!("pontoon/ucx/{from}/{to}").into_bytes()
}
