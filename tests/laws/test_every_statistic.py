"""What must hold for every statistic: pieces add up, nothing foreign is changed, memory is as stated, it travels."""

import ast
import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.every_statistic import CASES, EXACT, FLOATS, SAMPLES, arrays_of
from toys import assert_same_bits, sum_of

import smtdist
from smtdist.data.array import ArraySamples
from smtdist.engine import worker
from smtdist.engine.tree import Node
from smtdist.kernels.threads import set_threads, threads
from smtdist.statistics.base import check_state
from smtdist.statistics.origin import Origin

PROTOCOL = {"zero", "update", "merge", "state_bytes", "batch_bytes", "miniature"}
MANY = 100
"""Samples of which memory is measured, and which fill what keeps few of many."""
FINISHED = [name for name, case in CASES.items() if case.finish]
ADDITIVE = [name for name, case in CASES.items() if case.additive]
COMPILED = (
    *("moment", "candidates", "centroids", "nested", "float-codes-sparse", "l1-gradient", "l1-closed"),
    *("spike-slab-gradient", "spike-slab-closed", "contrast", "projection-annealed", "dictionary"),
    *("vocabulary", "words"),
)
"""One case for each of the ways that compiled code is used in."""
OBJECTS = 2**14
"""Bytes of Python's objects, and of NumPy's buffers, beside the arrays."""
ROUNDING = 1e-12
"""Share of the largest entry by which sums of the same numbers in another order may differ."""


def classes():
    """Return (module, bases, methods) of every class of the package, by name."""
    found = {}
    root = Path(smtdist.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("smtdist", *path.relative_to(root).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).split(".")[-1].split("[")[0] for base in node.bases}
                names = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
                found.setdefault(node.name, []).append((module, bases, names))
    return found


def statistics_of_the_package():
    """Return (module, name) of every class that has all that a statistic must have, itself or from its bases."""
    every = classes()

    def inherited(bases, seen=frozenset()):
        """Return the methods of all classes of these names and of their bases."""
        above = [(one, seen | {base}) for base in bases - seen for one in every.get(base, ())]
        return set().union(*(names | inherited(more, met) for (_, more, names), met in above))

    return {
        (module, name)
        for name, same in every.items()
        for module, bases, names in same
        if "ABC" not in bases and names | inherited(bases) >= PROTOCOL
    }


def test_no_statistic_is_forgotten():
    """Every class is that of a case, or of the warm-up copy of one."""
    types = {type(one) for case in CASES.values() for one in (case.statistic, case.statistic.miniature())}
    assert statistics_of_the_package() == {(one.__module__, one.__name__) for one in types}


@cache
def bulk_of(name):
    """Return the bulky statistic of a case and its samples, or the small one and many samples."""
    case = CASES[name]
    return case.bulk() if case.bulk else (case.statistic, case.samples(4, MANY))


def copied(state):
    return {name: value.copy() for name, value in state.items()}


def assert_close(left, right, tolerance):
    """What is no float is equal; floats differ by at most a share of the largest entry of their array."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == right[name].dtype
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(value, right[name], err_msg=name)
        else:
            largest = np.abs(right[name]).max(initial=0)
            np.testing.assert_allclose(value, right[name], rtol=0, atol=tolerance * largest, err_msg=name)


def assert_same_sum(case, left, right):
    """Compare sums of batches that were cut in two ways."""
    if case.statistic.exact:
        assert_same_bits(left, right)
    else:
        assert_close(left, right, case.tolerance)


def singles(case, seed=4):
    """Return the sums of single samples."""
    samples = case.samples(seed, SAMPLES)
    return [sum_of(case.statistic, samples[i : i + 1], i) for i in range(SAMPLES)]


def along_the_tree(statistic, states):
    """Merge states as the leaves of the engine's fixed tree, which are copied."""
    states = [copied(state) for state in states]
    while len(states) > 1:
        pairs = itertools.zip_longest(states[::2], states[1::2])
        states = [left if right is None else statistic.merge(left, right) for left, right in pairs]
    return states[0]


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=6)
@given(st.data())
def test_a_stream_may_be_cut_anywhere(name, data):
    """Batches and partial sums of any size, merged in any order: the sum over all samples, exact ones bit for bit."""
    case, statistic = CASES[name], CASES[name].statistic
    samples = case.samples(data.draw(st.integers(0, 2**16)), SAMPLES)
    whole = statistic.zero()
    positions = statistic.update(whole, samples, 0)
    edges = [0, *sorted(data.draw(st.sets(st.integers(1, SAMPLES - 1), min_size=1, max_size=3))), SAMPLES]
    parts = []
    for start, stop in itertools.pairwise(edges):
        middle = data.draw(st.integers(start, stop))
        part = statistic.zero()
        for begin, end in ((start, middle), (middle, stop)):
            if begin < end:
                positions -= statistic.update(part, samples[begin:end], begin)
        parts.append(part)
    assert positions == 0, "each is counted once"
    while len(parts) > 1:
        left, right, *rest = data.draw(st.permutations(parts)) if statistic.exact else parts
        before = copied(right)
        parts = [statistic.merge(left, right), *rest]
        assert_same_bits(right, before)
    assert_same_sum(case, parts[0], whole)


