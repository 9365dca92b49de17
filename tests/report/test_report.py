"""Reports are complete in themselves, and say what the files say."""

import itertools
import json
import sys
import time

import h5py
import numpy as np
import pytest
from arrays_in_files import read_array
from executors import engine
from matplotlib.text import Text
from report_pages import assert_complete, make_files, page_of, run

import smtdist
from smtdist import plot
from smtdist.data.video import open_clips
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.models import store
from smtdist.models.functional.video import sequences_of
from smtdist.report import sections
from smtdist.report.looks import matching_windows
from smtdist.report.page import Text as Paragraph
from smtdist.statistics.operators import temporal_differences
from smtdist.statistics.sites import NEW

KINDS = ["model <b>.h5"] + [
    f"{name}.h5"
    for name in ["colour", "digits", "words", "concepts", "sparse", "kernel", "video", "z", "data"]
]


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    make_files(folder)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_has_a_page_with_its_facts(at, name):
    text, page = page_of(at, name)
    assert_complete(text, page)
    assert page.facts == json.loads(run("info", at / name, "--json").replace(f"{at}/", ""))
    assert str(at) not in text
    assert f"Made by smtdist {smtdist.__version__} on {time.strftime('%Y-%m-%d')}" in text
    settings = {row[0]: row[1] for row in page.tables.get("Settings of the fit", [])}
    expected = page.facts["configuration"]
    assert settings == {key: "none" if value is None else str(value) for key, value in expected.items()}


def test_a_model_of_images_and_its_images(at):
    given = ("--data", at / "data.h5", "--train", "train", "--test", "test", "--run", at / "fit.json")
    text, page = page_of(at, "model <b>.h5", *given)
    assert_complete(text, page)
    assert str(at) not in text
    assert [title for _, title in page.headings][1:] == [
        "Accuracy",
        "Map of images",
        "Mistakes",
        "Matching patches",
        "Dictionary",
        "Spectrum",
        "What it holds",
        "Audit",
        "The run",
        "Settings",
    ]
    model = smtdist.load(at / "model <b>.h5")
    z, labels = {}, {}
    for group in ("train", "test"):
        out = at / f"{group}-z.h5"
        where = ("--dataset", f"{group}/images", "--out", out, "--overwrite", "--quiet")
        run("transform", at / "model <b>.h5", at / "data.h5", *where)
        with h5py.File(out) as file, h5py.File(at / "data.h5") as data:
            z[group], labels[group] = file["z"][()], data[f"{group}/labels"][()]
    alone = SoftNeighbours()(z["train"], labels["train"], z["test"], labels["test"])
    judged = page.facts["evaluation"]
    raw = judged.pop("raw_pixels")
    assert judged == alone.to_dict()
    rows = [
        read_array(at / "data.h5", f"{group}/images").reshape(len(labels[group]), -1)
        for group in ("train", "test")
    ]
    pixels = SoftNeighbours()(
        rows[0].astype(np.float32), labels["train"], rows[1].astype(np.float32), labels["test"]
    )
    assert raw == {"top1": pixels.top1, "interval": list(pixels.interval)}
    beside = page.tables[f"By the {alone.k} nearest neighbours"][1:]
    assert [row[:2] for row in beside] == [
        ["representation", f"{100 * alone.top1:.1f} %"],
        ["raw pixels", f"{100 * pixels.top1:.1f} %"],
    ]
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


