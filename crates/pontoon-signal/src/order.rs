//! Order between plain accesses to memory that others map, where no counter goes between them.

use crate::shim::{Ordering::*, fence, sync};

/// Keeps what this thread does after it behind what it did before, as everybody sees it: a write
/// behind a write, and a read behind a write too.
///
/// Between two sides, each needs one: a fence orders nothing for a reader that does not fence.
#[inline]
pub fn fence_system() {
    // SYNC(system-fence) release: whoever sees a later write, and fences, sees the earlier ones.
    // SYNC(system-fence) acquire: reads that follow see what was written before what was read. Of
    // two sides that each write, fence and read the other's word, one sees the other's write: hence
    // not merely both ends, but sequentially consistent.
    fence(sync("system-fence", SeqCst));
}