@pytest.mark.parametrize("name", CASES)
def test_zero_is_neutral_and_new_each_time(name):
    case, statistic = CASES[name], CASES[name].statistic
    nothing = copied(statistic.zero())
    whole = sum_of(statistic, case.samples(4, 3))
    assert_same_bits(statistic.merge(statistic.zero(), copied(whole)), whole)
    assert_same_bits(statistic.merge(copied(whole), statistic.zero()), whole)
    assert_same_bits(statistic.zero(), nothing)


@pytest.mark.parametrize("name", CASES)
def test_merging_is_commutative_and_associative(name):
    """The sum of two floats is the same in both orders, so only the grouping of three may round otherwise."""
    statistic = CASES[name].statistic
    a, b, c, *_ = singles(CASES[name])

    def merged(left, right):
        return statistic.merge(copied(left), right)

    assert_same_bits(merged(a, b), merged(b, a))
    left, right = merged(merged(a, b), c), merged(a, merged(b, c))
    if statistic.exact:
        assert_same_bits(left, right)
    assert_close(left, right, ROUNDING)


@pytest.mark.parametrize("name", FLOATS)
def test_the_same_tree_gives_the_same_bits(name):
    first, second = (along_the_tree(CASES[name].statistic, singles(CASES[name])) for _ in range(2))
    assert_same_bits(first, second)


@pytest.mark.parametrize("name", CASES)
def test_threads_change_no_bit(name):
    (statistic, samples), before, found = bulk_of(name), threads(), []
    try:
        for number in (1, 3):
            set_threads(number)
            found.append(sum_of(statistic, samples))
    finally:
        set_threads(before)
    assert_same_bits(*found)


@pytest.mark.parametrize("name", CASES)
def test_a_merged_sum_shares_nothing_with_what_was_added(name):
    """The right side belongs to others still, also after more was added to the sum of both."""
    case, statistic = CASES[name], CASES[name].statistic
    samples = case.samples(4, SAMPLES)
    right = sum_of(statistic, samples[2:])
    for left in (statistic.zero(), sum_of(statistic, samples[:2])):
        before = copied(right)
        merged = statistic.merge(left, right)
        assert_same_bits(right, before)
        sum_of(statistic, samples[:2], 0, merged)
        assert_same_bits(right, before)
        assert not any(np.shares_memory(merged[one], right[one]) for one in right)


@pytest.mark.parametrize("name", CASES)
def test_workers_change_no_sum_that_they_are_given(name):
    """A start and both sides of a merge may be another task's too: they are copied, and give what one task gives."""
    case, statistic = CASES[name], CASES[name].statistic
    samples = case.samples(4, 4)
    job = worker.Job(statistic, ArraySamples(samples), "law", (0, 2, 4), 2, 2, threads(), False, None)
    how = {"report": lambda _: None, "permit": contextlib.nullcontext}

    def leaf(at, start=None):
        if statistic.exact:
            return worker.accumulate(job, "leaf", ((at, at + 1),), start, None, **how)
        return worker.subtree(job, "leaf", Node(0, at), None, **how)

    left, right = leaf(0), leaf(1)
    before = copied(left.state), copied(right.state)
    found = worker.combine(job, left, right, **how)
    alone = leaf(1, left) if statistic.exact else worker.subtree(job, "root", Node(1, 0), None, **how)
    assert_same_bits(left.state, before[0])
    assert_same_bits(right.state, before[1])
    assert_same_bits(found.state, alone.state)


@pytest.mark.parametrize("name", CASES)
def test_a_state_is_what_its_statistic_states(name):
    case, statistic = CASES[name], CASES[name].statistic
    for count in (1, SAMPLES, MANY):
        state = sum_of(statistic, case.samples(4, count))
        assert check_state(state, statistic.zero())
        assert sum(value.nbytes for value in state.values()) <= statistic.state_bytes() + case.counters
        merged = statistic.merge(state, sum_of(statistic, case.samples(5, count), count))
        assert sum(value.nbytes for value in merged.values()) <= statistic.state_bytes() + case.counters
    # what is not empty at first has its shape already, but for where words begin: one number more than there are words
    fixed = {key: value.shape for key, value in statistic.zero().items() if value.size and key != "offsets"}
    assert {key: merged[key].shape for key in fixed} == fixed


@pytest.mark.parametrize("name", EXACT)
def test_exact_sums_are_of_whole_numbers(name):
    drawn = CASES[name].drawn
    for key, value in CASES[name].statistic.zero().items():
        assert value.dtype.kind in "iu" or key in drawn, key


