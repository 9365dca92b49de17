"""An error at every single file operation of a command in turn: the disk is full, the operation is refused, Ctrl-C, a kill.

    python -m benchmarks.survival.file_operations --out results

As SQLite is tested. Each command is run once under `strace`, which must be installed, to count what it does in its folder;
then once for every operation and fault, each in a fresh copy of the folder, with the fault injected there (it reaches what
HDF5 does in C too). After each, the output must be the old or the new one, whole; the error one sentence; every other file
as it was, and none left behind; and a repeat must give the bits of an undisturbed run. Commands run in forks of this process,
which imports what they need and computes nothing. Writes DATE-file-operations.json and .md; exits with 1 where an
operation ended otherwise.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NoReturn

import h5py
import numpy as np

from benchmarks.record import write_record
from benchmarks.survival.run import bits
from smtdist import cli
from smtdist.data.importers.journal import require_finished
from smtdist.errors import DataError

CALLS: Final = (
    "open,openat,creat,write,pwrite64,writev,fsync,fdatasync,truncate,ftruncate,rename,renameat,renameat2,link,linkat,"
    "unlink,unlinkat,mkdir,mkdirat,rmdir,fchmod,copy_file_range,sendfile"
)
FAULTS: Final = {
    "full": "error=ENOSPC",
    "refused": "error=EACCES",
    "Ctrl-C": "signal=SIGINT",
    "killed": "signal=SIGKILL",
}
CODES: Final = {"full": (0, 1), "refused": (0, 1), "Ctrl-C": (0, 130), "killed": (0, -9)}
"""With which codes a command may end; 0 where it does without the operation, such as the removal of a lock."""

FIT: Final = "--dataset images --set patch=3 --set dictionary=6 --set n_components=2"
WORK: Final = {
    "fit": (f"fit a.h5 {FIT} --out new.h5 --checkpoint checkpoint", "new.h5"),
    "update": ("update model.h5 b.h5 --dataset images", "model.h5"),
    "merge": ("merge model.h5 other.h5 --out merged.h5 --overwrite", "merged.h5"),
    "import": ("import more.npy --out data.h5 --group more --append", "data.h5"),
    "transform": ("transform model.h5 b.h5 --dataset images --out z.h5", "z.h5"),
    "report": ("report model.h5 --out report.html", "report.html"),
}
"""Commands, and the file that each writes: a new one, or in place of one that is there."""

MAY_STAY: Final = re.compile(r"\.[^/]+\.(lock|journal(\.tmp)?|[a-z0-9_]{8}\.tmp)")
"""What may stay until a repeat after a kill or Ctrl-C, or where nothing can be deleted: locks, what an import goes on from, and
a file that has its name for an instant only."""
_ENTRY: Final = re.compile(r"(\d+) +(\w+)\(")


@dataclass(frozen=True)
class Row:
    """How a command ended after one fault: `call` is the `number`-th of its kind in the thread that makes it."""

    command: str
    call: str
    number: int
    fault: str
    code: int
    output: str
    wrong: str
    told: str


@dataclass(frozen=True)
class Ending:
    """How a process ended: its exit code or minus its signal, and what it said on standard error."""

    code: int
    said: str


def digests(folder: Path) -> dict[str, str]:
    """Return a hash of each file of a folder and below."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def content(path: Path) -> str:
    """Return a hash of what a file says: of its arrays if it is HDF5; "" where it is not there."""
    if not path.exists():
        return ""
    return bits(path) if path.suffix == ".h5" else hashlib.blake2b(path.read_bytes()).hexdigest()


