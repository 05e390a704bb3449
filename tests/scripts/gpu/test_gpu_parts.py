"""What a GPU is asked, asked of the CPU: the same kernels by the host's compiler, a tape in the place of CUDA's graphs.

Each part finds right what is right, and what is planted wrong.
"""

import json

import pytest
import torch
from host_kernels import compile_host
from tape import Tape, taped

from agents.engines.graphed import graphed
from agents.experience.collector import Collector
from envs_fast import registry
from envs_fast.cuda_env import CudaEnv
from scripts import gpu_check
from scripts.gpu import (
    commands,
    crossing,
    driven,
    facts,
    halves,
    hashes,
    replays,
    resume,
    returns,
    solving,
    speed,
    waits,
)
from scripts.gpu.parts import PARTS, Machine, load


def by_tape(agent):
    agent.engine = graphed(agent, Tape)


CPU = Machine("cpu", compile_host, ("eager",), small=True)
BOTH = Machine("cpu", taped(compile_host), ("eager", "graphed"), by_tape, small=True)
SOME = ("CartPole-v1", "Taxi-v4", "Blackjack-v1")


def last(part, machine=CPU):
    """What it has found in the end."""
    return [*part.check(machine, 600.0)][-1]


def test_every_part_of_the_table_is_there():
    assert all(load(name).__module__ == f"scripts.gpu.{name}" for name in PARTS)
    assert sum(PARTS.values()) <= 600 and gpu_check.SECONDS < 9 * 60


@pytest.fixture(scope="module")
def golden():
    return json.loads(hashes.FILE.read_text())["groups"]


@pytest.mark.parametrize("name", ["maths", "draws", *registry.WORLDS])
def test_the_kernels_give_the_committed_hashes(golden, name):
    assert dict(hashes.groups(CPU))[name]() == golden[name]


NUMBAS = [pytest.param(name, marks=[] if name in ("draws", SOME[0]) else pytest.mark.slow)
          for name in ("maths", "draws", *registry.WORLDS)]  # fmt: skip


@pytest.mark.parametrize("name", NUMBAS)
def test_the_committed_hashes_are_numbas(golden, name):
    assert dict(hashes.groups(None))[name]() == golden[name]


def test_hashes_are_of_something(golden):
    """Episodes end in every world, and are cut; no two functions give the same."""
    cut, free = (hashes.bits(torch.zeros(n, hashes.WORLDS)) for n in (hashes.CUT_STEPS, hashes.STEPS - 64))
    for env_id in registry.WORLDS:
        assert golden[env_id]["cut at 10, episode_length"] != cut
        assert golden[env_id]["steps 64-1023, episode_length"] != free
    assert len({*golden["maths"].values()}) == len(golden["maths"]) == 13


def test_a_planted_wrong_hash_is_named_and_the_exit_code_is_1(monkeypatch, tmp_path, capsys, golden):
    assert golden["draws"]["permutation"] != "0"
    golden = {**golden, "draws": {**golden["draws"], "permutation": "0"}}
    planted = tmp_path / "hashes.json"
    planted.write_text(json.dumps({"groups": golden}))
    monkeypatch.setattr(hashes, "FILE", planted)
    monkeypatch.setattr(registry, "WORLDS", {})
    path = tmp_path / "gpu.json"
    asked = gpu_check.arguments(["--only", "facts", "hashes", "--json", str(path)])
    assert gpu_check.measure(asked, CPU) == 1
    file = json.loads(path.read_text())
    assert file["right"] is False and file["parts"]["hashes"]["wrong"] == ["draws: permutation"]
    assert file["parts"]["facts"]["figures"]["gpu"] is None and file["parts"]["speed"] is None
    assert "draws: permutation" in capsys.readouterr().out


def test_facts_and_the_name():
    assert last(facts).figures["versions"]["torch"] == torch.__version__
    [named] = facts.present(CPU)
    assert named.line and named.wrong is None


def test_cut_steps_are_the_same_steps(monkeypatch):
    monkeypatch.setattr(halves, "WORLDS", SOME)
    found = last(halves)
    assert found.wrong == [] and found.figures == {"worlds": len(SOME)}


def test_worlds_that_forget_between_launches_are_found(monkeypatch):
    class Forgetful(CudaEnv):
        def advance(self, actions, out=None):
            self.ages.zero_()
            return super().advance(actions, out)

    monkeypatch.setattr(halves, "WORLDS", SOME[:1])
    monkeypatch.setattr(driven, "CudaEnv", Forgetful)
    assert last(halves).wrong == [f"CartPole-v1: {n} launches of {128 // n} steps are not one of 128" for n in (2, 128)]


def test_estimators_are_the_cpus():
    found = last(returns)
    assert found.wrong == [] and len(found.figures) == 5


def test_an_estimator_that_is_another_is_found(monkeypatch):
    exact = returns.returns.launch
    monkeypatch.setattr(
        returns.returns, "launch", lambda name, *given, compile: exact(name, *given, compile=compile) + 1e-3
    )
    assert len(last(returns).wrong) == 5


