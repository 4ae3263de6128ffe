"""Which rows are comparable, and how many times as long ours takes."""

from __future__ import annotations

import fnmatch
import statistics
from dataclasses import dataclass

from rows import Row, base_of, size_of

# What different programs call the same thing.
SAME_METRIC = {"put_signal": "one_way"}

# Rows of rivals that stand in for a metric, and what they leave out of it.
STANDS_IN = {
    "mooncake/tcp/write": ("one_way", "until the writer knows; the reader is not told"),
    "iceoryx2/loan/one_way": ("one_way", "sends what nobody wrote: no byte is copied"),
}

# Cache line round trips further apart than this make two rows of one round different machines.
ALIKE = 1.5


@dataclass(frozen=True)
class Ratio:
    """Ours over the rival's, formed round by round: below 1, ours is faster."""

    row: str
    rival: str
    median: float
    least: float
    most: float
    rounds: int
    # Whether both were measured while the CPUs were equally far apart.
    alike: bool


def kind(name: str) -> tuple[str, str, str]:
    """What two rows must share to be comparable: metric, size, and over what it goes."""
    base = base_of(name)
    metric = base.rpartition("/")[2]
    if base in STANDS_IN:
        metric = STANDS_IN[base][0]
    return SAME_METRIC.get(metric, metric), size_of(name), "tcp" if "tcp" in base else "memory"


def wanted(name: str, row: Row, rules: list[str]) -> list[str]:
    """The rivals' rows that the caller (`ROW=RIVAL_ROW`) or the program wants compared."""
    found = []
    for rule in rules:
        ours, _, theirs = rule.partition("=")
        if fnmatch.fnmatch(name, ours) or fnmatch.fnmatch(name, f"*/{ours}"):
            found.append(theirs)
    return found + row.vs


def is_rival_of(name: str, other: str, asked: list[str]) -> bool:
    """A pattern keeps to its size; a whole name need not."""
    if not asked:
        return kind(name) == kind(other)
    same_size = size_of(name) == size_of(other)
    return any(other == it or (same_size and fnmatch.fnmatch(other, it)) for it in asked)


def ratio(name: str, row: Row, other: str, rival: Row) -> Ratio | None:
    """Of the rounds in which the CPUs were equally far apart for both, if there are any."""
    both = [k for k in row.values if rival.values.get(k)]
    alike = [k for k in both if are_alike(row, rival, k)]
    found = [row.values[k] / rival.values[k] for k in alike or both]
    if not found:
        return None
    middle = statistics.median(found)
    return Ratio(name, other, middle, min(found), max(found), len(found), bool(alike))


def are_alike(a: Row, b: Row, k: int) -> bool:
    lines = [*a.line.get(k, ()), *b.line.get(k, ())]
    return not lines or max(lines) < ALIKE * min(lines)


def ratios(rows: dict[str, Row], own: set[str], rules: list[str]) -> list[Ratio]:
    """Every own row (the first part of its name is in `own`) against each comparable one."""
    found = []
    for name, row in rows.items():
        if name.partition("/")[0] not in own:
            continue
        asked = wanted(name, row, rules)
        for other, rival in rows.items():
            if other.partition("/")[0] in own or rival.unit != row.unit:
                continue
            if is_rival_of(name, other, asked) and (it := ratio(name, row, other, rival)):
                found.append(it)
    return found
