"""What a worker process has done since it started, for those who count it."""

from __future__ import annotations

from typing import Any

from smtdist.engine.events import COUNTED


class Done:
    """What this process has done as a worker since it started: sums over the tasks' running totals, which only grow."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys((*COUNTED, "leaves", "tasks"), 0)
        self.name = ""
        self._task: tuple[Any, dict[str, Any]] = (None, {})

    def note(self, event: dict[str, Any]) -> None:
        """Add what is new in a task's report."""
        if "task" not in event:
            return
        key = (event.get("pass"), event["task"])
        before = self._task[1] if self._task[0] == key else {"tasks": 0}
        for name in self.totals:
            self.totals[name] += max(0, event.get(name, 0) - before.get(name, 0))
        self.totals["tasks"] += self._task[0] != key
        self.name = str(event.get("pass"))
        self._task = (key, event)


DONE = Done()
