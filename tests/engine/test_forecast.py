"""What a pass is said to cost, as tables: sums held, tasks, merges, bytes and seconds."""

import math
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
from toys import Counted, Total, random_images

from smtdist.engine import calibration
from smtdist.engine import plan as plans
from smtdist.engine.calibration import Deadline, along_line, grown, mean_paces, on_processes
from smtdist.engine.forecast import (
    FILE_BYTES,
    TASK_SECONDS,
    Pace,
    Rates,
    SolveSpeed,
    Traffic,
    added_seconds,
    pass_seconds,
    solve_seconds,
    traffic,
)
from smtdist.engine.memory import size_of
from smtdist.engine.plan import ALLOWANCE, PassPlan, WorkerLimits, plan_pass
from smtdist.errors import ConfigurationError, MemoryBudgetError, SmtdistError

GIB = 2**30


class Large(Total):
    """A sum of 1 GiB whose merge needs nothing, which makes what is held visible."""

    def state_bytes(self):
        return GIB

    def merge_bytes(self):
        return 0


def plan_of(statistic, n_samples, *, workers=1, alone=False, limit=2**40, device=None, **how):
    """Plan a pass over samples of four bytes; `how` it is summed is in the words of `plan_pass`."""
    source = Counted(np.zeros((n_samples, 2, 2, 1), np.uint8), [], chunk_samples=256)
    limits = WorkerLimits(limit, 7, 1, workers, alone, device)
    return plan_pass("p", statistic, source, limits, **how)


@pytest.mark.parametrize(
    ("workers", "alone", "checkpointed", "n_samples", "streaming", "meeting"),
    [
        (1, True, False, 2560, 1, 0),  # every task adds to the sum of the one before it; nobody to meet
        (1, True, True, 2560, 1, 0),  # written as it is, now and then
        (1, True, False, 256, 1, 0),  # the one task begins the one sum
        (2, False, False, 2560, 2, 3),
        (2, False, True, 2560, 2, 3),
        (1, False, True, 2560, 2, 3),  # a second worker may join
        (4, False, False, 256, 1, 0),
    ],
)
def test_sums_that_a_worker_holds(workers, alone, checkpointed, n_samples, streaming, meeting):
    plan = plan_of(Large(), n_samples, workers=workers, alone=alone, checkpointed=checkpointed)
    assert (plan.streaming_sums, plan.meeting_sums) == (streaming, meeting)
    most = max(streaming * GIB + plan.working_bytes, meeting * GIB + ALLOWANCE if meeting else 0)
    assert plan.projected_bytes == 7 + most


def test_workers_with_room_for_one_sum_write_it_after_each_task():
    """A checkpoint asks for no more memory than a sum and a batch, and takes more only where there is room for the same batch."""
    roomy = plan_of(Large(), 2560, workers=2, checkpointed=True)
    needed = [roomy.projected_bytes, 7 + 2 * GIB + ALLOWANCE]
    for limit, in_files in ((needed[0], False), (needed[0] - 2**20, True), (needed[1], True)):
        plan = plan_of(Large(), 2560, workers=2, checkpointed=True, limit=math.ceil(limit / 0.55))
        assert plan.in_files == in_files
        assert (plan.streaming_sums, plan.meeting_sums) == ((1, 2) if in_files else (2, 3))
        assert plan.batch == roomy.batch
    with pytest.raises(MemoryBudgetError):
        plan_of(Large(), 2560, workers=2, checkpointed=True, limit=int((needed[1] - 2**20) / 0.55))
    with pytest.raises(MemoryBudgetError):
        plan_of(Large(), 2560, workers=2, limit=math.ceil(needed[1] / 0.55))


def test_sums_are_stored_after_a_minute_or_ten_writes_of_work(monkeypatch):
    """By rough rates: a write of 1 GiB takes 2.1 s, so 60 s; one of 32 GiB 69 s, so 690 s."""
    monkeypatch.setattr(plans, "UNSAVED_SECONDS", 60.0)
    monkeypatch.setattr(plans, "UNSAVED_WRITES", 10)

    def plan(statistic, seconds):
        work = plans.MULTIPLICATIONS_PER_SECOND * seconds / 2560
        return plan_of(statistic, 2560, alone=True, checkpointed=True, work_per_sample=work)

    class Huge(Large):
        def state_bytes(self):
            return 32 * GIB

    assert [plan(Large(), seconds).n_stored for seconds in (10, 30, 70, 600)] == [0, 1, 2, 11]
    assert [plan(Huge(), seconds).n_stored for seconds in (600, 700, 7000)] == [0, 2, 11]
    assert plan(Total(), 1).n_stored == 1
    one = traffic(plan(Huge(), 7000), distributed=False, checkpointed=True)
    assert one.written == 11 * (32 * GIB + FILE_BYTES)
    # a task adds at most a quarter of the work after which a sum is stored, 15 s: two leaves of 7 s
    long = plan_of(
        Large(),
        256 * 6400,
        alone=True,
        checkpointed=True,
        work_per_sample=plans.MULTIPLICATIONS_PER_SECOND / 256,
    )
    assert long.task_leaves(900, 1) == 2


