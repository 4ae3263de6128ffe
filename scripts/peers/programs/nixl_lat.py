"""NIXL (UCX backend), DRAM to DRAM between two processes.

  write/SIZE        post of a WRITE until the initiator sees DONE
  one_way/SIZE      WRITE with a notification, which the target answers with the same: half of
                    the round trip
Usage: nixl_lat.py        UCX_TLS in the environment selects the transport, e.g. tcp,self
Needs nixl-cu13 and numpy; no CUDA, no torch.
"""

import json
import multiprocessing
import os
import sys
import time

SIZES = {"8B": 8, "4KiB": 4096, "64KiB": 65536, "4MiB": 4 << 20}
WRITES = {"8B": 800, "4KiB": 800, "64KiB": 400, "4MiB": 40}
HALF = 4 << 20
ONE_WAYS = {"8B": 400, "4KiB": 400, "4MiB": 40}


def pin(side: int) -> None:
    cores = os.environ.get("PEERS_CORES") or "0,1"
    os.sched_setaffinity(0, {int(cores.split(",")[side])})


def agent(name: str):
    """An agent and its registered 8 MiB buffer. Its progress thread is off: on two cores it turns
    microseconds into tens of milliseconds. The caller makes progress by polling."""
    import numpy
    from nixl_cu13._api import nixl_agent, nixl_agent_config

    a = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
    buf = numpy.full(8 << 20, 1 if name == "initiator" else 0, numpy.uint8)
    a.register_memory([(buf.ctypes.data, buf.nbytes, 0, "")], "DRAM")
    return a, buf


def writer(a, buf, half: int, address: int, name: str):
    """What makes a transfer from our half of the buffer to the same half of the other side's."""

    def handle(size: int, message: bytes):
        local = a.get_xfer_descs([(buf.ctypes.data + half, size, 0)], "DRAM")
        remote = a.get_xfer_descs([(address + half, size, 0)], "DRAM")
        return a.initialize_xfer("WRITE", local, remote, name, message)

    return handle


def meet(a, buf, pipe, patience: float):
    """Exchanges addresses; the other side's buffer and name."""
    pipe.send((a.get_agent_metadata(), buf.ctypes.data))
    if not pipe.poll(patience):
        raise RuntimeError("the other side did not start")
    metadata, address = pipe.recv()
    name = a.add_remote_agent(metadata)
    return address, name.decode() if isinstance(name, bytes) else name


def target(pipe) -> None:
    """Answers a write of SIZE with one of SIZE; its half of the buffers is the upper one."""
    pin(1)
    a, buf = agent("target")
    handle = writer(a, buf, HALF, *meet(a, buf, pipe, 30))
    answers = {}
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for messages in a.get_new_notifs().values():
            for m in messages:
                if m == b"stop":
                    pipe.send(int(buf[:HALF].sum()))
                    return
                if m not in answers:
                    answers[m] = handle(SIZES[m.decode()], b"answer")
                finish(a, answers[m], a.transfer(answers[m]))


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


def finish(a, handle, state) -> None:
    while state == "PROC":
        state = a.check_xfer_state(handle)
    if state != "DONE":
        raise RuntimeError(f"transfer state {state}")


def main() -> int:
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    # Forked before the first import of NIXL: its threads would not survive it.
    child = multiprocessing.get_context("fork").Process(target=target, args=(theirs,), daemon=True)
    child.start()
    pin(0)
    a, buf = agent("initiator")
    address, name = meet(a, buf, ours, 30)
    handle = writer(a, buf, 0, address, name)
    for label, size in SIZES.items():
        h, v = handle(size, b""), []
        for i in range(20 + WRITES[label]):
            t = time.perf_counter_ns()
            finish(a, h, a.transfer(h))
            if i >= 20:
                v.append(time.perf_counter_ns() - t)
        report(f"write/{label}", v)
    for label, count in ONE_WAYS.items():
        h, v = handle(SIZES[label], label.encode()), []
        for i in range(20 + count):
            t = time.perf_counter_ns()
            state, answered = a.transfer(h), False
            while not answered:
                answered = any(a.get_new_notifs().values())
                if state == "PROC":
                    state = a.check_xfer_state(h)
                if time.perf_counter_ns() - t > 5e9:
                    raise RuntimeError("no answer in 5 s")
            finish(a, h, state)
            if i >= 20:
                v.append((time.perf_counter_ns() - t) / 2)
        report(f"one_way/{label}", v)
    a.send_notif(name, b"stop")
    end = time.monotonic() + 5
    while not ours.poll(0.01) and time.monotonic() < end:
        a.get_new_notifs()
    ok = ours.poll(0) and ours.recv() == HALF and not buf[HALF:].any()
    if not ok:
        print("nixl_lat: a side does not hold the payload", file=sys.stderr)
    child.join(3)
    if child.is_alive():
        child.kill()
    sys.stdout.flush()
    os._exit(0 if ok else 1)  # the library's destructors may wait for the peer


main()
