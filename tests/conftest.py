"""What all tests share: `import reference` (the oracle) and `import drawing` (small images and codes)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def make_images():
    """Return the maker of images: make_images(seed, n, height, width, channels=1, dtype="uint8")."""
    from drawing import small_images

    return small_images
