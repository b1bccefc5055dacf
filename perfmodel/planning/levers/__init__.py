"""Every lever that `advise` tries, by topic. One more lever is one more record in its module."""

from __future__ import annotations

from perfmodel.planning.lever import Lever
from perfmodel.planning.levers import batching, cache, elsewhere, execution, formats, parallel

LEVERS: tuple[Lever, ...] = (
    *formats.LEVERS,
    *cache.LEVERS,
    *execution.LEVERS,
    *batching.LEVERS,
    *parallel.LEVERS,
    *elsewhere.LEVERS,
)
"""In the order in which those without a change are listed."""
