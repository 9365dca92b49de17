"""After a fit of labelled images: how well the model tells some of them apart, beside raw pixels."""

import numpy as np
import pytest
from arrays_in_files import add_arrays, write_arrays
from calling import ended, sets, told
from calling import run as command

from smtdist.cli import fit as said
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun
from smtdist.evaluate import knn, run
from smtdist.evaluate.first_look import first_look
from smtdist.models import store
from smtdist.models.fit import fit
from smtdist.models.store import load
from smtdist.models.tuning.split import split

LABELS = np.arange(330) % 3
IMAGES = np.random.default_rng(0).integers(0, 256, (330, 6, 6), dtype=np.uint8)
WORDS = "--set=patch=3 --set=dictionary=8 --set=n_components=3 --set=neighbours=9"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("look") / "d.h5"
    labels = {"all": LABELS, "few": LABELS[:299], "one": np.zeros(330, np.int64), "odd": LABELS[:300]}
    labels |= {"few-odd": LABELS[:200]}
    images = {name: IMAGES[:299] if "few" in name else IMAGES for name in (*labels, "without")}
    write_arrays(path, {f"{name}/images": given for name, given in images.items()})
    add_arrays(path, {f"{name}/labels": given for name, given in labels.items()})
    return path


def words(data, group):
    """Return the words of a fit of a group."""
    return f"fit {data} --dataset {group}/images --overwrite --out {data.with_name('m.h5')} {WORDS}"


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_third_of_the_images_is_classified_by_the_others(data, mirrored):
    found = told(words(data, "all"), sets(mirrored_votes=mirrored), "-q")["first_look"]
    assert (found["n_train"], found["n_test"], found["k"]) == (432 if mirrored else 216, 110, 9)
    assert found["mirrored"] == mirrored
    model, engine = load(data.with_name("m.h5")), Engine(SerialExecutor(1))
    known, asked = split(as_source((data, "all/images")), 1 / 3, None, model.settings.random_state)
    parts = [run.Labelled(part.source, LABELS[part.samples]) for part in (known, asked)]
    if mirrored:
        parts[0] = parts[0].and_mirrored()
    again = run.Comparison(model, *parts, knn.SoftNeighbours.of(model.votes)).found(engine)
    assert found["top1"] == again.top1
    rows = [IMAGES[known.samples], IMAGES[asked.samples]]
    if mirrored:
        rows[0] = np.concatenate([rows[0], rows[0][:, :, ::-1]])
    rows = [np.float32(one.reshape(-1, 36)) / 255 for one in rows]
    labels = [part.labels for part in parts]
    raw = run.classified(
        run.Data(rows[0], labels[0], rows[1], labels[1]), engine, knn.SoftNeighbours.of(model.votes)
    )
    assert found["raw_pixels"]["top1"] == raw.top1


def test_a_person_reads_both_accuracies_and_whether_pixels_win(data):
    found = command(words(data, "all"), "-q")
    assert "A first look: 110 images of the fit, classified by 216 others of it" in found
    assert "mirrored images among them" not in found
    mirrored = " ".join(command(words(data, "all"), "-q --set mirrored_votes=true").split())
    assert "by 432 others of it, mirrored images among them" in mirrored
    assert "the same, raw pixels" in found
    looked = told(words(data, "all"), "-q")["first_look"]
    assert ("Raw pixels are no worse" in found) == (looked["raw_pixels"]["top1"] >= looked["top1"])


@pytest.mark.parametrize("group", ["few", "without", "one"])
def test_where_nothing_can_be_said_nothing_is(data, group):
    assert "first_look" not in told(words(data, group), "-q")


@pytest.mark.parametrize(("group", "count"), [("odd", 330), ("few-odd", 299)])
def test_labels_that_cannot_be_used_are_told_of(data, group, count):
    found = " ".join(ended(words(data, group)).stderr.split())
    assert "No first look: " in found
    assert f"there are {count} samples; give one label a sample" in found


def test_it_can_be_left_out_and_samples_that_cannot_be_read_leave_it_out(data):
    assert "first_look" not in told(words(data, "all"), "-q --no-first-look")
    model, engine = store.load(data.with_name("m.h5")), Engine(SerialExecutor(1))
    engine.skipped["d", 330] = ((0, 1),)
    assert first_look(model, data, "all/images", as_source((data, "all/images")), engine) is None


def test_a_model_is_complete_when_the_look_at_it_is_stopped(data, monkeypatch):
    def stopped(*given):
        raise InterruptedRun("Stopped as asked.", 130)

    monkeypatch.setattr(said.looking, "first_look", stopped)
    error = command(words(data, "all"), "-q --checkpoint", data.with_name("checkpoint"), code=130)
    assert error == f"smtdist: Stopped as asked; {data.with_name('m.h5')} is complete."
    assert load(data.with_name("m.h5")).embedding is not None


def test_some_of_the_images_are_fitted_and_looked_at(data):
    """With --limit: the model is that of the first images alone, and so are the labels."""
    found = told(words(data, "all"), "-q --limit 310")
    read = {one["name"]: one["n_samples"] for one in found["passes"]}
    assert read["whitening"] == read["statistics"] == 310 > read["dictionary"] > 0
    assert found["first_look"]["n_test"] < 110  # of all there are so many
    model = load(data.with_name("m.h5"))
    alone, _ = fit(as_source(IMAGES[:310]), model.settings, Engine(SerialExecutor(1)))
    assert np.array_equal(model.statistics.second_moment, alone.statistics.second_moment)
    planned = told("plan", data, "--dataset all/images --limit 310 --no-calibrate", WORDS)
    assert {
        one["n_samples"] for one in planned["passes"] if one["name"] in ("whitening", "statistics")
    } == {310}
    command(words(data, "all"), "-q --limit 331", code=1)
