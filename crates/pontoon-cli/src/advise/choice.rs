//! Which way is the best, and why.

use pontoon::hal::paging::PAGE;

use super::{Order, Toucher, costs::Costs};

/// The bytes that costs of small accesses are measured with.
const LINE: usize = 64;

/// What a program does with its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Use {
    pub(super) bytes: usize,
    /// Bytes that are touched at a time.
    pub(super) touch: usize,
    /// How often a byte is touched before others may have changed it.
    pub(super) times: u64,
    pub(super) order: Order,
    pub(super) writes: bool,
    pub(super) by: Toucher,
    pub(super) hosts: u32,
}

/// A way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One address for all, as on one host.
    Unified,
    /// Reads and writes by a link.
    Remote,
    /// Plain loads and stores, by the memory client.
    Client,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Unified, Self::Remote, Self::Client];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unified => "unified addressing",
            Self::Remote => "plain remote access",
            Self::Client => "memory client",
        }
    }
}

/// What is advised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) way: Way,
    pub(super) why: &'static str,
    /// Nanoseconds of all touches of the same bytes, by plain remote access and by the client.
    pub(super) cost: Option<[f64; 2]>,
    /// After how many touches of the same bytes the client has cost what plain remote access has; `None` if it never does.
    pub(super) break_even: Option<f64>,
}

impl Use {
    /// Nanoseconds of all touches of the same bytes by remote accesses.
    fn by_remote(&self, costs: &Costs) -> f64 {
        let beyond = self.touch.saturating_sub(LINE) as f64;
        let once = costs.remote + beyond * costs.remote_byte;
        // What is changed goes back as it came.
        let ways = if self.writes { 2.0 } else { 1.0 };
        once * ways * self.times as f64
    }

    /// The first touch of bytes by the client, the way home included.
    fn first_by_client(&self, costs: &Costs) -> f64 {
        let pages = self.touch.div_ceil(PAGE) as f64;
        let come = match self.order {
            // A touch of less than a page has its part of it.
            Order::Sequential => (self.touch as f64 / PAGE as f64) * costs.in_order,
            Order::Random => costs.miss + (pages - 1.0) * costs.in_order,
        };
        let share = match self.order {
            Order::Sequential => self.touch as f64 / PAGE as f64,
            Order::Random => pages,
        };
        come + if self.writes { share * costs.release } else { 0.0 }
    }

    /// Any further touch.
    fn again_by_client(&self, costs: &Costs) -> f64 {
        self.touch.div_ceil(LINE) as f64 * costs.again
    }

    fn by_client(&self, costs: &Costs) -> f64 {
        self.first_by_client(costs) + (self.times - 1) as f64 * self.again_by_client(costs)
    }

    /// First + (n - 1) again = n remote.
    fn break_even(&self, costs: &Costs) -> Option<f64> {
        let remote = self.by_remote(costs) / self.times as f64;
        let again = self.again_by_client(costs);
        let saved = remote - again;
        (saved > 0.0).then(|| ((self.first_by_client(costs) - again) / saved).max(1.0))
    }
}

impl Choice {
    /// What is best for `of`, where the costs are known.
    pub(super) fn of(of: &Use, costs: Option<&Costs>) -> Self {
        let cost = costs.map(|costs| [of.by_remote(costs), of.by_client(costs)]);
        let break_even = costs.and_then(|costs| of.break_even(costs));
        let say = |way, why| Self { way, why, cost, break_even };
        if of.hosts == 1 {
            return say(
                Way::Unified,
                "all is on one host, where each process can map the same memory",
            );
        }
        match of.by {
            Toucher::Accelerator => say(
                Way::Remote,
                "an accelerator cannot wait for a page: its kernels put and get by themselves",
            ),
            Toucher::Both | Toucher::Cpu => match cost {
                Some([remote, client]) if client < remote => say(
                    Way::Client,
                    if of.by == Toucher::Cpu {
                        "a page that has come is touched for nothing"
                    } else {
                        "for the CPUs, to which a page that has come costs nothing; accelerators put and get beside it"
                    },
                ),
                Some(_) => {
                    say(Way::Remote, "too little of what a page brings is touched to pay for it")
                }
                None if of.times > 1 || of.order == Order::Sequential => say(
                    Way::Client,
                    "not measured: a page pays where it is touched more than once, or comes with others",
                ),
                None => say(
                    Way::Remote,
                    "not measured: a page does not pay where it is touched once, at random",
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        over: "tcp",
        remote: 1000.0,
        remote_byte: 0.5,
        miss: 5000.0,
        in_order: 2000.0,
        again: 10.0,
        release: 3000.0,
    };
    const USE: Use = Use {
        bytes: 1 << 26,
        touch: 64,
        times: 1,
        order: Order::Random,
        writes: false,
        by: Toucher::Cpu,
        hosts: 2,
    };

    fn choice(of: Use) -> (Way, [f64; 2]) {
        let choice = Choice::of(&of, Some(&COSTS));
        (choice.way, choice.cost.expect("measured"))
    }

    #[test]
    fn what_is_touched_once_at_random_is_read_remotely_and_what_is_touched_often_is_mapped() {
        assert_eq!(choice(USE), (Way::Remote, [1000.0, 5000.0]));
        let often = Use { times: 10, ..USE };
        assert_eq!(choice(often), (Way::Client, [10_000.0, 5090.0]));
        let even = Choice::of(&USE, Some(&COSTS)).break_even.expect("it pays");
        assert!((even - 4990.0 / 990.0).abs() < 1e-9, "{even}");
        for (times, way) in [(5, Way::Remote), (6, Way::Client)] {
            assert_eq!(choice(Use { times, ..USE }).0, way, "{times} around {even}");
        }
    }

    #[test]
    fn what_is_changed_pays_for_the_way_back() {
        let changed = Use { times: 2, writes: true, ..USE };
        assert_eq!(choice(changed), (Way::Remote, [4000.0, 8010.0]));
    }

    #[test]
    fn pages_in_order_come_together() {
        let in_order = Use { order: Order::Sequential, ..USE };
        assert_eq!(choice(in_order), (Way::Client, [1000.0, 31.25]));
        let whole = Use { touch: 2 * PAGE, ..in_order };
        assert_eq!(choice(whole), (Way::Client, [1000.0 + 8128.0 * 0.5, 4000.0]));
        let at_random = Use { order: Order::Random, ..whole };
        assert_eq!(choice(at_random), (Way::Remote, [5064.0, 7000.0]));
    }

    #[test]
    fn one_host_needs_neither_and_an_accelerator_cannot_wait_for_pages() {
        assert_eq!(choice(Use { hosts: 1, times: 100, ..USE }).0, Way::Unified);
        assert_eq!(choice(Use { by: Toucher::Accelerator, times: 100, ..USE }).0, Way::Remote);
        assert_eq!(choice(Use { by: Toucher::Both, times: 100, ..USE }).0, Way::Client);
    }

    /// A link as fast as memory: a window never pays.
    #[test]
    fn where_it_never_pays_there_is_no_break_even() {
        let costs = Costs { remote: 10.0, ..COSTS };
        assert_eq!(Choice::of(&USE, Some(&costs)).break_even, None);
    }

    #[test]
    fn what_was_not_measured_is_advised_as_it_mostly_comes_out() {
        let often = Use { times: 2, ..USE };
        let in_order = Use { order: Order::Sequential, ..USE };
        for (of, way) in [(USE, Way::Remote), (often, Way::Client), (in_order, Way::Client)] {
            let choice = Choice::of(&of, None);
            assert_eq!((choice.way, choice.cost), (way, None), "{of:?}");
        }
    }
}
