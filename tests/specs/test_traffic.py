"""Traffic from Python and from YAML: what it says, and how a wrong line is named."""

import pytest

from perfmodel import InputError, RequestClass, Traffic, load_traffic

GOOD = """
rate: 12
percentile: 95
peak: 2
growth: 0.05
months: 6
classes:
  - name: chat
    share: 3
    prompt: lognormal:900:0.8:8000
    output: 250
    prefix_tokens: 400
    level: {ttft_s: 0.8, tpot_s: 0.05}
  - name: summary
    share: 1
    prompt: 6000
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "traffic.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_a_file_is_read_whole(write):
    traffic = load_traffic(write(GOOD))
    assert traffic.shares() == (0.75, 0.25)
    chat, summary = traffic.classes
    assert (chat.prompt, chat.output, chat.prefix_tokens) == ("lognormal:900:0.8:8000", 250, 400)
    assert (chat.level.ttft_s, chat.level.tpot_s, chat.level.e2e_s) == (0.8, 0.05, None)
    assert summary == RequestClass(name="summary", share=1, prompt=6000)
    assert (traffic.rate, traffic.percentile, traffic.months) == (12, 95, 6)
    # 12·1.05² = 13.23, twice as many in the busiest hour
    assert traffic.rate_at(2) == pytest.approx(13.23)
    assert traffic.peak_at(2) == pytest.approx(26.46)


def test_a_rate_alone_is_one_class_of_the_defaults(write):
    assert load_traffic(write("rate: 3\n")) == Traffic(rate=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("percentile: 90\n", ("rate",)),
        ("rate: 0\n", ("rate", "greater than 0")),
        ("rate: .inf\n", ("rate", "finite")),
        ("rate: 5\nrates: 4\n", ("rates", "known: rate")),
        ("rate: 5\npercentile: 100\n", ("percentile", "less than 100")),
        ("rate: 5\npeak: 0.5\n", ("peak", "1")),
        ("rate: 5\nmonths: 1.5\n", ("months", "1.5")),
        ("rate: 5\nclasses: []\n", ("classes", "- name:")),
        ("rate: 5\nclasses: {name: a}\n", ("classes", "list")),
        ("rate: 5\nclasses:\n  - chat\n", ("classes.0", "key: value")),
        ("rate: 5\nclasses:\n  - {name: a, share: -1}\n", ("classes.0.share", "-1")),
        ("rate: 5\nclasses:\n  - {name: a}\n  - {name: b, shares: 1}\n", ("classes.1.shares",)),
        ("rate: 5\nclasses:\n  - {prompt: 12.5}\n", ("classes.0.prompt", "whole number", "12.5")),
        ("rate: 5\nclasses:\n  - {level: fast}\n", ("classes.0.level", "ttft_s")),
        (
            "rate: 5\nclasses:\n  - {level: {ttft_s: 500ms}}\n",
            ("classes.0.level.ttft_s", "500ms", "write seconds"),
        ),
        ("rate: 5\nclasses:\n  - {level: {tpot: 1}}\n", ("classes.0.level.tpot", "tpot_s")),
        ("- rate: 5\n", ("list",)),
        ("rate: [\n", ("YAML",)),
    ],
)
def test_a_wrong_line_names_file_field_and_remedy(write, text, words):
    path = write(text)
    with pytest.raises(InputError) as error:
        load_traffic(path)
    said = str(error.value)
    assert "\n" not in said
    assert said.startswith(str(path))
    assert all(word in said for word in words), said


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml"):
        load_traffic(tmp_path / "none.yaml")
