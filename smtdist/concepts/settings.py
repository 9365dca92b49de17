"""The settings of binary concepts: one frozen object, kept in every result file as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self

from smtdist.settings import FLAG, NULL, Settings, number, one_of, seed, setting, whole

FORMING: Final = 0.01
"""Temperature above which concepts form."""
FROZEN: Final = 0.002


class Method(NamedTuple):
    """A way to search.

    descends : whether Algorithm 2 goes on from the first concepts. projects : whether that has projections onto the image of X,
    and the first concepts may be the answer. start : first temperature; no concept stands above the usual one. cold : the
    temperature after four fifths of the sweeps. aligned : CKA below which the image of X is likely not that of the concepts.
    """

    descends: bool = False
    projects: bool = False
    start: float = 0.15
    cold: float = FROZEN
    aligned: float = -math.inf


METHODS: Final = {
    "rejection": Method(aligned=0.7),
    # from random concepts sweeps are best spent where concepts form
    "hopfield": Method(descends=True, cold=FORMING),
    # a warmer start would melt what Algorithm 1 has found
    "hybrid": Method(descends=True, projects=True, start=0.05),
    "convex": Method(),
}
WARM: Final = 0.02
STARTS: Final = 8
"""Starts of a search, at most, where `n_init` does not say."""
EXCHANGES: Final = 64
"""Exchanges of a concept, at most, where `exchanges` does not say."""
CHEAP: Final = 4096
"""Points times concepts of a search that has one start, and up to which all exchanges are tried."""
SETTLING: Final = 100
"""Sweeps without noise in which a search comes to rest, at least."""


def rate_to(cold: float, start: float, sweeps: float) -> float:
    """Return the factor by which a temperature falls to a colder one in so many sweeps; 1 where none is left to fall."""
    return min(1.0, (cold / start) ** (1 / max(1.0, sweeps))) if start > 0 else 1.0


class ConceptSettings(Settings):
    """Settings of binary concepts."""

    OF: ClassVar[str] = "concepts"
    EARLIER: ClassVar[Mapping[str, Any]] = {"weighted_penalty": False, "n_init": 1, "exchanges": 0}

    method: str = setting(
        one_of(*METHODS),
        '"rejection" (Algorithm 1), "hopfield" (2), "hybrid" (1 to start, then 2 with projections onto the '
        'image) or "convex" (3).',
        default="hybrid",
    )
    n_concepts: int = setting(whole(1), "number of concepts to look for.", default=32)
    rank: int | None = setting(
        whole(1) | NULL,
        "components of X that Algorithm 1 and projections use; None means those above the noise, told by the "
        "spectrum (`smtdist.concepts.scores`).",
        default=None,
    )
    kernel_rank: int | None = setting(
        whole(1) | NULL,
        "search the kernel of this many leading components of X; None means all. The kernel of b concepts has "
        "rank b at most, so components beyond that are noise. The last descent, W and the alignment always "
        "use all of X.",
        default=None,
        advanced=True,
    )
    tolerance: float | None = setting(
        number(0, below=1) | NULL,
        "of Algorithm 1: a fixed point s is a concept if ‖Uᵀs‖² >= (1 - tolerance) ‖Hs‖². None accepts every "
        "fixed point and leaves the choice to their order.",
        default=None,
        advanced=True,
    )
    duplicate_penalty: float = setting(
        number(0, 1),
        "of Algorithm 1: accepted concepts lose this share of their direction in later rounds.",
        default=0.0,
        advanced=True,
        stored="discourage",
    )
    distinct: float = setting(
        number(above=0, most=1),
        "of Algorithm 1: fixed points whose correlation with an accepted concept is larger in magnitude are "
        "its copies.",
        default=0.95,
        advanced=True,
    )
    annealing: float = setting(
        number(0),
        "of Algorithm 1: first temperature of annealed stochastic updates; 0 is deterministic.",
        default=0.0,
        advanced=True,
    )
    candidates: int = setting(
        whole(1), "of Algorithm 1: candidates that are drawn in each round.", default=1024, advanced=True
    )
    rounds: int = setting(
        whole(1),
        "of Algorithm 1: rounds. If concepts are missing, there are up to 8 times as many. Those that hold "
        "most of the kernel, with weights fitted to all that were found, are kept.",
        default=4,
        advanced=True,
    )
    penalty: float = setting(
        number(0),
        "of Algorithm 2: cost of a member, in units of p times the squared weight of a concept. The default "
        "only decides between concepts that fit alike.",
        default=0.0001,
    )
    temperature: float | None = setting(
        number(0) | NULL,
        "of Algorithm 2: the first. None: hopfield starts at 0.15 and hybrid at 0.05, because a warmer start "
        "would destroy what Algorithm 1 has found.",
        default=None,
        advanced=True,
    )
    cooling: float | None = setting(
        number(above=0, most=1) | NULL,
        "of Algorithm 2: factor of the temperature from sweep to sweep. None: the last fifth of the sweeps is "
        "at T < 0.01 for hopfield and T < 0.002 for hybrid.",
        default=None,
        advanced=True,
    )
    max_iter: int = setting(whole(1), "of Algorithm 2: number of sweeps.", default=100, stored="sweeps")
    weights: str = setting(
        one_of("concept", "scale"),
        'of Algorithm 2: "scale", one weight for all concepts, or "concept", one for each by least squares.',
        default="concept",
    )
    weighted_penalty: bool = setting(
        FLAG,
        "of Algorithm 2: a member of a light concept costs less, in the measure of its weight; without, all "
        "members cost the same.",
        default=True,
        advanced=True,
    )
    blocks: int | None = setting(
        whole(1) | NULL,
        "of Algorithm 2: blocks of rows that are worked on side by side; None is one for every 4,096 points.",
        default=None,
        advanced=True,
    )
    projection_interval: int = setting(
        whole(0),
        "of Algorithm 2: sweeps between projections onto the image of X (hybrid); 0 is never.",
        default=10,
        advanced=True,
        stored="project_every",
    )
    alternative_penalty: float | None = setting(
        number(0) | NULL,
        "if given, hopfield and hybrid also search with this penalty, and keep the result with the higher "
        "CKA. A penalty that suits concepts of few members loses concepts that hold half of the points.",
        default=None,
        advanced=True,
        stored="other_penalty",
    )
    singletons: bool = setting(
        FLAG,
        "if you ask for more concepts than there are points, and the points have full rank, make each point a "
        "concept of its own, for the floor of the kernel. hopfield and hybrid search the other concepts above "
        "it (`smtdist.concepts.scores`).",
        default=True,
        advanced=True,
        stored="floor",
    )
    n_init: int | None = setting(
        whole(1) | NULL,
        "starts of hopfield and hybrid, of which the one with the lowest objective is kept: equation (3) with "
        "weights fitted, and the penalty. Each ends in a descent without noise, to where no flip of a member "
        "brings anything while the weights stay. The first start of hybrid is from Algorithm 1, others are "
        "from random concepts. None means up to 8, one where points times concepts exceed 2,048. What is "
        "returned is never worse in equation (3) than where the first start began, if the penalty is 0.001 or "
        "less.",
        default=None,
    )
    exchanges: int | None = setting(
        whole(0) | NULL,
        "times that one of the concepts is exchanged for another along what the others leave over, at most, "
        "where that lowers the objective. None means up to 64, none for large searches.",
        default=None,
        advanced=True,
    )
    refine: int = setting(
        whole(0),
        "sweeps of a last descent of all concepts on the whole kernel. Its penalty follows the share of noise "
        "in X (`smtdist.concepts.scores`). S then aligns better with the data and is less sparse. With "
        'weights "concept" SΠSᵀ aligns best; with "scale", SSᵀ.',
        default=0,
    )
    refine_start_temperature: float = setting(
        number(0),
        "first temperature of the last descent. At 0.07 existing concepts change by a few points, and few are "
        "destroyed. With more points, a concept can take up more of them, and concepts of one point are "
        "destroyed earlier: 0.015 keeps them at 256 points.",
        default=0.07,
        advanced=True,
        stored="mild",
    )
    refine_warm_fraction: float = setting(
        number(above=0, most=1),
        "share of the last descent's sweeps above T = 0.01. Below that, weights less than the unit are used "
        "as they are fitted. With many sweeps, the alignment is best if more than half are below.",
        default=0.8,
        advanced=True,
        stored="heated",
    )
    refine_penalty: float | None = setting(
        number(0) | NULL,
        "penalty of the last descent; None means `penalty` times the share of noise in X.",
        default=None,
        advanced=True,
    )
    target_cka: float = setting(
        number(0, 1),
        "if the CKA after the last descent is below this, repeat the descent from the same S with a sixth of "
        "the penalty, and keep the result with the higher CKA.",
        default=0.0,
        advanced=True,
        stored="aim",
    )
    branches: int = setting(whole(1), "of Algorithm 3: parallel branches.", default=4, advanced=True)
    items: int = setting(
        whole(2, 8), "of Algorithm 3: points started by brute force.", default=5, advanced=True
    )
    perturbation: float = setting(
        number(0), "of Algorithm 3: size of the random tilt.", default=0.1, advanced=True
    )
    feature_map: str = setting(
        one_of("least_squares", "procrustes"),
        'how W is fitted afterwards. "procrustes" keeps its columns orthogonal if there are at most as many '
        "as dimensions.",
        default="least_squares",
        stored="features",
    )
    random_state: int = seed()

    @property
    def way(self) -> Method:
        """What the method is."""
        return METHODS[self.method]

    @property
    def start_temperature(self) -> float:
        """The temperature of the first sweep."""
        if self.temperature is not None:
            return self.temperature
        return self.way.start

    @property
    def rate(self) -> float:
        """The factor of the temperature from one sweep to the next."""
        if self.cooling is not None:
            return self.cooling
        return rate_to(self.way.cold, self.start_temperature, 0.8 * self.max_iter)

    def heat(self, number: int) -> float:
        """Return the temperature of a sweep; 0 where next to nothing is left."""
        heat = self.start_temperature * self.rate**number
        return heat if heat > 1e-6 else 0.0

    @property
    def replacing(self) -> Self:
        """The settings of the short, cool descents in which missing concepts are tried anew."""
        sweeps = max(10, self.max_iter // 4)
        start = min(WARM, self.start_temperature)
        rate = rate_to(FROZEN, start, 0.5 * sweeps)
        return self.replace(temperature=start, cooling=rate, max_iter=sweeps, projection_interval=0)

    def again(self, number: int) -> Self:
        """Return the settings of a further start: from random concepts, with draws of its own."""
        return self.replace(method="hopfield", seed=(self.random_state + number * 2**40) % 2**63)

    @property
    def cold(self) -> Self:
        """The settings of a descent without noise, to where no flip of a member brings anything."""
        sweeps = max(SETTLING, self.max_iter)
        return self.replace(temperature=0.0, cooling=1.0, max_iter=sweeps, projection_interval=0)

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

    def refining(self, reliability: float, attempt: int = 0) -> Self:
        """Return the settings of an attempt at the last descent, of at least one sweep, on a kernel of such a reliability."""
        sweeps, start = max(1, self.refine), self.refine_start_temperature
        first = self.penalty * (1 - reliability) if self.refine_penalty is None else self.refine_penalty
        return self.replace(
            penalty=first / 6**attempt,
            temperature=start,
            cooling=rate_to(FORMING, start, self.refine_warm_fraction * sweeps),
            max_iter=sweeps,
            projection_interval=0,
        )
