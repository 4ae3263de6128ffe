"""Contestants take turns, round after round: what slows the machine for a while slows them all."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import children
from contestants import Contestant
from place import Place
from rows import Row, rows_of


@dataclass
class Sitting:
    """What some rounds gave."""

    rows: dict[str, Row] = field(default_factory=dict)
    # Per contestant or row, why there is no figure, or not one in every round.
    skipped: dict[str, str] = field(default_factory=dict)
    # Before each round, the share of all CPU time that others used.
    busy: list[float] = field(default_factory=list)

    def take(self, contestant: str, measured: dict, round: int, line: tuple[float, ...]) -> None:
        """Adds one row of one round."""
        name = f"{contestant}/{measured['name']}"
        if "skipped" in measured:
            self.skipped[name] = str(measured["skipped"])
            return
        row = self.rows.setdefault(name, Row(str(measured.get("unit", "ns"))))
        row.values[round], row.line[round] = float(measured["median"]), line
        vs = measured.get("vs", [])
        row.vs = [vs] if isinstance(vs, str) else list(vs)


def run(
    todo: dict[str, Contestant], at: Place, rounds: int, limit: float, sitting: Sitting
) -> None:
    """Measures each of `todo` once a round; `limit` is in seconds for each."""
    left = dict(todo)
    for k in range(rounds if todo else 0):
        sitting.busy.append(busy())
        say(f"round {k + 1} of {rounds}, CPUs {sitting.busy[-1]:.0%} busy with other work:")
        for name in list(left):
            line = line_round_trip(at)
            begin = time.monotonic()
            try:
                measured, failed = left[name].measure(at, begin + limit)
            except OSError as error:
                measured, failed = [], str(error)
            finally:
                children.stop_all()
            say(f" {name} {time.monotonic() - begin:.1f} s")
            line += line_round_trip(at)
            for row in measured:
                sitting.take(name, row, k, line)
            if failed or not measured:
                sitting.skipped[name] = f"round {k + 1}: {failed or 'it printed no row'}"
                say(f" ({sitting.skipped[name]})")
                if not measured:
                    del left[name]  # it would only cost its time limit again
        say("\n")


def say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def line_round_trip(at: Place) -> tuple[float, ...]:
    """How far apart the two CPUs are now, in ns; empty if raw is not installed."""
    raw = at.bin / "raw"
    if not raw.exists() or "," not in at.cores:
        return ()
    child = children.start([str(raw), "line"], {"PEERS_CORES": at.cores})
    out, _ = children.finish(child, time.monotonic() + 5)
    return tuple(row["median"] for row in rows_of(out) if "median" in row)


def busy(seconds: float = 0.3) -> float:
    """Share of all CPU time that others use now, steal included."""

    def read() -> tuple[int, int]:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        ticks = [int(it) for it in fields]
        return sum(ticks), ticks[3] + ticks[4]  # idle, waiting for input or output

    total, idle = read()
    time.sleep(seconds)
    total2, idle2 = read()
    return 1 - (idle2 - idle) / max(1, total2 - total)
