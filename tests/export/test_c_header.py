"""C headers: of every kind of MLP and space, compiled and held against the player; and as programs of their own."""

import re
import subprocess
from functools import partial
from shutil import which

import pytest
import torch
from untrained_runs import untrained

from export import c_header, files
from export.graph import deployed
from export.layers import stack
from export.verify import DifferenceError, compare, samples
from utils.user_error import UserError

SMALL = "hidden_dims=[12,9]"
STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

pytestmark = pytest.mark.skipif(which("cc") is None, reason="needs a C compiler")


def exotic(name, *overrides, config_id="CartPole-v1:ppo"):
    return untrained(config_id, SMALL, *overrides, env_id=f"exotic_worlds:{name}")


CASES = {
    "ppo": lambda: untrained("CartPole-v1:ppo", SMALL),
    "no hidden layers": lambda: untrained("CartPole-v1:ppo", "hidden_dims=[]"),
    "normalised": lambda: untrained("Pendulum-v1:ppo", SMALL, "normalize_obs=true", "share_trunk=true"),
    "static": lambda: untrained("Pendulum-v1:ppo", SMALL, "normalize_obs=static", "activation=relu"),
    "dqn": lambda: untrained("CartPole-v1:dqn", SMALL, "dueling=true", "quantiles=5"),
    "pqn": lambda: untrained("CartPole-v1:pqn", SMALL),
    "sac": lambda: untrained("Pendulum-v1:sac", SMALL, "normalize_obs=true"),
    "one-hot": lambda: untrained("Blackjack-v1:ppo", SMALL),
    "masked": lambda: exotic("Masked-v0"),
    "masked values": lambda: exotic("Masked-v0", config_id="CartPole-v1:dqn"),
    "nested": lambda: exotic("Levers-v0", "normalize_obs=true"),
    "binary": lambda: exotic("Switches-v0"),
    "integral": lambda: exotic("Dials-v0", "normalize_obs=static", config_id="Pendulum-v1:sac"),
    "half bounded": lambda: exotic("Odd-v0"),
}


def header_of(loaded, name="policy", observations=40):
    """The header, and how far it is from the player."""
    policy = deployed(loaded)
    known = samples(loaded, policy.face, observations)
    data = c_header.content(policy, files.facts_of(loaded, policy), known, name)
    return data, compare(c_header.runner(data, policy, name), policy.face, known)


@pytest.mark.parametrize("case", CASES)
def test_it_answers_as_the_player_does(case):
    _, likeness = header_of(CASES[case]())
    assert likeness.worst < 1e-5 and likeness.observations == 40


def test_a_mask_decides(monkeypatch):
    """Without it another action is the best one, now and then."""
    loaded = exotic("Masked-v0")
    policy = deployed(loaded)
    known = samples(loaded, policy.face, 40)
    net = stack(policy)._replace(mask=None)
    monkeypatch.setattr(c_header, "stack", lambda _: net)
    data = c_header.content(policy, {}, known, "open")
    with pytest.raises(DifferenceError, match=r"its (action|probability) is"):
        compare(c_header.runner(data, policy, "open"), policy.face, known)


def program(folder, compiler, flags, headers, text):
    for name, data in headers.items():
        (folder / f"{name}.h").write_bytes(data)
    source = folder / ("main.c" if compiler == "cc" else "main.cpp")
    source.write_text("".join(f'#include "{name}.h"\n' * 2 for name in headers) + "#include <stdio.h>\n" + text)
    subprocess.run([compiler, *flags, str(source), "-o", str(folder / "program"), "-lm"], check=True, timeout=60)
    return subprocess.run([str(folder / "program")], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("compiler", "flags"), [("cc", STRICT), ("c++", ("-Wall", "-Wextra", "-Werror"))])
def test_two_in_one_program_check_themselves(tmp_path, compiler, flags):
    if which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    headers = {name: header_of(CASES[case](), name)[0] for name, case in (("cart", "ppo"), ("pole", "sac"))}
    text = 'int main(void) { printf("%.3g %.3g", cart_check(), pole_check()); return 0; }\n'
    done = program(tmp_path, compiler, flags, headers, text)
    assert all(float(word) < 1e-5 for word in done.stdout.split()) and len(done.stdout.split()) == 2


