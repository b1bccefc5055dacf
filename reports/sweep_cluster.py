"""The parts of a sweep on an existing Dask cluster, which repeats those of a worker that dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from distributed import Client, Future, KilledWorker, as_completed

import perfmodel
from perfmodel.errors import InputError
from reports.sweep_parts import Encoded, Folder
from reports.sweep_run import made_part

ANSWER_S = 20
"""Seconds in which a scheduler must answer, and have a worker."""
AHEAD = 2
"""Parts for each thread of the workers that are under way at a time: bounds what lies in memory."""


def _version() -> str:
    return perfmodel.__version__


def _connected(address: str) -> Client:
    try:
        client = Client(address, timeout=ANSWER_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--dask: no scheduler answers at {address}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=ANSWER_S)
        found = client.run(_version, on_error="return")
    except TimeoutError:
        client.close()
        raise InputError(f"--dask: the scheduler at {address} has no workers") from None
    for worker, version in found.items():
        if version != perfmodel.__version__:
            client.close()
            raise InputError(
                f"--dask: worker {worker} has no perfmodel {perfmodel.__version__} "
                f"({version!s:.60}); install the same on all"
            )
    return client


def on_cluster(
    address: str, folder: Folder, spec: str, todo: list[int]
) -> Iterator[tuple[int, Encoded]]:
    """Parts as they come in.

    Raises:
        InputError: no cluster answers, or its workers die of a part.
    """
    with _connected(address) as client:
        waiting = deque(todo)
        numbers: dict[Future, int] = {}

        def submit() -> Future:
            number = waiting.popleft()
            start, stop = folder.span(number)
            future = client.submit(made_part, spec, start, stop, folder.form, pure=False)
            numbers[future] = number
            return future

        threads = sum(client.nthreads().values())
        first = [submit() for _ in range(min(AHEAD * threads, len(todo)))]
        running = as_completed(first, loop=client.loop)
        for future in running:
            try:
                part = future.result()
            except KilledWorker as error:
                raise InputError(f"--dask: workers die of a part: {error}") from None
            number = numbers.pop(future)
            future.release()
            if waiting:
                running.add(submit())
            yield number, part
