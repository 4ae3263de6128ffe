//! Jobs over hosts that have addresses and cables of their own: `scripts/hosts`.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{
    Folder, Running,
    hosts_up::{Hosts, hosts, script},
    launch, shown, sorted_lines, text, until,
};

/// Whether a connection from host 1 to `to` comes about within `bound`.
fn connects(hosts: &Hosts, to: SocketAddr, bound: Duration) -> bool {
    hosts.inside(1, || TcpStream::connect_timeout(&to, bound).is_ok())
}

#[test]
fn ranks_on_two_hosts_have_their_addresses_and_reach_each_other() {
    let Some(hosts) = Hosts::up("ex", 2) else { return };
    let rsh = format!("{} exec {{host}}", script().display());
    let print = "ip -o -4 addr show eth0 | tr -s ' ' | cut -d' ' -f4; echo $MASTER_ADDR";
    let options = ["-n", "2", "--hosts", &hosts.names, "--rsh", &rsh, "--", "sh", "-c", print];
    let output = launch(&options);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (first, second) = (hosts.address(1), hosts.address(2));
    let wanted = [
        format!("[0] {first}"),
        format!("[0] {first}/24"),
        format!("[1] {first}"),
        format!("[1] {second}/24"),
    ];
    assert_eq!(sorted_lines(&output), wanted);
}

#[test]
fn ranks_meet_over_the_cable_with_their_token() {
    let Some(hosts) = Hosts::up("meet", 2) else { return };
    let rsh = format!("{} exec {{host}}", script().display());
    let listener = hosts.inside(1, || TcpListener::bind("0.0.0.0:0")).expect("bound");
    let port = listener.local_addr().expect("an address").port().to_string();
    let meet = "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; printf \"$RANK$PONTOON_TOKEN\" >&3; \
                read answer <&3; echo $PONTOON_TOKEN; echo $answer";
    let options = ["-n", "2", "--hosts", &hosts.names, "--rsh", &rsh, "--port", &port];
    let job = Running::start(&[&options[..], &["--", "bash", "-c", meet]].concat());
    listener.set_nonblocking(true).expect("set");
    let mut met: Vec<_> = (0..2)
        .map(|_| {
            let mut rank = None;
            until("a rank comes", || {
                rank = listener.accept().ok();
                rank.is_some()
            });
            let (mut stream, from) = rank.expect("it came");
            stream.set_nonblocking(false).expect("set");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
            let mut said = [0; 65];
            stream.read_exact(&mut said).expect("a rank and a token");
            std::io::Write::write_all(&mut stream, b"welcome\n").expect("sent");
            (text(&said).to_owned(), from.ip().to_string())
        })
        .collect();
    met.sort_unstable();
    let lines = job.next(4);
    for (at, (said, from)) in met.iter().enumerate() {
        let (rank, token) = said.split_at(1);
        assert_eq!((rank, from.as_str()), (at.to_string().as_str(), hosts.address(at + 1)));
        assert!(lines.contains(&format!("[{rank}] {token}")), "{lines:?}");
        assert!(lines.contains(&format!("[{rank}] welcome")), "{lines:?}");
    }
    assert_eq!(job.code(), Some(0));
}

#[test]
fn a_cable_that_is_cut_and_a_filter_stop_everything_and_can_be_undone() {
    let Some(hosts) = Hosts::up("cut", 2) else { return };
    let listener = hosts.inside(2, || TcpListener::bind("0.0.0.0:0")).expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let to = SocketAddr::new(hosts.address(2).parse().expect("an address"), port);
    // The kernel answers, as long as there is room for those that nobody accepts.
    listener.set_nonblocking(true).expect("set");
    let connects = |bound| {
        let connected = connects(&hosts, to, bound);
        while listener.accept().is_ok() {}
        connected
    };
    let (long, short) = (Duration::from_secs(60), Duration::from_millis(1500));
    assert!(connects(long), "nothing is in the way");
    for (stop, go) in [("cut", "heal"), ("drop", "clear")] {
        for number in [1, 2] {
            let name = hosts.name(number);
            hosts.run(&[stop, &name]);
            assert!(!connects(short), "{stop} {name}");
            hosts.run(&[go, &name]);
            assert!(connects(long), "{go} {name}");
        }
    }
    // About half of these lose their first frame or its answer, and would send again after 1 s.
    let name = hosts.name(2);
    hosts.run(&["drop", &name, "30"]);
    let tries: Vec<_> = (0..40).map(|_| connects(Duration::from_millis(300))).collect();
    assert!(tries.contains(&true) && tries.contains(&false), "{tries:?}");
    hosts.run(&["drop", &name, "0"]);
    assert!(connects(long), "a loss of nothing");
}

#[test]
fn nothing_is_left_behind() {
    let Some(hosts) = Hosts::up("left", 2) else { return };
    let mut stays = Command::new(script());
    stays.args(["exec", &hosts.name(2), "sh", "-c", "echo there; exec sleep 1000"]);
    let mut stays = stays.stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(stays.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "there\n");
    let of_this = || {
        let own = |name: std::ffi::OsString| name.to_string_lossy().starts_with(&hosts.prefix);
        let all = fs::read_dir("/run/netns").expect("hosts were made").flatten();
        all.filter(|entry| own(entry.file_name())).count()
    };
    assert_eq!(of_this(), 3, "two hosts and what joins them");
    hosts.run(&["down", "--prefix", &hosts.prefix]);
    assert_eq!(of_this(), 0);
    until("what ran there has ended", || stays.try_wait().expect("waited for").is_some());
}

#[test]
fn what_is_no_host_and_no_loss_is_refused() {
    let Some(up) = Hosts::up("bad", 1) else { return };
    let (one, none) = (up.name(1), up.name(7));
    for (arguments, part) in [
        (&["up", "0"][..], "expected 1 to 250"),
        (&["up", "1", "--prefix", &up.prefix], "there already"),
        (&["up", "1", "--prefix", "9"], "is no prefix"),
        (&["up", "1", "--prefix", "a/b"], "is no prefix"),
        (&["exec", "nonsense", "true"], "is no host"),
        (&["exec", &none, "true"], "there is no host"),
        (&["cut", &none], "there is no host"),
        (&["drop", &one, "101"], "expected 0 to 100"),
        (&["fly"], "scripts/hosts up K"),
    ] {
        let output = hosts(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// Two may ask for the same hosts at the same time: whoever comes second must not take away what the
/// first has.
#[test]
fn hosts_that_another_makes_at_the_same_time_stay() {
    let Some(there) = Hosts::up("both", 1) else { return };
    let prefix = format!("late{}-", std::process::id());
    let folder = Folder::new("both");
    // What is to be made is made by another just before.
    let add = "[ \"$1 $2\" != 'netns add' ] || ip netns add \"$3\"";
    folder.script("ip", &format!("PATH=${{PATH#*:}}\n{add}\nexec ip \"$@\""));
    let path = std::env::var("PATH").expect("a path");
    let mut up = Command::new(script());
    up.args(["up", "1", "--prefix", &prefix]);
    let up = up.env("PATH", format!("{}:{path}", shown(&folder.0))).output().expect("bash");
    let stays = Path::new("/run/netns").join(format!("{prefix}0")).exists();
    there.run(&["down", "--prefix", &prefix]);
    assert_eq!(up.status.code(), Some(2), "{}", text(&up.stderr));
    assert!(stays, "it was another's: {}", text(&up.stderr));
}
