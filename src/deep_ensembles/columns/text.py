"""Free text, as the weights of its frequent words and pairs of words."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns import _parsing as parsing
from deep_ensembles.columns._column import Column, missing_values

_MOST_WORDS, _LEAST_WORDS, _ROWS_PER_WORD = 128, 8, 10


@dataclass(frozen=True)
class Text(Column):
    """Words and pairs of words that are frequent: how often a text has each, times its weight, to length 1 (TF-IDF).

    The rarer a word, the larger its weight. Texts are seldom those of training, so that none is told as unseen but a missing
    one, where training had none.

    Arguments:
        name: of the column.
        words: the frequent words and pairs.
        weights: of each, its inverse document frequency.
        missing: how many training values were missing.
        marked: whether an input marks missing values.

    Example:
        >>> column = text("note", pa.array(["two words", "two more words", None]))
        >>> column.input_names
        ('note: two', 'note: words', 'note is missing')
        >>> column.encode(pa.array(["Two two", "NA"])).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    words: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def value_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}: {word}" for word in self.words)

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        texts = parsing.text(values)
        counter = _counter(vocabulary=self.words)
        counter.idf_ = np.array(self.weights)
        read = counter.transform([*pc.fill_null(texts, "").to_pylist(), ""]).toarray()[:-1]  # it wants a text at least
        read[parsing.nulls(texts)] = np.nan
        return read, np.zeros(len(texts), bool)

    def values(self, read: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.nan_to_num(read)

    def unseen_values(self, read: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.zeros(len(read), bool)

    def description(self) -> str:
        return f"text, {len(self.words)} of its words and pairs of words"


def text(name: str, values: pa.Array | pa.ChunkedArray) -> Text:
    """A column of free text as its values show it.

    Arguments:
        name: of the column.
        values: of training.

    Example:
        >>> text("note", pa.array(["a b", "a b c"])).summary()
        'text, 3 of its words and pairs of words'
    """
    texts = parsing.text(values)
    known = texts.drop_null().to_pylist()
    most = int(np.clip(len(known) // _ROWS_PER_WORD, _LEAST_WORDS, _MOST_WORDS))
    words, weights = ["_"], [1.0]  # where there is no word at all
    for least in (1, 2):  # a word of one text says nothing of others, but stands where no word has two
        with suppress(ValueError):
            counter = _counter(max_features=most, min_df=least).fit(known)
            words, weights = counter.get_feature_names_out().tolist(), counter.idf_.tolist()
    return Text(name, tuple(words), tuple(weights), **missing_values(texts.null_count, len(texts)))


def _counter(**settings: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # when there is text: it takes a second

    return TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+", dtype=np.float32, **settings)
