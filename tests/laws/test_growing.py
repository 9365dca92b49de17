"""Laws of every transform whose sums are kept: what is added can be withdrawn, merges meet in any order, to the bit."""

from dataclasses import replace

import numpy as np
import pytest
from calling import same_fits
from drawing import small_images
from executors import LossyExecutor, ThreadsExecutor, stopping
from functional_clips import SMALL, make_clips

from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.data.table import as_table
from smtdist.data.text import TextSource
from smtdist.data.video import open_clips
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import CheckpointError, ConfigurationError, DataError, InterruptedRun, ModelError
from smtdist.kernels import products
from smtdist.models import store
from smtdist.models.coded import coded_settings, fit_coded
from smtdist.models.fit import fit
from smtdist.models.functional.video import fit_video, sequences_of
from smtdist.models.merge import merged, refit, resolved, update
from smtdist.models.points.fit import PointModel
from smtdist.models.points.table import PointSettings
from smtdist.models.valued import ValuedTransform
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings

PARTS = [small_images(number, 40, 11, 10) for number in range(3)]
VIDEO = SMALL.replace(atoms=12, n_components=3, rounds=1)
LEARNT = {"patch": 4, "dictionary": 10, "rounds": 2, "n_components": 3}


def binary(**more):
    settings = Configuration(
        **{"patch": 4, "dictionary": 14, "n_components": 3, "drop": 1, "pool_size": 2, **more}
    )
    return lambda source: fit(source, settings, Engine(SerialExecutor(1)))[0]


def learnt(feature, **more):
    settings = coded_settings(feature, **{**LEARNT, **more})
    return lambda source: fit_coded(source, settings, Engine(SerialExecutor(1)))[0]


def words(source):
    return fit_words(source, WordSettings(window=2, n_components=3), Engine(SerialExecutor(1)))[0]


def points(**more):
    settings = PointSettings(**{"size": 10, "n_components": 3, **more})
    return lambda source: PointModel.fit(source, settings, Engine(SerialExecutor(1)))[0]


def video(source):
    return fit_video(source.clips, VIDEO, Engine(SerialExecutor(1)))[0]


