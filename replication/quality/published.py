"""What SMT 2023 prints: the figures of its tables, percent right, and those of the deep rivals, quoted and not run."""

from __future__ import annotations

from typing import Final

TABLE_1: Final = {
    ("whole image", "VQ 16384"): 99.0,
    ("whole image", "VQ 65536"): 98.9,
    ("whole image", "GloVe 100K"): 98.8,
    ("3 pixels", "VQ 16384"): 99.2,
    ("3 pixels", "VQ 65536"): 99.3,
    ("3 pixels", "GloVe 100K"): 99.0,
}
"""MNIST, k-NN, 32 components; by context and dictionary."""

TABLE_2: Final = {2: 97.1, 3: 98.3, 4: 98.8, 8: 99.0, 16: 99.1, 32: 99.2}
"""MNIST, k-NN; by components."""

TABLE_3: Final = {
    ("original", "GQ 8192"): 79.2,
    ("original", "GQ 65536"): 81.1,
    ("greyscale", "VQ 100K"): 78.4,
    ("greyscale", "GQ 8192"): 77.5,
    ("greyscale", "GQ 65536"): 78.9,
    ("original + greyscale", "GQ 8192"): 81.4,
    ("original + greyscale", "GQ 65536"): 83.2,
}
"""CIFAR-10, k-NN; by colour and dictionary."""

TABLE_4: Final = {
    ("original", "GQ 8192"): 50.8,
    ("original", "GQ 65536"): 53.2,
    ("greyscale", "VQ 100K"): 46.6,
    ("greyscale", "GQ 8192"): 45.8,
    ("greyscale", "GQ 65536"): 48.9,
    ("original + greyscale", "GQ 8192"): 53.7,
    ("original + greyscale", "GQ 65536"): 57.0,
}
"""CIFAR-100, k-NN; by colour and dictionary."""

TABLE_5: Final = {4: 78.0, 6: 78.5, 12: 78.5, 24: 79.0, 32: 79.4}
"""CIFAR-10, k-NN, K = 8,192; by range of the context in pixels."""

TABLE_6: Final = {1000: 58.7, 2000: 63.7, 4000: 67.2, 8000: 70.7, 16000: 74.0, 32000: 77.4, 50000: 79.4}
"""CIFAR-10, k-NN, K = 8,192; by training images."""

TABLE_7: Final = {
    50: (74.7, 69.0),
    110: (77.6, 74.5),
    210: (78.6, 77.0),
    350: (79.3, 78.6),
    500: (79.4, 79.7),
    800: (79.3, 80.2),
    1600: (79.0, 80.8),
    3200: (77.9, 81.0),
    6400: (76.1, 80.5),
    8192: (75.2, 80.4),
}
"""CIFAR-10, K = 8,192: k-NN and linear probe; by components."""

FIGURE_6: Final = {
    ("codes alone", 8192): 71.0,
    ("whitened codes", 8192): 75.2,
    ("spectral", 500): 79.4,
    ("PCA", 500): 59.9,
    ("PCA", 8192): 75.2,
}
"""CIFAR-10, K = 8,192, the values that the text of appendix E names; by what follows the codes, and dimensions."""

RIVALS: Final = {
    "3": {
        "SimCLR (ResNet18)": {
            "original": 68.3,
            "greyscale": 80.6,
            "original + greyscale": 85.7,
            "full": 90.1,
        },
        "VICReg (ResNet18)": {
            "original": 70.2,
            "greyscale": 81.3,
            "original + greyscale": 83.7,
            "full": 91.1,
        },
    },
    "4": {
        "SimCLR (ResNet18)": {
            "original": 32.4,
            "greyscale": 43.0,
            "original + greyscale": 48.9,
            "full": 63.7,
        },
        "VICReg (ResNet18)": {
            "original": 32.6,
            "greyscale": 43.9,
            "original + greyscale": 46.0,
            "full": 65.4,
        },
    },
    "6": {
        "SimCLR (ResNet18, no colour augmentation)": {
            "1,000": 28.9,
            "2,000": 33.9,
            "4,000": 37.8,
            "8,000": 41.3,
            "16,000": 50.1,
            "32,000": 60.4,
            "50,000": 68.3,
        },
    },
}
"""Deep networks, a thousand epochs each, as SMT 2023 prints them; by table."""
