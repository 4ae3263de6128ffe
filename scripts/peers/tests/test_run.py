"""`peers.py` as a user runs it, with shell scripts as contestants."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PEERS = Path(__file__).resolve().parent.parent / "peers.py"
WATCHDOG = 120

LINK = """
echo '{"name":"link/shm/put_signal/8B","unit":"ns","median":50}'
echo '{"name":"link/shm/put_signal/4KiB","skipped":"no memory"}'
"""


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        (self.dir / "bin").mkdir()
        self.installed("raw", """echo '{"name":"one_way/8B","unit":"ns","median":100}'""")

    def installed(self, rival, script):
        """Lays a script where the rival's program would be."""
        program = self.dir / "bin" / rival
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        (self.dir / "state.json").write_text(json.dumps({rival: ""}))

    def peers(self, *args):
        argv = [sys.executable, str(PEERS), *args]
        env = {**os.environ, "PEERS_DIR": str(self.dir), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(argv, capture_output=True, text=True, timeout=WATCHDOG, env=env)

    def run_raw(self, *args):
        # Raw asks for two CPUs.
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("needs two CPUs")
        args = ["run", "raw", "--rounds", "2", "--no-pontoon", *args]
        return self.peers(*args)

    def test_ours_stands_beside_the_rival(self):
        out = self.dir / "out.json"
        ran = self.run_raw("--with", f"ours={LINK}", "--json", str(out))
        self.assertIn("0.50x (0.50-0.50, 2)", ran.stdout, ran.stderr)
        self.assertIn("skipped: ours/link/shm/put_signal/4KiB: no memory", ran.stdout)
        self.assertEqual(ran.returncode, 1, "a figure of ours is missing")
        found = json.loads(out.read_text())
        self.assertEqual([it["median"] for it in found["ratios"]], [0.5])
        self.assertEqual(found["rows"][0]["rounds"], {"1": 100, "2": 100})

    def test_a_rival_that_is_not_installed_is_skipped(self):
        ran = self.peers("run", "ucx", "--no-pontoon")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(ran.stdout, "skipped: ucx: not installed: peers.py install ucx\n")

    def test_why_an_installation_failed_is_said_again(self):
        (self.dir / "state.json").write_text('{"ucx": "not a Debian machine"}')
        self.assertIn("skipped: ucx: not a Debian", self.peers("run", "ucx", "--no-pontoon").stdout)

    def test_a_rival_that_fails_is_skipped_with_its_last_words(self):
        self.installed("raw", "echo one >&2; echo no cache line here >&2; exit 3")
        ran = self.run_raw()
        self.assertIn("skipped: raw: round 1: exit status 3: no cache line here", ran.stdout)
        self.assertEqual(ran.returncode, 0)

    def test_one_that_hangs_is_ended_with_its_children(self):
        note = self.dir / "pids"
        script = f"sleep 600 & echo $! >{note}; setsid sleep 600 & echo $! >>{note}; wait"
        ran = self.peers("run", "ucx", "--no-pontoon", "--limit", "1", "--with", f"ours={script}")
        self.assertIn("skipped: ours: round 1: ran past its time limit", ran.stdout)
        self.assertEqual(ran.returncode, 1)
        pids = note.read_text().split()
        self.assertEqual(len(pids), 2)
        self.assertEqual([pid for pid in pids if Path("/proc", pid).exists()], [])

    def test_nothing_that_one_leaves_behind_runs_while_the_next_is_measured(self):
        note = self.dir / "pid"
        row = """echo '{"name":"a/1","median":1}'"""
        leaves = f"setsid sleep 600 >/dev/null 2>&1 & echo $! >{note}; {row}"
        looks = f"if [ -e /proc/$(cat {note}) ]; then echo still there >&2; exit 1; fi; {row}"
        args = ["--with", f"one={leaves}", "--with", f"two={looks}", "--rounds", "1"]
        ran = self.peers("run", "raw", "--no-pontoon", *args)
        self.assertNotIn("still there", ran.stdout)
        self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_misuse_is_one_line_and_status_2(self):
        wrong = (["run", "nobody"], ["run", "--with", "raw=true"], ["run", "--with", "x"])
        for args in (*wrong, ["run", "--with", "pontoon=true"], ["install", "nobody"]):
            ran = self.peers(*args)
            self.assertEqual((ran.returncode, ran.stdout), (2, ""), args)
            self.assertEqual(len(ran.stderr.splitlines()), 1, ran.stderr)

    def test_options_that_make_no_sense_are_refused_before_anything_is_run(self):
        absent = str(max(os.sched_getaffinity(0)) + 1)
        for args, part in (
            (["--cores", "x"], "--cores 'x'"),
            (["--cores", f"0,{absent}"], f"CPU {absent} is none of those usable"),
            (["--cores", "0,0"], "share a CPU"),
            (["--cores", "0,00"], "share a CPU"),
            (["--cores", "0,"], "want one or two numbers"),
            (["--cores", "0,1,2"], "want one or two numbers"),
            (["--rounds", "0"], "'0' is no number of rounds"),
            (["--rounds=-1"], "'-1' is no number of rounds"),
            (["--rounds", "x"], "'x' is no number of rounds"),
            (["--limit", "0"], "'0' is no time limit"),
            (["--limit", "nan"], "'nan' is no time limit"),
            (["--json", "/nonexistent/x"], "--json: "),
        ):
            ran = self.peers("run", "raw", *args)
            self.assertEqual((ran.returncode, ran.stdout), (2, ""), (args, ran.stderr))
            self.assertEqual(len(ran.stderr.splitlines()), 1, ran.stderr)
            self.assertIn(part, ran.stderr)
        ran = self.peers("install", "raw", "--dir", "/proc/x")
        self.assertEqual((ran.returncode, ran.stdout), (2, ""), ran.stderr)
        self.assertRegex(ran.stderr, r"^peers.py: --dir: cannot install there: .*\n$")

    def test_output_that_cannot_be_written_is_one_line_or_none(self):
        argv = [sys.executable, str(PEERS), "list"]
        env = {**os.environ, "PEERS_DIR": str(self.dir), "PYTHONDONTWRITEBYTECODE": "1"}
        with open("/dev/full", "w") as full:
            ran = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, r"^peers.py: cannot write the results: .*No space.*\n$")
        read, write = os.pipe()
        os.close(read)
        ran = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, text=True, env=env)
        os.close(write)
        self.assertEqual((ran.returncode, ran.stderr), (141, ""))

    def test_the_list_says_what_is_installed(self):
        lines = {
            line.split()[0]: line.split()[1]
            for line in self.peers("list").stdout.splitlines()
            if line
        }
        self.assertEqual((lines["raw"], lines["ucx"]), ("installed", "-"))


if __name__ == "__main__":
    unittest.main()
