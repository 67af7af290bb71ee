"""Files of prompts, text and ids: what is read, what is refused in one line, and what is written."""

import json
import random

import numpy as np
import pytest

import run_batch as program
from harness.batch.batch_options import BatchOptions
from harness.batch.batch_plan import resolve_batch
from harness.batch.formats import read_ids, read_prompts
from harness.batch.models import model_named
from harness.dataset import tokenizer
from harness.errors import ConfigError
from tests.harness.batch.stand_ins import write_ids
from tests.runs import SAMPLES, main_here

MEGABYTE = b"x" * (1 << 20)

# A file of prompts, flags, and words of the one line that refuses it.
REFUSED = [
    (b"", (), "empty, expected the number"),
    (b"Hello\n", (), "'Hello', expected the number"),
    (b"\x00\n", (), "expected the number"),
    (b"-1\nHello\n", (), "'-1'"),
    (b"0\n", (), "at least 1"),
    (b"99999999999\nHello\n", (), "expected the number"),
    (b"3\nHello\nworld\n", (), "2 lines after the first, which has the number 3"),
    (b"1\nHello\nworld\n", (), "2 lines after the first, which has the number 1"),
    (b"2\nHello\n\n", (), "line 3 is empty"),
    (b"2\r\nHello\r\n\r\n", (), "line 3 is empty"),
    (b"2\nHello\na\x00b\n", (), "line 3 holds a NUL at column 2"),
    (b"1\n\xffb\n", (), "line 2, byte 1: not UTF-8"),
    ("1\na\n".encode("utf-16"), (), "UTF-16, expected UTF-8"),
    (b"1\nHello" + MEGABYTE + b"\n", (), "line 2: prompt of 1048581 bytes"),
    (b"2\na\none two three four\n", ("-n", 3), "line 3: prompt of 4 tokens, but -n is 3"),
    (b"1\na\n", ("-n", 131073), "-n is 131073, expected 1 to 131072"),
    (b"1\na\n", ("-n", -1), "-n is -1"),
    (b"1\na\n", ("-t", -1), "temperature is -1"),
    (b"1\na\n", ("-t", "inf"), "temperature is inf"),
    (b"1\na\n", ("-p", 0), "top_p is 0"),
    (b"1\na\n", ("-s", 1 << 63), "seed is"),
    (b"1\na\n", ("--model", "7b"), "--model 7b: expected 20b, 120b"),
    (b"1\na\n", ("--model", "."), "config.json"),
    (b"1\na\n", ("--model", "input.txt"), "its format is not known"),
    (b"1\na\n", ("--model", "model.bin"), "24 layers, 32 experts"),
    (b"1\na\n", ("--output", "input.txt"), "this file is the input; choose another name"),
    (b"1\na\n", ("--output", "input.txt/ids.txt"), "cannot be written"),
    (b"1\na\n", ("--resume",), "no run to resume"),
    (b"1\na\n", ("--input", "nowhere.txt"), "nowhere.txt: cannot be read: No such file"),
    (b"1\na\n", ("--input", "."), "cannot be read: Is a directory"),
]
MODEL_BIN = np.array([201088, 2880, 32, 4, 2880, 24, 64, 64, 8, 131072, 4096], "<i4").tobytes() + b"\0" * 99


def refused(capfd, words, *arguments):
    """The program's one line holds these words."""
    code, _, stderr = main_here(capfd, program.main, [*map(str, arguments)])
    (line,) = stderr.splitlines()
    assert (code, words in line) == (2, True), line


@pytest.mark.parametrize(("content", "flags", "words"), REFUSED, ids=lambda value: str(value)[-30:])
def test_prompts_and_flags_that_cannot_be_used(content, flags, words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input.txt").write_bytes(content)
    (tmp_path / "model.bin").write_bytes(MODEL_BIN)
    refused(capfd, words, "run", "--input", "input.txt", "--output", "ids.txt", *flags)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.txt", "model.bin"]


@pytest.mark.parametrize("words", [("generate", "a\udcff"), ("chat", "--system", "\udcff", "hi")])
def test_a_prompt_on_the_command_line_that_is_no_text_is_refused(words, capfd):
    refused(capfd, "\\udcff' is not text in this locale's encoding; write it in UTF-8", *words)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"2\nHello\nHello world", ["Hello", "Hello world"]),
        (b"\xef\xbb\xbf 2 \nHello\nHello world\n\n \n", ["Hello", "Hello world"]),
        (b"2\r\nHello\r\nHello world\r\n", ["Hello", "Hello world"]),
        ("1\nnaïve \t<|return|>\u2028\n".encode(), ["naïve \t<|return|>\u2028"]),
    ],
)
def test_prompts(content, texts, tmp_path):
    path = tmp_path / "input.txt"
    path.write_bytes(content)
    found = read_prompts(path)
    assert list(found.texts) == texts
    assert len(found.warnings) == (b"\r" in content)


