"""The settings of binary concepts: one frozen object, kept in every result file as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Self

from smtdist import configuration
from smtdist.codes.checks import require_kinds
from smtdist.concepts.descent import DescentSettings
from smtdist.concepts.sampling import SamplingSettings
from smtdist.errors import ConfigurationError

METHODS: Final = ("rejection", "hopfield", "hybrid", "convex")
START: Final = {"hybrid": 0.05}
"""First temperature by method: a warmer hybrid would melt what Algorithm 1 has found."""
HOT: Final = 0.15
"""That of the others: no concept stands above it."""
COLD: Final = {"hopfield": 0.01}
"""The temperature after four fifths of the sweeps: from random concepts they are best spent where concepts form."""
FROZEN: Final = 0.002
"""That of the others."""
WARM: Final = 0.02
EARLIER: Final[dict[str, Any]] = {"weighted_penalty": False, "n_init": 1, "exchanges": 0}
"""What files without these settings were fitted with."""
STARTS: Final = 8
"""Starts of a search, at most, where `n_init` does not say."""
EXCHANGES: Final = 64
"""Exchanges of a concept, at most, where `exchanges` does not say."""
CHEAP: Final = 4096
"""Points times concepts of a search that has one start, and up to which all exchanges are tried."""
SETTLING: Final = 100
"""Sweeps without noise in which a search comes to rest, at least."""
FEATURES: Final = ("least_squares", "procrustes")


@dataclass(frozen=True)
class ConceptSettings:
    """Settings of binary concepts.

    Attributes
    ----------
    method : "rejection" (Algorithm 1), "hopfield" (2), "hybrid" (1 to start, then 2 with projections onto
        the image) or "convex" (3).
    n_concepts : number of concepts to look for.
    rank : components of X that Algorithm 1 and projections use; None means those above the noise, told by the
        spectrum (`smtdist.concepts.spectrum`).
    kernel_rank : search the kernel of this many leading components of X; None means all. The kernel of b
        concepts has rank b at most, so components beyond that are noise. The last descent, W and the
        alignment always use all of X.
    tolerance, discourage, distinct, annealing, candidates, rounds : settings of Algorithm 1; see
        `SamplingSettings`. `annealing` is its first temperature. `candidates` are drawn in each round. If
        concepts are missing, there are up to 8 times as many rounds. Those that hold most of the kernel, with
        weights fitted to all that were found, are kept.
    penalty, temperature, cooling, sweeps, weights, weighted_penalty, blocks, project_every : settings of
        Algorithm 2; see `DescentSettings`. The default penalty only decides between concepts that fit alike.
        Without `temperature`, hopfield starts at 0.15 and hybrid at 0.05, because a warmer start would destroy
        what Algorithm 1 has found. Without `cooling`, the last fifth of the sweeps is at T < 0.01 for
        hopfield and T < 0.002 for hybrid.
    other_penalty : if given, hopfield and hybrid also search with this penalty, and keep the result with the
        higher CKA. A penalty that suits concepts of few members loses concepts that hold half of the points.
    floor : if you ask for more concepts than there are points, and the points have full rank, make each point
        a concept of its own, for the floor of the kernel. hopfield and hybrid search the other concepts
        above it (`smtdist.concepts.floor`).
    n_init : starts of hopfield and hybrid, of which the one with the lowest objective is kept: equation (3)
        with weights fitted, and the penalty. Each ends in a descent without noise, to where no flip of a
        member brings anything while the weights stay. The first start of hybrid is from Algorithm 1, others are from random
        concepts. None means up to 8, one where points times concepts exceed 2,048. What is returned is
        never worse in equation (3) than where the first start began, if the penalty is 0.001 or less.
    exchanges : times that one of the concepts is exchanged for another along what the others leave over, at
        most, where that lowers the objective. None means up to 64, none for large searches.
    refine : sweeps of a last descent of all concepts on the whole kernel. Its penalty follows the share of
        noise in X (`smtdist.concepts.reliability`). S then aligns better with the data and is less sparse.
        With weights "concept" SΠSᵀ aligns best; with "scale", SSᵀ.
    mild : first temperature of the last descent. At 0.07 existing concepts change by a few points, and few
        are destroyed. With more points, a concept can take up more of them, and concepts of one point are
        destroyed earlier: 0.015 keeps them at 256 points.
    heated : share of the last descent's sweeps above T = 0.01. Below that, weights less than the unit are
        used as they are fitted. With many sweeps, the alignment is best if more than half are below.
    refine_penalty : penalty of the last descent; None means `penalty` times the share of noise in X.
    aim : if the CKA after the last descent is below this, repeat the descent from the same S with a sixth of
        the penalty, and keep the result with the higher CKA.
    branches, items, perturbation : settings of Algorithm 3: parallel branches, points started by brute
        force, size of the random tilt.
    features : how W is fitted afterwards. "procrustes" keeps its columns orthogonal if there are at most as
        many as dimensions.
    seed : seed of every random choice.
    """

    method: str = "hybrid"
    n_concepts: int = 32
    rank: int | None = None
    kernel_rank: int | None = None
    tolerance: float | None = None
    discourage: float = 0.0
    distinct: float = 0.95
    annealing: float = 0.0
    candidates: int = 1024
    rounds: int = 4
    penalty: float = 0.0001
    temperature: float | None = None
    cooling: float | None = None
    sweeps: int = 100
    weights: str = "concept"
    weighted_penalty: bool = True
    blocks: int | None = None
    project_every: int = 10
    other_penalty: float | None = None
    floor: bool = True
    n_init: int | None = None
    exchanges: int | None = None
    refine: int = 0
    mild: float = 0.07
    heated: float = 0.8
    refine_penalty: float | None = None
    aim: float = 0.0
    branches: int = 4
    items: int = 5
    perturbation: float = 0.1
    features: str = "least_squares"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("method", METHODS), ("features", FEATURES)):
            if getattr(self, name) not in allowed:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}."
                )
        require_kinds(self)
        if not 0 <= self.seed < 2**63:
            raise ConfigurationError(f"seed is {self.seed!r}; give a whole number from 0 on.")
        for name in ("candidates", "branches"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; give at least 1.")
        if self.kernel_rank is not None and self.kernel_rank < 1:
            raise ConfigurationError(
                f"kernel_rank is {self.kernel_rank}; give a number of components, or none for all."
            )
        for name, least in (("n_init", 1), ("exchanges", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigurationError(f"{name} is {value}; give at least {least}, or none.")
        if self.refine < 0:
            raise ConfigurationError(f"refine is {self.refine}; give a number of sweeps, or 0 for none.")
        if self.mild < 0:
            raise ConfigurationError(f"mild is {self.mild}; give a temperature of at least 0.")
        if not 0 < self.heated <= 1:
            raise ConfigurationError(f"heated is {self.heated}; give a share in (0, 1].")
        for name in ("other_penalty", "refine_penalty"):
            if (getattr(self, name) or 0.0) < 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; give at least 0, or none.")
        if not 0 <= self.aim <= 1:
            raise ConfigurationError(f"aim is {self.aim}; give an alignment from 0 to 1.")
        if not 2 <= self.items <= 8:
            raise ConfigurationError(f"items is {self.items}; give 2 to 8.")
        _ = self.sampling, self.descent  # their own checks

    @property
    def sampling(self) -> SamplingSettings:
        """The settings of Algorithm 1."""
        block = min(256, self.candidates)
        return SamplingSettings(
            n_concepts=self.n_concepts,
            rank=self.rank,
            tolerance=self.tolerance,
            discourage=self.discourage,
            distinct=self.distinct,
            temperature=self.annealing,
            block=block,
            blocks=-(-self.candidates // block),
            rounds=self.rounds,
            seed=self.seed,
        )

    @property
    def start_temperature(self) -> float:
        """The temperature of the first sweep."""
        if self.temperature is not None:
            return self.temperature
        return START.get(self.method, HOT)

    @property
    def rate(self) -> float:
        """The factor of the temperature from one sweep to the next."""
        if self.cooling is not None:
            return self.cooling
        start = self.start_temperature
        cold = COLD.get(self.method, FROZEN)
        return float(min(1.0, (cold / start) ** (1 / max(1.0, 0.8 * self.sweeps)))) if start > 0 else 1.0

    @property
    def descent(self) -> DescentSettings:
        """The settings of Algorithm 2."""
        return DescentSettings(
            n_concepts=self.n_concepts,
            penalty=self.penalty,
            temperature=self.start_temperature,
            cooling=self.rate,
            sweeps=self.sweeps,
            weights=self.weights,
            weighted_penalty=self.weighted_penalty,
            blocks=self.blocks,
            project_every=self.project_every if self.method == "hybrid" else 0,
            rank=self.rank,
            seed=self.seed,
        )

    @property
    def replacing(self) -> DescentSettings:
        """The settings of the short, cool descents in which missing concepts are tried anew."""
        sweeps = max(10, self.sweeps // 4)
        start = min(WARM, self.start_temperature)
        rate = min(1.0, (FROZEN / start) ** (1 / (0.5 * sweeps))) if start > 0 else 1.0
        return dataclasses.replace(
            self.descent, temperature=start, cooling=float(rate), sweeps=sweeps, project_every=0
        )

    def again(self, number: int) -> Self:
        """Return the settings of a further start: from random concepts, with draws of its own."""
        return replace(self, method="hopfield", seed=(self.seed + number * 2**40) % 2**63)

    @property
    def cold(self) -> DescentSettings:
        """The settings of a descent without noise, to where no flip of a member brings anything."""
        return dataclasses.replace(
            self.descent, temperature=0.0, cooling=1.0, sweeps=max(SETTLING, self.sweeps), project_every=0
        )

    def starts(self, points: int) -> int:
        """Return how many starts a search of so many points has."""
        if self.n_init is not None:
            return self.n_init
        return max(1, min(STARTS, CHEAP // (points * self.n_concepts)))

    def attempts(self, points: int) -> int:
        """Return how many exchanges of a concept are tried, at most."""
        if self.exchanges is not None:
            return self.exchanges
        return min(EXCHANGES, CHEAP * EXCHANGES // (points * self.n_concepts))

    def refining(self, reliability: float, attempt: int = 0) -> DescentSettings:
        """Return the settings of an attempt at the last descent, of at least one sweep, on a kernel of such a reliability."""
        sweeps, cold = max(1, self.refine), COLD["hopfield"]
        rate = (
            min(1.0, (cold / self.mild) ** (1 / max(1.0, self.heated * sweeps))) if self.mild > 0 else 1.0
        )
        first = self.penalty * (1 - reliability) if self.refine_penalty is None else self.refine_penalty
        return dataclasses.replace(
            self.descent,
            penalty=first / 6**attempt,
            temperature=self.mild,
            cooling=float(rate),
            sweeps=sweeps,
            project_every=0,
        )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some settings changed; an unknown name is a ConfigurationError."""
        unknown = sorted(set(changes) - {field.name for field in fields(self)})
        if unknown:
            raise ConfigurationError(
                f"There is no setting {unknown[0]!r} of concepts; see ConceptSettings."
            )
        return replace(self, **changes)

    def with_texts(self, texts: Sequence[str]) -> Self:
        """Return a copy with settings from KEY=VALUE texts, values as in JSON or none.

        >>> ConceptSettings().with_texts(["rank=7", "weights=concept", "tolerance=none"]).rank
        7
        """
        changes: dict[str, Any] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                raise ConfigurationError(f"{text!r} is not a setting; write KEY=VALUE.")
            changes[name.strip()] = None if value.lower() == "none" else configuration.parse_value(value)
        return self.replace(**changes)

    def to_json(self) -> str:
        """Return all settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the settings in JSON; those that an earlier version did not have are as it searched."""
        return cls(**{**EARLIER, **json.loads(text)})
