"""What commands say of a model that they have written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smtdist.cli.session import print_json, result_console, say
from smtdist.data import showing
from smtdist.errors import counted
from smtdist.models import merge as merging
from smtdist.models.records import joined
from smtdist.monitor import tables

if TYPE_CHECKING:
    from smtdist.evaluate.first_look import Look
    from smtdist.models.jobs import Job


def _in_rounds(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records of passes with all rounds as one."""
    rounds = [record for record in records if record["name"].startswith("round-")]
    if not rounds:
        return records
    first = records.index(rounds[0])
    rest = [record for record in records if record not in rounds]
    return [*rest[:first], joined(f"rounds ({len(rounds)})", rounds), *rest[first:]]


def say_model(
    model: Any,
    path: Path,
    about: dict[str, Any],
    json: bool,
    job: Job | None = None,
    look: Look | None = None,
) -> None:
    """Say what was written: what its passes took, what it is, what was added and withdrawn, and what to do."""
    provenance = model.provenance
    audit, skipped = provenance.get("audit", []), provenance.get("skipped", [])
    result = {**model.summary(), **about, "model": str(path.absolute())}
    result |= {"n_samples": showing.n_samples(provenance) or result.get("n_samples"), "skipped": skipped}
    advice = [] if job is None else [*filter(None, job.advice(model))]
    result |= {"audit": audit, "n_repeated": merging.repeated(model), "advice": advice}
    if look is not None:
        result["first_look"] = {**look.found.to_dict(), "mirrored": look.mirrored}
    if json:
        print_json(result)
        return
    console = result_console()
    if about.get("passes"):
        console.print(tables.passes_table(_in_rounds(about["passes"])))
    if len(audit) > 1:
        console.print(tables.audit_table(audit))
    _say_repeated(result["n_repeated"])
    parts = {f"{result['model']}, {name}": part for name, part in showing.parts(model).items()}
    for name, part in (parts or {result["model"]: model}).items():
        figures = ", ".join(showing.told(part))
        say(f"{name}: {tables.size(about['bytes'])}, {figures}{tables.skipped_phrase(skipped)}")
    for line in () if job is None else job.lines(model):
        say(line)
    for sentence in advice:
        console.print(sentence, style="yellow", highlight=False)
    _say_look(look)


def _say_look(look: Look | None) -> None:
    """Print the accuracy by a model and by raw pixels, and what to do if these are no worse."""
    if look is None or (raw := look.found.raw_pixels) is None:
        return
    from smtdist.evaluate import metrics, run  # what was judged has loaded them

    found, also = look.found, ", mirrored images among them" if look.mirrored else ""
    title = f"A first look: {counted(found.n_test, 'image')} of the fit, classified by {found.n_train:,} others of it{also}"
    rows = [(run.classifier(found), found.to_dict()), ("the same, raw pixels", raw.to_dict())]
    console = result_console()
    console.print(tables.accuracy_table(title, rows))
    # of the classifier nothing can be chosen here
    if advice := metrics.advice(found.top1, raw.top1, "kernel"):
        console.print(advice, style="yellow", highlight=False)


def _say_repeated(count: int) -> None:
    """Say how many samples were added though they were in the model already; nothing where there are none."""
    if count:
        what, counts = ("1 sample was", "counts") if count == 1 else (f"{count:,} samples were", "count")
        say(f"{what} in the sums already and {counts} twice now; withdraw the same data to undo this.")
