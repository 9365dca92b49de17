"""The oracle of words: torchtext's rules as printed, explicit neighbour lists, an explicit D; no code of the project."""

import re
from collections import Counter

import numpy as np

PATTERNS = [
    (r"\'", " '  "),
    (r"\"", ""),
    (r"\.", " . "),
    (r"<br \/>", " "),
    (r",", " , "),
    (r"\(", " ( "),
    (r"\)", " ) "),
    (r"\!", " ! "),
    (r"\?", " ? "),
    (r"\;", " "),
    (r"\:", " "),
    (r"\s+", " "),
]


def basic_english(line):
    line = line.lower()
    for pattern, replacement in PATTERNS:
        line = re.sub(pattern, replacement, line)
    return line.split()


def tokens(text, rules="basic_english"):
    """Return the tokens of every paragraph."""
    cut = basic_english if rules == "basic_english" else str.split
    return [cut(line) for line in text.split("\n")]


def vocabulary(texts, size, rules="basic_english"):
    counts = Counter(token for text in texts for line in tokens(text, rules) for token in line)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))[:size]
    return [word for word, _ in ranked], [count for _, count in ranked]


def statistics(texts, words, window, unknown="place", rules="basic_english"):
    """Return A 1, A W Aᵀ and A D Dᵀ Aᵀ from one-hot A, 0/1 W and a column of D for each unordered pair of neighbours."""
    number = {word: at for at, word in enumerate(words)}
    K = len(words)
    activity, near, scatter = np.zeros(K, np.int64), np.zeros((K, K), np.int64), np.zeros((K, K), np.int64)
    for text in texts:
        for line in tokens(text, rules):
            if unknown == "skip":
                line = [token for token in line if token in number]
            n = len(line)
            A = np.zeros((K, n), np.int64)
            for place, token in enumerate(line):
                if token in number:
                    A[number[token], place] = 1
            kept = A.sum(axis=0) > 0
            W, columns = np.zeros((n, n), np.int64), []
            for i in range(n):
                for j in range(n):
                    if 0 < abs(i - j) <= window and kept[i] and kept[j]:
                        W[i, j] = 1
                        if i < j:
                            column = np.zeros(n, np.int64)
                            column[i], column[j] = 1, -1
                            columns.append(column)
            D = np.array(columns, np.int64).reshape(len(columns), n).T
            activity += A.sum(axis=1)
            near += A @ W @ A.T
            scatter += A @ D @ D.T @ A.T
    return activity, near, scatter
