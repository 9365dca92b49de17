"""What figures share: where data lie, how large fits are, and models that are fitted once and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import smtdist
from benchmarks.steps import Steps
from replication.quality.cells import Fit
from replication.quality.images import Images, read
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.models import store
from smtdist.models.model import Model


@dataclass(frozen=True)
class Sizes:
    """Images, atoms and points of the fits."""

    points: int = 8000
    landmarks: int = 300
    mnist: int = 10_000
    mnist_atoms: int = 2048
    cifar: int = 4000
    cifar_known: int = 10_000
    cifar_test: int = 1000
    cifar_atoms: int = 2048
    components: int = 384
    vq_components: int = 64
    rounds: int = 10
    patches: int = 44
    vocabulary: int = 8000
    min_count: int = 20
    word_components: int = 100


SMALL = Sizes(
    points=800, landmarks=80, mnist=60, mnist_atoms=64, rounds=2, cifar=60, cifar_known=80, cifar_test=40, cifar_atoms=64,
    components=32, vq_components=32, patches=33, vocabulary=200, min_count=1, word_components=8,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Work:
    """The folder of data, the folder that models are kept in, and the sizes."""

    data: Path
    steps: Steps
    sizes: Sizes

    def model_file(self, data: str, count: int, settings: smtdist.Configuration) -> Path:
        """Return the file of the model of the first `count` training images, which is fitted unless it is there."""

        def fit(path: Path) -> None:
            images = self.images(data, "train", count, settings).array
            smtdist.SMT(**settings.to_dict(), workers=0).fit(images).save(path)

        return self.kept(f"{data}-{count}-{settings.digest()}.h5", fit)

    def model(self, data: str, count: int, settings: smtdist.Configuration) -> Model:
        """Return the model of `model_file`."""
        model: Model = store.load(self.model_file(data, count, settings))
        return model

    def images(self, data: str, group: str, count: int, settings: smtdist.Configuration) -> Images:
        """Return the first `count` images of a group and their labels."""
        return read(self.data, Fit(data, count, settings), group, count)

    def file(self, name: str) -> Path:
        """Return a file of the data; SystemExit where it is missing."""
        path = self.data / name
        if not path.exists():
            raise SystemExit(f"There is no {path}; give the folder that holds {name} as --data.")
        return path

    def kept(self, name: str, make: Callable[[Path], Any]) -> Path:
        """Return the path of a file that `make` writes unless it is there."""
        path = self.steps.path(name)
        if not path.exists():
            make(path)
        return path


def with_engine(do: Callable[[Engine], Any]) -> Any:
    """Return what is computed with an engine in this process."""
    with executor_for(workers=0) as executor:
        return do(Engine(executor, EventStream()))
