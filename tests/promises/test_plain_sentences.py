"""Names are shown and never obeyed, and what is wrong ends in one sentence: no traceback, no long wait."""

import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
import unicodedata

import h5py
import numpy as np
import pytest
from rich.text import Text

from smtdist.data.manifest import describe_files, write_manifest
from smtdist.data.showing import n_samples
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.session import executor_for
from smtdist.errors import ConfigurationError, SmtdistError
from smtdist.monitor.progress import ProgressView
from smtdist.monitor.text import as_text
from smtdist.monitor.watch import watch

HOSTILE = "\x1b[31mred\x07\rover\u202ee\u200bvil\x9b1m\n[red] :smile:"
SHOWN = "\\x1b[31mred\\x07\\rover\\u202ee\\u200bvil\\x9b1m\\n[red] :smile:"


def controls(text):
    """Return the characters of a text that a terminal, or a reader, would obey."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}


def sentence(result):
    """Return the one line that a command ended with."""
    assert result.exit_code in (1, 2), result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("smtdist: ")
    return line


def forge(path, provenance):
    """Replace what a model says of its data."""
    with h5py.File(path, "r+") as file:
        del file.attrs["smtdist_checksums"]
        file.attrs["provenance"] = provenance


class TestNames:
    """Control characters of names reach no terminal and no page."""

    @pytest.fixture
    def named(self, at):
        """A file whose images have a hostile name, and a hostile class."""
        path = at / "n.h5"
        with h5py.File(at / "a.h5") as file, h5py.File(path, "w") as other:
            other[f"{HOSTILE}/images"] = file["images"][:]
            other["fine/images"] = file["images"][:]
        return path

    def test_in_tables_and_sentences(self, named, run):
        info = run("info", named)
        assert info.exit_code == 0
        assert not controls(info.output)
        assert SHOWN in info.stdout
        line = sentence(run("fit", named, "--dataset", HOSTILE + "none", "--out", named.with_name("m.h5")))
        assert not controls(line)
        assert "\\x1b[31mred" in line

    def test_in_models_made_of_them(self, named, at, run):
        updated = run("update", at / "model.h5", named, "--dataset", HOSTILE, "--allow-repeats")
        report = run("report", at / "model.h5", "--out", at / "m.html")
        info = run("info", at / "model.h5")
        assert [one.exit_code for one in (updated, report, info)] == [0, 0, 0], (
            updated.output,
            report.output,
        )
        page = (at / "m.html").read_text()
        assert not controls(updated.output + info.output + page)
        assert "\\x1b[31mred" in page

    def test_in_what_is_drawn_while_a_run_goes_on(self):
        from smtdist.monitor.tables import VisibleConsole

        file = io.StringIO()
        console = VisibleConsole(file=file, force_terminal=True, width=200, color_system="standard")
        ProgressView(console)({"kind": "note", "text": f"{HOSTILE} [/x]"})
        console.print(Text("red", style="red"), Text(HOSTILE))
        note, line = file.getvalue().split("\n", 1)
        assert f"{SHOWN} [/x]" in note
        assert "\\x1b[31mredover\\u202ee\\u200bvil\\x9b1m" in line  # rich drops bells by itself
        assert "\x1b[31mred\x1b[0m" in file.getvalue()  # colours of our own stay

    def test_in_a_run_that_is_watched(self):
        snapshot = {"status": "failed", "seconds": 0, "text": HOSTILE, "silent": 0, "passes": []}
        snapshot |= {"workers": [], "sums": None, "preview": None, "losses": [], "notes": [HOSTILE]}
        assert not controls(as_text(snapshot))

    def test_in_paths(self, run, tmp_path):
        name = os.fsdecode(b"\xff\x07\xe2\x80\xae\xef\xbb\xbf.h5")
        assert not controls(sentence(run("info", tmp_path / name)))

    def test_in_titles_and_with_all_their_spaces(self, at, run, monkeypatch):
        monkeypatch.setenv("COLUMNS", "300")
        for name, shown in (("a\nb  c.h5", "a\\nb  c.h5"), ("d \x1b[31m  e.h5", "d \\x1b[31m  e.h5")):
            assert shown in sentence(run("info", at / name))
            os.symlink(at / "model.h5", at / name)
            told = run("info", at / name)
            assert shown in told.stdout
            assert told.exit_code == 0

    @pytest.mark.parametrize("words", [("info", "a.h5"), ("info", "--"), ("fit", "a.h5", "--dataset", "x")])
    def test_in_wrong_usage(self, run, words):
        """As of a pattern that the shell replaces with names."""
        name = HOSTILE.replace("\n", "")
        result = run(*words, f"{name}.h5", f"--{name}")
        assert result.exit_code == 2
        assert not controls(result.output)


class TestForgedFiles:
    """Files that claim what cannot be."""

    @pytest.mark.parametrize("shape", [(2**62, 8, 8), (4, 2**40, 2**30), (2**40, 2**30, 2**30)])
    def test_shapes_that_nothing_can_count(self, tmp_path, run, shape):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("images", shape, np.uint8, chunks=(1, 8, 8))
            file.create_dataset("rows", (2**62, 2**40), np.float32, chunks=(1, 8))
        said = "more than can be counted"
        fit = ("fit", tmp_path / "x.h5", "--dataset", "images", "--out", tmp_path / "m.h5")
        assert said in sentence(run(*fit))
        points = (
            "fit",
            "--model",
            "points",
            tmp_path / "x.h5",
            "--dataset",
            "rows",
            "--out",
            tmp_path / "m.h5",
        )
        assert said in sentence(run(*points))

    @pytest.mark.filterwarnings("ignore:.*nothing was written there:smtdist.errors.DataWarning")
    def test_sums_that_pass_64_bits(self, tmp_path, run):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("images", (2**45, 100, 100), np.uint8, chunks=(1, 8, 8))
        plan = ("plan", tmp_path / "x.h5", "--dataset", "images", "--set", "context=40")
        assert "more than 64 bits hold" in sentence(run(*plan))

    @pytest.mark.parametrize(
        "content",
        [
            [1, 2],
            {"attributes": {}},
            *(
                {"arrays": {"x": {"type": "u1", "shape": [1], "offset": 0, "crc32": 0} | wrong}}
                for wrong in (
                    {"type": "zzz"},
                    {"shape": ["a"]},
                    {"shape": [2**62], "offset": -5},
                    {"offset": None},
                )
            ),
        ],
    )
    def test_checkpoints_are_checked(self, tmp_path, run, content):
        from smtdist.engine import stored

        (tmp_path / "x.h5").write_bytes(stored._index(content) + bytes(4096))
        check = run("check", tmp_path / "x.h5")
        assert (check.exit_code, check.stderr) == (1, "")
        assert check.stdout.startswith(f"{tmp_path / 'x.h5'}: it cannot be read (")

    def test_records_that_are_nested_deeply(self, tmp_path, run):
        (tmp_path / "run.json").write_text("[" * 100_000 + "]" * 100_000)
        assert "no checkpoint of smtdist" in sentence(run("resume", tmp_path))
        (tmp_path / "driver.lock").touch()
        check = run("check", tmp_path / "run.json")
        assert (check.exit_code, "recursion" in check.stdout) == (1, True)
        assert "nested too deeply" in sentence(run("resume", tmp_path))

    @pytest.mark.parametrize(
        "content",
        [
            {"options": {"data": ["a.h5"], "out": [1]}},
            {"options": {"data": 3, "out": "m.h5", "quiet": {"a": 1}}},
            {"options": {"data": ["a.h5"], "out": "m.h5", "limit": "abc"}},
            {"options": {"data": ["a.h5"], "out": "m.h5", "first_look": [1]}},
            {"options": {"data": ["a.h5"]}},
            {"options": {"data": ["--help"], "out": "m.h5"}},
            {"options": {"data": ["a.h5"], "nosuch": 1}},
            {"options": 3},
            {"verb": ["fit"], "options": {}},
            *(
                {"schema": 3, "command": ["fit", *words]}
                for words in (["--help"], ["-h"], ["--nosuch"], ["--limit", "x"], [])
            ),
        ],
    )
    def test_commands_of_runs(self, at, run, content):
        (at / "c").mkdir()
        (at / "c" / "driver.lock").touch()
        about = {"schema": 4, "verb": "fit", "folder": str(at)} | content
        (at / "c" / "run.json").write_text(json.dumps(about))
        result = run("resume", at / "c")
        sentence(result)
        assert result.stdout == ""

    @pytest.mark.parametrize("wrong", [2**64 - 1, -1, 0.5])
    def test_counts_of_samples_that_are_none(self, at, run, wrong):
        with h5py.File(at / "model.h5", "r+") as file:
            del file.attrs["smtdist_checksums"], file["audit/n_samples"]
            file["audit/n_samples"] = np.array([wrong])
        update = ("update", at / "model.h5", at / "b.h5", "--dataset", "images", "--out", at / "n.h5")
        assert "n_samples holds other than whole numbers" in sentence(run(*update))

    @pytest.mark.parametrize("provenance", ['{"ridge": NaN}', '{"source": {"shape": [1e999]}}'])
    def test_provenance_that_json_does_not_hold(self, at, run, provenance):
        forge(at / "model.h5", provenance)
        said = "says of itself what no file of smtdist says"
        assert said in sentence(run("info", at / "model.h5", "--json"))
        assert said in sentence(run("report", at / "model.h5", "--out", at / "m.html"))

    @pytest.mark.parametrize("source", [3, "x", None, {"shape": 3}, {"shape": ["x"]}, {"shape": [np.nan]}])
    def test_shapes_that_provenance_makes_up(self, source):
        assert n_samples({"source": source}) == 0

    @pytest.mark.parametrize("chunks", [[0, 8, 8], [-1, 7, 7]])
    def test_a_manifest_with_chunks_of_nothing(self, at, run, chunks):
        made = describe_files([str(at / "a.h5")], at / "all.json", ["images"])
        made.content["files"][0]["sets"]["images"]["chunks"] = chunks
        write_manifest(made)
        fit = ("fit", at / "all.json", "--dataset", "images", "--out", at / "m.h5", "--set", "patch=3")
        assert "all.json is damaged" in sentence(run(*fit))

    @pytest.mark.parametrize(
        "text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000]
    )
    def test_a_manifest_that_is_nested_deeply(self, tmp_path, run, text):
        (tmp_path / "deep.json").write_text(text)
        fit = ("fit", tmp_path / "deep.json", "--dataset", "images", "--out", tmp_path / "m.h5")
        assert "is not JSON that can be read" in sentence(run(*fit))

    def test_thousands_of_nested_groups_take_no_time(self, tmp_path, run):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            group = file
            for _ in range(3000):
                group = group.create_group("g")
            group["loop"] = file["g"]  # a way back, which a walk must not take
        run("info", tmp_path / "none.h5")  # so that what the command loads is loaded
        started = time.process_time()
        assert "neither a model nor images" in sentence(run("info", tmp_path / "x.h5"))
        assert time.process_time() - started < 2


class TestWatchingAStranger:
    """A folder whose run never was: `watch` ends in one sentence, and does not wait for a pipe."""

    STARTED = '{"kind": "pass_started", "pass": "whitening", "n_leaves": 4, "n_samples": 8, "resumed_leaves": 0}\n'

    @pytest.mark.parametrize(
        "lines",
        [
            "[" * 100_000 + "\n",
            '{"kind": "pass_started"}\n',
            '{"kind": "run_started", "passes": 3}\n',
            '{"kind": "run_started", "time": "x", "passes": ["a"]}\n',
            '{"kind": ["run_started"], "events": 3}\n{"kind": "recap", "events": [3]}\n',
            STARTED.replace("8", '"8"').replace("0}", f"{10**11}}}"),
            STARTED.replace("8", "NaN"),
            STARTED
            + '{"kind": "progress", "pass": "whitening", "n_samples": 1, "n_positions": 1, "by_worker": 3}\n',
            STARTED + '{"kind": "preview", "pass": "x", "n_samples": [], "spectrum": 3}\n',
            STARTED + '{"kind": "sums", "pass": "whitening", "covers": [[["a", 2]]], "running": 0}\n',
        ],
    )
    @pytest.mark.parametrize("how", [("--once",), ()])
    def test_events_that_no_run_has_written(self, tmp_path, run, lines, how):
        (tmp_path / "events.jsonl").write_text(lines + '{"kind": "run_finished"}\n')
        found = run("watch", tmp_path, *how)
        assert found.exit_code in (0, 1)
        assert found.exit_code == 0 or "what none has written" in sentence(found)

    def test_a_line_without_end(self, tmp_path, run, monkeypatch):
        monkeypatch.setattr("smtdist.monitor.watch.MOST_BYTES", 100)
        (tmp_path / "events.jsonl").write_text("x" * 100)
        assert "does not end" in sentence(run("watch", tmp_path, "--once"))

    def test_a_pipe(self, tmp_path, run):
        os.mkfifo(tmp_path / "events.jsonl")
        assert "events.jsonl is no file" in sentence(run("watch", tmp_path, "--once"))

    @pytest.mark.parametrize(
        "attributes", [{"covers": "[3]"}, {"covers": "[" * 10_000}, {"covers": "[]", "counters": "[]"}]
    )
    def test_files_of_sums(self, tmp_path, run, attributes):
        (tmp_path / "run.json").touch()
        (tmp_path / "whitening").mkdir()
        os.mkfifo(tmp_path / "whitening" / "pipe.h5")
        with h5py.File(tmp_path / "whitening" / "a.h5", "w") as file:
            file.attrs.update(attributes)
        found = run("watch", tmp_path, "--once")
        assert (found.exit_code, "whitening" in found.stdout) == (0, True), found.output

    def test_what_comes_later(self, tmp_path):
        """In the thread that follows a run, whose view must not wait for ever."""
        (tmp_path / "events.jsonl").write_text(self.STARTED)
        with watch(tmp_path) as view:
            with (tmp_path / "events.jsonl").open("a") as file:
                file.write('{"kind": "run_started", "passes": 3}\n')
            view._thread.join(20)
            assert view.status == "failed"
            assert "what none has written" in view.progress()["text"]


class TestClusters:
    """Addresses and configurations that are none."""

    def test_what_listens_but_never_answers(self, monkeypatch):
        monkeypatch.setattr("smtdist.engine.clusters.ANSWER_SECONDS", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with pytest.raises(SmtdistError, match="No Dask scheduler answers at tcp"):
                watch(f"tcp://127.0.0.1:{port}")

    def test_what_answers_in_another_language(self, monkeypatch):
        monkeypatch.setattr("smtdist.engine.clusters.ANSWER_SECONDS", 2.0)
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer():
                server.settimeout(5)
                with server.accept()[0] as line:
                    line.sendall(b"HTTP/1.0 400 Bad request\r\n\r\n" * 3)

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(SmtdistError, match="No Dask scheduler answers"):
                watch(f"tcp://127.0.0.1:{server.getsockname()[1]}")
            thread.join()

    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "foo://x", "tcp://"])
    def test_addresses_that_mean_nothing(self, run, address, monkeypatch):
        monkeypatch.setattr("smtdist.engine.clusters.LISTENING_SECONDS", 0.3)
        assert f"No Dask scheduler answers at {address}" in sentence(run("watch", address, "--once"))

    def test_unknown_keys_of_a_local_cluster(self, tmp_path):
        (tmp_path / "c.yaml").write_text("local: {n_wrokers: 3}")
        with (
            pytest.raises(ConfigurationError, match=r"has the key 'n_wrokers'; did you mean n_workers\?"),
            executor_for(ClusterChoice("local", config=tmp_path / "c.yaml"), 1),
        ):
            pass


def test_a_closed_standard_output(made):
    words = [sys.executable, "-m", "smtdist", "info", str(made / "model.h5")]
    ended = subprocess.run(["sh", "-c", '"$@" >&- <&-', "sh", *words], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
