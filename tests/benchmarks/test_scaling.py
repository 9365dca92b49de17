"""The scaling benchmarks run, tiny; what must hold of them holds at any size."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.scaling import exchange, network_model, simulated
from benchmarks.scaling.network_model import Case, Constants


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A folder with a simulated pass on six workers and an exchange between two processes."""
    folder = tmp_path_factory.mktemp("records")
    small = ["--images", "3000", "--side", "16", "--atoms", "64", "--factor", "100"]
    (run,) = simulated.main([*small, "--workers", "6", "--processes", "2", "--json", str(folder)])
    (met,) = exchange.main(["--processes", "2", "--mebibytes", "8", "--json", str(folder)])
    return folder, run, met


@pytest.mark.benchmark
def test_a_simulated_pass_adds_every_sample_once_and_says_what_it_took(records):
    folder, run, _ = records
    assert (run["samples"], run["leaves"], run["tasks"]["accumulate"]) == (3000, 3, 3)
    (path,) = folder.glob("*simulated*.json")
    assert json.loads(path.read_text())["result"]["runs"] == [run]


def test_slowness_and_noise_are_drawn_by_key_and_have_mean_one():
    costs = simulated.Costs(image=1.0, copy=0, merge=0, result=0, state_bytes=1, leaf_spread=0.2)
    draws = [costs.leaf(first, 1) for first in range(2000)]
    assert draws[:3] == [costs.leaf(first, 1) for first in range(3)]
    assert np.mean(draws) == pytest.approx(1, abs=0.02)
    assert np.std(draws) == pytest.approx(0.2, abs=0.02)


@pytest.mark.benchmark
def test_sums_that_meet_are_whole_and_three_a_process(records):
    _, _, met = records
    assert [row["merges"] for row in met["rounds"]] == [1]
    assert met["bytes_per_second_each"] > 0
    assert (
        met["peak_in_sums"] >= 2
    )  # a small sum disappears among what libraries allocate: no upper bound here


@pytest.mark.benchmark
def test_the_model_takes_records_and_draws(records, tmp_path):
    folder, _, met = records
    (simulated_path,), (exchange_path,) = folder.glob("*simulated*"), folder.glob("*exchange*")
    paths = ["--simulated", str(simulated_path), "--exchange", str(exchange_path)]
    result = network_model.main([*paths, "--workers", "10", "1000", "--json", str(tmp_path)])
    assert result["constants"]["add"] == met["add_seconds"] / met["sum_bytes"]
    assert len(result["rows"]) == 2 * 2 * 2 * 2
    assert len(list(tmp_path.glob("*.png"))) == 1


def test_one_panel_is_the_tree_without_its_copies_and_many_are_a_reduce_scatter():
    case, free = Case(1024, 8192, 10.0), Constants(copy=0, add=1e-10, task=0, driver=0)
    assert network_model.tile_seconds(case, free, 1) == pytest.approx(
        network_model.tree_seconds(case, free)
    )
    scattered = (1 - 1 / 1024) * (1 / case.bandwidth + free.add) * case.sum_bytes
    gathered = case.sum_bytes / case.bandwidth
    assert network_model.tile_seconds(case, free, 1024) == pytest.approx(scattered + gathered)
    assert network_model.best_panels(case, replace(free, driver=1.0)) == 1


def test_a_fit_finds_the_constants_of_passes_that_follow_the_model():
    def run(workers, tasks, task):
        linear = 8000.0 / workers
        costs = {"copy": 0.0, "factor": 1.0}
        return {
            "workers": workers,
            "leaves": tasks,
            "tasks": {"accumulate": tasks},
            "linear_seconds": linear,
            "leaf_seconds": linear * workers / tasks,
            "costs": costs,
            "seconds_to_last_leaf": linear + linear * workers / tasks / 2 + task * tasks / workers,
            "processor_ms_per_task": {"driver": 2.0, "scheduler": 3.0},
            "seconds_of_end_merges": 0.0,
            "shortest_end": 0.0,
        }

    met = {"sum_bytes": 10, "copy_seconds": 3.0, "add_seconds": 4.0, "bytes_per_second_each": 1.0}
    constants, fitted = network_model.fit([run(10, 160, 0.3), run(100, 1600, 0.3)], [met])
    assert constants.task == pytest.approx(0.3)
    assert (constants.driver, constants.copy, constants.add) == pytest.approx((0.003, 0.3, 0.4))
    for row in fitted["residuals"]:
        assert row["model_seconds"] == pytest.approx(row["measured_seconds_to_last_leaf"])
