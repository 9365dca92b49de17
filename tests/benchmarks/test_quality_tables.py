"""The published tables, tiny: cells equal separate fits, go on where they ended, and say what they are."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from arrays_in_files import write_labelled
from encoding import pillow_bytes, write_encoded

import smtdist
from benchmarks.steps import Steps
from replication.quality import __main__ as quality
from replication.quality import markdown, paired
from replication.quality.cells import (
    BATCH_5,
    HELD_OUT,
    IMAGES,
    SEEN,
    Fit,
    Scale,
    before_batch_5,
    deviation,
    tables,
)
from replication.quality.codes_alone import CodesAlone, PooledFirst
from replication.quality.fits import components_of
from replication.quality.images import judges, read, without_scaling
from replication.quality.judged import Family, families, probe_of
from replication.quality.published import TABLE_7
from smtdist.configuration import Configuration, preset
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.evaluate.linear import evaluate_linear
from smtdist.evaluate.run import Comparison, Directions, Labelled
from smtdist.kernels.types import Codes, Geometry
from smtdist.models.fit import fit
from smtdist.models.joined import side_by_side
from smtdist.models.transform import transform
from smtdist.models.tuning.members import Member

SMALL = ["--train", "40", "--test", "24", "--dictionary", "40", "--components", "6"]
SETTINGS = ["--set", "drop=2", "--set", "dictionary_rounds=1", "--set", "dictionary_samples=0"]


def pictures(rng, count, size):
    """Images of three kinds, each a pattern of its own under noise."""
    labels = rng.integers(0, 3, count)
    rows, columns = np.mgrid[:size, :size]
    patterns = np.stack([np.sin(rows), np.sin(columns), np.sin(rows + columns)])[labels]
    noise = rng.normal(0, 25, (count, size, size, 3))
    images = 128 + 60 * patterns[..., None] * np.array([1, 0.6, 0.3]) + noise
    return images.clip(0, 255).astype(np.uint8), labels


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, size in (
        ("cifar10_lossless.h5", 12),
        ("cifar10_jpeg.h5", 12),
        ("tiny_imagenet_100_jpeg.h5", 14),
    ):
        for group, count in (("train", 70), ("test", 30)):
            apart = name == "cifar10_lossless.h5" and group == "test"
            images, labels = pictures(rng, count, size)
            blobs = [pillow_bytes(image, "JPEG" if "jpeg" in name else "PNG") for image in images]
            write_encoded(folder / ("cifar10_test_lossless.h5" if apart else name), blobs, group, labels)
    images, labels = pictures(rng, 100, 12)
    write_labelled(folder / "mnist.h5", images[..., 0], labels, {"train": 70, "test": 30})
    return folder


@pytest.fixture
def asked(data, tmp_path):
    """Run a table, or several, tiny, and return what it found."""

    def run(table, *more, work="work"):
        arguments = [*table.split(), "--data", str(data), "--work", str(tmp_path / work), *SMALL, *SETTINGS]
        return quality.main([*arguments, *more])

    return run


def test_settings_need_to_suit_the_cells_that_are_asked_for_alone(asked):
    mirrored = "3", "--set", "dictionary_mirrored=true", "--plan", "--columns"
    asked(*mirrored, "GQ 8192")
    with pytest.raises(SystemExit, match=r"greyscale, VQ 100K: dictionary_mirrored needs code"):
        asked(*mirrored, "VQ 100K")


def cells_of(data, table, *more):
    """Return the cells that a tiny run judges."""
    parser = [table, "--data", str(data), "--work", "", *SMALL, *SETTINGS, *more]
    pairs = {name: parser[parser.index(name) + 1] for name in ("--train", "--dictionary", "--components")}
    sizes = [int(value) for value in pairs.values()]
    scale = Scale(*sizes, (("drop_components", 2), ("dictionary_rounds", 1), ("dictionary_samples", 0)))
    return [scale.cell(cell) for cell in tables()[table]()]


def separately(data, cell):
    """Return what a fit of each part, and the ordinary evaluation, find."""
    engine, models = Engine(SerialExecutor()), []
    for part in cell.parts:
        settings = without_scaling(part.fit.settings).replace(
            n_components=part.n_components, drop=part.drop
        )
        images = read(data, part.fit, "train", part.fit.n_train)
        models.append(fit(images.source, settings, engine)[0])
    parts = [read(data, cell.parts[0].fit, group, count) for group, count in (("train", 40), ("test", 24))]
    known, wanted = (Labelled(as_source(one.array), one.labels) for one in parts)
    together = side_by_side(models[0], models[1:])
    found = Comparison(together, known, wanted, SoftNeighbours(vote=cell.vote)).found(engine)
    return found, models, known, wanted


def test_components_and_drop_that_are_set_are_those_of_cells_but_of_columns_about_components():
    scale = Scale(changes=(("n_components", 500), ("drop_components", 16)))
    asked = {name: [scale.cell(cell).parts[0] for cell in tables()[name]()] for name in ("6", "7")}
    assert {(part.n_components, part.drop) for part in asked["6"]} == {(500, 16)}
    assert {part.n_components for part in asked["7"]} == set(TABLE_7)


def test_cells_equal_separate_fits(asked, data, tmp_path, monkeypatch):
    monkeypatch.setitem(SEEN, "cifar10", 10)
    found = asked("3", "--columns", "GQ 8192", "--json", str(tmp_path), "--page", str(tmp_path / "T.md"))
    cells = [cell for cell in cells_of(data, "3") if cell.column == "GQ 8192"]
    assert [row["row"] for row in found["cells"]] == ["original", "greyscale", "original + greyscale"]
    assert len({row["ours"]["top1"] for row in found["cells"]}) > 1
    for row, cell in zip(found["cells"], cells, strict=True):
        own = row["ours"]
        alone, models, _, _ = separately(data, cell)
        assert own["top1"] == alone.top1
        assert tuple(own["interval"]) == alone.interval
        assert (own["n_train"], own["n_test"], own["dictionary"]) == (
            40,
            24,
            len(models[0].dictionary.grid),
        )
        assert row["deviation"] is None  # 40 images are not the paper's 50,000
        settings = "drop=2, dictionary_rounds=1, dictionary_samples=0"
        assert own["said"] == f"{settings}, the paper's votes: 30 neighbours at T = 0.03"
        assert (own["data"], own["judged_by"]) == ("cifar10", "test images")
        assert own["standard_error"] == pytest.approx((own["top1"] * (1 - own["top1"]) / 24) ** 0.5)
        (right,) = (np.load(path) for path in tmp_path.glob(f"work/cells/{cell.key}-*-right.npy"))
        assert (own["unseen"]["n_test"], own["unseen"]["top1"]) == (14, right[10:].mean())
        assert own["seconds"] > 0
        assert own["peak_bytes"] > 1e6
    right = {row["row"]: round(100 * row["ours"]["top1"], 2) for row in found["cells"]}
    assert len(found["compared"]) == 2  # colours compete, at one size of the dictionary
    for one in found["compared"]:
        assert one["points"] == pytest.approx(right[one["best"]] - right[one["other"]], abs=0.02)
        assert one["points"] >= 0
    again = asked("3", "--rows", "original", "--columns", "GQ 8192")
    assert again["cells"] == found["cells"]  # what was done before is told again
    (record,) = tmp_path.glob("*-quality-3-*.json")
    assert json.loads(record.read_text())["result"] == found
    assert "-k" not in record.stem  # a record's name tells of the vote only where it was asked for
    assert "temperature" not in record.stem


def test_components_and_probe_from_one_fit(asked, data, tmp_path):
    columns = ["50", "110"]
    found = asked("7", "--columns", *columns, "--components", "12")
    assert len(list((tmp_path / "work/models").glob("*.h5"))) == 1
    cells = [cell for cell in cells_of(data, "7") if cell.column == "50" and cell.classifier == "linear"]
    probe = next(row["ours"] for row in found["cells"] if row["row"] == "linear probe")
    part = cells[0].parts[0]
    assert probe["components"] == [12]
    engine = Engine(SerialExecutor())
    settings = part.fit.settings.replace(n_components=12, drop=2)
    images = read(data, part.fit, "train", 40)
    model, _ = fit(images.source, settings, engine)
    z = []
    for group, count in (("train", 40), ("test", 24)):
        source = read(data, part.fit, group, count).source
        rows = np.empty((count, *model.feature_shape(12)), np.float32)
        for first, values in transform(model, source, engine):
            rows[first : first + len(values)] = values
        z.append(rows.reshape(count, -1))
    labels = [read(data, part.fit, group, count).labels for group, count in (("train", 40), ("test", 24))]
    assert probe["top1"] == evaluate_linear(z[0], labels[0], z[1], labels[1]).top1


def test_all_components_are_whitened_codes_under_a_rotation(data, tmp_path):
    """So one cell serves the transform, whitened PCA and whitened codes where none is left out."""
    part = next(cell for cell in cells_of(data, "figure-6") if cell.row == "codes alone").parts[0]
    settings = part.fit.settings.replace(dictionary=20, n_components=20, drop=0)
    images = read(data, part.fit, "train", 40)
    model, _ = fit(images.source, settings, Engine(SerialExecutor()))
    whole = replace(part, fit=replace(part.fit, settings=settings), n_components=20, solve="pca-whitened")
    whitened = components_of(Steps(tmp_path), model, whole).astype(float)
    spectral = model.embedding.components.T.astype(float)
    assert spectral.shape == whitened.shape == (20, 20)
    np.testing.assert_allclose(
        whitened @ whitened.T, spectral @ spectral.T, rtol=1e-4, atol=1e-4 * (whitened @ whitened.T).max()
    )


def test_mirrored_rows_double_what_a_probe_learns_from():
    """Rows that come twice with half of the weight are the rows."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 4)), np.arange(60) % 3
    one = probe_of(rows, rows, labels)
    two = probe_of(rows, np.tile(rows, (2, 1)), np.tile(labels, 2))
    assert two.C == one.C / 2
    np.testing.assert_allclose(two.coefficients, one.coefficients, atol=1e-4)


