"""The bad networks that the tests make, and what a run over each comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.matrix import INVALID, NOTHING, VALID
from tests.network.link import DEAF, MIDDLE, NOBODY, SECOND, SECOND6, SERVER, SERVER6, Way

PORT, TOKENS, ROWS = 30000, 10, 80
DOWN_S = 5
AT_ONCE = MIDDLE - 2  # where the link breaks: with the trial, one query is answered by then
_LONG = {"event_delay_s": 0.02}
_CLOSING = _LONG | {"close_after_response": True}  # so that the queries after a fault need new connections
_HOSTS = "127.0.0.1 localhost\n"


@dataclass(frozen=True, slots=True)
class BadNetwork:
    """A link, what happens to it in the middle of the queries, and the run's outcome."""

    key: str
    what: str
    verdict: str = VALID
    code: int = 0
    words: str = ""
    """Words of a reason, a warning or the error line."""
    up: Way = field(default_factory=Way)
    down: Way = field(default_factory=Way)
    fault: Mapping[str, object] = field(default_factory=dict)
    """As the link has it."""
    heal: Mapping[str, object] = field(default_factory=dict)
    """Changes of both ways DOWN_S after the fault."""
    ipv4: bool = True
    hosts: str = _HOSTS
    listen: tuple[str, ...] = (SERVER,)
    urls: tuple[str, ...] = (f"http://{SERVER}:{PORT}",)
    knobs: Mapping[str, object] = field(default_factory=lambda: _LONG)
    prompt: int = 200
    tokens: int = TOKENS
    arguments: tuple[object, ...] = ()
    lost_request: int = 0
    """As the link has it."""
    lossy_to_server: int = 0
    """The least number of segments with data that are lost on the way to the server."""


def both(key: str, what: str, **changes) -> BadNetwork:
    """The same in both directions."""
    way = {name: changes.pop(name) for name in ("delay_s", "loss", "rate") if name in changes}
    return BadNetwork(key, what, up=Way(**way), down=Way(**way), **changes)


def broken(key: str, what: str, fault: Mapping[str, object], **changes) -> BadNetwork:
    """In both directions, from the middle of the queries on."""
    changes["arguments"] = ("--max-concurrency", AT_ONCE, *changes.get("arguments", ()))
    return both(key, what, delay_s=0.002, fault=fault, **changes)


_ONE_OF_TWO = {"verdict": INVALID, "code": 4, "listen": (SERVER, SECOND)}
_ONE_OF_TWO |= {"arguments": ("--first-token-timeout", 15, "--stall-timeout", 15)}

NETWORKS = (
    both("delay-0.2ms", "0.2 ms of delay in each direction", delay_s=0.0002),
    both("delay-2ms", "2 ms of delay in each direction", delay_s=0.002),
    both("delay-20ms", "20 ms of delay in each direction", delay_s=0.02),
    both("loss-0.1%", "0.1 % of the packets lost, 2 ms of delay", delay_s=0.002, loss=0.001),
    both(
        "loss-1%",
        "1 % of the packets lost, 2 ms of delay",
        delay_s=0.002,
        loss=0.01,
        lost_request=40,
        lossy_to_server=1,
        words="the network loses packets",
    ),
    both("10Mbit", "10 Mbit/s, prompts of 2000 tokens", rate=10e6, delay_s=0.001, prompt=2000),
    broken(
        "down-5s",
        "the link is down for 5 s",
        {"up": False},
        heal={"up": True},
        lossy_to_server=1,
        words="the network loses packets",
    ),
    broken(
        "gone",
        "the server's machine is gone, without a FIN",
        {"gone": frozenset([SERVER])},
        knobs=_CLOSING,
        verdict=INVALID,
        code=4,
        words="no server has answered for",
    ),
    broken(
        "one-gone",
        "one of two machines is gone, without a FIN (--first-token-timeout 15)",
        {"gone": frozenset([SECOND])},
        words="timeout",
        urls=(f"http://{SERVER}:{PORT}", f"http://{SECOND}:{PORT}"),
        **_ONE_OF_TWO,
    ),
    BadNetwork(
        "mtu-up",
        "packets over 1000 bytes to the server vanish (--trial-timeout 10)",
        verdict=NOTHING,
        code=3,
        words="drops large packets (MTU)",
        up=Way(mtu=1000),
        prompt=300,
        arguments=("--trial-timeout", 10),
    ),
    BadNetwork(
        "mtu-info",
        "packets over 1400 bytes from the server vanish, its /server_info is longer (--preflight-timeout 5)",
        verdict=NOTHING,
        code=3,
        words="drops large ones (MTU)",
        down=Way(mtu=1400),
        knobs={"facts": {"version": "0.5.23" + 2000 * "+"}},
        arguments=("--preflight-timeout", 5),
    ),
    BadNetwork(
        "mtu-down",
        "packets over 1000 bytes from the server vanish (--stall-timeout 5)",
        verdict=INVALID,
        code=4,
        words="timeout",
        down=Way(mtu=1000),
        tokens=400,
        knobs={"event_delay_s": 0.02, "tokens_per_event": 20},
        arguments=("--stall-timeout", 5),
    ),
    both(
        "ipv6",
        "IPv6 only: an address as URL, and a name",
        delay_s=0.002,
        ipv4=False,
        hosts=f"::1 localhost\n{SECOND6} six.test\n",
        listen=(SERVER6, SECOND6),
        urls=(f"http://[{SERVER6}]:{PORT}", f"http://six.test:{PORT}"),
    ),
    both(
        "dns",
        "a name with five addresses: one dead, one refuses, one is IPv6, two serve",
        delay_s=0.002,
        hosts=f"{_HOSTS}" + "".join(f"{a} many.test\n" for a in (NOBODY, DEAF, SERVER6, SECOND, SERVER)),
        listen=(SERVER, SECOND),
        urls=(f"http://many.test:{PORT}",),
        words=NOBODY,
    ),
    broken(
        "dns-gone",
        "one of two addresses of a name is gone, without a FIN (--first-token-timeout 15)",
        {"gone": frozenset([SECOND])},
        knobs=_CLOSING,
        words=f"its address {SECOND} gave no connection",
        hosts=f"{_HOSTS}{SECOND} many.test\n{SERVER} many.test\n",
        urls=(f"http://many.test:{PORT}",),
        **_ONE_OF_TWO,
    ),
)
