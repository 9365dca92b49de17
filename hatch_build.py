"""Compile the kernels for this machine while pip builds the package, so that the first fit need not.

A wheel for other machines is built without: `HATCH_BUILD_NO_HOOKS=true python -m build`. Where the processor, Python or
Numba turns out to be another one, Numba compiles at the first use, as it does after an installation without this.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ELSEWHERE = ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
"""Variables with which Numba or Python would write elsewhere, or not at all."""


class CompileKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Run `python -m smtdist.compile` on a copy of the package; what Numba wrote beside the sources goes into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in the checkout itself where it is what will be imported."""
        if version == "editable":
            self._compile(Path(self.root))
            return
        self._copy = tempfile.TemporaryDirectory(prefix="smtdist-kernels-")  # an interrupt removes it, too
        folder = Path(self._copy.name)
        shutil.copytree(
            Path(self.root, "smtdist"), folder / "smtdist", ignore=shutil.ignore_patterns("__pycache__")
        )
        self._compile(folder)
        for path in folder.rglob("*.nb[ic]"):
            build_data["force_include"][str(path)] = path.relative_to(folder).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        if version != "editable":
            self._copy.cleanup()

    def _compile(self, folder: Path) -> None:
        """The installation succeeds whether this does or not: without it the first fit takes longer."""
        environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        found = environment.get("PYTHONPATH")  # where pip keeps what a build needs
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), *([found] if found else [])])
        done = subprocess.run(
            [sys.executable, "-m", "smtdist.compile"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            self.app.display_warning(f"Kernels will be compiled at the first fit, not now: {last[0]}")
