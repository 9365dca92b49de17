"""Several statistics from one read of the data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.device import is_host, place
from smtdist.kernels.nested import nested_pieces, nests
from smtdist.kernels.types import Encoder
from smtdist.statistics.base import State, Statistic, part_of, prefixed
from smtdist.statistics.cooccurrence import FEW, CodeSums
from smtdist.statistics.patch_rows import drawn_views


@dataclass(frozen=True)
class Together(Statistic):
    """Named statistics, summed side by side from the same batches; exact where all of them are.

    The state of part `name` is held under `name.key`; `part` takes it out. Memory: the sum of the states,
    and the largest workspace.
    """

    parts: tuple[tuple[str, Statistic], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.parts]
        if len(set(names)) < len(names) or any("." in name or not name for name in names):
            raise ConfigurationError(f"The parts {names} need different names without dots.")

    @property
    def exact(self) -> bool:  # type: ignore[override]  # an attribute of the base class, computed here
        """Whether all parts are."""
        return all(one.exact for _, one in self.parts)

    @property
    def on_device(self) -> bool:  # type: ignore[override]  # an attribute of the base class, computed here
        """Whether all parts are; a part that is not could not add to a state on a GPU."""
        return all(one.on_device for _, one in self.parts)

    def part(self, state: State, name: str) -> State:
        """Return the state of one part, sharing its arrays."""
        return part_of(state, f"{name}.")

    def zero(self) -> State:
        """Return the zeros of all parts."""
        found: State = {}
        for name, one in self.parts:
            found |= prefixed(f"{name}.", one.zero())
        return found

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch to every part; return the most positions that one of them added."""
        positions = 0
        for name, one in self.parts:
            own = self.part(state, name)
            positions = max(positions, one.update(own, images, first_sample))
            state.update(prefixed(f"{name}.", own))
        return positions

    def merge(self, left: State, right: State) -> State:
        """Merge part by part."""
        for name, one in self.parts:
            both = one.merge(self.part(left, name), self.part(right, name))
            left.update(prefixed(f"{name}.", both))
        return left

    def state_bytes(self) -> int:
        """Return the size of all states."""
        return sum(one.state_bytes() for _, one in self.parts)

    def batch_bytes(self, images: int) -> int:
        """Return the largest workspace of a part."""
        return max(one.batch_bytes(images) for _, one in self.parts)

    def device_batch_bytes(self, images: int) -> int:
        """Return the largest workspace of a part on a device."""
        return max(one.device_batch_bytes(images) for _, one in self.parts)

    def miniature(self) -> Together:
        """Return the miniatures of all parts."""
        return replace(self, parts=tuple((name, one.miniature()) for name, one in self.parts))


@dataclass(frozen=True)
class NestedSums(Together):
    """Sums of codes whose encoders nest in that of the first part, the longest: whitened and multiplied once.

    Parts that share an encoder share its codes. On a GPU each encoder works by itself. Memory: as
    `Together`, and a bit an atom, patch and encoder.
    """

    parts: tuple[tuple[str, CodeSums], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        first = self.parts[0][1]
        if not all(nests(one.encoder, first.encoder) and one.flip == first.flip for _, one in self.parts):
            raise ConfigurationError("The codes of these sums do not follow from those of the first.")

    @property
    def encoders(self) -> list[Encoder]:
        """The different encoders, the longest first."""
        return list({id(one.encoder): one.encoder for _, one in self.parts}.values())

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Encode a batch once for all parts and add it to each."""
        encoders, raw, longest = self.encoders, place(images), self.parts[0][1]
        whitener = longest.encoder.whitener
        before = {name: int(state[f"{name}.n_positions"]) for name, _ in self.parts}
        capacity = max(one.capacity(len(images)) for _, one in self.parts)
        groups = [encoders] if is_host(raw) else [[encoder] for encoder in encoders]
        for mirror, at in drawn_views(whitener, images, longest.flip):
            for group in groups:
                for first, count, codes in nested_pieces(raw, group, mirror, capacity, at):
                    here = None if at is None else at[first : first + count]
                    for name, one in self.parts:
                        for encoder, own in zip(group, codes, strict=True):
                            if one.encoder is encoder:
                                part = self.part(state, name)
                                one.add(part, own, count, here)
        for name, _ in self.parts:
            state[f"{name}.n_samples"] += len(images)
        return max(int(state[f"{name}.n_positions"]) - before[name] for name in before)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of the largest part, and the bits and lists of the other encoders."""
        encoders, whitener = self.encoders, self.parts[0][1].encoder.whitener
        patches = images * whitener.drawn
        extra = (
            sum(8 * -(-len(one.atoms) // 64) + 16 for one in encoders) * patches if len(encoders) > 1 else 0
        )
        lists = sum(2 * one.capacity(images) for _, one in self.parts[1:]) if len(encoders) > 1 else 0
        return super().batch_bytes(images) + extra + lists

    def miniature(self) -> NestedSums:
        """Return the same sums over few atoms, which nest still."""
        small: dict[int, Encoder] = {}
        for _, one in self.parts:
            small.setdefault(id(one.encoder), replace(one.encoder, atoms=one.encoder.atoms[:FEW]))
        return _Rehearsal(
            tuple((name, replace(one, encoder=small[id(one.encoder)])) for name, one in self.parts)
        )


class _Rehearsal(NestedSums):
    """Sums that take the ways of many and of few active atoms in every part too; see `CodeSums.miniature`."""

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch together, and to the twin of every part."""
        positions = super().update(state, images, first_sample)
        for name, one in self.parts:
            one.miniature().update(self.part(state, name), images, first_sample)
        return positions
