#!/usr/bin/env python3
"""LoadGen's own FindPeakPerformance against servers that speak SGLang's /generate.

    python -m benchmarks.peak.loadgen_search FOLDER DATASET USER_CONF URL ...

Prints JSON: the rate that it found, the rates of its runs, and its seconds. The client is a plain one in
LoadGen's process: the server with the fewest requests in flight gets the next, one connection for each
request.
"""

import array
import asyncio
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg
import pyarrow.parquet as pq

MODEL_KEY, MOST_TOKENS = "gpt-oss-120b", 1000


class Client:
    """Sends requests from a separate thread and reports their answers to LoadGen."""

    def __init__(self, prompts: list[list[int]], urls: list[str]) -> None:
        self._prompts = prompts
        self._ports = [int(url.rpartition(":")[2]) for url in urls]
        self._in_flight = dict.fromkeys(self._ports, 0)
        self._under_way: set[asyncio.Task[None]] = set()  # the loop itself keeps weak references
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def issue(self, queries: list[Any]) -> None:
        """LoadGen's callback."""
        for query in queries:
            self._loop.call_soon_threadsafe(self._start, query.id, query.index)

    def _start(self, query_id: int, index: int) -> None:
        task = self._loop.create_task(self._answer(query_id, index))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(self, query_id: int, index: int) -> None:
        port = min(self._ports, key=self._in_flight.__getitem__)
        self._in_flight[port] += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = {"input_ids": self._prompts[index], "sampling_params": {"max_new_tokens": MOST_TOKENS}}
        text = json.dumps({**body, "stream": True}).encode()
        writer.write(b"POST /generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        ids = array.array("i")
        async for line in reader:
            if line.startswith(b"data: {"):
                first = not ids
                ids.extend(json.loads(line[6:])["output_ids"])
                if first:
                    lg.FirstTokenComplete([_response(query_id, ids)])
            elif line.startswith(b"data: [DONE]"):
                break
        writer.close()
        self._in_flight[port] -= 1
        lg.QuerySamplesComplete([_response(query_id, ids)])


def _response(query_id: int, ids: "array.array[int]") -> Any:
    address, count = ids.buffer_info()
    return lg.QuerySampleResponse(query_id, address, count * ids.itemsize, count)


def main(folder: Path, dataset: Path, conf: Path, urls: list[str]) -> None:
    """Search and print."""
    prompts = pq.read_table(dataset)["input_tokens"].to_pylist()
    settings = lg.TestSettings()
    settings.FromConfig(str(conf), MODEL_KEY, "Server", 1)
    settings.scenario, settings.mode = lg.TestScenario.Server, lg.TestMode.FindPeakPerformance
    client = Client(prompts, urls)
    sut = lg.ConstructSUT(client.issue, lambda: None)
    qsl = lg.ConstructQSL(len(prompts), len(prompts), lambda _: None, lambda _: None)
    output = lg.LogOutputSettings()
    output.outdir = str(folder)
    log = lg.LogSettings()
    log.log_output = output
    begun = time.monotonic()
    lg.StartTestWithLogSettings(sut, qsl, settings, log, "")
    detail = (folder / "mlperf_log_detail.txt").read_text()
    found = re.findall(r"Found peak performance field: ([\d.]+)", detail)
    runs = re.findall(
        r"(?:base settings field:|Checking fields \[[\d.]+,|mid value of bounds [^:]*:) ?([\d.]+)", detail
    )
    seconds = time.monotonic() - begun
    print(
        json.dumps(
            {"rate": float(found[0]) if found else None, "runs": list(map(float, runs)), "s": seconds}
        ),
        flush=True,
    )
    os._exit(0)  # LoadGen's threads do not outlive the interpreter well


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
