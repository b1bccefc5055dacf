"""Statistics and decisions of the timing loop, on a scripted clock."""

import pytest

from calibrate.cpu_device import ClockTimer
from calibrate.timing import Sample, Settings, error_of, measure, spread_of, summarise
from tests.calibrate.fakes import ScriptedTimer

QUICK = Settings(tolerance=0.02, sample_s=1e-3, warmup_s=1e-3, budget_s=0.5)


def test_steady_call_needs_the_fewest_samples():
    found = measure(ScriptedTimer(10e-6), QUICK)
    assert found.seconds == pytest.approx(10e-6)
    # 1 ms a sample at 10 µs a call: 100 calls (one more where rounding falls up).
    assert (found.samples, found.reached, found.quality) == (5, True, "clean")
    assert found.repeats in {100, 101}


def test_samples_last_a_thousand_steps_of_a_coarse_clock():
    timer = ScriptedTimer(10e-6, resolution_s=1e-5)
    assert measure(timer, QUICK).repeats == pytest.approx(1000, abs=1)


def test_repeats_stay_below_the_inputs_that_a_flush_left_cold():
    assert measure(ScriptedTimer(1e-6), QUICK, repeats_at_most=37).repeats == 37


def test_noise_takes_samples_until_the_tolerance_or_the_budget():
    noisy = measure(ScriptedTimer(10e-6, noise=(1.0, 1.1, 0.9, 1.2, 0.95)), QUICK)
    assert noisy.samples > 5
    assert 0.05 < noisy.spread < 0.2
    wild = measure(ScriptedTimer(0.1, noise=(1.0, 3.0)), QUICK)
    assert (wild.samples, wild.reached) == (5, False)


def test_median_and_spread_by_hand():
    # Median 3, quartiles 2 and 4: (4 − 2)/1.349/3.
    samples = [1.0, 2.0, 3.0, 4.0, 100.0]
    assert spread_of(samples) == pytest.approx(2 / 1.349 / 3, rel=1e-12)
    # Of five the interval is the range: (100 − 1)/2/3.
    assert error_of(samples) == pytest.approx(16.5, rel=1e-12)
    # Of a hundred: ranks 50 − 0.98·10, 40 from below and from above: (59 − 40)/2/49.5.
    assert error_of([float(i) for i in range(100)]) == pytest.approx(9.5 / 49.5, rel=1e-12)


def test_disturbed_samples_are_discarded_when_enough_are_clean():
    timer = ScriptedTimer(1e-3, waits=(0.0, 0.02))
    found = measure(timer, QUICK)
    assert found.seconds == pytest.approx(1e-3)
    assert found.quality == "clean"
    assert found.discarded > 0


def test_one_threads_wait_is_taken_off_and_several_threads_say_disturbed():
    always = {"waits": (0.005,)}
    one = measure(ScriptedTimer(1e-3, serial=True, **always), QUICK)
    assert one.seconds == pytest.approx(1e-3)
    assert (one.quality, one.reached) == ("corrected", True)
    several = measure(ScriptedTimer(1e-3, **always), QUICK)
    assert several.seconds == pytest.approx(6e-3)
    assert (several.quality, several.reached) == ("disturbed", False)


def test_a_clock_that_stands_still_is_an_error():
    with pytest.raises(ValueError, match="took no time"):
        summarise([Sample(0.0)] * 5, 1, QUICK)


def test_clock_timer_counts_the_calls_and_rotates_their_inputs():
    now, seen = [0.0], []

    def call(i):
        seen.append(i)
        now[0] += 2.0

    timer = ClockTimer(call, lambda: now.__setitem__(0, now[0] + 50), clock=lambda: now[0])
    timer.prepare(3)
    assert [timer.sample().seconds, timer.sample().seconds] == [6.0, 6.0]  # the flush isn't timed
    assert seen == [0, 1, 2, 3, 4, 5]


def test_clock_timer_knows_how_long_its_only_thread_was_off_the_core():
    wall, cpu = [0.0], [0.0]

    def call(_):
        wall[0] += 3.0
        cpu[0] += 2.0

    timer = ClockTimer(call, clock=lambda: wall[0], cpu=lambda: cpu[0])
    assert timer.sample() == Sample(3.0, waited_s=1.0, serial=True)
