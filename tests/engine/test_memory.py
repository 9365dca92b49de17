"""Memory that a task drops goes back to the machine, whatever the allocator was told before."""

import subprocess
import sys

import pytest

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
    done = subprocess.run([sys.executable, "-c", GROWTH, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_dropped_sums_leave_no_gaps_in_the_heap():
    assert growth("settled") < 8 << 20
    assert growth("as it is") > 16 << 20, "the allocator needs no telling any more"