def test_what_other_work_took_is_neither_ours_nor_idle(monkeypatch):
    """Of 20 s of two processors 4 were idle, 6 were this process's and its children's, 2 a host's other guests'."""
    kinds = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")
    before, after = kinds(100, 0, 10, 50, 5, 0, 0, 1, 7, 0), kinds(112, 0, 12, 53, 6, 0, 0, 3, 9, 0)
    own = namedtuple("Own", "user system children_user children_system elapsed")
    times = iter([before, after])
    used = iter([own(1, 1, 0, 0, 0), own(4, 2, 2, 0, 10)])
    monkeypatch.setattr(calibration.psutil, "cpu_times", lambda: next(times))
    monkeypatch.setattr(calibration.os, "times", lambda: next(used))
    assert calibration.others_share()() == pytest.approx((12 + 2 + 2 - 6) / 20)


def test_sums_carry_the_hashes_of_their_samples():
    without = plan_of(Large(), 2560, workers=2)
    carrying = plan_of(Large(), 2560, workers=2, fingerprint=True)
    held = max(without.streaming_sums, without.meeting_sums)
    assert 0 < carrying.projected_bytes - without.projected_bytes <= held * 8 * 2560


def test_a_resumed_run_counts_two_sums_that_meet():
    plan = plan_of(Large(), 2560, alone=True, checkpointed=True)
    assert plan.resuming(1) is plan
    assert plan.resuming(2).projected_bytes == 7 + 2 * GIB + ALLOWANCE


def test_sums_on_a_fixed_tree_are_counted_as_before():
    plan = plan_of(Large(exact=False), 1280, workers=2)
    assert (plan.streaming_sums, plan.meeting_sums) == (6, 6)  # 5 leaves: three levels, and three more
    assert (plan.n_tasks, plan.n_sums, plan.n_merges, plan.depth) == (5, 5, 4, 3)


def test_tasks_along_a_fixed_tree_are_large_first_where_their_leaves_are_short():
    leaf = 256
    second = 2e10 / leaf  # multiplications of a sample whose leaf takes a second
    slow, short = (
        plan_of(Large(exact=False), 49 * leaf, workers=2, work_per_sample=work)
        for work in (30 * second, second)
    )
    assert slow.n_tasks == 49
    # 8, 8, 8, 4, 4, 4, 2, 2, 2 leaves, and seven of one
    assert (short.n_tasks, short.n_merges) == (16, 15)
    assert [short.task_level(left, 2) for left in (49, 25, 13, 7, 1)] == [3, 2, 1, 0, 0]
    assert (short.streaming_sums, short.meeting_sums) == (slow.streaming_sums, slow.meeting_sums)
    assert plan_of(Large(exact=False), 49 * leaf, workers=64, work_per_sample=second).n_tasks == 49


@pytest.mark.parametrize(
    ("n_samples", "workers", "tasks", "merges", "depth"),
    [
        (256, 4, 1, 0, 0),
        (2560, 1, 10, 0, 0),
        (2560, 3, 10, 2, 2),
        (512, 8, 2, 1, 1),
        (256 * 100, 8, 65, 7, 3),  # of two leaves while many are left
    ],
)
def test_tasks_merges_and_depth(n_samples, workers, tasks, merges, depth):
    plan = plan_of(Total(), n_samples, workers=workers)
    assert (plan.n_tasks, plan.n_merges, plan.depth) == (tasks, merges, depth)


def test_gpu_memory_is_counted_and_refused():
    with pytest.raises(MemoryBudgetError, match=r"1\.0 GiB on the GPU"):
        plan_of(Large(), 2560, device=GIB)
    plan = plan_of(Large(), 2560, device=4 * GIB)
    assert GIB < plan.device_bytes < 1.1 * GIB
    assert plan.streaming_sums == 3  # the one on the device is copied back beside start and copy


class OnDevice(Large):
    """Needs 1 MiB for an image of a batch here, and 8 there."""

    def batch_bytes(self, images):
        return images * 2**20

    def device_batch_bytes(self, images):
        return 8 * images * 2**20


