//! What the kernel declares in `linux/userfaultfd.h` and, of `PAGEMAP_SCAN`, in `linux/fs.h`.
//!
//! Checked in, so that a build needs no headers: those of a distribution are often older than the
//! kernel. `tests/layout.rs` compares with the ones it finds, as far as they go.
//! Sources: Linux 6.18, `include/uapi/linux/{userfaultfd,fs}.h`.

use rustix::ioctl::{Opcode, opcode};

/// The version of the interface.
pub const UFFD_API: u64 = 0xAA;
const UFFDIO: u8 = 0xAA;

pub const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
pub const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
pub const UFFD_FEATURE_MINOR_SHMEM: u64 = 1 << 10;
pub const UFFD_FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
pub const UFFD_FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
pub const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
pub const UFFD_FEATURE_POISON: u64 = 1 << 14;
pub const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
pub const UFFD_FEATURE_MOVE: u64 = 1 << 16;

pub const UFFDIO_REGISTER_MODE_MISSING: u64 = 1 << 0;
pub const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
pub const UFFDIO_REGISTER_MODE_MINOR: u64 = 1 << 2;

pub const UFFDIO_COPY_MODE_DONTWAKE: u64 = 1 << 0;
pub const UFFDIO_COPY_MODE_WP: u64 = 1 << 1;
pub const UFFDIO_CONTINUE_MODE_DONTWAKE: u64 = 1 << 0;
pub const UFFDIO_CONTINUE_MODE_WP: u64 = 1 << 1;
pub const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1 << 0;
pub const UFFDIO_WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;
pub const UFFDIO_POISON_MODE_DONTWAKE: u64 = 1 << 0;
pub const UFFDIO_MOVE_MODE_DONTWAKE: u64 = 1 << 0;

pub const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
pub const UFFD_PAGEFAULT_FLAG_WRITE: u64 = 1 << 0;
pub const UFFD_PAGEFAULT_FLAG_WP: u64 = 1 << 1;

pub const PAGE_IS_WPALLOWED: u64 = 1 << 0;
pub const PAGE_IS_WRITTEN: u64 = 1 << 1;
pub const PAGE_IS_PRESENT: u64 = 1 << 3;
pub const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// Protect again what is reported, in the same step.
pub const PM_SCAN_WP_MATCHING: u64 = 1 << 0;

/// `struct uffdio_api`.
#[repr(C)]
#[derive(Debug)]
pub struct Api {
    pub api: u64,
    pub features: u64,
    pub ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: u64,
    pub len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
#[derive(Debug)]
pub struct Register {
    pub range: Span,
    pub mode: u64,
    pub ioctls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
#[derive(Debug)]
pub struct Copy {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    /// Bytes done, or an errno below zero.
    pub copy: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
#[derive(Debug)]
pub struct WriteProtect {
    pub range: Span,
    pub mode: u64,
}

/// `struct uffdio_continue`.
#[repr(C)]
#[derive(Debug)]
pub struct Continue {
    pub range: Span,
    pub mode: u64,
    /// Bytes done, or an errno below zero.
    pub mapped: i64,
}

/// `struct uffdio_poison`.
#[repr(C)]
#[derive(Debug)]
pub struct Poison {
    pub range: Span,
    pub mode: u64,
    /// Bytes done, or an errno below zero.
    pub updated: i64,
}

/// `struct uffdio_move`.
#[repr(C)]
#[derive(Debug)]
pub struct Move {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    /// Bytes done, or an errno below zero.
    pub moved: i64,
}

/// `struct uffd_msg` with the arguments of a page fault, which are its longest.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    pub event: u8,
    pub reserved: [u8; 7],
    pub flags: u64,
    pub address: u64,
    pub thread: u32,
    pub padding: u32,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PageRegion {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ScanArgument {
    pub size: u64,
    pub flags: u64,
    pub start: u64,
    pub end: u64,
    pub walk_end: u64,
    pub vec: u64,
    pub vec_len: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub category_anyof_mask: u64,
    pub return_mask: u64,
}

pub const UFFDIO_API: Opcode = opcode::read_write::<Api>(UFFDIO, 0x3F);
pub const UFFDIO_REGISTER: Opcode = opcode::read_write::<Register>(UFFDIO, 0x00);
pub const UFFDIO_WAKE: Opcode = opcode::read::<Span>(UFFDIO, 0x02);
pub const UFFDIO_COPY: Opcode = opcode::read_write::<Copy>(UFFDIO, 0x03);
pub const UFFDIO_MOVE: Opcode = opcode::read_write::<Move>(UFFDIO, 0x05);
pub const UFFDIO_WRITEPROTECT: Opcode = opcode::read_write::<WriteProtect>(UFFDIO, 0x06);
pub const UFFDIO_CONTINUE: Opcode = opcode::read_write::<Continue>(UFFDIO, 0x07);
pub const UFFDIO_POISON: Opcode = opcode::read_write::<Poison>(UFFDIO, 0x08);
pub const PAGEMAP_SCAN: Opcode = opcode::read_write::<ScanArgument>(b'f', 16);

const _: () = {
    assert!(size_of::<Message>() == 32 && size_of::<Api>() == 24 && size_of::<Register>() == 32);
    assert!(size_of::<Copy>() == 40 && size_of::<WriteProtect>() == 24);
    assert!(size_of::<Poison>() == 32 && size_of::<Continue>() == 32 && size_of::<Move>() == 40);
    assert!(size_of::<PageRegion>() == 24 && size_of::<ScanArgument>() == 96);
};
