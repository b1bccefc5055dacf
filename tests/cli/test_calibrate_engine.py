"""`perfmodel calibrate engine`: a preset refitted on one's own points."""

import csv

import pytest
import yaml

import perfmodel
from perfmodel.specs.engine import ENGINES
from tests.cli.runner import perfmodel as run

HEAD = ("model", "hardware", "batch", "prompt", "output", "quantity", "seconds")


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        writer.writerows(rows)
    return path


def points_of(engine):
    """Times that an engine would show, of one model over batches and both phases."""
    for batch in (1, 4, 16, 64):
        for quantity in ("ttft", "tpot"):
            workload = perfmodel.Workload(batch=batch, prompt=512, output=64)
            result = perfmodel.estimate(
                "llama-3.1-8b", "h100-sxm", workload, perfmodel.Deployment(engine=engine)
            )
            yield ("llama-3.1-8b", "h100-sxm", batch, 512, 64, quantity,
                   getattr(result, f"{quantity}_s"))  # fmt: skip


def test_a_slower_host_is_found(tmp_path):
    slow = yaml.safe_load((ENGINES / "vllm.yaml").read_text())
    slow["host"] |= {"step_us": 2500.0, "source": "made up: a slow host"}
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(slow))
    points = write(tmp_path / "points.csv", points_of(str(tmp_path / "slow.yaml")))
    out = tmp_path / "mine.yaml"
    ran = run("calibrate", "engine", points, "--engine", "vllm", "--out", out, "--json")
    assert ran.status == 0, ran.err
    assert ran.record["median_error_after"] < 3 < ran.record["median_error_before"]
    case = (
        "estimate",
        "llama-3.1-8b",
        "-H",
        "h100-sxm",
        "-b",
        "8",
        "-p",
        "512",
        "-o",
        "64",
        "--json",
    )
    mine = run(*case, "--engine", out).record["tpot_s"]
    true = run(*case, "--engine", tmp_path / "slow.yaml").record["tpot_s"]
    assert mine == pytest.approx(true, rel=0.05)


GOOD = ("llama-3.1-8b", "h100-sxm", 1, 100, 10, "tpot", 0.01)
WRONG = {
    "quantity": (*GOOD[:5], "itl", 0.01),
    "seconds": (*GOOD[:6], -1),
    "seconds:": (*GOOD[:6], 12.0),  # milliseconds, say
    "output": (*GOOD[:4], 1, "tpot", 0.01),
    "batch": (*GOOD[:2], 0, *GOOD[3:]),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_point_is_named(tmp_path, field):
    points = write(tmp_path / "points.csv", [GOOD, WRONG[field]])
    ran = run("calibrate", "engine", points, "--out", tmp_path / "x.yaml")
    assert ran.status == 2
    assert len(ran.err.strip().splitlines()) == 1
    assert "row 2" in ran.err
    assert field in ran.err
    assert not (tmp_path / "x.yaml").exists()


def test_an_existing_file_stays(tmp_path):
    out = tmp_path / "mine.yaml"
    out.write_text("mine")
    points = write(tmp_path / "points.csv", [GOOD])
    assert run("calibrate", "engine", points, "--out", out).status == 2
    assert out.read_text() == "mine"


POINT = {
    "model": "llama-3.1-8b", "hardware": "h100-sxm", "batch": "1", "prompt": "512", "output": "64",
    "quantity": "tpot", "seconds": "0.008",
}  # fmt: skip
FAULTS = {
    "model": ("", "no-such-model"), "hardware": ("", "no-gpu", "/"), "quantity": ("", "itl"),
    "batch": ("0", "1.5", "-1", "nan", "inf", "1e300", "", "one"), "prompt": ("1e15", "0"),
    "output": ("1", "1e15"), "seconds": ("nan", "inf", "0", "-1", "1e300", "1e-320", ""),
    "tp": ("99", "1e300", "0", "3"), "weights": ("zz",), "activations": ("zz",),
    "kv_cache": ("zz",),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, each in FAULTS.items() for t in each])
def test_a_wrong_point_is_named_by_its_row(name, text, tmp_path):
    points, out = tmp_path / "points.csv", tmp_path / "mine.yaml"
    rows = [dict(POINT, tp="1", weights="", activations="", kv_cache="") for _ in range(3)]
    rows[1][name] = text
    with points.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    ran = run("calibrate", "engine", points, "--out", out)
    assert (ran.status, ran.out, out.exists()) == (2, "", False)
    assert "row 2" in ran.err
    assert ran.err.count("\n") == 1
