"""Cached prompts as a radix tree in whole blocks: the oldest ends go first.

An edge is a run of blocks; it is split where prompts diverge, between blocks, because a block whose
tokens differ anywhere is another block (as in vLLM, which hashes whole blocks). Nodes may have been
moved to slower tiers: tier 0 is the device's memory, and no node is in a faster tier than the node
above it. What is moved or dropped is always the least recently used run that no sequence holds and
that has no run of its own tier below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from perfmodel.serving.tokens import Runs, agree, cut

SLACK = 64
"""Entries of a queue beyond four for each node before it is cleaned."""


class Node:
    """A run of blocks after those of the nodes above it."""

    __slots__ = ("blocks", "children", "near", "parent", "refs", "runs", "tier", "used")

    def __init__(self, parent: Node | None, runs: Runs, blocks: int, tier: int, used: int) -> None:
        self.parent = parent
        """None for the root, and for what was dropped."""
        self.runs = runs
        self.blocks = blocks
        self.tier = tier
        self.used = used
        """When it was last held, or given back, in the tree's own count."""
        self.children: dict[Runs, Node] = {}
        """By the tokens of their first blocks."""
        self.refs = 0
        """Sequences that hold it or a node below."""
        self.near = 0
        """Children in its own tier."""


@dataclass(frozen=True, slots=True)
class Match:
    """The longest beginning of a prompt that a tree holds."""

    node: Node
    inside: int
    """Blocks of ``node`` that belong to it."""
    blocks: int
    unheld: int
    """Those that no sequence holds."""
    below: tuple[int, ...]
    """Those in each tier below the first."""