def test_what_follows_the_codes(asked, data):
    """Whitened codes are all components of whitened PCA, which are judged once; codes alone are not."""
    keys = {(cell.row, cell.column): cell.key for cell in tables()["figure-6"]()}
    for name in ("PCA, whitened", "spectral"):
        assert keys["whitened codes", "K = 8,192"] == keys[name, "8,192 components"]
    found = asked(
        "figure-6", "--columns", "K = 8,192", "8,192 components", "--components", "0", "--train", "30"
    )
    ours = {(row["row"], row["column"]): row["ours"] for row in found["cells"]}
    whitened = ours["whitened codes", "K = 8,192"]
    assert whitened["top1"] == ours["PCA, whitened", "8,192 components"]["top1"]
    assert whitened["components"] == [ours["codes alone", "K = 8,192"]["components"][0]] == [40]
    for one in found["compared"]:
        best, other = (ours[one[name], one["group"]]["top1"] for name in ("best", "other"))
        assert one["points"] == round(100 * (best - other), 2) >= 0
        assert one["interval"][0] <= one["points"] <= one["interval"][1]


@pytest.mark.parametrize(("size", "stride"), [(4, 2), (3, 3), (1, 1)])
def test_codes_alone_are_the_identity_for_components(size, stride):
    """To the bit; a window of patches without codes is zero. In windows of one patch it does not matter what comes first."""
    geometry, images, n_atoms = Geometry(11, 9, 3, 3), 3, 40
    active = np.random.default_rng(size).random((images * geometry.positions, n_atoms)) < 0.1
    active[::3] = False
    indptr = np.concatenate([[0], active.sum(axis=1).cumsum()])
    codes = Codes(indptr, np.nonzero(active)[1].astype(np.uint16), n_atoms)
    encoder = SimpleNamespace(whitener=SimpleNamespace(geometry=geometry))
    found = []
    for kind in (Member, CodesAlone, PooledFirst):
        slices = ((0, n_atoms),)
        member = kind(encoder, np.eye(n_atoms, dtype=np.float32), slices, size, stride, "float32")
        flat = np.full((images + 2) * sum(member.features), np.nan, np.float32)
        member.write(codes, images, flat, images + 2, 1)
        found.append(member.views(flat, images + 2)[0])
    np.testing.assert_array_equal(*found[:2])
    assert np.allclose(found[2][1:-1], found[0][1:-1]) == (size == 1)
    assert np.isnan(found[1][[0, -1]]).all()
    lengths = np.linalg.norm(found[1][1:-1].reshape(-1, n_atoms), axis=1)
    assert set(lengths.round(5)) == ({0, 1} if size == 1 else {1})


