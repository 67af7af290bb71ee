import gzip
import hashlib
import random
import sys

import numpy as np
import pytest

from harness.dataset import tokenizer
from harness.errors import ConfigError, DatasetError

# Ids that openai-harmony and tokenizers, with openai/gpt-oss-120b's tokenizer.json, give for these texts.
KNOWN = [
    ("Reasoning: low", [30377, 289, 25, 4465]),
    ("Reasoning: medium", [30377, 289, 25, 14093]),
    ("Reasoning: high", [30377, 289, 25, 1932]),
    ("", []),
    ("assistant", [173781]),
    ("<|start|>", [27, 91, 5236, 91, 29]),  # plain text stays plain
]


@pytest.mark.parametrize(("text", "ids"), KNOWN)
def test_known_ids(text, ids):
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text


SPECIAL_IDS = {
    "<|startoftext|>": 199998,
    "<|endoftext|>": 199999,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
    "<|endofprompt|>": 200018,
    "<|reserved_200000|>": 200000,
    "<|reserved_201087|>": 201087,
}


@pytest.mark.parametrize(("name", "token"), SPECIAL_IDS.items())
def test_special_tokens(name, token):
    assert tokenizer.SPECIAL[name] == token
    assert tokenizer.decode([token]) == name == tokenizer.token_bytes(token).decode()
    assert tokenizer.encode_harmony(f"a{name}b") == [*tokenizer.encode("a"), token, *tokenizer.encode("b")]


def test_every_id_has_a_meaning():
    assert len(tokenizer.SPECIAL) == 201088 - 199998
    assert len(tokenizer.vocabulary()) == tokenizer.VOCABULARY_SIZE == 201088
    assert len(set(tokenizer.vocabulary())) == 201088
    assert len(tokenizer.ranks()) == 199998
    assert tokenizer.token_bytes(0) == b"!"


@pytest.mark.parametrize("text", ["naïve Ωmega 漢字 🙂‍↔️", "line\r\n\n\ttab  ", "\x00\x7f"])
def test_round_trip(text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(np.array(ids, np.int32)) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_half_a_character_is_shown_as_a_replacement():
    ids = tokenizer.encode("\U00013000")  # a hieroglyph that takes several tokens
    assert len(ids) > 1 and tokenizer.decode(ids[:1]) == "\ufffd"


@pytest.mark.parametrize("ids", [[-1], [201088], [5, -3]])
def test_id_outside_the_vocabulary(ids):
    with pytest.raises(DatasetError, match="outside the o200k_harmony vocabulary"):
        tokenizer.decode(ids)


def alphabets():
    characters = [*map(chr, range(0xD800)), *map(chr, range(0xE000, 0x110000))]
    return (
        "abcdefgh IJKL 'sStTrReEvVmM  \n\r\t019.,!/",
        characters[:0x250],
        characters[:0x3100],
        characters,
        " \t\n\r\x0b\x0c\x85\xa0\u2003\u2028x",
        "aA1ʰǅ漢̈ª'",
    )


@pytest.mark.engine
def test_random_texts_against_another_encoder():
    """bpe-openai, in Rust: the same ids for 600 texts, and their decoded text is the text."""
    bpe_openai = pytest.importorskip("bpe_openai")
    theirs = bpe_openai.get_encoding("o200k_base").encode_ordinary
    chance, made_of = random.Random(18), alphabets()
    for alphabet in made_of * 100:
        text = "".join(chance.choices(alphabet, k=chance.randrange(40)))
        ids = tokenizer.encode(text)
        assert ids == theirs(text), ascii(text)
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("word", ["a", "!", "漢字"])
def test_a_long_line_is_encoded(word):
    text = word * (10_000 // len(word))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.engine  # takes long, and only the embedded engine's model needs them
def test_merges():
    """Count and digest of the list in openai/gpt-oss-120b's tokenizer.json (file sha256 0614fe83...)."""
    merges = [tuple(map(tokenizer.token_bytes, pair)) for pair in tokenizer.merges()]
    digest = hashlib.sha256(b"".join(len(part).to_bytes(2) + part for pair in merges for part in pair))
    assert len(merges) == 446189
    assert merges[:2] == [(b" ", b" "), (b" ", b"   ")]
    assert digest.hexdigest() == "a6502a1023e3bfb8917b1af958100c2e224beaf1fa9e76a8036c3afe2b498bc6"


OTHER = gzip.compress(b"IQ== 0\n", mtime=0)
EXPECTED = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OTHER, f"expected {EXPECTED}; remove it"),
        (b"no gzip", "o200k_base.tiktoken.gz: Not a gzipped file"),
        (OTHER[:-9], "o200k_base.tiktoken.gz: "),
        (None, "./setup.sh fetches it"),
    ],
)
def test_another_vocabulary_is_refused(content, message, tmp_path, monkeypatch):
    (tmp_path / "share").mkdir()
    if content is not None:
        (tmp_path / "share/o200k_base.tiktoken.gz").write_bytes(content)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no encoder is installed
    with pytest.raises(ConfigError, match=message) as caught:
        tokenizer.ranks.__wrapped__()
    assert "\n" not in str(caught.value)
