"""Small networks in PyTorch on one CPU core, each stopped at a number of CPU seconds.

    python -m replication.when_to_use.networks cnn DATA.h5 --cpu-seconds 300 [--labels 100 --draws 3]
    python -m replication.when_to_use.networks simclr DATA.h5 --cpu-seconds 300 --out FEATURES.h5

Both have four convolutions of 3 x 3 (32, 64, 128, 128) with batch normalisation, the first three pooled, and the mean over
places. The CNN learns from labels with crops and, but for digits, flips; SimCLR from pairs of crops, flips and colours
(temperature 0.5), and writes the mean over places. AdamW, whose rate goes from 0.002 to 0 along a cosine of the CPU seconds
used. All of this was set before a first run, and nothing was chosen by looking at a figure.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from replication.when_to_use.sets import found, labelled, read_images, read_labels

RATE: Final = 2e-3
DECAY: Final = 0.05
BATCH: Final = 64
PAIRS: Final = 256
HEAT: Final = 0.5
EPOCHS: Final = 400
"""Epochs after which a CNN ends before its seconds are over: a few labels are known by heart then."""
WIDTH: Final = 128


def encoder(channels: int) -> nn.Module:
    """Return the convolutions: (n, channels, height, width) to (n, 128)."""

    def block(before: int, after: int, pool: bool) -> list[nn.Module]:
        found = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        return [*found, nn.MaxPool2d(2)] if pool else found

    layers = [*block(channels, 32, True), *block(32, 64, True), *block(64, 128, True)]
    return nn.Sequential(*layers, *block(128, WIDTH, False), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def flipped(x: Any) -> Any:
    """Return images of which every second, by chance, is mirrored."""
    return torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)


def shifted(x: Any, flips: bool, by: int = 4) -> Any:
    """Return random crops of images with a border of `by` zeros, mirrored at random."""
    height, width = x.shape[2:]
    padded = F.pad(x, (by,) * 4)
    top, left = (torch.randint(0, 2 * by + 1, (len(x), 1)) for _ in range(2))
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    cut = padded[torch.arange(len(x))[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    cut = cut.permute(0, 3, 1, 2)
    return flipped(cut) if flips else cut


def seen(x: Any, flips: bool) -> Any:
    """Return a random view of images: a part of 20 to 100 % brought to full size, mirrored, in other colours, or grey."""
    size = torch.sqrt(0.2 + 0.8 * torch.rand(len(x)))
    middle = (torch.rand(len(x), 2) * 2 - 1) * (1 - size)[:, None]
    turn = torch.zeros(len(x), 2, 3)
    turn[:, 0, 0] = turn[:, 1, 1] = size
    turn[:, :, 2] = middle
    x = F.grid_sample(x, F.affine_grid(turn, list(x.shape), align_corners=False), align_corners=False)
    x = flipped(x) if flips else x

    def factor() -> Any:
        return 0.6 + 0.8 * torch.rand(len(x), 1, 1, 1)

    x = x * factor()
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x = mean + (x - mean) * factor()
    grey = x.mean(dim=1, keepdim=True)
    coloured = grey + (x - grey) * factor()
    return torch.where(torch.rand(len(x), 1, 1, 1) < 0.2, grey.expand_as(x), coloured)


class Clock:
    """The share of the CPU seconds that is used, and the optimiser's rate along it."""

    def __init__(self, model: nn.Module, seconds: float) -> None:
        self.start, self.seconds = time.process_time(), seconds
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)

    def step(self, loss: Any, share: float = 0.0) -> bool:
        """Take a step; return whether the end has come, by the seconds or by a share of the epochs."""
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        used = max((time.process_time() - self.start) / self.seconds, share)
        for group in self.optimiser.param_groups:
            group["lr"] = RATE * (1 + math.cos(math.pi * min(used, 1))) / 2
        return used >= 1


def cnn(x: Any, y: Any, classes: int, flips: bool, seconds: float) -> tuple[nn.Module, dict[str, Any]]:
    """Learn a classifier from labelled images; return it and how long it learned."""
    model = nn.Sequential(encoder(x.shape[1]), nn.Linear(WIDTH, classes))
    clock, batches = Clock(model, seconds), 0
    each = max(1, len(x) // BATCH)
    while True:
        for rows in torch.randperm(len(x)).tensor_split(each):
            batches += 1
            loss = F.cross_entropy(model(shifted(x[rows], flips)), y[rows])
            if clock.step(loss, batches / (each * EPOCHS)):
                return model, {"epochs": round(batches / each, 1)}


def simclr(x: Any, flips: bool, seconds: float) -> tuple[nn.Module, dict[str, Any]]:
    """Learn an encoder from pairs of views (NT-Xent); return it and how long it learned."""
    base = encoder(x.shape[1])
    model = nn.Sequential(base, nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 64))
    clock, batches = Clock(model, seconds), 0
    each = max(1, len(x) // PAIRS)
    while True:
        for rows in torch.randperm(len(x)).tensor_split(each):
            batches += 1
            z = F.normalize(model(torch.cat([seen(x[rows], flips), seen(x[rows], flips)])))
            scores = (z @ z.T / HEAT).fill_diagonal_(-torch.inf)
            partner = torch.arange(len(z)).roll(len(rows))
            if clock.step(F.cross_entropy(scores, partner)):
                return base, {"epochs": round(batches / each, 1)}


def applied(model: nn.Module, x: Any) -> Any:
    """Return what a network says of images."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(500)]).numpy()


def main() -> None:
    """Learn, and print or write what comes of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["cnn", "simclr"])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cpu-seconds", type=float, required=True, help="of each draw of labels")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--labels", type=int, default=0, help="labels in all; 0: all")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-mirrored", dest="not_mirrored", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images = [read_images(arguments.data, group) for group in ("train", "test")]
    mean, deviation = (getattr(images[0], name)(axis=(0, 1, 2)) for name in ("mean", "std"))
    x, far = (torch.as_tensor((one - mean) / deviation).permute(0, 3, 1, 2) for one in images)
    y, far_y = (read_labels(arguments.data, group) for group in ("train", "test"))
    flips = not arguments.not_mirrored
    torch.manual_seed(arguments.seed)
    if arguments.kind == "simclr":
        model, said = simclr(x, flips, arguments.cpu_seconds)
        part = arguments.out.with_suffix(".part")
        with h5py.File(part, "w") as file:
            file["train"], file["test"] = applied(model, x), applied(model, far)
        part.replace(arguments.out)
        print(json.dumps(said))
        return
    hits, chosen = [], []
    for rows in labelled(y, arguments.labels, arguments.draws, arguments.seed):
        model, how = cnn(x[rows], torch.as_tensor(y[rows]), int(y.max()) + 1, flips, arguments.cpu_seconds)
        hits.append(np.asarray(applied(model, far).argmax(axis=1) == far_y))
        chosen.append(how)
    print(json.dumps({**found(hits, chosen), "row_bytes": 4 * WIDTH}))


if __name__ == "__main__":
    main()
