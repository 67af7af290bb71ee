"""Summaries: ROUGE against the reference and the length in characters, as llama3.1-8b's evaluator has them.

ROUGE as its reference evaluator computes it: Punkt sentences, rouge_score with Porter stems, by the packages
that it uses. nltk 3.9 splits and stems as the 3.8.1 that it pins.

What a score does not show is remarked beside it: outputs without text, at the token limit, copied from the
article, or not in English.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from harness.cli.processes import computing
from harness.dataset.cnndm import TEMPLATE
from harness.errors import GradingError
from harness.grading.decoding.output import Output
from harness.grading.graders.grader import TaskOptions
from harness.grading.scoring.grade import AccuracyMetric, Grade, Progress, Reason, Task, Total, scored
from harness.lean_nltk import load_nltk

if TYPE_CHECKING:
    from nltk.tokenize.punkt import PunktSentenceTokenizer
    from rouge_score.rouge_scorer import RougeScorer

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_LENGTH, _NUMBER = "gen_len", "gen_num"

METRICS: Mapping[str, AccuracyMetric] = MappingProxyType(
    {name: AccuracyMetric(Total.PERCENT, 4, quoted=True) for name in ROUGE}
    | {_LENGTH: AccuracyMetric(Total.SUM, 0), _NUMBER: AccuracyMetric(Total.SUM, 0)}
)

_EMPTY, _CUT, _COPIED, _FOREIGN = "empty", "cut", "copied", "not_english"
_RUN_WORDS, _COPIED_SHARE = 8, 0.8
_LEAST_WORDS, _ENGLISH_SHARE = 10, 0.1
REMARKS: Mapping[str, str] = MappingProxyType(
    {
        _EMPTY: "no text",
        _CUT: "ended by the token limit",
        _COPIED: f"at least {_COPIED_SHARE:.0%} of its runs of {_RUN_WORDS} words are the prompt's",
        _FOREIGN: f"under {_ENGLISH_SHARE:.0%} of its words are among 40 common English ones (a rough test)",
    }
)
_INSTRUCTION = TEMPLATE.partition("\n")[0]  # of the prompt, which the dataset has without it
_ENGLISH = frozenset((
    "a", "an", "the", "this", "that", "it", "he", "she", "they", "his", "her", "their", "who", "and",
    "but", "of", "to", "in", "for", "on", "with", "from", "by", "as", "at", "after", "not", "be",
    "been", "is", "are", "was", "were", "has", "have", "had", "will", "would", "said", "which",
))  # fmt: skip
_NO_WORD = re.compile(r"[\W_]+")

_CHUNK = 64  # summaries that a process takes at once
_FEW = 256  # summaries that are compared here, before processes would have started


def check_reference(value: object) -> str:
    """The reference summary."""
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


class Summary(Task, frozen=True):
    """A decoded output and its reference."""

    text: str
    truth: str


def official(output: Output, truth: str) -> Grade | Task:
    """The comparison with the reference."""
    return Summary(output.text, truth)


def strict(output: Output, truth: str) -> Grade | Task:
    """There are no other rules for a text metric."""
    raise NotImplementedError


def remarks(output: Output, prompt: str | None) -> tuple[str, ...]:
    """As RemarkingGrader; ``prompt`` is the article."""
    text = output.text
    found = {
        _EMPTY: not text,
        _CUT: output.defect is Reason.TRUNCATED,
        _COPIED: prompt is not None and _is_copied(text, f"{_INSTRUCTION} {prompt}"),
        _FOREIGN: _is_foreign(text),
    }
    return tuple(name for name, is_found in found.items() if is_found)


def _is_copied(text: str, prompt: str) -> bool:
    words = _words(text)
    runs = len(words) - _RUN_WORDS + 1
    if runs < 1:
        return False
    within, own = f" {' '.join(_words(prompt))} ", 0
    for start in range(runs):
        own += f" {' '.join(words[start : start + _RUN_WORDS])} " not in within
        if own > (1 - _COPIED_SHARE) * runs:
            return False
    return True


def _is_foreign(text: str) -> bool:
    words = _words(text)
    english = sum(word in _ENGLISH for word in words)
    if len(words) >= _LEAST_WORDS:
        return english < _ENGLISH_SHARE * len(words)
    # Scripts that do not part words: a sentence is one.
    return not english and sum(char.isalpha() and not char.isascii() for char in text) >= _LEAST_WORDS


def _words(text: str) -> list[str]:
    return _NO_WORD.sub(" ", text.lower()).split()


class Comparison(msgspec.Struct, frozen=True):
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


class SummaryRunner(msgspec.Struct, frozen=True):
    """Compares the summaries of a log in processes."""

    workers: int

    def grade(self, tasks: Iterable[Task], progress: Progress) -> Mapping[Task, Grade]:
        """As TaskRunner."""
        summaries = [task for task in tasks if isinstance(task, Summary)]
        processes = 0 if len(summaries) <= _FEW else self.workers
        grades: dict[Task, Grade] = {}
        killed = GradingError(
            "a process that compared summaries was killed, perhaps for lack of memory; run it again, with "
            "fewer processes (--num-workers 1)"
        )
        with computing(_compare, summaries, processes, _CHUNK, killed) as results:
            for summary, comparison in zip(summaries, results, strict=True):
                grades[summary] = _grade(comparison)
                progress(len(grades), len(summaries), "summaries")
        return grades


def prepare(truths: Sequence[str], options: TaskOptions) -> SummaryRunner:
    """As GraderWithTasks."""
    return SummaryRunner(options.workers)


def _grade(comparison: Comparison) -> Grade:
    scores = {**comparison.fmeasure, _LENGTH: float(len(comparison.text)), _NUMBER: 1.0}
    return scored(scores, comparison.text)


def _compare(summary: Summary) -> Comparison:
    return compare(summary.text, summary.truth)
