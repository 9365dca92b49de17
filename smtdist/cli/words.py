"""`words`: embed the words of a text by whom they occur near, and ask which are alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.coders import say_costs
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import engine_for, print_json, result_console, say, say_repeated
from smtdist.data.text import TextSource
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.errors import counted
from smtdist.models import merge as merging
from smtdist.models import store
from smtdist.models.words import fit
from smtdist.models.words.documents import withdraw_lines
from smtdist.models.words.model import WordModel, WordSettings
from smtdist.monitor import tables

OUT = "words.h5"


def words(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Text files in UTF-8, plain or gzipped, with one paragraph a line."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="MODEL.h5", help=f"Model file to write. Default: {OUT}.")
    ] = None,
    changes: Annotated[dict[str, Any], opt.SettingOptions(WordSettings)] = opt.NOTHING,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.h5",
            help="Use this fitted model, for example with --near. With TEXT: add the text to it and write --out.",
        ),
    ] = None,
    from_model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.h5", help="Take vocabulary and settings from this model, and count only TEXT."
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MODEL.h5",
            help="Add the counts of another model, which has the vocabulary of --model; may be repeated.",
        ),
    ] = None,
    subtract: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL.h5", help="Subtract the counts of such a model; may be repeated."),
    ] = None,
    allow_repeats: opt.Repeats = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what the passes will cost, and read no text.")
    ] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Withdraw TEXT from --model instead of adding it.")
    ] = False,
    lines: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIRST-LAST",
            help="With --withdraw: only these lines of the file, counted from 1; may be repeated.",
        ),
    ] = None,
    near: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="Show the nearest words, and the words that co-occur most; may be repeated.",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of words to show with --near.")] = 10,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Embed words by the words that occur near them: a pass for the vocabulary, a pass for the pairs, a sparse solve.

    Many files, plain or gzipped, are one text: smtdist words books/*.txt.gz notes.txt --out w.h5

    Show near words: smtdist words --model w.h5 --near raccoon --near aspirin

    Add a file, or withdraw one: smtdist words new.txt --model w.h5 --out more.h5

    Withdraw a document inside a file: smtdist words all.txt.gz --model w.h5 --withdraw --lines 120-480 --out less.h5

    Vectors for gensim: smtdist export w.h5 --format word2vec --out vectors.txt
    """
    target = _checked(text, out, model, withdraw, changes)
    ranges = [_range(one) for one in lines or []]
    if ranges and (not withdraw or plan):
        raise WrongUsage("--lines says which lines of TEXT to withdraw; add --withdraw.")
    if allow_repeats and model is None:
        raise WrongUsage("--allow-repeats works only with --model; leave it out.")
    both = [*(merge or []), *(subtract or [])]
    if (both and (model is None or text)) or (from_model and (model or changes or not text)):
        raise WrongUsage(
            "--merge and --subtract need --model and no TEXT; --from-model needs TEXT, and no --model or "
            "settings."
        )
    if both:
        target = out or Path(OUT)
    if plan:
        if not text:
            raise WrongUsage("--plan needs the text; give its files.")
        source = TextSource.open(text)
        settings, base = _asked(changes, model or from_model)
        say_costs(
            lambda engine: fit.plan_words(source, settings, engine, base=base),
            source,
            where,
            checkpoint,
            json,
        )
        return
    if target is not None:
        check_target(target, overwrite, inputs=(*(text or ()), model, from_model, *both))
    result: dict[str, Any] = {}
    if target is None:
        assert model is not None
        found = store.load(model, kind=WordModel)
    elif both:
        assert model is not None
        first, total = merging.merged(
            (str(model), store.load(model, kind=WordModel)),
            ((str(path), store.load(path, kind=WordModel)) for path in merge or []),
            ((str(path), store.load(path, kind=WordModel)) for path in subtract or []),
            repeats=allow_repeats,
        )
        found = merging.resolved(first, total)
    else:
        source = TextSource.open(text or [])
        settings, base = _asked(changes, model or from_model)
        given = None if base is None or from_model is None else base.vocabulary

        def facts() -> Facts:
            if base is None or given is not None:
                return fit.words_facts(source, settings, None if given is None else given.words)
            return base.facts(source, ranges)

        with engine_for(where, source, checkpoint, facts) as engine:
            if base is None or given is not None:
                found, records = fit.fit_words(source, settings, engine, vocabulary=given)
            elif ranges:
                found, records = withdraw_lines(base, source, ranges, engine)
            else:
                found, records = merging.update(
                    base, source, engine, withdraw=withdraw, repeats=allow_repeats
                )
        result["passes"] = records
    if target is not None:
        result |= {"model": str(target), "bytes": store.save(found, target, overwrite=overwrite)}
    result |= found.summary()
    if both or (text and model is not None and not withdraw):
        result["n_repeated"] = merging.repeated(found)
    result["near"] = {
        word: {
            "nearest": [one._asdict() for one in found.nearest(word, count)],
            "beside": [one._asdict() for one in found.most_cooccurring(word, count)],
        }
        for word in near or []
    }
    _report(result, json)


def _checked(
    text: list[str] | None, out: Path | None, model: Path | None, withdraw: bool, changes: dict[str, Any]
) -> Path | None:
    """Refuse options that have no meaning together; return the file to write, None where a model is only asked."""
    if not text and model is None:
        raise WrongUsage("Give text files to fit, or a fitted model with --model.")
    if not text and (changes or withdraw):
        raise WrongUsage("Without text there is nothing to compute; leave out --withdraw and settings.")
    if withdraw and model is None:
        raise WrongUsage("--withdraw needs --model, the model to withdraw text from.")
    if text and model is not None and changes:
        raise WrongUsage(
            f"--model brings its own settings, so others ({', '.join(changes)}) cannot be set; leave them out."
        )
    if not text:
        return None
    return out or Path(OUT)


def _range(text: str) -> tuple[int, int]:
    """Return the lines that "12-80" or "12" names."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise WrongUsage(f"--lines {text} is not a range of lines; write it as 12-80, or 12 for one line.")
    lines = int(first), int(last if dash else first)
    if not 1 <= lines[0] <= lines[1]:
        raise WrongUsage(
            f"--lines {text} is not a range of lines; count from 1, and write the smaller number first."
        )
    return lines


def _asked(changes: dict[str, Any], base: Path | None) -> tuple[WordSettings, WordModel | None]:
    """Return the settings, and the model they come from if there is one."""
    if base is not None:
        found = store.load(base, kind=WordModel)
        return found.settings, found
    with usage():
        return WordSettings(**changes), None


def _report(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    if "passes" in result:
        result_console().print(tables.passes_table(result["passes"]))
    say_repeated(result.get("n_repeated", 0))
    for word, lists in result["near"].items():
        for title, key in (("nearest", "nearest"), ("most often beside it", "beside")):
            shown = ", ".join(
                f"{one['word']} ({one['cosine']:.2f}; {one['times']:,})" for one in lists[key]
            )
            say(f"{word}, {title}: {shown}")
    line = (
        f"{counted(result['n_words'], 'word')} ({result['n_apart']:,} take no part), {result['n_positions']:,} tokens, "
        f"{counted(result['n_pairs'], 'pair')}, {counted(result['n_components'], 'component')}"
    )
    name = f"{result['model']}: {tables.size(result['bytes'])}, " if "model" in result else ""
    say(name + line)