@pytest.mark.parametrize(("name", "data"), [("colour.h5", "colour-data.h5"), ("digits.h5", "data.h5")])
def test_numbers_of_images_are_those_of_the_file(at, name, data):
    """Of colour patches with many active atoms, and of grey ones with one: whatever the page says is in the file."""
    images = ["--data", at / data, "--train", "train", "--test", "test"]
    text, page = page_of(at, name, *images)
    assert_complete(text, page)
    with h5py.File(at / name) as file:
        values = file["embedding/eigenvalues"][()]
        alive = int((file["statistics/activity"][()] > 0).sum())
        samples = int(file["statistics/n_samples"][()])
    holds = dict(page.tables["The file"])
    assert holds["atoms"] == f"20, of which {20 - alive} never fire"
    drop = smtdist.load(at / name).settings.drop_components
    dropped = f", after {drop} that are dropped" if drop else ""
    assert holds["components"] == f"{len(values) - drop}{dropped}"
    middle = values[len(values) // 2]
    assert holds["eigenvalues"] == f"{values[0]:.4g} to {values[-1]:.4g}, median {middle:.4g}"
    assert f"{len(values)} eigenvalues from {values[0]:.4g} to {values[-1]:.4g}" in text
    ((_, added, _, _),) = page.tables["Data added and withdrawn, in order"][1:]
    assert int(added) == samples
    judged = json.loads(
        run("evaluate", at / name, at / data, "--train", "train", "--test", "test", "--json", "--quiet")
    )
    own = page.facts["evaluation"]
    for key in ("top1", "top5", "interval", "confusion", "n_train", "n_test"):
        assert own[key] == judged[key]
    low, high = judged["interval"]
    assert f"{100 * judged['top1']:.2f} % of {judged['n_test']} test images are right" in text
    assert judged["n_classes"] <= 5  # else the share within the first five stands there, too
    assert f"(95 % interval {100 * low:.1f} to {100 * high:.1f}). By raw pixels" in text


def test_numbers_of_words_are_those_of_the_file(at):
    text, page = page_of(at, "words.h5")
    model = store.load(at / "words.h5")
    rows = page.tables["Words and those nearest to them"][1:]
    assert rows
    for word, near in rows:
        assert near == ", ".join(one.word for one in model.nearest(word, 8))
    with h5py.File(at / "words.h5") as file:
        values, tokens = file["embedding/eigenvalues"][()], int(file["statistics/n_positions"][()])
    holds = dict(page.tables["The file"])
    assert holds["eigenvalues"] == f"{values[0]:.4g} to {values[-1]:.4g}"
    assert holds["components"].startswith(f"{len(values)} stored")
    assert f"{tokens:,} tokens" in holds["text"]
    assert f"{len(values)} eigenvalues from {values[0]:.4g} to {values[-1]:.4g}" in text


def test_numbers_of_concepts_are_those_of_the_file(at, monkeypatch):
    _, page = page_of(at, "concepts.h5")
    with h5py.File(at / "concepts.h5") as file:
        sizes, weights = file["size"][()], file["weight"][()]
        points = len(file["concepts"])
    rows = [
        [str(number), str(size), f"{size / points:.1%}", f"{weight:.4g}"]
        for number, (size, weight) in enumerate(zip(sizes, weights, strict=True))
    ]
    assert page.tables["Concepts"][1:] == rows
    holds = dict(page.tables["The file"])
    assert holds["concepts"].startswith(f"{len(sizes)} of {points} points")
    assert holds["members"].startswith(f"{sizes.min()} to {sizes.max()}, median")
    monkeypatch.setitem(sys.modules, "networkx", None)
    last = sections.of_concepts(at / "concepts.h5")[-1]
    assert (last.title, last.blocks) == (
        "Analogram",
        [Paragraph("Analograms need networkx; install smtdist[analogram].")],
    )


def test_numbers_of_kernels_are_those_of_the_file(at):
    text, page = page_of(at, "kernel.h5")
    model = store.load(at / "kernel.h5")
    values = model.spectrum.eigenvalues
    assert f"{len(values)} eigenvalues from {values[0]:.4g} to {values[-1]:.4g}" in text
    shown = model.encoder(model.encoder.rows[:2000])
    (caption,) = [name for name in page.tables if name.startswith("Components over")]
    assert caption == f"Components over {len(shown):,} remembered samples"
    means = [row[1] for row in page.tables[caption][1:]]
    assert means == [f"{value:.4g}" for value in shown.mean(axis=0)]


def test_straightness_is_that_of_the_sequences_of_the_fit(at):
    """It follows from the sums in the file, and equals what the codes of all the sequences say."""
    _, page = page_of(at, "video.h5")
    ((layer, codes, embedded, ratio),) = page.tables["How straight paths run"][1:]
    model, clips = store.load(at / "video.h5"), open_clips(str(at / "clips.h5"))
    with sequences_of(clips, model.settings).opened() as reader:
        rows = reader.read(0, reader.source.n_samples)
    marks, alone, expected = rows[..., -1], model.codes(rows[..., :-1]), []
    for one in (alone, alone @ model.components.T):
        bent = temporal_differences(one, 2)[(marks[:, :-2] > 0) & (marks[:, 2:] == NEW)]
        expected.append((bent**2).sum() / len(bent) / one[marks == NEW].var(axis=0).sum())
    np.testing.assert_allclose([float(codes), float(embedded)], expected, rtol=2e-3)
    assert float(ratio) == pytest.approx(float(codes) / float(embedded), rel=2e-3)
    assert layer == "1"
    assert expected[1] < expected[0]


def test_several_files_on_one_page(at):
    text, page = page_of(at, "model <b>.h5", "--and", at / "concepts.h5", "--and", at / "words.h5")
    assert_complete(text, page)
    assert [one["kind"] for one in page.facts["others"]] == ["concepts", "words"]
    sizes = read_array(at / "concepts.h5", "size").tolist()
    assert [int(row[1].replace(",", "")) for row in page.tables["Concepts (concepts.h5)"][1:]] == sizes


def test_matching_windows_are_alike_and_within_the_images(at):
    from smtdist.evaluate.run import Labelled
    from smtdist.report.looks import look_at_some

    model = smtdist.load(at / "model <b>.h5")
    parts = [Labelled.open([str(at / "data.h5")], group, model.settings) for group in ("train", "test")]
    looked = look_at_some(model, *parts, 2000, engine())
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
    assert "let it end in .html" in run("report", model, "--out", tmp_path / "r.pdf", code=2)
    assert "need all three" in run("report", model, "--out", out, "--train", "train", code=2)
    images = ["--data", at / "data.h5", "--train", "train", "--test", "test"]
    assert "holds words" in run("report", at / "words.h5", "--out", out, *images, code=2)
    assert "There is no file" in run("report", tmp_path / "none.h5", "--out", out, code=1)
    (tmp_path / "not.json").write_text("{")
    assert "is not what smtdist fit --json prints" in run(
        "report", model, "--out", out, "--run", tmp_path / "not.json", code=1
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["not.json"]


def test_any_names_of_classes_can_be_drawn():
    """Of names with control characters or the marks of a formula all is shown, without a warning; a number has its own."""
    names = ["a\n\x1b[31m", r"$\frac{$", "c\u202e"]
    z, images = np.eye(4, 6), np.zeros((4, 5, 5), np.uint8)
    for axes in (
        plot.confusion(np.eye(3, dtype=int), names),
        plot.image_map(z, images, [0, 1, 2, -1], names=names),
    ):
        axes.figure.canvas.draw()
        texts = [text.get_text() for text in (axes.get_legend() or axes.get_xaxis()).findobj(Text)]
        assert {r"a\n\x1b[31m", r"\$\frac{\$", r"c\u202e"} <= set(texts)
        assert axes.get_legend() is None or "-1" in texts


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
