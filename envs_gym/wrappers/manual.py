"""The manual of the wrappers, read from their signatures and docstrings: for `--help wrappers` and docs/wrappers.md."""

import inspect
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, get_type_hints

from stride.config.fields import members, takes
from stride.config.plugins import registered
from stride.envs_gym.wrappers.registry import WRAPPERS, find_wrapper
from stride.envs_gym.wrappers.shaping import PotentialShaper

INTRODUCTION = """\
A wrapper changes a policy's observations, actions or rewards. The reported return stays the environment's own return.
`env_wrappers` of a config lists them, the innermost first:

```
python train.py Taxi-v4:ppo 'env_wrappers=[{id: StickyActions, probability: 0.1}, {id: CountBonus, scale: 0.5}]'
```

These config keys do the same and are shorter: `frame_skip`, `frame_stack`, `grayscale_obs`, `resize_obs`, `obs`,
`action_mask`, `max_episode_steps`."""
LISTS: dict[object, object] = {Sequence[int]: tuple[int, ...]}  # as types of a config
OWN = "Use your own wrapper as `{id: your_module:Name}`: a gymnasium.Wrapper, `Name(env, **arguments)`."


class WrapperText(NamedTuple):
    """One wrapper, described in English."""

    name: str
    arguments: tuple[str, ...]  # "skip: a whole number", "probability=0.25: a number"
    doc: str


def entries() -> list[WrapperText]:
    """The shipped wrappers by name."""
    return [_described(name) for name in WRAPPERS]


def help_text(width: int = 100) -> str:
    """Every wrapper with its arguments, for a terminal; those of installed packages by their names."""
    lines = [*_wrapped(OWN, width), *_wrapped(_shapers(), width)]
    for wrapper in entries():
        lines += ["", wrapper.name, *(f"  {argument}" for argument in wrapper.arguments)]
        lines += _wrapped(wrapper.doc, width, " " * 6)
    installed = sorted(registered("wrappers"))
    if installed:
        lines += ["", f"from installed packages: {', '.join(installed)}"]
    return "\n".join(lines)


def markdown() -> str:
    """docs/wrappers.md."""
    head = "Generated from the code in envs_gym/wrappers/ by `python -m lab.write_docs`; edit the code."
    rows = ["| wrapper | arguments | what it does |", "|---|---|---|"]
    rows += [f"| `{wrapper.name}` | {'<br>'.join(wrapper.arguments)} | {wrapper.doc} |" for wrapper in entries()]
    own = f"{OWN} `python train.py --help wrappers` shows this list, and the wrappers of installed packages."
    return "\n\n".join(("# Wrappers", head, INTRODUCTION, own, _shapers(), "\n".join(rows))) + "\n"


def _described(name: str) -> WrapperText:
    wrapper: Any = find_wrapper(name)
    _, *parameters = inspect.signature(wrapper).parameters.values()  # the first is the world
    types = get_type_hints(wrapper.__init__)
    arguments = tuple(_argument(parameter, types[parameter.name]) for parameter in parameters)
    doc = inspect.getdoc(wrapper) or ""
    if not wrapper.__module__.startswith("stride."):
        doc = doc.partition("\n\n")[0]  # what follows are lists and examples
    return WrapperText(name, arguments, " ".join(doc.split()))


def _argument(parameter: inspect.Parameter, hint: object) -> str:
    if parameter.name == "gamma":
        return "gamma=gamma of the run: a number"
    accepted = [takes(LISTS.get(member, member)) for member in members(hint)]
    default = "" if parameter.default is parameter.empty else f"={_typed(parameter.default)}"
    return f"{parameter.name}{default}: {' or '.join(accepted)}"


def _typed(value: object) -> str:
    """A default as a config writes it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _shapers() -> str:
    text = " ".join((inspect.getdoc(PotentialShaper) or "").split())
    return f"Every shaper {text[:1].lower()}{text[1:]}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