@pytest.mark.parametrize("name", CASES)
def test_the_sum_is_not_trivial(name):
    """A law about zeros would prove nothing."""
    state = sum_of(CASES[name].statistic, CASES[name].samples(4, SAMPLES))
    # a wide number is two arrays, and a small one, or a round one, is all in one of them
    told = {key.removesuffix("_high").removesuffix("_low") for key, value in state.items() if np.any(value)}
    assert {key.removesuffix("_high").removesuffix("_low") for key in state if "deficit" not in key} <= told


@pytest.mark.parametrize("name", CASES)
def test_a_statistic_travels(name):
    """It is pickled for workers, before it was used and after: there it is the same sum."""
    case = CASES[name]
    samples = case.samples(4, SAMPLES)
    before = pickle.loads(pickle.dumps(case.statistic))
    whole = sum_of(case.statistic, samples)
    for sent in (before, pickle.loads(pickle.dumps(case.statistic))):
        assert_same_bits(sum_of(sent, samples), whole)
        assert (sent.exact, sent.state_bytes()) == (case.statistic.exact, case.statistic.state_bytes())


@pytest.mark.parametrize("name", CASES)
def test_its_warm_up_copy_runs_and_has_the_same_state(name):
    case, statistic = CASES[name], CASES[name].statistic
    twin = statistic.miniature()
    assert (twin.exact, twin.on_device) == (statistic.exact, statistic.on_device)
    assert check_state(twin.zero(), statistic.zero())
    state = sum_of(twin, case.samples(4, 1))
    assert check_state(state, statistic.zero())
    samples = case.samples(4, 1)
    before = threads()
    try:
        assert worker.probe(statistic, samples.shape, samples.dtype.name, before)[0] > 0
    finally:
        set_threads(before)


def test_nothing_is_compiled_after_the_warm_up():
    """Nor loaded from the cache: a pass plans with the memory that is left then. CodeSums: tests/engine/test_rehearsal.py."""
    program = Path(__file__).with_name("after_the_warm_up.py")
    ended = subprocess.run(
        [sys.executable, program, *COMPILED],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def peak_of(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("thread_count")
@pytest.mark.parametrize("name", CASES)
def test_a_batch_takes_what_is_stated(name):
    """On a worker that has warmed up, and has made nothing yet of what is kept between batches."""
    statistic, samples = bulk_of(name)
    sum_of(statistic.miniature(), samples[:1])
    sent = pickle.loads(pickle.dumps(statistic))
    state = sent.zero()
    peak = peak_of(lambda: sent.update(state, samples, 0))
    assert peak <= sent.batch_bytes(len(samples)) + OBJECTS


@pytest.mark.parametrize("name", CASES)
def test_a_merge_takes_what_is_stated(name):
    """That is `merge_bytes`, or the workspace of a batch: what a pass plans, with 16 MiB to spare."""
    statistic, samples = bulk_of(name)
    left, right = (sum_of(statistic, samples, at * len(samples)) for at in range(2))
    statistic.merge(copied(left), right)
    peak = peak_of(lambda: statistic.merge(left, right))
    asked = statistic.merge_bytes()
    stated = statistic.batch_bytes(1) if asked is None else asked
    assert peak <= stated + OBJECTS


@pytest.mark.parametrize("name", FINISHED)
@settings(deadline=None, max_examples=3)
@given(st.data())
def test_what_is_finished_does_not_follow_the_merging(name, data):
    case, statistic = CASES[name], CASES[name].statistic
    states = singles(case)
    wanted = arrays_of(case.finish(along_the_tree(statistic, states)))
    if statistic.exact:
        states = [states[at] for at in data.draw(st.permutations(range(SAMPLES)))]
    while len(states) > 1:
        at = data.draw(st.integers(0, len(states) - 2))
        states[at : at + 2] = [statistic.merge(copied(states[at]), states[at + 1])]
    found = arrays_of(case.finish(states[0]))
    if statistic.exact:
        assert_same_bits(found, wanted)
    assert_close(found, wanted, 1e-9)


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("cut", [1, 4])
def test_what_is_added_can_be_withdrawn(name, cut):
    """a + b is the sum over all, and a + b - b is a, in the form in which it is stored."""
    case = CASES[name]
    samples = case.samples(4, SAMPLES)

    def finished(start, stop):
        state = sum_of(case.statistic, samples[start:stop], start)
        origin = Origin("law", np.arange(start, stop, dtype=np.uint64), np.zeros(0, np.uint64), ())
        return replace(case.finish(state), origin=origin)

    def assert_equal(left, right):
        left, right = arrays_of(left), arrays_of(right)
        assert left.keys() == right.keys()
        for one in left:
            np.testing.assert_array_equal(left[one], right[one], err_msg=one)

    first, rest, whole = finished(0, cut), finished(cut, SAMPLES), finished(0, SAMPLES)
    assert_equal(first + rest, whole)
    assert_equal(whole - rest, first)
    assert_equal(rest + first - rest, first)
