"""What all tests share: `import reference` (the oracle), `import drawing` (small images), and where real data lie."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same draws every time, so that a green tree stays green; `pytest --hypothesis-profile explore` draws anew.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=300, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def real_data():
    """The folder of real data: $SMTDIST_DATA, where nothing may be missing, else one beside the checkout, else skip."""
    named = os.environ.get("SMTDIST_DATA")
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(named) if named else beside

    def path(name):
        if (folder / name).exists():
            return folder / name
        if named:
            pytest.fail(f"SMTDIST_DATA is {named}, but it has no {name}")
        return pytest.skip(f"no real data: set SMTDIST_DATA to a folder with {name}")

    return path
