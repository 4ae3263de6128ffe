#!/usr/bin/env python3
"""Measures pontoon beside its rivals on this machine, interleaved, in one sitting.

  peers.py list
  peers.py install [NAME...] [--dir DIR]
  peers.py run [NAME...] [--dir DIR] [--rounds 5] [--cores 0,1] [--limit 60] [--json FILE]
               [--no-pontoon] [--with NAME='COMMAND']... [--vs ROW=RIVAL_ROW]...

Without a NAME: the rivals of links and signals; `all` is every one. README.md beside this file
says what the rows mean. Python 3.11, standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import children
import report
import rounds
from compare import ratios
from contestants import Command, Contestant, pontoon
from place import ROOT, Place, Skip
from rivals import RIVALS, UnknownRival, chosen

PONTOON = "pontoon"


class Misuse(Exception):
    """An argument that makes no sense."""


def cmd_list(args: argparse.Namespace) -> int:
    state = Place(args.dir).state()
    lines = []
    for name, rival in RIVALS.items():
        installed = "installed" if state.get(name) == "" else "-"
        lines.append([name, installed, rival.about])
    print(report.table(["rival", "state", "what"], lines, numbers=False), end="")
    return 0


def cmd_install(args: argparse.Namespace) -> int:
    at = Place(args.dir)
    names = chosen(args.names)
    try:
        at.prepare()
    except OSError as error:
        raise Misuse(f"--dir: cannot install there: {error}") from error
    for name in names:
        print(f"{name}: {RIVALS[name].about}", flush=True)
        begin, why = time.monotonic(), ""
        try:
            RIVALS[name].install(at)
        except (Skip, OSError) as error:
            why = str(error)
        at.note(name, why)
        outcome = f"skipped: {why}" if why else "installed"
        print(f"    {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 0


def cmd_run(args: argparse.Namespace) -> int:
    cpus = sorted(os.sched_getaffinity(0))
    at = Place(args.dir, pinned(args.cores, cpus))
    if args.json:
        try:  # before an hour of measuring, not after it
            args.json.open("a").close()
        except OSError as error:
            raise Misuse(f"--json: {error}") from error
    sitting = rounds.Sitting()
    todo = ready(chosen(args.names), at, sitting)
    own = {PONTOON, *args.extra} if args.pontoon else set(args.extra)
    if args.pontoon:
        try:
            todo[PONTOON] = pontoon(at.cores)
        except (Skip, OSError) as error:
            sitting.skipped[PONTOON] = str(error)
    todo |= {name: Command(command) for name, command in args.extra.items()}

    rounds.run(todo, at, args.rounds, args.limit, sitting)
    order = [*RIVALS, PONTOON, *args.extra]
    by_contestant = sorted(
        sitting.rows.items(), key=lambda it: order.index(it[0].partition("/")[0])
    )
    sitting.rows = dict(by_contestant)
    found = ratios(sitting.rows, own, args.vs)
    print(report.figures(sitting.rows), end="")
    print(report.comparison(sitting.rows, found), end="")
    print(report.remarks(sitting), end="")
    if args.json:
        data = report.as_json(sitting, found, at, args.rounds)
        try:
            args.json.write_text(json.dumps(data, indent=1) + "\n")
        except OSError as error:
            print(f"peers.py: --json: {error}", file=sys.stderr)
            return 1
    return 1 if own & {name.partition("/")[0] for name in sitting.skipped} else 0


def ready(names: list[str], at: Place, sitting: rounds.Sitting) -> dict[str, Contestant]:
    """Those that are installed and have the CPUs they need; why the others do not run is noted."""
    state, found = at.state(), {}
    for name in names:
        if state.get(name) != "":
            sitting.skipped[name] = state.get(name) or f"not installed: peers.py install {name}"
        elif RIVALS[name].cores > len(at.cores.split(",")):
            sitting.skipped[name] = "needs two CPUs"
        else:
            found[name] = RIVALS[name]
    return found


def pinned(given: str, cpus: list[int]) -> str:
    """The CPUs to pin to, of those that this process may use."""
    if not given:
        return ",".join(map(str, cpus[:2]))
    found = given.split(",")
    if not all(re.fullmatch("[0-9]+", cpu) for cpu in found) or len(found) > 2:
        raise Misuse(f"--cores {given!r}: want one or two numbers of CPUs, as in 0,1")
    absent = [cpu for cpu in found if int(cpu) not in cpus]
    if absent:
        usable = ",".join(map(str, cpus))
        raise Misuse(f"--cores {given!r}: CPU {absent[0]} is none of those usable here: {usable}")
    if len({int(cpu) for cpu in found}) < len(found):
        raise Misuse(f"--cores {given!r}: two that share a CPU would measure its scheduler")
    return ",".join(str(int(cpu)) for cpu in found)


def rounds_of(text: str) -> int:
    """A number of rounds."""
    if not re.fullmatch("[0-9]+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds, 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """A time limit."""
    try:
        limit = float(text)
    except ValueError:
        limit = 0
    if not 0 < limit < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no time limit: want seconds above 0")
    return limit


def programs(specs: list[str]) -> dict[str, str]:
    """Commands by name, of NAME='COMMAND'."""
    found = {}
    for spec in specs:
        name, _, command = spec.partition("=")
        free = name not in RIVALS and name not in found and name != PONTOON
        if not command or not re.fullmatch(r"[\w.-]+", name) or not free:
            raise Misuse(f"--with {spec!r}: want NAME='COMMAND' with a name of its own")
        found[name] = command
    return found


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="peers.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True)
    place = os.environ.get("PEERS_DIR") or ROOT / ".peers"
    functions = {"list": cmd_list, "install": cmd_install, "run": cmd_run}
    subs = {name: commands.add_parser(name) for name in functions}
    for name, function in functions.items():
        sub = subs[name]
        sub.set_defaults(function=function)
        sub.add_argument("--dir", type=Path, default=place, help="where everything is installed")
        if name != "list":
            sub.add_argument("names", nargs="*", metavar="NAME", help="rivals, or all")
    add = subs["run"].add_argument
    add("--rounds", type=rounds_of, default=5)
    add("--cores", default="", help="two CPUs to pin to, e.g. 0,1")
    add("--limit", type=seconds, default=60, help="seconds for one contestant in one round")
    add("--json", type=Path, metavar="FILE")
    add("--no-pontoon", dest="pontoon", action="store_false", help="the rivals alone")
    add(
        "--with",
        dest="extra",
        action="append",
        default=[],
        metavar="NAME='COMMAND'",
        help="a command that prints rows as JSON lines",
    )
    add(
        "--vs",
        action="append",
        default=[],
        metavar="ROW=RIVAL_ROW",
        help="compare these (shell patterns, within a SIZE) instead of what is comparable",
    )
    return top


class Parser(argparse.ArgumentParser):
    """One whose refusal is a line."""

    def error(self, message: str) -> NoReturn:
        print(f"peers.py: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def main() -> int:
    """Runs the command, and says what became of its output."""
    try:
        status = command()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        status = 128 + signal.SIGPIPE  # as a shell tells of one that it ended
    except OSError as error:
        print(f"peers.py: cannot write the results: {error}", file=sys.stderr)
        status = 1
    # What is left in the buffer would be tried once more at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def command() -> int:
    args = parser().parse_args()
    args.dir = args.dir.resolve()
    if not children.adopt_orphans():
        print("peers.py: cannot adopt orphans; some may be left running", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if "extra" in args:
            args.extra = programs(args.extra)
        return args.function(args)
    except (Misuse, UnknownRival) as error:
        print(f"peers.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\npeers.py: interrupted", file=sys.stderr)
        return 130
    finally:
        children.stop_all()


if __name__ == "__main__":
    sys.exit(main())
