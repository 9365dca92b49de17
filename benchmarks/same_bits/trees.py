"""A tree of the project run from outside: its files out of git, and its commands in processes of their own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from benchmarks.same_bits.fits import Command, Fit, Translation

LIMIT = 300
"""Seconds after which a run that is to be stopped is given up."""

RESUMABLE = "run.json"
"""File of a checkpoint from which on it can be resumed."""


class Failed(RuntimeError):
    """A command of a fit ended badly."""


def unpack(commit: str, repository: Path, folder: Path) -> str:
    """Write the files of a commit to a folder; return the commit's whole name."""
    said = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "--verify", f"{commit}^{{commit}}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    packed = subprocess.run(
        ["git", "-C", str(repository), "archive", "--format=tar", said.stdout.strip(), "smtdist"],
        check=True, capture_output=True,
    )  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return said.stdout.strip()


def environment(tree: Path) -> dict[str, str]:
    """Return the environment in which `smtdist` is the one of a tree; one BLAS thread, so that a busy machine changes nothing."""
    return {
        **os.environ, "PYTHONPATH": str(tree.resolve()), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0", "COLUMNS": "200",
    }  # fmt: skip


def require_own(tree: Path) -> None:
    """Refuse a tree that the interpreter does not import from."""
    code = "import smtdist; print(smtdist.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tree),
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    if not Path(said.stdout.strip()).is_relative_to(tree.resolve()):
        raise Failed(f"{tree} is not imported; {said.stdout.strip()} is.")


class Tree:
    """A tree and a process in which its commands run; a context that ends the process."""

    def __init__(self, path: Path, translation: Translation) -> None:
        self.path, self.translation = path.resolve(), translation
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("commands.py"))],
            env=environment(path),
            cwd=path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def run_fit(self, fit: Fit, folder: Path, first: Tree | None = None) -> list[str]:
        """Run a fit's commands in a folder; return remarks, such as that a run was over before it could be stopped.

        first : the tree that runs the first command, if it is another one.
        """
        folder.mkdir(parents=True)
        remarks = []
        for number, command in enumerate(fit.commands):
            tree = first if first is not None and number == 0 else self
            words = tree.translation(command)
            if number == 0 and fit.stopped is not None:
                if not _stopped(words, tree.path, folder, *fit.stopped):
                    remarks.append("was over before it was stopped")
            else:
                tree.run(words, folder)
        return remarks

    def run(self, words: Command, folder: Path) -> None:
        """Run one command in a folder; raises Failed with what it said."""
        if self.process.stdin is None or self.process.stdout is None:
            raise Failed("the process has no pipes")
        self.process.stdin.write(json.dumps({"folder": str(folder), "words": words}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"smtdist {' '.join(words)}\nthe process died")
        answer = json.loads(line)
        if answer["code"]:
            raise Failed(f"smtdist {' '.join(words)}\nexit code {answer['code']}: {answer['said']}")


def _stopped(words: Command, tree: Path, folder: Path, files: int, name: str) -> bool:
    """Start a command and stop it when its checkpoint has so many files; return whether it was stopped before its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "smtdist", *words],
        cwd=folder, env=environment(tree), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + LIMIT
        while process.poll() is None and time.monotonic() < until:
            found = [path for path in (folder / "ck").rglob("*") if path.is_file()]
            if len(found) >= files and (folder / "ck" / RESUMABLE).exists():
                process.send_signal(getattr(signal, name))
                break
            time.sleep(0.005)
        code = process.wait(timeout=LIMIT)
    finally:
        process.kill()
    return code != 0
