"""Worlds broken on purpose are found by name, sound and real ones pass; one that hangs or dies is named, too."""

import multiprocessing

import gymnasium
import numpy as np
import pytest
from broken_envs import BROKEN, ClockAsEnd

from stride.envs_gym.check import finding as parts
from stride.envs_gym.check.constants import constant_actions
from stride.envs_gym.check.cost import best_workers
from stride.envs_gym.check.examine import CHECKS, CheckLimits, examine
from stride.envs_gym.check.finding import CATALOGUE, FAULT, LEVELS, WARNING, Measurements, finding
from stride.envs_gym.check.outside import reported_better
from stride.envs_gym.check.study import StopError, Study, find_subject
from stride.envs_gym.check.watched import check_in
from stride.envs_gym.check.world import distance
from stride.utils.user_error import UserError

SHORT = CheckLimits(steps=500, seconds=3.0)
FAMILIES = [
    "Pendulum-v1", "FrozenLake-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Blackjack-v1",
    "CliffWalking-v1", "Taxi-v4", "LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3", "HalfCheetah-v5", "Hopper-v5",
    "Reacher-v5", "Humanoid-v5", "InvertedPendulum-v5", "ALE/Pong-v5", "ALE/Breakout-v5", "fast/CartPole-v1",
    "minigrid:MiniGrid-Empty-5x5-v0",
]  # fmt: skip
UNDRAWN = tuple(name for name in CHECKS if name != parts.PICTURES)  # without a display MuJoCo's ends the process


