"""What docs/sweep.md shows is run."""

import re
import shlex
from pathlib import Path

import pytest

from perfmodel.specs.sweep import load_sweep
from tests.cli.runner import perfmodel

PAGE = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text(encoding="utf-8")
SAMPLE = re.search(r"<!-- sample output -->\n```console\n\$ perfmodel (.*?)\n(.*?)```", PAGE, re.S)
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_the_sample_output_is_what_the_command_prints(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert SAMPLE is not None
    command, shown = SAMPLE.groups()
    assert perfmodel(*shlex.split(command)).out.split() == shown.split()


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    exec(compile(example, "docs/sweep.md", "exec"), {})  # noqa: S102
    import matplotlib.pyplot as plt

    plt.close("all")


def test_there_are_examples():
    assert len(EXAMPLES) >= 2


def test_the_file_is_a_sweep(tmp_path):
    shown = re.search(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    assert shown is not None
    file = tmp_path / "sweep.yaml"
    file.write_text(shown.group(1))
    spec = load_sweep(file)
    assert spec.values("context") == tuple(1024 * 2**n for n in range(8))
    assert len(spec.values("speculation")) == 2
