"""What a contestant is, and the ways to run one: ours, a rival's program, or any command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import children
from place import PROGRAMS, ROOT, Place, Skip, do
from rows import rows_of

BUILD_LIMIT = 1800.0
SERVER_LIMIT = 5.0


@dataclass(frozen=True)
class Contestant:
    """Something that is installed, and measured once a round."""

    about: str
    apt: tuple[str, ...] = ()
    pip: tuple[tuple[str, ...], ...] = ()
    cc: tuple[str, ...] = ()  # source and flags
    compiler: str = "gcc"
    cargo: str = ""
    cores: int = 2  # that it needs
    on_request: bool = False  # only where it is named

    def install(self, at: Place) -> None:
        at.apt(self.apt)
        for args in self.pip:
            at.pip(*args)
        if self.cc:
            at.cc(*self.cc, compiler=self.compiler)
        if self.cargo:
            at.cargo(self.cargo)

    def commands(self, at: Place) -> list[tuple[list[str], dict[str, str], str]]:
        """Command, environment, and what goes in front of its rows' names."""
        raise NotImplementedError

    def measure(self, at: Place, deadline: float) -> tuple[list[dict], str]:
        """Rows, and what went wrong ('' if nothing)."""
        rows = []
        for argv, env, prefix in self.commands(at):
            env = {"PEERS_CORES": at.cores, "PYTHONDONTWRITEBYTECODE": "1", **env}
            out, failed = children.finish(children.start(argv, env), deadline)
            rows += [{**row, "name": prefix + row["name"]} for row in rows_of(out)]
            if failed:
                return rows, failed
        return rows, ""


class Command(Contestant):
    """A command line of the caller's."""

    def commands(self, at):
        return [(["/bin/sh", "-c", self.about], {}, "")]


def pontoon(cores: str) -> Command:
    """This project, built from the tree that this script is in: before the rounds, so that none
    has a build in it."""
    if not shutil.which("cargo"):
        raise Skip("cargo not found")
    build = ["cargo", "build", "--release", "--locked", "-p", "pontoon-cli", "--bin", "pontoon"]
    out = do([*build, "--message-format=json-render-diagnostics"], BUILD_LIMIT, cwd=ROOT)
    # It takes the first two CPUs that it may use.
    bench = ["taskset", "-c", cores, str(executable_of(out)), "bench", "link", "--quick", "--json"]
    return Command(shlex.join(bench))


def executable_of(messages: str) -> Path:
    """The program among the messages of `cargo build --message-format=json`."""
    lines = [line for line in messages.splitlines() if line.startswith("{")]
    found = [path for line in lines if (path := json.loads(line).get("executable"))]
    if not found:
        raise Skip("cargo named no program that it built")
    return Path(found[-1])


class Program(Contestant):
    """A program built here. One that can do with a single CPU is measured that way too."""

    def commands(self, at):
        name = Path(self.cc[0]).stem if self.cc else f"peer_{self.cargo}"
        argv, env = [str(at.bin / name)], {"POCL_CACHE_DIR": str(at.dir / "cache")}
        if self.cores > 1:
            return [(argv, env, "")]
        one = ",".join(at.cores.split(",")[:1] * 2)
        return [(argv, env, ""), (argv, {**env, "PEERS_CORES": one}, "same_core/")]


class OpenMpi(Contestant):
    """Two ranks that pin themselves; without a remote shell."""

    def commands(self, at):
        launcher = "oshrun" if self.compiler == "oshcc" else "mpirun"
        mca = [] if launcher == "oshrun" else ["--mca", "osc", "sm", "--mca", "pml", "ob1"]
        argv = [launcher, "--allow-run-as-root", "-np", "2", "--bind-to", "none", *mca]
        return [([*argv, str(at.bin / Path(self.cc[0]).stem)], {"OMPI_MCA_plm": "isolated"}, "")]


class Nixl(Contestant):
    def commands(self, at):
        argv = [str(at.python), str(PROGRAMS / "nixl_lat.py")]
        return [(argv, {}, ""), (argv, {"UCX_TLS": "tcp,self"}, "tcp/")]


class Mooncake(Contestant):
    def commands(self, at):
        return [([str(at.python), str(PROGRAMS / "mooncake_lat.py")], {}, "tcp/")]


class Tinygrad(Contestant):
    def commands(self, at):
        env = {"CC": clang() or "clang", "DEV": "CPU", "XDG_CACHE_HOME": str(at.dir / "cache")}
        return [([str(at.python), str(PROGRAMS / "tinygrad_submit.py")], env, "")]


def clang() -> str | None:
    names = ["clang", *(f"clang-{n}" for n in range(30, 10, -1))]
    return next((n for n in names if shutil.which(n)), None)


SHM = {"UCX_TLS": "posix,sysv,cma,self"}
TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
# By label, the bytes and how often. 64 KiB over tcp would tell nothing new.
SHM_SIZES = {
    "8B": (8, 30000),
    "4KiB": (4096, 30000),
    "64KiB": (65536, 3000),
    "4MiB": (4 << 20, 150),
}
TCP_SIZES = {"8B": (8, 1000), "4KiB": (4096, 1000), "4MiB": (4 << 20, 50)}


class Ucx(Contestant):
    """ucx_perftest, a server and a client for each figure; its own 50 % percentile."""

    def measure(self, at, deadline):
        rows = []
        for via, env, sizes in (
            ("shm", SHM, SHM_SIZES),
            ("tcp", TCP, TCP_SIZES),
        ):
            for op in ("put", "am"):
                for label, (size, count) in sizes.items():
                    test = [f"ucp_{op}_lat", "-s", str(size), "-n", str(count)]
                    us, failed = self.one(at, env, test, deadline)
                    if failed:
                        return rows, f"{op} {label} over {via}: {failed}"
                    name = f"{op}_{via}/one_way/{label}"
                    rows.append({"name": name, "unit": "ns", "median": us * 1e3, "n": count})
        return rows, ""

    def one(
        self, at: Place, env: dict[str, str], test: list[str], deadline: float
    ) -> tuple[float, str]:
        """Microseconds one way, or why there are none."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = {"UCX_LOG_LEVEL": "error", **env}
        first, second = at.cores.split(",")[:2]
        base = ["ucx_perftest", "-p", str(port), "-w", "200", "-f"]
        server = children.start([*base, "-c", second], env)
        try:
            while not is_listening(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    return 0.0, "the server did not start"
                time.sleep(0.005)
            client = children.start([*base, "127.0.0.1", "-c", first, "-t", *test], env)
            out, failed = children.finish(client, deadline)
            if failed:
                return 0.0, failed
            children.finish(server, time.monotonic() + SERVER_LIMIT)
        finally:
            children.stop_all()
            server.communicate()
        us = perftest_median(out)
        return (0.0, "no figure in its output") if us is None else (us, "")


def is_listening(port: int) -> bool:
    """Looks it up: a trial connection would count as the client."""
    listening = re.compile(rf":{port:04X} \S+:0000 0A ")
    tables = [Path(f"/proc/net/{table}") for table in ("tcp", "tcp6")]
    return any(listening.search(table.read_text()) for table in tables if table.exists())


def perftest_median(out: str) -> float | None:
    """The 50 % percentile in microseconds of the last line of ucx_perftest's table."""
    line = re.compile(r"\s*(?:Final:)?\s*\d+\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s")
    found = [match[1] for match in map(line.match, out.splitlines()) if match]
    return float(found[-1]) if found else None