KINDS = {
    "gq": binary(),
    "gq, window, second order": binary(context=3, order=2, flip=True),
    "gq, mirrored": binary(flip=True, dictionary_mirrored=True),
    "vq": binary(feature="vq", context=2),
    "gq, drawn": binary(positions=20, seed=3),
    "l1": learnt("l1"),
    "l1, window, second order": learnt("l1", context=3, order=2, flip=True, positions=20),
    "l1, signed": learnt("l1", positive=False, moment="centred"),
    "s3c": learnt("s3c", context=4),
    "omp": learnt("omp", positions=12),
    "points, noise": points(context="noise", features="rbf", noise=0.1),
    "points, in time": points(context="time", order=2, features="l1", moment="centred"),
    "video": video,
    "words": words,
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    at, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    for number in range(3):
        lines = (" ".join(f"w{one}" for one in rng.integers(0, 14, 12)) for _ in range(60))
        (at / f"{number}.txt").write_text("\n".join(lines))
    return [TextSource.open([str(at / f"{number}.txt")]) for number in range(3)]


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    at = tmp_path_factory.mktemp("clips")
    found = []
    for number in range(3):
        (clip,) = open_clips(make_clips(at / f"{number}.h5", angle=0.7 * number + 0.1))[:1]
        found.append(sequences_of((clip,), VIDEO))
    return found


@pytest.fixture(scope="module", params=KINDS)
def case(request, texts, clips):
    """A model of the first part, the parts as sources, and the first word of a kind's name."""
    first = request.param.split(",")[0]
    parts = {
        "words": texts,
        "video": clips,
        "points": [as_table(part.reshape(len(part), -1)[:, :6] / 64) for part in PARTS],
    }.get(first, [ArraySource(part) for part in PARTS])
    return KINDS[request.param](parts[0]), parts, first


def engine(executor=None, **more):
    return Engine(executor or SerialExecutor(1), **more)


def assert_same(one, other):
    """The same sums, samples and components."""
    same_fits(one, other)
    assert sorted(one.statistics.origin.samples) == sorted(other.statistics.origin.samples)


def test_what_is_added_can_be_withdrawn(case):
    model, (_, more, last), _ = case
    grown, records = update(model, more, engine())
    assert [record["name"] for record in records] == ["statistics", "solve"]
    assert grown.statistics.n_samples == model.statistics.n_samples + more.n_samples
    both, _ = update(grown, last, engine(LossyExecutor(1)))
    other, _ = update(update(model, last, engine(ThreadsExecutor(2)))[0], more, engine())
    assert_same(both, other)
    back, _ = update(update(both, more, engine(), withdraw=True)[0], last, engine(), withdraw=True)
    assert_same(back, model)
    actions = [entry["action"] for entry in back.provenance["audit"]]
    assert actions == ["added", "added", "added", "withdrawn", "withdrawn"]


def test_merged_sums_are_those_of_one_fit(case):
    model, (_, more, last), _ = case
    parts = []
    for source in (more, last):
        statistics, _ = model.summed(source, engine())
        parts.append(resolved(model, statistics))
    one = resolved(*merged(("a", model), [("b", parts[0]), ("c", parts[1])]))
    expected, _ = update(update(model, more, engine())[0], last, engine())
    assert_same(one, expected)
    rest = resolved(*merged(("all", one), (), [("b", parts[0])]))
    assert_same(rest, update(model, last, engine())[0])


def test_what_has_no_meaning_is_refused(case):
    model, (first, more, _), kind = case
    with pytest.raises(ModelError, match="would count twice"):
        update(model, first, engine())
    with pytest.raises(ModelError, match="not in the sums; withdraw only what was added"):
        update(model, more, engine(), withdraw=True)
    with pytest.raises(ModelError, match="keeps no statistics"):
        update(replace(model, statistics=None), more, engine())
    with pytest.raises(
        ConfigurationError, match=r"is fixed once samples are summed|no setting 'seed' of words"
    ):
        refit(model, seed=3)
    wrong = ArraySource(np.zeros((3, 5, 5), np.uint8))
    told = {
        "words": "give text files",
        "points": "give samples like those",
        "video": "make them with sequences_of",
    }
    with pytest.raises(DataError, match=told.get(kind, "give images like those|lower patch")):
        update(model, wrong, engine())
    moved = replace(model.statistics, origin=replace(model.statistics.origin, basis="another"))
    with pytest.raises(ModelError, match="b: The sums were made with another"):
        merged(("a", model), [("b", replace(model, statistics=moved))])


def test_sums_of_values_name_their_products_and_refuse_others(case, monkeypatch):
    """Codes differ in their last bits where another library made their products, unless they are ordered."""
    model, (first, more, _), _ = case
    own = getattr(model.statistics, "products", None)
    if own is None:
        assert not isinstance(model, ValuedTransform)  # whole numbers, whatever multiplies
        return
    assert own == (products.ORDERED if model.sums.encoder.ordered else products.library())
    assert model.provenance["products"] == own
    other = replace(model, statistics=replace(model.statistics, products="another library"))
    for change in (
        lambda: update(other, more, engine()),
        lambda: update(other, first, engine(), withdraw=True),
        lambda: merged(("a", model), [("b", other)], (), repeats=True),
    ):
        with pytest.raises(ModelError, match="use machines and workers of one kind"):
            change()
    # files from before products were recorded
    before = replace(model, statistics=replace(model.statistics, products=""))
    grown, _ = update(before, more, engine())
    assert grown.statistics.products == ""
    assert_same(update(grown, more, engine(), withdraw=True)[0], before)
    # a worker of another kind, or a resume on one
    sums, read = model.sums, model.read_as(more)
    with read.opened() as reader:
        samples = reader.read(0, 4)
    monkeypatch.setattr(type(sums.encoder), "ordered", False)
    states = []
    for name in ("one library", "another library"):
        monkeypatch.setattr(products, "library", lambda name=name: name)
        states.append(sums.zero())
        sums.update(states[-1], samples, 0)
    with pytest.raises(ModelError, match=r"one kind of products \(one library\) and some with another"):
        sums.merge(*states)
    with pytest.raises(ModelError, match="use machines and workers of one kind"):
        sums.update(states[0], samples, 0)
    assert sums.merge(sums.zero(), states[1])["products"].any()


def test_a_new_solve_reads_nothing(case):
    model, _, _ = case
    fewer = refit(model, n_components=2)
    assert len(fewer.embedding.components) == 2 + getattr(model.settings, "drop_components", 0)
    assert_same(refit(fewer, n_components=3), model)


def test_an_update_that_was_stopped_goes_on_to_the_same_bits(case, tmp_path):
    model, (_, more, last), _ = case
    expected, _ = update(model, more, engine())
    with pytest.raises(InterruptedRun):
        update(model, more, stopping("statistics", checkpoint=tmp_path / "c"))
    with pytest.raises(CheckpointError, match="belongs to another run"):
        update(model, last, engine(checkpoint=tmp_path / "c"))
    found, records = update(model, more, engine(ThreadsExecutor(2), checkpoint=tmp_path / "c"))
    assert records[0]["resumed_leaves"] > 0
    assert_same(found, expected)


def test_a_file_keeps_all_of_it(case, tmp_path):
    model, (_, more, _), _ = case
    store.save(model, tmp_path / "m.h5")
    again = store.load(tmp_path / "m.h5")
    assert_same(again, model)
    assert again.provenance["audit"] == model.provenance["audit"]
    assert again.basis == model.basis
    assert_same(update(again, more, engine())[0], update(model, more, engine())[0])
