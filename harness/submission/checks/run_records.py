"""Checks of a result by the run.json of its runs, which is kept beside the tree and never submitted."""

import re
from collections.abc import Iterator
from pathlib import Path

from harness.analysis.run_warnings import names_same_answers, rule_warnings
from harness.compliance.registry import TESTS
from harness.dataset.published import names_other_file
from harness.errors import ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    PERFORMANCE,
    RUN_RECORD,
    SUMMARY,
    sha256_of,
)
from harness.grading.reports.scorecard import mean_tokens
from harness.json_files import read_fields
from harness.record.resume import names_other_version
from harness.record.run_record import RunRecord
from harness.submission.checks.context import CheckContext, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.tree.accuracy_files import read_accuracy_text
from harness.submission.tree.layout import MEASUREMENTS
from harness.submission.tree.origins import PLACES, origin_differences, read_record
from harness.submission.tree.system_description import whole_number

_ROUNDED = 0.01  # a mean with two decimals differs by less
# Names of SGLang's --quantization that say the bits of a weight: fp8, mxfp4, w8a8_int8, modelopt_fp4. Of
# w4afp8 the weights have 4.
_QUANTIZATION = re.compile(r"(?:[a-z]+_|w8a8_)?(?:mx|nv)?(?:fp|int)([48])")


def check_records(context: CheckContext) -> Iterator[Issue]:
    """Origin, deviations and verdicts of the runs whose run.json was kept."""
    if (kept := context.kept) is None:
        return
    records: dict[Path, RunRecord] = {}
    for folder in (PERFORMANCE, ACCURACY, *map(Path, TESTS)):
        try:
            record = read_record(kept / folder / RUN_RECORD)
        except ConfigError as error:
            yield context.issue("run-verdict", folder, str(error))
            continue
        if record is not None:
            records[folder] = record
    own = context.benchmark.name, context.scenario
    found = {(record.plan.client.benchmark.name, record.plan.scenario) for record in records.values()}
    for other in sorted(found - {own}):
        text = f"there are runs of {', '.join(other)} (run.json), expected {', '.join(own)}"
        yield context.issue("origin", Path(), text, remedy="build each result from runs of its own")
    for folder, record in records.items():
        if folder in (PERFORMANCE, ACCURACY):
            yield from _verdict(context, folder, record)
        if folder == PERFORMANCE:
            yield from _of_another_system(context, record)
            yield from _of_other_weights(context, record)
        if context.closed:
            for deviation in record.deviations:
                yield context.issue("deviations", folder, deviation)
            for warning in (*rule_warnings(record), *filter(_is_of_rules, record.warnings)):
                yield context.issue("deviations", folder, warning, is_warning=True)
        yield from _of_another_run(context, folder, record)
        yield from _of_another_log(context, folder, record)
    for what, text in origin_differences({folder.as_posix(): record for folder, record in records.items()}):
        yield context.issue("origin", Path(), text, is_warning=what in PLACES)


