"""The fits that two trees must agree on: one table of commands, as a user types them, and how a tree names its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

Command = tuple[str, ...]

Translation = Callable[[Command], Command]


@dataclass(frozen=True)
class Fit:
    """Commands of one fit, run in turn in a folder of its own, beside a folder `../data`.

    `stopped` says that the first command is to be stopped once its checkpoint `ck` holds so many files, and by which
    signal. `begun_by_old` says that the old tree runs the first command for both. The files that are compared are all HDF5,
    JSON and NPY files in the folder, outside of `ck`.
    """

    name: str
    commands: tuple[Command, ...]
    stopped: tuple[int, str] | None = None
    begun_by_old: bool = False


def _words(text: str) -> Command:
    return tuple(text.split())


def _fit(
    name: str, *commands: str, stopped: tuple[int, str] | None = None, begun_by_old: bool = False
) -> Fit:
    return Fit(name, tuple(_words(command) for command in commands), stopped, begun_by_old)


def _set(text: str) -> str:
    return " ".join(f"--set {pair}" for pair in text.split())


SMT: Final = _set("patch=3 dictionary=24 n_components=6 pool_size=2")
GQ: Final = f"{SMT} --set threshold=0.4 --set zero_code=leave_out"  # said, as the default was another once
VQ: Final = f"{SMT} --set feature=vq"
CODER: Final = "../data/images.h5 --dataset train/images --out m.h5 " + _set(
    "patch=4 units=12 rounds=3 images=60"
)
CODED: Final = _set("patch=4 dictionary=16 rounds=2 n_components=5 positions=12 stride=2 pool_size=2")
VIDEO: Final = _set("patch=6 length=4 places=4 atoms=24 rounds=2 batch=60 n_components=6 penalty=0.2")
ROWS: Final = "--features both --pool 2 --mirrored"
TEXT: Final = "--components 3 --max-words 4096 --window 2"


def _images(name: str, settings: str, data: str = "train", more: str = "") -> Fit:
    return _fit(
        name,
        f"fit ../data/images.h5 --dataset {data}/images --out m.h5 {settings} {more}",
        f"transform m.h5 ../data/images.h5 --dataset {'test' if data == 'train' else data}/images --out z.h5",
    )


def _kernel(name: str, settings: str) -> Fit:
    return _fit(
        name,
        f"kernel fit ../data/tables.h5 --dataset x --out m.h5 --set noise=0.4 {settings}",
        "kernel transform m.h5 ../data/tables.h5 --dataset more --out z.h5",
    )


FITS: Final = (
    _images("gq-whole", GQ),
    _images("vq-whole", VQ),
    _images("gq-window", f"{GQ} --set context=2"),
    _images("vq-window-order-2", f"{VQ} --set context=2 --set order=2"),
    _images("gq-window-order-2", f"{GQ} --set context=3 --set order=2"),
    _images("gq-flip-grey", f"{GQ} --set flip=true --set grey=true", "colour"),
    _images(
        "gq-flip-each-image",
        f"{GQ} --set flip=true --set whitening_covariance=image --set mean=level",
        "colour",
    ),
    _images("vq-colour-level", f"{VQ} --set mean=level --set context=3 --set flip=true", "colour"),
    _images("gq-stride-positions", f"{GQ} --set stride=2 --set positions=9 --set context=4"),
    _images("gq-two-workers", f"{GQ} --set context=2 --set flip=true", more="--workers 2"),
    _images("vq-kmeans", f"{VQ} --set dictionary_method=kmeans --set dictionary_rounds=3"),
    _fit(
        "update-merge-withdraw",
        f"fit ../data/images.h5 --dataset 0/images --out base.h5 {GQ}",
        "fit ../data/images.h5 --dataset 1/images --out one.h5 --from-model base.h5",
        "update base.h5 ../data/images.h5 --dataset 2/images --out more.h5",
        "merge more.h5 one.h5 --out all.h5",
        "update all.h5 ../data/images.h5 --dataset 2/images --withdraw --out less.h5",
        "merge all.h5 --subtract one.h5 --out rest.h5",
    ),
    _fit(
        "tune",
        f"tune ../data/images.h5 --train train --validation test {GQ} --out t.json "
        "--grid threshold=0.3,0.5 --grid dictionary=12,24 --grid n_components=3,6",
    ),
    _fit(
        "gq-stopped",
        f"fit ../data/images.h5 --dataset train/images --out m.h5 {GQ} --set context=2 --checkpoint ck",
        "resume ck --overwrite",
        stopped=(3, "SIGTERM"),
    ),
    _fit(
        "vq-killed",
        f"fit ../data/images.h5 --dataset train/images --out m.h5 {VQ} --checkpoint ck",
        "resume ck --overwrite",
        stopped=(5, "SIGKILL"),
    ),
    _fit(
        "gq-killed-in-old-resumed-in-new",
        f"fit ../data/images.h5 --dataset train/images --out m.h5 {GQ} --set context=2 --checkpoint ck",
        "resume ck --overwrite",
        stopped=(7, "SIGKILL"),
        begun_by_old=True,
    ),
    _images("gq-mirrored-dictionary", f"{GQ} --set flip=true --set dictionary_mirrored=true"),
    _fit(
        "vq-more-atoms-than-are-stored-in-full",
        "fit ../data/images.h5 --dataset train/images --out m.h5 --set patch=3 --set feature=vq --set dictionary=4200 "
        "--set n_components=6 --set pool_size=2 --set context=2",
        "transform m.h5 ../data/images.h5 --dataset test/images --out z.h5",
    ),
    _fit(
        "joined",
        "fit ../data/images.h5 --dataset colour/images --out m.h5 --preset cifar10-gq-joined "
        + _set("patch=3 dictionary=24 n_components=6 drop=1 pool_size=2 threshold=0.3"),
        "transform m.h5 ../data/images.h5 --dataset colour/images --out z.h5",
    ),
    _fit(
        "heads",
        f"fit ../data/images.h5 --dataset 0/images --out m.h5 {GQ}",
        f"transform m.h5 ../data/images.h5 --dataset 0 --out first.h5 {ROWS}",
        f"transform m.h5 ../data/images.h5 --dataset 1 --out second.h5 {ROWS} --half",
        "head fit first.h5 --out exact.h5",
        "head fit first.h5 --landmarks 8 --out sums.h5",
        "head update sums.h5 second.h5 --out more.h5",
        "head update more.h5 second.h5 --withdraw --out less.h5",
        "head predict exact.h5 second.h5 --out by_exact.h5",
        "head predict more.h5 first.h5 --out by_sums.h5",
    ),
    _images("code-l1", f"--set feature=l1 {CODED}"),
    _images("code-omp", f"--set feature=omp {CODED}"),
    _images("code-s3c", f"--set feature=s3c {CODED}"),
    _fit("sparse", f"fit --model l1 {CODER}"),
    _fit("s3c", f"fit --model s3c {CODER}"),
    _fit("s3c-two-workers", f"fit --model s3c {CODER} --workers 2"),
    _fit(
        "points-knn",
        "points fit ../data/tables.h5 --dataset x --size 25 --neighbours 4 --components 3 --out m.h5",
        "points transform m.h5 ../data/tables.h5 --dataset more --out z.h5",
    ),
    _fit(
        "points-fourier-noise",
        "points fit ../data/tables.h5 --dataset x --features fourier --context noise --size 25 --width 0.6 "
        "--components 3 --out m.h5",
        "points transform m.h5 ../data/tables.h5 --dataset more --out z.h5",
    ),
    _fit("video", f"video fit ../data/clips.h5 --out m.h5 {VIDEO}"),
    _fit(
        "video-two-layers",
        f"video fit ../data/clips.h5 --clip one --out below.h5 {VIDEO}",
        "video fit ../data/clips.h5 --clip two --below below.h5 --out m.h5 "
        + _set("atoms=12 rounds=1 batch=40 n_components=4"),
    ),
    _fit("video-two-workers", f"video fit ../data/clips.h5 --out m.h5 {VIDEO} --workers 2"),
    _fit(
        "words",
        f"words ../data/a.txt ../data/b.txt --out m.h5 {TEXT}",
        "words ../data/b.txt --model m.h5 --withdraw --out less.h5",
        "words ../data/c.txt --model less.h5 --out more.h5",
        "words ../data/a.txt --model m.h5 --withdraw --lines 4-30 --out lines.h5",
    ),
    _fit("words-two-workers", f"words ../data/a.txt ../data/b.txt --out m.h5 {TEXT} --workers 2"),
    _kernel("kernel-contrastive", "--model kernel-contrastive"),
    _kernel(
        "kernel-spectral",
        "--model kernel-spectral --set features=nystroem --set n_features=40 --set rounds=20 --set learning_rate=0.1",
    ),
    _kernel(
        "kernel-autoencoder",
        "--model kernel-autoencoder --set features=relu --set kernel=relu --set n_features=32 --set rounds=10",
    ),
    _fit(
        "concepts-hybrid",
        "concepts ../data/tables.h5 --dataset z --n-concepts 4 --set rank=4 --set sweeps=5 --out m.h5",
    ),
)
"""What is compared, in turn."""


def unchanged(command: Command) -> Command:
    """Return a command as the table has it."""
    return command


def renamed(**options: str) -> Translation:
    """Return a translation that replaces whole words, such as `dictionary=24` or `--subtract`, by others."""

    def translated(command: Command) -> Command:
        return tuple(options.get(word, word) for word in command)

    return translated


TRANSLATIONS: Final[dict[str, Translation]] = {"old": unchanged, "new": unchanged}
"""How each tree spells the commands of the table. The table speaks as the new tree does; an old tree is translated for."""


def chosen(names: Sequence[str]) -> tuple[Fit, ...]:
    """Return the fits of these names; all of them where none is given."""
    unknown = sorted(set(names) - {fit.name for fit in FITS})
    if unknown:
        raise ValueError(f"There is no fit {', '.join(unknown)}; --list shows them.")
    return tuple(fit for fit in FITS if not names or fit.name in names)
