"""Watch or measure a trained agent: python run_play.py --run-id @last (--help shows all flags)

Top to bottom: arguments -> loaded run -> episodes (watched one by one, or many counted in parallel) -> summary.
`--headless --episodes 100 --json` evaluates an agent.
"""

from stride.utils import quick_start  # isort: skip  # before all others

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stride.commands.run_arguments import PlayArguments, look_for_run, parse_play
from stride.config.loader import file_of
from stride.utils import entry

if __name__ == "__main__":
    entry.begin(look_for_run(parse_play), "loading torch ...")  # here, as the imports below take seconds

import stride.utils.lean_lightning  # isort: skip  # noqa: F401  # before any import of Lightning

import torch

from stride.agents.playing.film import Film
from stride.agents.playing.keyboard import Keyboard, Quit, Steering
from stride.agents.trained.episode import Counted, EpisodeStep, check_numbers, episode_steps, play_episodes, start_of
from stride.agents.trained.loading import LoadedRun, load_run
from stride.agents.trained.player import check_mode
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.rendered import RenderError, frame_of, frames_per_second, make_rendered
from stride.report.comparison import comparison_data, comparison_lines
from stride.report.console import standard_output
from stride.report.group import Seed, read_group
from stride.runstore import run_files
from stride.runstore.run_facts import finite, mapping
from stride.runstore.select import group_selectors
from stride.utils.screen import has_display
from stride.utils.statistics import mean_and_deviation
from stride.utils.typography import mean_text
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError

quick_start.loaded()

Say = Callable[[str], None]
PIPE_WIDTH = 200  # characters of a table's line if there is no terminal


def main(argv: list[str]) -> int:
    arguments = parse_play(argv)
    # with --json, standard output has only the JSON object
    say = partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.group:
        return compare(arguments, say)
    loaded = load_run(arguments.run_id, arguments.checkpoint, arguments.trust)
    torch.set_num_threads(loaded.config.torch_threads)
    for note in loaded.notes:
        say(note)
    watched = arguments.filmed or arguments.step_by_step
    window = wants_window(arguments, say)
    name = f"{loaded.config.env_id}:{loaded.config.variant}"
    say(f"{name}  {loaded.run.id}, {loaded.checkpoint}, {arguments.mode}, seed {arguments.seed}")
    if window or watched:
        spec = loaded.config.spec
        texts = {"actions": spec.action_text(), "observes": spec.observation_text()}
        for label, text in texts.items():
            if text:
                say(f"  {label:<10}{text}")
    played = []
    for episode in watch(loaded, arguments, window, say) if window or watched else count(loaded, arguments):
        played.append(episode)
        say(f"episode {episode.number + 1:>3}  return {episode.episode_return:10.2f}  length {episode.length:6,}")
    if not played:
        say("stopped before an episode ended")
        return 0
    summary = summarize(loaded, arguments, played)
    say(sentence(summary))
    if arguments.json:
        print(json.dumps(summary))
    return 0


def compare(arguments: PlayArguments, say: Say) -> int:
    """Print a comparison of groups: by their closing tests, or by episodes that every run plays now."""
    groups = [group for selector in group_selectors(arguments.run_id) for group in read_group(selector).parts]
    basis = "of the closing tests"
    if arguments.headless:
        for index, group in enumerate(groups):
            seeds = tuple(play_seed(seed, group.goal, arguments, say) for seed in group.seeds)
            groups[index] = replace(group, seeds=seeds)
        basis = f"{arguments.episodes} episodes of {arguments.checkpoint}, {arguments.mode}, seed {arguments.seed}"
    width = standard_output().width if sys.stdout.isatty() else PIPE_WIDTH
    for line in comparison_lines(groups, basis, width):
        say(line)
    if arguments.json:
        print(json.dumps(comparison_data(groups, basis)))
    return 0


