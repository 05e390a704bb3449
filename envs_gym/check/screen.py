"""A check on a terminal: what was measured, every finding, the worst first, one line. Pure functions to Text."""

from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from stride.envs_gym.check.finding import FAULT, LEVELS, NOTE, WARNING, Facts, Finding, Result
from stride.utils.typography import bar, duration, number, plain, score

STYLES = {FAULT: "bold red", WARNING: "bold yellow", NOTE: "bold cyan"}
INDENT, LABEL, LEVEL = "  ", 10, 9  # columns
WIDEST = 110
BAR = 12
MOST_CONSTANT = 4


def page(result: Result, width: int) -> Iterator[Text]:
    """Everything that is said at the end."""
    width = min(width, WIDEST)
    facts = result.facts
    yield Text(result.env, "bold").append(f"   {facts.made_by}" if facts.made_by else "", "dim")
    for label, words in told(facts):
        for index, line in enumerate(wrap(words, width - LABEL - len(INDENT)) or [""]):
            yield Text(INDENT).append(f"{'' if index else label:<{LABEL}}", "dim").append(line)
    for each in result.sorted():
        yield Text()
        yield from finding_lines(each, width)
    yield Text()
    if result.stopped:
        yield Text(f"{INDENT}not all was checked: {result.stopped}", "yellow")
    yield verdict(result)


def told(facts: Facts) -> Iterator[tuple[str, str]]:
    """(label, words) of whatever was measured."""
    if facts.observation_space:
        yield "sees", facts.observation_space
        yield "does", facts.action_space
    if facts.steps:
        yield "ends", _ends(facts)
        yield "pays", _pays(facts)
    if facts.constant_returns:
        yield "returns", _returns(facts)
    if facts.step_us is not None and facts.reset_us is not None and facts.steps_per_second is not None:
        yield "costs", _costs(facts)


def _ends(facts: Facts) -> str:
    limit = "no time limit declared" if facts.time_limit is None else f"time limit {facts.time_limit:,}"
    if facts.length_mean is None:
        return f"never in {facts.steps:,} random steps; {limit}"
    span = f"{facts.length_min:,} to {facts.length_max:,}"
    ends = f"{facts.terminated:,} terminated, {facts.truncated:,} truncated"
    return f"after {score(facts.length_mean)} steps ({span}) in {facts.episodes:,} random episodes: {ends}; {limit}"


def _pays(facts: Facts) -> str:
    if facts.reward_min is None or facts.reward_max is None:
        return "nothing that is a number"
    if facts.reward_min == facts.reward_max:
        return f"{plain(facts.reward_min)} at each of {facts.steps:,} random steps"
    return f"{number(facts.reward_min, 2)} to {number(facts.reward_max, 2)} a step"


def _returns(facts: Facts) -> str:
    best = sorted(facts.constant_returns.items(), key=lambda each: -each[1])
    constant = ", ".join(f"{name} {score(value)}" for name, value in best[:MOST_CONSTANT])
    more = f" and {len(best) - MOST_CONSTANT} lower" if len(best) > MOST_CONSTANT else ""
    assert facts.random_return is not None and facts.random_return_std is not None  # told with the constant ones
    random = f"random {score(facts.random_return)} ± {score(facts.random_return_std)}"
    solved = "" if facts.reward_threshold is None else f"; solved from {plain(facts.reward_threshold)}"
    return f"{random}; constant actions: {constant}{more}; at most {facts.return_steps} steps each{solved}"


def _costs(facts: Facts) -> str:
    assert facts.step_us is not None and facts.reset_us is not None and facts.steps_per_second is not None
    step, reset = (f"{plain(round(each, 1 if each < 100 else 0))} µs" for each in (facts.step_us, facts.reset_us))
    speed = facts.steps_per_second
    words = f"{step} a step, {reset} a reset: {speed:,.0f} steps a second of one world"
    if facts.round_trip_us is None or facts.workers_times is None:
        return words
    trip = f"asking another process takes {facts.round_trip_us:,.0f} µs"
    if not facts.workers:
        return f"{words}; {trip}, so worker processes do not pay"
    return f"{words}; {trip}: 8 worlds in {facts.workers} processes give {facts.workers_times:.1f} times as many"


def finding_lines(each: Finding, width: int) -> Iterator[Text]:
    """Level, name and what was seen; why, and the cure, below."""
    yield Text(INDENT).append(f"{each.level:<{LEVEL}}", STYLES[each.level]).append(each.name, "bold")
    room = width - len(INDENT) - LEVEL
    for label, words, style in (("", each.seen, ""), ("why", each.why, "dim"), ("cure", each.cure, "green")):
        lines = wrap(words, room - (5 if label else 0), break_long_words=False, break_on_hyphens=False)
        for index, line in enumerate(lines):
            head = "" if not label else f"{label if not index else '':<5}"
            yield Text(" " * (len(INDENT) + LEVEL)).append(head, "dim").append(line, style)


def verdict(result: Result) -> Text:
    """One line."""
    counts = [_counted(result.count(level), level) for level in LEVELS]
    steps = f"{result.facts.steps:,} random steps, " if result.facts.steps else ""
    style = next((STYLES[level] for level in (FAULT, WARNING) if result.count(level)), "bold green")
    return Text(INDENT).append(", ".join(counts), style).append(f"; {steps}{duration(result.seconds)}", "dim")


def _counted(count: int, level: str) -> str:
    return f"{count or 'no'} {level}{'' if count == 1 else 's'}"


def progress(env: str, part: str, place: int, parts: int, seconds: float, ascii_only: bool) -> Text:
    """What is under way."""
    done, rest = bar(place / parts, BAR, ascii_only)
    words = part or "loading"
    return Text(f"{INDENT}{env}  ").append(done, "cyan").append(rest, "dim").append(f"  {words}  {duration(seconds)}")
