"""The engine's parts, each as a table: trees, covers, plans, memory."""

import mmap
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import Counted, Total, random_images

from smtdist.data.array import ArraySource
from smtdist.engine import memory, tree
from smtdist.engine.partial import Counters, join, missing
from smtdist.engine.plan import ALLOWANCE, WorkerLimits, plan_pass
from smtdist.errors import MemoryBudgetError

leaf_sets = st.sets(st.integers(0, 30))


def cover_of(leaves):
    cover = ()
    for leaf in sorted(leaves):
        cover = join(cover, ((leaf, leaf + 1),))
    return cover


@given(leaf_sets, leaf_sets)
def test_covers_behave_like_sets(left, right):
    if left & right:
        with pytest.raises(AssertionError, match="counted twice"):
            join(cover_of(left), cover_of(right))
    else:
        assert join(cover_of(left), cover_of(right)) == cover_of(left | right)
    assert missing(cover_of(left), 31) == cover_of(set(range(31)) - left)


@given(st.integers(1, 70))
def test_the_tree_has_every_leaf_once_and_ends_in_its_root(n_leaves):
    nodes = {tree.promoted(tree.Node(0, leaf), n_leaves) for leaf in range(n_leaves)}
    merges = 0
    while nodes != {tree.root(n_leaves)}:
        node = next(node for node in sorted(nodes) if node.index % 2 == 0 and tree.sibling(node) in nodes)
        nodes -= {node, tree.sibling(node)}
        nodes.add(tree.promoted(tree.parent(node), n_leaves))
        merges += 1
    assert merges == n_leaves - 1
    assert tree.root(n_leaves).leaves(n_leaves) == (0, n_leaves)


def test_counters_add_and_peaks_do_not():
    both = Counters(1, 2, 3, 40, {0: "a"}) + Counters(10, 20, 30, 4, {1: "b"})
    assert both == Counters(11, 22, 33, 40, {0: "a", 1: "b"})


