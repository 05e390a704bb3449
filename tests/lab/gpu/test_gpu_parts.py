"""What a GPU is asked, asked of the CPU: the same kernels by the host's compiler, a tape in the place of CUDA's graphs.

Each part finds right what is right, and what is planted wrong.
"""

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from host_kernels import compile_host
from tape import Tape, taped

from lab import gpu_check
from lab.evidence import ways
from lab.evidence.ways import ENGINES, Ways
from lab.gpu import bits, driven, engines, learn, speed
from lab.gpu.parts import PARTS, Machine, load
from lab.gpu.speed import PEAK, PEAK_CHAINS, PEAK_STEPS, PRECISIONS, fma_peak
from stride.agents.engines.choice import RECIPES, build_agent
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.engines.fused_gpu.learn import Updates
from stride.agents.engines.graphed import graphed
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.experience.collector import Collector
from stride.config.checks import check
from stride.envs_fast import device_code, registry
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.device_code import with_twin
from stride.envs_gym.make import make_envs
from stride.utils.cuda_kernels import read_source


def by_tape(agent, engine):
    agent.engine = graphed(agent, Tape) if engine == "graphed" else fused_gpu(RECIPES[type(agent)], agent, Tape)


CPU = Machine("cpu", compile_host, ("eager",), small=True)
BOTH = Machine("cpu", taped(compile_host), ("eager", "graphed"), by_tape, small=True)
KERNELS = BOTH._replace(engines=("fused_gpu",))
SOME = ("CartPole-v1", "Taxi-v4", "Blackjack-v1")


def last(check, machine=CPU):
    """Its last result."""
    return [*check(machine, 600.0)][-1]


def test_every_check_of_the_table_is_there():
    for checks in PARTS.values():
        assert all(load(name).__name__ == name for name in checks)
        assert sum(checks.values()) <= gpu_check.SECONDS < 9 * 60


GOLDEN = json.loads(bits.FILE.read_text())["groups"]


@pytest.mark.parametrize("name", ("maths", "draws", *with_twin()))
def test_the_kernels_give_the_committed_hashes(name):
    assert dict(bits.groups(CPU))[name]() == GOLDEN[name]


def test_a_planted_wrong_hash_is_named_and_the_exit_code_is_1(monkeypatch, tmp_path, capsys):
    wrong = {**GOLDEN, "draws": {**GOLDEN["draws"], "permutation": "0"}}
    monkeypatch.setattr(bits, "FILE", tmp_path / "hashes.json")
    bits.FILE.write_text(json.dumps({"groups": wrong}))
    monkeypatch.setattr(device_code, "WORLDS", {})
    path = tmp_path / "gpu.json"
    asked = gpu_check.arguments(["--only", "facts", "hashes", "--json", str(path)])
    assert gpu_check.measure(asked, CPU) == 1
    file = json.loads(path.read_text())
    assert file["right"] is False and file["checks"]["hashes"]["wrong"] == ["draws: permutation"]
    assert file["checks"]["facts"]["figures"]["gpu"] is None and file["checks"]["halves"] is None
    assert "draws: permutation" in capsys.readouterr().out


def test_cut_steps_are_the_same_steps_and_worlds_that_forget_between_launches_are_noticed(monkeypatch):
    class Forgetful(CudaEnv):
        def advance(self, actions, out=None):
            self.ages.zero_()
            return super().advance(actions, out)

    monkeypatch.setattr(device_code, "WORLDS", {name: registry.WORLDS[name] for name in SOME})
    result = last(bits.halves)
    assert result.wrong == [] and result.figures == {"worlds": len(SOME)}
    monkeypatch.setattr(device_code, "WORLDS", {SOME[0]: registry.WORLDS[SOME[0]]})
    monkeypatch.setattr(driven, "CudaEnv", Forgetful)
    assert last(bits.halves).wrong == [
        f"CartPole-v1: {n} launches of {128 // n} steps are not one of 128" for n in (2, 128)
    ]


