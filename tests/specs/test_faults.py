"""A fault in an engine's or a calibration's file names file, field, value, and what would do."""

import pytest

from perfmodel.errors import InputError
from perfmodel.specs.engine import ENGINES, load_engine

TEXT = (ENGINES / "vllm.yaml").read_text()
CASES = {
    "too large, as text": ("step_us: 300", "step_us: 1e300",
                           ("host.step_us", "'1e300'", "0 to 1,000,000")),
    "too large": ("step_us: 300", "step_us: 1.0e+300", ("host.step_us", "1e+300", "1,000,000")),
    "negative": ("step_us: 300", "step_us: -5", ("host.step_us", "-5", "0 to 1,000,000")),
    "nan": ("step_us: 300", "step_us: .nan", ("host.step_us", "nan", "0 to 1,000,000")),
    "a list": ("step_us: 300", "step_us: [1]", ("host.step_us", "[1]", "number")),
    "text that is a number": ("step_us: 300", "step_us: 2e5", ("'2e5'", "write 2.0e+5")),
    "quoted": ("step_us: 300", "step_us: '300'", ("'300'", "without quotes")),
    "a fraction": ("block_size: 16", "block_size: 16.5", ("block_size", "16.5", "whole number")),
    "a share": ("utilization: 0.9", "utilization: 90", ("gpu_memory_utilization", "90", "1")),
    "misspelt": ("block_size: 16", "block_sise: 16", ("block_sise", "block_size?")),
    "misspelt, optional": ("host:", "hots:", ("hots", "host?")),
    "misspelt inside": ("layer_us: 0", "layr_us: 0", ("host.layr_us", "layer_us")),
    "misspelt, two deep": ("large: {max_num_seqs", "large: {max_num_seqz",
                           ("limits.large.max_num_seqz", "max_num_seqs")),
    "unlike any": ("layer_us: 0", "qqq: 0", ("host.qqq", "floor_us", "spread")),
}  # fmt: skip


def fault(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_engine(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_field_value_and_remedy(name, tmp_path):
    before, after, said = CASES[name]
    assert before in TEXT
    found = fault(tmp_path, TEXT.replace(before, after, 1))
    assert [part for part in said if part not in found] == []


@pytest.mark.parametrize("slip", [("host:", "hots:"), ("layer_us: 0", "layr_us: 0")])
def test_a_misspelt_key_is_named_though_another_is_missing(slip, tmp_path):
    text = TEXT.replace("block_size: 16\n", "").replace(*slip)
    found = fault(tmp_path, text)
    assert slip[1].split(":")[0] in found
    assert "1 more" in found
