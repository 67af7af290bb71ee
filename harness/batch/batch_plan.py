"""The plan of a batch: prompts as ids with their limits, the run's settings, the file of the answers."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.batch.batch_options import BatchOptions, SamplingOptions
from harness.batch.formats import Prompts, read_prompts, write_answers
from harness.batch.models import model_named
from harness.config.benchmark import Benchmark
from harness.config.client_plan import resolve_client
from harness.config.deadlines import resolve_policy
from harness.config.generation import SamplingParameters
from harness.config.run_options import FAILURES_OF_ACCURACY
from harness.dataset import tokenizer
from harness.dataset.samples import SampleSet
from harness.errors import ConfigError, DatasetError
from harness.record.journal import FINISH_REASONS
from harness.rows.attempts import EvalSettings
from harness.rows.eval_plan import EvalPlan, run_folder
from harness.rows.eval_result import EvalResult
from harness.text import counted

# The tokens that end an answer in such files, and are written.
END_TOKENS = (tokenizer.SPECIAL["<|endoftext|>"], tokenizer.SPECIAL["<|return|>"])
_STOPPED = "stop"
_MOST_TOKEN_BYTES = 128  # the longest token of o200k, 128 spaces
_Tokens = TypeVar("_Tokens", int, npt.NDArray[np.int64])


class PromptBatch(msgspec.Struct, frozen=True):
    """A plan with the prompts that it sends, and the file of their answers (sut.rows.run_rows.RowFiles)."""

    plan: EvalPlan
    samples: SampleSet
    positions: int
    notes: tuple[str, ...]

    def read(self) -> SampleSet:
        """The prompts."""
        return self.samples

    def settings_in(self, path: Path) -> EvalSettings | None:
        """None: lines of ids name no settings."""
        return None

    def warnings(self) -> tuple[str, ...]:
        """Of the file of prompts."""
        return self.notes

    def write(self, result: EvalResult, settings: EvalSettings, on_row: Callable[[int], None]) -> EvalResult:
        """Write the answers if every prompt has one: a missing line would shift all lines after it."""
        if result.failures:
            return result
        without_end: list[int] = []

        def answers() -> Iterator[list[int]]:
            for index in range(result.samples):
                answer = result.answers[index]
                ids = answer.output_ids().tolist()
                if FINISH_REASONS[answer.finish] == _STOPPED and ids[-1] not in END_TOKENS:
                    without_end.append(index)
                yield ids
                on_row(index + 1)

        write_answers(self.plan.output, answers())
        return replace(result, written=True, warnings=(*result.warnings, *_end_warnings(without_end)))


def resolve_batch(options: BatchOptions) -> PromptBatch:
    """Read the prompts and turn options into a plan. Raises ConfigError and DatasetError."""
    benchmark = model_named(options.model)
    positions = allowed_positions(options.positions, benchmark)
    prompts = read_prompts(options.input_file)
    samples = _samples(prompts, positions, benchmark)
    assert samples.limits is not None
    parameters = sampling(options, benchmark, int(samples.limits.max()))
    output = options.output.absolute()
    policy = resolve_policy(options, streams=parameters.stream, most_failures=FAILURES_OF_ACCURACY)
    client = resolve_client(
        *(options, benchmark, options.input_file, parameters, policy, run_folder(output)),
        warnings=tuple(unused_sampling(options)),
    )
    plan = EvalPlan(client=client, output=output)
    return PromptBatch(plan, samples, positions, prompts.warnings)


def allowed_positions(wanted: int, benchmark: Benchmark) -> int:
    """``-n`` as a number of positions; 0 means all of the model's context. Raises ConfigError."""
    context = benchmark.context_length
    if not 0 <= wanted <= context:
        raise ConfigError(f"-n is {wanted}, expected 1 to {context}, the context of {benchmark.name}, or 0")
    return wanted or context


def limit_of(prompt_tokens: _Tokens, positions: int, benchmark: Benchmark) -> _Tokens:
    """The most tokens of an answer, or of each answer.

    The last one needs no position: no token follows it. So an answer that is not ended makes the prompt with
    it one token longer than ``positions``, as in the output files of the engines that use this format.
    """
    return min(positions + 1, benchmark.context_length) - prompt_tokens


def sampling(
    options: SamplingOptions, benchmark: Benchmark, max_new_tokens: int, *, stream: bool = False
) -> SamplingParameters:
    """The parameters of every request. Raises ConfigError for a value that no server takes.

    The end tokens are named: a server may have others, from the model's files. llama.cpp has its own alone.
    """
    ends = [token for token in END_TOKENS if token < benchmark.vocabulary_size]
    try:
        return SamplingParameters(
            max_new_tokens=max_new_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=0,
            skip_special_tokens=False,
            stream=stream,
            seed=options.seed,
            extra={"stop_token_ids": ends},
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def unused_sampling(options: SamplingOptions) -> Iterator[str]:
    """A warning for each flag that changes no greedy answer."""
    if options.temperature:
        return
    given: dict[str, float | None] = {"--seed": options.seed}
    if options.top_p != SamplingOptions().top_p:
        given["--top-p"] = options.top_p
    for flag, value in given.items():
        if value is not None:
            yield f"{flag} {value} has no effect: answers are greedy (--temperature 0)"


def _samples(prompts: Prompts, positions: int, benchmark: Benchmark) -> SampleSet:
    """Ids and limits. ``sha256`` covers both: another -n or tokenizer makes it another batch."""
    numbered = enumerate(prompts.texts, start=2)
    ids = [_encoded(prompts, number, text, positions, benchmark) for number, text in numbered]
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    tokens = np.fromiter((token for row in ids for token in row), dtype=np.int32, count=int(lengths.sum()))
    limits = limit_of(lengths, positions, benchmark)
    digest = hashlib.sha256()
    for array in (tokens, lengths, limits):
        digest.update(array.tobytes())
    offsets = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    return SampleSet(prompts.path, digest.hexdigest(), tokens, offsets, limits)


def _encoded(prompts: Prompts, number: int, text: str, positions: int, benchmark: Benchmark) -> list[int]:
    size = len(text.encode())
    least = -(-size // _MOST_TOKEN_BYTES)
    ids = tokenizer.encode(text) if least <= positions else []
    if ids and limit_of(len(ids), positions, benchmark) > 0:
        return ids
    more = "raise -n, or " if positions < benchmark.context_length else ""
    length = counted(len(ids), "token") if ids else f"{size} bytes, at least {least} tokens"
    raise DatasetError(
        f"{prompts.path}: line {number}: prompt of {length}, but -n is {positions} for prompt and answer; "
        f"{more}shorten the prompt"
    )


def _end_warnings(without_end: list[int]) -> Iterator[str]:
    if without_end:
        names = " and ".join(map(str, END_TOKENS))
        yield (
            f"{counted(len(without_end), 'answer', 'was')} stopped by the server without {names} at the end, "
            f"the first in line {without_end[0] + 1}: it also stops at others, or does not send that one"
        )