def test_a_new_setting_leaves_what_is_kept_as_it_is():
    """Where this fails, name the new setting with its default in `cells.LATER`. If another default changed, keys have to."""
    assert Fit("cifar10", 1000, Configuration()).key == "e2ce61c57c44"


def test_a_run_goes_on_where_it_ended(asked, data, monkeypatch, tmp_path):
    whole = asked("6", "--columns", "1,000", work="whole")
    left = [3]

    def heed(work):
        left[0] -= 1
        if left[0] < 0:
            raise InterruptedRun("The minutes are over.", 0)

    monkeypatch.setattr(Steps, "heed", heed)
    for _ in range(2):  # fit, then test images and training images, then the verdict
        left[0] = 2
        with pytest.raises(SystemExit, match="3"):
            asked("6", "--columns", "1,000")
    left[0] = 2
    found = asked("6", "--columns", "1,000")
    for name in ("top1", "interval", "n_train", "n_test", "components"):
        assert found["cells"][0]["ours"][name] == whole["cells"][0]["ours"][name]
    assert not list((tmp_path / "work").glob("rows/*"))


def test_sums_are_solved_again(asked, data, tmp_path):
    """Another tolerance of the null space makes no new sums, and the figure of a fit of its own."""
    tight = [f"null_tolerance = {value}" for value in ("None", "0.001")]
    asked("recipe", "--rows", "null_tolerance", "--columns", *tight, "--test", "16")
    records = [path for path in (tmp_path / "work/models").glob("*.json") if "-sums" not in path.name]
    passes = [json.loads(path.read_text())["passes"] for path in records]
    assert len(passes) == 2
    assert passes[0][0] == passes[1][0]  # the same whitening, to the last digit of its time
    models = [smtdist.load(path) for path in (tmp_path / "work/models").glob("*.h5")]
    by_tolerance = {model.settings.null_tolerance: model for model in models}
    alone = smtdist.refit(by_tolerance[None], null_tolerance=0.001)
    np.testing.assert_array_equal(alone.embedding.components, by_tolerance[0.001].embedding.components)