def _of_another_run(context: CheckContext, folder: Path, record: RunRecord) -> Iterator[Issue]:
    """Logs or a score that are not of the run whose run.json was kept."""
    what = ""
    if folder == ACCURACY:  # whose summary has no figures
        path = context.dir.path / folder / ACCURACY_TEXT
        found = mean_tokens(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
        mean = None if record.statistics is None else record.statistics.osl_mean
        if found is not None and mean is not None and abs(found - mean) > _ROUNDED:
            what = f"mean output tokens are {found:.2f}, the {RUN_RECORD} of this run has {mean:.2f}"
    elif record.loadgen is not None:
        logs = read_logs(context, folder if folder == PERFORMANCE else folder / PERFORMANCE)
        path, what = logs.folder / SUMMARY, logs.summary.difference(record.loadgen)
    if what:
        yield context.issue("cross-check", path, what)


def _of_another_log(context: CheckContext, folder: Path, record: RunRecord) -> Iterator[Issue]:
    """An accuracy log that is not the one which the run left."""
    place = context.dir.path / (folder if folder == ACCURACY else folder / ACCURACY)
    is_complete = folder != ACCURACY and folder != PERFORMANCE and not TESTS[folder.name].every_sample
    path = place / (ACCURACY_LOG if is_complete else ACCURACY_TEXT)
    wanted = record.accuracy_log_sha256
    if not wanted or not path.is_file():
        return
    hashes = (sha256_of(path),) if is_complete else read_accuracy_text(path).hashes
    if hashes and wanted not in hashes:
        what = f"has the hash {hashes[0][:12]}…, the {RUN_RECORD} of this run has {wanted[:12]}…"
        yield context.issue("cross-check", path, what)


def _of_another_system(context: CheckContext, record: RunRecord) -> Iterator[Issue]:
    """A system description that is not of the servers of the performance run, such as the last round's."""
    path = context.dir.system_file
    fields, used = read_fields(path), _gpus(record)
    if isinstance(fields, str):
        return
    nodes, each = (whole_number(fields.get(name)) for name in ("number_of_nodes", "accelerators_per_node"))
    if used and nodes and each and nodes * each != used:
        text = (
            f"the system has {nodes * each} accelerators, the servers of the run used {used} by their options"
        )
        yield context.issue("cross-check", path, text, is_warning=True)
    framework = str(fields.get("framework", ""))
    for version in sorted(
        {one.version.partition(" ")[0].strip("?") for one in record.servers if one.version}
    ):
        # 0.5.2 is not 0.5.23, but sglang_v.0.5.2_cu129 is
        if not re.search(rf"(?<!\d)(?<!\d\.){re.escape(version)}(?!\.?[^\W_])", framework):
            text = f"framework is {framework!r}, the servers of the run reported version {version}"
            yield context.issue("cross-check", path, text, is_warning=True)


def _of_other_weights(context: CheckContext, record: RunRecord) -> Iterator[Issue]:
    """A type of weights with other bits than those to which the servers of the performance run quantized.

    No option says to what a checkpoint was quantized before.
    """
    path = context.dir.path / MEASUREMENTS
    fields = read_fields(path)
    stated = "" if isinstance(fields, str) else str(fields.get("weight_data_types", ""))
    bits = set(re.findall(r"\d+", stated))
    for name in sorted({str(one.settings.get("quantization")) for one in record.servers}):
        match = _QUANTIZATION.fullmatch(name)
        if match and bits and match[1] not in bits:
            text = f"weight_data_types is {stated!r}, the servers of the run had the quantization {name}"
            yield context.issue("cross-check", path, text, is_warning=True)


def _gpus(record: RunRecord) -> int | None:
    """The GPUs of all servers, by SGLang's options; None where one does not show them, or only its rank's."""
    found = []
    for server in record.servers:
        settings = {"pp_size": 1, "dp_size": 1} | server.settings
        tp, pp, dp = (whole_number(settings.get(name)) for name in ("tp_size", "pp_size", "dp_size"))
        if server.router or server.listener or tp is None or pp is None or dp is None:
            return None
        # Ranks of data-parallel attention share the GPUs of tp_size.
        found.append(tp * pp * (1 if settings.get("enable_dp_attention") else dp))
    return sum(found)


def _is_of_rules(warning: str) -> bool:
    """Whether a warning that a run left is about the rules of the closed division."""
    return any(is_one(warning) for is_one in (names_other_file, names_same_answers, names_other_version))


def _verdict(context: CheckContext, folder: Path, record: RunRecord) -> Iterator[Issue]:
    verdict = record.verdict
    if verdict is None:
        yield context.issue("run-verdict", folder, f"{RUN_RECORD} has no verdict: the run did not finish")
    elif verdict.result != "VALID":
        text = f"the verdict in {RUN_RECORD} is {verdict.result}: {'; '.join(verdict.reasons)}"
        yield context.issue("run-verdict", folder, text)
