"""A command without the waits at both ends: no garbage is looked for while modules load, none is swept up at exit.

Imported before everything else. Loading makes a million objects that stay, which the collector would walk through again
and again; and taking them apart when the process ends costs as much as loading torch.
"""

import atexit
import gc
import os
import sys
from typing import NoReturn

gc.disable()


def loaded() -> None:
    """All is imported: collect again, and never look at what is there by now."""
    gc.freeze()
    gc.enable()


def leave(code: int) -> NoReturn:
    """End the process: what was registered for its end is done, and nothing is taken apart."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