def test_choices_are_judged_by_images_held_out(asked, data):
    found = asked("recipe", "--rows", "vote", "--test", "16")
    votes = [row["ours"] for row in found["cells"] if row["row"] == "vote"]
    assert [own["n_test"] for own in votes] == [16, 16, 16]
    # the same experiment under other names, the preset's own mean or ridge, is told where it is asked for
    assert {row["row"] for row in found["cells"]} == {"vote"}
    few = ["--columns", "exp", "as it is", "ridge = 0.001", "--test", "16"]
    found = asked("recipe", "--rows", "vote", "preset", "ridge", *few)
    named = {row["row"]: row["ours"]["top1"] for row in found["cells"] if row["row"] in ("preset", "ridge")}
    assert named == {"preset": votes[0]["top1"], "ridge": votes[0]["top1"]}
    with pytest.raises(SystemExit, match="leaves 0 training images"):
        asked("recipe", "--rows", "vote", "--train", "56")


def test_no_choice_sees_what_judges(data):
    """The last fifth of the training images judges; choices have those before it."""
    (cell,) = [cell for cell in cells_of(data, "6") if cell.column == "1,000"]
    fit = cell.parts[0].fit
    images = read(data, fit, "train").array
    np.testing.assert_array_equal(judges(data, fit, BATCH_5, 0).array, images[56:])
    np.testing.assert_array_equal(judges(data, fit, BATCH_5, 5).array, images[56:61])
    np.testing.assert_array_equal(judges(data, fit, HELD_OUT, 10).array, images[46:56])
    np.testing.assert_array_equal(judges(data, fit, HELD_OUT, 0).array, images[40:56])
    with pytest.raises(SystemExit, match="leaves 16 training images"):
        judges(data, fit, HELD_OUT, 17)
    for judge in (BATCH_5, HELD_OUT):
        with pytest.raises(SystemExit, match="leaves"):
            judges(data, replace(fit, n_train=0), judge, 0)
    every = [cell for make in tables().values() for cell in make()]
    scale = Scale(judge=BATCH_5)
    for cell in every:
        assert (scale.cell(cell).judge == HELD_OUT) == (cell.table == "recipe")
        for part in scale.cell(cell).parts:
            assert 0 < part.fit.n_train <= before_batch_5(IMAGES[part.fit.data])


