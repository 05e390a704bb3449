"""Keys that are held down as actions of an environment, read from its pygame window. No agent here."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from stride.utils.user_error import UserError

ARROWS = ("left", "right", "up", "down")
IDLE = ("nothing", "none", "noop", "no-op", "coast", "idle", "wait", "do not", "don't")
QUIT = ("escape", "q")


class Quit(KeyboardInterrupt):
    """The person closed the window, or pressed Escape."""


class Steering:
    """Which keys mean which action of a space."""

    def __init__(self, space: Space[object], names: Sequence[str]) -> None:
        if isinstance(space, spaces.Discrete) and space.n <= 10:
            self.first, self.names = int(space.start), [name.lower() for name in names]
        elif isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] <= 2 and space.is_bounded():
            self.first, self.names = 0, []
        else:
            raise UserError(f"--user cannot steer {space}: at most 10 choices or 2 bounded numbers can be")
        self.space, self._last = space, 0

    def help(self) -> str:
        """The keys, in a line."""
        if isinstance(self.space, spaces.Box):
            return "left/right" + (", up/down" if self.space.shape == (2,) else "") + " steer, Escape ends"
        keys = [f"{'/'.join([str(i), *self._arrows(i)])} {name}" for i, name in enumerate(self.names)]
        return ", ".join(keys) + ", Escape ends"

    def action(self, held: Collection[str]) -> Any:
        """The environment's action while these keys are held: digits choose by number, arrows by an action's name.

        Without a key the action that is called idle is taken, else the last one goes on.
        """
        if isinstance(self.space, spaces.Box):
            axes = [("right" in held) - ("left" in held), ("up" in held) - ("down" in held)][: self.space.shape[0]]
            low, high, axis = self.space.low, self.space.high, np.array(axes)
            return ((low + high) / 2 + axis * (high - low) / 2).astype(self.space.dtype)
        idle = [i for i, name in enumerate(self.names) if any(word in name for word in IDLE)]
        if idle:
            self._last = idle[0]
        for index in range(len(self.names)):
            if str(index) in held or set(self._arrows(index)) & set(held):
                self._last = index
        return self.first + self._last

    def _arrows(self, index: int) -> list[str]:
        return [arrow for arrow in ARROWS if arrow in self.names[index]]


class Keyboard:
    """Asks pygame what is held; the environment must have opened its window."""

    def __init__(self, steering: Steering) -> None:
        try:
            import pygame
        except ImportError as error:
            raise UserError("--user needs pygame: pip install 'stride-rl[video]'") from error
        self.steering, self._pygame = steering, pygame

    def __call__(self) -> Any:
        """The action of this instant; Quit where the person has had enough."""
        pygame = self._pygame
        if not pygame.display.get_init():
            raise UserError("--user needs an environment whose window is made by pygame; this one's is not")
        closed = any(event.type == pygame.QUIT for event in pygame.event.get())
        pressed = pygame.key.get_pressed()
        words = [*ARROWS, *map(str, range(10)), *QUIT]
        held = {word for word in words if pressed[pygame.key.key_code(word)]}
        if closed or held & set(QUIT):
            raise Quit
        return self.steering.action(held)
