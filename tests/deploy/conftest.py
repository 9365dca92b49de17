"""What is fitted on clusters, and the model that one process makes of it."""

import pytest
from deploying import MORE, fit_arguments, smtdist, write_images


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("data") / "images.h5", 6_000, 16)


@pytest.fixture(scope="module")
def want(data):
    out = data.parent / "want.h5"
    smtdist(*fit_arguments(data, out, *MORE))
    return out