def test_both_votes_in_one_pass(asked, monkeypatch):
    """The paper's votes and ours of one pass are those of runs of their own; a probe is told once."""
    shown = []
    whole = Family._whole
    monkeypatch.setattr(
        Family, "_whole", lambda own, images, *more: shown.append(more) or whole(own, images, *more)
    )
    asked("6", "--columns", "1,000", "--votes", "ours", work="alone")
    alone = len(shown)
    both = asked("6", "--columns", "1,000", "--votes", "paper", "ours")
    assert len(shown) == 2 * alone  # no more than for the votes that need mirrored images
    own = [row["ours"] for row in both["cells"]]
    assert [(one["k"], one["temperature"], one["mirrored"]) for one in own] == [
        (30, 0.03, False),
        (50, 0.06, True),
    ]
    assert own[1]["said"].endswith("our votes: 50 neighbours at T = 0.06, mirrored images too")
    for votes, one in zip(("paper", "ours"), own, strict=True):
        (row,) = asked("6", "--columns", "1,000", "--votes", votes, work=votes)["cells"]
        assert row["ours"]["top1"] == one["top1"]
    found = asked("7", "--columns", "50", "--votes", "paper", "ours")["cells"]
    assert [row["row"] for row in found] == ["k-NN", "k-NN", "linear probe", "linear probe"]


def test_what_is_judged_by_other_images_is_judged_apart(data):
    cells = [*cells_of(data, "recipe"), *cells_of(data, "jpeg")]
    groups = families(cells)
    assert all(len({cell.judge for cell in group}) == 1 for group in groups)
    data_of = [{part.fit.data for cell in group for part in cell.parts} for group in groups]
    assert all(len(names) == 1 for names in data_of)
    (own,) = [
        group for group in groups if ("preset", "as it is") in {(cell.row, cell.column) for cell in group}
    ]
    # one fit, and one pass over its codes
    assert {"pooling", "drop", "n_components", "neighbours, temperature"} <= {cell.row for cell in own}
    assert len({part.fit.key for cell in own for part in cell.parts}) == 1


@pytest.mark.parametrize(
    ("words", "vote", "directions", "said"),
    [
        ("", SoftNeighbours(), None, ", mirrored images too"),
        ("--k 1 --temperature 0.1", SoftNeighbours(k=1, temperature=0.1), None, "1 neighbours at T = 0.1"),
        ("--leading 12 --whiten 1", SoftNeighbours(), Directions(12, 1.0), "in 12 leading directions"),
    ],
)
def test_cells_are_evaluated_as_models_are(words, vote, directions, said, asked, data):
    """By the neighbours, votes and directions that are asked for, and mirrored images."""
    (row,) = asked("6", "--columns", "1,000", "--mirrored", *words.split())["cells"]
    (cell,) = [cell for cell in cells_of(data, "6") if cell.column == "1,000"]
    _, (model,), known, wanted = separately(data, cell)
    engine = Engine(SerialExecutor())
    alone = Comparison(model, known.and_mirrored(), wanted, vote, directions).found(engine)
    assert (row["ours"]["top1"], row["ours"]["n_train"]) == (alone.top1, 40)
    assert said in row["ours"]["said"]


def test_every_cell_of_every_table_can_be_asked_for():
    every = [cell for make in tables().values() for cell in make()]
    places = [(cell.table, cell.row, cell.column) for cell in every]
    assert len(places) == len(set(places))
    scale = Scale(10, 48, 8)
    for cell in every:
        assert cell.elsewhere or all(
            part.n_components + part.drop <= part.fit.settings.n_atoms for part in cell.parts
        )
        for part in scale.cell(cell).parts:
            assert part.fit.settings.n_atoms <= 48
            assert part.n_components + part.drop <= 48
    together = families([cell for cell in every if cell.table == "7"])
    assert len(together) == 1


