"""What a sitting found: tables for people, JSON for programs."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import asdict
from pathlib import Path

from compare import STANDS_IN, Ratio
from place import Place
from rounds import Sitting
from rows import Row, base_of, show, size_of, speed

RATIO = "ours / theirs"
# Share of the CPUs that others may have before a figure is worth a warning.
BUSY = 0.1


def table(head: list[str], lines: list[list[str]], numbers: bool = True) -> str:
    """Aligned columns; to the right, but for the first, where they hold numbers."""
    if not lines:
        return ""
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    text = ""
    for line in [head, *lines]:
        cells = zip(line, widths, strict=True)
        padded = [c.rjust(w) if i and numbers else c.ljust(w) for i, (c, w) in enumerate(cells)]
        text += "  ".join(padded).rstrip() + "\n"
    return text + "\n"


def figures(rows: dict[str, Row]) -> str:
    """Every row, with how far apart the CPUs were meanwhile."""
    lines = []
    for name, row in rows.items():
        middle, low, high = row.stats()
        near = [it for pair in row.line.values() for it in pair]
        lines.append(
            [
                name,
                *(show(it, row.unit) for it in (middle, low, high)),
                str(len(row.values)),
                speed(name, middle, row.unit),
                f"{min(near):.0f}-{max(near):.0f}" if near else "",
            ]
        )
    return table(["row", "median", "min", "max", "rounds", "GB/s", "line ns"], lines)


def comparison(rows: dict[str, Row], found: list[Ratio]) -> str:
    """A table for each of our figures: its sizes in columns, a rival a line."""
    text = ""
    for base in dict.fromkeys(base_of(it.row) for it in found):
        ours = [name for name in rows if base_of(name) == base]
        sizes = sorted({size_of(name) for name in ours}, key=bytes_of)
        head = [base]
        first = ["ours"]
        for size in sizes:
            head += [size, RATIO]
            row = rows[f"{base}/{size}"]
            first += [show(row.stats()[0], row.unit), ""]
        here = [it for it in found if base_of(it.row) == base]
        lines, notes = [first], ""
        for rival in dict.fromkeys(base_of(it.rival) for it in here):
            line = [rival]
            if rival in STANDS_IN:
                line = [f"{rival} *"]
                notes += f"* {rival}: {STANDS_IN[rival][1]}\n"
            for size in sizes:
                line += cells(rows, [it for it in here if pair(it) == (size, rival)])
            lines.append(line)
        text += table(head, lines) + (notes and notes + "\n")
    if any(not it.alike for it in found):
        text += "~ the CPUs were not equally far apart for both in any round\n"
    return text


def pair(ratio: Ratio) -> tuple[str, str]:
    return size_of(ratio.row), base_of(ratio.rival)


def cells(rows: dict[str, Row], found: list[Ratio]) -> list[str]:
    """The rival's median, and the ratio with its range and number of rounds."""
    if not found:
        return ["-", ""]
    it = found[0]
    row = rows[it.rival]
    span = f"{times(it.median)}x ({times(it.least)}-{times(it.most)}, {it.rounds})"
    return [show(row.stats()[0], row.unit), span + ("" if it.alike else " ~")]


def times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def bytes_of(size: str) -> tuple[int, str]:
    """What sizes are sorted by; what is no size comes last."""
    match = re.fullmatch(r"(\d+)(B|KiB|MiB)", size)
    if not match:
        return 1 << 62, size
    return int(match[1]) << {"B": 0, "KiB": 10, "MiB": 20}[match[2]], size


def remarks(sitting: Sitting) -> str:
    """What is missing, and whether the machine was quiet."""
    text = "".join(f"skipped: {name}: {why}\n" for name, why in sitting.skipped.items())
    if max(sitting.busy, default=0) > BUSY:
        least, most = min(sitting.busy), max(sitting.busy)
        text += (
            f"note: other work kept the CPUs {least:.0%} to {most:.0%} busy before the rounds: "
            "trust ratios more than figures, and more rounds more than few\n"
        )
    return text


def as_json(sitting: Sitting, found: list[Ratio], at: Place, rounds: int) -> dict:
    """Rounds are counted from 1."""
    models = re.findall(r"(?m)^model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    rows = []
    for name, row in sitting.rows.items():
        middle, low, high = row.stats()
        values = {str(k + 1): v for k, v in row.values.items()}
        line = {str(k + 1): v for k, v in row.line.items()}
        figure = {"median": middle, "min": low, "max": high, "rounds": values, "line": line}
        rows.append({"name": name, "unit": row.unit, **figure})
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "cores": at.cores,
        "rounds": rounds,
        "busy": sitting.busy,
        "rows": rows,
        "ratios": [asdict(it) for it in found],
        "skipped": sitting.skipped,
    }
