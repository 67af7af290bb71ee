"""Every spelling of --server-url: one URL for each replica, in the end; and the short form for people."""

from pathlib import Path

import pytest

from harness.config.server_urls import folded, parse_server_urls, unused_ca_file
from harness.errors import ConfigError

ACCEPTED = [
    (["http://a:1,http://b:2", "https://c"], ("http://a:1", "http://b:2", "https://c")),
    ([" http://a:1/ , http://b:2 ,"], ("http://a:1", "http://b:2")),
    (["http://a:1/proxy/node7/"], ("http://a:1/proxy/node7",)),
    (["http://[::1]:30000"], ("http://[::1]:30000",)),
    (["localhost:30000/,10.0.0.7:1/proxy"], ("http://localhost:30000", "http://10.0.0.7:1/proxy")),
    (["[::1]:30000"], ("http://[::1]:30000",)),
    (["n[1-2,4]:8-9"], tuple(f"http://n{host}:{port}" for host in (1, 2, 4) for port in (8, 9))),
    (["http://node_1.rack-2.:1"], ("http://node_1.rack-2.:1",)),
    (["http://xn--ls8h.la"], ("http://xn--ls8h.la",)),
    (["http://a:1,https://a:1"], ("http://a:1", "https://a:1")),
    (["https://a:1/x#10.0.0.7"], ("https://a:1/x#10.0.0.7",)),
    (["dns+http://llm:30000"], ("dns+http://llm:30000",)),
    (["http://a:1-3/"], ("http://a:1", "http://a:2", "http://a:3")),
    (["http://[::1]:8-9"], ("http://[::1]:8", "http://[::1]:9")),
    (["http://[::1]:[8,9]"], ("http://[::1]:8", "http://[::1]:9")),
    (["http://h[08-10]:1"], ("http://h08:1", "http://h09:1", "http://h10:1")),
    (["http://h[9-10],http://g"], ("http://h9", "http://h10", "http://g")),
    (["http://n[1,3-4]-ib:1"], ("http://n1-ib:1", "http://n3-ib:1", "http://n4-ib:1")),
    (
        ["http://r[1-2]n[01,2]:80-81/v"],
        tuple(f"http://{host}:{port}/v" for host in ("r1n01", "r1n2", "r2n01", "r2n2") for port in (80, 81)),
    ),
    (["slurm+https:a,b:1"], ("https://a:1", "https://b:1")),
    (["slurm:n[1-2],g:1-2"], tuple(f"http://{host}:{port}" for host in ("n1", "n2", "g") for port in (1, 2))),
    (["slurm:n1:1,5-6,http://x:1"], ("http://n1:1", "http://n1:5", "http://n1:6", "http://x:1")),
    (["slurm:a:1,slurm:b:2"], ("http://a:1", "http://b:2")),
    (["http://[1-2].gpu:1", "http://3-4"], ("http://1.gpu:1", "http://2.gpu:1", "http://3-4")),
    *(
        ([f"slurm:{text}:1"], tuple(f"http://{host}:1" for host in hosts.split()))
        for text, hosts in (  # what scontrol show hostnames prints of Slurm's own hostlists
            ("node[001-003,70],gpu7", "node001 node002 node003 node70 gpu7"),
            ("tux[9-11]", "tux9 tux10 tux11"),
            ("rack[0-1]-[08-09]", "rack0-08 rack0-09 rack1-08 rack1-09"),
        )
    ),
]
FILES = [
    (b"http://a:1\n# b is down\n\n  http://c:1-2/ # two\r\n", ("http://a:1", "http://c:1", "http://c:2")),
    (
        b"\xef\xbb\xbfslurm:n[1-2]:1\nhttps://x#10.0.0.1\n",
        ("http://n1:1", "http://n2:1", "https://x#10.0.0.1"),
    ),
    (b"http://a,http://b", ("http://a", "http://b")),
]
BAD_FILES = [
    (None, "cannot be read"),
    (b"", "no URL in it"),
    (b"# nothing\n", "no URL in it"),
    (b"http://a\n\nhost\n", ":3: host: expected http://HOST:PORT"),
    (b"@other.txt", ":1: @other.txt"),
    (b"\xff\xfe", "expected UTF-8"),
    (b"a\0", "expected UTF-8"),
    (b"http://a:1 http://b:1", "separate several by commas"),
    (b"#" * (1 << 20) + b"#", "at most"),
]
FOLDED = [
    (["http://a:1"], "http://a:1"),
    (["http://n[001-064]:30000-30007"], "http://n[001-064]:30000-30007"),
    (["http://n[1-3,7]:1,http://x"], "http://n[1-3,7]:1, http://x"),
    (["http://10.0.0.[1-64]:1-2/v1"], "http://10.0.0.[1-64]:1-2/v1"),
    (["http://n[8-12]:1"], "http://n[8-12]:1"),
    (["http://n[08-12]:1"], "http://n[08-12]:1"),
    (["http://[fd00::1]:1-4,http://[fd00::2]:1-4"], "http://[fd00::1]:1-4, http://[fd00::2]:1-4"),
    (["https://llm:1#10.0.0.1,https://llm:1#10.0.0.2"], "https://llm:1#10.0.0.[1-2]"),
    (["http://a:1/v1,http://a:1/v2"], "http://a:1/v[1-2]"),
    (["http://a[1-2]:1,http://b[1-2]:1,http://a3:2"], "http://a[1-2]:1, http://b[1-2]:1, http://a3:2"),
]