def test_a_deviation_is_that_of_the_same_experiment():
    """Data, training images, atoms, components and votes are the paper's, or there is none."""
    cells = {(cell.table, cell.row, cell.column): cell for make in tables().values() for cell in make()}
    printed = cells["6", "GQ 8192", "50,000"]
    own = {
        "top1": 0.772,
        "data": "cifar10",
        "n_train": 50_000,
        "dictionary": 8192,
        "asked_components": [384],
        "vote": "exp",
        "k": 30,
        "temperature": 0.03,
        "mirrored": False,
    }
    assert deviation(printed, own) == -2.2
    assert deviation(cells["6", "GQ 8192", "8,000"], own | {"n_train": 8000}) == 6.5
    for change in (
        {"data": "cifar10-jpeg"},
        {"n_train": 40_000},
        {"dictionary": 2048},
        {"asked_components": [350]},
        {"vote": "hard"},
        {"k": 50},
        {"temperature": 0.06},
        {"mirrored": True},
        {"leading": 800},
        {"judge": BATCH_5},
    ):
        assert deviation(printed, own | change) is None
    # a probe knows no votes, and has none in its record
    probe = {name: own[name] for name in ("top1", "data", "n_train", "dictionary")} | {
        "asked_components": [50]
    }
    assert deviation(cells["7", "linear probe", "50"], probe) == 8.2
    # what is not the paper's by our own account, and what it does not print
    vq, colour = cells["3", "greyscale", "VQ 100K"], cells["4", "original", "GQ 8192"]
    assert deviation(vq, own | {"dictionary": 65536}) is None
    assert deviation(colour, own | {"data": "tiny"}) is None
    assert deviation(cells["figure-6", "spectral", "K = 1,024"], own | {"dictionary": 1024}) is None


def test_the_settings_as_printed(monkeypatch):
    """They are looked up only where they are asked for."""
    looked_up = []

    def as_printed(name):
        looked_up.append(name)
        changes = {"mean": "context", "drop": 0} if name.startswith("paper-") else {}
        return preset(name.removeprefix("paper-")).replace(**changes)

    monkeypatch.setattr("replication.quality.cells.preset", as_printed)
    own, paper = (
        {(cell.table, cell.row, cell.column): cell for make in tables(recipe).values() for cell in make()}
        for recipe in ("ours", "paper")
    )
    assert list(own) == list(paper)
    assert set(looked_up) == {
        f"{prefix}{name}"
        for prefix in ("", "paper-")
        for name in ("mnist-vq", "cifar10-gq", "cifar10-gq-gray")
    }
    for place in (("3", "original + greyscale", "GQ 8192"), ("6", "GQ 8192", "50,000")):
        assert [part.fit.settings.subtract_mean for part in paper[place].parts] == ["context"] * len(
            paper[place].parts
        )
        assert own[place].key != paper[place].key
        assert paper[place].parts[0].drop == 0
    place = ("1", "3 pixels", "VQ 16384")
    assert own[place].key != paper[place].key


def test_compressed_images_are_never_mixed_with_lossless_ones(asked, data):
    """Table `jpeg` alone has JPEG; what is learnt of it has another key, and is compared with nothing else."""
    for name, make in tables().items():
        cells = list(make())
        if name != "jpeg":
            assert not [part for cell in cells for part in cell.parts if part.fit.data == "cifar10-jpeg"]
            assert not [part for cell in cells for part in cell.parts if part.fit.quality]
    found = asked("jpeg")
    assert {(row["row"], row["ours"]["data"]) for row in found["cells"]} == {
        ("the same images", "cifar10"),
        ("the JPEG copy", "cifar10-jpeg"),
    }
    assert {one["group"] for one in found["compared"]} == {"the same images"}
    (lossless,) = [cell for cell in cells_of(data, "jpeg") if cell.column == "lossless"]
    (copy,) = [cell for cell in cells_of(data, "jpeg") if cell.row == "the JPEG copy"]
    assert lossless.parts[0].fit.settings == copy.parts[0].fit.settings
    assert lossless.parts[0].fit.key != copy.parts[0].fit.key
    assert lossless.key != copy.key


