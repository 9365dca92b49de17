"""Dated results: what was run, on what, and what came out, as JSON."""

from __future__ import annotations

import datetime
import json
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from smtdist.engine.executor import available_cores


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
    }


def write_record(folder: str, name: str, result: dict[str, Any]) -> Path:
    """Write one result as FOLDER/DATE-NAME.json, with the command and the machine; the folder is made where it is missing."""
    today = datetime.date.today().isoformat()
    module = str(getattr(sys.modules["__main__"].__spec__, "name", "")).removesuffix(".__main__")
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    command = f"python -m {module} {shlex.join(words)}" if module else shlex.join(words)
    path = Path(folder, f"{today}-{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"date": today, "command": command, "machine": machine(), "result": result}, indent=1)
        + "\n"
    )
    return path
