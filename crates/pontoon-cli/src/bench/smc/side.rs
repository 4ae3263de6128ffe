//! The two ranks: rank 0 is the client, rank 1 is home and does nothing.

use pontoon::{
    Bound, Rank, World,
    hal::paging::PAGE,
    smc::{Exported, Layout},
    world::{Options, Transport, WorldError},
};

use super::{
    BYTES, NAME, SPARSE, bare,
    bare::Bare,
    client::{Client, Served, word_of},
    step::Step,
};
use crate::bench::{
    BenchError,
    ranks::{
        Half, Seat,
        talk::{PATIENCE, Talk},
    },
};

/// One rank.
pub(in crate::bench) struct Side {
    world: World,
    what: What,
    talk: Talk,
}

enum What {
    Client(Box<Client>),
    Home { _exported: Exported },
}

impl Half for Side {
    fn join(seat: Seat<'_>) -> Result<Result<Self, String>, BenchError> {
        let Seat { table, env, ucx, .. } = seat;
        let (transport, all) = if ucx { (Transport::Ucx, BYTES) } else { (Transport::Shm, SPARSE) };
        let bound = Bound::within(PATIENCE);
        let options = Options::default()
            .with_transport(transport)
            .with_slots(1)
            .with_heap(Layout::of(all).region() + (1 << 20))
            .with_lost_after(PATIENCE)
            .with_bound(bound);
        let world = match World::open_in(env, options) {
            Ok(world) => world,
            Err(WorldError::NoWay { why, .. }) => return Ok(Err(why)),
            Err(error) => return Err(error.into()),
        };
        let me = world.rank();
        let what = if me == Rank(0) {
            let bare = if ucx { None } else { Some(Bare::find(&world, Rank(1), bound)?) };
            let remote = world.find(Rank(1), NAME, bound)?;
            let client = Client::open(world.way(Rank(1))?, remote, BYTES, Served::default())?;
            What::Client(Box::new(client.beside(bare)))
        } else {
            let exported = world.export(NAME, all, bound)?;
            // Page by page: as much again may not be to be had.
            let mut page = [0; PAGE];
            for at in (0..BYTES).step_by(PAGE) {
                for (index, word) in page.chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&word_of((at / 8 + index) as u64).to_ne_bytes());
                }
                exported.write(at, &page);
            }
            if !ucx {
                bare::offer(&world, &exported, bound)?;
            }
            What::Home { _exported: exported }
        };
        world.barrier("smc", bound)?;
        let talk = Talk::open(table, me.0)?;
        Ok(Ok(Self { world, what, talk }))
    }

    fn lead(&mut self, word: u64) -> Result<f64, BenchError> {
        let step = Step::of(word).ok_or(BenchError::OutOfStep)?;
        let What::Client(client) = &mut self.what else { return Err(BenchError::OutOfStep) };
        if step != Step::End {
            return client.take(step);
        }
        self.talk.tell(word);
        self.talk.answer()
    }

    fn follow(&mut self) -> Result<bool, BenchError> {
        let step = Step::of(self.talk.next()?).ok_or(BenchError::OutOfStep)?;
        self.talk.done(0.0);
        Ok(step != Step::End)
    }

    fn end() -> u64 {
        Step::End.word()
    }

    fn leave(self) -> Result<(), BenchError> {
        drop(self.what);
        Ok(self.world.leave(Bound::within(PATIENCE))?)
    }
}
