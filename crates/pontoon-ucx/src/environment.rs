//! What UCX finds in the environment while it is loaded.
//!
//! libucs reads some settings in its constructor and never again, so no configuration that is made
//! later can reach them: whether it takes the handlers of SIGSEGV and SIGBUS (openucx/ucx#11021:
//! it does so by default before 1.20) and of SIGHUP (it still does), whether it starts a thread
//! that watches a directory, whether it hooks `malloc` and `mmap` (openucx/ucx#5644). Writing them
//! with `setenv` would change what children inherit, and move an array that C code may be reading.
//! So the process's `environ` is pointed at a longer copy while the library is opened, and back
//! again: who reads it meanwhile finds every variable there was. Nobody may write the environment
//! at that time, which already holds for any C library that reads it as it is loaded.
#![allow(unsafe_code)] // `environ` is a pointer of the C library's.

use std::ffi::{CStr, c_char};

/// What is so whatever the user's environment says: the process's signals and allocator are not
/// UCX's.
const ALWAYS: [&CStr; 6] = [
    c"UCX_HANDLE_ERRORS=none",
    c"UCX_DEBUG_SIGNO=0",
    c"UCX_VFS_ENABLE=n",
    c"UCX_MEM_EVENTS=n",
    c"UCX_MEM_MMAP_HOOK_MODE=none",
    c"UCX_MEM_MALLOC_HOOKS=n",
];

/// What is so unless the user's environment says otherwise: UCX complains on the standard output,
/// which is the program's own.
const USUALLY: [&CStr; 1] = [c"UCX_LOG_FILE=stderr"];

unsafe extern "C" {
    static mut environ: Block;
}

/// An array of strings that ends with a null.
type Block = *const *const c_char;

/// Where the C library keeps the pointer.
fn place() -> *mut Block {
    &raw mut environ
}

/// Calls `load` with the settings in the environment.
///
/// The copy stays for good, some hundred pointers: who began to read it may still do so.
pub(crate) fn for_the_load<R>(load: impl FnOnce() -> R) -> R {
    // SAFETY: reading a pointer that only setenv and its like write, which nobody may call now.
    let before = unsafe { place().read_volatile() };
    let mut block: Vec<*const c_char> = ALWAYS.iter().map(|setting| setting.as_ptr()).collect();
    block.extend(entries(before));
    // What comes first is found: the user's own goes before ours.
    block.extend(USUALLY.iter().map(|setting| setting.as_ptr()));
    block.push(std::ptr::null());
    let ours: Block = Vec::leak(block).as_ptr();
    // SAFETY: the block is null-terminated, holds only strings that stay, and stays itself.
    unsafe { place().write_volatile(ours) };
    let loaded = load();
    // SAFETY: as at the first read.
    if unsafe { place().read_volatile() } == ours {
        // SAFETY: the array of before was in place when this began, and nobody has freed it.
        unsafe { place().write_volatile(before) };
    }
    loaded
}

/// The strings of an environment block.
fn entries(block: Block) -> Vec<*const c_char> {
    let mut found = Vec::new();
    if block.is_null() {
        return found;
    }
    loop {
        // SAFETY: no entry before this was the null that ends the block.
        let at = unsafe { block.add(found.len()) };
        // SAFETY: as above, so it is within the block.
        let entry = unsafe { at.read() };
        if entry.is_null() {
            return found;
        }
        found.push(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::for_the_load;
    use std::ffi::{CStr, CString};

    fn c_getenv(name: &str) -> Option<String> {
        let name = CString::new(name).unwrap();
        // SAFETY: the name is a C string.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: what getenv returns is a C string, and nothing here writes the environment.
        let value = unsafe { CStr::from_ptr(value) };
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_settings_are_there_for_the_load_only() {
        let path = c_getenv("PATH");
        assert!(path.is_some(), "the test needs one variable that is surely there");
        for_the_load(|| {
            assert_eq!(c_getenv("UCX_HANDLE_ERRORS").as_deref(), Some("none"));
            assert_eq!(c_getenv("UCX_DEBUG_SIGNO").as_deref(), Some("0"));
            assert_eq!(c_getenv("PATH"), path);
        });
        assert_eq!(c_getenv("UCX_DEBUG_SIGNO"), None);
        assert_eq!(c_getenv("PATH"), path);
    }
}
