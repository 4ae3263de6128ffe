//! Links of tests that are another link in all but some methods.

/// Writes methods of an `impl Link` that hand the call to the link in a field: those that are named, each a
/// rule here. What is not named is written by hand, so that a test says which calls it does not look at.
///
/// ```
/// use pontoon_hal::{conformance::link::delegate_link, link::Link};
///
/// #[derive(Debug)]
/// struct Renamed(std::sync::Arc<dyn Link>);
///
/// impl Link for Renamed {
///     fn name(&self) -> &'static str {
///         "renamed"
///     }
///     delegate_link!(0: rank, capabilities, peer_state, end_peer, register, attach, attach_signal);
///     delegate_link!(0: owns, write, write_inline, read, write_signal, signal, post_add, add, compare_swap);
///     delegate_link!(0: fence, flush, completions, moves_by_itself, progress, wait, explain, report);
/// }
/// ```
#[macro_export]
macro_rules! delegate_link {
    ($link:tt: $($method:ident),+ $(,)?) => { $($crate::delegate_link!(@$method $link);)+ };
    (@name $link:tt) => {
        fn name(&self) -> &'static str { self.$link.name() }
    };
    (@rank $link:tt) => {
        fn rank(&self) -> ::pontoon_signal::Rank { self.$link.rank() }
    };
    (@capabilities $link:tt) => {
        fn capabilities(
            &self,
            peer: ::pontoon_signal::Rank,
        ) -> Result<$crate::link::LinkCapabilities, $crate::link::LinkError> {
            self.$link.capabilities(peer)
        }
    };
    (@peer_state $link:tt) => {
        fn peer_state(&self, peer: ::pontoon_signal::Rank) -> $crate::link::PeerState {
            self.$link.peer_state(peer)
        }
    };
    (@end_peer $link:tt) => {
        fn end_peer(&self, peer: ::pontoon_signal::Rank, ending: ::pontoon_signal::Ending) {
            self.$link.end_peer(peer, ending);
        }
    };
    (@register $link:tt) => {
        fn register(
            &self,
            block: &::pontoon_signal::Block,
        ) -> Result<$crate::link::Registered, $crate::link::LinkError> {
            self.$link.register(block)
        }
    };
    (@attach $link:tt) => {
        fn attach(
            &self,
            peer: ::pontoon_signal::Rank,
            key: &$crate::link::RegionKey,
        ) -> Result<$crate::link::Remote, $crate::link::LinkError> {
            self.$link.attach(peer, key)
        }
    };
    (@owns $link:tt) => {
        fn owns(
            &self,
            from: &$crate::link::Registered,
            to: &$crate::link::Remote,
            signal: Option<&mut $crate::link::RemoteSignal>,
        ) -> Result<(), $crate::link::LinkError> {
            self.$link.owns(from, to, signal)
        }
    };
    (@attach_signal $link:tt) => {
        fn attach_signal(
            &self,
            peer: ::pontoon_signal::Rank,
            slot: u32,
        ) -> Result<$crate::link::RemoteSignal, $crate::link::LinkError> {
            self.$link.attach_signal(peer, slot)
        }
    };
    (@write $link:tt) => {
        fn write(
            &self,
            from: &$crate::link::Registered,
            range: ::core::ops::Range<usize>,
            to: &$crate::link::Remote,
            offset: usize,
        ) -> Result<::pontoon_signal::Seq, $crate::link::LinkError> {
            self.$link.write(from, range, to, offset)
        }
    };
    (@write_inline $link:tt) => {
        fn write_inline(
            &self,
            bytes: &[u8],
            to: &$crate::link::Remote,
            offset: usize,
        ) -> Result<::pontoon_signal::Seq, $crate::link::LinkError> {
            self.$link.write_inline(bytes, to, offset)
        }
    };
    (@read $link:tt) => {
        fn read(
            &self,
            from: &$crate::link::Remote,
            offset: usize,
            into: &$crate::link::Registered,
            range: ::core::ops::Range<usize>,
        ) -> Result<::pontoon_signal::Seq, $crate::link::LinkError> {
            self.$link.read(from, offset, into, range)
        }
    };
    (@mapped $link:tt) => {
        fn mapped(
            &self,
            from: &$crate::link::Remote,
            offset: usize,
            bytes: usize,
        ) -> Result<Option<::pontoon_signal::Block>, $crate::link::LinkError> {
            self.$link.mapped(from, offset, bytes)
        }
    };
    (@write_signal $link:tt) => {
        fn write_signal(
            &self,
            from: &$crate::link::Registered,
            range: ::core::ops::Range<usize>,
            to: &$crate::link::Remote,
            offset: usize,
            signal: &mut $crate::link::RemoteSignal,
            n: u32,
            order: $crate::link::Order,
        ) -> Result<::pontoon_signal::Seq, $crate::link::LinkError> {
            self.$link.write_signal(from, range, to, offset, signal, n, order)
        }
    };
    (@signal $link:tt) => {
        fn signal(
            &self,
            signal: &mut $crate::link::RemoteSignal,
            n: u32,
            order: $crate::link::Order,
        ) -> Result<::pontoon_signal::Seq, $crate::link::LinkError> {
            self.$link.signal(signal, n, order)
        }
    };
    (@post_add $link:tt) => {
        fn post_add(
            &self,
            to: &$crate::link::Remote,
            offset: usize,
            n: u64,
            reply: Option<(&$crate::link::Registered, usize)>,
        ) -> Result<::pontoon_signal::Seq, $crate::link::LinkError> {
            self.$link.post_add(to, offset, n, reply)
        }
    };
    (@add $link:tt) => {
        fn add(
            &self,
            to: &$crate::link::Remote,
            offset: usize,
            n: u64,
            bound: ::pontoon_signal::Bound,
        ) -> Result<u64, $crate::link::LinkError> {
            self.$link.add(to, offset, n, bound)
        }
    };
    (@compare_swap $link:tt) => {
        fn compare_swap(
            &self,
            to: &$crate::link::Remote,
            offset: usize,
            expected: u64,
            new: u64,
            bound: ::pontoon_signal::Bound,
        ) -> Result<u64, $crate::link::LinkError> {
            self.$link.compare_swap(to, offset, expected, new, bound)
        }
    };
    (@fence $link:tt) => {
        fn fence(&self, peer: ::pontoon_signal::Rank) -> Result<(), $crate::link::LinkError> {
            self.$link.fence(peer)
        }
    };
    (@flush $link:tt) => {
        fn flush(
            &self,
            peer: ::pontoon_signal::Rank,
            bound: ::pontoon_signal::Bound,
        ) -> Result<(), $crate::link::LinkError> {
            self.$link.flush(peer, bound)
        }
    };
    (@completions $link:tt) => {
        fn completions(
            &self,
            peer: ::pontoon_signal::Rank,
        ) -> Result<::pontoon_signal::Slot, $crate::link::LinkError> {
            self.$link.completions(peer)
        }
    };
    (@moves_by_itself $link:tt) => {
        fn moves_by_itself(&self, peer: ::pontoon_signal::Rank) -> bool {
            self.$link.moves_by_itself(peer)
        }
    };
    (@progress $link:tt) => {
        fn progress(&self) -> bool { self.$link.progress() }
    };
    (@wait $link:tt) => {
        fn wait<'w>(
            &self,
            waiter: &'w ::pontoon_signal::Waiter,
            target: ::pontoon_signal::Seq,
            bound: ::pontoon_signal::Bound,
        ) -> Result<::pontoon_signal::Observed<'w>, ::pontoon_signal::WaitError> {
            self.$link.wait(waiter, target, bound)
        }
    };
    (@explain $link:tt) => {
        fn explain(
            &self,
            peer: ::pontoon_signal::Rank,
            operation: $crate::link::Operation,
        ) -> Result<$crate::link::Explanation, $crate::link::LinkError> {
            self.$link.explain(peer, operation)
        }
    };
    (@report $link:tt) => {
        fn report(&self) -> $crate::link::LinkReport { self.$link.report() }
    };
}