@pytest.fixture
def few(monkeypatch):
    """Rollouts and iterations so short that they take no time."""
    monkeypatch.setattr(replays, "REPLAYS", 4)
    monkeypatch.setattr(replays, "ITERATIONS", 3)
    exact = driven.ppo
    short = lambda machine, engine, width, **changes: exact(machine, engine, 4, 8, n_epochs=1, **changes)  # noqa: E731
    monkeypatch.setattr(replays, "ppo", short)


def test_replays_draw_afresh_and_learn_as_eager_does(few):
    found = last(replays, BOTH)
    assert found.wrong == [] and found.figures["different"] == {"eager": 4, "graphed": 4}
    assert found.figures["weights_apart"].keys() == {"graphed"}


def test_draws_that_a_graph_has_frozen_are_found(few, monkeypatch):
    """The counter of draws as a number of the host, which a graph keeps for good."""
    exact = Collector.noise

    def frozen(self, steps):
        if self.counter is not None:
            self.counter = torch.full((), self.calls + 1)
        return exact(self, steps)

    monkeypatch.setattr(Collector, "noise", frozen)
    wrong = last(replays, BOTH).wrong
    assert "graphed: only 2 of 4 rollouts are different" in wrong and "graphed plays otherwise than eager" in wrong


def test_where_an_iteration_waits_is_named(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def waiting():
        raise RuntimeError("called a synchronizing CUDA operation")

    assert waits.waits(lambda: None) == "" and modes == ["error", "default"]
    place, _, said = waits.waits(waiting).partition(": ")
    assert place.startswith("tests/scripts/gpu/test_gpu_parts.py:") and "synchronizing" in said
    assert last(waits).wrong is None, "of a CPU nothing is claimed"


def test_speed_is_told_of_every_setting_and_what_fails_says_why(monkeypatch):
    for name, value in {"STEPS": 4, "WARM": 1, "LEAST": 1, "PHASED": 1, "TIMED": 0.0, "SMALL_WIDTHS": (4,)}.items():
        monkeypatch.setattr(speed, name, value)
    monkeypatch.setattr(speed, "WORLDS", SOME)
    exact = speed.alone

    def failing(machine, env_id, *rest):
        if env_id == "Taxi-v4":
            raise torch.OutOfMemoryError("no room")
        return exact(machine, env_id, *rest)

    monkeypatch.setattr(speed, "alone", failing)
    found = last(speed, CPU).figures
    assert {*found["ppo"]} == {f"eager, 4 worlds, {precision}" for precision in ("32", "tf32", "bf16")}
    for each in found["ppo"].values():
        assert each["env_steps_per_second"] > 0 and each["collect_milliseconds"] > 0 and each["learn_milliseconds"] > 0
    assert found["worlds"]["Taxi-v4"]["64"] == {"error": "OutOfMemoryError: no room"}
    assert found["worlds"]["CartPole-v1"]["64"]["copy_share"] > 0 and {*found["ceilings"]["flops"]} == {
        *found_precisions()
    }


def found_precisions():
    return speed.PRECISIONS


def test_speed_without_time_is_null(monkeypatch):
    monkeypatch.setattr(speed, "ceilings", lambda device, small: {})
    [*_, found] = speed.check(CPU, -1.0)
    assert {*found.figures["ppo"].values()} == {None}
    assert all(each == {"64": None} for each in found.figures["worlds"].values())


def test_seeds_that_fail_are_listed_and_those_without_an_end_are_null():
    good = {"solved": True, "env_steps": 100, "seconds": 2.0}
    found = solving.answer({"1": good, "2": {"solved": False, "error": "sick"}, "3": None}, 2)
    assert found.wrong == ["seed 2: sick"] and found.line.startswith("1 of 2 seeds solved, of 3, 100 env steps")
    assert found.figures["seeds"]["3"] is None
    assert solving.answer({"1": None}, 1).wrong is None


def test_worlds_go_on_on_the_other_device():
    there, here = driven.worlds(CPU, "CartPole-v1", 50), registry.make("CartPole-v1", 50)
    assert crossing.same_rest(there, here) and crossing.same_rest(here, there)
    here.load_state_dict = lambda state: None
    assert not crossing.same_rest(there, here)


@pytest.fixture
def short(monkeypatch):
    """Commands of a second."""
    monkeypatch.setattr(commands, "ROLLOUT", ("n_envs=4", "n_steps=16", "n_epochs=1", "batch_size=0.5"))
    monkeypatch.setattr(commands, "ROWS", 64)
    monkeypatch.setattr(resume, "ITERATIONS", 3)
    monkeypatch.setenv("STRIDE_RUNS", "")


@pytest.mark.slow
def test_a_resumed_run_is_the_straight_one_and_another_is_found(short, monkeypatch):
    assert last(resume).wrong == []
    exact, asked = resume.state_of, []

    def third_is_other(run):
        asked.append(run)
        state = exact(run)
        if len(asked) == 3:
            next(iter(state["weights"].values())).add_(1e-6)
        return state

    monkeypatch.setattr(resume, "state_of", third_is_other)
    [line] = last(resume).wrong
    assert line.startswith("eager, resumed: weights.") and "differs by up to" in line


@pytest.mark.slow
def test_runs_cross_and_play(short):
    found = last(crossing)
    assert found.wrong == [] and found.figures["eager, there to here"] >= 1


@pytest.mark.slow
def test_a_seed_is_solved():
    found = last(solving)
    assert found.wrong == [] and found.figures["solved"] == 1
