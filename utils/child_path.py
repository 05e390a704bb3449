"""Pythons that are started here import nothing that happens to lie where one stands. No torch.

For `python -c` and `python -m` the present folder comes before the standard library, and so starts multiprocessing its
servers, and many a package a process of its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from stride.utils.places import IS_WHEEL, ROOT

NAMES = ("PYTHONSAFEPATH", "PYTHONPATH")


def import_nothing_from_here() -> None:
    """From now on; for a folder whose modules are not to be imported."""
    os.environ["PYTHONSAFEPATH"] = "1"
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not IS_WHEEL and str(ROOT) not in known:  # else train.py of a checkout would not find `stride`
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), *known)))


@contextmanager
def nothing_from_here() -> Iterator[None]:
    """The same for a while; not for good, as a script that is started from a file would lose its own folder."""
    given = {name: os.environ.get(name) for name in NAMES}
    import_nothing_from_here()
    try:
        yield
    finally:
        for name, value in given.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
