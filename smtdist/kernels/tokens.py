"""Text to tokens to word numbers: Basic English normalisation, counted and looked up by exact bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, MemoryBudgetError
from smtdist.kernels.cpu import tokens as cpu
from smtdist.kernels.types import Array

BASIC, GIVEN = "basic_english", "given"
NORMALISATIONS: Final = (BASIC, GIVEN)
UNKNOWN, BREAK = -1, -2
"""Among word numbers: a token outside the vocabulary, and the end of a paragraph."""

Bytes = NDArray[np.uint8]

_OTHER_SPACE: Final = re.compile(r"[^\S\x00-\x7f]")


def _kinds(basic: bool) -> Bytes:
    kinds = np.full(256, cpu.LETTER, np.uint8)
    kinds[[0, *b"\t\v\f\r\x1c\x1d\x1e\x1f "]] = cpu.SPACE
    kinds[ord("\n")] = cpu.BREAK
    if basic:
        kinds[[*b";:"]] = cpu.SPACE
        kinds[[*b"'.,()!?"]] = cpu.MARK
    return kinds


_KINDS: Final = {BASIC: _kinds(True), GIVEN: _kinds(False)}


@dataclass(frozen=True)
class Normalisation:
    """How bytes of text become tokens.

    "basic_english" has the rules of torchtext's tokenizer of that name: lower case; `'`, `.`, `,`, `(`,
    `)`, `!` and `?` are tokens by themselves; `;`, `:` and `<br />` part tokens; `"` vanishes. "given"
    parts at white space and changes nothing. Both part at what Unicode calls white space and at zero bytes;
    an end of line ends a paragraph.
    """

    name: str = BASIC

    def __post_init__(self) -> None:
        if self.name not in NORMALISATIONS:
            raise ConfigurationError(
                f"{self.name!r} is not a normalisation; choose {' or '.join(NORMALISATIONS)}."
            )

    @property
    def basic(self) -> bool:
        """Whether the rules are torchtext's."""
        return self.name == BASIC

    @property
    def kinds(self) -> Bytes:
        """What each byte does."""
        return _KINDS[self.name]

    def prepared(self, row: Bytes) -> tuple[Bytes, int]:
        """Return the text of a row of UTF-8 bytes, ready to be cut, and its length; the row is not changed."""
        if row.max(initial=0) < 128:
            text = row.copy()
        else:
            decoded = row.tobytes().decode("utf-8", errors="replace")
            decoded = _OTHER_SPACE.sub(" ", decoded.lower() if self.basic else decoded)
            text = np.frombuffer(bytearray(decoded.encode("utf-8")), np.uint8)
        return text, int(cpu.clean(text)) if self.basic else len(text)


