"""Answers against reference answers: METEOR and BERTScore of their texts, thresholds, scores by line."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from unicodedata import name as name_of

import msgspec

from harness.batch.batch_options import ScoreOptions
from harness.batch.bert_score_f1 import bert_scores, find_model
from harness.batch.encoding import open_encoding
from harness.batch.formats import cut_off, read_ids
from harness.batch.meteor import find_wordnet, meteor_scores
from harness.errors import EXIT_THRESHOLD, EXIT_VALID, ConfigError, DatasetError
from harness.files import atomic_write, explained_write, require_other
from harness.json_files import read_json
from harness.progress.progress_line import ProgressBar
from harness.rows.attempts import require_writable
from harness.text import counted, show

METEOR, BERTSCORE = "meteor", "bertscore_f1"
_SHOWN_DIGITS = 6
_LETTERS = 2000  # only the first characters of a text decide what script it is in


class _Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The least passing values; None where a metric has none."""

    meteor: float | None = None
    bertscore_f1: float | None = None


class DecodedFile(msgspec.Struct, frozen=True):
    """The texts of a file of ids, a line each, and the number of their ids."""

    path: Path
    texts: tuple[str, ...]
    lengths: tuple[int, ...]


class PairScores(msgspec.Struct, frozen=True):
    """The scores of every pair by one metric."""

    name: str
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over all pairs, empty ones too."""
        return sum(self.scores) / len(self.scores)


def score(options: ScoreOptions) -> int:
    """Print number of pairs and means, write the scores by line; returns the exit code.

    Raises HarnessError for what keeps it from starting.
    """
    thresholds = read_thresholds(options.thresholds)
    if options.output is not None:
        _check_output(options.output, options.submission, options.references)
    submission, references = (
        _read(path, options.encoding) for path in (options.submission, options.references)
    )
    pairs = list(zip(submission.texts, references.texts, strict=False))
    if not pairs:
        shorter = min(submission, references, key=lambda texts: len(texts.texts))
        raise DatasetError(f"{shorter.path}: no lines, expected answers as token ids")
    places = _Places.find(options, thresholds)  # last: what is missing there may take gigabytes to install
    metrics = list(_measure(options, places, pairs))
    if options.output is not None:
        _write(options.output, submission, references, metrics, len(pairs))
    print(f"items\t{len(pairs)}")
    for metric in metrics:
        print(f"{metric.name}\t{round(metric.mean, _SHOWN_DIGITS)}")
    for line in (*places.left_out, *_notes(submission, references, metrics)):
        show(f"NOTE: {line}")
    return _judge(metrics, thresholds)


def _check_output(output: Path, *read: Path) -> None:
    """Raise ConfigError for what would be found only when everything is scored."""
    require_other(output, *read)
    require_writable(output)
    if not output.parent.is_dir():
        raise ConfigError(f"{output}: cannot be written: no such folder; choose another --output")


def read_thresholds(path: Path | None) -> _Thresholds:
    """The file's thresholds, none without one. Raises ConfigError."""
    if path is None:
        return _Thresholds()
    expected = f'expected a JSON object such as {{"{METEOR}": 0.4, "{BERTSCORE}": 0.9}}'
    return read_json(path, _Thresholds, expected, f"--thresholds {path}")


class _Places(msgspec.Struct, frozen=True):
    """The folders of WordNet and the model; None for a metric that is left out, and why."""

    wordnet: Path | None
    model: Path | None
    left_out: tuple[str, ...]

    @classmethod
    def find(cls, options: ScoreOptions, thresholds: _Thresholds) -> "_Places":
        """WordNet and the model, those that no flag or threshold needs only if found. Raises ConfigError."""
        left_out = []
        wordnet = model = None
        try:
            wordnet = find_wordnet(options.wordnet)
        except ConfigError as error:
            if options.wordnet is not None or thresholds.meteor is not None:
                raise
            left_out.append(f"{METEOR} is left out: {error}")
        try:
            model = find_model(options.bert_model, options.num_layers)
        except ConfigError as error:
            if options.bert_model is not None or thresholds.bertscore_f1 is not None:
                raise
            left_out.append(f"{BERTSCORE} is left out: {error}")
        if wordnet is None and model is None:
            raise ConfigError("; ".join(left_out))
        return cls(wordnet, model, tuple(left_out))


