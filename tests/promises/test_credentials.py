"""Passwords and signatures in addresses are used, and neither kept, nor printed, nor part of what tells data apart."""

import json

import pytest
from serving import served

from smtdist.data import opening
from smtdist.errors import DataError, masked

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

USER, SIGNATURE = "pa55word", "s1gnature"


@pytest.fixture
def address(at):
    """Give the address of a file in a served folder."""
    with served(at) as (url, _):
        yield (
            lambda name, user=USER, signature=SIGNATURE: (
                f"{url.replace('://', f'://me:{user}@')}/{name}?X-Amz-Signature={signature}"
            )
        )


def leaks(text):
    content = text if isinstance(text, bytes) else text.encode()
    return [secret for secret in (USER, SIGNATURE) if secret.encode() in content]


def test_no_file_and_no_line_has_them(at, tmp_path, address, run):
    out = tmp_path / "out"
    out.mkdir()
    dataset = ("--dataset", "images")
    settings = [word for text in ("patch=3", "dictionary=6", "n_components=2") for word in ("--set", text)]
    a, b = address("a.h5"), address("b.h5")
    for words in (
        ("fit", a, *dataset, *settings, "--out", out / "m.h5", "--checkpoint", out / "c"),
        ("fit", a, *dataset, *settings, "--out", out / "m.h5", "--overwrite", "--events", out / "events"),
        ("plan", a, *dataset, *settings),
        ("update", out / "m.h5", b, *dataset),
        ("transform", out / "m.h5", a, *dataset, "--out", out / "z.h5"),
        ("info", out / "m.h5"),
        ("info", out / "m.h5", "--json"),
        ("info", out / "z.h5", "--json"),
        ("report", out / "m.h5", "--out", out / "m.html"),
    ):
        done = run(*words)
        assert done.exit_code == 0, done.output
        assert not leaks(done.output), words
    for name in ("none.h5", "model.h5"):
        failed = run("fit", address(name), *dataset, "--out", out / "n.h5")
        assert failed.exit_code == 1
        assert name in failed.stderr
        assert not leaks(failed.output)
    kept = [path for path in out.rglob("*") if path.is_file()]
    assert {"run.json", "manifest.json", "events.jsonl", "m.h5", "z.h5", "m.html"} <= {p.name for p in kept}
    assert not [path for path in kept if leaks(path.read_bytes())]
    resumed = run("resume", out / "c")
    assert "has an address with credentials, or a name that is not UTF-8" in resumed.stderr


def test_data_are_the_same_under_a_new_signature(address):
    one, other = (opening.open_source(address("a.h5", *more), "images") for more in ((), ("u", "s")))
    assert one.path != other.path
    assert json.dumps(one.describe()) == json.dumps(other.describe())
    assert one.name == other.name
    assert "://***@127.0.0.1" in one.name


def test_several_files_and_their_errors(address):
    both = opening.open_source([address("a.h5"), address("b.h5")], "images")
    assert not leaks(both.name + json.dumps(both.describe()))
    with pytest.raises(DataError) as raised:
        opening.open_source([address("a.h5"), address("none.h5")], "images")
    assert not leaks(str(raised.value))


def test_what_is_masked():
    text = "(zip://x.zip::https://u:p@ss@h/a.zip?s=1;t) and s3://bucket/a.h5, file:///data/a?.h5."
    assert (
        masked(text) == "(zip://x.zip::https://***@h/a.zip?***) and s3://bucket/a.h5, file:///data/a?.h5."
    )
    assert (
        masked("s3://KEY:a/b?c #d@b/a.h5 or http://h:80/a@2.h5") == "s3://***@b/a.h5 or http://h:80/a@2.h5"
    )


def test_an_address_where_a_file_is_wanted(tmp_path, run):
    """Paths lose one of its slashes."""
    given = f"http://me:{USER}@host/a.h5?X-Amz-Signature={SIGNATURE}"
    dataset = ("--dataset", "images", "--out", tmp_path / "o.h5")
    for words in (
        ("info", given),
        ("info", given, given),
        ("check", given),
        ("check", given, "--json"),
        ("import", given, "--out", tmp_path / "o.h5"),
        ("transform", given, "a.h5", *dataset),
        ("concepts", given, *dataset),
    ):
        failed = run(*words)
        assert failed.exit_code in (1, 2)
        assert "***@host/a.h5?***" in "".join(failed.output.split()), failed.output
        assert not leaks(failed.output), words
