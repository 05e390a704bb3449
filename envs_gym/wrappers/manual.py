"""Writes the manual of the wrappers, for `--help wrappers` and docs/wrappers.md, from signatures and docstrings."""

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
CONFIG_TYPES: dict[object, object] = {Sequence[int]: tuple[int, ...]}  # type of an argument -> type of a config key
OWN_WRAPPER = "Use your own wrapper as `{id: your_module:Name}`: a gymnasium.Wrapper, `Name(env, **arguments)`."


class WrapperText(NamedTuple):
    """The text on one wrapper."""

    name: str
    arguments: tuple[str, ...]  # for example "skip: a whole number", "probability=0.25: a number"
    doc: str


def entries() -> list[WrapperText]:
    """Return the texts on all wrappers of Stride."""
    return [_described(name) for name in WRAPPERS]


def help_text(width: int = 100) -> str:
    """Return the manual for a terminal: every wrapper of Stride, and the names of those of installed packages."""
    lines = [*_wrapped(OWN_WRAPPER, width), *_wrapped(_shapers(), width)]
    for wrapper in entries():
        lines += ["", wrapper.name, *(f"  {argument}" for argument in wrapper.arguments)]
        lines += _wrapped(wrapper.doc, width, " " * 6)
    installed = sorted(registered("wrappers"))
    if installed:
        lines += ["", f"from installed packages: {', '.join(installed)}"]
    return "\n".join(lines)


def markdown() -> str:
    """Return the page docs/wrappers.md."""
    head = "Generated from the code in envs_gym/wrappers/ by `python -m lab.write_docs`; edit the code."
    rows = ["| wrapper | arguments | what it does |", "|---|---|---|"]
    rows += [f"| `{wrapper.name}` | {'<br>'.join(wrapper.arguments)} | {wrapper.doc} |" for wrapper in entries()]
    own = f"{OWN_WRAPPER} `python train.py --help wrappers` shows this list, and the wrappers of installed packages."
    return "\n\n".join(("# Wrappers", head, INTRODUCTION, own, _shapers(), "\n".join(rows))) + "\n"


def _described(name: str) -> WrapperText:
    """Return the text on the wrapper of this name, from its signature and its docstring."""
    wrapper: Any = find_wrapper(name)
    _, *parameters = inspect.signature(wrapper).parameters.values()  # the first is the world
    types = get_type_hints(wrapper.__init__)
    arguments = tuple(_argument(parameter, types[parameter.name]) for parameter in parameters)
    doc = inspect.getdoc(wrapper) or ""
    if not wrapper.__module__.startswith("stride."):
        doc = doc.partition("\n\n")[0]  # lists and examples follow
    return WrapperText(name, arguments, " ".join(doc.split()))


def _argument(parameter: inspect.Parameter, hint: object) -> str:
    if parameter.name == "gamma":
        return "gamma=gamma of the run: a number"
    accepted = [takes(CONFIG_TYPES.get(member, member)) for member in members(hint)]
    default = "" if parameter.default is parameter.empty else f"={_typed(parameter.default)}"
    return f"{parameter.name}{default}: {' or '.join(accepted)}"


def _typed(value: object) -> str:
    """Return a default value as a config writes it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _shapers() -> str:
    text = " ".join((inspect.getdoc(PotentialShaper) or "").split())
    return f"Every shaper {text[:1].lower()}{text[1:]}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
