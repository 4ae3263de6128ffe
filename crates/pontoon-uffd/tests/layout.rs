//! The kernel's declarations against those of the headers that are installed, as far as they go.
#![cfg(not(pontoon_loom))]

use std::{collections::BTreeMap, env, fs, process::Command};

use pontoon_uffd::abi;

/// Each name as C has it, and what it is here.
fn ours() -> Vec<(&'static str, u64)> {
    macro_rules! constants {
        ($($name:ident)*) => { vec![$((stringify!($name), abi::$name as u64)),*] };
    }
    let mut all = constants! {
        UFFD_API UFFD_FEATURE_PAGEFAULT_FLAG_WP UFFD_FEATURE_SIGBUS UFFD_FEATURE_MINOR_SHMEM
        UFFD_FEATURE_EXACT_ADDRESS UFFD_FEATURE_WP_HUGETLBFS_SHMEM UFFDIO_REGISTER_MODE_MINOR UFFDIO_CONTINUE_MODE_DONTWAKE UFFDIO_CONTINUE UFFDIO_CONTINUE_MODE_WP UFFD_FEATURE_WP_UNPOPULATED UFFD_FEATURE_POISON
        UFFD_FEATURE_WP_ASYNC UFFD_FEATURE_MOVE UFFDIO_REGISTER_MODE_MISSING
        UFFDIO_REGISTER_MODE_WP UFFDIO_COPY_MODE_DONTWAKE
        UFFDIO_COPY_MODE_WP UFFDIO_WRITEPROTECT_MODE_WP UFFDIO_WRITEPROTECT_MODE_DONTWAKE
        UFFDIO_POISON_MODE_DONTWAKE UFFDIO_MOVE_MODE_DONTWAKE UFFD_EVENT_PAGEFAULT
        UFFD_PAGEFAULT_FLAG_WRITE UFFD_PAGEFAULT_FLAG_WP PAGE_IS_WPALLOWED PAGE_IS_WRITTEN
        PAGE_IS_PRESENT PAGE_IS_SWAPPED PM_SCAN_WP_MATCHING
        UFFDIO_API UFFDIO_REGISTER UFFDIO_WAKE UFFDIO_COPY UFFDIO_MOVE
        UFFDIO_WRITEPROTECT UFFDIO_POISON PAGEMAP_SCAN
    };
    macro_rules! offsets {
        ($($c:literal: $type:ident { $($there:literal $here:ident)* })*) => { $($(
            all.push((concat!("offsetof(", $c, ", ", $there, ")"),
                core::mem::offset_of!(abi::$type, $here) as u64));
        )*)* };
    }
    offsets! {
        "struct uffdio_copy": Copy { "dst" dst "src" src "len" len "mode" mode "copy" copy }
        "struct uffdio_register": Register { "range" range "mode" mode "ioctls" ioctls }
        "struct uffdio_writeprotect": WriteProtect { "range" range "mode" mode }
        "struct uffd_msg": Message {
            "event" event "arg.pagefault.flags" flags "arg.pagefault.address" address
            "arg.pagefault.feat.ptid" thread
        }
        "struct uffdio_api": Api { "api" api "features" features "ioctls" ioctls }
    }
    all
}

/// The macro whose presence says that `name` is there.
fn guard(name: &str) -> &str {
    if name.starts_with("offsetof") { "UFFD_API" } else { name }
}

#[test]
fn the_declarations_are_the_kernels() {
    let ours = ours();
    let mut program = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <linux/fs.h>\n\
         #include <linux/userfaultfd.h>\nint main(void) {\n",
    );
    for (name, _) in &ours {
        let guard = guard(name);
        program += &format!(
            "#ifdef {guard}\nprintf(\"%s=%llu\\n\", \"{name}\", (unsigned long long)({name}));\n\
             #endif\n"
        );
    }
    program += "return 0; }\n";
    let folder = env::temp_dir().join(format!("pontoon-uffd-layout-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&binary).arg(&source).output();
    let found = match &compiled {
        Ok(output) if output.status.success() => Command::new(&binary).output().unwrap().stdout,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            let _ = fs::remove_dir_all(&folder);
            assert!(why.contains("No such file"), "{why}");
            return println!("skipped: no kernel headers: {why}");
        }
        Err(error) => {
            let _ = fs::remove_dir_all(&folder);
            return println!("skipped: no C compiler: {error}");
        }
    };
    let _ = fs::remove_dir_all(&folder);
    let found = String::from_utf8(found).unwrap();
    let theirs: BTreeMap<&str, u64> = found
        .lines()
        .map(|line| line.rsplit_once('=').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    let mut absent = Vec::new();
    for (name, value) in ours {
        match theirs.get(name) {
            Some(theirs) => assert_eq!(value, *theirs, "{name}"),
            None => absent.push(name),
        }
    }
    println!("{} compared; the headers are older than {absent:?}", theirs.len());
    assert!(theirs.len() >= 25, "{theirs:?}");
}