def examined(words, limits=SHORT, names=tuple(CHECKS)):
    """What these parts find, in this process."""
    whole = {name: part for name, part in CHECKS.items() if name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stride.envs_gym.check.examine.CHECKS", whole)
        return examine(words, {}, limits, lambda message: None, [0, 0])


EVIDENCE = {
    "Endures": "ZeroDivisionError: the sky fell (tests/broken_envs.py:",
    "Leaks": "made in tests/broken_envs.py:",
    "ClassState": "ClassState.trail",
    "ClassTotal": "ClassTotal.total of the class changes, and a second instance then differs",
    "OldStep": "4 values",
    "ClockAsEnd": "each at step 20",
    "IgnoresPart": "action[1]",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_is_found_by_name(broken):
    level, where, name = BROKEN[broken]
    before = [parts.FORM] if where in (parts.FORM, parts.PLAY) else [parts.FORM, parts.SEED]
    result = examined(f"broken_envs:{broken}", names={*before, where})
    findings = {finding.name: finding for finding in result.findings}
    assert name in findings and findings[name].level == level, result.findings
    assert EVIDENCE.get(broken, "") in findings[name].evidence
    assert min(LEVELS.index(finding.level) for finding in result.findings) == LEVELS.index(level)
    assert broken != "GlobalRandom" or "np.random drew numbers" in findings["global-random"].evidence


@pytest.mark.slow
@pytest.mark.parametrize("every", [pytest.param(4, id="a quarter"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def test_each_is_found_among_all_parts(every):
    for broken, (level, _, name) in [*BROKEN.items()][::every]:
        result = examined(f"broken_envs:{broken}", CheckLimits(steps=300, seconds=1.0))
        assert name in {finding.name for finding in result.findings}, broken
        assert bool(result.count(FAULT)) == (level == FAULT), (broken, result.sorted())


@pytest.mark.parametrize("words", ["broken_envs:Sound-v0", "broken_envs:Continuous", "CartPole-v1"])
def test_a_sound_world_has_neither_faults_nor_warnings(words):
    result = examined(words)
    assert not result.count(FAULT) and not result.count(WARNING) and not result.stopped, result.sorted()
    assert result.measurements.episodes > 5 and result.measurements.random_return is not None


@pytest.mark.slow
@pytest.mark.parametrize("env_id", FAMILIES)
def test_no_installed_family_has_faults(env_id):
    try:
        result = examined(env_id, CheckLimits(steps=300, seconds=1.0), names=UNDRAWN)
    except UserError as error:
        pytest.skip(str(error))
    assert not result.count(FAULT) and not result.stopped, result.sorted()


def test_every_finding_has_a_why_and_a_cure_and_most_are_shown_to_be_found():
    for entry in CATALOGUE.values():
        assert entry.level in LEVELS and entry.why.endswith(".") and len(entry.cure) > 5
    shown = {name for _, _, name in BROKEN.values()}
    assert shown <= CATALOGUE.keys() and len(BROKEN) >= 60
    elsewhere = {"raises", "hangs", "process-died", "prints", "global-random", "not-checked", "gymnasium-checker",
                 "gymnasium-bounds", "slow-step", "slow-reset", "resident-memory-grows", "one-step-episodes",
                 "constant-action-beats-random"}  # fmt: skip
    assert CATALOGUE.keys() - shown <= elsewhere


def test_a_fixed_horizon_that_can_be_seen_is_no_fault():
    class Timed(ClockAsEnd):
        def observe(self):
            return np.array([self.place, self.age / 20], np.float32)

    gymnasium.register("Timed-v0", Timed)
    levels = {finding.name: finding.level for finding in examined("Timed-v0", names={parts.FORM, parts.PLAY}).findings}
    assert levels["time-limit-as-terminated"] == "note"


def apart(words, timeout=30.0, way="fork", watch=lambda part, seconds: None):
    """Checked in a fork, where everything is imported, or in a process of its own as users have it."""
    return check_in(multiprocessing.get_context(way), (words, {}, 200, 2.0), timeout, watch)


@pytest.mark.parametrize(
    ("world", "name", "words"),
    [
        ("Hangs", "hangs", "step, call"),
        ("HangsInMachineCode", "hangs", "reset, call"),
        ("Exits", "process-died", "ended with exit code 7 in step"),
        ("DiesDrawing", "render-fails", "was killed by SIGKILL in render"),
        ("Dies", "process-died", "was killed by SIGSEGV in step (tests/broken_envs.py:"),
    ],
)
def test_what_takes_the_process_along_is_named_with_its_place(world, name, words):
    """The crash not in a fork: what pytest's process has loaded may handle the signal first, and abort."""
    timeout = 0.5 if name == "hangs" else 30.0
    result = apart(f"broken_envs:{world}", timeout, "spawn" if world == "Dies" else "fork")
    (found,) = [finding for finding in result.findings if finding.name == name]
    assert words in found.evidence and result.stopped
    assert name != "hangs" or "broken_envs.py:" in found.evidence


def test_a_whole_check_of_a_process(capfd):
    """What a world prints is counted, and shown to nobody."""
    seen = []
    result = apart("broken_envs:Prints", watch=lambda part, seconds: seen.append(part))
    (prints,) = [finding for finding in result.findings if finding.name == "prints"]
    assert "bytes at each step" in prints.evidence
    assert result.measurements.round_trip_us > 0 and not result.stopped and not result.count(FAULT)
    assert list(dict.fromkeys(seen)) == ["", *parts.PARTS]
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_made_is_refused_here_and_by_the_process():
    for message, find in {
        "unknown environment 'CartPol-v1'; did you mean CartPole-v1": lambda: apart("CartPol-v1"),
        "did you mean Sound": lambda: find_subject("broken_envs:Sond", {}),
        "color": lambda: find_subject("broken_envs:Sound", {"color": 1}).bare(),
        "env_kwargs has no 'color'": lambda: find_subject("broken_envs:Sound-v0", {"color": 1}).make(),
    }.items():
        with pytest.raises(UserError, match=message):
            find()


def test_workers_pay_where_a_step_costs_more_than_asking_for_it():
    assert best_workers(10.0, 100.0, 8) == (0, 1.0)
    workers, times = best_workers(5000.0, 100.0, 4)
    assert workers == 4 and 3.5 < times < 4
    assert best_workers(5000.0, 100.0, 1) == (0, 1.0)


def test_cost_is_judged_by_what_was_measured():
    study = Study(find_subject("broken_envs:Sound", {}), SHORT, [0, 0], lambda: 1e-4, lambda: 0)
    study.measurements = Measurements(
        steps=100, episodes=10, step_us=20_000.0, reset_us=900_000.0, steps_per_second=50.0
    )
    findings = {finding.name: finding for finding in CHECKS[parts.COST](study)}
    assert findings["slow-step"].level == WARNING and "5:33:20" in findings["slow-step"].evidence
    assert "82%" in findings["slow-reset"].evidence and study.measurements.round_trip_us == pytest.approx(100)


def test_gymnasiums_words_are_left_out_where_ours_say_it():
    warning = "The obs returned was expecting a numpy array"
    assert reported_better(warning, [finding("observation-dtype", "")])
    assert not reported_better(warning, [])


def test_distances():
    assert distance(np.zeros(2), np.zeros(2)) == 0 and distance(np.float32(1.0), np.float32(3.0)) == 2
    assert distance({"a": np.ones(2)}, {"b": np.ones(2)}) == np.inf and distance((1, 2), (1, 4)) == 1
    assert distance(np.array([np.nan, 1.0]), np.array([np.nan, 1.5])) == 0.5
    assert distance(np.zeros(2), np.zeros(3)) == np.inf and distance("left", "right") == np.inf


def test_constant_actions_reach_the_ends():
    box = constant_actions(gymnasium.spaces.Box(np.array([-2.0, -np.inf]), np.array([4.0, np.inf]), dtype=np.float64))
    assert box["high"].tolist() == [4, 1] and box["low"].tolist() == [-2, -1] and box["half of high"][0] == 2.5
    assert [*constant_actions(gymnasium.spaces.Discrete(3, start=5))] == ["5", "6", "7"]
    assert constant_actions(gymnasium.spaces.MultiDiscrete([2, 3]))["high"].tolist() == [1, 2]


def test_nothing_more_is_checked_without_a_form():
    study = Study(find_subject("broken_envs:OldStep", {}), SHORT, [0, 0], None, lambda: 0)
    with pytest.raises(StopError):
        [*CHECKS[parts.FORM](study)]
    assert examined("broken_envs:OldStep").stopped
