"""How fast near words are counted, and how much memory text takes.

    python -m replication.words.speed corpus.txt.gz --json DIR

Three parts: tokens a second from word numbers to counts, by one thread and by all; the whole command on the first
`--megabytes` of the text, repeated as needed; and on generated text of `--words` words. Both commands run in processes of
their own, and their peaks are the largest of their passes, the solve included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from smtdist.data.text import BLOCK, TextSource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels.pairs import PairCounter
from smtdist.kernels.threads import available_cores, set_threads
from smtdist.kernels.tokens import Lookup, Normalisation
from smtdist.statistics.word_pairs import TokenCounts, most_frequent

COMMAND = "from smtdist.cli import main; main()"
TOPICS, TOPIC_SHARE = 100, 0.7
PARTS = ("counting", "real", "generated")


def counting(text: list[str], vocabulary: int, window: int, repeats: int) -> dict[str, Any]:
    """Time the counting of pairs alone, over all word numbers of a text, and the encoding before it."""
    source, rules = TextSource.open(text), Normalisation()
    counts, _ = Engine(SerialExecutor()).reduce("vocabulary", TokenCounts(rules), source)
    words = most_frequent(counts.state, vocabulary)
    lookup = Lookup.of(words.words)
    with source.opened() as reader:
        rows = reader.read(0, source.n_samples).reshape(source.n_samples, -1)
    started = time.perf_counter()
    encoded = [lookup.encoded(row, rules) for row in rows]
    encoding = time.perf_counter() - started
    del rows
    tokens = int(counts.state["n_positions"])
    result: dict[str, Any] = {"tokens": tokens, "encoded_tokens_per_second": tokens / encoding}
    for threads in sorted({1, available_cores()}):
        set_threads(threads)
        seconds = []
        for _ in range(repeats + 1):  # the first compiles
            started = time.perf_counter()
            counter = PairCounter(
                (np.zeros(0, np.int64), np.zeros(0, np.int64)), len(words), window, (0, len(words))
            )
            counter.add(encoded)
            seconds.append(time.perf_counter() - started)
        result[f"tokens_per_second_{threads}_threads"] = tokens / min(seconds[1:])
        result["pairs"] = len(counter.counts[0])
    return result


def command(text: Path, folder: Path, *options: str) -> dict[str, Any]:
    """Run `smtdist fit --model words` in a process of its own and return what it took."""
    started = time.perf_counter()
    out = ["--out", str(folder / f"{text.stem}.h5")]
    words = ["fit", str(text), "--model", "words", "--json", "--quiet", "--workers", "0", *out, *options]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout)
    return {
        "megabytes": text.stat().st_size / 1e6,
        "seconds": time.perf_counter() - started,
        "peak_bytes": max(record["peak_bytes"] for record in result["passes"]),
        "projected_bytes": max(record["projected_bytes"] for record in result["passes"]),
        **{name: result[name] for name in ("n_words", "n_positions", "n_pairs", "passes")},
    }


def repeated(text: list[str], target: Path, megabytes: float) -> None:
    """Write the first megabytes of a text, repeated as needed, in plain."""
    source, left = TextSource.open(text), int(megabytes * 1e6)
    with source.opened() as reader, target.open("wb") as file:
        while left > 0:
            for start in range(0, source.n_samples, 256):
                rows = reader.read(start, min(start + 256, source.n_samples))
                data = b"".join(row.tobytes().rstrip(b"\0") for row in rows)[:left]
                file.write(data)
                left -= len(data)
                if left <= 0:
                    break


def generated(target: Path, words: int, megabytes: float) -> None:
    """Write paragraphs, each mostly of the words of one topic; frequencies fall as Zipf's law has them."""
    draw = np.random.default_rng(0)
    names = np.array([f"w{number}" for number in range(words)])
    per_topic = words // TOPICS
    zipf = 1 / np.arange(1, per_topic + 1)
    within, everywhere = zipf / zipf.sum(), 1 / np.arange(1, words + 1)
    everywhere /= everywhere.sum()
    left = int(megabytes * 1e6)
    with target.open("w") as file:
        file.write(" ".join(names) + "\n")  # every word occurs
        while left > 0:
            size = 16 * BLOCK
            common = draw.choice(words, size, p=everywhere)
            topic = np.repeat(draw.integers(TOPICS, size=size // 256), 256)
            own = topic + TOPICS * draw.choice(per_topic, size, p=within)
            chosen = names[np.where(draw.random(size) < TOPIC_SHARE, own, common)].reshape(-1, 256)
            data = "".join(" ".join(line) + "\n" for line in chosen)
            left -= file.write(data)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="+")
    parser.add_argument("--vocabulary", type=int, default=33_474)
    parser.add_argument("--window", type=int, default=4)
    parser.add_argument("--components", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--generated-megabytes", type=float, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, help="one of the three parts")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    wanted = PARTS if options.only is None else (options.only,)
    result: dict[str, Any] = {}
    if "counting" in wanted:
        result["counting"] = counting(options.text, options.vocabulary, options.window, options.repeats)
        print(json.dumps(result["counting"]), flush=True)
    common = ["--window", str(options.window), "--components", str(options.components)]
    with tempfile.TemporaryDirectory(prefix="smtdist-words-") as name:
        folder = Path(name)
        if "real" in wanted:
            real = folder / "real.txt"
            repeated(options.text, real, options.megabytes)
            result["real"] = command(real, folder, "--vocabulary", str(options.vocabulary), *common)
            print(json.dumps(result["real"]), flush=True)
            real.unlink()
        if "generated" in wanted:
            made = folder / "made.txt"
            generated(made, options.words, options.generated_megabytes)
            result["generated"] = command(made, folder, "--vocabulary", str(options.words), *common)
            print(json.dumps(result["generated"]), flush=True)
    if options.json:
        write_record(
            options.json, "-".join(["words-speed", *([options.only] if options.only else [])]), result
        )
    return result


if __name__ == "__main__":
    main()
