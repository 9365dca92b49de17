"""What `transform --plan` and `evaluate --plan` print: what the command would cost, before it codes an image."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from smtdist.cli.session import print_json, result_console
from smtdist.engine.memory import memory_limit, readable
from smtdist.evaluate.plan import EvaluationPlan
from smtdist.models import transform_plan
from smtdist.monitor import tables

Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Print what the command would cost: size, memory, disk, and time, measured on a few images. Write nothing.",
    ),
]
Range = tuple[float, float] | None


def say_transform_plan(
    plan: transform_plan.TransformPlan, disk_bytes: int, json: bool, **about: Any
) -> None:
    """Say what writing representations would cost."""
    if json:
        print_json({**plan.to_dict(), "disk_bytes": disk_bytes, "limit_bytes": memory_limit(), **about})
        return
    rows = [("representation", plan.size_phrase())]
    rows += _memory(plan.driver_bytes(), 0 if plan.alone else plan.worker_bytes, plan.slots)
    rows += [("disk", f"{readable(disk_bytes)}, the file"), ("time", _range(plan.seconds))]
    _say("What the transform will cost", rows)


def say_evaluation_plan(plan: EvaluationPlan, json: bool, **about: Any) -> None:
    """Say what an evaluation would cost."""
    if json:
        print_json({**plan.to_dict(), **about})
        return
    names = ("training images", "test images")
    rows = [(name, one.size_phrase()) for name, one in zip(names, plan.transforms, strict=False)]
    workers = max((one.slots for one in plan.transforms), default=0)
    rows += _memory(plan.driver_bytes, plan.worker_bytes, workers)
    rows += [(f"  {stage.name}", readable(stage.driver_bytes)) for stage in plan.stages]
    disk = f"{readable(plan.disk_bytes)}, a temporary file" if plan.disk_bytes else "nothing"
    rows.append(("disk", disk))
    if plan.transforms:
        rows.append(("time to represent", _range(plan.seconds)))
    rows.append(("time to classify", _range(plan.judging)))
    _say("What the evaluation will cost", rows)


def _memory(driver: int, worker: int, workers: int) -> list[tuple[str, str]]:
    rows = [("memory of this process", f"{readable(driver)} of {readable(memory_limit())}")]
    if worker:
        rows.append(("memory of each worker", f"{readable(worker)}, {workers} of them"))
    return rows


def _range(seconds: Range) -> str:
    if seconds is None:
        return "not known"
    return f"{tables.duration(seconds[0])} to {tables.duration(seconds[1])}"


def _say(title: str, rows: list[tuple[str, str]]) -> None:
    console = result_console()
    console.print(title, style="bold", highlight=False)
    for name, text in rows:
        console.print(f"{name:<24}{text}", highlight=False, soft_wrap=True)
