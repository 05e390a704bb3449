"""Shows check-env's result on a terminal: measurements, findings (the worst first) and a summary, as rich Text."""

from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from stride.envs_gym.check.finding import FAULT, LEVELS, NOTE, WARNING, CheckResult, EnvFinding, Measurements
from stride.utils.typography import bar, duration, number, plain, score

STYLES = {FAULT: "bold red", WARNING: "bold yellow", NOTE: "bold cyan"}
INDENT, LABEL, LEVEL = "  ", 10, 9  # columns
MAX_WIDTH = 110  # columns of a page
BAR_WIDTH = 12  # columns of the progress bar
MAX_CONSTANT_ACTIONS = 4  # constant actions that are listed


def page(result: CheckResult, width: int) -> Iterator[Text]:
    """Yield all lines that are shown at the end of a check; `width`: columns of the terminal."""
    width = min(width, MAX_WIDTH)
    made_by = result.measurements.made_by
    yield Text(result.env, "bold").append(f"   {made_by}" if made_by else "", "dim")
    for label, text in measurement_rows(result.measurements):
        for line in wrap(text, width - LABEL - len(INDENT)) or [""]:
            yield Text(INDENT).append(f"{label:<{LABEL}}", "dim").append(line)
            label = ""
    for finding in result.sorted():
        yield Text()
        yield from finding_lines(finding, width)
    yield Text()
    if result.stopped:
        yield Text(f"{INDENT}not everything was checked: {result.stopped}", "yellow")
    yield summary(result)


def measurement_rows(measured: Measurements) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for everything that was measured."""
    if measured.observation_space:
        yield "sees", measured.observation_space
        yield "does", measured.action_space
    if measured.steps:
        yield "ends", _ends(measured)
        yield "pays", _rewards(measured)
    if measured.constant_returns:
        yield "returns", _returns(measured)
    if measured.step_us is not None:
        yield "costs", _costs(measured)


def _ends(measured: Measurements) -> str:
    limit = "no time limit declared" if measured.time_limit is None else f"time limit {measured.time_limit:,}"
    if measured.length_mean is None:
        return f"never in {measured.steps:,} random steps; {limit}"
    lengths = f"{score(measured.length_mean)} steps ({measured.length_min:,} to {measured.length_max:,})"
    ends = f"{measured.terminated:,} terminated, {measured.truncated:,} truncated"
    return f"after {lengths} in {measured.episodes:,} random episodes: {ends}; {limit}"


def _rewards(measured: Measurements) -> str:
    lowest, highest = measured.reward_min, measured.reward_max
    if lowest is None or highest is None:
        return "no number"
    if lowest == highest:
        return f"{plain(lowest)} at each of {measured.steps:,} random steps"
    return f"{number(lowest, 2)} to {number(highest, 2)} a step"


def _returns(measured: Measurements) -> str:
    mean, deviation = measured.random_return, measured.random_return_std
    assert mean is not None  # measured with the constant ones
    spread = " (one episode)" if deviation is None else f" ± {score(deviation)}"
    best = sorted(measured.constant_returns.items(), key=lambda item: -item[1])
    constant = ", ".join(f"{name} {score(value)}" for name, value in best[:MAX_CONSTANT_ACTIONS])
    more = f" and {len(best) - MAX_CONSTANT_ACTIONS} lower" if len(best) > MAX_CONSTANT_ACTIONS else ""
    threshold = measured.reward_threshold
    solved = "" if threshold is None else f"; solved from {plain(threshold)}"
    returns = f"random {score(mean)}{spread}; constant actions: {constant}{more}"
    return f"{returns}; at most {measured.return_steps} steps each{solved}"


def _costs(measured: Measurements) -> str:
    step_us, reset_us, speed = measured.step_us, measured.reset_us, measured.steps_per_second
    assert step_us is not None and reset_us is not None and speed is not None  # measured together
    text = f"{_microseconds(step_us)} a step, {_microseconds(reset_us)} a reset: {speed:,.0f} steps a second"
    text += " of one environment"
    if measured.round_trip_us is None:
        return text
    text += f"; a call to another process takes {measured.round_trip_us:,.0f} µs"
    if not measured.workers:
        return f"{text}, so worker processes are not faster"
    return f"{text}: 8 environments in {measured.workers} processes make {measured.workers_times:.1f} times as many"


def _microseconds(value: float) -> str:
    return f"{plain(round(value, 1 if value < 100 else 0))} µs"


def finding_lines(finding: EnvFinding, width: int) -> Iterator[Text]:
    """Yield the lines of a finding: level and name, then evidence, why it matters, and the cure."""
    yield Text(INDENT).append(f"{finding.level:<{LEVEL}}", STYLES[finding.level]).append(finding.name, "bold")
    margin = " " * (len(INDENT) + LEVEL)
    for label, text, style in (
        ("", finding.evidence, ""),
        ("why  ", finding.why, "dim"),
        ("cure ", finding.cure, "green"),
    ):
        columns = width - len(margin) - len(label)
        for line in wrap(text, columns, break_long_words=False, break_on_hyphens=False):
            yield Text(margin).append(label, "dim").append(line, style)
            label = " " * len(label)


def summary(result: CheckResult) -> Text:
    """Return the last line: how many findings there are of each level."""
    counts = []
    style = "bold green"
    for level in LEVELS:
        count = result.count(level)
        counts.append(f"{count or 'no'} {level}{'' if count == 1 else 's'}")
        if count and level != NOTE and style == "bold green":
            style = STYLES[level]
    steps = result.measurements.steps
    tested = f"{steps:,} random steps, " if steps else ""
    return Text(INDENT).append(", ".join(counts), style).append(f"; {tested}{duration(result.seconds)}", "dim")


def progress(env: str, part: str, index: int, parts: int, seconds: float, ascii_only: bool) -> Text:
    """Return the line that shows the part of the check under way, with a progress bar."""
    done, remaining = bar(index / parts, BAR_WIDTH, ascii_only)
    text = f"  {part or 'loading'}  {duration(seconds)}"
    return Text(f"{INDENT}{env}  ").append(done, "cyan").append(remaining, "dim").append(text)
