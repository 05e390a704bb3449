"""What is to be checked, found by its words: a registered id, or a class or function that nobody registered."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from stride.config.schema import Config
from stride.envs_gym.blame import REFUSALS, Blame, EnvError, Importing, missing
from stride.envs_gym.make import env_errors, find_spec, import_module
from stride.envs_gym.own_code import import_own_modules
from stride.utils.own_modules import import_named
from stride.utils.user_error import UserError, nearest


class Subject(NamedTuple):
    """One kind of world, and how to make one of it."""

    words: str
    spec: EnvSpec | None  # None of a class that nobody registered
    creator: Callable[..., Any]
    kwargs: Mapping[str, Any]

    def bare(self) -> Any:
        """As its own code makes it, whatever that is, without Gymnasium's wrappers."""
        own = {} if self.spec is None else self.spec.kwargs
        return self._made(lambda: self.creator(**{**own, **self.kwargs}))

    def make(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """As a training makes it: with its time limit, where one is declared."""
        if self.spec is None:
            return self._made(lambda: self.creator(**self.kwargs, **more))
        name = self.words
        return self._made(lambda: gymnasium.make(name, disable_env_checker=True, **{**self.kwargs, **more}))

    def _made(self, make: Callable[[], Any]) -> Any:
        if self.spec is not None:
            with env_errors(Config(env_id=self.words, env_kwargs=dict(self.kwargs))):
                return make()
        try:
            with Blame(self.words, doing="__init__"):
                return make()
        except EnvError as error:
            if isinstance(error.__cause__, REFUSALS) and self.kwargs:
                raise UserError(f"{self.words} refuses {dict(self.kwargs)}: {error.reason}") from error
            raise

    @property
    def made_by(self) -> str:
        """module:name of what makes it."""
        if self.spec is not None and isinstance(self.spec.entry_point, str):
            return self.spec.entry_point
        return f"{self.creator.__module__}:{self.creator.__qualname__}"


def find_subject(words: str, kwargs: Mapping[str, Any]) -> Subject:
    """`ID`, `module:ID` or `module:Class`; UserError for what is not there, EnvError for a module that raises."""
    import_own_modules()
    module_name, _, name = words.rpartition(":")
    if module_name and name not in gymnasium.registry:
        found = _attributes(words, module_name)
        if name not in gymnasium.registry:
            if callable(found.get(name)):
                return Subject(words, None, found[name], kwargs)
            made = [each for each, value in found.items() if isinstance(value, type) and _is_env(value)]
            hint = nearest(name, [*made, *gymnasium.registry]) or (f"; it has {', '.join(made[:3])}" if made else "")
            raise UserError(f"{module_name} registers no {name!r} and has no class or function of that name{hint}")
    spec = find_spec(words)
    if spec.entry_point is None:
        raise UserError(f"{words} makes vectors of worlds only, and single ones are checked")
    creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    return Subject(words, spec, creator, kwargs)


def _attributes(words: str, name: str) -> dict[str, Any]:
    """What a module holds; importing it registers what it registers."""
    if name == "ale_py":
        import_module(words)
    try:
        with Importing(name):
            return vars(import_named(name))
    except EnvError as error:
        if missing(error, name):
            raise UserError(f"{words}: there is no Python module {name!r} to import") from error
        raise


def _is_env(kind: type) -> bool:
    return issubclass(kind, gymnasium.Env) and kind.__module__.partition(".")[0] != "gymnasium"
