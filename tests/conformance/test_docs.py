"""What docs/conformance.md shows is so."""

import re
import shlex
from pathlib import Path

import pytest

from conformance.__main__ import main
from conformance.kinds import KINDS
from conformance.truths_file import read_truths

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")


def row(name):
    """A kind as the page's table has it."""
    kind = KINDS[name]
    takes = [f"`{key}` ({'none' if value is None else value})" for key, value in kind.takes.items()]
    inputs = ", ".join([*(f"`{key}`" for key in kind.needs), *takes])
    return f"| `{name}` | {kind.asks} | {inputs} | {kind.unit} |"


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_described(name):
    assert row(name) in PAGE.splitlines()


def test_every_format_is_described():
    named = {
        truth.question.inputs.get(key) for truth in read_truths() for key in ("format", "cache")
    }
    table = PAGE[PAGE.index("Names of formats:") : PAGE.index("## A truth")]
    assert {name for name in named if name} <= {*re.findall(r"`(\w+)`", table)}


def test_the_example_is_the_shipped_one():
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    file = ROOT / "conformance" / "examples" / "tiny_adapter.py"
    assert shown == file.read_text(encoding="utf-8")


def test_the_sample_output_is_what_the_command_prints(capsys):
    ((command, shown),) = re.findall(
        r"<!-- sample output -->\n```console\n\$ python -m conformance (.*?)\n(.*?)…\n```",
        PAGE,
        re.S,
    )
    assert main(shlex.split(command)) == 1  # it has failures, as the page says
    assert capsys.readouterr().out.split("\n")[: shown.count("\n")] == shown.splitlines()


def test_the_example_of_a_file_is_one(tmp_path):
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    path = tmp_path / "truths.yaml"
    path.write_text(shown, encoding="utf-8")
    (truth,) = read_truths(path)
    (shipped,) = [t for t in read_truths() if t.id == truth.id]
    assert (truth.answer, truth.derivation) == (shipped.answer, shipped.derivation)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
