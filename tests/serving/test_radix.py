"""The radix tree against explicit token lists, and against single blocks kept in a dictionary."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.serving.radix import Node, RadixTree
from perfmodel.serving.tokens import Runs, agree, cut, prompt_runs

PARTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=4).map(tuple)
PROMPTS = st.tuples(PARTS, st.integers(1, 24))


def explicit(prefix: Any, prompt: int, own: Any) -> list[Any]:
    """Every token of a prompt by itself."""
    tokens = [(name, place) for name, count in prefix for place in range(count)][:prompt]
    return tokens + [(own, place) for place in range(prompt - len(tokens))]


def tokens_of(asked: tuple[Any, int], own: Any) -> list[Any]:
    return explicit(asked[0], asked[1], own)


def runs_of(asked: tuple[Any, int], own: Any) -> Runs:
    return prompt_runs(asked[0], asked[1], own)


def common(one: list[Any], other: list[Any]) -> int:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same


def nodes(tree: RadixTree) -> list[Node]:
    found, todo = [], list(tree.root.children.values())
    while todo:
        node = todo.pop()
        found.append(node)
        todo += node.children.values()
    return found


def check(tree: RadixTree) -> None:
    """What must always hold of a tree."""
    every = nodes(tree)
    for tier, count in enumerate(tree.counts):
        assert count == sum(n.blocks for n in every if n.tier == tier)
        assert tier == 0 or count <= tree.capacities[tier - 1]
    assert tree.held == sum(n.blocks for n in every if n.refs)
    for node in every:
        assert node.blocks > 0
        assert sum(tokens for _, _, tokens in node.runs) == node.blocks * tree.block
        assert node.near == sum(c.tier == node.tier for c in node.children.values())
        assert node.parent is not None
        assert node.parent.tier <= node.tier
        assert node.parent.refs >= node.refs or node.parent is tree.root
        assert not (node.refs and node.tier)
        for key, child in node.children.items():
            assert key == cut(child.runs, 0, tree.block)


@given(PROMPTS, PROMPTS, st.integers(0, 24), st.integers(0, 24))
def test_runs_are_token_lists(one: Any, other: Any, start: int, stop: int):
    runs, more = runs_of(one, 1), runs_of(other, 2)
    tokens, others = tokens_of(one, 1), tokens_of(other, 2)
    assert sum(count for _, _, count in runs) == one[1]
    assert agree(runs, more) == common(tokens, others)
    written = [(name, first + i) for name, first, n in cut(runs, start, stop) for i in range(n)]
    assert written == tokens[start:stop]


@given(st.lists(PROMPTS, min_size=1, max_size=12), PROMPTS, st.integers(1, 5))
def test_matches_the_longest_common_beginning(cached: Any, asked: Any, block: int):
    tree = RadixTree(block)
    for number, (prefix, prompt) in enumerate(cached):
        tree.extend(prompt_runs(prefix, prompt, number), prompt // block, tree.root)
        check(tree)
    tokens = tokens_of(asked, "asked")
    whole = [tokens_of(each, n)[: each[1] // block * block] for n, each in enumerate(cached)]
    longest = max(common(each, tokens) for each in whole)
    found = tree.match(runs_of(asked, "asked"), asked[1] // block)
    assert found.blocks == longest // block
    beginnings = {tuple(e[: i + block]) for e in whole for i in range(0, len(e), block)}
    assert tree.counts[0] == len(beginnings)


class SingleBlocks:
    """The same cache block by block: each is known by all tokens up to its end."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.refs: dict[Any, int] = {}
        self.used: dict[Any, int] = {}
        self.time = 0

    def beginnings(self, tokens: list[Any]) -> list[Any]:
        ends = range(self.block, len(tokens) + 1, self.block)
        return [tuple(tokens[:end]) for end in ends]

    def hold(self, tokens: list[Any]) -> None:
        self.time += 1
        for key in self.beginnings(tokens):
            self.refs[key] = self.refs.get(key, 0) + 1
            self.used[key] = self.time

    def give_back(self, tokens: list[Any]) -> None:
        self.time += 1
        for key in self.beginnings(tokens):
            self.refs[key] -= 1
            if not self.refs[key]:
                self.used[key] = self.time

    def evict(self, blocks: int) -> None:
        for _ in range(blocks):
            inner = {key[: -self.block] for key in self.refs}
            free = [key for key, refs in self.refs.items() if not refs and key not in inner]
            if not free:
                return
            del self.refs[min(free, key=lambda key: self.used[key])]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("use"), PROMPTS),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("evict"), st.integers(1, 6)),
    ),
    max_size=40,
)


