//! The routes of a lane: what the numbers in its tasks mean, and when a number may mean another route.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex},
};

use pontoon_signal::{
    Seq,
    shim::{AtomicU64, Ordering::*},
};

use crate::channel::{Route, locked};

/// What ports and the proxy share of a lane's routes. Those of a trigger are its own from the start, and are
/// not here.
///
/// Invariant C2: a number is another route's only once no task with it is in the ring or under way, and the
/// proxy has forgotten what it was. Its last port tells how far the ring was when it went: no task with it is
/// behind that, and what is before has been seen to by the time that *done* is there (N1).
#[derive(Debug, Default)]
pub(crate) struct Routes {
    table: Mutex<Table>,
    /// How many numbers were ever retired. The proxy looks at it each turn, and locks only for news.
    retired: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    routes: Vec<Option<Arc<Route>>>,
    free: Vec<u16>,
    /// Numbers whose last port is gone, and how far the ring was then, for the proxy to fetch.
    retired: Vec<(u16, Seq)>,
    /// Set once nobody looks anything up any more.
    is_over: bool,
}

impl Routes {
    /// How many numbers are not to be had; of a lane that has ended, more than of any other.
    pub(crate) fn in_use(&self) -> usize {
        let table = locked(&self.table);
        if table.is_over { usize::MAX } else { table.routes.len() - table.free.len() }
    }

    /// Gives `route` a number, if one is to be had. Where the lane has ended it means nothing, for nothing is
    /// pushed there.
    pub(crate) fn add(&self, route: &Arc<Route>) -> Option<u16> {
        let mut table = locked(&self.table);
        if table.is_over {
            return Some(0);
        }
        if let Some(number) = table.free.pop() {
            table.routes[usize::from(number)] = Some(Arc::clone(route));
            return Some(number);
        }
        let number = u16::try_from(table.routes.len()).ok()?;
        table.routes.push(Some(Arc::clone(route)));
        Some(number)
    }

    /// The last port with `number` is gone, and the ring is as far as `head` says.
    pub(crate) fn retire(&self, number: u16, head: impl FnOnce() -> Seq) {
        let mut table = locked(&self.table);
        if table.is_over {
            return;
        }
        // Looked at under the lock, so that what is retired later is behind.
        table.retired.push((number, head()));
        self.retired.fetch_add(1, Relaxed);
    }

    /// Nobody looks anything up any more.
    pub(crate) fn close(&self) {
        let mut table = locked(&self.table);
        let all = mem::replace(&mut *table, Table { is_over: true, ..Table::default() });
        drop(table);
        // Not under the lock: a link may have something to do for what is given back.
        drop(all);
    }
}

/// What the proxy knows of a lane's routes, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Known {
    routes: Vec<Option<Arc<Route>>>,
    /// Of [`Routes::retired`], what was fetched.
    fetched: u64,
    /// Retired ones that a task may yet name, in the order of their ends.
    retired: VecDeque<(u16, Seq)>,
}

impl Known {
    /// All that a trigger's tasks name.
    pub(crate) fn all(routes: Vec<Arc<Route>>) -> Self {
        Self { routes: routes.into_iter().map(Some).collect(), ..Self::default() }
    }

    /// The route with `number`.
    #[inline]
    pub(crate) fn find(&mut self, shared: &Routes, number: u16) -> Option<&Route> {
        let at = usize::from(number);
        if self.routes.get(at).is_none_or(Option::is_none) {
            self.learn(shared, at);
        }
        self.routes.get(at)?.as_deref()
    }

    #[cold]
    fn learn(&mut self, shared: &Routes, at: usize) {
        let found = locked(&shared.table).routes.get(at).cloned().flatten();
        if self.routes.len() <= at {
            self.routes.resize(at + 1, None);
        }
        self.routes[at] = found;
    }