REFUSED = [
    ([], "empty"),
    ([" , ,"], "empty"),
    (["localhost"], "http://HOST:PORT"),
    (["::1:30000"], "http://HOST:PORT"),
    (["user:1secret@a:1"], "credentials"),
    (["a:1?key=secret"], "credentials"),
    (["http://"], "http://HOST:PORT"),
    (["http://:30000"], "http://HOST:PORT"),
    (["http:a:1"], "http://HOST:PORT"),
    (["http://a:0"], "http://HOST:PORT"),
    (["http://a:65536"], "ort"),
    (["http://a:port"], "ort"),
    (["http://[::1:30000"], "IPv6"),
    (["http://::1:30000"], "an IPv6 address in brackets"),
    (["http://a..b"], "host name"),
    (["http://a%20b"], "host name"),
    (["http://1.2.3.256"], "host name"),
    (["http://xn--a"], "host name"),
    (["http://user:secret@a:1"], "credentials"),
    (["http://a:1/?key=secret"], "credentials"),
    (["http://a:1/?secret"], "http://a:1…: expected a base URL without query"),
    (["http://a:99999/secret"], "http://a:99999…"),
    (["http://a:1/v1/sk-secretsecretsecret"], "credentials"),
    (["hf_secretsecretsecret"], "credentials"),
    (["http://a:1/token=secret"], "credentials"),
    (["http://a:1#part"], "fragment"),
    (["http://a:1/generate?"], "query"),
    (["http://a b:1/secret"], "without spaces"),
    (["http://a:2-1"], "2-1"),
    (["http://n[2-1]:1"], "2-1"),
    (["http://n[]:1"], "001-064"),
    (["http://n[1,]:1"], "001-064"),
    (["http://n[1-2:1"], "http://n[1-2:1"),
    (["http://n[1-999999999]:1"], "more than 8192"),
    (["http://n[1-999]m[1-999]:1"], "more than 8192"),
    (["http://n[1-100]:30000-30100"], "more than 8192"),
    (["http://a:1-65536"], "more than 8192"),
    (["slurm::30000"], "SLURM_JOB_NODELIST"),
    (["slurm:n[1-2]"], "slurm:HOSTS:PORTS"),
    (["slurm:n1:"], "slurm:n1:: expected slurm:HOSTS:PORTS"),
    (["slurm:$SLURM_JOB_NODELIST:1"], "slurm:HOSTS:PORTS"),
    (["slurm+ftp:n1:1"], "slurm:HOSTS:PORTS"),
    (["slurm:n1:x"], "ort"),
    (["dns+ftp://a"], "http://HOST:PORT"),
]


@pytest.mark.parametrize(("values", "urls"), ACCEPTED)
def test_server_urls(values, urls):
    assert parse_server_urls(values) == urls


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_refused_server_urls(values, message):
    with pytest.raises(ConfigError, match="--server-url") as caught:
        parse_server_urls(values)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("content", "urls"), FILES)
def test_a_file_of_urls(tmp_path, content, urls):
    path = tmp_path / "urls.txt"
    path.write_bytes(content)
    assert parse_server_urls(["http://first:1", f"@{path}"]) == ("http://first:1", *urls)


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_an_unusable_file_of_urls(tmp_path, content, message):
    path = tmp_path / "urls.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="--server-url") as caught:
        parse_server_urls([f"@{path}"])
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("values", "text"), FOLDED)
def test_the_short_form_names_the_same_servers(values, text):
    urls = parse_server_urls(values)
    assert folded(reversed(urls)).count("[") == text.count("[")
    assert folded(urls) == text
    assert set(parse_server_urls([text])) == set(urls)


def test_the_short_form_is_bounded():
    urls = [f"http://{name}:1" for name in "abcdefghijkl"]
    assert folded(urls, 3) == "http://a:1, http://b:1, http://c:1 and 9 more"


@pytest.mark.parametrize(
    ("urls", "unused"),
    [
        (["http://a:1", "dns+http://https:2"], True),
        ([], True),  # the embedded engine
        (["http://a:1", "https://b:1"], False),
        (["dns+https://a:1"], False),
    ],
)
def test_certificates_that_no_server_is_asked_with_are_said_to_be(urls, unused):
    """A file that is none passed in silence, until a server was named with https."""
    assert unused_ca_file(None, urls) == ()
    found = unused_ca_file(Path("ca.pem"), urls)
    assert [text.partition(",")[0] for text in found] == ["--ca-file ca.pem has no effect"] * unused
