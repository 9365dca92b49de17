"""The driver of one pass: a ledger of leaves, kept whatever is lost.

For exact statistics every task slot carries one running sum: a task takes a sum that lies idle, adds its
leaves and gives the sum back, so that at most one sum a slot exists, and at the end they meet. For
floating-point statistics tasks are nodes of the fixed tree and only siblings meet.

With a checkpoint folder a sum is stored by a task of its own once so much work is in it that no file has:
`plan.unsaved_seconds`. It stays where it is meanwhile. Where its worker is lost, the ledger goes back to its
file. Workers that have room for one sum only (`in_files`) begin and end every task with a file instead.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from smtdist.data import retry
from smtdist.data.array import piece_of, without_data
from smtdist.engine import plan as plans
from smtdist.engine import worker
from smtdist.engine.checkpoint import LostPartial
from smtdist.engine.events import EventStream
from smtdist.engine.executor import Attendance, Executor, Handle, TaskLost
from smtdist.engine.partial import Cover, Partial, StoredPartial, join, missing
from smtdist.engine.plan import PassPlan
from smtdist.engine.tree import Node, nodes_over, parent, promoted, root, sibling
from smtdist.errors import CheckpointError, InterruptedRun, SmtdistError

ATTEMPTS = 20
POLL_SECONDS = 0.5
MOST_INSIDE = 16
"""Running tasks that are looked into at once; where more run, whole sums are enough to see by."""
STOP_SECONDS = 15.0
"""How long a run that is asked to stop waits for its tasks, so that what they add is stored too."""


@dataclass
class _Sum:
    """A partial sum that nobody works on: where it is and what it covers."""

    handle: Handle  # a task's result, or a StoredPartial itself
    covers: Cover
    files: tuple[StoredPartial, ...] = ()  # what of it is in the checkpoint folder
    unsaved: float = 0.0  # seconds of work in it that none of them has


class Reduction:
    """The driver's side of one pass: who adds which leaves to which sum."""

    def __init__(
        self,
        executor: Executor,
        job: worker.Job,
        plan: PassPlan,
        heed_stop: Callable[[], None],
        note: Callable[[str], None],
        events: EventStream | None = None,
    ) -> None:
        self.executor, self.heed_stop, self.note = executor, heed_stop, note
        self.plan, self.n_leaves, self.clock = plan, plan.n_leaves, time.monotonic
        self.storing = job.folder is not None and not job.in_files
        self.write_seconds = plan.state_bytes / plans.DISK_BYTES_PER_SECOND
        self.leaf_seconds = 0.0  # of a task's slot, as the last one took; 0: not known yet
        self.finishing = False  # a stop waits: a task of this process adds to a sum that is nowhere else, or all are stored
        self.source = job.source
        self.job = replace(job, source=without_data(job.source), token=uuid.uuid4().hex)
        self.shared = self.executor.share(self.job)
        self.running: dict[Handle, Callable[[Handle | None], None]] = {}
        self.shared_of: dict[Handle, Handle] = {}
        self.failures = 0
        self.lost: TaskLost | None = None
        self.serial = itertools.count(1)  # of tasks
        self.attendance = Attendance(executor, note)
        self.events = events
        self.current: tuple[_Sum, ...] = ()  # disjoint sums, those included that a running task starts from
        self.growing: dict[
            str, Cover
        ] = {}  # tasks that add leaves to a sum, and what it will cover in the end
        self.peak_bytes = 0  # of workers that stored sums
        self.last: _Sum | None = None  # the sum over all leaves
        self.spent = 0.0  # seconds that looks have taken where sums lie; waiting for a batch to end takes nobody's time

    def run(self, resumed: list[StoredPartial]) -> Partial:
        """Return the sum over all leaves, starting from what an earlier run has left on disk."""
        try:
            while True:
                sums = [_Sum(stored, stored.covers, (stored,)) for stored in resumed]
                self._tell(tuple(sums))
                try:
                    last = self._exact(sums) if self.job.statistic.exact else self._fixed_tree(sums)
                    if isinstance(last.handle, StoredPartial):
                        assert self.job.folder is not None
                        partial = self.job.folder.load(last.handle)
                    else:
                        partial = self.executor.result(last.handle)
                    assert not missing(partial.covers, self.n_leaves), "leaves were left out"
                    partial.counters.peak_bytes = max(partial.counters.peak_bytes, self.peak_bytes)
                    self.last = last
                    return partial
                except TaskLost as lost:
                    self._again(lost)
                    self._settle()
                # what a lost task has left on disk, only the disk knows; without one, begin again
                resumed = (
                    self.job.folder.resume(self.job.statistic.zero(), self.note)
                    if self.job.folder is not None
                    else []
                )
        except InterruptedRun as stop:
            if not stop.at_once:
                self._store_all()
            raise
        finally:
            self.executor.release([*self.running, self.shared])

    def _exact(self, idle: list[_Sum]) -> _Sum:
        covered: Cover = tuple(sorted(piece for one in idle for piece in one.covers))
        gaps = deque(missing(covered, self.n_leaves))
        self.growing = {}

        def add(size: int, start: _Sum | None) -> None:
            first, end = gaps.popleft()
            if first + size < end:
                gaps.appendleft((first + size, end))
            covers: Cover = ((first, min(first + size, end)),)
            name, begun = f"{self.job.name}/{next(self.serial)}", self.clock()
            whole = join(start.covers if start else (), covers)
            unsaved = start.unsaved if start else 0.0

            def ended(handle: Handle | None) -> None:
                self.growing = {one: covers for one, covers in self.growing.items() if one != name}
                if handle is None:
                    gaps.extendleft(covers)
                    idle.extend([start] if start is not None else [])
                    return
                seconds, made = self.clock() - begun, whole
                if self.job.stop is not None:  # this process may have ended the task early
                    made = self.executor.result(handle).covers
                    gaps.extendleft(missing(join(missing(whole, self.n_leaves), made), self.n_leaves))
                added = retry.count(made) - (retry.count(start.covers) if start else 0)
                self.leaf_seconds = seconds / max(1, added)
                idle.append(self._kept(handle, made, unsaved + seconds, start))

            data = self._data(*covers[0])
            self.growing = {**self.growing, name: whole}  # now: an executor may work at once
            given: Any = start
            if self.job.alone and start is not None and not isinstance(start.handle, StoredPartial):
                # no task is lost here, so that no other will need the sum: it is this task's own
                given = self.executor.result(start.handle)
                self.executor.release([start.handle])
                start.unsaved = 0.0  # nobody stores what is not there
            self.finishing = self.job.stop is not None
            self._start(ended, worker.accumulate, name, covers, given, data, near=start)
            self.finishing = False

        def meet(left: _Sum, right: _Sum) -> None:
            def ended(handle: Handle | None) -> None:
                if handle is None:
                    idle.extend([left, right])
                else:
                    unsaved = left.unsaved + right.unsaved
                    idle.append(self._kept(handle, join(left.covers, right.covers), unsaved, left, right))

            given: Any = left
            if self.job.alone and not isinstance(left.handle, StoredPartial):
                given = self.executor.result(left.handle)
                self.executor.release([left.handle])
            self._start(ended, worker.combine, given, right, near=left)

        while gaps or self.running or len(idle) > 1 or self.lost is not None:
            if self.lost is not None:
                self._next()  # with a checkpoint: the other tasks end, then the folder is read anew
                continue
            for gone in self._unsound(idle):
                idle.remove(gone)
                idle.extend(_Sum(file, file.covers, (file,)) for file in gone.files)
                gaps.extend(self._unstored(gone))
            slots = max(1, self.executor.slots())
            for one in self._due(idle, slots):
                idle.remove(one)
                self._store(one, idle.append)
            while gaps and len(self.running) < slots:
                left = retry.count(gaps)
                size = self.plan.task_leaves(left, slots)
                seconds = plans.unsaved_seconds(self.write_seconds)
                # as planned, but none that would hold up storing its sum for long
                if self.job.folder is not None and self.leaf_seconds and seconds:
                    if self.job.in_files:  # which are read and written once a task
                        size = max(1, min(int(seconds / self.leaf_seconds), max(size, left // slots)))
                    else:
                        size = max(1, min(int(plans.TASK_SHARE * seconds / self.leaf_seconds), size))
                add(size, idle.pop() if idle else None)
            while not gaps and len(idle) > 1 and len(self.running) < slots:
                meet(idle.pop(), idle.pop(0))  # what is in memory first: a process alone adds to that
            self._next()
        return idle[0]

    def _fixed_tree(self, resumed: list[_Sum]) -> _Sum:
        have: dict[Node, _Sum] = {}
        for one in resumed:
            have[_node_of(one.covers, self.n_leaves)] = one
        covered = tuple(sorted(piece for one in resumed for piece in one.covers))
        gaps = deque(missing(covered, self.n_leaves))

        def take(slots: int) -> Node:
            """Return the next node to make; which ones are tasks decides what travels, never what meets what."""
            start, stop = gaps.popleft()
            level = self.plan.task_level(stop - start + retry.count(gaps), slots)
            node = nodes_over(start, min(stop, start + (1 << level)), level, self.n_leaves)[0]
            end = node.leaves(self.n_leaves)[1]
            if end < stop:
                gaps.appendleft((end, stop))
            return node

        def grow(node: Node) -> None:
            begun = self.clock()

            def ended(handle: Handle | None) -> None:
                if handle is None:
                    gaps.appendleft(node.leaves(self.n_leaves))
                else:
                    have[node] = self._kept(handle, (node.leaves(self.n_leaves),), self.clock() - begun)

            name, data = f"{self.job.name}/{next(self.serial)}", self._data(*node.leaves(self.n_leaves))
            self._start(ended, worker.subtree, name, node, data)

        def meet(left: Node) -> None:
            pair = have.pop(left), have.pop(sibling(left))

            def ended(handle: Handle | None) -> None:
                if handle is None:
                    have[left], have[sibling(left)] = pair
                else:
                    covers = join(pair[0].covers, pair[1].covers)
                    unsaved = pair[0].unsaved + pair[1].unsaved
                    whole = promoted(parent(left), self.n_leaves)
                    have[whole] = self._kept(handle, covers, unsaved, *pair)

            self._start(ended, worker.combine, *pair, near=pair[0])

        top = root(self.n_leaves)
        while top not in have or self.lost is not None:
            if self.lost is not None:
                self._next()  # with a checkpoint: the other tasks end, then the folder is read anew
                continue
            for node in [node for node, one in have.items() if self._unsound([one])]:
                gone = have.pop(node)
                have |= {
                    _node_of(file.covers, self.n_leaves): _Sum(file, file.covers, (file,))
                    for file in gone.files
                }
                gaps.extend(self._unstored(gone))
            for node in [node for node in sorted(have) if node.index % 2 == 0]:
                if node in have and sibling(node) in have:
                    meet(node)
            slots = max(1, self.executor.slots())
            for one in self._due(have.values(), slots):
                node = _node_of(one.covers, self.n_leaves)
                self._store(have.pop(node), functools.partial(have.__setitem__, node))
            while gaps and len(self.running) < slots:
                grow(take(slots))
            self._next()
        return have[top]

    def _due(self, sums: Iterable[_Sum], slots: int) -> list[_Sum]:
        """Return the sums that are to be stored now, as many as there are slots for."""
        if not self.storing:
            return []
        most = plans.unsaved_seconds(self.write_seconds)
        due = [one for one in sums if one.unsaved and one.unsaved >= most]
        return due[: max(0, slots - len(self.running))]

    def _store(self, one: _Sum, back: Callable[[_Sum], None]) -> None:
        """Start to store a sum, which lies idle again afterwards."""

        def ended(handle: Handle | None) -> None:
            if handle is not None:
                try:
                    stored = self.executor.result(handle)
                    one.files, one.unsaved = (stored,), 0.0
                    self._noted(stored)
                except TaskLost:
                    pass  # with its worker; the file may be there, and is found again
                self.executor.release([handle])
            back(one)

        self._start(ended, worker.store, one, one.files, near=one)

    def _noted(self, stored: StoredPartial) -> None:
        self.write_seconds = stored.seconds
        self.peak_bytes = max(self.peak_bytes, stored.peak_bytes)

    def _store_all(self) -> None:
        """Store what no file has, once the tasks have ended that add to it: the run is about to stop."""
        if not self.storing:
            return
        self.finishing, until = True, self.clock() + STOP_SECONDS
        with contextlib.suppress(TaskLost):
            while self.running and self.clock() < until:
                self.attendance.check()
                self._take(self.executor.wait(list(self.running), POLL_SECONDS))
            waiting = [one for one in self.current if one.unsaved]
            left = len(waiting)

            def stored(one: _Sum) -> None:
                nonlocal left
                left -= 1

            for one in waiting:
                self._store(one, stored)
            while left:
                self.attendance.check()
                self._take(self.executor.wait(list(self.running), POLL_SECONDS))

    def worth_storing(self) -> bool:
        """Tell whether the finished sum is to be stored: not where that would take more than a tenth of the work it saves."""
        assert self.last is not None, "the pass has ended"
        small = self.plan.state_bytes <= plans.SMALL_STATE
        return (
            small
            or self.stored() is not None
            or self.last.unsaved >= plans.UNSAVED_WRITES * self.write_seconds
        )

    def stored(self) -> StoredPartial | None:
        """Return the file that has all of the finished sum, if there is one."""
        assert self.last is not None, "the pass has ended"
        whole = [file for file in self.last.files if file.covers == self.last.covers]
        return whole[0] if whole else None

    def _unstored(self, gone: _Sum) -> Cover:
        """Return the leaves of a sum that none of its files covers."""
        kept: Cover = ()
        for file in gone.files:
            kept = join(kept, file.covers)
        return missing(join(missing(gone.covers, self.n_leaves), kept), self.n_leaves)

    def _data(self, first: int, last: int) -> Handle | None:
        """Send along the samples of leaves where they are in this process's memory only."""
        piece = piece_of(self.source, self.job.bounds[first], self.job.bounds[last])
        return None if piece is None else self.executor.share(piece, everywhere=False)

    def _start(
        self,
        ended: Callable[[Handle | None], None],
        function: Callable[..., Any],
        *arguments: Any,
        near: _Sum | None = None,
    ) -> None:
        plain = [argument.handle if isinstance(argument, _Sum) else argument for argument in arguments]
        beside = near.handle if near is not None and not isinstance(near.handle, StoredPartial) else None
        try:
            handle = self.executor.submit(function, self.shared, *plain, near=beside)
        except TaskLost as lost:  # with a sum that it was to start from
            self._again(lost)
            ended(None)
        else:
            self.running[handle], self.shared_of[handle] = ended, self.shared

    def _unsound(self, sums: list[_Sum]) -> list[_Sum]:
        """Return the sums that nobody holds any more; their leaves must be added anew."""
        gone = []
        for one in sums:
            try:
                if not isinstance(one.handle, StoredPartial):
                    self.executor.check(one.handle)
            except TaskLost:
                self.executor.release([one.handle])
                gone.append(one)
                self._tell(tuple(other for other in self.current if other is not one))
        return gone

    def _next(self) -> None:
        """Wait for one task and hand it on; a lost one goes back where it came from.

        Raises the loss with a checkpoint, where the last of the other tasks has ended.
        """
        if self.lost is not None and not self.running:
            lost, self.lost = self.lost, None
            raise lost
        self.heed_stop()
        self.attendance.check()
        self._take(self.executor.wait(list(self.running), POLL_SECONDS))

    def _take(self, handle: Handle | None) -> None:
        if handle is None:
            return
        ended, shared = self.running.pop(handle), self.shared_of.pop(handle)
        try:
            self.executor.check(handle)
        except TaskLost as lost:
            self.executor.release([handle])
            if self.job.in_files or isinstance(lost, LostPartial):
                self.lost = lost
            else:
                # where the shared value is gone, every task that was to use it is: one loss, however many workers
                if shared is self.shared:
                    self._again(lost)
                ended(None)
        else:
            ended(handle)

    def _settle(self) -> None:
        """Before the folder is read anew: let the tasks end that still change it, whatever becomes of them."""
        if not self.job.in_files:
            self.executor.release(list(self.running))
            self.running.clear()
        while self.running:
            self.heed_stop()
            handle = self.executor.wait(list(self.running), POLL_SECONDS)
            if handle is None:
                self.attendance.check()
                continue
            del self.running[handle]
            self.executor.release([handle])

    def _again(self, lost: TaskLost) -> None:
        if self.events is not None:
            self.events.emit("lost", **{"pass": self.job.name}, text=str(lost))
        self.failures = count_failure(self.failures, lost)
        self.shared = self.executor.share(self.job)

    def _kept(self, handle: Handle, covers: Cover, unsaved: float, *included: _Sum | None) -> _Sum:
        """Take over a task's result and let go of the sums that it includes."""
        before = [one for one in included if one is not None]
        self.executor.release([one.handle for one in before if not isinstance(one.handle, StoredPartial)])
        if self.job.in_files:
            stored = self.executor.result(handle)
            self.executor.release([handle])
            self._noted(stored)
            kept = _Sum(stored, covers, (stored,))
        else:
            kept = _Sum(handle, covers, tuple(file for one in before for file in one.files), unsaved)
        self._tell((*(one for one in self.current if one not in included), kept))
        return kept

    def _tell(self, current: tuple[_Sum, ...]) -> None:
        """Note which sums there are, for those who watch."""
        self.current = current
        if self.events is not None:
            covers = [one.covers for one in current]
            self.events.emit("sums", **{"pass": self.job.name}, covers=covers, running=len(self.running))

    def peek(self, function: Callable[..., Any], *arguments: Any) -> list[tuple[Cover, Any]]:
        """Call function(state, *arguments) on each sum there is, where it lies; for views, from any thread.

        Tasks that add to a sum are asked between two batches, so that there is something to see before the
        first of them has ended. Other sums are not changed by anybody; what is gone meanwhile is left out,
        and no leaf is seen twice.
        """
        growing = list(self.growing.items())[:MOST_INSIDE]
        found, taken = [], bytearray(self.n_leaves)
        # at once: a task that is asked late may have ended, and its result have been taken by another
        with ThreadPoolExecutor(max(1, len(growing)), "smtdist-look") as pool:
            keys = ((self.job.token, name) for name, _ in growing)
            sights = list(pool.map(lambda key: self.executor.peek_inside(key, function, *arguments), keys))
        for (_, whole), sight in zip(growing, sights, strict=True):
            if sight is not None:
                self.spent += sight.seconds
                found.append((sight.covers, sight.value))
                for start, stop in whole:
                    taken[start:stop] = b"\1" * (stop - start)
        for one in self.current:
            if any(1 in taken[start:stop] for start, stop in one.covers):
                continue  # a task has seen to it
            if isinstance(one.handle, StoredPartial):
                if self.job.alone:
                    continue  # this process has no room for it beside the one that a task adds to
                with contextlib.suppress(TaskLost, CheckpointError):
                    assert self.job.folder is not None
                    state = self.job.folder.load(one.handle).state
                    found.append((one.covers, function(state, *arguments)))
            else:
                seen = self.executor.peek(one.handle, _on_state, function, *arguments)
                if seen is not None:
                    self.spent += seen[1]
                    found.append((one.covers, seen[0]))
        return found


def _on_state(partial: Partial, function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return what a function says of a sum, and the seconds it took."""
    started = time.perf_counter()
    return function(partial.state, *arguments), time.perf_counter() - started


def _node_of(covers: Cover, n_leaves: int) -> Node:
    (start, stop), *rest = covers
    if rest:
        raise SmtdistError(
            "A checkpoint of floating-point sums does not fit the fixed tree; delete it and start again."
        )
    level = (stop - start - 1).bit_length()
    return promoted(Node(level, start >> level), n_leaves)


def count_failure(failures: int, lost: TaskLost) -> int:
    """Count a loss; too many end the run with a sentence."""
    if failures + 1 >= ATTEMPTS:
        raise SmtdistError(
            f"Tasks were lost {ATTEMPTS} times, as when workers die ({lost}); look at the workers' logs, then resume."
        ) from lost
    return failures + 1