def _read(path: Path, encoding_name: str) -> DecodedFile:
    encoding = open_encoding(encoding_name)
    ids = list(read_ids(path, encoding.vocabulary_size))
    return DecodedFile(path, tuple(map(encoding.decode, ids)), tuple(map(len, ids)))


def _measure(
    options: ScoreOptions, places: _Places, pairs: Sequence[tuple[str, str]]
) -> Iterator[PairScores]:
    with ProgressBar(sys.stderr) as bar:

        def show(what: str, done: int) -> None:
            bar.show(done, len(pairs), f"pairs by {what}")

        if places.wordnet is not None:
            meteor = meteor_scores(
                pairs, places.wordnet, options.num_workers, lambda done: show("METEOR", done)
            )
            yield PairScores(METEOR, tuple(meteor))
        if places.model is not None:
            f1 = bert_scores(
                pairs,
                places.model,
                options.num_layers,
                options.device,
                options.batch_size,
                lambda done: show("BERTScore", done),
            )
            yield PairScores(BERTSCORE, tuple(f1))


def _notes(submission: DecodedFile, references: DecodedFile, metrics: Sequence[PairScores]) -> Iterator[str]:
    """Facts that the means hide: lines that are not compared, empty texts, texts in another script."""
    yield from filter(None, (cut_off(submission.path), cut_off(references.path)))
    ours, theirs = submission.texts, references.texts
    if len(ours) != len(theirs):
        yield (
            f"{submission.path} has {counted(len(ours), 'line')}, {references.path} {len(theirs)}: only the "
            f"first {min(len(ours), len(theirs))} of both are compared"
        )
    pairs = list(zip(ours, theirs, strict=False))
    empty = [index for index, pair in enumerate(pairs) if not any(map(str.strip, pair))]
    if empty:
        kept = [index for index, pair in enumerate(pairs) if any(map(str.strip, pair))]
        without = ", ".join(
            f"{metric.name} {sum(metric.scores[index] for index in kept) / len(kept):.6f}"
            for metric in metrics
            if kept
        )
        yield (
            f"{counted(len(empty), 'line', 'is')} empty in both files (first: {empty[0] + 1}) and an item "
            f"with score 0; without them: {without or 'no items'}"
        )
    for which, found in (
        ("the submission", [i for i, (a, b) in enumerate(pairs) if not a.strip() and b.strip()]),
        ("the references", [i for i, (a, b) in enumerate(pairs) if a.strip() and not b.strip()]),
    ):
        if found:
            yield f"{counted(len(found), 'line', 'is')} empty in {which} only (first: {found[0] + 1})"
    other = [
        i for i, (a, b) in enumerate(pairs) if (one := _script(a)) and (two := _script(b)) and one != two
    ]
    if other:
        first = pairs[other[0]]
        yield (
            f"{counted(len(other), 'line', 'is')} in another script than the reference (first: {other[0] + 1}"
            f", {_script(first[0])} and {_script(first[1])}): another language"
        )


def _script(text: str) -> str:
    """The script of most letters, as Unicode names it; "" without letters."""
    counts = Counter(filter(None, map(_script_of, text[:_LETTERS])))
    return max(counts, key=counts.__getitem__, default="")


@lru_cache(maxsize=1 << 14)
def _script_of(character: str) -> str:
    return name_of(character, "").partition(" ")[0] if character.isalpha() else ""


def _judge(metrics: Sequence[PairScores], thresholds: _Thresholds) -> int:
    least = msgspec.structs.asdict(thresholds)
    below = [
        metric for metric in metrics if least[metric.name] is not None and metric.mean < least[metric.name]
    ]
    for metric in below:
        print(
            f"BELOW THE THRESHOLD: {metric.name} is {metric.mean:.8f}, expected at least {least[metric.name]}"
        )
    return EXIT_THRESHOLD if below else EXIT_VALID


def _write(
    path: Path, submission: DecodedFile, references: DecodedFile, metrics: Sequence[PairScores], lines: int
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "line": pa.array(range(1, lines + 1), pa.int64()),
        "submission_tokens": pa.array(submission.lengths[:lines], pa.int64()),
        "reference_tokens": pa.array(references.lengths[:lines], pa.int64()),
        **{metric.name: pa.array(metric.scores, pa.float64()) for metric in metrics},
    }
    with explained_write(path, "--output"), atomic_write(path) as file:
        pq.write_table(pa.table(columns), file)
