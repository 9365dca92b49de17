"""Whether a statistic's sums follow the number of BLAS's threads, which differs between machines."""

import numpy as np
from threadpoolctl import threadpool_limits


def bits_by_blas_threads(statistic, rows):
    """Return the bytes of a statistic's state after these rows, with one, two and three threads of BLAS."""
    found = []
    for threads in (1, 2, 3):
        state = statistic.zero()
        with threadpool_limits(threads, user_api="blas"):
            statistic.update(state, rows, 0)
        found.append(b"".join(np.asarray(state[each]).tobytes() for each in sorted(state)))
    return found
