"""Everything that can be found: how bad it is by itself, why it matters, and the cure. docs/check_env.md lists it."""

from typing import NamedTuple

from stride.envs_gym.check.finding import FAULT, NOTE, WARNING, Finding
from stride.utils.user_error import one_line


class Entry(NamedTuple):
    """What is always said of a finding."""

    level: str
    why: str
    cure: str


GYMNASIUM = "see gymnasium.farama.org/introduction/create_custom_env"
FORM = {
    "cannot-be-made": Entry(FAULT, "Nothing can be trained in it.", "Mend the constructor; the line is named."),
    "not-gymnasium": Entry(
        FAULT,
        "Only Gymnasium's environments have one form that everybody can rely on; the package gym is no longer kept.",
        "Derive the class from gymnasium.Env: import gymnasium in the place of gym.",
    ),
    "space-missing": Entry(
        FAULT,
        "Nobody can tell how large a network must be.",
        "Set self.observation_space and self.action_space to gymnasium.spaces in __init__.",
    ),
    "reset-without-seed": Entry(
        FAULT,
        "Nothing can be repeated: the same seed gives another run.",
        "def reset(self, *, seed=None, options=None), and super().reset(seed=seed) as its first line.",
    ),
    "old-reset": Entry(
        FAULT,
        "The observation is taken for a pair, or the pair for an observation.",
        "return observation, info: info is a dictionary, {} where there is nothing to say.",
    ),
    "old-step": Entry(
        FAULT,
        "One `done` cannot tell a task that ended from a clock that ran out, and what is learnt differs.",
        "return observation, reward, terminated, truncated, info.",
    ),
    "flag-not-bool": Entry(
        FAULT, 'A text such as "False" counts as true.', "Give terminated and truncated as bool(...)."
    ),
    "reward-not-number": Entry(FAULT, "It cannot be added up.", "Give the reward as float(...)."),
    "info-not-dict": Entry(FAULT, "Wrappers write into it.", "Give info as a dictionary, {} where there is nothing."),
    "raises": Entry(FAULT, "A training ends with it, maybe after hours.", "Mend the line that is named."),
    "hangs": Entry(
        FAULT,
        "A training would wait for ever.",
        "Give sockets, locks and simulators a limit of their own; --timeout waits longer. In training: step_timeout.",
    ),
    "process-died": Entry(
        FAULT, "It takes the training with it.", "Look at native code, at os._exit, and at the memory it takes."
    ),
    "unfit-for-stride": Entry(
        WARNING,
        "Policies see boxes, discrete and multi-discrete numbers, and dictionaries of these.",
        "A wrapper that leaves out or encodes that part (gymnasium.wrappers.FilterObservation, FlattenObservation).",
    ),
}
OBSERVATIONS = {
    "observation-form": Entry(
        FAULT, "A network is made for the space; another shape ends the training.", "Make space and observation equal."
    ),
    "observation-dtype": Entry(
        WARNING,
        "It is converted at every step, or overflows: bytes are images, floats are not.",
        "np.asarray(observation, dtype=self.observation_space.dtype), or another dtype in the space.",
    ),
    "observation-nan": Entry(
        FAULT,
        "One such number makes every weight of a network not a number.",
        "Find the division, root or logarithm it comes from; np.nan_to_num only hides it.",
    ),
    "observation-outside": Entry(
        FAULT,
        "Whoever scales by the bounds scales wrongly; an index outside has no row in a table.",
        "Widen the bounds of the space, or clip what is returned.",
    ),
    "observation-constant": Entry(
        WARNING,
        "There is nothing to tell one moment from another: only one action can be learnt.",
        "Return the state as it is after the step, and not the first one.",
    ),
    "observation-part-constant": Entry(
        NOTE, "It costs weights, and divides by a spread of 0 where nothing guards.", "Leave it out if it never moves."
    ),
    "observation-scale": Entry(
        WARNING,
        "Networks learn from numbers around 1; a part a thousand times larger drowns the others.",
        "Divide each part by what it usually is, or train with normalize_obs where the algorithm has it.",
    ),
    "observation-tiny": Entry(
        WARNING, "To a network all of that is the same number.", "Use units in which a change is about 1."
    ),
    "float-image": Entry(
        WARNING,
        "Images are taken for images, and kept small, as bytes.",
        "Box(0, 255, shape, np.uint8), and bytes in the observation.",
    ),
    "observation-overwritten": Entry(
        FAULT,
        "Whoever keeps it, as a replay memory does, finds the newest state in every row.",
        "Return a copy: self.state.copy(), or np.array(..., copy=True).",
    ),
    "observation-is-state": Entry(
        WARNING,
        "Who normalises it in place changes the world's own state.",
        "Return a copy: self.state.copy().",
    ),
}
REWARDS = {
    "reward-nan": Entry(
        FAULT, "Returns, targets and then all weights are not numbers.", "Find the division it comes from."
    ),
    "reward-never-seen": Entry(
        WARNING,
        "Nothing is learnt before the first reward is met, and neither random nor constant actions met one.",
        "Check that it is paid at all; else pay for progress, begin nearer to the goal, or take many more steps.",
    ),
    "reward-sparse": Entry(
        NOTE, "Learning begins late and by luck.", "More worlds, more steps, a longer n_step; or pay for progress."
    ),
    "reward-scale": Entry(
        WARNING,
        "Losses grow with the square of returns; clipped gradients then hardly move, and rates that usually work fail.",
        "Divide rewards so that returns are about 1 to 100, or train with normalize_reward where the algorithm has it.",
    ),
    "reward-tiny": Entry(
        WARNING,
        "Beside entropy bonuses and epsilons nothing of it is left.",
        "Multiply rewards until they are near 1.",
    ),
    "return-never-differs": Entry(
        WARNING,
        "Whatever is done pays the same: there is nothing to learn.",
        "Have the reward depend on what was done; print it beside the state.",
    ),
    "constant-action-is-best": Entry(
        WARNING,
        "One button held down scores as high as anything that was seen: a policy will find that and nothing else.",
        "Check the sign and the cases of the reward, and that the task asks for more than that.",
    ),
    "constant-action-beats-random": Entry(
        NOTE, "A policy has to be better than that before it has learnt anything.", "Compare results with this number."
    ),
}
EPISODES = {
    "time-limit-as-terminated": Entry(
        WARNING,
        "terminated says that nothing could have followed: values then learn that a clock which nobody sees is death.",
        "truncated=True where only the time is up; or register with max_episode_steps and leave that to Gymnasium.",
    ),
    "hidden-time-limit": Entry(
        WARNING,
        "A limit that is not declared is known to no buffer, plot or reader, and cannot be changed from outside.",
        "Register with max_episode_steps (or wrap in TimeLimit), and do not count inside; an undeclared end by time "
        "that must stay is no mistake.",
    ),
    "never-ends": Entry(
        WARNING,
        "Without an end there is no return: no evaluation, no best model, and one seed is all that is ever seen.",
        "Register with max_episode_steps, or set max_episode_steps in the YAML.",
    ),
    "flags-together": Entry(
        NOTE, "Where both are true the end counts as terminated.", "Set truncated only where the task did not end."
    ),
    "one-step-episodes": Entry(
        NOTE, "A bandit is one; else an end is reported that is none.", "Look at what sets terminated."
    ),
    "reset-does-not-restart": Entry(
        FAULT, "After its first episode there is nothing to learn from.", "Set every counter and flag anew in reset."
    ),
}
REPEAT = {
    "differs-under-seed": Entry(
        FAULT,
        "No run can be repeated, compared or resumed exactly; a bug that was seen once is gone.",
        "Draw from self.np_random alone, after super().reset(seed=seed); no clock, no set order, no global generator.",
    ),
    "reset-remembers": Entry(
        WARNING,
        "An episode depends on those before it, in a way that no observation tells.",
        "Make all of the state anew in reset.",
    ),
    "global-random": Entry(
        WARNING,
        "Other code draws from it, too: seeds do not hold, and worlds side by side disturb one another.",
        "self.np_random in the place of np.random, random and torch's generator.",
    ),
    "shared-state": Entry(
        FAULT,
        "Two worlds side by side are no longer two: what one does changes the other.",
        "Set mutable state in __init__ or reset as self.x, not in the class or the module; no mutable defaults.",
    ),
    "class-attribute-changes": Entry(
        NOTE, "All worlds of a process see it.", "Set it as self.x in __init__, if it is a world's own."
    ),
    "same-start-every-episode": Entry(
        WARNING,
        "Every episode is the first one again, until somebody gives another seed: what is learnt holds for one start.",
        "Call super().reset(seed=seed), draw from self.np_random, and make no generator of your own in reset.",
    ),
    "nothing-random": Entry(
        NOTE,
        "A sequence of actions learnt by heart solves it; evaluations all give one number.",
        "Vary the start, if the task is to be learnt and not the sequence.",
    ),
}
ACTIONS = {
    "actions-ignored": Entry(
        FAULT,
        "Whatever is done, the same follows: there is nothing to control.",
        "Look for an action that is overwritten, clipped to nothing, or applied to a copy of the state.",
    ),
    "action-part-ignored": Entry(
        WARNING, "It is explored in vain, and adds noise to all gradients.", "Leave it out, or find where it is lost."
    ),
    "actions-alike": Entry(
        NOTE, "Exploring them is the same work again.", "Leave out what has no effect of its own, if that is so always."
    ),
    "action-range-clipped": Entry(
        WARNING,
        "Actions are clipped inside, unseen: most of the range does the same and has no gradient.",
        "Declare the range that has an effect.",
    ),
    "action-bounds-infinite": Entry(
        WARNING,
        "Nothing tells what a large action is: exploration is either nothing or everything.",
        "Box(-1, 1, shape), and scale inside the environment.",
    ),
    "action-not-normalised": Entry(
        NOTE,
        "Stride scales it to -1 to 1; most other libraries do not, and then explore a corner of it.",
        "Box(-1, 1, shape), and scale inside, if others are to train in it, too.",
    ),
    "discrete-start": Entry(
        NOTE, "Stride counts from 0 and adds the start; most other libraries do not.", "Discrete(n), and add it inside."
    ),
}
RUNNING = {
    "memory-grows": Entry(
        FAULT,
        "A training of 100 million steps takes all there is, and is killed.",
        "Clear what is collected in reset, or keep a deque(maxlen=...).",
    ),
    "resident-memory-grows": Entry(
        WARNING,
        "Memory outside Python grows: a long training is killed in the end.",
        "Free what the simulator makes at each reset, or restart it now and then.",
    ),
    "info-grows": Entry(
        WARNING,
        "It is copied at every step: steps become slower and slower.",
        "Give what belongs to this step; sums once, at the end of the episode.",
    ),
    "info-large": Entry(
        NOTE, "It is made, and between processes copied, at every step.", "Give it only when asked for."
    ),
    "slow-step": Entry(
        WARNING,
        "Steps are what learning is made of.",
        "Profile it (python -m cProfile): drawing, copying and Python loops first; then worlds in worker processes.",
    ),
    "slow-reset": Entry(
        NOTE, "Most of the time goes into beginnings.", "Make heavy things once in __init__, not in every reset."
    ),
    "prints": Entry(
        NOTE, "It costs time at each step, and disturbs every display.", "logging.getLogger(__name__).debug(...)."
    ),
    "render-fails": Entry(
        WARNING,
        "No video can be made of what was learnt.",
        "Mend it, or take the mode out of metadata['render_modes'].",
    ),
    "no-render": Entry(
        NOTE,
        "Nobody can watch what was learnt; a look at it finds more bugs than any number.",
        "metadata = {'render_modes': ['rgb_array'], 'render_fps': 30}, and render() returns bytes [height, width, 3].",
    ),
    "close-fails": Entry(
        WARNING, "A training that went well ends with an error.", "Have close do nothing where nothing is open."
    ),
    "not-picklable": Entry(
        NOTE,
        "Stride needs it nowhere; libraries that send worlds to other processes, or copy them to search, do.",
        "Make handles to files, windows and simulators when first used, or write __getstate__.",
    ),
    "not-checked": Entry(
        NOTE, "What is not measured may be wrong.", "More time: --seconds 60; or mend first what is named above."
    ),
    "gymnasium-checker": Entry(FAULT, "Gymnasium's own checker refuses it.", GYMNASIUM),
    "gymnasium-warning": Entry(WARNING, "Gymnasium's own checker warns of it.", GYMNASIUM),
    "gymnasium-bounds": Entry(
        NOTE, "Who scales by bounds cannot.", "Nothing, where it has none; else give the box the bounds it has."
    ),
}
CATALOGUE = {**FORM, **OBSERVATIONS, **REWARDS, **EPISODES, **REPEAT, **ACTIONS, **RUNNING}


def finding(name: str, seen: str, level: str = "") -> Finding:
    """One of the catalogue; `level` where this case is worse or better than usual."""
    entry = CATALOGUE[name]
    return Finding(name, level or entry.level, one_line(seen), entry.why, entry.cure)
