"""How the E-step of spike-and-slab sparse coding is damped, and which units move at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from smtdist.errors import ConfigurationError

RISING: Final = 19
"""Iterations of `Schedule.rising`, the default."""
ITERATIONS: Final = 12
BLOCK: Final = 96
"""Units that move at once, where blocks take turns: few of them compete, and a product is still worth its name."""


def _rising(iterations: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    steps = range(iterations)
    h = tuple(round(min(0.2 + 0.5 * step / 12, 0.7), 3) for step in steps)
    return h, tuple(round(min(0.2 + 0.03 * step, 0.5), 3) if step else 0.7 for step in steps)


@dataclass(frozen=True)
class Schedule:
    """How the fixed point is damped: η of each iteration for ĥ and for ŝ, ρ, by how much a reflection may overshoot, and block.

    block 0 is Algorithm 1: all units at once, ŝ and then ĥ, each from the residual v - Wx of what is there.
    Otherwise so many units move at once (rounded up to 16) and blocks take turns, see `infer`.

    Without arguments it is `rising`.

    >>> Schedule() == Schedule.rising(), Schedule().iterations, Schedule.constant(0.5, 3).h
    (True, 19, (0.5, 0.5, 0.5))
    """

    h: tuple[float, ...] = _rising(RISING)[0]
    s: tuple[float, ...] = _rising(RISING)[1]
    rho: float = 0.5
    block: int = 0

    def __post_init__(self) -> None:
        if len(self.h) != len(self.s) or not self.h:
            raise ConfigurationError(
                f"The damping of h has {len(self.h)} steps and that of s {len(self.s)}; give one or more, as many of each."
            )
        if not all(0 < eta <= 1 for eta in (*self.h, *self.s)) or not 0 <= self.rho <= 1:
            raise ConfigurationError("Damping must lie above 0 and up to 1, rho from 0 to 1.")
        if self.block < 0:
            raise ConfigurationError(
                f"A block has {self.block} units; give 1 or more, or 0 for Algorithm 1."
            )

    @classmethod
    def constant(cls, eta: float, iterations: int, rho: float = 0.5) -> Schedule:
        """Return the printed schedule: one η for both, K iterations."""
        return cls((eta,) * iterations, (eta,) * iterations, rho)

    @classmethod
    def stepped(cls) -> Schedule:
        """Return the default before `rising`: ĥ's damping goes up in four steps to .4, ŝ's is .1 but for the first.

        It ends further from the optimum in as many iterations; `docs/few_labels.md` has numbers.
        """
        return cls((0.1,) * 8 + (0.2,) * 3 + (0.3,) * 3 + (0.4,) * 5, (0.7,) + (0.1,) * 18)

    @classmethod
    def rising(cls, iterations: int = RISING) -> Schedule:
        """Return dampings that rise, ĥ's from .2 to .7 and ŝ's to .5: slow while many units compete, fast once few are left.

        >>> Schedule.rising(3)
        Schedule(h=(0.2, 0.242, 0.283), s=(0.7, 0.23, 0.26), rho=0.5, block=0)
        """
        return cls(*_rising(iterations))

    @classmethod
    def in_blocks(cls, iterations: int = ITERATIONS, block: int = BLOCK) -> Schedule:
        """Return blocks in turn; dampings rise to .8, those of ĥ over all iterations: more of them end nearer the optimum.

        >>> Schedule.in_blocks(4)
        Schedule(h=(0.2, 0.4, 0.6, 0.8), s=(0.7, 0.7, 0.8, 0.8), rho=0.5, block=96)
        """
        steps = range(iterations)
        h = tuple(round(0.8 * (step + 1) / iterations, 3) for step in steps)
        s = tuple(round(min(0.6 + 0.1 * step, 0.8), 3) if step else 0.7 for step in steps)
        return cls(h, s, block=block)

    @property
    def iterations(self) -> int:
        """K."""
        return len(self.h)

    @property
    def products(self) -> int:
        """Products of n x N x D that an iteration takes."""
        return 2 if self.block else 4

    def blocks(self, units: int, inputs: int) -> list[slice]:
        """Return the units that move at once: whole vectors of 16, no more than there are inputs, and at least four blocks.

        More units than inputs cannot move at once and not get into each other's way: ŝ may grow without
        bound.

        >>> Schedule.in_blocks(3).blocks(70, 40)
        [slice(0, 16, None), slice(16, 32, None), slice(32, 48, None), slice(48, 64, None), slice(64, 70, None)]
        >>> [len(Schedule.in_blocks().blocks(units, 108)) for units in (10, 100, 400, 1600)]
        [1, 7, 5, 17]
        """
        vectors = -(-units // 16)
        most = max(1, min(-(-self.block // 16), vectors // 4, inputs // 16))
        size = 16 * -(-vectors // -(-vectors // most))
        return [slice(start, min(start + size, units)) for start in range(0, units, size)]
