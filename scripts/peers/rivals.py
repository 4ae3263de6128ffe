"""The rivals there are. Where each comes from and under which licence: README.md."""

from __future__ import annotations

from contestants import Contestant, Mooncake, Nixl, OpenMpi, Program, Tinygrad, Ucx

GCC = ("gcc", "libc6-dev")
OPEN_MPI = (*GCC, "libopenmpi-dev", "openmpi-bin")

RIVALS: dict[str, Contestant] = {
    "raw": Program(
        "the machine's own limits: cache line, copy, futex, userfaultfd",
        apt=GCC,
        cc=("raw.c", "-pthread"),
    ),
    "shmem": OpenMpi(
        "OpenSHMEM (Open MPI): put + fence + flag",
        apt=OPEN_MPI,
        cc=("shmem_lat.c",),
        compiler="oshcc",
    ),
    "mpi": OpenMpi(
        "MPI RMA (Open MPI): put + flush + signal; send/receive",
        apt=OPEN_MPI,
        cc=("mpi_rma.c",),
        compiler="mpicc",
    ),
    "ucx": Ucx(
        "UCX ucx_perftest: put and active message, shared memory and tcp", apt=("ucx-utils",)
    ),
    "iceoryx2": Program(
        "iceoryx2 publish/subscribe, busy-polled",
        cargo="iceoryx2",
        apt=(*GCC, "libclang-dev|libclang1-19|libclang1-16|libclang1-15|libclang1-14"),
    ),
    "nixl": Nixl(
        "NIXL: DRAM write + notification between two agents, shared memory and tcp",
        pip=(("numpy",), ("--no-deps", "nixl-cu13==1.5.1")),
    ),
    "mooncake": Mooncake(
        "Mooncake transfer engine: DRAM write over loopback tcp",
        apt=("libibverbs1", "libnuma1", "libcurl4"),
        pip=(("numpy", "mooncake-transfer-engine-non-cuda==0.3.13.post1"),),
    ),
    # Rivals of queues, not of links.
    "lavapipe": Program(
        "Vulkan timeline semaphores on Mesa's CPU driver",
        cargo="lavapipe",
        cores=1,
        apt=(*GCC, "libvulkan1", "mesa-vulkan-drivers"),
        on_request=True,
    ),
    "pocl": Program(
        "OpenCL on PoCL: enqueue + finish; host and running kernel",
        apt=(*GCC, "pocl-opencl-icd", "ocl-icd-opencl-dev", "opencl-c-headers"),
        cc=("pocl_submit.c", "-lOpenCL"),
        cores=1,
        on_request=True,
    ),
    "tinygrad": Tinygrad(
        "tinygrad's CPU queue and timeline, from Python",
        cores=1,
        pip=(("tinygrad==0.14.0",),),
        apt=("clang|clang-19|clang-16|clang-15|clang-14|clang-13",),
        on_request=True,
    ),
}


class UnknownRival(Exception):
    """A name that no rival has."""


def chosen(names: list[str]) -> list[str]:
    """The rivals named; without a name, all of links and signals; `all` for every one."""
    unknown = sorted(set(names) - set(RIVALS) - {"all"})
    if unknown:
        raise UnknownRival(f"no such rival: {', '.join(unknown)}; there are {', '.join(RIVALS)}")
    if "all" in names:
        return list(RIVALS)
    return [n for n, it in RIVALS.items() if n in names or (not names and not it.on_request)]