def test_estimators_are_the_cpus_and_others_are_noticed(monkeypatch):
    result = last(bits.returns)
    assert result.wrong == [] and len(result.figures) == 5
    exact = bits.estimators.launch
    monkeypatch.setattr(bits.estimators, "launch", lambda *given, compile: exact(*given, compile=compile) + 1e-3)
    assert len(last(bits.returns).wrong) == 5


@pytest.fixture
def few(monkeypatch):
    """Rollouts and iterations so short, and nets so narrow, that they take no time."""
    monkeypatch.setattr(engines, "REPLAYS", 4)
    monkeypatch.setattr(engines, "LEARNT", 3)
    exact = driven.ppo
    small = {"n_epochs": 1, "hidden_dims": (16, 16)}
    short = lambda machine, engine, width, **given: exact(machine, engine, 4, 8, **small | given)  # noqa: E731
    monkeypatch.setattr(engines, "ppo", short)


def test_replays_draw_afresh_and_learn_as_eager_does(few):
    result = last(engines.replays, BOTH)
    assert result.wrong == [] and result.figures["different"] == {"eager": 4, "graphed": 4}
    assert result.figures["weights_apart"].keys() == {"graphed"}


@pytest.mark.slow
def test_replays_of_kernels_are_their_launches_and_no_launch_that_is_left_out_passes(few, monkeypatch):
    result = last(engines.replays, KERNELS)
    assert result.wrong == [] and result.figures["weights_apart"] == {"fused_gpu": 0.0}
    monkeypatch.setattr(Updates, "give", lambda self: None)
    exact = engines.fused_gpu

    def giving(kind, agent, make):  # those without a graph alone
        engine = exact(kind, agent, make)
        learn = engine.learn.learn
        engine.learn.learn = lambda learner, work: (learn(learner, work), engine.learn.updates.parameters.give(
            engine.learn.updates._state[-1, 0]))  # fmt: skip
        return engine

    monkeypatch.setattr(engines, "fused_gpu", giving)
    assert [line.partition(" is ")[0] for line in last(engines.replays, KERNELS).wrong] == [
        "fused_gpu: after 3 iterations a weight"
    ]


def test_draws_that_a_graph_has_frozen_are_found(few, monkeypatch):
    """The counter of draws as a number of the host, which a graph keeps for good."""
    exact = Collector.noise

    def frozen(self, steps):
        if self.counter is not None:
            self.counter = torch.full((), self.calls + 1)
        return exact(self, steps)

    monkeypatch.setattr(Collector, "noise", frozen)
    wrong = last(engines.replays, BOTH).wrong
    assert "graphed: only 2 of 4 rollouts are different" in wrong and "graphed plays otherwise than eager" in wrong


