"""Figures: one JSON line each, from any program, and what several rounds of them say.

    {"name": "one_way/8B", "unit": "ns", "median": 103.2}
    {"name": "one_way/8B", "skipped": "why there is no figure"}

A name is [VARIANT/...]METRIC/SIZE, and gets the program's own name in front.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field


def rows_of(text: str) -> Iterator[dict]:
    """The rows among the lines of a program's output."""
    for line in text.splitlines():
        line = line[line.find("{") :]  # launchers may put a tag in front
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            named = isinstance(row, dict) and isinstance(row.get("name"), str)
            if named and ("skipped" in row or is_number(row.get("median"))):
                yield row


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass
class Row:
    """One figure over all rounds, which are numbered from 0."""

    unit: str
    values: dict[int, float] = field(default_factory=dict)
    # The cache line round trip just before and after, if it was measured.
    line: dict[int, tuple[float, ...]] = field(default_factory=dict)
    # Rows of rivals to compare it with, where the program names some.
    vs: list[str] = field(default_factory=list)

    def stats(self) -> tuple[float, float, float]:
        """Median, minimum, maximum."""
        values = list(self.values.values())
        return statistics.median(values), min(values), max(values)


def show(value: float, unit: str) -> str:
    """A value as people read it."""
    if unit != "ns":
        return f"{value:.4g} {unit}"
    for scale, name in ((1, "ns"), (1e3, "us"), (1e6, "ms")):
        if value < 999.5 * scale:  # what would round to 1000 has the next unit
            return f"{value / scale:.3g} {name}"
    return f"{value / 1e9:.3g} s"


def size_of(name: str) -> str:
    return name.rpartition("/")[2]


def base_of(name: str) -> str:
    """The name without its size."""
    return name.rpartition("/")[0]


MOVES = ("one_way", "put_signal", "one_sided", "write", "memcpy")


def speed(name: str, median: float, unit: str) -> str:
    """GB/s where the row says how many bytes moved one way."""
    size = re.fullmatch(r"(\d+)(KiB|MiB)", size_of(name))
    moves = base_of(name).rpartition("/")[2] in MOVES and "/loan/" not in name
    if not size or not moves or unit != "ns":
        return ""
    return f"{int(size[1]) * {'KiB': 1 << 10, 'MiB': 1 << 20}[size[2]] / median:.1f}"
