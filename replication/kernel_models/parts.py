"""Parts of a long benchmark, each kept in a file when it is done: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kept(folder: str | None, name: str, told: dict[str, Any], compute: Callable[[], Any]) -> Any:
    """Return what `compute` returned for the same settings before, from FOLDER/name.json, or compute and keep it."""
    if folder is None:
        return compute()
    path = Path(folder, f"{name}.json")
    if path.is_file():
        content = json.loads(path.read_text())
        if content["told"] == json.loads(json.dumps(told)):
            return content["result"]
    result = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"told": told, "result": result}))
    os.replace(part, path)
    return result