def test_the_examples_notice_a_changed_weight(tmp_path):
    data, _ = header_of(CASES["ppo"](), "cart")
    text, count = re.subn(rb"(cart_bias2\[2\] = \{)[^,]*", rb"\g<1>0.7f", data)
    assert count == 1
    done = program(tmp_path, "cc", STRICT, {"cart": text}, 'int main(void) { printf("%g", cart_check()); return 0; }\n')
    assert float(done.stdout) > 1e-3


def test_an_observation_out_of_range_writes_nowhere(tmp_path):
    """Of an integer that is no option nothing is known, and no memory is touched: -fsanitize would stop the program."""
    data, _ = header_of(CASES["one-hot"](), "jack")
    text = (
        "int main(void) { float obs[3] = {-7, 1e9f, 99}; int action; jack_act(obs, &action, 0); return action > 1; }\n"
    )
    done = program(tmp_path, "cc", ("-fsanitize=undefined,address", "-fno-sanitize-recover"), {"jack": data}, text)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_run_says_of_itself_stays_a_comment():
    hostile = {"env_id": "*/ int evil(void) { return 1; } /* \\", "variant": "??/\n#error no", "run": "\u2028 é"}
    policy = deployed(CASES["ppo"]())
    known = samples(CASES["ppo"](), policy.face, 8)
    data = c_header.content(policy, hostile, known, "p")
    assert b"evil" in data and data.index(b"*/") > data.index(b"#error")
    assert compare(c_header.runner(data, policy, "p"), policy.face, known).worst < 1e-5


REFUSED = {
    "a memory": ("CartPole-v1:ppo_lstm", "not policies with a memory; --onnx and --torch take them"),
    "images": ("CartPole-v1:ppo_pixels", "not networks that read images"),
    "a table": ("FrozenLake-v1:q_learning", "not tables"),
    "Dreamer": ("CartPole-v1:dreamer", "not policies with a memory"),
    "large choices": ("exotic_worlds:Far-v0:ppo", "an int of C does not hold actions as large as these"),
    "large numbers": ("exotic_worlds:Wide-v0:ppo", "an int of C does not hold actions as large as these"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_c_is_not_written_of_is_refused(case):
    config_id, said = REFUSED[case]
    env_id = config_id.rsplit(":", 1)[0]
    loaded = exotic(env_id.partition(":")[2]) if env_id.startswith("exotic_worlds:") else untrained(config_id)
    with pytest.raises(UserError, match=said):
        c_header.check(deployed(loaded))


def test_a_planted_fault_writes_no_file(tmp_path, monkeypatch):
    """A weight that is a little off: nothing is written, and what was there stays."""
    monkeypatch.setattr(files, "samples", partial(samples, observations=50))
    path, loaded = tmp_path / "policy.h", CASES["ppo"]()
    path.write_text("before")
    assert files.export(loaded, "c", path, print).worst < 1e-5
    good = path.read_bytes()

    def faulty(loaded):
        policy = deployed(loaded)
        with torch.no_grad():
            policy.module.decide.policy.head.linear.bias[0] += 1e-4
        return policy

    monkeypatch.setattr(files, "deployed", faulty)
    with pytest.raises(DifferenceError, match=r"policy.h was not written: at observation \d+ of 50 its"):
        files.export(loaded, "c", path, print)
    assert path.read_bytes() == good and [*tmp_path.iterdir()] == [path]


def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setattr(c_header.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="neither cc nor gcc nor clang"):
        c_header.check(deployed(CASES["ppo"]()))


@pytest.mark.parametrize(
    ("stem", "name"), [("CartPole-v1-ppo", "cartpole_v1_ppo"), ("2nd", "policy_2nd"), ("é", "policy"), ("_x", "x")]
)
def test_names_in_c(stem, name):
    assert c_header.identifier(stem) == name