@given(OPERATIONS, st.integers(1, 4))
@settings(max_examples=150)
def test_evicts_the_least_recently_used_ends(operations: Any, block: int):
    tree, single = RadixTree(block), SingleBlocks(block)
    using: list[tuple[Any, list[Any]]] = []
    for number, (what, value) in enumerate(operations):
        if what == "use":
            tokens = tokens_of(value, number)
            node = tree.extend(runs_of(value, number), value[1] // block, tree.root)
            single.hold(tokens)
            single.time += 1  # the root was given back
            using.append((node, tokens))
        elif what == "end" and using:
            node, tokens = using.pop(value % len(using))
            tree.give_back(node)
            single.give_back(tokens)
        elif what == "evict":
            tree.evict(value)
            single.evict(value)
        check(tree)
        assert tree.counts[0] == len(single.refs)
        assert tree.held == sum(refs > 0 for refs in single.refs.values())
    for key in single.refs:
        runs = tuple((name, place, 1) for name, place in key)
        merged: list[Any] = []
        for name, place, _ in runs:
            if merged and merged[-1][0] == name and sum(merged[-1][1:]) == place:
                merged[-1] = (name, merged[-1][1], merged[-1][2] + 1)
            else:
                merged.append((name, place, 1))
        assert tree.match(tuple(merged), len(key) // block).blocks == len(key) // block


@given(OPERATIONS, st.integers(1, 3), st.lists(st.integers(1, 9), min_size=1, max_size=2))
@settings(max_examples=150)
def test_tiers_hold_what_was_evicted_up_to_their_capacity(operations: Any, block: int, tiers: Any):
    tree = RadixTree(block, tuple(tiers))
    using: list[Node] = []
    for number, (what, value) in enumerate(operations):
        if what == "use":
            runs, blocks = runs_of(value, number), value[1] // block
            found = tree.match(runs, blocks)
            held = tree.hold(found)
            check(tree)
            using.append(tree.extend(runs, blocks, held))
            assert not any(tree.match(runs, blocks).below)
        elif what == "end" and using:
            tree.give_back(using.pop(value % len(using)))
        elif what == "evict":
            before, unheld = list(tree.counts), tree.unheld
            tree.evict(value)
            gone = min(value, unheld)
            assert tree.counts[0] == before[0] - gone
            for tier, capacity in enumerate(tiers, start=1):  # what is too much goes on
                assert tree.counts[tier] == min(capacity, before[tier] + gone)
                gone += before[tier] - tree.counts[tier]
        check(tree)


def test_the_end_of_the_older_prompt_goes_first():
    # Two prompts of 4 blocks share 2; the first was given back before the second.
    tree = RadixTree(4)
    one, two = prompt_runs((("s", 8),), 16, 1), prompt_runs((("s", 8),), 16, 2)
    first, second = tree.extend(one, 4, tree.root), tree.extend(two, 4, tree.root)
    assert tree.counts == [6]
    tree.give_back(first)
    tree.give_back(second)
    tree.evict(1)
    assert (tree.match(one, 4).blocks, tree.match(two, 4).blocks) == (3, 4)
    tree.evict(2)  # the rest of the first, then the end of the second
    assert (tree.match(one, 4).blocks, tree.match(two, 4).blocks) == (2, 3)
    tree.evict(99)
    assert tree.counts == [0]
    assert not tree.root.children


def test_a_queue_stays_short_without_eviction():
    tree = RadixTree(4)
    for _ in range(2000):
        tree.give_back(tree.extend(prompt_runs((("s", 8),), 8, 1), 2, tree.root))
    assert len(tree._queues[0]) < 100


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(17, 200)), min_size=1, max_size=25))
def test_a_prompt_goes_in_the_same_whether_its_held_beginning_is_looked_for_or_known(prompts):
    trees = RadixTree(16), RadixTree(16)
    for number, (name, tokens) in enumerate(prompts):
        runs = prompt_runs(((f"text-{name}", 64),), tokens, number)
        blocks, held = tokens // 16, []
        for tree, known in zip(trees, (False, True), strict=True):
            match = tree.match(runs, blocks)
            node = tree.hold(match)
            end = tree.extend(runs, blocks, node, match.blocks if known else 0)
            held.append((match.blocks, end.blocks, tree.held, tuple(tree.counts)))
            if number % 2:
                tree.give_back(end)
        assert held[0] == held[1]
