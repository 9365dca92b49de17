"""Settings, declared once: each with its default, its rule and its meaning. All else follows from the declaration.

    class WordSettings(Settings):
        '''Settings of a fit of words.'''

        OF: ClassVar[str] = "words"

        window: int = setting(whole(1), "neighbours of a word: tokens before and after it.", default=4)

gives `WordSettings(window=2)`, checks of every value, `replace`, JSON there and back, a section of the docstring, the tables of
`smtdist settings` and of the documentation, and one sentence for an unknown name, a wrong type or a wrong value.

Settings cannot be changed in place: tasks, files and facts hold them.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from smtdist.errors import ConfigurationError, in_words


class Rule(NamedTuple):
    """What a value must be: whether it is, and in words, as the end of "it must be ...".

    >>> (whole(1) | one_of("whole")).expected
    'a whole number of at least 1, or whole'
    """

    accepts: Callable[[Any], bool]
    expected: str
    plain: Callable[[Any], Any] = lambda value: value
    """Turns another spelling of a value into it."""

    def __or__(self, other: tuple[Any, ...]) -> Rule:
        first, second = self, Rule(*other)
        return Rule(
            lambda value: first.accepts(value) or second.accepts(value),
            f"{first.expected}, or {second.expected}",
            lambda value: first.plain(second.plain(value)),
        )


def is_whole(value: object) -> bool:
    """Tell whether a value is a whole number, which True is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number.

    >>> is_number(0.5), is_number(True), is_number(math.inf)
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def whole(least: int, most: int | None = None, what: str = "a whole number") -> Rule:
    """A whole number within bounds; `what` says in words what it counts."""
    top = "" if most is None else f" and at most {most:,}"
    return Rule(
        lambda value: is_whole(value) and value >= least and (most is None or value <= most),
        f"{what} of at least {least}{top}",
    )


def number(
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    what: str = "a number",
) -> Rule:
    """A finite number within bounds, of which `above` and `below` are no values themselves; `what` says what it is.

    >>> number(0, below=1).expected, number(above=0).expected
    ('a number of at least 0 and below 1', 'a number above 0')
    """
    bounds = {"of at least": least, "above": above, "at most": most, "below": below}

    def accepts(value: Any) -> bool:
        return (
            is_number(value)
            and (least is None or value >= least)
            and (most is None or value <= most)
            and (above is None or value > above)
            and (below is None or value < below)
        )

    words = " and ".join(f"{name} {bound:g}" for name, bound in bounds.items() if bound is not None)
    return Rule(accepts, f"{what} {words}".rstrip())


def one_of(*choices: Any) -> Rule:
    """One of the values that are named; True is no 1."""
    return Rule(
        lambda value: any(value == choice and type(value) is type(choice) for choice in choices),
        ("one of " if len(choices) > 1 else "") + ", ".join(map(str, choices)),
    )


def several(rule: Rule, expected: str, least: int = 0) -> Rule:
    """Values in order, at least so many, each of which a rule accepts; `expected` says it in words. One may come alone."""
    return Rule(
        lambda value: isinstance(value, tuple) and len(value) >= least and all(map(rule.accepts, value)),
        expected,
        lambda value: (value,) if rule.accepts(value) else value,
    )


FLAG = Rule(lambda value: isinstance(value, bool), "true or false")
NULL = Rule(lambda value: value is None, "None")
ANYTHING = Rule(lambda value: True, "anything")
TEXT = Rule(lambda value: isinstance(value, str), "a word")
TABLE = Rule(lambda value: isinstance(value, Mapping), "a table of names and values")
PAIR = Rule(
    lambda value: (
        isinstance(value, tuple) and len(value) == 2 and all(map(is_number, value)) and value[0] < value[1]
    ),
    "two numbers, the lower one first, as in 0,4095",
)


class Declared(NamedTuple):
    """What is declared of a setting beside its name and type."""

    rule: Rule
    meaning: str
    aliases: tuple[str, ...] = ()
    values: Mapping[Any, Any] = {}
    advanced: bool = False
    stored: str = ""


def setting(
    rule: Rule,
    meaning: str,
    *,
    default: Any,
    aliases: tuple[str, ...] = (),
    values: Mapping[Any, Any] | None = None,
    advanced: bool = False,
    stored: str = "",
) -> Any:
    """Declare a setting.

    Parameters
    ----------
    rule : what a value must be.
    meaning : what it does, in a sentence or two without a capital, units included.
    default : its value where none is given.
    aliases : other names of it, such as that of an earlier version.
    values : other words or numbers for its values.
    advanced : whether short lists leave it out.
    stored : its name in files and in identities, where that is another one; also an alias.
    """
    others = (*aliases, stored) if stored else aliases
    declared = Declared(rule, meaning, others, values or {}, advanced, stored)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata={"setting": declared})
    return dataclasses.field(default=default, metadata={"setting": declared})


