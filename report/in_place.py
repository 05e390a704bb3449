"""Draw lines on a terminal again and again at the same place; what others print meanwhile appears above them."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text


class InPlace:
    """Call `draw` any number of times, then `leave` or `erase`; the cursor is hidden in between.

    When a terminal changes its width it folds the lines, and their position is unknown. Then the screen is cleared and
    `print_above` is called to print again what belongs above the lines.
    """

    def __init__(self, terminal: Console, print_above: Callable[[], None] | None = None) -> None:
        self._terminal = terminal
        self._print_above = print_above
        self._size = terminal.size
        self._live: Live | None = None

    def draw(self, lines: Sequence[Text]) -> None:
        """Draw these lines over the previous ones. They must be narrower than the terminal and fewer than its rows."""
        page = Text("\n", no_wrap=True, overflow="crop").join(lines)
        if self._live is not None and self._terminal.size != self._size:
            self.erase()
            self._terminal.clear()
            if self._print_above:
                self._print_above()
        self._size = self._terminal.size
        if self._live is None:
            self._live = Live(page, console=self._terminal, auto_refresh=False, vertical_overflow="crop")
            self._live.start(refresh=True)
        else:
            self._live.update(page, refresh=True)

    def leave(self) -> None:
        """Stop, and leave the last lines on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def erase(self) -> None:
        """Remove the lines, as if nothing had been drawn."""
        if self._live is not None:
            self._live.transient = True
        self.leave()
