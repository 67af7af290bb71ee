"""ROUGE as llama3.1-8b's reference evaluator computes it: Punkt sentences, rouge_score with Porter stems.

The packages are those that it uses. nltk 3.9 splits and stems as the 3.8.1 that it pins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from harness.lean_nltk import load_nltk

if TYPE_CHECKING:
    from nltk.tokenize.punkt import PunktSentenceTokenizer
    from rouge_score.rouge_scorer import RougeScorer

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``text`` is the prediction as it was compared, a sentence a line; ``fmeasure`` from 0 to 1."""

    text: str
    fmeasure: Mapping[str, float]


def compare(prediction: str, target: str) -> Comparison:
    """The scores of a prediction."""
    text = by_line(prediction)
    scores = _scorer().score(by_line(target), text)
    return Comparison(text, {name: float(scores[name].fmeasure) for name in ROUGE})


def by_line(text: str) -> str:
    """The sentences of a text, one a line; line breaks within a sentence stay."""
    return "\n".join(_punkt().tokenize(text.strip()))


@cache
def _punkt() -> "PunktSentenceTokenizer":
    """nltk's splitter with nltk's English model, which nltk itself would download."""
    load_nltk()
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

    parameters = PunktParameters()
    parameters.abbrev_types.update(english.ABBREV_TYPES)
    parameters.collocations.update(english.COLLOCATIONS)
    parameters.sent_starters.update(english.SENT_STARTERS)
    parameters.ortho_context.update(english.ORTHO_CONTEXT)
    return PunktSentenceTokenizer(parameters)


@cache
def _scorer() -> "RougeScorer":
    """rouge_score's own scorer; each word is stemmed once, which halves its time."""
    load_nltk()
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    stemmer = PorterStemmer()
    stemmer.stem = lru_cache(1 << 18)(stemmer.stem)

    class CachedStems:
        def tokenize(self, text: str) -> list[str]:
            return list(tokenize(text, stemmer))

    return RougeScorer(ROUGE, tokenizer=CachedStems())