def test_batches_fit_the_gpu_by_what_they_take_there():
    roomy, tight = (plan_of(OnDevice(), 2560, device=size) for size in (40 * GIB, 2 * GIB))
    assert roomy.device_bytes == GIB + 8 * roomy.batch * 2**20
    assert tight.batch < roomy.batch
    assert tight.device_bytes <= 0.9 * 2 * GIB < GIB + 16 * tight.batch * 2**20
    with pytest.raises(MemoryBudgetError, match=r"8\.0 MiB for one batch of 1"):
        plan_of(OnDevice(), 2560, device=GIB)


def test_batches_on_their_way_to_a_gpu_lie_in_memory_too():
    """Two pinned ones, of samples of 4 bytes; a leaf is one block here, so none lies between reading and copying."""
    here, there = plan_of(OnDevice(), 2560), plan_of(OnDevice(), 2560, device=40 * GIB)
    assert here.batch == there.batch
    assert there.working_bytes - here.working_bytes == 4 * 2 * there.batch


def test_network_and_checkpoint_bytes():
    plan = plan_of(Large(), 2560, workers=3, checkpointed=True)  # 10 tasks, 3 sums, 2 merges on 2 levels
    local = traffic(plan, distributed=False, checkpointed=False, shared_bytes=5)
    assert local == Traffic(plan.read_bytes)
    moved = traffic(plan, distributed=True, checkpointed=False, shared_bytes=5, sample_bytes=4)
    assert moved == Traffic(2560 * 4, scattered=15 + 2560 * 4, moved=2 * GIB, gathered=GIB)
    assert moved.network == 15 + 2560 * 4 + 3 * GIB
    now_and_then = traffic(plan, distributed=True, checkpointed=True, shared_bytes=5, sample_bytes=4)
    assert now_and_then == replace(moved, written=plan.n_stored * (GIB + FILE_BYTES))
    in_files = replace(plan, in_files=True)
    stored = traffic(in_files, distributed=True, checkpointed=True, shared_bytes=5)
    file = GIB + FILE_BYTES
    # each task, each merge and the result are written; 7 tasks and 2 merges begin by loading, and the driver loads the last
    assert stored == Traffic(2560 * 4, scattered=15, written=13 * file, reread=(7 + 4 + 1) * file)


def test_hashes_of_samples_travel_once():
    plan = plan_of(Total(), 2560, workers=1)
    plain, hashed = (
        traffic(plan, distributed=True, checkpointed=stored, digests=digests)
        for stored, digests in ((False, False), (False, True))
    )
    assert hashed.gathered - plain.gathered == 8 * 2560
    in_files = replace(plan, in_files=True)
    written = traffic(in_files, distributed=True, checkpointed=True, digests=True).written
    # files of 1, 2, ... 10 tasks of 256 samples, and the result
    assert written == 11 * (32 + FILE_BYTES) + 8 * 256 * 55 + 8 * 2560


def test_seconds_follow_the_slot_with_most_tasks():
    plan = plan_of(Large(), 2560, workers=4)  # 10 tasks on 4 slots: three rounds of 256 samples
    pace = Pace(0.001, ((1.0, 0.002),), start=0.5)
    rates = Rates(copy=GIB, merge=GIB / 2, write=GIB / 4, load=GIB / 8, network=GIB / 16)
    level = 16 + 1 + 2 + TASK_SECONDS[True]
    expected = 2 * 0.5 + 3 * 256 * 0.003 + 3 * TASK_SECONDS[True] + 3 * 1 + 2 * level + 16
    found = pass_seconds(plan, pace, rates, distributed=True, checkpointed=False)
    assert found == pytest.approx(expected)
    now_and_then = replace(plan, n_stored=6)
    assert pass_seconds(now_and_then, pace, rates, distributed=True, checkpointed=True) == found + 6 * 4 / 2
    in_files = replace(plan, in_files=True)
    stored = pass_seconds(in_files, pace, rates, distributed=True, checkpointed=True)
    level = 2 * 8 + 2 + 4 + TASK_SECONDS[True]
    expected = 2 * 0.5 + 3 * 256 * 0.003 + 3 * TASK_SECONDS[True] + 10 * 4 / 2 + 6 * 8 / 4 + 2 * level + 12
    assert stored == pytest.approx(expected)


