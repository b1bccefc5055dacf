"""Numbers fitted on measured loads, and what of them holds elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from calibrate.serving_check import Predictor
from calibrate.serving_fit import claims_ttft, fit_common, fit_numbers, responses
from calibrate.serving_preset import Numbers, changed, own_numbers, text_of
from calibrate.serving_protocols import few, halves, layout, spread, without
from calibrate.serving_transfer import carried
from perfmodel.specs.engine import load_engine
from tests.calibrate.test_serving_check import PLAIN_ROW

LOADS = ((1, 256), (4, 2048), (16, 256), (48, 256))


@pytest.fixture(scope="module")
def found():
    rows = [
        replace(PLAIN_ROW, concurrency=c, isl=isl, length_factor=0.9, number=n)
        for n, (c, isl) in enumerate(LOADS, 1)
    ]
    return responses(Predictor(), rows)


def changed_row(response, **fields):
    row = replace(response.predicted.row, **fields)
    return replace(response, predicted=replace(response.predicted, row=row))


def measured_with(found, numbers, **fields):
    """Responses whose rows were measured on a server with such numbers."""
    made = ((r, r.at(numbers.array)) for r in found)
    return [changed_row(r, ttft_ms=p.ttft_ms, tpot_ms=p.tpot_ms, **fields) for r, p in made]


def test_a_presets_factors_are_multiplied():
    own = load_engine("vllm")
    new = changed(own, Numbers(0.8, 1.5, 20.0))
    assert (new.kernels.gemm.memory, new.kernels.gemm.compute) == (0.8, 1.5)
    assert (new.kernels.collective, new.kernels.attention) == (0.8, own.kernels.attention)
    assert new.kernels.all_reduce.start_us == pytest.approx(0.8 * own.kernels.all_reduce.start_us)
    link_share = own.kernels.all_reduce.link_share / 0.8
    assert new.kernels.all_reduce.link_share == pytest.approx(link_share, rel=1e-3)  # four digits
    assert (new.host.sequence_us, new.host.step_us) == (20.0, own.host.step_us)
    assert changed(own, own_numbers(own)) == own


def test_lines_stand_for_simulations(found, tmp_path):
    # Below 1, reads of one user's steps would soon be faster than the device's memory.
    new = Numbers(1.2, 1.3, 30.0)
    path = tmp_path / "moved.yaml"
    path.write_text(text_of(changed(load_engine("vllm"), new)))
    moved = Predictor(str(path))
    for response in found:
        simulated, line = moved.predict(response.predicted.row), response.at(new.array)
        assert line.tpot_ms == pytest.approx(simulated.tpot_ms, rel=0.01)
        assert line.ttft_ms == pytest.approx(simulated.ttft_ms, rel=0.03)


def test_a_fit_on_the_presets_own_times_changes_nothing(found):
    own = found[0].own
    assert fit_numbers(measured_with(found, own)).array == pytest.approx(own.array, rel=1e-3)


def test_a_fit_finds_a_slower_server(found):
    rows = measured_with(found, Numbers(1.0, 1.0, 45.0))
    made = fit_numbers(rows)
    for r in rows:
        assert r.at(made.array).tpot_ms == pytest.approx(r.predicted.row.tpot_ms, rel=0.05)
    # 33 us more for each of 48 sequences lengthen a step of some 9 ms by a sixth.
    assert made.sequence_us > 30


def test_ttft_tells_slow_prompts_from_slow_decoding(found):
    rows = measured_with(found, Numbers(0.85, 1.25, 12.0))
    made = fit_numbers(rows)
    assert (made.reads, made.compute) == (
        pytest.approx(0.85, abs=0.05),
        pytest.approx(1.25, abs=0.1),
    )
    for r in rows:
        assert r.at(made.array).ttft_ms == pytest.approx(r.predicted.row.ttft_ms, rel=0.05)


def test_ttft_is_fitted_where_it_makes_a_claim(found):
    rows = measured_with(found, found[0].own)
    late = [changed_row(r, ttft_ms=1.3 * r.predicted.row.ttft_ms) for r in rows]
    assert fit_numbers(late).compute > 1.1
    equal = [changed_row(r, length_factor=1.0) for r in late]
    assert not any(claims_ttft(r.predicted) for r in equal)
    missing = [changed_row(r, ttft_ms=float("nan")) for r in rows]
    for other in (equal, missing):
        assert fit_numbers(other).array == pytest.approx(found[0].own.array, rel=1e-3)


def test_one_outlier_among_many_moves_little(found):
    rows = measured_with(found, found[0].own)
    odd = changed_row(rows[0], tpot_ms=4 * rows[0].predicted.row.tpot_ms)
    made = fit_numbers([*rows, *rows, odd])
    assert abs(made.reads - 1) < 0.1


def several(found, servers):
    """Rows of (model, GPU, numbers) each."""
    return [
        r for model, gpu, numbers in servers
        for r in measured_with(found, numbers, model=model, gpu=gpu)
    ]  # fmt: skip


SLOW, QUICK = Numbers(1.25, 1.0, 12.0), Numbers(0.8, 1.0, 12.0)


def test_what_all_models_share_is_carried_over(found):
    rows = several(found, [(m, "a", SLOW) for m in "xyz"])
    made = carried(rows)
    assert (made.share > 0.5, made.fields) == (True, ("model",))
    assert made.numbers.reads == pytest.approx(1.25, abs=0.1)


def test_what_models_disagree_on_is_not(found):
    rows = several(found, [("x", "a", SLOW), ("y", "a", QUICK)])
    made = carried(rows)
    assert (made.share, made.numbers) == (0.0, found[0].own)
    # Both GPUs hold the same for x, which y contradicts: the smaller share counts.
    rows += several(found, [("x", "b", SLOW)])
    assert carried(rows, ("gpu",)).share >= carried(rows).share


def test_one_gpu_says_nothing_of_others(found):
    rows = several(found, [(m, "a", SLOW) for m in "xyz"])
    assert carried(rows, ("gpu",)).numbers == found[0].own
    assert carried(several(found, [("x", "a", SLOW)])).fields == ()


def test_a_share_lies_between_the_preset_and_the_fit(found):
    groups = [measured_with(found, SLOW), measured_with(found, SLOW)]
    reads = [fit_common(groups, share).reads for share in (0.0, 0.3, 1.0)]
    assert reads[0] == 1.0
    assert reads == sorted(reads)
    assert reads[2] == pytest.approx(fit_numbers([*groups[0], *groups[1]]).reads, rel=1e-3)


def test_protocols_never_score_what_they_fit(found):
    rows = [
        changed_row(r, number=n, gpu=gpu, model=model)
        for n, (r, gpu, model) in enumerate(
            (r, gpu, model) for r in found for gpu in "ab" for model in ("x", "y")
        )
    ]  # fmt: skip
    for splits in (halves(rows), without(rows, "gpu"), without(rows, "model"), few(rows, 2)):
        for fitted, scored in splits:
            assert not {r.predicted.row.number for r in fitted} & {
                r.predicted.row.number for r in scored
            }
    for fitted, scored in without(rows, "gpu"):
        assert not {r.predicted.row.gpu for r in fitted} & {r.predicted.row.gpu for r in scored}
    assert sum(len(scored) for _, scored in halves(rows)) == len(rows)


def test_spread_points_are_one_of_each_quarter(found):
    rows = [
        changed_row(found[0], number=n, concurrency=c, isl=isl)
        for n, (c, isl) in enumerate((c, isl) for c in (1, 2, 32, 64) for isl in (128, 256, 4096))
    ]
    splits = list(spread(rows))
    assert len(splits) == 20
    for fitted, scored in splits:
        points = [(r.predicted.row.concurrency > 8, r.predicted.row.isl > 256) for r in fitted]
        assert sorted(points) == [(False, False), (False, True), (True, False), (True, True)]
        assert len(scored) == len(rows) - 4
    assert layout(rows[0])[-1] == "1"
    assert not list(spread(rows[:4]))
    assert np.isfinite(fit_numbers(splits[0][0]).array).all()