@pytest.mark.parametrize(
    ("positions", "limits"),
    [(1024, [1024, 1023]), (2, [2, 1]), (0, [131071, 131070]), (131072, [131071, 131070])],
)
def test_limits_count_the_prompt(positions, limits, tmp_path):
    """As in moreh-dev/gpt-oss's own output.txt: 30 of its 32 prompts with answers have 1025 tokens."""
    path = tmp_path / "input.txt"
    path.write_text("2\nHello\nHello world\n")
    batch = resolve_batch(BatchOptions(input_file=path, output=tmp_path / "o", positions=positions))
    assert batch.samples.limits.tolist() == limits
    assert batch.plan.client.parameters.max_new_tokens == max(limits)
    assert [batch.samples.tokens(row).tolist() for row in range(2)] == [[13225], [13225, 2375]]
    assert batch.plan.client.benchmark.model == "openai/gpt-oss-20b"


@pytest.mark.parametrize(
    ("given", "unused"),
    [
        ({}, []),
        ({"seed": 3, "top_p": 0.5}, ["--seed 3", "--top-p 0.5"]),
        ({"seed": 2**31}, ["--seed 2147483648"]),
        ({"seed": 3, "top_p": 0.5, "temperature": 0.7}, []),
    ],
)
def test_flags_that_change_no_greedy_answer(given, unused, tmp_path):
    path = tmp_path / "input.txt"
    path.write_text("1\nHello\n")
    warnings = resolve_batch(
        BatchOptions(input_file=path, output=tmp_path / "o", **given)
    ).plan.client.warnings
    assert [text.partition(" has no effect: answers are greedy")[0] for text in warnings] == unused


def test_a_prompt_that_fills_the_context_is_refused(tmp_path, capfd):
    """Its limit was 0, which stands for the longest answer of the others: the server refused it."""
    (tmp_path / "config.json").write_text('{"vocab_size": 201088, "max_position_embeddings": 4}')
    (tmp_path / "input.txt").write_text("2\none\none two three four\n")
    given = ("--input", tmp_path / "input.txt", "--output", tmp_path / "o", "--model", tmp_path, "-n", 0)
    words = "line 3: prompt of 4 tokens, but -n is 4 for prompt and answer; shorten the prompt"
    refused(capfd, words, "run", *given)


# A line of ids, and what is said of it.
WRONG_IDS = [
    (b"1 2 x", "line 2, column 5: 'x' is no token id"),
    (b"1 201088 ", "line 2, column 3: 201088 is outside the vocabulary, expected 0 to 201087"),
    (b"-1", "column 1: '-1' is no token id"),
    (b"5\t\t1.5", "column 4: '1.5' is no token id"),
    (b"1_0", "'1_0'"),
    (b"+1", "'+1'"),
    (b"1 \x00", r"column 3: '\x00'"),
    (b"1 \xff", "column 3"),
    (b"1 " + b"9" * 5000, "column 3: 999"),
    ("\u0661".encode(), "column 1"),
]


@pytest.mark.parametrize(("line", "words"), WRONG_IDS)
def test_a_wrong_id_is_named_with_line_and_column(line, words, tmp_path, capfd):
    path, output = tmp_path / "ids.txt", tmp_path / "text.txt"
    path.write_bytes(b"1 2 \n" + line + b"\n\n")
    refused(capfd, words, "decode", "-i", path, "-o", output)
    assert not output.exists()


