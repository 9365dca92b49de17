"""Reports are complete in themselves, and say what the files say."""

import html.parser
import itertools
import json
import re

import h5py
import numpy as np
import pytest
from drawing import small_images
from typer.testing import CliRunner

import smtdist
from smtdist import plot
from smtdist.cli import app
from smtdist.evaluate.knn import evaluate_knn
from smtdist.report.looks import matching_windows

SETTINGS = ["patch=3", "dictionary=20", "n_components=5", "pool_size=2", "threshold=0.4"]
# elements of HTML that have no end
VOID = {"meta", "img", "source", "link", "br", "hr", "input"}


class Page(html.parser.HTMLParser):
    """Reads a page: tables by caption, pictures, addresses, and whether every element ends."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.images, self.addresses, self.headings = {}, [], [], []
        self.sources, self.open, self.ids, self.facts, self.row, self.caption, self.cell = (
            [],
            [],
            [],
            None,
            None,
            None,
            None,
        )
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append((tag, attrs))
        self.addresses += [attrs[name] for name in ("src", "href", "srcset", "action") if name in attrs]
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag == "source":
            self.sources.append(attrs)
        if tag == "img":
            self.images.append(attrs)
        if tag == "tr":
            self.row = []
        if tag in ("td", "th", "caption"):
            self.cell = ""

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag
        if tag == "caption":
            self.caption, self.cell = self.cell, None
            assert self.caption not in self.tables
            self.tables[self.caption] = []
        if tag in ("td", "th"):
            self.row.append(self.cell)
            self.cell = None
        if tag == "tr":
            self.tables[self.caption].append(self.row)

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data
        tag, attrs = self.open[-1] if self.open else ("", {})
        if attrs.get("id") == "facts":
            self.facts = json.loads(data)
        if tag in ("h1", "h2"):
            self.headings.append((tag, data))


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code else result.stdout


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    images = small_images(0, 120, 9, 8)
    images[labels == 1, :4] //= 3
    with h5py.File(folder / "data.h5", "w") as file:
        for group, rows in (("train", slice(0, 90)), ("test", slice(90, 120))):
            file[f"{group}/images"], file[f"{group}/labels"] = images[rows], labels[rows]
            file[group].attrs["classes"] = ["<plain>", "darker & cut", "third"]
    words = [f"w{number}" for number in rng.integers(0, 20, 900)]
    (folder / "text.txt").write_text("\n".join(" ".join(words[at : at + 30]) for at in range(0, 900, 30)))
    changes = [word for text in SETTINGS for word in ("--set", text)]
    model = folder / "model <b>.h5"
    printed = run(
        "fit", folder / "data.h5", "--dataset", "train/images", "--out", model, *changes, "--json", "--quiet"
    )
    (folder / "fit.json").write_text(printed)
    run(
        "words",
        folder / "text.txt",
        "--out",
        folder / "words.h5",
        "--vocabulary",
        15,
        "--components",
        4,
        "--quiet",
    )
    run(
        "transform",
        model,
        folder / "data.h5",
        "--dataset",
        "train/images",
        "--out",
        folder / "z.h5",
        "--quiet",
    )
    run(
        "concepts",
        folder / "z.h5",
        "--dataset",
        "z",
        "--n-concepts",
        4,
        "--out",
        folder / "concepts.h5",
        "--quiet",
    )
    coder = folder / "sparse.h5"
    small = ["units=8", "patch=3", "rounds=2", "images=60"]
    changes = [word for text in small for word in ("--set", text)]
    run("sparse", "fit", folder / "data.h5", "--dataset", "train/images", "--out", coder, *changes, "--quiet")
    return folder


def page_of(at, name, *options):
    out = at / f"{name.split('.')[0]}.html"
    run("report", at / name, "--out", out, "--overwrite", *options)
    text = out.read_text()
    assert out.stat().st_size < 15e6
    return text, Page(text)


def assert_complete(text, page):
    """Nothing is fetched from anywhere, pictures have words, places exist once, headings are in order."""
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in page.addresses)
    assert {attrs["media"] for attrs in page.sources} <= {"screen and (prefers-color-scheme: dark)"}
    assert not re.search(r"url\(|@import|<link", text)
    assert all(len(image["alt"]) > 10 for image in page.images)
    assert len(page.ids) == len(set(page.ids))
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert [tag for tag, _ in page.headings].count("h1") == 1
    assert page.headings[0][0] == "h1"


@pytest.mark.parametrize("name", ["model <b>.h5", "words.h5", "concepts.h5", "sparse.h5", "z.h5", "data.h5"])
def test_every_kind_of_file_has_a_page_with_its_facts(at, name):
    text, page = page_of(at, name)
    assert_complete(text, page)
    assert page.facts == json.loads(run("info", at / name, "--json"))
    settings = {row[0]: row[1] for row in page.tables.get("Settings of the fit", [])}
    expected = page.facts["configuration"]
    assert settings == {key: "none" if value is None else str(value) for key, value in expected.items()}


def test_a_model_of_images_and_its_images(at):
    text, page = page_of(
        at,
        "model <b>.h5",
        "--data",
        at / "data.h5",
        "--train",
        "train",
        "--test",
        "test",
        "--run",
        at / "fit.json",
    )
    assert_complete(text, page)
    titles = [title for _, title in page.headings]
    for title in (
        "Spectrum",
        "Dictionary",
        "Accuracy",
        "Map of images",
        "Mistakes",
        "Matching patches",
        "The run",
        "Audit",
    ):
        assert title in titles
    model = smtdist.load(at / "model <b>.h5")
    z, labels = {}, {}
    for group in ("train", "test"):
        out = at / f"{group}-z.h5"
        run(
            "transform",
            at / "model <b>.h5",
            at / "data.h5",
            "--dataset",
            f"{group}/images",
            "--out",
            out,
            "--overwrite",
            "--quiet",
        )
        with h5py.File(out) as file, h5py.File(at / "data.h5") as data:
            z[group], labels[group] = file["z"][()], data[f"{group}/labels"][()]
    alone = evaluate_knn(z["train"], labels["train"], z["test"], labels["test"])
    assert page.facts["evaluation"] == alone.to_dict()
    assert f"{100 * alone.top1:.2f} % of 30 test images are right" in text
    wrong = page.tables["The same in words"][1:]
    assert len(wrong) == min(10, round(30 * (1 - alone.top1)))
    names = ["<plain>", "darker & cut", "third"]
    for number, true, found, *_ in wrong:
        assert true == names[labels["test"][int(number)]]
        assert true != found
    holds = dict(page.tables["The file"])
    embedding = model.embedding
    assert holds["rank"] == str(embedding.rank)
    assert holds["atoms"] == f"20, of which {int(embedding.dead.sum())} never fire"
    ends = embedding.eigenvalues[[0, -1]]
    assert holds["eigenvalues"].startswith(f"{ends[0]:.4g} to {ends[1]:.4g}, median")
    printed = json.loads((at / "fit.json").read_text().strip().splitlines()[-1])["passes"]
    rows = page.tables["Memory and time of each pass, beside what was planned"][1:]
    assert [row[0] for row in rows] == [one["name"] for one in printed]


def test_several_files_on_one_page(at):
    text, page = page_of(at, "model <b>.h5", "--and", at / "concepts.h5", "--and", at / "words.h5")
    assert_complete(text, page)
    assert [one["kind"] for one in page.facts["others"]] == ["concepts", "words"]
    with h5py.File(at / "concepts.h5") as file:
        sizes = file["size"][()].tolist()
    assert [int(row[1].replace(",", "")) for row in page.tables["Concepts (concepts.h5)"][1:]] == sizes


def test_matching_windows_are_alike_and_within_the_images(at):
    from smtdist.engine.executor import SerialExecutor
    from smtdist.engine.passes import Engine
    from smtdist.evaluate.run import Labelled
    from smtdist.report.looks import look

    model = smtdist.load(at / "model <b>.h5")
    parts = [Labelled.open([str(at / "data.h5")], group, model.settings) for group in ("train", "test")]
    looked = look(model, *((one.source, one.labels) for one in parts), Engine(SerialExecutor()))
    for asked in range(5):
        pairs = matching_windows(looked, asked, int(looked.rows[asked, 0]))
        assert pairs
        for side in zip(*pairs, strict=True):
            for one, other in itertools.combinations(side, 2):  # none overlaps another
                assert any(abs(one[axis] - other[axis]) >= one[axis + 2] for axis in (0, 1))
        for pair in pairs:
            for top, left, height, width in pair:
                assert 0 <= top <= 9 - height
                assert 0 <= left <= 8 - width
        # an image is most alike to itself in the same place
        looked.known_z[0] = looked.asked_z[asked]
        assert matching_windows(looked, asked, 0)[0][0] == matching_windows(looked, asked, 0)[0][1]


def test_bad_input_is_a_sentence_and_leaves_nothing(at, tmp_path):
    out = tmp_path / "r.html"
    model = at / "model <b>.h5"
    assert "end it with .html" in run("report", model, "--out", tmp_path / "r.pdf", code=2)
    assert "need all three" in run("report", model, "--out", out, "--train", "train", code=2)
    images = ["--data", at / "data.h5", "--train", "train", "--test", "test"]
    assert "holds words" in run("report", at / "words.h5", "--out", out, *images, code=2)
    assert "There is no file" in run("report", tmp_path / "none.h5", "--out", out, code=1)
    (tmp_path / "not.json").write_text("{")
    assert "is not what smtdist fit --json prints" in run(
        "report", model, "--out", out, "--run", tmp_path / "not.json", code=1
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["not.json"]


def test_plots_return_axes_and_draw_into_given_ones(at):
    model = smtdist.load(at / "model <b>.h5")
    for function in (plot.spectrum, plot.dictionary, plot.atom_neighbours):
        axes = function(model)
        assert function(model, axes) is axes
    curve = plot.spectrum(model).lines[0]
    np.testing.assert_array_equal(curve.get_ydata(), model.embedding.eigenvalues)
    patches = plot.atoms_as_patches(model)
    assert patches.shape == (20, 3, 3, 1)
    # back in whitened space they are the atoms
    whitened = patches.reshape(20, -1) @ model.whitening.whiten
    np.testing.assert_allclose(
        whitened, model.dictionary.grid, atol=1e-6 * np.abs(model.dictionary.grid).max()
    )
    counts = np.array([[3, 1], [0, 0]])
    shown = plot.confusion(counts).images[0].get_array()
    np.testing.assert_array_equal(shown, [[75, 25], [0, 0]])
