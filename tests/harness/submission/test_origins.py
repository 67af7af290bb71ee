"""Which differences between the runs of one scenario are named, and which of them are of places alone."""

import pytest
from msgspec.structs import replace

from harness.record.run_record import EncodedAnswers
from harness.record.settled import Router, ServerInfo
from harness.submission.tree.origins import PLACES, is_here, origin_differences
from tests.records import ENDED, with_plan

HASHES = ("b5c939de8f754692c1647ca79fbf85e8c1e70f8a", "0" * 40)
CACHE = f"/root/.cache/huggingface/hub/models--openai--gpt-oss-120b/snapshots/{HASHES[0]}"


def served(engine="SGLang", **facts):
    """A run against one server of gpt-oss-120b."""
    return of_servers({"engine": engine} | facts)


def of_servers(*servers):
    found = [
        ServerInfo(
            **{
                "url": f"http://n{number}:30000",
                "wire": "sglang",
                "engine": "SGLang",
                "model": "openai/gpt-oss-120b",
                "version": "0.5.23",
            }
            | facts
        )
        for number, facts in enumerate(servers)
    ]
    return replace(ENDED, servers=tuple(found), deviations=())


def vllm(path):
    """It calls the path its model, and reports nothing else of the weights."""
    return served("vllm", model=path, served_name="openai/gpt-oss-120b", model_path=path)


def of_dataset(digest, **plan):
    return with_plan(served(), dataset_sha256=digest * 64, **plan)


def of_texts(digest):
    """Answers that came as text, encoded with this tokenizer."""
    return replace(served(), encoded=EncodedAnswers(tokenizer="/m", tokenizer_sha256=digest))


def at(*paths, **facts):
    """Servers with the model at these paths, one each."""
    return of_servers(*({"model_path": path} | facts for path in paths))


DIFFERENT = {
    "vLLM with other weights": (vllm("/m/gpt-oss-120b-int4-awq"), vllm("/m/gpt-oss-120b-bf16"), "model path"),
    "another model at another path": (at("/m/a"), at("/m/b"), "model path"),
    "another revision": (
        at("/m/a", revision=HASHES[0]),
        at("/m/a", revision=HASHES[1]),
        "revision of the weights",
    ),
    "updated weights": (served(weight_version="v1"), served(weight_version="v2"), "weight version"),
    "other precision": (served(weights_gb=61.2), served(weights_gb=240.0), "GB of weights"),
    "two datasets for the same rule": (
        of_dataset("a"),
        of_dataset("b"),
        "sha256 of the dataset (perf/perf_eval_ref.parquet)",
    ),
    "two tokenizers": (of_texts("a"), of_texts("b"), "sha256 of the tokenizer of texts"),
}
SAME = {
    "the dataset of the accuracy run": (of_dataset("a"), of_dataset("b", mode="accuracy")),
    "ids beside texts": (served(), of_texts("a")),
    "a branch and what it stands for": (served(revision="main"), served(revision=HASHES[0])),
    "a fact that one run does not know": (served(revision=HASHES[0], weights_gb=61.2), served()),
    "the memory of weights, measured": (served(weights_gb=61.2), served(weights_gb=60.3)),
    "node-local folders, one server less": (
        at("/d0/gpt-oss-120b", "/d1/gpt-oss-120b"),
        at("/d0/gpt-oss-120b"),
    ),
    "one of several servers behind a router": (
        at("/d0/gpt-oss-120b", router=Router("sglang-router")),
        at("/d1/gpt-oss-120b", router=Router("sglang-router")),
    ),
}
MOVED = {
    "folders of the same name": (vllm("/d0/gpt-oss-120b"), vllm("/d1/gpt-oss-120b/")),
    "a cache": (at(CACHE), at("/data/gpt-oss-120b")),
    "the same revision": (at("/m/a", revision=HASHES[0]), at("/m/b", revision=HASHES[0])),
    "as many GB of weights": (at("/m/a", weights_gb=61.2), at("/m/b", weights_gb=61.3)),
}


def differences(first, second):
    return [what for what, _ in origin_differences({"performance/run_1": first, "other": second})]


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_weights_and_datasets(name):
    first, second, what = DIFFERENT[name]
    assert [one for one in differences(first, second) if one != "server"] == [what]
    assert what not in PLACES


@pytest.mark.parametrize("name", SAME)
def test_what_is_no_difference(name):
    assert [one for one in differences(*SAME[name]) if one != "server"] == []


@pytest.mark.parametrize("name", MOVED)
def test_the_same_weights_in_another_folder(name):
    assert differences(*MOVED[name]) == ["folder of the model"]


def test_runs_are_compared_with_the_first_that_knows():
    records = {"performance/run_1": served(), "accuracy": served(revision=HASHES[0])}
    records["TEST07"] = served(revision=HASHES[1])
    ((_, text),) = origin_differences(records)
    assert text == f"revision of the weights of accuracy is {HASHES[0]}, of TEST07 {HASHES[1]}"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:30000", True),
        ("http://Box:30000", True),
        ("http://node[1-2]:30000", False),
        ("slurm:box:30000", False),
    ],
)
def test_a_url_is_here_where_that_is_plain(url, here):
    assert is_here(url, "box") is here