class RadixTree:
    """The tree, and what it counts.

    Args:
        block: tokens in a block.
        capacities: blocks of each tier below the first, at least one each.
    """

    def __init__(self, block: int, capacities: tuple[int, ...] = ()) -> None:
        self.block = block
        self.capacities = capacities
        self.root = Node(None, (), 0, 0, 0)
        self.root.refs = 1
        self.counts = [0] * (1 + len(capacities))
        """Blocks in each tier."""
        self.held = 0
        """Blocks of tier 0 that sequences hold."""
        self._time = 0
        self._serial = 0
        self._nodes = 0
        self._queues: list[list[tuple[int, int, Node]]] = [[] for _ in self.counts]

    @property
    def unheld(self) -> int:
        """Blocks of tier 0 that could be taken."""
        return self.counts[0] - self.held

    def match(
        self, runs: Runs, blocks: int, known: Node | None = None, known_blocks: int = 0
    ) -> Match:
        """The longest beginning of ``runs`` that is cached, of ``blocks`` at most.

        It is known to reach to the end of ``known``, ``known_blocks`` from the beginning; those
        aren't counted among what is unheld or below.
        """
        block = self.block
        node, at, unheld = known or self.root, known_blocks, 0
        inside = node.blocks
        below = [0] * len(self.counts)
        while at < blocks and inside == node.blocks:
            rest = cut(runs, at * block, blocks * block)
            child = node.children.get(cut(rest, 0, block))
            if child is None:
                break
            node, inside = child, agree(child.runs, rest) // block
            at += inside
            below[node.tier] += inside
            if not node.refs:
                unheld += inside
        return Match(node, inside, at, unheld, tuple(below[1:]))

    def hold(self, match: Match) -> Node:
        """Keep a match: all of it comes to tier 0 and stays until it is given back.

        Valid only while nothing has changed since it was matched.
        """
        node = match.node
        if match.inside < node.blocks:
            node = self._split(node, match.inside)
        self._hold(node)
        return node

    def extend(self, runs: Runs, blocks: int, old: Node, old_blocks: int = 0) -> Node:
        """Put a prompt in and hold all its ``blocks``; ``old``, a part of it, is given back.

        ``old_blocks``: how far the end of ``old`` is from the beginning; 0: looked for.
        """
        match = self.match(runs, blocks, old if old_blocks else None, old_blocks)
        node = match.node
        if match.inside < node.blocks:
            node = self._split(node, match.inside)
        if match.blocks < blocks:
            rest = cut(runs, match.blocks * self.block, blocks * self.block)
            child = Node(node, rest, blocks - match.blocks, 0, 0)
            node.children[cut(rest, 0, self.block)] = child
            node.near += not node.tier
            self.counts[0] += child.blocks
            self._nodes += 1
            node = child
        self._hold(node)
        self.give_back(old)
        return node

    def give_back(self, node: Node) -> None:
        """A sequence no longer holds a node and those above it."""
        self._time += 1
        at: Node | None = node
        while at is not None and at is not self.root:
            at.refs -= 1
            if not at.refs:
                self.held -= at.blocks
                at.used = self._time
                self._offer(at)
            at = at.parent

    def evict(self, blocks: int, tier: int = 0) -> None:
        """Take ``blocks`` out of a tier, or as many as no sequence holds."""
        while blocks > 0:
            node = self._oldest(tier)
            if node is None:
                return
            piece = min(blocks, *self.capacities[tier : tier + 1], node.blocks)
            if piece < node.blocks:
                self._split(node, node.blocks - piece)  # the ends go first
            self._lower(node)
            blocks -= piece

    def _hold(self, node: Node) -> None:
        self._time += 1
        path: list[Node] = []
        at = node
        while at.parent is not None:
            path.append(at)
            at = at.parent
        for at in reversed(path):
            if at.tier:
                self._raise(at)
            if not at.refs:
                self.held += at.blocks
            at.refs += 1
            at.used = self._time

    def _raise(self, node: Node) -> None:
        """Bring a node to tier 0, where the one above it is already."""
        self.counts[node.tier] -= node.blocks
        self.counts[0] += node.blocks
        node.tier = 0
        node.near = sum(not child.tier for child in node.children.values())
        if node.parent is not None:
            node.parent.near += 1

    def _split(self, node: Node, blocks: int) -> Node:
        """A new node of the first ``blocks`` of one; the old one keeps the rest."""
        parent, runs, tokens = node.parent, node.runs, blocks * self.block
        upper = Node(parent, cut(runs, 0, tokens), blocks, node.tier, node.used)
        upper.refs, upper.near = node.refs, 1
        if parent is not None:
            parent.children[cut(runs, 0, self.block)] = upper
        node.parent = upper
        node.runs = cut(runs, tokens, node.blocks * self.block)
        node.blocks -= blocks
        upper.children[cut(node.runs, 0, self.block)] = node
        self._nodes += 1
        return upper

    def _lower(self, node: Node) -> None:
        """Move an unheld node one tier down, or drop it from the last."""
        parent, old = node.parent, node.tier
        self.counts[old] -= node.blocks
        if parent is not None and parent.tier == old:
            parent.near -= 1
        if old < len(self.capacities):
            self.evict(node.blocks - self.capacities[old] + self.counts[old + 1], old + 1)
            node.tier = old + 1
            self.counts[node.tier] += node.blocks
            node.near = sum(child.tier == node.tier for child in node.children.values())
            self._offer(node)
        elif parent is not None:
            del parent.children[cut(node.runs, 0, self.block)]
            node.parent = None
            self._nodes -= 1
        if parent is not None and parent.tier == old:
            self._offer(parent)

    def _offer(self, node: Node) -> None:
        """Queue a node if it can be taken."""
        if node.refs or node.near:
            return
        queue = self._queues[node.tier]
        if len(queue) > 4 * self._nodes + SLACK:
            tier = node.tier
            queue[:] = [entry for entry in queue if _takable(entry, tier)]
            heapify(queue)
        self._serial += 1
        heappush(queue, (node.used, self._serial, node))

    def _oldest(self, tier: int) -> Node | None:
        queue = self._queues[tier]
        while queue:
            entry = heappop(queue)
            if _takable(entry, tier):
                return entry[2]
        return None


def _takable(entry: tuple[int, int, Node], tier: int) -> bool:
    """Whether an entry of a queue still holds."""
    used, _, node = entry
    alive = node.parent is not None and node.tier == tier and node.used == used
    return alive and not (node.refs or node.near)
