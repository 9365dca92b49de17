"""How an iteration ended, in the same words for all: steps, whether it converged, what it reached, and the sentence if not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smtdist import errors

SETTLED: Final = 0.01
"""Relative change of the last tenth of rounds from the tenth before, up to which rounds count as converged."""
FEWEST: Final = 10
"""Rounds in which a trend can be told from noise. With 5, ten rounds that had 14 % to fall were taken for converged in 43 of
100 draws under a noise of 2 %, and in 96 under one of 10 %; with 10 in 19 and 6."""
CHANCE: Final = 0.05
"""Rounds whose order is at least as likely by chance show no trend (Kendall's test)."""
LEVEL: Final = 0.25
"""Relative difference of the halves of late rounds above which their noise is too great to say that they have no trend."""


@dataclass(frozen=True)
class Convergence:
    """How a minimisation ended.

    Attributes
    ----------
    converged : whether the gradient fell to the tolerance, or the loss stopped falling to rounding; of rounds, whether
        the last tenth of them changed the mean loss by no more than a hundredth (of fewer than twenty, each of the last two
        rounds), or the last half shows no trend: losses of mini-batches vary for ever.
    n_iter : steps taken, or rounds.
    loss : value at the end; of rounds the mean of the last tenth.
    gradient_norm : largest entry of the gradient at the end, over that of the start (of an autoencoder over the objective
        of a bottleneck that is one point); of rounds the relative change of the mean loss over the last tenth.
    """

    converged: bool
    n_iter: int
    loss: float
    gradient_norm: float


def of_rounds(losses: Sequence[float]) -> Convergence | None:
    """Return how rounds ended, by the loss of each; None without rounds.

    >>> of_rounds([5.0, 3.0, 2.0, 1.0]).converged, of_rounds([1.0] * 20).converged
    (False, True)
    >>> of_rounds([7.0, 6.5, 5.0, 7.0, 6.0, 5.0, 6.5, 5.0, 7.0, 5.5]).converged  # up and down
    True
    """
    if not losses:
        return None
    tenth = max(1, len(losses) // 10)
    last = float(np.mean(losses[-tenth:]))
    before = float(np.mean(losses[-2 * tenth : -tenth] or losses[:1]))
    change = _apart(last, before)
    # one small step may be chance
    small = change <= SETTLED and (tenth > 1 or len(losses) < 3 or _apart(*losses[-3:-1]) <= SETTLED)
    settled = len(losses) > 1 and (small or _without_trend(losses))
    return Convergence(settled, len(losses), last, change)


def _apart(one: float, other: float) -> float:
    """Return the difference of two losses over the larger of them."""
    return abs(one - other) / max(abs(one), abs(other), 1e-300)


def late_rounds(count: int) -> int:
    """Return how many rounds at the end are looked at for a trend."""
    return max(FEWEST, count // 2)


def _without_trend(losses: Sequence[float]) -> bool:
    """Tell whether the last half of losses rises as often as it falls, as far as that many can show."""
    late = losses[-late_rounds(len(losses)) :]
    half = len(late) // 2
    if len(late) < FEWEST or _apart(float(np.mean(late[:half])), float(np.mean(late[half:]))) > LEVEL:
        return False
    from scipy.stats import kendalltau  # a fifth of a second that other uses need not wait

    return bool(kendalltau(range(len(late)), late).pvalue > CHANCE)


def facts_of(found: Convergence | None) -> dict[str, Any]:
    """Return what a summary says of rounds, as plain JSON."""
    if found is None:
        return {}
    return {"n_iter": found.n_iter, "converged": found.converged, "change": found.gradient_norm}


def told(facts: Mapping[str, Any]) -> str:
    """Return in words what `facts_of` says; nothing where there were no rounds.

    >>> told({"n_iter": 20, "converged": False, "change": 0.031})
    'not converged in 20 rounds, the last tenth of which changed the objective by 3.1%'
    >>> told({"n_iter": 20, "converged": True, "change": 0.26})
    'converged in 20 rounds, the last 10 of which show no trend'
    """
    if "n_iter" not in facts:
        return ""
    ended = "converged" if facts["converged"] else "not converged"
    changed = f"the last tenth of which changed the objective by {facts['change']:.1%}"
    if facts["converged"] and facts["change"] > SETTLED:
        changed = f"the last {late_rounds(facts['n_iter']):,} of which show no trend"
    return f"{ended} in {facts['n_iter']:,} rounds, {changed}"


def advice(facts: Mapping[str, Any], setting: str = "max_iter") -> str:
    """Return the sentence for rounds that had not converged, by what `facts_of` says; empty where they had, or were none.

    setting : what makes rounds more.

    >>> advice({"n_iter": 20, "converged": False, "change": 0.031})
    'The objective still changed by 3.1% over the last tenth of 20 rounds; raise max_iter.'
    """
    if facts.get("converged", True):
        return ""
    if facts["n_iter"] == 1:
        return f"One round does not show whether the objective has settled; raise {setting}."
    return (
        f"The objective still changed by {facts['change']:.1%} over the last tenth of {facts['n_iter']:,} rounds; raise "
        f"{setting}."
    )


def written(found: Convergence | None) -> dict[str, str]:
    """Return the attribute of a model's file that keeps it: null where nothing was iterated."""
    return {"convergence": json.dumps(None if found is None else vars(found))}


def read(attributes: Mapping[str, Any]) -> Convergence | None:
    """Return what `written` has put among the attributes of a file; None for files from before it was kept."""
    about = json.loads(str(attributes.get("convergence", "null")))
    return None if about is None else Convergence(**about)


def keep(estimator: Any, found: Convergence | None) -> None:
    """Set the attributes of a fitted estimator that say how its iterations ended: n_iter_, converged_, and gap_, what was left.

    An estimator that was fitted again without iterations has none of them.
    """
    if found is not None:
        estimator.n_iter_, estimator.converged_, estimator.gap_ = (
            max(1, found.n_iter),  # a start that is the end was looked at once, as scikit-learn counts
            found.converged,
            found.gradient_norm,
        )
        return
    for name in ("n_iter_", "converged_", "gap_"):
        vars(estimator).pop(name, None)


def warn(sentence: str) -> None:
    """Warn of an iteration that did not converge, with scikit-learn's ConvergenceWarning; of nothing where it is empty."""
    if not sentence:
        return
    from sklearn.exceptions import ConvergenceWarning

    errors.warn(sentence, ConvergenceWarning)
