"""How Sphinx builds the site from what `docs/build.py` gathers. There is no formula, so no engine for any is loaded."""

import re
from importlib.metadata import version as installed
from typing import Any

import smtdist

project = "smtdist"
release = version = installed("smtdist")
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["docs/pictures", "docs/figures"]

# pages are Markdown with the anchors of GitHub
myst_heading_anchors = 6

# notebooks run in a folder of their own; a live view shows as text, since its widget needs a kernel
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_mime_priority_overrides = [("*", "application/vnd.jupyter.widget-view+json", None)]
nb_ipywidgets_js: dict[str, Any] = {}

autodoc_typehints = "none"

html_theme = "furo"
html_title = f"smtdist {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
smartquotes = False  # which would make one dash of the two of an option
html_use_index = False  # the search and the page of public names have the same
html_domain_indices = False


def as_rst(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Turn a docstring into what Sphinx reads: `code`, sections, and lines such as `name : meaning`."""
    text = re.sub(r"^(\w+)\n-{3,}$", r".. rubric:: \1\n", "\n".join(lines), flags=re.MULTILINE)
    text = re.sub(r"(?<=\.) (?=\w+ : )", "\n", text)
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", _code, text)
    lines.clear()
    inside = False  # a definition, which ends with its paragraph
    for line in text.splitlines():
        inside = bool(line) and inside
        if found := re.fullmatch(r"(\w[\w, ]*) : (.*)", line):
            lines += ["", f"**{found[1]}**"]
            inside, line = True, found[2]
        lines.append(f"    {line.strip()}" if inside else line)


def _code(found: re.Match[str]) -> str:
    """Return a word in backticks as code, and a public name as a link."""
    name = found[1].removeprefix("smtdist.")
    return f":py:obj:`smtdist.{name}`" if name in smtdist.__all__ else f"``{found[1]}``"


def left_out(_app: Any, what: str, name: str, obj: Any, skip: bool, _options: Any) -> bool | None:
    """Leave out what scikit-learn brings to every estimator."""
    home = getattr(obj, "__module__", None) or getattr(getattr(obj, "fget", None), "__module__", "")
    return True if what == "class" and not str(home).startswith("smtdist") else None


def setup(app: Any) -> None:
    """Register both."""
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("autodoc-skip-member", left_out)
