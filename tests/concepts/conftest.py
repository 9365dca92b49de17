"""What tests of concepts share."""

import pytest

from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine


@pytest.fixture
def engine():
    """An engine whose work this process does."""
    return Engine(SerialExecutor())
