"""Measured on a worker of its own: peaks stay under their projection and do not grow with the data; nothing is written."""

import h5py
import pytest
from arrays_in_files import write_arrays
from deploying import smtdist
from drawing import small_images

from benchmarks.local import local_executor
from benchmarks.scaling.memory_and_disk import Watch
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit

SETTINGS = {
    "gq": Configuration(patch=4, dictionary=700, n_components=8, threshold=0.5),
    "vq": Configuration(
        patch=4,
        feature="vq",
        context=2,
        dictionary=1500,
        n_components=8,
        dictionary_method="spherical",
        dictionary_rounds=1,
    ),
}


def written_bytes(client):
    """Bytes that the workers have sent to disks, as the kernel counts them."""

    def count():
        from pathlib import Path

        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(lines["write_bytes"])

    return sum(client.run(count).values())


@pytest.mark.parametrize("name", SETTINGS)
def test_peaks_stay_under_their_projection_and_do_not_grow(name, tmp_path):
    repeated = small_images(0, 1000, 12, 12)
    peaks, shares = {}, []
    for samples in (1000, 4000):
        path = tmp_path / f"{samples}.h5"
        with h5py.File(path, "w") as file:
            images = file.create_dataset(
                "x", (samples, 12, 12, 1), "uint8", chunks=(500, 12, 12, 1), compression="gzip"
            )
            for start in range(0, samples, 1000):
                images[start : start + 1000] = repeated
        with local_executor(1, threads=2) as executor:
            before = written_bytes(executor.client)
            _, records = fit(as_source((path, "x")), SETTINGS[name], Engine(executor))
            assert written_bytes(executor.client) - before < 2**20, "a pass wrote to disk"
        passes = records[:3]
        assert all(record["read_bytes"] == samples * 144 for record in passes[::2])
        for record in passes:
            print(record)
            shares.append(record["peak_bytes"] / record["projected_bytes"])
            peaks.setdefault(record["name"], []).append(record["peak_bytes"])
    assert max(shares) <= 1, shares
    for pass_name, (small, large) in peaks.items():
        assert abs(large - small) <= 0.1 * small, (pass_name, small, large)
    assert min(shares) >= 0.7, shares


def test_a_checkpoint_holds_few_partials_and_no_more_than_announced(tmp_path):
    write_arrays(tmp_path / "x.h5", {"x": small_images(0, 3000, 12, 12)}, chunks=(100, 12, 12, 1))
    announced = []

    class Announcing(Engine):
        def limits(self, statistic, source):
            limits = super().limits(statistic, source)
            announced.append((limits.workers + 2) * statistic.state_bytes())
            return limits

    folder = tmp_path / "checkpoint"
    with local_executor(2, threads=1) as executor, Watch(folder, 0.001) as watch:
        fit(
            as_source((tmp_path / "x.h5", "x")),
            SETTINGS["gq"],
            Announcing(executor, checkpoint=folder, key="k"),
        )
    assert 1 <= watch.partials <= 2 + 2
    overhead = 4 * 2**16  # the attributes and headers of the files
    assert watch.bytes <= max(announced) + overhead
    assert sorted(path.name for path in folder.rglob("*.h5")) == ["result.h5"] * 3


@pytest.mark.parametrize("dictionary", [16, 64])
def test_the_first_solve_of_a_process_stays_under_its_projection_with_few_atoms_too(dictionary, tmp_path):
    write_arrays(tmp_path / "data.h5", {"x": small_images(0, 300, 12, 12)}, chunks=(100, 12, 12, 1))
    words = ["fit", tmp_path / "data.h5", "--dataset", "x", "--out", tmp_path / "model.h5", "--json"]
    words += ["--workers", "0", "--set", f"dictionary={dictionary}", "--set", "n_components=8"]
    record = smtdist(*words, timeout=120)["passes"][-1]
    assert record["name"] == "solve"
    assert record["peak_bytes"] <= record["projected_bytes"]