class WordTable:
    """Words and their exact counts, found by their bytes; grows as words come, up to a limit."""

    def __init__(self, words: int = 0, size: int = 0) -> None:
        self.n_words = 0
        self._hashes = np.zeros(0, np.uint64)
        self._offsets = np.zeros(1, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._blob = np.zeros(0, np.uint8)
        self._table = np.full(2, -1, np.int32)
        self._make_room(max(words, 1), max(size, 1))

    @property
    def n_bytes(self) -> int:
        """Bytes of all words."""
        return int(self._offsets[self.n_words])

    def add_text(self, row: Bytes, rules: Normalisation) -> int:
        """Count the tokens of a row of text; return how many there are."""
        text, length = rules.prepared(row)
        self._make_room(length // 2 + 1 if rules.name == GIVEN else length, length)
        self.n_words, tokens = cpu.enter_text(
            text, length, rules.kinds, rules.basic, *self._parts(), self.n_words
        )
        return int(tokens)

    def add_words(self, blob: Bytes, offsets: Array, hashes: Array, counts: Array) -> None:
        """Add counts of words."""
        self._make_room(len(counts), len(blob))
        self.n_words = cpu.enter_words(blob, offsets, hashes, counts, *self._parts(), self.n_words)

    def require_at_most(self, words: int, size: int) -> None:
        """Refuse more words, or more bytes of them, than memory was set aside for."""
        if self.n_words > words or self.n_bytes > size:
            raise MemoryBudgetError(
                f"The text has more than {words:,} different words (or {size:,} bytes of them); "
                f"raise max_words, or give text whose tokens are words."
            )

    def sorted(self) -> tuple[Bytes, NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """Return bytes, offsets, hashes and counts in the one order that does not depend on how words came."""
        hashes = self._hashes[: self.n_words]
        order = np.argsort(hashes, kind="stable")
        ranked = hashes[order]
        for at in np.flatnonzero(
            ranked[1:] == ranked[:-1]
        ):  # two words of one hash: once in a thousand years
            low = int(np.searchsorted(ranked, ranked[at], side="left"))
            high = int(np.searchsorted(ranked, ranked[at], side="right"))
            order[low:high] = sorted(order[low:high], key=self._word)
        blob = np.empty(self.n_bytes, np.uint8)
        offsets = np.zeros(self.n_words + 1, np.int64)
        cpu.gather(self._blob, self._offsets, order, blob, offsets)
        return blob, offsets, ranked, self._counts[order]

    def _word(self, number: int) -> bytes:
        return self._blob[self._offsets[number] : self._offsets[number + 1]].tobytes()

    def _parts(self) -> tuple[Array, Array, Array, Array, Array]:
        return self._table, self._hashes, self._offsets, self._counts, self._blob

    def _make_room(self, words: int, size: int) -> None:
        needed, space = self.n_words + words, self.n_bytes + size
        if needed > len(self._counts):
            grown = max(needed, 3 * len(self._counts) // 2)
            for name, extra in (("_hashes", 0), ("_offsets", 1), ("_counts", 0)):
                old = getattr(self, name)
                new = np.zeros(grown + extra, old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        if space > len(self._blob):
            blob = np.zeros(max(space, 3 * len(self._blob) // 2), np.uint8)
            blob[: self.n_bytes] = self._blob[: self.n_bytes]
            self._blob = blob
        if 2 * needed > len(self._table):
            self._table = np.full(1 << (2 * needed).bit_length(), -1, np.int32)
            cpu.place_words(self._table, self._hashes, self.n_words)


@dataclass(frozen=True, eq=False)
class Lookup:
    """A vocabulary as compiled code reads it: word i is bytes offsets[i] to offsets[i + 1]. Memory: about 40 B a word."""

    blob: Bytes
    offsets: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    table: NDArray[np.int32]

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        """Return the lookup of different words.

        >>> lookup = Lookup.of(["the", "cat", "."])
        >>> lookup.encoded(np.frombuffer(b"The dog. The cat.\\nCat", np.uint8), Normalisation())
        array([ 0, -1,  2,  0,  1,  2, -2,  1], dtype=int32)
        """
        blob, offsets = packed(words)
        hashes = np.empty(len(words), np.uint64)
        cpu.word_hashes(blob, offsets, hashes)
        table = np.full(1 << (2 * len(words) + 1).bit_length(), -1, np.int32)
        cpu.place_words(table, hashes, len(words))
        return cls(blob, offsets, hashes, table)

    def __len__(self) -> int:
        return len(self.hashes)

    def encoded(self, row: Bytes, rules: Normalisation, *, skip: bool = False) -> NDArray[np.int32]:
        """Return the word numbers of a row of text, `UNKNOWN` unless `skip`, and `BREAK` between paragraphs."""
        text, length = rules.prepared(row)
        out = np.empty(2 * length + 1, np.int32)
        n = cpu.encode(
            text,
            length,
            rules.kinds,
            rules.basic,
            self.table,
            self.hashes,
            self.offsets,
            self.blob,
            skip,
            out,
        )
        return out[:n].copy()


def packed(words: Iterable[str]) -> tuple[Bytes, NDArray[np.int64]]:
    """Return words end to end in UTF-8, and where each begins.

    >>> packed(["a", "bc"])
    (array([97, 98, 99], dtype=uint8), array([0, 1, 3]))
    """
    encoded = [word.encode("utf-8") for word in words]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(word) for word in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets
