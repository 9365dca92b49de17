"""Memory that a task drops goes back to the machine, whatever the allocator was told before."""

import sys

import numpy as np
import psutil
import pytest
from arrays_in_files import write_arrays
from calling import program

from smtdist.engine import memory
from smtdist.errors import MemoryBudgetError

GROWTH = """
import sys
import numpy as np
from smtdist.engine.memory import resident_bytes, settle_heap

if sys.argv[1] == "settled":
    settle_heap()
large = np.ones(24 << 20, np.uint8)
del large  # from now on glibc takes arrays of up to 24 MiB from the heap
before = resident_bytes()
held, left = [], []
for _ in range(20):
    held.append(np.ones(6 << 20, np.uint8))
    left.append(np.ones(1 << 10, np.uint8))  # lies behind it
held.clear()
print(resident_bytes() - before)
"""


def growth(how):
    return int(program(GROWTH, how).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_dropped_sums_leave_no_gaps_in_the_heap():
    assert growth("settled") < 8 << 20
    assert growth("as it is") > 16 << 20, "the allocator needs no telling any more"


@pytest.fixture
def limited(monkeypatch):
    """Let one kind of limit seem set, so many bytes beyond what is mapped."""
    resource = pytest.importorskip("resource")

    def limit(kind, room):
        used = psutil.Process().memory_info()
        soft = {"RLIMIT_AS": used.vms, "RLIMIT_DATA": getattr(used, "data", 0)}[kind] + room
        wanted = getattr(resource, kind)
        none = (resource.RLIM_INFINITY,) * 2
        monkeypatch.setattr(memory, "M_ARENA_MAX", -99)  # the allocator of later tests stays as it is
        monkeypatch.setattr(resource, "getrlimit", lambda asked: (soft, soft) if asked == wanted else none)

    return limit


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is told by Linux")
@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_what_is_mapped_bounds_what_may_be_resident(kind, limited):
    whole, share = memory.memory_limit(), memory.worker_limit(3)
    assert share == whole // 4
    limited(kind, 2**29)
    room = memory.memory_limit() - memory.resident_bytes()
    assert 2**29 - 2**26 < room < 2**29 + 2**26
    assert min(share, room) <= memory.worker_limit(3) <= memory.memory_limit(), (
        "each process has it to itself"
    )
    memory.require_room()


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is told by Linux")
@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_blas_without_room_is_refused_before_it_looks_for_it(kind, limited):
    limited(kind, 2**26)
    with pytest.raises(MemoryBudgetError, match=r"may map .* need .* more before any data are read"):
        memory.require_room()


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is told by Linux")
@pytest.mark.parametrize("limit", [100_000_000, 250_000_000, 350_000_000, 600_000_000])
def test_a_fit_without_room_ends_with_a_sentence(limit, tmp_path):
    write_arrays(tmp_path / "d.h5", {"x": np.random.default_rng(0).integers(0, 256, (60, 8, 8), np.uint8)})
    text = (
        "import resource, sys; from smtdist.cli.app import main; limit = int(sys.argv.pop(1)); "
        "resource.setrlimit(resource.RLIMIT_AS, (limit,) * 2); main()"
    )
    command = "fit d.h5 --dataset x --out m.h5 --set dictionary=8 --set patch=3"
    done = program(text, limit, *command.split(), code=1, cwd=tmp_path, timeout=100)
    (sentence,) = done.stderr.splitlines()
    assert f"may map {limit / 2**20:.0f}" in sentence.replace("572.2", "572")
    assert sentence.endswith(("raise the limit.", "raise that limit to 2 GiB or more."))
