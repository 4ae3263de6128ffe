//! The declarations against the headers, where there are some: a C program prints what the compiler
//! makes of them. `PONTOON_UCX_INCLUDE` names another folder of headers than the system's.
#![allow(missing_docs)]

use std::{
    env, fs,
    mem::{offset_of, size_of},
    path::PathBuf,
    process::Command,
};

use pontoon_hal::conformance::part::needed;
use pontoon_ucx::ffi::{self, *};

/// What is compared: an expression of C, and what it is here.
type Fact = (String, i128);

/// The offsets of all fields of a structure, and its size. A structure that later versions lengthen
/// is at least as long as ours: the mask tells them where ours ends.
macro_rules! layout {
    ($facts:ident, $ours:ident, $theirs:literal, [$($field:ident $(= $path:literal)?),+ $(,)?]) => {
        $(
            let path = [$($path,)? stringify!($field)][0];
            $facts.push((
                format!("offsetof({}, {path})", $theirs),
                offset_of!($ours, $field) as i128,
            ));
        )+
        // The last named field tells all of a size that may grow.
        $facts.push((
            format!("sizeof({}) >= {}", $theirs, size_of::<$ours>()),
            1,
        ));
    };
}

macro_rules! constants {
    ($facts:ident, [$($name:ident),+ $(,)?]) => {
        $($facts.push((format!("{}", stringify!($name)), ffi::$name as i128));)+
    };
}

fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    layout!(
        facts,
        UcpParams,
        "ucp_params_t",
        [
            field_mask,
            features,
            request_size,
            request_init,
            request_cleanup,
            tag_sender_mask,
            mt_workers_shared,
            estimated_num_eps,
            estimated_num_ppn,
            name,
        ]
    );
    layout!(
        facts,
        UcpWorkerParams,
        "ucp_worker_params_t",
        [
            field_mask,
            thread_mode,
            cpu_mask,
            events,
            user_data,
            event_fd,
            flags,
            name,
            am_alignment,
            client_id,
        ]
    );
    layout!(
        facts,
        UcpEpParams,
        "ucp_ep_params_t",
        [
            field_mask,
            address,
            err_mode,
            err_handler,
            user_data,
            flags,
            sockaddr,
            conn_request,
            name,
            local_sockaddr,
        ]
    );
    layout!(facts, UcpErrHandler, "ucp_err_handler_t", [cb, arg]);
    layout!(facts, UcsSockAddr, "ucs_sock_addr_t", [addr, addrlen]);
    layout!(
        facts,
        UcpMemMapParams,
        "ucp_mem_map_params_t",
        [field_mask, address, length, flags, prot, memory_type,]
    );
    layout!(facts, UcpMemAttr, "ucp_mem_attr_t", [field_mask, address, length, mem_type]);
    layout!(
        facts,
        UcpRequestParam,
        "ucp_request_param_t",
        [
            op_attr_mask,
            flags,
            request,
            cb = "cb.recv_am",
            datatype,
            user_data,
            reply_buffer,
            memory_type,
            recv_info,
            memh,
        ]
    );
    layout!(facts, UcpAmRecvParam, "ucp_am_recv_param_t", [recv_attr, reply_ep]);
    layout!(facts, UcpAmHandlerParam, "ucp_am_handler_param_t", [field_mask, id, flags, cb, arg,]);
    constants!(
        facts,
        [
            UCP_PARAM_FIELD_FEATURES,
            UCP_PARAM_FIELD_MT_WORKERS_SHARED,
            UCP_FEATURE_RMA,
            UCP_FEATURE_AMO64,
            UCP_FEATURE_WAKEUP,
            UCP_FEATURE_AM,
            UCP_WORKER_PARAM_FIELD_THREAD_MODE,
            UCP_WORKER_PARAM_FIELD_EVENTS,
            UCS_THREAD_MODE_SERIALIZED,
            UCP_WAKEUP_RMA,
            UCP_WAKEUP_AMO,
            UCP_WAKEUP_TX,
            UCP_WAKEUP_RX,
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
            UCP_EP_PARAM_FIELD_ERR_HANDLER,
            UCP_ERR_HANDLING_MODE_NONE,
            UCP_ERR_HANDLING_MODE_PEER,
            UCP_EP_CLOSE_FLAG_FORCE,
            UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
            UCP_MEM_MAP_PARAM_FIELD_LENGTH,
            UCP_MEM_MAP_PARAM_FIELD_FLAGS,
            UCP_MEM_MAP_ALLOCATE,
            UCP_MEM_ATTR_FIELD_ADDRESS,
            UCP_MEM_ATTR_FIELD_LENGTH,
            UCP_ATOMIC_OP_ADD,
            UCP_ATOMIC_OP_CSWAP,
            UCP_OP_ATTR_FIELD_CALLBACK,
            UCP_OP_ATTR_FIELD_USER_DATA,
            UCP_OP_ATTR_FIELD_DATATYPE,
            UCP_OP_ATTR_FIELD_FLAGS,
            UCP_OP_ATTR_FIELD_REPLY_BUFFER,
            UCP_OP_ATTR_FIELD_MEMH,
            UCP_AM_SEND_FLAG_EAGER,
            UCP_AM_SEND_FLAG_RNDV,
            UCP_AM_FLAG_WHOLE_MSG,
            UCP_AM_RECV_ATTR_FLAG_RNDV,
            UCP_AM_HANDLER_PARAM_FIELD_ID,
            UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
            UCP_AM_HANDLER_PARAM_FIELD_CB,
            UCP_AM_HANDLER_PARAM_FIELD_ARG,
            UCS_OK,
            UCS_INPROGRESS,
            UCS_ERR_LAST,
        ]
    );
    facts.push(("sizeof(ucs_status_t)".into(), size_of::<UcsStatus>() as i128));
    facts.push(("sizeof(ucs_status_ptr_t)".into(), size_of::<StatusPtr>() as i128));
    facts.push(("sizeof(ucp_atomic_op_t)".into(), size_of::<u32>() as i128));
    facts.push(("(ucs_status_t)-1 < 0".into(), 1));
    facts.push(("ucp_dt_make_contig(8)".into(), ucp_dt_make_contig(8).into()));
    facts
}

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = env::temp_dir().join(format!("pontoon-ucx-layout-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_declarations_are_those_of_the_headers() {
    let include = env::var_os("PONTOON_UCX_INCLUDE").unwrap_or_else(|| "/usr/include".into());
    let include = PathBuf::from(include);
    let header = include.join("ucp/api/ucp.h");
    let absent = || format!("{} is missing; install libucx-dev", header.display());
    if needed("ucx", header.exists().then_some(()).ok_or_else(absent)).is_none() {
        return;
    }
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let answer = Command::new(&compiler).arg("--version").output();
    let absent = |error| format!("the C compiler {compiler} is missing: {error}");
    if needed("ucx", answer.map_err(absent)).is_none() {
        return;
    }
    let facts = facts();
    let lines: String = facts
        .iter()
        .map(|(expression, _)| format!("    printf(\"%lld\\n\", (long long)({expression}));\n"))
        .collect();
    let program = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <ucp/api/ucp.h>\n\
         int main(void) {{\n    printf(\"%d %d\\n\", UCP_API_MAJOR, UCP_API_MINOR);\n{lines}\
         return 0;\n}}\n"
    );
    let folder = Folder::new();
    let (source, binary) = (folder.0.join("probe.c"), folder.0.join("probe"));
    fs::write(&source, program).unwrap();
    let built = Command::new(&compiler)
        .arg("-I")
        .arg(&include)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let printed = Command::new(&binary).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let mut printed = printed.lines();
    println!("compared {} facts with UCX {}", facts.len(), printed.next().unwrap());
    for (expression, ours) in &facts {
        let theirs: i128 = printed.next().expect("a line a fact").parse().unwrap();
        assert_eq!(theirs, *ours, "{expression}: theirs, ours");
    }
}
