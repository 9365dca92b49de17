"""The one command for benchmarks: every benchmark runs tiny, records carry what a row must say, the table follows from them."""

import json
from pathlib import Path

import pytest

import benchmarks
from benchmarks import __main__ as command
from benchmarks import contest, floors, rows, suite, table

README = Path(benchmarks.__path__[0], "README.md")


@pytest.fixture
def place(tmp_path):
    return ["--tiny", "--out", str(tmp_path), "--readme", str(tmp_path / "README.md")]


@pytest.mark.parametrize(
    "bench",
    [
        pytest.param(bench, id=bench.name, marks=() if bench.name == "kmeans" else pytest.mark.benchmark)
        for bench in suite.BENCHES
    ],
)
def test_runs_tiny(bench, place, tmp_path):
    if (reason := bench.missing({}, gpu=False)) is not None:
        pytest.skip(f"the benchmark {reason}")
    assert command.main([*place, "--only", bench.name]) == 0
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    assert record["result"]["group"] == bench.group
    assert record["machine"]["memory_bytes"] > 0
    assert record["result"]["machine_floors"]["memory_gigabytes"] > 0
    text = (tmp_path / "README.md").read_text()
    for one in record["result"]["rows"]:
        assert one["ours_seconds"] > 0
        assert one["ours_peak_bytes"] > 2**20
        for role in ("floor", "peer"):
            assert (role in one) == (f"{role}_seconds" in one)
        assert f"[{one['name']}](../results/{path.name})" in text


def test_each_has_a_group_and_a_name_of_its_own():
    assert len({bench.name for bench in suite.BENCHES}) == len(suite.BENCHES)
    assert {bench.group for bench in suite.BENCHES} == set(table.GROUPS)


def test_unknown_names_and_tiny_results_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="no benchmark 'kernel'; choose among kernels"):
        command.chosen(["kernel"])
    with pytest.raises(SystemExit, match="give another folder"):
        command.main(["--tiny"])
    with pytest.raises(SystemExit, match=r"CONTRIBUTING\.md has no lines"):
        command.main(
            ["--tiny", "--out", str(tmp_path), "--readme", str(README.parents[1] / "CONTRIBUTING.md")]
        )


def test_results_elsewhere_leave_the_table_of_the_project_alone(tmp_path):
    before = README.read_bytes()
    assert command.main(["--tiny", "--only", "cold-start", "--out", str(tmp_path)]) == 0
    assert README.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1
    assert {bench.group for bench in command.chosen(["end_to_end", "kmeans"])} == {"end to end", "kernels"}


def test_what_cannot_run_is_named(place, capsys):
    assert command.main([*place, "--only", "reimplementation", "pass3-gpu"]) == 0
    said = capsys.readouterr().err
    assert "reimplementation: left out, it needs" in said
    assert "pass3-gpu: left out, it " in said


def test_sides_have_processes_of_their_own():
    """The memory of one is not the other's, and both take as many turns as are asked for."""
    sides = {
        name: contest.Side(
            "benchmarks.floors", "bare_product", {"rows": 8, "inner": 4, "columns": columns, "threads": 1}
        )
        for name, columns in (("small", 8), ("large", 2_000_000))
    }
    found = contest.contest(sides, 3, threads=1)
    assert [len(one.seconds) for one in found.values()] == [3, 3]
    assert found["large"].median > found["small"].median
    assert found["large"].facts["gflops"] > 0  # the small one is too short to tell


def test_a_side_that_fails_is_named():
    side = contest.Side("benchmarks.floors", "bare_product", {"rows": -1})
    with pytest.raises(contest.SideFailed, match="broken ended with 1"):
        contest.contest({"broken": side}, 1)


def test_the_table_takes_the_newest_record_of_a_row(tmp_path):
    def write(name, seconds):
        made = rows.row("a row", seconds, floor=("sgemm", 1.0), peer=("other", 6.0), asked="little")
        machine = {"processor": "P", "cores": 2, "memory_bytes": 2**34}
        record = {
            "date": name[:10],
            "command": "c",
            "machine": machine,
            "result": {"group": "peers", "rows": [made]},
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(record))

    write("2026-01-02-bench-x-2", 2.0)  # by another command of that day
    write("2026-01-02-bench-x", 4.0)
    write("2026-01-01-bench-x", 3.0)
    (found,) = table.newest(tmp_path)
    assert (found["over_floor"], found["times_peer"]) == (2, 3)
    text = table.rendered([found])
    assert "| 2 s | sgemm: 1 s | 2.00 | other: 6 s | 3 |" in text
    assert "P, 2 cores, 16 GiB; 2026-01-02" in text


def test_the_readme_holds_the_table_of_its_results():
    """The committed table is the one that the committed results give."""
    text = README.read_text()
    inside = text.partition(table.BEGIN)[2].partition(table.END)[0]
    assert inside.strip() == table.rendered(table.newest(README.parents[1] / "results")).strip()


def test_floors_are_rates_of_this_machine():
    found = floors.machine_floors(tiny=True, threads=1)
    assert set(found) >= {"sgemm_36_gflops", "memory_gigabytes", "disk_write_gigabytes"}
    assert all(value > 0 for value in found.values())
