"""Free text, as a bag of hashed words."""

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns import _parsing as parsing
from deep_ensembles.columns._column import Column, missing_values

BUCKETS = 32


@dataclass(frozen=True)
class Text(Column):
    r"""A bag of hashed words: word w adds $\pm 1$ to one of a few inputs, all divided by $\sqrt{\text{number of words}}$.

    Words are runs of letters and of digits, in lower case; place and sign come from their CRC-32, the same everywhere. No
    word is unseen; a missing text is, where training had none.

    References:
        Weinberger, Dasgupta, Langford, Smola, Attenberg (2009).

    Arguments:
        name: of the column.
        buckets: how many inputs the words share.
        missing: how many training values were missing.
        marked: whether an input marks missing values.

    Example:
        >>> column = text("note", pa.array(["two words", None]))
        >>> np.abs(column.encode(pa.array(["Four words are here", "NA"]))).max(axis=1).tolist()
        [0.5, 1.0]
    """

    buckets: int = BUCKETS

    @property
    def value_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} words {place + 1}" for place in range(self.buckets))

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        texts = parsing.text(values)
        bags = _bags(texts, self.buckets)
        bags[parsing.nulls(texts)] = np.nan
        return bags, np.zeros(len(texts), bool)

    def values(self, read: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.nan_to_num(read)

    def unseen_values(self, read: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.zeros(len(read), bool)

    def description(self) -> str:
        return f"text, its words hashed into {self.buckets} inputs"


def text(name: str, values: pa.Array | pa.ChunkedArray) -> Text:
    """A column of free text as its values show it.

    Arguments:
        name: of the column.
        values: of training.

    Example:
        >>> text("note", pa.array(["a b", "c d e"])).summary()
        'text, its words hashed into 32 inputs'
    """
    texts = parsing.text(values)
    return Text(name, **missing_values(texts.null_count, len(texts)))


def _bags(texts: pa.Array, buckets: int) -> NDArray[np.float32]:
    words = pc.replace_substring_regex(pc.utf8_lower(pc.fill_null(texts, "")), r"(\pN+)", r" \1 ")
    words = pc.utf8_trim_whitespace(pc.replace_substring_regex(words, r"[^\pL\pN\pM]+", " "))
    lists = pc.split_pattern(words, " ")
    rows, flat = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists).dictionary_encode()
    codes = np.array([zlib.crc32(word.encode()) for word in flat.dictionary.to_pylist()], np.int64)
    if not len(codes):
        return np.zeros((len(texts), buckets), np.float32)
    filled = np.array([word != "" for word in flat.dictionary.to_pylist()])
    places, signs = (codes >> 1) % buckets, np.where(codes & 1, 1.0, -1.0) * filled
    which = flat.indices.to_numpy()
    sums = np.bincount(rows * buckets + places[which], signs[which], minlength=len(texts) * buckets)
    lengths = np.bincount(rows, minlength=len(texts))
    return (sums.reshape(len(texts), buckets) / np.sqrt(np.maximum(lengths, 1))[:, None]).astype(np.float32)
