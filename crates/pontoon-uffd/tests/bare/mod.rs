//! Single instructions, made with registers as they are given.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

use core::arch::global_asm;

/// The registers before an instruction, and after it. Those of vectors, and RSP, stay.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Machine {
    pub(crate) general: [u64; 16],
    pub(crate) flags: u64,
    padding: [u64; 7],
    pub(crate) vectors: [Vector; 32],
}

/// A vector register of 512 bits.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Vector(pub(crate) [u8; 64]);

impl core::fmt::Debug for Vector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("…")
    }
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { general: [0; 16], flags: 2, padding: [0; 7], vectors: [Vector([0; 64]); 32] }
    }
}

pub(crate) fn has_zmm() -> bool {
    std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vl")
}

/// An instruction in memory that can be executed.
pub(crate) struct Code {
    page: *mut u8,
    bytes: Vec<u8>,
}

impl Code {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = unsafe { libc::mmap(core::ptr::null_mut(), 4096, all, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        let page = page.cast::<u8>();
        unsafe {
            page.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            page.add(bytes.len()).write(0xC3); // ret
            assert_eq!(libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_EXEC), 0);
        }
        Self { page, bytes: bytes.to_vec() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes it.
    pub(crate) fn run(&self, machine: &mut Machine) {
        let vectors = if has_zmm() { 2 } else { u64::from(std::is_x86_feature_detected!("avx")) };
        unsafe { bare_run(self.page, machine, vectors) };
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.page.cast(), 4096) };
    }
}

unsafe extern "C" {
    fn bare_run(code: *const u8, machine: *mut Machine, vectors: u64);
}

global_asm!(
    ".globl bare_run",
    "bare_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rdi",
    "push rsi",
    "cmp edx, 1",
    "je 2f",
    "ja 3f",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movdqu xmm\\n, [rsi + 192 + 64 * \\n]",
    ".endr",
    "jmp 4f",
    "2:",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vmovdqu ymm\\n, [rsi + 192 + 64 * \\n]",
    ".endr",
    "jmp 4f",
    "3:",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "vmovdqu64 zmm\\n, [rsi + 192 + 64 * \\n]",
    ".endr",
    "4:",
    "push qword ptr [rsi + 128]",
    "popfq",
    "mov rax, [rsi]",
    "mov rcx, [rsi + 8]",
    "mov rdx, [rsi + 16]",
    "mov rbx, [rsi + 24]",
    "mov rbp, [rsi + 40]",
    "mov rdi, [rsi + 56]",
    "mov r8, [rsi + 64]",
    "mov r9, [rsi + 72]",
    "mov r10, [rsi + 80]",
    "mov r11, [rsi + 88]",
    "mov r12, [rsi + 96]",
    "mov r13, [rsi + 104]",
    "mov r14, [rsi + 112]",
    "mov r15, [rsi + 120]",
    "mov rsi, [rsi + 48]",
    "call [rsp + 8]",
    "push rax",
    "mov rax, [rsp + 8]",
    "mov [rax + 8], rcx",
    "mov [rax + 16], rdx",
    "mov [rax + 24], rbx",
    "mov [rax + 40], rbp",
    "mov [rax + 48], rsi",
    "mov [rax + 56], rdi",
    "mov [rax + 64], r8",
    "mov [rax + 72], r9",
    "mov [rax + 80], r10",
    "mov [rax + 88], r11",
    "mov [rax + 96], r12",
    "mov [rax + 104], r13",
    "mov [rax + 112], r14",
    "mov [rax + 120], r15",
    "pushfq",
    "pop rcx",
    "mov [rax + 128], rcx",
    "cld",
    "pop rcx",
    "mov [rax], rcx",
    "add rsp, 16",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);
