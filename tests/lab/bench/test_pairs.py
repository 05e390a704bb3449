"""What lab.bench.pairs and lab.same_bits read off a run's folder, and what pairs makes of it."""

import json

import torch

from lab.bench import pairs
from lab.bench.pairs import Cost, main, phases_of, seeds_of, shares
from lab.same_bits import digest_of


def test_phases_are_in_seconds_and_their_shares_those_of_all_runs_together(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"outcome": {"seconds": 10.0, "phases": {"learn": 0.75, "other": 0.25}}}))
    assert phases_of(file) == {"learn": 7.5, "other": 2.5}
    costs = [Cost(1, 1, 1, {"learn": 3.0, "other": 1.0}), Cost(1, 1, 1, {"learn": 3.0, "save": 3.0})]
    assert shares(costs) == "learn 60.0%, other 10.0%, save 30.0%"
    assert seeds_of("3-5") == range(3, 6) and seeds_of("7") == range(7, 8)


def test_each_pair_has_a_seed_of_its_own_and_what_takes_longer_ends_with_1(monkeypatch, tmp_path, capsys):
    (tmp_path / "train.py").touch()
    begun, cost = [], {"before": 2.0, "now": 1.0}

    def measured(folder, words, printed):
        name = "before" if folder == tmp_path else "now"
        begun.append((name, words[-1]))
        return Cost(cost[name], cost[name], 100 / cost[name], {"learn": cost[name]})

    monkeypatch.setattr(pairs, "measured", measured)
    assert main(["--seeds", "4-5", str(tmp_path), "train.py", "CartPole-v1:ppo"]) == 0
    assert begun[2:] == [("now", "seed=4"), ("before", "seed=4"), ("before", "seed=5"), ("now", "seed=5")]
    assert "training: 2 s before, 1 s now: now takes 0.500 of before" in capsys.readouterr().out
    assert main(["--printed", "--pairs", "3", str(tmp_path), "lab/bench/rate.py", "16"]) == 0
    assert "printed: 0.02 s before, 0.01 s now: now takes 0.500 of before" in capsys.readouterr().out
    cost["now"] = 3.0
    assert main(["--pairs", "3", str(tmp_path), "train.py"]) == 1


def test_a_bit_a_counter_or_a_row_is_another_result_and_wall_time_is_none(tmp_path):
    def digest(weight=1.0, steps=8, rows="8,0.5\n"):
        state = {"state_dict": {"w": torch.tensor([weight])}, "optimizer_states": [], "stride": {"steps": steps}}
        torch.save(state, tmp_path / "checkpoints" / "last.ckpt")
        (tmp_path / "metrics.csv").write_text(f"train/clock/env_steps,train/time/seconds\n{rows}")
        return digest_of(tmp_path)

    (tmp_path / "checkpoints").mkdir()
    assert digest() == digest(rows="8,0.7\n")
    assert len({digest(), digest(weight=1.0 + 2**-23), digest(steps=9), digest(rows="9,0.5\n")}) == 4