def play_seed(seed: Seed, goal: float | None, arguments: PlayArguments, say: Say) -> Seed:
    """Return the seed with the mean return of episodes played now, without one if its run has no checkpoint."""
    unplayed = replace(seed, mean=None, deviation=None, episodes=0)
    if seed.run is None:
        return unplayed
    try:
        loaded = load_run(seed.run.id, arguments.checkpoint)
    except UserError as error:
        return replace(unplayed, why=seed.why or str(error))
    torch.set_num_threads(loaded.config.torch_threads)
    returns = [episode.episode_return for episode in count(loaded, arguments)]
    mean, deviation = mean_and_deviation(returns)
    say(f"seed {seed.seed}: {loaded.checkpoint} of {seed.run.id}  {mean_text(mean, deviation, len(returns))}")
    return seed.played(mean, deviation, arguments.episodes, goal)


def wants_window(arguments: PlayArguments, say: Say) -> bool:
    """Whether to open a window. Without a display, --user raises UserError; other modes go on without a window."""
    if arguments.headless or arguments.json or arguments.filmed:
        return False
    if has_display():
        return True
    if arguments.user:
        raise UserError("--user needs a display; neither DISPLAY nor WAYLAND_DISPLAY is set")
    say("no display: playing without a window")
    return False


def count(loaded: LoadedRun, arguments: PlayArguments) -> Iterator[Counted]:
    """Play episodes in many environments in parallel; yield their returns and lengths."""
    return play_episodes(loaded, arguments.episodes, arguments.seed, arguments.mode, arguments.max_steps)


def watch(loaded: LoadedRun, arguments: PlayArguments, window: bool, say: Say) -> Iterator[Counted]:
    """Play episodes in one environment, step by step: in a window, into a video, or described line by line."""
    render_mode = "human" if window else "rgb_array" if arguments.filmed else None
    mode = "greedy" if arguments.user else check_mode(arguments.mode)
    with ExitStack() as stack:
        env = make_rendered(loaded.config, render_mode, arguments.fps)
        stack.callback(env.close)
        names = loaded.agent.action_names(loaded.config.spec)
        steer = None
        if arguments.user:
            steering = Steering(env.action_space, names)
            steer = Keyboard(steering)
            say(steering.help())
        film = None
        if arguments.filmed:
            paths = video_files(loaded, arguments)
            film = stack.enter_context(Film(paths, arguments.episodes, frames_per_second(env), arguments.captions))
        for number in range(arguments.episodes):
            total = 0.0
            start_film = partial(film.turn_to, number, partial(frame_of, env)) if film else None
            try:
                start = start_of(arguments.seed, number)
                for moment in episode_steps(env, loaded.agent, start, mode, arguments.max_steps, steer, start_film):
                    total += moment.reward
                    if film:
                        film.add(moment.step, total)
                    check_numbers(moment, total, loaded.config.env_id, number)
                    if arguments.step_by_step:
                        say(describe(moment, names))
                        wait()
            except Quit:
                return
            yield Counted(number, total, moment.step)
    if film:
        say(f"video   {film}")


def video_files(loaded: LoadedRun, arguments: PlayArguments) -> list[Path]:
    """Return the video files: the one that was named, or one per episode, by default in the run's folder."""
    if arguments.video and arguments.video.endswith(".mp4") and not Path(arguments.video).is_dir():
        return [Path(arguments.video)]
    names = [f"play-{loaded.checkpoint}-seed{arguments.seed}-episode{n + 1}.mp4" for n in range(arguments.episodes)]
    if arguments.video:
        return [Path(arguments.video) / name for name in names]
    if not loaded.run.path.is_dir():  # a run on the Hub
        return [Path(name) for name in names]
    run_files.make_folder(loaded.run.videos)
    return [run_files.check(loaded.run.videos / name) for name in names]


