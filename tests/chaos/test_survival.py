"""Fits under faults. The thirty of the table: `pytest -m chaos tests/chaos/test_survival.py` (half an hour on two cores)."""

import pytest

from benchmarks.survival.faults import DRIVER, SCHEDULER, THIRTY
from benchmarks.survival.run import Chaos, Row, table


@pytest.fixture(scope="module")
def chaos(tmp_path_factory):
    found = Chaos(tmp_path_factory.mktemp("chaos"))
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("case", range(len(THIRTY)), ids=lambda case: f"{case}-{THIRTY[case].name}")
def test_every_fit_ends_with_the_reference_bits_or_as_it_must(chaos, case):
    row = chaos.run(case, THIRTY[case])
    assert row.good, row


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [SCHEDULER, DRIVER], ids=lambda fault: fault.name)
def test_a_few_on_two_workers(tmp_path, fault):
    chaos = Chaos(tmp_path, workers=2)
    try:
        row = chaos.run(100, fault)
    finally:
        chaos.close()
    assert row.good, row


def test_the_thirty_are_all_there_and_the_table_says_how_they_ended():
    assert len(THIRTY) == 30
    assert len({fault.name for fault in THIRTY}) == 11
    rows = [
        Row(0, 1, "a fault", "whitening, leaf 2 of 48", "reference bits", True, 3.0, ""),
        Row(1, 2, "another", "solve", "hung for 300 s", False, 300.0, ""),
    ]
    assert table(rows).splitlines()[0] == "# 1 of 2 fits ended with the reference bits or as they must"
    assert "| 1 | 2 | another | solve | hung for 300 s | 300.0 |" in table(rows)