    /// Forgets what no task names any more, now that all before `done` is done (C2).
    #[inline]
    pub(crate) fn forget(&mut self, shared: &Routes, done: Seq) {
        if shared.retired.load(Relaxed) != self.fetched {
            self.fetch(shared);
        }
        if self.retired.front().is_some_and(|(_, end)| done.is_at_or_past(*end)) {
            self.give_back(shared, done);
        }
    }

    #[cold]
    fn fetch(&mut self, shared: &Routes) {
        let mut table = locked(&shared.table);
        self.fetched = shared.retired.load(Relaxed);
        self.retired.extend(table.retired.drain(..));
    }

    #[cold]
    fn give_back(&mut self, shared: &Routes, done: Seq) {
        let passed = self.retired.iter().take_while(|(_, end)| done.is_at_or_past(*end)).count();
        let mut gone = Vec::with_capacity(2 * passed);
        let mut table = locked(&shared.table);
        for (number, _) in self.retired.drain(..passed) {
            let at = usize::from(number);
            gone.push(self.routes.get_mut(at).and_then(Option::take));
            if let Some(route) = table.routes.get_mut(at) {
                gone.push(route.take());
                table.free.push(number);
            }
        }
        drop(table);
        // Not under the lock: a link may have something to do for what is given back.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Routes};
    use crate::channel::Route;
    use pontoon_hal::link::{Registered, Remote};
    use pontoon_signal::{Block, Rank, Seq};
    use std::{ptr, sync::Arc};

    fn route() -> Arc<Route> {
        let block = Block::private("a route's", 64).expect("memory");
        let source = Registered::new(block, None, Arc::new(()));
        Arc::new(Route::new(source, Remote::new(Rank(1), 64, Arc::new(())), None))
    }

    /// C2, with numbers of the ring on both sides of its wrap.
    #[test]
    fn a_number_is_another_routes_once_what_has_it_is_done() {
        let (shared, mut known, [first, second]) =
            (Routes::default(), Known::default(), [(); 2].map(|()| route()));
        assert_eq!((shared.add(&first), shared.add(&second)), (Some(0), Some(1)));
        let found = known.find(&shared, 0).expect("it is there");
        assert!(ptr::eq(found, &*first));
        let start = Seq::new(u64::MAX - 1);
        shared.retire(1, || start + 2);
        shared.retire(0, || start + 4);
        for done in [0, 1] {
            known.forget(&shared, start + done);
            assert_eq!((shared.in_use(), Arc::strong_count(&second)), (2, 2), "{done}");
        }
        known.forget(&shared, start + 3);
        assert_eq!((shared.in_use(), Arc::strong_count(&second)), (1, 1));
        // What was not looked up before may be yet.
        assert!(known.find(&shared, 0).is_some() && known.find(&shared, 1).is_none());
        let third = route();
        assert_eq!(shared.add(&third), Some(1));
        assert!(ptr::eq(known.find(&shared, 1).expect("it is there"), &*third));
        known.forget(&shared, start + 4);
        assert_eq!((shared.in_use(), Arc::strong_count(&first)), (1, 1));
        assert!(known.find(&shared, 0).is_none());
    }

    #[test]
    fn there_are_as_many_as_a_task_can_name() {
        let (shared, mut known, route) = (Routes::default(), Known::default(), route());
        for number in 0..=u16::MAX {
            assert_eq!(shared.add(&route), Some(number));
        }
        assert_eq!(shared.add(&route), None);
        shared.retire(7, || Seq::new(0));
        known.forget(&shared, Seq::new(0));
        assert_eq!((shared.add(&route), shared.add(&route)), (Some(7), None));
    }

    #[test]
    fn a_lane_that_has_ended_keeps_nothing() {
        let (shared, route) = (Routes::default(), route());
        assert_eq!(shared.add(&route), Some(0));
        shared.close();
        assert!(shared.add(&route).is_some());
        shared.retire(0, || panic!("nobody asks"));
        assert_eq!((shared.in_use(), Arc::strong_count(&route)), (usize::MAX, 1));
    }
}