def describe(moment: EpisodeStep, names: tuple[str, ...]) -> str:
    """Return a line about a step: what the policy computed, the action, the reward."""
    opinion = moment.opinion
    columns = opinion.distribution
    outputs = [] if opinion.value is None else [f"value {opinion.value:.2f}"]
    for index, name in enumerate(names):
        if "probability" in columns:
            outputs.append(f"{name} {columns['probability'][index]:.0%}")
        else:
            outputs.append(f"{name} {columns['mean'][index]:.2f} ± {columns['std'][index]:.2f}")
    if "q" in columns:
        outputs += [f"Q({name}) {q:.2f}" for name, q in zip(names, columns["q"], strict=True)]
    action_text = f"action {moment.choice.action}  reward {moment.reward:g}"
    ending = "  terminated" if moment.terminated else "  truncated" if moment.truncated else ""
    return f"step {moment.step:>4}  {', '.join(outputs)}  {action_text}{ending}"


def wait() -> None:
    """Wait until Enter is pressed."""
    try:
        input()
    except EOFError as error:
        raise UserError("--step-by-step waits for Enter, but standard input is closed; run it in a terminal") from error


def summarize(loaded: LoadedRun, arguments: PlayArguments, played: list[Counted]) -> dict[str, Any]:
    """Return the object that --json prints."""
    returns = [episode.episode_return for episode in played]
    mean, deviation = mean_and_deviation(returns)
    paths = [str(path) for path in video_files(loaded, arguments)] if arguments.filmed else []
    return {
        "run_id": loaded.run.id,
        "env_id": loaded.config.env_id,
        "variant": loaded.config.variant,
        "checkpoint": loaded.checkpoint,
        "env_steps": loaded.progress["env_steps"],
        "policy": arguments.mode,
        "seed": arguments.seed,
        "episodes": len(played),
        "mean_return": mean,
        "std_return": deviation,
        "returns": returns,
        "lengths": [episode.length for episode in played],
        "goal": loaded.goal,
        "goal_here": goal_here(loaded),
        "goal_met": None if loaded.goal is None else mean >= loaded.goal,
        "video": None if not paths else paths[0] if len(paths) == 1 else paths,
    }


def goal_here(loaded: LoadedRun) -> float | None:
    """Return the goal in this machine's file of the environment, for a run from elsewhere; None for other runs.

    A run from elsewhere may state any goal of its own.
    """
    from_elsewhere = loaded.run.foreign or not loaded.run.path.is_dir()  # a run on the Hub has no folder
    file = file_of(loaded.config.env_id) if from_elsewhere else None
    return finite(mapping(file.base.get("spec")).get("goal")) if file else None


def sentence(summary: dict[str, Any]) -> str:
    episode_count = summary["episodes"]
    played = f"{episode_count} episode{'s' if episode_count > 1 else ''}"
    mean = mean_text(summary["mean_return"], summary["std_return"], episode_count)
    return f"mean {mean} over {played}: {goal_words(summary)}"


def goal_words(summary: dict[str, Any]) -> str:
    """Return `goal met (475)`; if a foreign run's goal differs from the shipped one, both are named."""
    goal, shipped = summary["goal"], summary["goal_here"]
    if goal is None:
        return "no goal"
    goal_text = f"{goal:g}" if shipped in (None, goal) else f"the publisher's {goal:g}; here {shipped:g}"
    return f"goal {'met' if summary['goal_met'] else 'not met'} ({goal_text})"


def is_refused(error: Exception) -> bool:
    """Whether the user can fix the error: wrong arguments, a missing package, a file that cannot be written."""
    return isinstance(error, UserError | VideoError) or (isinstance(error, RenderError) and error.missing)


def command(argv: list[str]) -> int:
    """Run main and return the exit code; errors become one line. 2: the user can fix it; 1: the environment failed."""
    return entry.ended(main, argv, EnvError, RenderError, VideoError, refused=is_refused)


if __name__ == "__main__":
    quick_start.leave(entry.printed(command(sys.argv[1:])))
