#!/usr/bin/env python3
"""A plain load loop on aiohttp or httpx, for comparison.

benchmarks/peers/peers.py starts it with a Python that has the library. Prints one JSON object: ``ttft_ns`` of
each answered request, from its scheduled time, and the number of ``failures``; exit code 1 if there are any.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

Post = Callable[[dict[str, Any]], Any]
_SEED = 7


def main() -> None:
    """Run the load and print TTFTs and failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("library", choices=("aiohttp", "httpx"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--qps", type=float, help="Poisson arrivals instead of a closed loop")
    parser.add_argument("--stream", type=int, default=1)
    seen = asyncio.run(run(parser.parse_args()))
    print(json.dumps(seen))
    sys.exit(1 if seen["failures"] else 0)


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All requests: an open loop with ``qps``, otherwise ``concurrency`` requests at a time."""
    prompts = json.loads(arguments.prompts.read_text())
    payloads = [
        {
            "input_ids": prompts[index % len(prompts)],
            "sampling_params": {"max_new_tokens": arguments.tokens},
            "stream": bool(arguments.stream),
        }
        for index in range(arguments.count)
    ]
    client = aiohttp_client if arguments.library == "aiohttp" else httpx_client
    outcomes: list[int | None] = []
    async with client(arguments.url, arguments.concurrency) as post:
        if arguments.qps:
            await open_loop(post, payloads, arguments.qps, outcomes)
        else:
            await closed_loop(post, payloads, arguments.concurrency, outcomes)
    ttft = [value for value in outcomes if value is not None]
    return {"ttft_ns": ttft, "failures": len(outcomes) - len(ttft)}


async def open_loop(post: Post, payloads: list[Any], qps: float, outcomes: list[int | None]) -> None:
    """Requests at Poisson times, independent of the answers."""
    gaps, due = random.Random(_SEED), time.monotonic()
    async with asyncio.TaskGroup() as group:
        for payload in payloads:
            due += gaps.expovariate(qps)
            await asyncio.sleep(due - time.monotonic())
            group.create_task(ask(post, payload, int(due * 1e9), outcomes))


async def closed_loop(post: Post, payloads: list[Any], concurrency: int, outcomes: list[int | None]) -> None:
    """Keep ``concurrency`` requests in flight."""
    left = iter(payloads)

    async def keep_asking() -> None:
        for payload in left:
            await ask(post, payload, time.monotonic_ns(), outcomes)

    await asyncio.gather(*(keep_asking() for _ in range(concurrency)))


async def ask(post: Post, payload: dict[str, Any], scheduled_ns: int, outcomes: list[int | None]) -> None:
    """One request: the time to its first event, or None when its answer is not complete."""
    first = 0
    count, reason = 0, None
    try:
        async with post(payload) as lines:
            async for line in lines:
                text = line.strip().removeprefix(b"data: ")
                if text.startswith(b"{"):
                    first = first or time.monotonic_ns()
                    meta = json.loads(text)["meta_info"]
                    count, reason = meta["completion_tokens"], meta["finish_reason"]
    except Exception:  # noqa: BLE001 - whatever went wrong, this request has no answer
        reason = None
    complete = reason is not None and count == payload["sampling_params"]["max_new_tokens"]
    outcomes.append(first - scheduled_ns if complete else None)


@asynccontextmanager
async def aiohttp_client(url: str, concurrency: int) -> AsyncIterator[Post]:
    """Lines of the answers to POST /generate, by aiohttp."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=concurrency)
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 20) as session:

        @asynccontextmanager
        async def post(payload: dict[str, Any]) -> AsyncIterator[Any]:
            async with session.post(url + "/generate", json=payload) as answer:
                answer.raise_for_status()
                yield answer.content

        yield post


@asynccontextmanager
async def httpx_client(url: str, concurrency: int) -> AsyncIterator[Post]:
    """Lines of the answers to POST /generate, by httpx."""
    import httpx

    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=600, trust_env=False) as session:

        @asynccontextmanager
        async def post(payload: dict[str, Any]) -> AsyncIterator[Any]:
            async with session.stream("POST", url + "/generate", json=payload) as answer:
                answer.raise_for_status()
                yield _encoded(answer.aiter_lines())

        yield post


async def _encoded(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield line.encode()


if __name__ == "__main__":
    main()