def seed(meaning: str = "seed of every random choice.") -> Any:
    """Declare `random_state`, which files call seed."""
    rule = whole(0, 2**63 - 1)._replace(
        expected="a whole number from 0 on, so that the fit can be repeated"
    )
    return setting(rule, meaning, default=0, stored="seed")


GRIDS = several(whole(1), "grids such as [3] or [1, 2, 3]", least=1)
SHARED: Mapping[str, Declared] = {
    "n_atoms": Declared(whole(1), "number of atoms, K.", ("dictionary",), stored="units"),
    "patch_size": Declared(
        whole(1),
        "side T of the square patches, in pixels; at most the side of the image.",
        stored="patch",
    ),
    "contrast_bias": Declared(
        number(0),
        "number added to the variance of a patch (pixels in [0, 1]) before contrast is normalised.",
    ),
    "whitening_reg": Declared(number(0), "λ of the ZCA whitening.", stored="ridge"),
    "images": Declared(whole(0), "images in a round; 0 means all."),
    "patches": Declared(whole(0), "patches of each image in a round; 0 means all."),
    "whiten_images": Declared(whole(0), "images from which the whitening is computed; 0 means all."),
    "n_init": Declared(
        whole(1),
        "starts of learning, each from other patches. The one with the lowest mean loss over the last tenth of its rounds is "
        "kept. Each start takes as many passes as one.",
    ),
    "start": Declared(
        one_of("patches", "random"), 'start from random "patches", or from "random" numbers.'
    ),
    "decay": Declared(number(0), "the step is halved every `decay` rounds; 0 means never."),
    "pooling_grid": Declared(
        GRIDS, "grids over which codes are pooled, such as [2] for 2 x 2.", stored="pooling"
    ),
    "pixel_range": Declared(PAIR | NULL, "(black, white) of float images."),
    "augment_flip": Declared(
        FLAG, "also use the mirror image (left to right) of every image.", stored="flip"
    ),
    "to_grayscale": Declared(FLAG, "convert colour images to greyscale (luminance) first.", stored="grey"),
    "n_components": Declared(whole(1), "dimensions of the embedding."),
    "drop_components": Declared(whole(0), "number of leading dimensions that are left out.", stored="drop"),
    "difference_order": Declared(
        one_of(1, 2), "1 compares a sample with its neighbours, 2 with their mean.", stored="order"
    ),
    "second_moment": Declared(
        one_of("second", "centred"),
        'V is the "second", also "raw", moment of the codes (SMT 2023), or the "centred" one (SMT 2018).',
        values={"raw": "second"},
        stored="moment",
    ),
    "pool_size": Declared(
        whole(1) | NULL,
        "side of the windows over which the embeddings of patches are averaged, in steps of `patch_stride`. None, with "
        "`pool_stride` None too: 4 windows cover the shorter side of the image. None alone: 4.",
    ),
    "pool_stride": Declared(
        whole(1) | NULL,
        "step from one window to the next, likewise. None: see `pool_size`; None alone: 2.",
    ),
}
"""Settings that models of several kinds have, by name."""


