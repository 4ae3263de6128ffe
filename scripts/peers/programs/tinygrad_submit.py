"""tinygrad's CPU device: a ring, a worker thread and a timeline signal, driven from Python.

  submit/dispatch        a captured one-kernel graph (TinyJit) is queued
  submit_wait/dispatch   the same + synchronize()
  idle_wait/empty        synchronize() with nothing pending
Usage: tinygrad_submit.py       CC names the C compiler tinygrad runs; it must be a clang.
"""

import json
import time

from tinygrad import Device, Tensor, TinyJit

device = Device["CPU"]
x = Tensor.ones(16, device="CPU").contiguous().realize()


@TinyJit
def step(a):
    return (a + 1).realize()


def report(name: str, v: list) -> None:
    v.sort()
    print(
        json.dumps(
            {
                "name": name,
                "unit": "ns",
                "median": v[len(v) // 2],
                "min": v[0],
                "max": v[-1],
                "n": len(v),
            }
        ),
        flush=True,
    )


for _ in range(20):  # the first calls trace and compile
    out = step(x)
device.synchronize()
submit, both, idle = [], [], []
for _ in range(1000):
    t0 = time.perf_counter_ns()
    out = step(x)
    t1 = time.perf_counter_ns()
    device.synchronize()
    t2 = time.perf_counter_ns()
    device.synchronize()
    t3 = time.perf_counter_ns()
    submit.append(t1 - t0)
    both.append(t2 - t0)
    idle.append(t3 - t2)
if out.tolist() != [2.0] * 16:
    raise SystemExit("tinygrad_submit: wrong result")
report("submit/dispatch", submit)
report("submit_wait/dispatch", both)
report("idle_wait/empty", idle)
