"""Damaged files, made by seeds, and a process that feeds them to the commands one after another.

`PYTHONPATH=tests python tests/chaos/fuzz.py FOLDER` reads numbers of cases from standard input, one a line, and answers each with
a line of JSON: what kind of file, the exit code, what was printed, the peak memory, and what was left in the folder.
"""

import gzip
import io
import json
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
from arrays_in_files import write_arrays
from PIL import Image

FIT = ("patch=3", "dictionary=8", "n_components=3", "pool_size=2", "feature=vq", "mean=patch", "context=1")
SAMPLES = 12


def pixels():
    return np.random.default_rng(1).integers(0, 256, (SAMPLES, 8, 8, 3), dtype=np.uint8)


def jpegs():
    result = []
    for image in pixels():
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, "JPEG")
        result.append(stream.getvalue())
    return result


def write_plain(path):
    write_arrays(path, {"train/images": pixels()}, chunks=(5, 8, 8, 3), compression="gzip")


def write_encoded(path):
    images = jpegs()
    with h5py.File(path, "w") as file:
        file["train/bytes"] = np.frombuffer(b"".join(images), np.uint8)
        file["train/offsets"] = np.cumsum([0, *map(len, images)])


def write_model(path):
    run(["fit", path.with_name("good.h5"), "--dataset", "train", "--out", path, *settings(), "-q"])


def write_jpeg(path):
    path.write_bytes(jpegs()[3])


def write_npz(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (("images", pixels()), ("labels", np.arange(SAMPLES))):
            stream = io.BytesIO()
            np.save(stream, array)
            archive.writestr(f"{name}.npy", stream.getvalue())


def write_idx(path):
    header = b"\x00\x00\x08\x03" + b"".join(int(n).to_bytes(4, "big") for n in (SAMPLES, 8, 8))
    path.write_bytes(gzip.compress(header + pixels()[..., 0].tobytes(), mtime=0))


def write_tar(path):
    with tarfile.open(path, "w") as archive:
        for number, image in enumerate(jpegs()):
            for name, content in ((f"{number:03}.jpg", image), (f"{number:03}.cls", b"%d" % (number % 3))):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def settings():
    return [word for text in FIT for word in ("--set", text)]


def fit(path, out):
    return ["fit", path, "--dataset", "train", "--out", out, *settings()]


def read_model(path, out):
    return ["transform", path, path.with_name("good.h5"), "--dataset", "train", "--out", out]


def merge_model(path, out):
    return ["merge", path, path.with_name("model.h5"), "--allow-repeats", "--out", out]


def import_file(path, out):
    return ["import", path, "--out", out]


def import_folder(path, out):
    return ["import", path.parent, "--out", out]


# kind: how a whole file is written, under which name, and the command that reads it
KINDS = {
    "plain": (write_plain, "data.h5", fit),
    "encoded": (write_encoded, "data.h5", fit),
    "model": (write_model, "model.h5", read_model),
    "sums": (write_model, "model.h5", merge_model),
    "jpeg": (write_jpeg, "folder/class/a.jpg", import_folder),
    "npz": (write_npz, "data.npz", import_file),
    "idx": (write_idx, "train-images-idx3-ubyte.gz", import_file),
    "tar": (write_tar, "shard.tar", import_file),
}


def damaged(content, rng):
    """Return a copy with bits flipped, bytes overwritten, a piece removed, repeated or swapped, or the end cut off."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(data))) if data else 0
        span = int(rng.integers(1, 64))
        how = rng.integers(6)
        if how == 0 and data:
            data[at] ^= 1 << int(rng.integers(8))
        elif how == 1:
            data[at : at + span] = rng.bytes(min(span, len(data) - at))
        elif how == 2:
            del data[at : at + span]
        elif how == 3:
            data[at:at] = data[at : at + span]
        elif how == 4:
            data[at : at + 8] = b"\xff" * min(8, len(data) - at)
        else:
            del data[at:]
    return bytes(data)


def run(words):
    """Run a command in this process: its exit code and what it printed."""
    from typer.testing import CliRunner

    from smtdist.cli import app

    result = CliRunner().invoke(app, [str(word) for word in words])
    wrong = result.exception if not isinstance(result.exception, SystemExit | None) else None
    return result.exit_code, result.stdout, result.stderr, repr(wrong) if wrong else ""


class Cases:
    """Whole files by kind, and the damaged ones made from them."""

    def __init__(self, folder):
        self.folder = folder
        good = folder / "good"
        good.mkdir()
        write_plain(good / "good.h5")
        self.whole = {}
        for kind, (write, name, _) in KINDS.items():
            path = good / Path(name).name
            write(path)
            self.whole[kind] = path.read_bytes()
        self.good = (good / "good.h5").read_bytes()
        write_model(good / "model.h5")
        self.model = (good / "model.h5").read_bytes()

    def run(self, number):
        from smtdist.engine.memory import peak_bytes, reset_peak, resident_bytes

        kind = sorted(KINDS)[number % len(KINDS)]
        _, name, command = KINDS[kind]
        here = self.folder / "case"
        shutil.rmtree(here, ignore_errors=True)
        path = here / name
        path.parent.mkdir(parents=True)
        (path.parent / "good.h5").write_bytes(self.good)
        (path.parent / "model.h5").write_bytes(self.model)
        if kind == "jpeg":
            (path.parent / "good.h5").unlink()
            (path.parent / "model.h5").unlink()
        if kind == "sums":
            path = path.with_name("damaged.h5")
        path.write_bytes(damaged(self.whole[kind], np.random.default_rng(number)))
        before = sorted(here.rglob("*"))
        out = here / "out.h5"
        reset_peak()
        resident = resident_bytes()
        code, _, stderr, wrong = run(command(path, out))
        grown = peak_bytes() - resident
        left = sorted(
            str(one) for one in set(here.rglob("*")) - set(before) - ({out} if code == 0 else set())
        )
        return {
            "number": number,
            "kind": kind,
            "code": code,
            "wrong": wrong,
            "stderr": stderr,
            "grown": grown,
            "left": left,
        }


def main():
    cases = Cases(Path(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(cases.run(int(line))), flush=True)


if __name__ == "__main__":
    main()