def shared(name: str, default: Any, meaning: str = "", *, advanced: bool = False) -> Any:
    """Declare a setting that models of several kinds have, with a default of its own; `meaning` says it for this kind."""
    one = SHARED[name]
    others = one._asdict() | {"meaning": meaning or one.meaning, "advanced": advanced}
    return setting(default=default, **others)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """Settings of one kind of model: subclasses declare them with `setting`.

    >>> class Example(Settings):
    ...     '''Settings of an example.'''
    ...
    ...     OF = "an example"
    ...     rate: float = setting(number(above=0), "step of a round.", default=0.5, aliases=("speed",))
    >>> Example(speed=2.0)
    Example(rate=2.0)
    >>> Example.from_json(Example(rate=0.1).to_json()) == Example(rate=0.1)
    True
    >>> Example(rate=-1)
    Traceback (most recent call last):
    smtdist.errors.ConfigurationError: rate is -1; it must be a number above 0.
    >>> Example(rat=1.0)
    Traceback (most recent call last):
    smtdist.errors.ConfigurationError: There is no setting 'rat' of an example; did you mean rate?
    """

    OF: ClassVar[str] = "a model"
    SORTED: ClassVar[bool] = False
    """Whether JSON has the names in order of the alphabet, as files of images do."""
    EARLIER: ClassVar[Mapping[str, Any]] = {}
    """Values of settings that files of earlier versions do not name, where these are not the defaults."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # what a package brings is called by its name
        cls.OF = vars(cls).get("NAME", cls.OF)
        if "__annotations__" not in vars(cls):
            cls.__annotations__ = {}
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        cls.__doc__ = documented(cls.__dict__.get("__doc__"), "Attributes", cls.declared())
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
            for (name, field), default in zip(cls.declared().items(), cls.defaults().values(), strict=True)
        ]

        def __init__(self: Settings, **given: Any) -> None:
            values, declared = self.defaults() | self.named(given), self.declared()
            for name, value in values.items():
                object.__setattr__(self, name, _plain(value, declared[name].metadata["setting"]))
            self.__post_init__()

        __init__.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign,assignment]

    def __post_init__(self) -> None:
        """Check every value, and then what does not go together."""
        for name, field in self.declared().items():
            require(name, getattr(self, name), field)
        self.check_together()

    def check_together(self) -> None:
        """Refuse settings that mean nothing together."""

    @classmethod
    def declared(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields that are settings, by name."""
        fields: Mapping[str, dataclasses.Field[Any]] = getattr(cls, "__dataclass_fields__", {})
        return {name: field for name, field in fields.items() if "setting" in field.metadata}

    @classmethod
    def undeclared(cls) -> list[str]:
        """Return the names of attributes with a type that no `setting` declares: mistakes."""
        return [field.name for field in dataclasses.fields(cls) if field.name not in cls.declared()]  # type: ignore[arg-type]

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the defaults by name."""
        return {name: default_of(field) for name, field in cls.declared().items()}

    @classmethod
    def stored_names(cls, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that settings have in files."""
        return tuple(cls.declared()[name].metadata["setting"].stored or name for name in names)

    @classmethod
    def names_today(cls) -> dict[str, str]:
        """Return the names of settings by those that they have in files."""
        return dict(zip(cls.stored_names(cls.declared()), cls.declared(), strict=True))

    @classmethod
    def named(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return values under the names of settings; ConfigurationError for an unknown name, or a name beside its alias."""
        return named(given, cls.declared(), cls.OF)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some settings changed; ConfigurationError for an unknown name or a value that is none."""
        values = {name: getattr(self, name) for name in self.declared()}
        return type(self)(**{**values, **self.named(changes)})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON types, under the names that they have in files."""
        return {
            field.metadata["setting"].stored or name: _json(getattr(self, name))
            for name, field in self.declared().items()
        }

    def shown(self) -> dict[str, Any]:
        """Return the settings as plain JSON types, under their names of today."""
        return {name: _json(getattr(self, name)) for name in self.declared()}

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(self.to_dict(), sort_keys=self.SORTED)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read settings that `to_json` wrote, also in an earlier version; ConfigurationError for what is none."""
        try:
            return cls(**{**cls.EARLIER, **json.loads(text)})
        except (ValueError, TypeError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise ConfigurationError(f"These are not settings of {cls.OF} ({error}).") from error

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{name} cannot be set: settings do not change; {type(self).__name__}.replace returns changed ones."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((type(self), self.to_json()))

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, default in self.defaults().items()
            if getattr(self, name) != default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a setting."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def require(name: str, value: Any, field: dataclasses.Field[Any]) -> None:
    """Raise ConfigurationError for a value that the rule of a setting refuses."""
    rule = field.metadata["setting"].rule
    if not rule.accepts(value):
        raise ConfigurationError(
            f"{name} is {in_words(repr(value))}; it must be {in_words(rule.expected)}."
        )


def described(declared: Mapping[str, dataclasses.Field[Any]]) -> dict[str, dict[str, Any]]:
    """Return settings with their defaults, the values they may have and what they mean."""
    return {
        name: {
            "default": _json(default_of(field)),
            "values": field.metadata["setting"].rule.expected,
            "meaning": field.metadata["setting"].meaning,
        }
        for name, field in declared.items()
    }


def named(
    given: Mapping[str, Any], declared: Mapping[str, dataclasses.Field[Any]], of: str
) -> dict[str, Any]:
    """Return values under the names of settings; ConfigurationError for an unknown name, or a name beside its alias."""
    names = {alias: name for name, field in declared.items() for alias in field.metadata["setting"].aliases}
    names |= {name: name for name in declared}
    found: dict[str, Any] = {}
    by: dict[str, str] = {}
    for name, value in given.items():
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            some = difflib.get_close_matches(str(name), declared, n=8, cutoff=0)
            hint = f"there are {', '.join(some)}{' and others' * (len(some) < len(declared))}."
            hint = f"did you mean {near[0]}?" if near else hint
            raise ConfigurationError(f"There is no setting {name!r} of {of}; {hint}")
        own = names[name]
        if own in found:
            other = by[own] if name == own else name
            raise ConfigurationError(f"{own} is given twice, also as {other}; leave one of them out.")
        found[own], by[own] = value, name
    return found


def _plain(value: Any, declared: Declared) -> Any:
    """Return a value as plain Python has it: NumPy's numbers as numbers, lists as tuples, other words for a value as it."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, str) or is_whole(value):
        value = declared.values.get(value, value)
    return declared.rule.plain(value)


def _json(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_json(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value


def documented(text: str | None, title: str, declared: Mapping[str, dataclasses.Field[Any]]) -> str:
    """Return a docstring with settings as a section of it."""
    text = inspect.cleandoc(text or "")
    lines = [f"{name} : {field.metadata['setting'].meaning}" for name, field in declared.items()]
    return "\n".join([text, "", title, "-" * len(title), *lines]) if lines else text
