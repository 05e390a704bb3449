"""Play an environment by keyboard (run_play.py --user): pressed keys in its pygame window become actions."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from stride.utils.user_error import UserError

ARROWS = ("left", "right", "up", "down")
IDLE_WORDS = ("nothing", "none", "noop", "no-op", "coast", "idle", "wait", "do not", "don't")
QUIT_KEYS = ("escape", "q")


class Quit(KeyboardInterrupt):
    """Raised when the person closes the window, or presses Escape or q."""


class Steering:
    """Maps keys to actions: up to 10 choices with `names` such as ["left", "nothing"], or 1 or 2 bounded numbers."""

    def __init__(self, space: Space[object], names: Sequence[str]) -> None:
        if isinstance(space, spaces.Discrete) and space.n <= 10:
            self.first = int(space.start)
            self.names = [name.lower() for name in names]
        elif isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] <= 2 and space.is_bounded():
            self.first = 0
            self.names = []
        else:
            raise UserError(f"--user cannot play {space}: it supports at most 10 choices or 2 bounded numbers")
        self.space = space
        self._last = 0

    def help(self) -> str:
        """Return one line that explains the keys."""
        if isinstance(self.space, spaces.Box):
            return "left/right" + (", up/down" if self.space.shape == (2,) else "") + " to move, Escape to end"
        key_names = [f"{'/'.join([str(i), *self._arrows(i)])} {name}" for i, name in enumerate(self.names)]
        return ", ".join(key_names) + ", Escape to end"

    def action(self, pressed: Collection[str]) -> Any:
        """Return the environment's action for these keys: digits choose by number, arrows by the action's name.

        Without a key, the action whose name has one of IDLE_WORDS is taken; if there is none, the last action.
        """
        if isinstance(self.space, spaces.Box):
            low, high = self.space.low, self.space.high
            directions = [("right" in pressed) - ("left" in pressed), ("up" in pressed) - ("down" in pressed)]
            direction = np.array(directions[: self.space.shape[0]])
            return ((low + high) / 2 + direction * (high - low) / 2).astype(self.space.dtype)
        idle_actions = [i for i, name in enumerate(self.names) if any(word in name for word in IDLE_WORDS)]
        if idle_actions:
            self._last = idle_actions[0]
        for index in range(len(self.names)):
            if str(index) in pressed or set(self._arrows(index)) & set(pressed):
                self._last = index
        return self.first + self._last

    def _arrows(self, index: int) -> list[str]:
        return [arrow for arrow in ARROWS if arrow in self.names[index]]


class Keyboard:
    """Reads the pressed keys from pygame; the environment must have opened its window."""

    def __init__(self, steering: Steering) -> None:
        try:
            import pygame
        except ImportError as error:
            raise UserError("--user needs pygame: pip install 'stride-rl[video]'") from error
        self.steering = steering
        self._pygame = pygame

    def __call__(self) -> Any:
        """Return the action for the keys pressed now; raise Quit if the person wants to stop."""
        pygame = self._pygame
        if not pygame.display.get_init():
            raise UserError("--user needs an environment with a pygame window")
        closed = any(event.type == pygame.QUIT for event in pygame.event.get())
        states = pygame.key.get_pressed()
        keys = [*ARROWS, *map(str, range(10)), *QUIT_KEYS]
        pressed = {key for key in keys if states[pygame.key.key_code(key)]}
        if closed or pressed & set(QUIT_KEYS):
            raise Quit
        return self.steering.action(pressed)
