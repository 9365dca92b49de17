"""What the package's metadata say of where the project is: all of it follows from one line of pyproject.toml, `address`.

Where that line is empty, nothing is said: no addresses, no contact, and the README has neither links to files nor pictures.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"```.*?```|(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.DOTALL)
"""Links and pictures of a page, and its blocks of code, where brackets are no links."""


class Metadata(MetadataHookInterface):
    """Adds authors, addresses and the README to the metadata, for hatchling."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields that pyproject.toml calls dynamic."""
        page, mail = (self.config["address"][name].rstrip("/") for name in ("page", "mail"))
        metadata["authors"] = [{"name": "smtdist maintainers"} | ({"email": mail} if mail else {})]
        metadata["urls"] = urls(page) if page else {}
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = described(readme, page, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def urls(page: str) -> dict[str, str]:
    """Return the addresses of a project whose page is on a host of Git repositories."""
    return {
        "Homepage": page,
        "Documentation": f"{page}/tree/main/docs",
        "Repository": page,
        "Changelog": f"{page}/blob/main/CHANGELOG.md",
        "Issues": f"{page}/issues",
        "Security": f"{page}/blob/main/SECURITY.md",
    }


def described(readme: str, page: str, version: str) -> str:
    """Return a README whose links lead to the files of a release; without a page they are words, and pictures are left out."""

    def link(found: re.Match[str]) -> str:
        picture, text, target = found["picture"], found["text"], found["target"]
        if target is None or "://" in target:
            return found[0]
        if page:
            base = f"{page}/{'raw' if picture else 'blob'}/v{version}/README.md"
            return f"{picture}[{text}]({urljoin(base, target)})"
        return "" if picture else text

    return LINK.sub(link, readme)
