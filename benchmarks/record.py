"""Dated results: what was run, on what, and what came out, as JSON."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from smtdist.kernels.cpu.dictionary import in_use
from smtdist.kernels.device import device_name
from smtdist.kernels.products import library
from smtdist.kernels.threads import available_cores

PROCESSOR = ("SMTDIST_PRODUCTS", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "OPENBLAS_CORETYPE")
"""Environment variables that let a processor appear as another one; they are part of the command."""


def machine() -> dict[str, Any]:
    """Describe this machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": available_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **in_use(),
        "library": library(),
        **({"device": device} if (device := device_name()) else {}),
    }


def write_record(folder: str, name: str, result: dict[str, Any]) -> Path:
    """Write one result as FOLDER/DATE-NAME.json, with the command and the machine; the folder is made where it is missing.

    A record of the same command on the same day is replaced; one of another command stays, and the new one is
    DATE-NAME-2.json, or what number is free.
    """
    today = datetime.date.today().isoformat()
    module = str(getattr(sys.modules["__main__"].__spec__, "name", "")).removesuffix(".__main__")
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    words = ["python", "-m", module, *words] if module else words
    given = [
        f"{variable}={shlex.quote(os.environ[variable])}"
        for variable in PROCESSOR
        if variable in os.environ
    ]
    command = " ".join([*given, shlex.join(words)])
    path = _place(Path(folder), f"{today}-{name}", command)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"date": today, "command": command, "machine": machine(), "result": result}, indent=1)
        + "\n"
    )
    return path


def records(folder: Path, name: str) -> list[Path]:
    """Return the records of a name, which may hold `*`: the earlier first, by date and number."""
    found = {*folder.glob(f"*-{name}.json"), *folder.glob(f"*-{name}-[0-9].json")}
    return sorted(found, key=lambda path: path.stem)  # NAME.json is before NAME-2.json by their stems alone


def _place(folder: Path, name: str, command: str) -> Path:
    paths = (
        folder / f"{name}{end}.json" for end in itertools.chain([""], (f"-{n}" for n in itertools.count(2)))
    )
    return next(
        one for one in paths if not one.exists() or json.loads(one.read_text())["command"] == command
    )