def test_a_falling_cost_is_summed_along_its_curve():
    curve = ((10.0, 5.0), (1000.0, 1.0))
    samples = np.arange(10, 1000) + 0.5
    expected = 50 + np.interp(np.log(samples), np.log([10, 1000]), [5, 1]).sum() + 500
    assert added_seconds(curve, 1500) == pytest.approx(expected, rel=1e-3)
    assert added_seconds(curve, 4) == 20


def test_solves_grow_with_the_cube_and_full_ones_cost_more():
    speed = SolveSpeed(1e10, 1e10, 4e10, 2**22)
    ratio = solve_seconds(16384, 4096, True, speed) / solve_seconds(8192, 2048, True, speed)
    assert 7.5 < ratio < 8.5
    assert solve_seconds(4096, 600, False, speed) > 1.2 * solve_seconds(4096, 600, True, speed)
    assert solve_seconds(99, 9, True, replace(speed, factor=3.0)) == pytest.approx(
        3 * solve_seconds(99, 9, True, speed)
    )


def test_iterations_grow_with_the_square_and_cost_less(monkeypatch):
    speed = SolveSpeed(3.5e10, 1.2e10, 2.4e10, 2**22)
    assert 2.8 < solve_seconds(16384, 400, True, speed) / solve_seconds(8192, 400, True, speed) < 4
    # few vectors are as many readings of the matrix: an eighth of them takes more than an eighth
    assert solve_seconds(16384, 50, True, speed) > 0.15 * solve_seconds(16384, 400, True, speed)
    iterated = solve_seconds(8192, 400, True, speed)
    monkeypatch.setattr("smtdist.engine.forecast.suits", lambda *_: False)
    assert solve_seconds(8192, 400, True, speed) > 1.5 * iterated


def test_measurements_grow_until_time_is_up(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(calibration.time, "time", lambda: now[0])

    def measure(size):
        now[0] += 2 + size / 100
        return 2 + size / 100

    assert grown(measure, 1000, Deadline.after(1000)) == (12.0, 1000)
    seconds, largest = grown(measure, 1000, Deadline.after(12))
    assert (largest, round(seconds, 6)) == (250, 12.0)  # the line through 62 and 250 gives what 1,000 takes


def test_lines_go_through_the_last_two_measurements():
    assert along_line([(8, 1.0), (16, 1.5)], 64) == pytest.approx(4.5)
    assert along_line([(8, 2.0), (16, 1.0)], 64) == 1.0  # noise that falls is not followed below zero


def test_paces_of_several_processes_are_averaged():
    fast, slow = Pace(1.0, ((1.0, 2.0), (8.0, 1.0)), 3.0), Pace(3.0, ((1.0, 4.0),), 5.0)
    (pace,) = mean_paces([{"p": fast}, {"p": slow}]).values()
    assert (pace.read, pace.add, pace.start) == (2.0, ((1.0, 3.0),), 5.0)


def test_processes_answer_at_once_or_not_at_all():
    answers = on_processes(2, math.sqrt, 9.0, deadline=Deadline.after(10))
    assert [result for _, result in answers] == [3.0, 3.0]
    assert all(seconds > 0 for seconds, _ in answers)
    with pytest.raises(SmtdistError, match="calibrate=False"):
        on_processes(1, math.sqrt, -1.0, deadline=Deadline.after(10))


def test_rates_and_speed_are_measured_and_leave_nothing(tmp_path):
    rates = calibration.byte_rates(tmp_path / "absent" / "checkpoint", Deadline.after(5))
    assert min(vars(rates).values()) > 1e6
    assert list(tmp_path.iterdir()) == []
    speed = calibration.solve_speed(96, 8, False, Deadline.after(2))
    assert speed.size == calibration.TRIED_ROWS[0]
    assert solve_seconds(96, 8, False, speed) > 0


def test_a_sample_is_spread_over_the_source():
    images = random_images(0, 40)
    source = Counted(images, [], chunk_samples=4)
    found, pace = calibration.read_sample(source, 12, Deadline.after(60))
    assert np.array_equal(found, images[np.r_[0:4, 16:20, 36:40]])
    assert source.reads == [(0, 4), (16, 20), (36, 40)]
    assert pace > 0


@pytest.mark.parametrize("text", ["much", "16 XB", "", "-3GB", "0"])
def test_sizes_that_are_none(text):
    with pytest.raises(ConfigurationError, match=r"memory|number of bytes"):
        size_of(text)


def test_an_empty_plan_has_no_tasks():
    plan = PassPlan("solve", (0,), 0, 0, 0, 0, 0, 0, 0, 0, slots=0)
    assert (plan.n_tasks, plan.n_merges, plan.depth) == (0, 0, 0)
