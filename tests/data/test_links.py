"""Whatever way links lead to images and labels, what is read is what they lead to, never what is called so in the first file."""

import os
import pickle

import h5py
import numpy as np
import pytest
from arrays_in_files import add_arrays, add_virtual, read_samples
from encoding import pillow_bytes, write_encoded

import smtdist
from smtdist.data.array import as_source
from smtdist.data.guarded import unlocked
from smtdist.data.inflating import sound_chunks
from smtdist.data.look import class_names, image_sets, read_labels
from smtdist.data.manifest import describe_files, write_manifest
from smtdist.data.opening import open_labels, open_source
from smtdist.data.table import as_table
from smtdist.errors import DataError, ModelError
from smtdist.report.facts import facts_of

N, PLACE = 6, "x/deep"
SHAPE = (N, 8, 8)


def pixels(seed):
    return np.random.default_rng(seed).integers(0, 256, SHAPE, dtype=np.uint8)


def plain(path, group, seed):
    with h5py.File(path, "a") as file:
        file.create_dataset(f"{group}/images", data=pixels(seed), chunks=(2, 8, 8), compression="gzip")


def encoded(path, group, seed):
    write_encoded(path, [pillow_bytes(image) for image in pixels(seed)], group)


def virtual(path, group, seed):
    """Images that lie in another file beside this one, where other files have theirs under the same name."""
    name = f"y{os.path.basename(path) == 'other.h5'}"
    add_arrays(os.path.join(os.path.dirname(path), "parts.h5"), {name: pixels(seed)})
    add_virtual(path, f"{group}/images", "parts.h5", name, SHAPE)


def write(path, layout, seed):
    layout(path, PLACE, seed)
    with h5py.File(path, "a") as file:
        file[f"{PLACE}/labels"] = np.arange(N) + seed
        file[PLACE].attrs["classes"] = [f"class {seed} {label}" for label in range(N + seed)]


def to_group(files):
    files["all"]["train"] = h5py.ExternalLink("below/part.h5", PLACE)


def to_datasets(files):
    for name in files["part"][PLACE]:
        files["all"][f"train/{name}"] = h5py.ExternalLink("below/part.h5", f"/{PLACE}/{name}")
    files["all"]["train"].attrs.update(files["part"][PLACE].attrs)


def to_a_group_above(files):
    files["all"]["inner"] = h5py.ExternalLink("below/part.h5", "/x")
    files["all"]["train"] = h5py.SoftLink("/inner/deep")


def by_soft_links(files):
    files["all"]["g/inner"] = h5py.ExternalLink("below/part.h5", "soft")
    files["part"]["soft"] = h5py.SoftLink("x/deep")
    files["all"]["train"] = h5py.SoftLink("g/inner")


def by_a_third_file(files):
    """External, soft, and external again, which is relative to the second file."""
    files["part"]["hop"] = h5py.SoftLink("/away")
    files["part"]["away"] = h5py.ExternalLink("other.h5", PLACE)
    files["all"]["train"] = h5py.ExternalLink("below/part.h5", "hop")


def inside_a_linked_group(files):
    for name in files["other"][PLACE]:
        files["part"][f"g/{name}"] = h5py.ExternalLink("other.h5", f"{PLACE}/{name}")
    files["part"]["g"].attrs.update(files["other"][PLACE].attrs)
    files["all"]["train"] = h5py.ExternalLink("below/part.h5", "g")


WAYS = {
    to_group: 1,
    to_datasets: 1,
    to_a_group_above: 1,
    by_soft_links: 1,
    by_a_third_file: 2,
    inside_a_linked_group: 2,
}
"""Ways, and the seed of what they lead to."""


@pytest.fixture(params=[plain, encoded, virtual])
def files(request, tmp_path):
    """A first file, two in a folder below that links lead to, and decoys of every name where they would be taken for these."""
    (tmp_path / "below").mkdir()
    write(tmp_path / "all.h5", request.param, 3)
    write(tmp_path / "other.h5", request.param, 4)
    write(tmp_path / "below" / "part.h5", request.param, 1)
    write(tmp_path / "below" / "other.h5", request.param, 2)
    names = {"all": "all.h5", "part": "below/part.h5", "other": "below/other.h5"}
    opened = {key: h5py.File(tmp_path / name, "a") for key, name in names.items()}
    yield opened
    for file in opened.values():
        file.close()


@pytest.mark.parametrize("way", WAYS)
def test_what_links_lead_to_is_read(files, tmp_path, way):
    path, seed = tmp_path / "all.h5", WAYS[way]
    way(files)
    for file in files.values():
        file.close()
    source = pickle.loads(pickle.dumps(open_source(path, "train")))
    assert np.array_equal(read_samples(source, 0, N)[..., 0], pixels(seed))
    assert open_labels(path, "train", source).tolist() == [seed + number for number in range(N)]
    assert class_names(path, "train") == tuple(f"class {seed} {label}" for label in range(N + seed))
    assert source.name.startswith(f"{path}:train")
    manifest = describe_files([str(path)], tmp_path / "all.json", ["train"])
    write_manifest(manifest, overwrite=True)
    assert np.array_equal(
        read_samples(open_source(tmp_path / "all.json", "train"), 2, 3)[0, ..., 0], pixels(seed)[2]
    )


