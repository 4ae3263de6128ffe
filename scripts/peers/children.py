"""Child processes with a deadline. Only what this program started is ever signalled."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> bool:
    """Makes the orphans of a child our children, so that stop_all finds them."""
    return ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def parents() -> dict[int, tuple[int, str]]:
    """Parent and start time of every process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            found[int(stat.parent.name)] = (int(fields[1]), fields[19])
    return found


def descendants() -> set[tuple[int, str]]:
    """Own children and theirs, as (pid, start time): a pid alone may be another's by now."""
    table, found, level = parents(), set(), {os.getpid()}
    while level:
        level = {pid for pid, (parent, _) in table.items() if parent in level}
        found |= {(pid, table[pid][1]) for pid in level}
    return found


def stop_all() -> None:
    """Ends everything that this program started and that still runs."""
    for sig, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        ours = descendants()
        for pid, _ in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        end = time.monotonic() + patience
        while ours & descendants() and time.monotonic() < end:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.02)


def start(
    argv: list[str], env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen:
    return subprocess.Popen(
        argv,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def finish(child: subprocess.Popen, deadline: float) -> tuple[str, str]:
    """Standard output, and why the child failed ('' if it did not)."""
    late = ""
    try:
        out, err = child.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        late = "ran past its time limit"
        stop_all()
        out, err = child.communicate()
    if late or not child.returncode:
        return out, late
    said = [line.strip() for line in (err + "\n" + out).splitlines() if line.strip(" -*=")]
    return out, f"exit status {child.returncode}: {said[-1][:160] if said else 'no message'}"
