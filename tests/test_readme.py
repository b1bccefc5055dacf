"""What the README shows is run, and what it says of itself is true."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.runner import perfmodel

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = "\n".join(re.findall(r"^```(?:sh|console)\n(.*?)^```", README, re.M | re.S))
COMMANDS = sorted(
    {
        match.group(1).strip()
        for match in re.finditer(r"(?:^|\$ |/)perfmodel ([^\n#|]+)", SHELL, re.M)
    }
)


def test_there_are_commands_to_run():
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(command):
    ran = perfmodel(*shlex.split(command))
    assert ran.status == 0, ran.err
    assert ran.out


SAMPLES = re.findall(
    r"<!-- sample output -->\n```console\n\$ perfmodel (.*?)\n(.*?)```", README, re.S
)


@pytest.mark.parametrize(("command", "shown"), SAMPLES)
def test_a_sample_output_is_what_the_command_prints(command, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed, lines = _words(perfmodel(*shlex.split(command)).out), _words(shown)
    if lines[-1] == ["…"]:  # and so on
        lines.pop()
        printed = printed[: len(lines)]
    assert printed == lines


def test_there_are_samples():
    assert len(SAMPLES) >= 2


def _words(text):
    return [line.split() for line in text.splitlines() if line.strip()]


def test_the_python_example_runs():
    example = re.search(r"```python\n(.*?)```", README, re.S)
    assert example is not None
    exec(compile(example.group(1), "README.md", "exec"), {})  # noqa: S102


def test_relative_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target