@pytest.mark.parametrize("way", WAYS)
def test_an_open_dataset_is_read_whatever_its_name_is_in_the_file_it_lies_in(files, tmp_path, way):
    way(files)
    for name in ("part", "other"):
        files[name].require_group("train")["images"] = pixels(9)
    with h5py.File(tmp_path / "all.h5") as file:
        opened = file["train"].get("images")
        if opened is None:
            return  # encoded images are two datasets
        assert np.array_equal(opened, pixels(WAYS[way]))
        assert np.array_equal(read_samples(as_source(opened), 0, N)[..., 0], pixels(WAYS[way]))


@pytest.fixture
def one(tmp_path):
    """A file whose only images are behind a link, and a decoy."""
    with h5py.File(tmp_path / "part.h5", "w") as part, h5py.File(tmp_path / "all.h5", "w") as whole:
        part["images"] = pixels(1)
        part.attrs["classes"] = ["cat", "dog"]
        whole["kept/mine"] = h5py.ExternalLink("part.h5", "/images")
        whole["mine"] = h5py.SoftLink("nowhere")
    return tmp_path / "all.h5"


def test_links_are_among_the_names_of_a_file(one):
    assert image_sets(one) == ["kept/mine"]
    assert as_source(one).shape == (*SHAPE, 1)
    with pytest.raises(DataError, match="use kept/mine"):
        open_source(one, "kept/mime")
    assert class_names(one, "kept/mine") is None


def test_open_datasets_and_trees_read_behind_a_link(one):
    with h5py.File(one) as file, as_source(file["kept/mine"]).opened() as reader:
        assert np.array_equal(reader.read(0, N)[..., 0], pixels(1))
    add_arrays(one, {"images": pixels(3)})
    with smtdist.open_datatree(one) as tree:
        assert np.array_equal(tree["kept/mine"].values, pixels(1))


def test_a_link_that_leads_nowhere_says_so(one):
    (one.parent / "part.h5").unlink()
    with pytest.raises(
        DataError, match=r"'kept/mine': .*part\.h5, which a link names, is no file; restore"
    ):
        open_source(one, "kept/mine")


@pytest.mark.parametrize("change", ["shorter", "gone"])
@pytest.mark.parametrize("linked", [False, True])
def test_external_storage_that_is_not_there_in_full_is_refused(tmp_path, monkeypatch, change, linked):
    """HDF5 reads the rest as zeros."""
    monkeypatch.chdir(tmp_path)
    images = pixels(1)
    raws = [tmp_path / "a.raw", tmp_path / "b.raw"]
    raws[0].write_bytes(b"head" + images[:2].tobytes())
    raws[1].write_bytes(images[2:].tobytes() + b"behind")
    room = [("a.raw", 4, images[:2].nbytes), ("b.raw", 0, h5py.h5f.UNLIMITED)]
    with h5py.File("x.h5", "w") as file, h5py.File("y.h5", "w") as other:
        (other if linked else file).create_dataset("images", SHAPE, np.uint8, external=room)
        if linked:
            file["images"] = h5py.ExternalLink("y.h5", "images")
    source = open_source("x.h5", "images")
    assert np.array_equal(read_samples(source, 0, N)[..., 0], images)
    for raw in raws:
        whole = raw.read_bytes()
        if change == "gone":
            raw.unlink()
        else:
            raw.write_bytes(whole[:-7])
        said = f"{raw.name}, which {'does not exist' if change == 'gone' else 'has [0-9]+ bytes, but'}"
        with pytest.raises(DataError, match=said):
            open_source("x.h5", "images")
        with pytest.raises(DataError, match=said), source.opened():
            pass
        with pytest.raises(DataError, match=said):
            read_labels("x.h5", "images", N)
        raw.write_bytes(whole)


def replaced(path, monkeypatch):
    path.with_name("new.h5").write_bytes(path.read_bytes())
    os.replace(path.with_name("new.h5"), path)


def gone(path, monkeypatch):
    path.unlink()


def in_a_folder_with_a_file_of_that_name(path, monkeypatch):
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(path.parent / "sub")


