use super::{Env, EnvError, Launcher};
use crate::{Token, TokenError};
use pontoon_signal::Rank;
use std::{ffi::OsString, os::unix::ffi::OsStringExt};

const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn read(vars: &[(&str, &str)]) -> Result<Option<Env>, EnvError> {
    Env::from_lookup(|name| {
        vars.iter().rev().find(|it| it.0 == name).map(|it| OsString::from(it.1))
    })
}

/// The variables of a good job, changed by `change`.
fn torchrun(change: &[(&str, &str)]) -> Result<Env, EnvError> {
    let good = [
        ("RANK", "3"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("PONTOON_TOKEN", TOKEN),
    ];
    let vars: Vec<_> = good.into_iter().chain(change.iter().copied()).collect();
    read(&vars).map(|env| env.expect("a job"))
}

fn says(change: &[(&str, &str)], parts: &[&str]) {
    let text = torchrun(change).unwrap_err().to_string();
    assert!(!text.contains('\n'), "more than a line: {text:?}");
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn nothing_set_is_no_job() {
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[("RANK", ""), ("WORLD_SIZE", "")]), Ok(None));
    // A shell inside a Slurm allocation is no rank.
    assert_eq!(read(&[("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "7")]), Ok(None));
    assert_eq!(read(&[("MASTER_ADDR", "a"), ("PONTOON_TOKEN", "x")]), Ok(None));
}

#[test]
fn torchruns_variables() {
    let env = torchrun(&[("PONTOON_JOB", "a job"), ("PONTOON_EPOCH", "2")]).unwrap();
    assert_eq!((env.rank, env.world, env.launcher), (Rank(3), 8, Launcher::Torchrun));
    assert_eq!((env.local_rank, env.local_world), (Some(1), Some(2)));
    assert_eq!(env.master.to_string(), "10.0.0.1:29500");
    assert_eq!((&*env.job, env.epoch), ("a job", 2));
    assert_eq!(env.token, Token::parse(TOKEN.as_bytes()).unwrap());
}

#[test]
fn the_port_of_torchruns_own_store_is_left_to_it() {
    let port = |change: &[(&str, &str)]| torchrun(change).unwrap().master.port;
    assert_eq!(port(&[("TORCHELASTIC_USE_AGENT_STORE", "True")]), 29501);
    assert_eq!(port(&[("TORCHELASTIC_USE_AGENT_STORE", "False")]), 29500);
    let last = [("TORCHELASTIC_USE_AGENT_STORE", "True"), ("MASTER_PORT", "65535")];
    assert_eq!(port(&last), 65534);
    assert_eq!(port(&[("PONTOON_PORT", "7"), ("TORCHELASTIC_USE_AGENT_STORE", "True")]), 7);
}

#[test]
fn open_mpis_variables() {
    let base = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_NAMESPACE", "prterun-x-7@1"),
        ("PONTOON_TOKEN", TOKEN),
    ];
    let with = |more: &[(&'static str, &'static str)]| {
        read(&base.iter().chain(more).copied().collect::<Vec<_>>())
    };
    let text = with(&[]).unwrap_err().to_string();
    assert!(text.contains("mpirun -x MASTER_ADDR="), "{text}");
    let env = with(&[("MASTER_ADDR", "head"), ("MASTER_PORT", "1234")]).unwrap().unwrap();
    assert_eq!((env.rank, env.world, env.launcher), (Rank(1), 4, Launcher::OpenMpi));
    assert_eq!((&*env.job, &*env.master.to_string()), ("prterun-x-7@1", "head:1234"));
    let env = with(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "4"), ("MASTER_PORT", "1")]).unwrap().unwrap();
    assert_eq!(&*env.master.host, "127.0.0.1");
}

#[test]
fn slurms_variables() {
    let base = [
        ("SLURM_PROCID", "5"),
        ("SLURM_NTASKS", "32"),
        ("SLURM_STEP_NUM_TASKS", "16"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NTASKS_PER_NODE", "1"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "gpu[03-06]"),
        ("SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"),
        ("PONTOON_TOKEN", TOKEN),
    ];
    let env = read(&base).unwrap().unwrap();
    assert_eq!((env.rank, env.world, env.launcher), (Rank(5), 16, Launcher::Slurm));
    assert_eq!((env.local_rank, env.local_world), (Some(1), None));
    assert_eq!((&*env.job, &*env.master.host), ("77", "gpu03"));
    assert!((15_000..31_000).contains(&env.master.port));

    let listless: Vec<_> = base.into_iter().filter(|it| it.0 != "SLURM_STEP_NODELIST").collect();
    assert_eq!(&*read(&listless).unwrap().unwrap().master.host, "10.9.9.9");
    let wrong: Vec<_> = base.into_iter().chain([("SLURM_STEP_NODELIST", "gpu[")]).collect();
    let text = read(&wrong).unwrap_err().to_string();
    assert!(text.contains("SLURM_STEP_NODELIST is \"gpu[\""), "{text}");
}

/// Its variables say that it is the first of all tasks of the allocation; it is none of them.
#[test]
fn a_batch_script_is_no_rank() {
    let script = [
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "16"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"),
        ("PONTOON_TOKEN", TOKEN),
    ];
    let with = |more: &[(&'static str, &'static str)]| {
        read(&script.iter().chain(more).copied().collect::<Vec<_>>())
    };
    assert_eq!(with(&[]), Ok(None));
    assert_eq!(with(&[("SLURM_STEP_ID", "0")]), Ok(None));
    let tasks = ("SLURM_STEP_NUM_TASKS", "16");
    assert_eq!(with(&[tasks]), Ok(None));
    for no_step in ["4294967291", "4294967290", "4294967294"] {
        assert_eq!(with(&[tasks, ("SLURM_STEP_ID", no_step)]), Ok(None), "{no_step}");
    }
    let step = with(&[tasks, ("SLURM_STEP_ID", "3")]).unwrap().unwrap();
    assert_eq!((step.rank, step.world), (Rank(0), 16));
    let text = with(&[tasks, ("SLURM_STEP_ID", "x")]).unwrap_err().to_string();
    assert!(text.contains("SLURM_STEP_ID is \"x\""), "{text}");
}

/// Rank 0 may be a batch script; any other was meant to be a rank.
#[test]
fn a_rank_of_no_step_is_told_what_is_missing() {
    let rank = ("SLURM_PROCID", "1");
    let (tasks, step) = (("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_STEP_ID", "0"));
    for (set, missing) in [
        (&[rank][..], "SLURM_STEP_NUM_TASKS"),
        (&[rank, step], "SLURM_STEP_NUM_TASKS"),
        (&[rank, tasks], "SLURM_STEP_ID"),
    ] {
        let text = read(set).unwrap_err().to_string();
        let wanted = format!("SLURM_PROCID is set and {missing} is not");
        assert!(text.starts_with(&wanted) && text.contains("by `srun`"), "{text}");
    }
}

#[test]
fn a_token_file_that_is_none_is_named_with_what_to_do() {
    let file = |path| [("PONTOON_TOKEN", ""), ("PONTOON_TOKEN_FILE", path)];
    says(
        &file("/nowhere/token"),
        &["PONTOON_TOKEN_FILE is /nowhere/token: ", "No such file", "openssl rand -hex 32", "0600"],
    );
    says(&file("/dev/null"), &["PONTOON_TOKEN_FILE is /dev/null: ", "no regular file"]);
    // Who took one variable for the other: the token is not shown.
    for token in [TOKEN, &TOKEN[1..], &format!(" {TOKEN}\n")] {
        let error = torchrun(&file(token)).unwrap_err();
        assert_eq!(error, EnvError::TokenAsFile { name: "PONTOON_TOKEN_FILE" });
        assert!(error.to_string().contains("give the token by PONTOON_TOKEN"), "{error}");
    }
}

#[test]
fn a_job_of_one_needs_no_address() {
    let env = read(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("PONTOON_TOKEN", TOKEN)]);
    assert_eq!(env.unwrap().unwrap().master.to_string(), "127.0.0.1:0");
    let alone = Env::alone().unwrap();
    assert_eq!((alone.rank, alone.world, alone.launcher), (Rank(0), 1, Launcher::Alone));
}

#[test]
fn each_wrong_value_is_named_with_what_is_expected() {
    says(&[("WORLD_SIZE", "")], &["RANK is set and WORLD_SIZE is not"]);
    says(&[("RANK", "")], &["WORLD_SIZE is set and RANK is not"]);
    says(&[("RANK", "-1")], &["RANK is \"-1\"", "counted from 0"]);
    says(&[("RANK", "+1")], &["RANK is \"+1\""]);
    says(&[("RANK", "three")], &["RANK is \"three\""]);
    says(&[("RANK", "8")], &["RANK is 8 and WORLD_SIZE is 8", "0 to 7"]);
    says(&[("RANK", "4294967296")], &["RANK is \"4294967296\""]);
    says(&[("WORLD_SIZE", "0")], &["WORLD_SIZE is 0", "1 to 4096"]);
    says(&[("WORLD_SIZE", "4097")], &["WORLD_SIZE is 4097", "1 to 4096"]);
    says(&[("LOCAL_RANK", "2")], &["LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2", "0 to 1"]);
    says(&[("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "0")], &["LOCAL_WORLD_SIZE is 0"]);
    for port in ["0", "65536", "http", "-5"] {
        says(&[("MASTER_PORT", port)], &["MASTER_PORT is ", port, "1 to 65535"]);
    }
    says(&[("MASTER_ADDR", "")], &["MASTER_ADDR is not set", "the same in all ranks"]);
    says(&[("MASTER_PORT", "")], &["MASTER_PORT is not set"]);
    says(&[("PONTOON_EPOCH", "x")], &["PONTOON_EPOCH is \"x\""]);
    says(&[("PONTOON_EPOCH", "65536")], &["PONTOON_EPOCH is \"65536\"", "at most 65535"]);
    says(&[("PONTOON_JOB", "a\nb")], &["PONTOON_JOB is \"a\\nb\"", "control characters"]);
    says(&[("PONTOON_JOB", &"j".repeat(500))], &["PONTOON_JOB is \"jjj", "…\"", "128 bytes"]);
    says(&[("PONTOON_TOKEN", "")], &["PONTOON_TOKEN_FILE", "openssl rand -hex 32"]);
    says(&[("PONTOON_TOKEN", ""), ("PONTOON_TOKEN_FILE", "/nowhere")], &["PONTOON_TOKEN_FILE is "]);
}

#[test]
fn a_wrong_token_is_not_shown() {
    let error = torchrun(&[("PONTOON_TOKEN", "hunter2")]).unwrap_err();
    let error_is =
        EnvError::Token { name: "PONTOON_TOKEN", error: TokenError::NotHex { length: 7 } };
    assert_eq!(error, error_is);
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[test]
fn what_is_not_text_is_refused_and_shown_as_far_as_it_can_be() {
    let error = Env::from_lookup(|name| match name {
        "RANK" => Some(OsString::from_vec(vec![b'1', 0xff])),
        "WORLD_SIZE" => Some("2".into()),
        _ => None,
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("RANK is \"1\u{fffd}\""), "{text}");
}
