"""Names of servers: what --server-url may hold, as one URL for each replica, and shortened again.

A replica that is one address of a name is ``http://NAME:PORT#ADDRESS``: requests and certificates have the
name, connections go to the address.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

from harness.errors import ConfigError

DNS = "dns+"  # stands before http: a replica for each address of the name
MOST_SERVERS = 8192
LAST_PORT = 65535
_MOST_BYTES = 1 << 20
_FLAG = "--server-url"
_COMMAS = re.compile(r",(?![^\[\]]*\])")  # those outside of brackets
_LIST = re.compile(r"\[([0-9,-]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_PORTS = re.compile(r"[0-9]+-[0-9]+")
_SLURM = re.compile(r"slurm(?:\+(https?))?:(.*)")
_SLURM_HOST = re.compile(r"[A-Za-z0-9_.,\[\]-]+")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_FOUR_NUMBERS = re.compile(r"([0-9]+\.){3}[0-9]+")
_PORT = re.compile(r":[0-9]*$")
_BARE = re.compile(r"(?!slurm:)(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.,\[\]-]+):[0-9]")  # HOST:PORT
_PLACE = re.compile(r"(?:[A-Za-z0-9+.-]*://)?[^/?#\s]*")
# The usual beginnings of keys, or a name that says so: such a URL is refused, since every file of a run has
# it.
_KEY = re.compile(
    r"(?i)(?:^|[/=])(?:sk|hf|gsk|xai|ghp|nvapi)[-_][a-z0-9_-]{16,}|(?:key|token|secret|password)="
)
_LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)")


def parse_server_urls(values: str | Sequence[str], flag: str = _FLAG) -> tuple[str, ...]:
    """The URLs that one value or several name, in order, without a trailing slash. Raises ConfigError.

    A value is a URL, ``HOST:PORT`` for ``http://HOST:PORT``, ``@FILE`` or ``slurm:HOSTS:PORTS``, or several
    with commas between. URLs may hold lists as Slurm writes them (``http://node[001-064,70]:30000-30007``).
    ``dns+http`` stays, since addresses are looked up when a run begins. The same URL may come twice: see
    sut.servers.naming.
    """
    urls: list[str] = []
    for value in (values,) if isinstance(values, str) else values:
        for source, text in _texts(value.strip(), flag):
            for part in _parts(text, source):
                _add(urls, part, source)
    if not urls:
        raise ConfigError(f"{flag} is empty, expected a URL such as http://localhost:30000")
    return tuple(urls)


def _add(urls: list[str], part: str, source: str) -> None:
    for url in _expanded(part, source):
        _check_url(url, source)
        urls.append(url)
        if len(urls) > MOST_SERVERS:
            raise _too_many(source)


def unused_ca_file(ca_file: Path | None, urls: Iterable[str]) -> tuple[str, ...]:
    """A warning about certificates that have no effect on connections to these URLs."""
    if ca_file is None or any(urlsplit(url.removeprefix(DNS)).scheme == "https" for url in urls):
        return ()
    return (f"--ca-file {ca_file} has no effect, and is not read: no server is named with https://",)


def with_scheme(url: str) -> str:
    """``http://HOST:PORT`` for ``HOST:PORT``, all else as it is."""
    return f"http://{url}" if _BARE.match(url) else url


def split_address(url: str) -> tuple[str, str | None]:
    """The URL without its address, and the address; None if the name is to be looked up."""
    base, _, address = url.partition("#")
    return base, address or None


def at_address(url: str, address: str) -> str:
    """The replica at one address of a URL's name."""
    return f"{url}#{address}"


def authority(host: str, port: int) -> str:
    """``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- reading


def _texts(value: str, flag: str) -> Iterator[tuple[str, str]]:
    """A value, or the lines of the file that it names; each with what a message calls it."""
    if not value.startswith("@"):
        yield flag, value
        return
    path, empty = Path(value[1:]), True
    for number, line in enumerate(_read(path, flag).splitlines(), start=1):
        if text := _COMMENT.sub("", line).strip():
            if text.startswith("@"):
                raise ConfigError(f"{flag} {path}:{number}: {text}: a file of URLs cannot name another file")
            empty = False
            yield f"{flag} {path}:{number}:", text
    if empty:
        raise ConfigError(f"{flag} @{path}: no URL in it, expected one a line")


def _read(path: Path, flag: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{flag} @{path}: cannot be read: {reason}; expected one URL a line") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if len(data) > _MOST_BYTES or "\0" in text:
        raise ConfigError(
            f"{flag} @{path}: expected UTF-8 text of one URL a line, of at most {_MOST_BYTES} bytes"
        )
    return text


def _parts(text: str, source: str) -> Iterator[str]:
    """Split at commas; a ``slurm:`` part keeps those between its hosts and between its ports."""
    pieces = [piece.strip() for piece in _COMMAS.split(text)]
    while pieces:
        piece = pieces.pop(0)
        if not piece.startswith(("slurm:", "slurm+")):
            if piece.strip("/"):
                yield with_scheme(piece.rstrip("/"))
            continue
        while pieces and _belongs(piece, pieces[0]):
            piece = f"{piece},{pieces.pop(0)}"
        yield from _slurm(piece, source)


def _belongs(slurm: str, following: str) -> bool:
    """Whether a piece continues ``slurm:HOSTS:PORTS``: another host, or another port."""
    if slurm.partition(":")[2].count(":") == 0:
        return "://" not in following and not following.startswith("slurm")
    return bool(_RANGE.fullmatch(following))


def _slurm(text: str, source: str) -> Iterator[str]:
    found = _SLURM.fullmatch(text)
    hosts, _, ports = found[2].rpartition(":") if found else ("", "", "")
    if not found or not ports or not _SLURM_HOST.fullmatch(hosts):
        raise ConfigError(
            f"{source} {text}: expected slurm:HOSTS:PORTS, such as slurm:node[001-064]:30000-30007; "
            "outside of a job $SLURM_JOB_NODELIST is empty"
        )
    for host in _COMMAS.split(hosts):
        for port in ports.split(","):
            yield f"{found[1] or 'http'}://{host}:{port}"


def _expanded(url: str, source: str) -> Iterator[str]:
    """A URL for each host of its lists, each port of its range, and each path or address after them."""
    scheme, mark, rest = url.partition("://")
    end = min((at for sign in "/?#" if (at := rest.find(sign)) >= 0), default=len(rest))
    authority, tail = rest[:end], rest[end:]
    for place in _listed(authority, source):
        host, colon, found = place.rpartition(":")
        if colon and _PORTS.fullmatch(found):
            places = [f"{host}:{port}" for port in _numbers(found, source)]
        else:
            places = [place]
        for one in places:
            yield from (f"{scheme}{mark}{one}{last}" for last in _listed(tail, source))


def _listed(text: str, source: str) -> Iterator[str]:
    """``node[001-064,70]`` as node001 to node064 and node70; several lists in all combinations.

    One at a time: who takes them counts them.
    """
    plain = _LIST.split(text)[::2]
    lists = [list(_numbers(found, source)) for found in _LIST.findall(text)]
    for chosen in product(*lists):
        yield "".join(part for pair in zip(plain, (*chosen, ""), strict=True) for part in pair)


def _numbers(text: str, source: str) -> Iterator[str]:
    """``001-003,7`` as 001, 002, 003 and 7: as wide as the first of a range. Raises ConfigError."""
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise ConfigError(f"{source} {text!r}: expected numbers and ranges such as 001-064,70")
        first, last = int(found[1]), int(found[2] or found[1])
        if last - first >= MOST_SERVERS:
            raise _too_many(source)
        for number in range(first, last + 1):
            yield str(number).zfill(len(found[1]))


def _too_many(source: str) -> ConfigError:
    return ConfigError(f"{source} names more than {MOST_SERVERS} servers; is a range too long?")


# -- checks


def _check_url(url: str, source: str) -> None:
    if "@" in url or _KEY.search(url):
        raise ConfigError(f"{source} has credentials in it; set the key in the environment as OPENAI_API_KEY")
    shown = _without_path(url)
    if any(mark.isspace() for mark in url):
        raise ConfigError(f"{source} {shown!r}: expected one URL without spaces; separate several by commas")
    base, address = split_address(url.removeprefix(DNS))
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError:
        raise ConfigError(
            f"{source} {shown}: expected http://HOST:PORT with a port of at most 65535, and an IPv6 address "
            "in brackets: http://[::1]:30000"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"{source} {shown}: expected http://HOST:PORT or https://HOST:PORT")
    if "?" in base or (address is not None and not is_address(address)):
        raise ConfigError(
            f"{source} {shown}: expected a base URL without query and fragment (but for #ADDRESS)"
        )
    if not _is_host(parts.hostname):
        raise ConfigError(f"{source} {shown}: {parts.hostname!r} is not a host name or an address")


def _without_path(url: str) -> str:
    """A URL that is refused, as a message shows it: a key may be anywhere after its host."""
    found = _PLACE.match(url)
    place = found[0] if found else ""
    return place if place == url else f"{place}…"


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_host(name: str) -> bool:
    """Whether it is an address or a name that DNS accepts, with labels of 1 to 63 characters."""
    if ":" in name or _FOUR_NUMBERS.fullmatch(name):
        return is_address(name)
    try:
        decoded = name.encode("idna").decode("idna")
    except ValueError:  # UnicodeError too
        return False
    return name.isprintable() and "%" not in name and (name.isascii() or decoded == name)


def default_port(url: str) -> int:
    """The URL's port, or that of its scheme."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme.endswith("https") else 80)


def at_port(url: str, port: int) -> str:
    """The URL of another port of the same host."""
    base, address = split_address(url)
    parts = urlsplit(base)
    host = _PORT.sub("", parts.netloc)
    base = parts._replace(netloc=f"{host}:{port}").geturl()
    return base if address is None else at_address(base, address)


# -- shortened again


def folded(urls: Iterable[str], most: int = 8) -> str:
    """URLs in the words of --server-url: ``http://node[001-064]:30000-30007``; at the end "and N more".

    Without a ``most`` that cuts them, parse_server_urls gives the same URLs, in another order.
    """
    items = _folded(list(dict.fromkeys(urls)))
    hidden = sum(count for _, count in items[most:])
    shown = ", ".join(text for text, _ in items[:most])
    return f"{shown} and {hidden} more" if hidden else shown


def _folded(urls: Sequence[str]) -> list[tuple[str, int]]:
    """Shortened URLs, and how many each stands for: ports of one host first, then hosts of the same ports."""
    if len(urls) < 2:
        return [(url, 1) for url in urls]
    ports = defaultdict(list)
    plain: list[tuple[str, int]] = []
    for url in urls:
        base, mark, tail = url.partition("://")
        authority, slash, path = tail.partition("/")
        authority, sharp, address = authority.partition("#")
        host, _, port = authority.rpartition(":")
        if not host or not port.isdecimal():
            plain.append((url, 1))
        else:
            ports[base + mark, host, f"{slash}{path}{sharp}{address}"].append(port)
    hosts = defaultdict(list)
    for (scheme, host, tail), of_host in ports.items():
        for run in _runs(of_host):
            hosts[scheme, run, tail].append(host)
    named = defaultdict(list)
    for (scheme, run, tail), of_run in hosts.items():
        for host, count in _merged(of_run):
            named[f"{scheme}{host}:{_shown(run)}", count * len(run)].append(tail)
    found = [
        (f"{start}{tail}", count * times)
        for (start, count), tails in named.items()
        for tail, times in _merged(tails)
    ]
    return found + plain


def _merged(names: Sequence[str]) -> list[tuple[str, int]]:
    """Names that differ in their last number as one, ``node[001-064,70]``, with their count."""
    groups = defaultdict(list)
    rest: list[tuple[str, int]] = []
    for name in names:
        found = _LAST_NUMBER.fullmatch(name)
        if found is None or ":" in name or len(found[2]) > 9:  # IPv6 has letters for numbers
            rest.append((name, 1))
        else:
            groups[found[1], found[3]].append(found[2])
    merged = []
    for (before, after), numbers in groups.items():
        runs = _runs(numbers)
        shown = ",".join(map(_shown, runs))
        one = len(numbers) == 1
        merged.append((f"{before}{shown if one else f'[{shown}]'}{after}", len(numbers)))
    return merged + rest


def _runs(numbers: Sequence[str]) -> list[tuple[str, ...]]:
    """Numbers that follow one another, each as wide as the first of its run."""
    runs: list[list[str]] = []
    for number in sorted(set(numbers), key=lambda text: (int(text), text)):
        last = runs[-1] if runs else [""]
        if last[-1] and number == str(int(last[-1]) + 1).zfill(len(last[0])):
            last.append(number)
        else:
            runs.append([number])
    return [tuple(run) for run in runs]


def _shown(run: Sequence[str]) -> str:
    return run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"
