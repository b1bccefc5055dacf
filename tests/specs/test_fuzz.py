"""Whatever a config holds: a model or one line of complaint, never anything else."""

import copy
import json
import random
from importlib import resources
from typing import Any

import pytest

from perfmodel.errors import InputError
from perfmodel.operators.cache import kv_bytes_per_token, state_bytes_per_sequence
from perfmodel.operators.parameters import count_parameters
from perfmodel.specs.architectures import build_model
from perfmodel.specs.json_file import parse_json
from perfmodel.specs.loading import model_names
from perfmodel.specs.model import Model

MUTATIONS = 3000
JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    -4096,
    2**31,
    2**63,
    10**30,
    0.5,
    2.0,
    -1e300,
    1e308,
    "",
    "4096",
    "auto",
    "full_attention",
    "line\nbreak",
    "\ud800",
    [],
    [1],
    [None],
    ["full_attention"],
    [[[[[]]]]],
    {},
    {"a": {"b": [1, {"c": None}]}},
    {"model_type": "llama"},
)


def catalogue():
    folder = resources.files("perfmodel") / "catalog"
    return [(folder / f"{name}.json").read_text(encoding="utf-8") for name in model_names()]


def check(text):
    """Reading ``text`` gives a model whose numbers can be taken, or a one-line InputError."""
    try:
        model = build_model(parse_json(text, "fuzzed.json"), "fuzzed", "fuzzed.json")
    except InputError as error:
        line = str(error)
    else:
        assert isinstance(model, Model)
        assert count_parameters(model).total > 0
        assert kv_bytes_per_token(model) >= 0
        assert state_bytes_per_sequence(model) >= 0
        return True
    assert "\n" not in line
    assert line.startswith("fuzzed.json: ")
    assert len(line) < 2500
    assert line.encode("utf-8")
    return False


def spots(value, path=()):
    """Every place in a config: the path to each key and item."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from spots(inner, (*path, key))


def mutate(data, rng):
    """Change one to three places: delete, replace by junk, scale, nest, or swap two values."""
    for _ in range(rng.randint(1, 3)):
        places = list(spots(data))
        if not places:
            return
        *way, last = rng.choice(places)
        holder = data
        for step in way:
            holder = holder[step]
        action = rng.randrange(6)
        if action == 0:
            del holder[last]
        elif action == 1 and isinstance(holder[last], int):
            holder[last] = holder[last] * rng.choice([-1, 0, 2, 3, 10**6]) + rng.choice([0, 1])
        elif action == 2:
            holder[last] = [holder[last]] * rng.randint(0, 3)
        elif action == 3 and isinstance(holder, dict):
            holder[last] = holder[rng.choice(list(holder))]
        else:
            holder[last] = copy.deepcopy(rng.choice(JUNK))


def test_mutated_fields():
    texts = catalogue()
    rng = random.Random(20240607)  # noqa: S311
    models = 0
    for turn in range(MUTATIONS):
        data = json.loads(texts[turn % len(texts)])
        mutate(data, rng)
        models += check(json.dumps(data))
    assert 0.1 * MUTATIONS < models < 0.9 * MUTATIONS  # both outcomes are exercised


def test_mutated_text():
    texts = catalogue()
    rng = random.Random(7)  # noqa: S311
    for turn in range(MUTATIONS // 3):
        text = list(texts[turn % len(texts)])
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(text))
            text[place] = rng.choice(["", "{", "}", "[", '"', ",", "9" * 30, "-", "\x00", "é", "e"])
        check("".join(text))


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_every_field_of_every_architecture(junk):
    seen = set()
    for text in catalogue():
        data = json.loads(text)
        if data["model_type"] in seen:
            continue
        seen.add(data["model_type"])
        for way in [place for place in spots(data) if isinstance(place[-1], str)]:
            changed = copy.deepcopy(data)
            holder = changed
            for step in way[:-1]:
                holder = holder[step]
            holder[way[-1]] = copy.deepcopy(junk)
            check(json.dumps(changed))