class Trials:
    """A folder with small data and models, and commands that run in copies of it."""

    def __init__(self, folder: Path) -> None:
        self._log, self._made, self.here = folder / "log", folder / "made", folder / "here"
        self._made.mkdir()
        images = np.random.default_rng(0).integers(0, 256, (65, 7, 7), dtype=np.uint8)
        for number, name in enumerate("abc"):
            with h5py.File(self._made / f"{name}.h5", "w") as file:
                file["images"] = images[20 * number : 20 * number + 20]
        np.save(self._made / "first.npy", images[:5])
        np.save(self._made / "more.npy", images[60:])
        self._renew()
        for words in (
            f"fit a.h5 {FIT} --out model.h5",
            "update model.h5 c.h5 --dataset images --alone --out other.h5",
            "import first.npy --out data.h5 --group first",
        ):
            self._succeed(words)
        shutil.copyfile(self.here / "model.h5", self.here / "merged.h5")
        shutil.rmtree(self._made)
        self.here.rename(self._made)

    def _renew(self) -> None:
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(self._made, self.here)

    def _succeed(self, words: str) -> None:
        ended = self._run(words)
        if ended.code:
            raise RuntimeError(f"smtdist {words} ended with {ended.code}: {ended.said}")
        for module in self._log.with_suffix(".modules").read_text().splitlines():
            with suppress(ImportError):
                importlib.import_module(module)

    def _run(self, words: str, *strace: str) -> Ending:
        """Run a command in a fork, under strace if it has options."""
        ready, is_ready = os.pipe()
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            self._become(words, is_ready, wait)
        os.close(wait)
        os.read(ready, 1)
        os.close(ready)
        os.close(is_ready)
        tracer = None
        if strace:
            options = ["strace", "-f", "-y", "-s", "1", "-o", str(self._log), *strace, "-p", str(child)]
            tracer = subprocess.Popen(options, stderr=subprocess.PIPE)
            assert tracer.stderr is not None
            if b"attached" not in (line := tracer.stderr.readline()):
                raise RuntimeError(f"strace cannot trace: {line.decode()}")
        os.close(go)
        _, status = os.waitpid(child, 0)
        if tracer is not None:
            tracer.communicate()
        return Ending(os.waitstatus_to_exitcode(status), self._log.with_suffix(".err").read_text())

    def _become(self, words: str, is_ready: int, wait: int) -> NoReturn:
        """Write to the pipe `is_ready`, and become the command line once the other end of `wait` is closed."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
            os.chdir(os.sep)
            for number, suffix in ((1, ".out"), (2, ".err")):
                file = os.open(self._log.with_suffix(suffix), os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
                os.dup2(file, number)
                os.close(file)
            os.write(is_ready, b".")
            os.close(is_ready)
            os.read(wait, 1)
            os.close(wait)
            sys.argv = ["smtdist", *(self._word(word) for word in words.split())]
            try:
                cli.main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            sys.stderr.write(f"Traceback: {error!r}\n")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            self._log.with_suffix(".modules").write_text("\n".join(sys.modules))
            os._exit(code)

    def _word(self, word: str) -> str:
        return str(self.here / word) if "." in word or word == "checkpoint" else word

    def positions(self, name: str) -> list[tuple[str, int]]:
        """Return the calls of a command that touch its folder, each by its name and number."""
        self._renew()
        ended = self._run(WORK[name][0], "-e", f"trace={CALLS}")
        if ended.code:
            raise RuntimeError(f"smtdist {name} ended with {ended.code} under strace: {ended.said}")
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        found = set()
        for line in self._log.read_text(errors="replace").splitlines():
            if entry := _ENTRY.match(line):
                thread, call = entry.groups()
                counts[thread, call] += 1
                if str(self.here) in line:
                    found.add((call, counts[thread, call]))
        return sorted(found)

    def clean(self, name: str) -> tuple[str, list[str]]:
        """Run a command undisturbed; return what its output says and the files of the folder then."""
        self._renew()
        self._succeed(WORK[name][0])
        return content(self.here / WORK[name][1]), list(digests(self.here))

    def trial(
        self,
        name: str,
        call: str,
        number: int,
        fault: str,
        new: str,
        files: list[str],
        before: dict[str, str],
    ) -> Row:
        """Run a command with one fault, look at its folder, and repeat it."""
        words, out = WORK[name]
        self._renew()
        ended = self._run(
            words, "-e", f"trace={call}", "-e", f"inject={call}:{FAULTS[fault]}:when={number}"
        )
        after = digests(self.here)
        wrong = []
        if ended.code not in CODES[fault]:
            wrong.append(f"ended with {ended.code}")
        said = [line for line in ended.said.splitlines() if line.startswith("smtdist: ")]
        if "Traceback" in ended.said or (ended.code > 0 and len(said) != 1):
            wrong.append("not one sentence")
        told = (said or ended.said.strip().splitlines() or [""])[-1].replace(str(self.here), "FOLDER")
        output = "old"
        if after.get(out) != before.get(out):
            output = self._kind(out, new)
        if output not in ("old", "new", "held back") or (ended.code == 0 and output == "old"):
            wrong.append(f"the output is {output}")
        changed = [other for other, digest in before.items() if other != out and after.get(other) != digest]
        if changed:
            wrong.append(f"changed {', '.join(changed)}")
        left = [
            other
            for other in after
            if other not in before and other != out and not other.startswith("checkpoint/")
        ]
        may_stay = ended.code not in (0, 1) or call.startswith("unlink")
        if left and not (may_stay and all(MAY_STAY.fullmatch(other) for other in left)):
            wrong.append(f"left {', '.join(left)}")
        if output != "new" or left:
            again = self._run(words)
            done = again.code == 0 or output == "new"  # what is there already may be refused
            if not done or content(self.here / out) != new:
                wrong.append(f"the repeat ended with {again.code}: {again.said.strip()[-200:]}")
            elif not (call.startswith("unlink") and again.code) and list(digests(self.here)) != files:
                odd = sorted(set(digests(self.here)) ^ set(files))
                wrong.append(f"the repeat left other files: {', '.join(odd)}")
        return Row(
            name, call, number, fault, ended.code, output.partition(" (")[0], "; ".join(wrong), told[:300]
        )

    def _kind(self, out: str, new: str) -> str:
        """Say what an output is that is not what it was, byte for byte."""
        try:
            require_finished(self.here / out)
            found = content(self.here / out)
        except DataError:
            return "held back"  # smtdist refuses to read it until the import is repeated
        except Exception as error:
            return f"BROKEN ({error})"
        return {content(self._made / out): "old", new: "new"}.get(found, "OTHER")

    def all(self, name: str, faults: list[str], every: int) -> list[Row]:
        """Return a row for every fault at every position of a command, or at each `every`-th."""
        before = digests(self._made)
        new, files = self.clean(name)
        rows = []
        for call, number in self.positions(name)[::every]:
            for fault in faults:
                rows.append(self.trial(name, call, number, fault, new, files, before))
                if rows[-1].wrong:
                    print(rows[-1], flush=True)
        return rows


def table(rows: list[Row]) -> str:
    """Return how the commands ended, a line for each command and fault, in Markdown."""
    kinds = ("went on", "old", "new", "held back")
    lines = [
        f"| command | fault | positions | {' | '.join(kinds)} | not as promised |",
        "|---|---|" + "---:|" * (len(kinds) + 2),
    ]
    for name, fault in dict.fromkeys((row.command, row.fault) for row in rows):
        mine = [row for row in rows if (row.command, row.fault) == (name, fault)]
        ended = collections.Counter("went on" if row.code == 0 else row.output for row in mine)
        counts = " | ".join(str(ended[kind]) for kind in kinds)
        wrong = sum(bool(row.wrong) for row in mine)
        lines.append(f"| {name} | {fault} | {len(mine)} | {counts} | {wrong} |")
    good = sum(not row.wrong for row in rows)
    return "\n".join([f"# {good} of {len(rows)} faults ended as promised", "", *lines, ""])


def main() -> None:
    """Run the commands and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK), help="commands")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--every", type=int, default=1, help="take each N-th position")
    parser.add_argument("--out", default="", help="folder for the tables")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(Path(folder))
        for name in options.only:
            started = time.monotonic()
            rows += trials.all(name, options.faults, options.every)
            print(f"{name}: {len(rows)} faults so far, {time.monotonic() - started:.0f} s", flush=True)
    print(table(rows))
    if options.out:
        told = collections.Counter((row.command, row.call, row.fault, row.code, row.output) for row in rows)
        keys = ("command", "call", "fault", "code", "output", "times")
        ended = [dict(zip(keys, (*key, times), strict=True)) for key, times in told.items()]
        wrong = [asdict(row) for row in rows if row.wrong]
        path = write_record(options.out, "file-operations", {"ended": ended, "wrong": wrong})
        path.with_suffix(".md").write_text(table(rows))
    sys.exit(0 if not any(row.wrong for row in rows) else 1)


if __name__ == "__main__":
    main()
