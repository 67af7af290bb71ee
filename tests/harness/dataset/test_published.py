"""Whether a dataset is the published file: datasets/manifest.tsv has its checksum."""

import pytest
from msgspec.structs import replace

from harness.config.benchmark import load_benchmark
from harness.dataset import published
from harness.dataset.published import other_than_published
from tests.runs import SAMPLES

RULE = load_benchmark("gpt-oss-120b").datasets["performance"]
SAMPLE = replace(RULE, file="samples/perf_sample.parquet")


@pytest.mark.parametrize(
    ("benchmark", "rule", "file", "named"),
    [
        ("samples", SAMPLE, "perf_sample.parquet", ()),
        ("samples", SAMPLE, "acc_sample.parquet", ("sha256 7686dd73", "expected 29dd5962")),
        (
            "gpt-oss-120b",
            RULE,
            "perf_sample.parquet",
            ("expected e4cd6cef", "--benchmark gpt-oss-120b --what perf"),
        ),
        (
            "gpt-oss-120b",
            replace(RULE, file="acc/acc_eval_compliance_gpqa.parquet"),
            "perf_sample.parquet",
            (),
        ),
    ],
    ids=["the published", "another", "md5", "no checksum known"],
)
def test_another_file_is_named_with_both_checksums(benchmark, rule, file, named):
    found = other_than_published(benchmark, rule, SAMPLES / file)
    assert bool(found) == bool(named)
    assert all(part in found for part in named)


def test_a_copy_without_the_manifest_knows_none(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "_MANIFEST", tmp_path / "manifest.tsv")
    assert not other_than_published("gpt-oss-120b", RULE, SAMPLES / "perf_sample.parquet")
