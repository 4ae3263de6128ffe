"""Where rivals are installed, by which package managers, and which are."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import children

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
ROOT = HERE.parent.parent


class Skip(Exception):
    """Why a rival gives no figures."""


def do(
    argv: list[str], limit: float, env: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    """One step of an installation; what it wrote to standard output."""
    print("   ", " ".join(map(str, argv)), flush=True)
    child = children.start([str(a) for a in argv], env, cwd)
    out, failed = children.finish(child, time.monotonic() + limit)
    if failed:
        raise Skip(f"{Path(argv[0]).name}: {failed}")
    return out


@dataclass
class Place:
    """A folder with programs, a Python environment and a note of what is installed."""

    dir: Path
    cores: str = "0,1"
    updated: bool = False  # the package lists

    @property
    def bin(self) -> Path:
        return self.dir / "bin"

    @property
    def python(self) -> Path:
        return self.dir / "venv" / "bin" / "python"

    def prepare(self) -> None:
        self.bin.mkdir(parents=True, exist_ok=True)
        (self.dir / ".gitignore").write_text("*\n")

    def state(self) -> dict[str, str]:
        """Per rival, why it is not installed; '' if it is."""
        file = self.dir / "state.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def note(self, name: str, why: str) -> None:
        state = json.dumps({**self.state(), name: why}, indent=1)
        (self.dir / "state.json").write_text(state + "\n")

    def apt(self, wanted: Iterable[str]) -> None:
        """Each entry is a package, or several of which one is enough: first|second."""
        if not shutil.which("dpkg-query"):
            raise Skip("not a Debian machine")
        missing = [w.split("|")[0] for w in wanted if not any(map(is_installed, w.split("|")))]
        if not missing:
            return
        if os.geteuid():
            raise Skip("needs root for: apt-get install " + " ".join(missing))
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        get = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
        if not self.updated:
            do([*get, "update"], 300, env)
            self.updated = True
        do([*get, "install", "-y", "--no-install-recommends", *missing], 900, env)

    def pip(self, *args: str) -> None:
        if not self.python.exists():
            with contextlib.suppress(ImportError):
                import ensurepip  # noqa: F401  Debian's python3 comes without it
            if "ensurepip" not in sys.modules:
                self.apt(["python3-venv"])
            do([sys.executable, "-m", "venv", str(self.dir / "venv")], 120)
        pip = [str(self.python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        do([*pip, *args], 900)

    def cc(self, source: str, *flags: str, compiler: str = "gcc") -> None:
        program = self.bin / Path(source).stem
        do([compiler, "-O2", str(PROGRAMS / source), "-o", str(program), *flags], 120)

    def cargo(self, project: str) -> None:
        if not shutil.which("cargo"):
            raise Skip("cargo not found")
        target = self.dir / "target"
        build = ["cargo", "build", "-q", "--release", "--locked", "--target-dir", str(target)]
        do(build, 900, cwd=PROGRAMS / project)
        shutil.copy2(target / "release" / f"peer_{project}", self.bin / f"peer_{project}")


def is_installed(package: str) -> bool:
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(query, capture_output=True, text=True).stdout == "installed"
