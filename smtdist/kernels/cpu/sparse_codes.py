"""Greedy coordinate descent for sparse coding, compiled."""

from __future__ import annotations

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array


@compiled
def coordinate_descent(
    products: Array, gram: Array, codes: Array, cut: Array, least: Array, most: int
) -> None:
    """Minimise ½ sᵀ G s - pᵀ s + cut ‖s‖₁ for every row of products, always by the coordinate that moves furthest.

    `codes` starts at zero and holds the result; `products` is used up: it becomes p - G s + s. Ends where no move is above
    `least`, or after `most` moves.
    """
    units = gram.shape[0]
    for row in range(products.shape[0]):
        pulls, code = products[row], codes[row]
        for _ in range(most):
            furthest, at = least, -1
            for unit in range(units):
                pull = pulls[unit]
                target = max(pull - cut, 0) + min(pull + cut, 0)
                away = abs(target - code[unit])
                if away > furthest:
                    furthest, at = away, unit
            if at < 0:
                break
            target = max(pulls[at] - cut, 0) + min(pulls[at] + cut, 0)
            change = target - code[at]
            code[at] = target
            own = pulls[at]
            column = gram[at]
            for unit in range(units):
                pulls[unit] -= change * column[unit]
            pulls[at] = own
