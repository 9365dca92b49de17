"""The figures of SMT 2023 are drawn by one command, and the page of docs shows those that there are."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from arrays_in_files import write_labelled
from encoding import pillow_bytes, write_encoded
from PIL import Image
from sklearn.datasets import load_digits

from replication.figures import __main__ as command
from replication.figures import mistakes

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "figures.md").read_text()


def check_picture(path):
    assert path.stat().st_size < 250_000
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture.convert("L"))
    height, width = pixels.shape
    assert 300 < width <= 1000
    assert 200 < height <= 1000
    assert pixels.std() > 10, f"{path} is blank"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Digits that stand in for MNIST, blots for CIFAR-10, sentences for books."""
    folder = tmp_path_factory.mktemp("data")
    digits = np.pad(load_digits().images[:60].repeat(3, 1).repeat(3, 2) * 15, ((0, 0), (2, 2), (2, 2)))
    write_labelled(folder / "mnist.h5", digits.astype(np.uint8), load_digits().target, {"train": 60})
    draw = np.random.default_rng(0)
    for group, count in (("train", 80), ("test", 40)):
        blots = draw.integers(0, 256, (count, 8, 8, 3)).repeat(4, 1).repeat(4, 2)
        images = np.clip(blots + draw.integers(-20, 20, blots.shape), 0, 255).astype(np.uint8)
        labels = draw.integers(0, 10, count)
        name = "cifar10_lossless.h5" if group == "train" else "cifar10_test_lossless.h5"
        write_encoded(folder / name, [pillow_bytes(one) for one in images], group, labels)
    (folder / "text").mkdir()
    who, does = ("cat", "dog", "wolf", "fox"), ("sat", "ran", "slept", "ate", "hid")
    lines = "".join(f"the {draw.choice(who)} {draw.choice(does)} here\n" for _ in range(300))
    (folder / "text" / "corpus.txt.gz").write_bytes(gzip.compress(lines.encode()))
    for name in ("valid", "test"):
        (folder / "text" / f"wikitext2_{name}.txt").write_text(lines)
    return folder


def drawn(data, tmp_path, *figures):
    out = tmp_path / "out"
    words = ["--small", "--data", str(data), "--work", str(tmp_path / "run"), "--out", str(out)]
    facts = command.main([*words, "--only", *map(str, figures)])
    assert set(facts) == set(figures)
    assert {path.name for path in out.iterdir()} == {f"figure-{figure}.png" for figure in facts}
    for path in out.iterdir():
        check_picture(path)
    return words, facts


@pytest.mark.benchmark
def test_draws_small(data, tmp_path):
    words, facts = drawn(data, tmp_path, 2, 4, 5, 7)
    assert facts[2]["stays"] > facts[2]["stayed"]
    assert sum(facts[7]["neighbours"].values()) == mistakes.COLUMNS**2 - 1
    assert facts[4]["a"]["cosines"][0] >= facts[4]["a"]["cosines"][1]
    assert facts[5]["wolf"]["nearest"]

    kept = sorted((tmp_path / "run").glob("*.h5"))
    before = [path.stat().st_mtime_ns for path in kept]
    again = command.main([*words, "--only", "4"])
    assert set(again) == {4}
    assert [path.stat().st_mtime_ns for path in kept] == before, "models are fitted once"
    with pytest.raises(SystemExit, match="steps of other options"):
        command.main(words[1:])


def test_the_page_of_docs_shows_what_there_is():
    named = set(re.findall(r"\]\(figures/(figure-\d+\.png)\)", PAGE))
    there = {path.name for path in (DOCS / "figures").iterdir()}
    assert named == there == {f"figure-{figure}.png" for figure in command.FIGURES}
    for name in there:
        check_picture(DOCS / "figures" / name)
    commands = re.findall(r"^    python -m replication\.figures .* --only ([\d ]+)$", PAGE, re.MULTILINE)
    assert {int(figure) for words in commands for figure in words.split()} == set(command.FIGURES)
    assert sum(path.stat().st_size for path in (DOCS / "figures").iterdir()) < 1_500_000
    assert "docs/figures.md" in (DOCS.parent / "README.md").read_text()