def test_where_an_iteration_waits_is_named(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def waiting():
        raise RuntimeError("called a synchronizing CUDA operation")

    assert engines.place_of_wait(lambda: None) == "" and modes == ["error", "default"]
    place, _, said = engines.place_of_wait(waiting).partition(": ")
    assert place.startswith("tests/lab/gpu/test_gpu_parts.py:") and "synchronizing" in said
    assert last(engines.waits).wrong is None, "of a CPU nothing is claimed"


def test_speed_has_every_row_what_fails_says_why_and_without_time_it_is_null(monkeypatch):
    small = {"STEPS": 4, "WARM": 1, "LEAST": 1, "PHASED": 1, "TIMED": 0.0, "SMALL_WIDTHS": (4,)}
    for name, value in small.items():
        monkeypatch.setattr(speed, name, value)
    monkeypatch.setattr(device_code, "WORLDS", {name: registry.WORLDS[name] for name in SOME[:2]})
    exact = speed.alone

    def failing(machine, env_id, *rest):
        if env_id == "Taxi-v4":
            raise torch.OutOfMemoryError("no room")
        return exact(machine, env_id, *rest)

    monkeypatch.setattr(speed, "alone", failing)
    figures = last(speed.speed, CPU).figures
    assert [*figures["ppo"]] == [f"eager, 4 worlds{more}" for more in ("", ", precision tf32", ", precision bf16")]
    for row in figures["ppo"].values():
        assert all(row[f"{what}env_steps_per_second"] > 0 for what in ("", "rollout_", "update_"))
    assert figures["worlds"]["Taxi-v4"]["4"] == {"error": "OutOfMemoryError: no room"}
    assert figures["worlds"]["CartPole-v1"]["4"]["copy_share"] > 0
    assert {*figures["ceilings"]["flops"]} == {*PRECISIONS}
    monkeypatch.setattr(speed, "ceilings", lambda device, small: {})
    [*_, nothing] = speed.speed(CPU, -1.0)
    assert {*nothing.figures["ppo"].values()} == {None}
    assert all(world == {"4": None} for world in nothing.figures["worlds"].values())


def test_what_is_timed_on_a_gpu_is_what_its_engines_take():
    """Every row is a config that passes, has the sizes that it says, and is refused by nothing of the engine's own."""
    machine = Machine()
    rows = speed.rows(machine)
    assert len({str(row) for row in rows}) == len(rows) == 14 + 6 + 6
    for row in rows:
        config = row.config(machine)
        check(config, str(row))
        agent = build_agent(replace(config, device="cpu", engine="eager", precision=32, n_envs=2), make_envs(config, 2))
        if row.engine == "fused_gpu" and "precision" not in row.changes:
            assert PPORecipe.why_not(config, agent.policy, agent.collector.obs) is None
        if row.shape:
            assert row.shape.startswith(f"{config.n_envs} x {config.n_steps}, {config.n_epochs} pass")
            assert f", minibatch {config.minibatch_size:,}, " in row.shape


def test_the_peak_is_of_the_multiply_adds_it_counts():
    """1024 steps of 8 chains from 0, 1, 2, ..: x = 0.5 x + 1 ends at 2."""
    kernels, out = compile_host(read_source(PEAK), torch.device("cpu")), torch.zeros(5)
    kernels.launch("peak", 5, out, np.float32(0.5), np.float32(1.0), np.int32(4))
    assert out.tolist() == [2.0 * PEAK_CHAINS] * 4 + [0.0]
    assert f"STEPS = {PEAK_STEPS}, CHAINS = {PEAK_CHAINS};" in PEAK.read_text()
    assert fma_peak(torch.device("cpu"), compile_host, True) > 0


@pytest.mark.slow
def test_every_kernel_is_timed_and_the_flops_are_those_of_the_nets(monkeypatch):
    monkeypatch.setattr(speed, "ppo", partial(driven.ppo, hidden_dims=(16, 16)))
    kernels = last(speed.kernels).figures["kernels"]
    names = {"cartpole_rollout", "note_episodes", "judge", "worth", "moments", "weigh", "gradient", "reduce", "descend"}
    assert names < {*kernels} and all(row["milliseconds"] > 0 for row in kernels.values())
    rows, (first, middle) = 4 * 8, (2 * 4 * 16, 2 * 16 * 16)
    nets = {"cartpole_rollout": first + middle + 2 * 16 * 2, "judge": 2 * (first + middle) + 2 * 16 * 3}
    assert kernels["cartpole_rollout"]["flop"] == rows * nets["cartpole_rollout"]
    assert kernels["gradient"]["flop"] == 4 * rows * (3 * nets["judge"] - 2 * first)
    assert {name for name, row in kernels.items() if "share" in row} == {"cartpole_rollout", "judge", "gradient"}


def test_what_two_engines_learnt_is_compared_by_the_rule_of_engines(monkeypatch, tmp_path):
    """The committed trainings in the place of those of a GPU; then with one that learnt less, and by another engine."""
    shutil.copytree(ways.RESULTS / "engines", tmp_path / "engines")
    monkeypatch.setattr(ways, "RESULTS", tmp_path)
    trained = []
    monkeypatch.setattr(Ways, "train_missing", lambda self, seeds, workers: trained.append(*self.variants) or 0)
    variant = "Pendulum-v1:ppo"
    monkeypatch.setattr(learn, "DEVICES", ENGINES._replace(variants={variant: ENGINES.variants[variant]}))
    monkeypatch.setattr(learn, "WANTED", {})  # the engines were not noted yet
    result = last(learn.learning)
    assert trained == [variant] and result.wrong == [] and len(result.figures) == 2
    final = result.figures[f"{variant} final"]
    assert final["same"] and final["seeds"] == 10
    assert final.keys() >= {"fused_cpu", "fused_gpu", "fused_gpu - fused_cpu"}
    path = tmp_path / "engines" / "fused_cpu" / "Pendulum-v1-ppo.json"
    file = json.loads(path.read_text())
    for record in file["seeds"].values():
        record["engine"], record["final"]["mean"] = "graphed", record["final"]["mean"] - 400
    path.write_text(json.dumps(file))
    monkeypatch.setattr(learn, "WANTED", {"fused_cpu": "fused_gpu"})
    different, other = last(learn.learning).wrong
    assert (different, other) == (f"{variant} final is different", f"{variant} on fused_cpu was learnt by graphed")


def test_seeds_that_fail_are_listed_and_those_without_an_end_are_null():
    good = {"solved": True, "env_steps": 100, "seconds": 2.0}
    result = learn.answer({"1": good, "2": {"solved": False, "error": "sick"}, "3": None}, 2)
    assert result.wrong == ["seed 2: sick"] and result.line.startswith("1 of 2 seeds solved, of 3, 100 env steps")
    assert result.figures["seeds"]["3"] is None and learn.answer({"1": None}, 1).wrong is None
    late = learn.answer({"1": good}, 2, {**good, "seconds": 8.5})
    assert not late.wrong and not late.figures["alone"]["in_time"]
    other = learn.answer({"1": good}, 2, {**good, "env_steps": 101})
    assert other.wrong == ["alone the first seed took other env steps: 101"] and other.figures["alone"]["in_time"]


def test_worlds_go_on_on_the_other_device():
    there, here = driven.worlds(CPU, "CartPole-v1", 50), registry.make("CartPole-v1", 50)
    assert engines.same_rest(there, here) and engines.same_rest(here, there)
    here.load_state_dict = lambda state: None
    assert not engines.same_rest(there, here)


@pytest.fixture
def short(monkeypatch):
    """Commands of a second."""
    rollout = ("n_envs=4", "n_steps=16", "n_epochs=1", "batch_size=0.5")
    for name, value in {"ROLLOUT": rollout, "ROWS": 64, "HALF": 3}.items():
        monkeypatch.setattr(engines, name, value)
    monkeypatch.setenv("STRIDE_RUNS", "")


@pytest.mark.slow
def test_a_resumed_run_is_the_straight_one_and_another_is_found(short, monkeypatch):
    assert last(engines.resume).wrong == []
    exact, asked = engines.state_of, []

    def third_is_other(run):
        asked.append(run)
        state = exact(run)
        if len(asked) == 3:
            next(iter(state["weights"].values())).add_(1e-6)
        return state

    monkeypatch.setattr(engines, "state_of", third_is_other)
    [line] = last(engines.resume).wrong
    assert line.startswith("eager, resumed: weights.") and "differs by up to" in line


@pytest.mark.slow
def test_runs_cross_and_play_and_a_seed_is_solved(short):
    crossed, solved = last(engines.crossing), last(learn.solving)
    assert crossed.wrong == [] == solved.wrong
    assert crossed.figures["eager, there to here"] >= 1 and solved.figures["solved"] == 1
