"""A run of the program over a link, and what the link knows of its times.

``python -m tests.network.crossing [KEY...]`` runs the bad networks and prints their table.
"""

import functools
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.going import HANG_S, SERVER_CONF
from tests.kit import wait_until
from tests.network.link import Link
from tests.network.networks import DOWN_S, NETWORKS, PORT, ROWS, BadNetwork
from tests.network.truth import Exchange, exchanges, lost_to_server
from tests.runs import ROOT, FinishedRun, command, small_dataset

FIRST_ID, STEP = 1000, 31  # of the small dataset's prompts


@dataclass(frozen=True)
class Crossing:
    """A run over a link that has ended, and the link."""

    run: FinishedRun
    link: Link
    urls: tuple[str, ...]
    detected_s: float

    @property
    def times(self) -> list[tuple[dict[str, Any], Exchange]]:
        """Each completed query and what the link knows of it; without those of one sample that two workers
        had at the same time: which of them left first is not known."""
        by_sample = defaultdict(list)
        for row in sorted(self.run.requests, key=lambda row: row["issued_ns"]):
            if row["failure"] is None:
                by_sample[row["sample_index"]].append(row)
        pairs = []
        for sample, rows in by_sample.items():
            clear = [True, *(one["sent_ns"] <= other["issued_ns"] for one, other in pairwise(rows)), True]
            known = zip(rows, self.exchanges[FIRST_ID + STEP * sample], pairwise(clear), strict=False)
            pairs += [(row, one) for row, one, around in known if all(around)]
        return pairs

    @functools.cached_property
    def exchanges(self) -> dict[int, list[Exchange]]:
        """What the link knows of the run's queries, by the first id of the prompt."""
        return exchanges(self.link.packets, self._tokens)

    @property
    def lost_to_server(self) -> int:
        """Segments of the queries' connections that the client had to send again."""
        return lost_to_server(self.link.packets, self._tokens)

    @property
    def _tokens(self) -> int:
        return self.run.record["plan"]["parameters"]["max_new_tokens"]

    @property
    def said(self) -> str:
        return self.run.stdout + self.run.stderr

    @property
    def network(self) -> dict[str, dict[str, Any]]:
        return self.run.record["network"]

    def total(self, name: str) -> int:
        return sum(one[name] for one in self.network.values())


def cross(network: BadNetwork, tmp_path: Path) -> Crossing:
    """Run the program at one end of the link against stubs at the other."""
    hosts = tmp_path / "hosts"
    hosts.write_text(network.hosts)
    dataset, _ = small_dataset(tmp_path, rows=ROWS, length=network.prompt)
    conf = tmp_path / "network.conf"
    conf.write_text(SERVER_CONF)
    words = command(
        tmp_path,
        *("--scenario", "server", "--user-conf", conf, "--input-file", dataset, "--num-workers", 2),
        *("--server-url", ",".join(network.urls), "--max-new-tokens", network.tokens, *network.arguments),
    )
    with (
        Link(
            (replace(network.up), replace(network.down)),
            hosts,
            network.ipv4,
            lost_request=network.lost_request,
            fault=network.fault,
        ) as link,
        serving(network, link),
    ):
        process = subprocess.Popen(
            link.at_client(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            began = time.monotonic()
            wait_until(lambda: link.struck.is_set() or process.poll() is not None)
            if link.struck.is_set():
                began = time.monotonic()
            if network.heal:
                time.sleep(DOWN_S)
                link.set(**network.heal)
            out, err = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
    run = FinishedRun(process.returncode, out, err, tmp_path / "server" / "performance")
    return Crossing(run, link, network.urls, time.monotonic() - began)


@contextmanager
def serving(network: BadNetwork, link: Link) -> Iterator[None]:
    """Stub servers at the far end."""
    words = [sys.executable, "-m", "tests.network.serve", str(PORT), json.dumps(network.knobs)]
    stubs = subprocess.Popen(
        link.at_server([*words, *network.listen]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert stubs.stdout is not None
        assert stubs.stdout.readline() == b"ready\n"
        yield
    finally:
        stubs.communicate()


def line(network: BadNetwork, crossing: Crossing) -> list[str]:
    """The row of a network in the table."""
    run = crossing.run
    has_record = (run.log_dir / "run.json").exists()
    pairs = crossing.times if has_record else []
    seen = [(row["first_token_ns"] - row["issued_ns"]) / 1e6 for row, _ in pairs]
    true = [(one.handed_ns - one.left_ns) / 1e6 for _, one in pairs]
    server = [(one.answered_ns - one.arrived_ns) / 1e6 for _, one in pairs]
    cells = [f"{np.median(values):.2f}" if values else "-" for values in (seen, true, server)]
    again = "-"
    if has_record:
        again = f"{crossing.total('retransmitted')} / {crossing.lost_to_server}, {crossing.total('gaps')}"
    failures = ", ".join(f"`{name}` {count}" for name, count in run.failures.items()) if has_record else ""
    outcome = f"{run.result if has_record else 'no run'}, {run.code}" + (f": {failures}" if failures else "")
    found = f"{crossing.detected_s:.0f} s" if network.code else "-"
    return [network.what, outcome, *cells, again, found]


def main() -> None:
    """Print a row for each network."""
    wanted = sys.argv[1:]
    for network in NETWORKS:
        if not wanted or network.key in wanted:
            with tempfile.TemporaryDirectory() as folder:
                crossing = cross(network, Path(folder))
                if wanted:
                    print(crossing.said)
                print("|", " | ".join(line(network, crossing)), "|", flush=True)


if __name__ == "__main__":
    main()