def test_tasks_follow_the_workers_and_leaves_do_not():
    source = Counted(random_images(0, 2000), [], chunk_samples=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smtdist.data.source.MIN_LEAF_SAMPLES", 4)
        plans = {n: plan_pass("p", Total(), source, WorkerLimits(10**9, 0, 1, n)) for n in (1, 4, 16, 1000)}
    assert {plan.n_leaves for plan in plans.values()} == {500}
    assert [plan.leaves_per_task for plan in plans.values()] == [8, 8, 2, 1]


def test_a_task_on_a_gpu_takes_ten_times_as_long_as_its_sum_takes_to_the_card_and_back():
    """Of 16,000 images with 8,192 atoms each leaf was a task: 60 of 75 seconds the sum was on its way."""

    class Large(Total):
        def state_bytes(self):
            return 13 * 10**8  # a second

    source = Counted(random_images(0, 2000), [], chunk_samples=4)
    alone = WorkerLimits(10**11, 0, 1, 1, alone=True)
    card = replace(alone, device_bytes=8 * 10**10)
    samples = source.leaf_bounds()[1]
    work = 2e12 / 5 / samples  # a fifth of a second a leaf
    found = [plan_pass("p", Large(), source, limits, work_per_sample=work) for limits in (alone, card)]
    assert found[0].leaves_per_task == 1
    assert found[1].leaves_per_task == min(50, found[1].n_leaves)
    assert found[1].batch == found[1].block


def test_one_task_takes_a_minute_of_work_to_a_gpu_but_not_all_samples_that_are_in_memory(monkeypatch):
    monkeypatch.setattr("smtdist.engine.plan.UNSAVED_SECONDS", 60.0)
    images = random_images(0, 8000)
    card = WorkerLimits(10**11, 0, 1, 1, alone=True, device_bytes=8 * 10**10)
    stored, held = (
        plan_pass("p", Total(), source, card, work_per_sample=1e9)
        for source in (Counted(images, [], chunk_samples=4), ArraySource(images))
    )
    assert stored.leaves_per_task == stored.n_leaves > 1
    assert held.leaves_per_task == 1 < held.n_leaves


def test_leaves_do_not_depend_on_memory_or_workers():
    source = Counted(random_images(0, 2000), [], chunk_samples=10)
    plans = [
        plan_pass("p", Total(), source, WorkerLimits(limit, 1000, threads, workers))
        for limit, threads, workers in ((int((ALLOWANCE + 18_000) / 0.55), 1, 1), (10**9, 8, 64))
    ]
    assert plans[0].bounds == plans[1].bounds
    assert plans[0].batch < plans[1].batch
    assert plans[1].projected_bytes == 1000 + 2 * 32 + 100 * plans[1].batch + 260 * 36 + ALLOWANCE


@pytest.mark.parametrize(("swept", "batch"), [(0, 4), (2**20, 4), (2**30, 64)])
def test_large_sums_that_every_batch_passes_over_get_larger_batches(swept, batch):
    """A sweep of 2^30 bytes takes 0.27 s by the plan's rate, a sample 0.05 s: a tenth of the time from 54 samples on."""

    class Wide(Total):
        def swept_bytes(self, images):
            return swept

        def batch_bytes(self, batch):
            return batch * 90 * 2**20

    statistic, source = Wide(), Counted(random_images(0, 2000), [], chunk_samples=256)
    roomy = WorkerLimits(10**12, 0, 1, 1, alone=True)
    assert plan_pass("p", statistic, source, roomy, work_per_sample=1e9).batch == batch
    assert plan_pass("p", statistic, source, roomy).batch == 4  # nothing known of the work
    narrow = replace(roomy, limit_bytes=int((10 * 90 * 2**20 + 2 * ALLOWANCE) / 0.55))
    assert 4 <= plan_pass("p", statistic, source, narrow, work_per_sample=1e9).batch <= 10


def test_a_batch_that_needs_less_than_smaller_ones_is_taken():
    """Codes of few images have room for one of which all atoms are active."""

    class Uneven(Total):
        def batch_bytes(self, images):
            return {1: 700, 2: 700, 4: 650}.get(images, 500 + 2 * images) * 2**20

    source = Counted(random_images(0, 2000), [], chunk_samples=256)
    limits = WorkerLimits(int((600 * 2**20 + 2 * ALLOWANCE) / 0.55), 0, 1, 1, alone=True)
    assert plan_pass("p", Uneven(), source, limits).batch == 32


def test_the_refusal_has_the_numbers_and_the_remedy():
    source = Counted(random_images(0, 2000), [], chunk_samples=10)
    with pytest.raises(
        MemoryBudgetError, match=r"The p pass needs .* one batch of 1.* fewer and larger workers"
    ):
        plan_pass("p", Total(), source, WorkerLimits(1000, 100, 1, 1))


def test_a_reset_peak_sees_new_memory_and_forgets_old():
    memory.reset_peak()
    before = memory.peak_bytes()
    # pages of its own: the heap may have as many that are free, and resident already
    block = mmap.mmap(-1, 40 * 1024**2)
    np.frombuffer(block, np.uint8, offset=0)[:] = 1
    assert memory.peak_bytes() - before > 30 * 1024**2
    block.close()
    memory.reset_peak()
    assert memory.peak_bytes() - before < 30 * 1024**2


def test_the_limit_is_the_tightest_of_machine_and_control_groups(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    limit.write_text("123456\n")
    monkeypatch.setattr(memory, "_own_groups", lambda: [str(limit), str(tmp_path / "absent")])
    assert memory.memory_limit() == 123456
    limit.write_text("max\n")
    assert memory.memory_limit() > 123456


def test_arrays_in_memory_are_counted_and_refused_with_the_advice_to_write_a_file():
    source = ArraySource(random_images(0, 2000))
    plan = plan_pass("p", Total(), source, WorkerLimits(10**9, 0, 1, 2))
    assert plan.working_bytes == 2 * 256 * 36 + 256 * 36 + 100 * plan.batch + ALLOWANCE
    with pytest.raises(
        MemoryBudgetError, match=r"18\.0 KiB of samples that travel from memory: write them to a file"
    ):
        plan_pass("p", Total(), source, WorkerLimits(100, 0, 1, 2))


@given(st.integers(1, 70), st.integers(0, 7), st.data())
def test_any_nodes_may_be_made_anew_at_any_level(n_leaves, level, data):
    """Whichever nodes are lost or missing, those that replace them cover the same leaves and are nodes of the tree."""
    for old in tree.nodes_over(0, n_leaves, data.draw(st.integers(0, 7)), n_leaves):
        first, last = old.leaves(n_leaves)
        made = tree.nodes_over(first, last, level, n_leaves)
        ranges = [node.leaves(n_leaves) for node in made]
        assert [leaf for begin, end in ranges for leaf in range(begin, end)] == list(range(first, last))
        assert all(node == tree.promoted(node, n_leaves) for node in made)
        assert all(end - begin <= 1 << level for begin, end in ranges)
