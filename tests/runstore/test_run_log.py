"""run.log: what reaches the file and stdout, what is hidden there, and that nothing of it stays in the process."""

import logging
import re
import sys
import threading
import warnings

import pytest

from stride.runstore.run_log import Hidden, open_run_log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.log"


@pytest.mark.parametrize("quiet", [False, True])
def test_file_is_timestamped_without_colours_and_stdout_is_plain_or_quiet(path, capsys, quiet):
    line = "\x1b[32mgreen\x1b[0m \x1b]8;;http://x\x1b\\link"
    with open_run_log(path, quiet) as log:
        log.info(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    green link\n", path.read_text())
    assert capsys.readouterr() == ("" if quiet else f"{line}\n", "")


def test_an_inner_log_takes_over_and_nothing_is_left(tmp_path, path, capsys):
    def state():
        logger = logging.getLogger("stride")
        hooks = warnings.showwarning, threading.excepthook, sys.excepthook
        return logger.handlers[:], logger.level, logger.propagate, hooks

    before = state()
    (tmp_path / "inner").mkdir()
    with open_run_log(path) as log:
        with open_run_log(tmp_path / "inner" / "run.log"):
            log.info("inside")
        log.info("outside")
    assert capsys.readouterr().out == "inside\noutside\n" and state() == before
    for file, word in ((path, "outside"), (tmp_path / "inner" / "run.log", "inside")):
        (line,) = file.read_text().splitlines()
        assert line.endswith(word)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_nobody_catches_leaves_its_traceback_in_the_file_alone(path, capsys):
    with pytest.raises(ZeroDivisionError), open_run_log(path):
        thread = threading.Thread(target=lambda: [][1])
        thread.start()
        thread.join()
        _ = 1 / 0
    text = path.read_text()
    assert "CRITICAL uncaught exception" in text and "ZeroDivisionError: division by zero" in text
    assert "uncaught exception in a thread" in text and "IndexError" in text
    assert capsys.readouterr().out == ""
    with pytest.raises(KeyboardInterrupt), open_run_log(path):
        raise KeyboardInterrupt
    assert path.read_text().endswith("stopped by KeyboardInterrupt\n")


@pytest.mark.parametrize("quiet", [True, False])
def test_warnings_reach_the_file_and_unless_quiet_their_old_place(path, quiet):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with open_run_log(path, quiet):
            warnings.warn("too small", stacklevel=1)
    assert "UserWarning: too small" in path.read_text()
    assert len(shown) == (0 if quiet else 1)


def test_a_full_file_is_begun_anew_and_the_oldest_goes(tmp_path, path, monkeypatch):
    monkeypatch.setattr("stride.runstore.run_log.MAX_LOG_BYTES", 200)
    with open_run_log(path, quiet=True) as log:
        for number in range(60):
            log.info(f"line {number}")
    names = ["run.log.3", "run.log.2", "run.log.1", "run.log"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    lines = [line for name in names for line in (tmp_path / name).read_text().splitlines()]
    numbers = [int(line.split()[-1]) for line in lines]
    assert numbers == list(range(numbers[0], 60)) and numbers[0] > 0, "nothing between them is lost"
    assert all((tmp_path / name).stat().st_size < 250 for name in names)


def test_where_no_name_can_be_given_the_file_grows_on(tmp_path, path, monkeypatch):
    monkeypatch.setattr("stride.runstore.run_log.MAX_LOG_BYTES", 100)
    (tmp_path / "run.log.1").symlink_to(tmp_path / "elsewhere")  # somebody else's: it is neither followed nor replaced
    with open_run_log(path, quiet=True) as log:
        for number in range(9):
            log.info(f"line {number}")
    assert path.read_text().count("\n") == 9 and not (tmp_path / "elsewhere").exists()


def test_secrets_reach_stdout_alone(path, monkeypatch, capsys):
    monkeypatch.setenv("MY_API_KEY", "unspeakable")
    with pytest.raises(ValueError, match="unspeakable"), open_run_log(path) as log:
        log.info("train.py env_kwargs.password=hunter22")
        raise ValueError("unspeakable")
    text = path.read_text()
    assert "hunter22" not in text and "unspeakable" not in text and "ValueError: [hidden: $MY_API_KEY]" in text
    assert "hunter22" in capsys.readouterr().out


TOKENS = {
    "hf_abcdefghijklmnopqrst": "Hugging Face token",
    "sk-ant-abcdef0123456789abcd": "OpenAI or Anthropic key",
    "https://me:pw@host.io/x": "URL with credentials",
    "password=hunter22": "password",
    "--token abcd1234": "password or token of a command",
    "api_key=abcd1234efgh": "secret by its name",
    "{'access_token': 'abcd1234efgh'}": "secret by its name",
    "Authorization: Bearer abc.def0123456": "bearer token",
}
LEGIBLE = (
    "2026-11-23 01:12:09,015 NOTE    6,144 steps, 20%, return 62.8, evaluation 311.7 +- 43.2 over 20 episodes",
    "checkpoint epoch=24 (best and last) at 6,144 steps: 0123456789abcdef0123456789abcdef.rows",
    "    token = self.tokens[index]",
    "    return make(key=next_key(seed), token=tokens)",
    "versions: python 3.12.3, torch 2.7.1+cpu, git 0a1b2c3d4e5f",
    "run runs/20261123-011150-CartPole-v1-ppo-s1-toq4",
)


@pytest.mark.parametrize("text", TOKENS)
def test_what_has_a_tokens_form_is_hidden(text):
    hidden = Hidden({})(f"before {text} after")
    assert f"[hidden: {TOKENS[text]}]" in hidden and hidden.startswith("before ") and hidden.endswith(" after")
    assert not any(word in hidden for word in (text, "0123456", "abcd1234", "hunter22"))
    assert Hidden({})(hidden) == hidden, "nothing is hidden twice"


@pytest.mark.parametrize("text", LEGIBLE)
def test_other_lines_stay_as_they_are(text):
    assert Hidden({})(text) == text


def test_values_of_the_environment_are_hidden_by_the_names_they_have():
    value = "it's 5 o'clock\\n"
    hide = Hidden({"WANDB_API_KEY": "wonderful", "DB_PASSWORD": value, "PATH": "/usr/bin/ls", "GH_TOKEN": "true"})
    assert hide("a wonderful day in /usr/bin/ls, true") == "a [hidden: $WANDB_API_KEY] day in /usr/bin/ls, true"
    assert hide(f"{value!r}") == '"[hidden: $DB_PASSWORD]"' and "clock" not in hide(f"x {value} y")
    assert Hidden({})("--token hf_abcdefghijklmnopqrst") == "--token [hidden: Hugging Face token]"
    inside = Hidden({"A_KEY": "abcdefgh", "B_KEY": "abcdefghijkl"})
    assert inside("abcdefghijkl") == "[hidden: $B_KEY]"
