"""The Dockerfile as instructions: enough of its grammar for the one that is here."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "container"


@dataclass(frozen=True)
class Stage:
    """One FROM and what follows it."""

    name: str
    parent: str
    steps: tuple  # (instruction, text)

    def all(self, instruction):
        """Return the texts of one instruction."""
        return [text for step, text in self.steps if step == instruction]


def stages(path=FOLDER / "Dockerfile"):
    """Return the stages by name, in order, and the ARGs before the first one."""
    found, arguments, name, parent, steps = {}, {}, None, None, []
    for instruction, text in _instructions(path.read_text()):
        if instruction == "FROM":
            if name:
                found[name] = Stage(name, parent, tuple(steps))
            parent, name = re.fullmatch(r"(\S+) AS (\S+)", text).groups()
            steps = []
        elif name is None:
            assert instruction == "ARG", instruction
            key, _, value = text.partition("=")
            arguments[key] = value
        else:
            steps.append((instruction, text))
    found[name] = Stage(name, parent, tuple(steps))
    return found, arguments


def _instructions(text):
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        instruction, rest = line.split(None, 1)
        yield instruction, re.sub(r"\s+", " ", rest).strip()


def lineage(name):
    """Return the stages that a stage is built on, the first one first, itself last."""
    found, _ = stages()
    chain = []
    while name in found:
        chain.insert(0, found[name])
        name = found[name].parent
    return chain


def environment(name):
    """Return the variables that an image of this stage sets."""
    pairs = [pair for stage in lineage(name) for text in stage.all("ENV") for pair in text.split()]
    return dict(pair.split("=", 1) for pair in pairs)


def words(text):
    """Return the words of an instruction in its JSON form."""
    return json.loads(text[text.index("[") :])


def context():
    """Return the files of the checkout that the ignore file lets into a build, relative to it."""
    rules = [
        line
        for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert rules[0] == "*", "everything is left out but what is named"
    named = [Path(rule[1:]) for rule in rules if rule.startswith("!")]
    left_out = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    files = []
    for start in named:
        inside = [ROOT / start] if (ROOT / start).is_file() else sorted((ROOT / start).rglob("*"))
        files += [
            path.relative_to(ROOT)
            for path in inside
            if path.is_file()
            and not any(
                Path(part).match(rule) for rule in left_out for part in path.relative_to(ROOT).parts
            )
        ]
    return files
