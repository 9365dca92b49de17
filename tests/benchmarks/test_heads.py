"""The benchmark of heads: the images that it copies."""

import h5py
import numpy as np

from replication.heads import first_images
from smtdist.data.look import numbering_of


def test_the_first_images_keep_the_names_of_their_classes(tmp_path):
    # a test file beside the copy names its classes: numbers alone could not be compared with them
    names = ["cat", "dog"]
    for place in ("file", "group"):
        whole, some = tmp_path / f"{place}.h5", tmp_path / f"some-{place}.h5"
        with h5py.File(whole, "w") as file:
            group = file.create_group("train")
            group["images"], group["labels"] = np.zeros((5, 4, 4), np.uint8), np.arange(5) % 2
            (file if place == "file" else group).attrs["classes"] = names
        first_images(whole, "train", 3, some)
        assert numbering_of(some, "train/labels").names == tuple(names)