def test_ids_of_crlf_empty_and_unended_lines(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_bytes(b"1 2 \r\n\r\n\n199999 200002\n201087")
    assert [ids.tolist() for ids in read_ids(path, 201088)] == [[1, 2], [], [], [199999, 200002], [201087]]


def converted(capfd, command, *words):
    code, stdout, stderr = main_here(capfd, program.main, [command, *map(str, words)])
    assert code == 0, stderr
    return stdout


def test_texts_come_back_from_their_ids(tmp_path, capfd):
    """Plain lines and, with --json, texts with line breaks; CR at the end of a line belongs to its end."""
    chance = random.Random(18)
    letters = [chr(code) for code in range(0x3100)] + list("  etaoin shrdlu\r'漢字🙂") * 500
    texts = ["".join(chance.choices(letters, k=chance.randrange(30))) for _ in range(300)]
    plain = [text.replace("\n", "").rstrip("\r") for text in texts]
    text, ids, back = tmp_path / "text", tmp_path / "ids", tmp_path / "back"
    text.write_bytes("".join(f"{line}\n" for line in plain).encode())
    converted(capfd, "encode", "-i", text, "-o", ids)
    assert [ids.tolist() for ids in read_ids(ids, 201088)] == [tokenizer.encode(line) for line in plain]
    converted(capfd, "decode", "-i", ids, "-o", back)
    assert back.read_bytes() == text.read_bytes()
    write_ids(ids, texts)
    converted(capfd, "decode", "-i", ids, "-o", back, "--json")
    refused(capfd, "line 1: JSON is malformed", "encode", "-i", text, "-o", tmp_path / "none", "--json")
    converted(capfd, "encode", "-i", back, "-o", text, "--json")
    assert [line.split() for line in text.open()] == [line.split() for line in ids.open()]


def test_decode_on_stdout_and_the_older_form(tmp_path, capfd):
    path = tmp_path / "ids.txt"
    path.write_text("13225 200002 \n\n13225 2375 \n")
    hello, world = "Hello<|return|>", "Hello world"
    assert converted(capfd, "decode", "-i", path) == f"{hello}\n\n{world}\n"
    assert converted(capfd, "decode", 2, "-i", path) == f"Decoding line 2:\n{world}\n"
    everything = f"Decoding line 0:\n{hello}\nDecoding line 1:\n\nDecoding line 2:\n{world}\n"
    assert converted(capfd, "decode", -1, "-i", path) == everything
    for line, words in (("3", "3 lines, line 3 asked for"), ("-2", "line -2 asked for")):
        refused(capfd, words, "decode", line, "-i", path)


@pytest.mark.parametrize(("end", "warned"), [(b"", True), (b" ", False), (b"\n", False), (b" \n\n", False)])
def test_a_file_that_ends_within_an_id_is_decoded_with_a_warning(end, warned, tmp_path, capfd):
    path = tmp_path / "ids.txt"
    path.write_bytes(b"13225 200002 \n13225 23" + end)
    code, stdout, stderr = main_here(capfd, program.main, ["decode", "-i", str(path)])
    assert (code, "cut off" in stderr) == (0, warned)
    assert stdout.startswith("Hello<|return|>\nHello")


@pytest.mark.parametrize("command", ["decode", "encode"])
def test_outputs_that_cannot_be_written(command, tmp_path, capfd):
    path, link = tmp_path / "ids.txt", tmp_path / "link"
    path.write_text("13225 \n")
    link.hardlink_to(path)
    for output in (path, link):
        refused(capfd, "is the input", command, "-i", path, "-o", output)
    refused(capfd, "cannot be written", command, "-i", path, "-o", tmp_path / "no" / "ids")
    assert path.read_text() == "13225 \n"


def test_a_models_own_tokenizer(tmp_path, capfd):
    own, text, ids = SAMPLES / "cnn_sample_tokenizer.json", tmp_path / "text", tmp_path / "ids"
    text.write_text("A report of the day.\n")
    converted(capfd, "encode", "-e", own, "-i", text, "-o", ids)
    assert converted(capfd, "decode", "-e", own, "-i", ids) == text.read_text()
    assert ids.read_text().split() != [str(token) for token in tokenizer.encode("A report of the day.")]
    refused(capfd, "gpt2", "encode", "-e", "gpt2", "-i", text)


def test_a_models_folder_and_file(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 201088, "max_position_embeddings": 4096}')
    assert model_named(str(tmp_path)).context_length == 4096
    gguf = tmp_path / "m.gguf"
    gguf.touch()
    assert model_named(str(gguf)).embedded_model == str(gguf)
    for name in ("20b", "120b", "gpt-oss-120b", "openai/gpt-oss-20b"):
        known = model_named(name)
        assert (known.model, known.official) == (f"openai/gpt-oss-{name.rpartition('-')[2]}", False)
        assert (known.vocabulary_size, known.context_length) == (201088, 131072)
    for wrong in ("{}", '{"vocab_size": 0, "max_position_embeddings": 1}'):
        (tmp_path / "config.json").write_text(wrong)
        with pytest.raises(ConfigError, match="vocab_size"):
            model_named(str(tmp_path))
    for wrong in (-5, 1 << 63):
        facts = {"vocab_size": 201088, "max_position_embeddings": wrong}
        (tmp_path / "config.json").write_text(json.dumps(facts))
        with pytest.raises(ConfigError, match="max_position_embeddings"):
            model_named(str(tmp_path))