def in_another_folder(path, monkeypatch):
    (path.parent / "sub").mkdir()
    monkeypatch.chdir(path.parent / "sub")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (replaced, r"the file was replaced since it was opened.*open it again, or give its values"),
        (in_a_folder_with_a_file_of_that_name, "the file was replaced"),
        (gone, r"there is no .*a\.h5; open its file by the full path"),
        (in_another_folder, r"there is no .*sub/a\.h5; open its file by the full path"),
    ],
)
@pytest.mark.parametrize("mode", ["r", "a"])
def test_an_open_dataset_whose_name_leads_to_another_file_is_refused(
    tmp_path, monkeypatch, change, said, mode
):
    monkeypatch.chdir(tmp_path)
    plain(tmp_path / "a.h5", "train", 1)
    with h5py.File("a.h5", mode) as file:
        assert np.array_equal(read_samples(as_source(file["train/images"]), 0, N)[..., 0], pixels(1))
        change(tmp_path / "a.h5", monkeypatch)
        with pytest.raises(DataError, match=said):
            as_source(file["train/images"])


def test_what_memory_alone_holds_of_a_file_is_refused(tmp_path):
    plain(tmp_path / "a.h5", "train", 1)
    with h5py.File(tmp_path / "a.h5", "a", driver="core", backing_store=False) as file:
        file["train/images"][...] = pixels(2)
        with pytest.raises(DataError, match=r"in memory alone.*dataset\[:\]"):
            as_source(file["train/images"])


def test_what_was_looked_at_counts_for_the_file_that_is_open(tmp_path):
    """Not for one that has its name by then, nor for an object that has its name elsewhere."""
    names = [tmp_path / name for name in ("a.h5", "b.h5")]
    for path in names:
        plain(path, "train", 1)
    with unlocked(names[0]) as file, unlocked(names[1]) as other:
        before, shape = file["train/images"], (3, 1, 1)
        sound_chunks(before, shape)[0] = True
        assert sound_chunks(before, shape).ravel().tolist() == [True, False, False]
        os.replace(names[1], names[0])
        assert not sound_chunks(other["train/images"], shape).any()
        with unlocked(names[0]) as now:
            assert not sound_chunks(now["train/images"], shape).any()


def test_rows_of_an_open_dataset_are_never_made_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.raw").write_bytes(bytes(30))
    add_virtual("a.h5", "virtual", "gone.h5", "x", (8, 5))
    with h5py.File("a.h5", "a") as file:
        file.create_dataset("outside", (8, 5), np.uint8, external=[("a.raw", 0, 40)])
        file["whole"] = np.ones((8, 5))
    with h5py.File("a.h5") as file:
        assert as_table(file["whole"]).shape == (8, 5)
        with pytest.raises(DataError, match=r"a\.h5:virtual is a virtual dataset"):
            as_table(file["virtual"])
        with pytest.raises(DataError, match=r"a\.raw, which has 30 bytes, but 40 are needed"):
            as_table(file["outside"])
        group = file["/"]
    for closed in (file, group):
        with pytest.raises(DataError, match="group is of a file that is closed; open the file again"):
            as_source(closed)


@pytest.fixture
def astray(tmp_path):
    """A file of links that lead nowhere, or outside its folder."""
    (tmp_path / "a").mkdir()
    plain(tmp_path / "b.h5", "train", 1)
    with h5py.File(tmp_path / "a" / "x.h5", "w") as file:
        file["away/set"] = h5py.ExternalLink("../b.h5", "/train")
        file["gone"] = h5py.SoftLink("/nowhere")
        file["loop"] = h5py.SoftLink("/loop")
        file.create_group("nothing")
    return tmp_path / "a" / "x.h5"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "away",
            "'away' is a group without a dataset; it holds a link that cannot be followed, set: .*outside its folder",
        ),
        ("away/set", r"b\.h5, which lies outside its folder and is not read"),
        (
            "gone",
            r"no dataset 'gone': gone is a link to /nowhere in .*x\.h5, which is not there; restore what it",
        ),
        ("loop", "a link that leads in a circle"),
        ("nothing", "'nothing' is a group without a dataset; name another"),
        (
            "other",
            "no dataset 'other'; it holds 3 links that cannot be followed, away/set: .* outside its folder",
        ),
    ],
)
def test_links_that_cannot_be_followed_are_named(astray, name, said):
    with pytest.raises(DataError, match=said):
        open_source(astray, name)


def test_a_file_tells_of_links_that_cannot_be_followed(astray):
    with pytest.raises(
        ModelError, match=r"holds neither.*it holds 3 links that cannot be followed, away/set"
    ):
        facts_of(astray)
    with h5py.File(astray, "a") as file:
        file["out"] = h5py.ExternalLink("../b.h5", "/train")
        file["deep/here"] = pixels(1)
    groups = {group["name"]: group for group in facts_of(astray)["groups"]}
    assert set(groups) == {"deep/here", "out"}
    assert (groups["deep/here"]["shape"], groups["deep/here"]["problem"]) == ([*SHAPE, 1], None)
    assert "lies outside its folder" in groups["out"]["problem"]


def test_python_is_told_of_the_variable_once(astray):
    with pytest.raises(DataError) as told:
        open_source(astray, "away/set")
    assert str(told.value).endswith(f'the environment variable SMTDIST_FOLLOW="{astray.parent.parent}".')