def test_choices_beside_the_preset_over_seeds(asked):
    """Figures are means over seeds, and points those by which a choice is ahead of the preset."""
    columns = ["as it is", "pool_size = 4, pool_stride = 2", "pool_size = 5, pool_stride = 3"]
    rows = ["--rows", "preset", "pooling", "--columns", *columns, "--test", "16"]
    found = asked("recipe", *rows, "--seeds", "0", "1")
    alone = [asked("recipe", *rows, "--set", f"seed={seed}") for seed in (0, 1)]
    for number, row in enumerate(found["cells"]):
        own = row["ours"]
        each = [one["cells"][number]["ours"]["top1"] for one in alone]
        assert own["by_seed"] == {"0": each[0], "1": each[1]}
        assert own["top1"] == pytest.approx(np.mean(each))
        assert f"mean of seeds 0, 1 ({100 * each[0]:.2f}, {100 * each[1]:.2f})" in own["said"]
        assert {one["seed"] for one in own["configurations"]} == {0, 1}
    assert [one["other"] for one in found["compared"]] == columns[2:]
    preset, *_ = (row["ours"] for row in found["cells"] if row["row"] == "preset")
    for one in found["compared"]:
        (other,) = [row["ours"] for row in found["cells"] if row["column"] == one["other"]]
        assert one["points"] == round(100 * (other["top1"] - preset["top1"]), 2)
        assert np.mean(one["by_seed"]) == pytest.approx(one["points"], abs=0.01)


def test_a_cell_judged_by_all_test_images_replaces_that_of_the_first():
    def record(date, n_test, **changes):
        own = {
            "n_train": 50_000,
            "n_test": n_test,
            "dictionary": 8192,
            "judge": "test",
            "said": "",
        } | changes
        cell = {"table": "6", "row": "GQ 8192", "column": "50,000", "paper": 79.4, "ours": own}
        return {"date": date, "command": "", "result": {"cells": [cell]}}

    few, every = record("2026-11-25", 1000), record("2026-11-29", 10_000)
    other = record("2026-11-25", 1000, dictionary=2048)
    by_batch_5 = record("2026-11-25", 1000, judge="batch-5")
    for order in ([few, every, other, by_batch_5], [other, by_batch_5, every, few]):
        cells = markdown.newest({Path(f"{number}.json"): one for number, one in enumerate(order)})
        left = [
            (cell["ours"]["n_test"], cell["ours"]["dictionary"], cell["ours"]["judge"]) for cell in cells
        ]
        assert sorted(left) == [(1000, 2048, "test"), (1000, 8192, "batch-5"), (10_000, 8192, "test")]


def test_the_page_is_what_the_records_say(tmp_path):
    order = [(cell.table, cell.row, cell.column) for make in tables().values() for cell in make()]
    markdown.write(quality.PAGE.parents[2] / "results", tmp_path / "page.md", order)
    assert (tmp_path / "page.md").read_text() == quality.PAGE.read_text()


def test_a_row_about_votes_keeps_its_votes():
    """What a row varies no option changes, and cells judged by held-out images say so."""
    scale = Scale(mirrored=True, k=50, temperature=0.06)
    own = [
        cell for cell in tables()["recipe"]() if cell.row in ("images that vote", "neighbours, temperature")
    ]
    scaled = list(map(scale.cell, own))
    assert [cell.mirrored for cell in scaled[:2]] == [False, True]
    assert [(cell.k, cell.temperature) for cell in scaled[2:4]] == [(30, 0.03), (30, 0.06)]
    assert (scaled[0].k, scaled[0].temperature) == (50, 0.06)


def test_two_runs_beside_each_other(tmp_path):
    for name, right in (("one", [1, 1, 1, 0] * 25), ("other", [1, 0, 1, 0] * 25)):
        np.save(tmp_path / f"{name}-right.npy", np.array(right, bool))
        about = {
            "top1": float(np.mean(right)),
            "n_test": 100,
            "configurations": [{"seed": 0, "drop": len(name)}],
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(about))
    found = paired.main([str(tmp_path / name) for name in ("one", "other")])
    assert [cell["settings"] for cell in found["cells"]] == [[{"drop": 3}], [{"drop": 5}]]
    assert found["points"] == 25
    assert 15 < found["interval"][0] < 25 < found["interval"][1] < 35
