"""Where several commands are run: on this machine, or on a cluster; whoever has commands asks here for the pool."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

from runstore.many.process_pool import Finished, run_all
from runstore.many.ray_pool import connected
from utils.cores import cores
from utils.user_error import UserError, nearest

LOCAL = "local"
PLACES = (LOCAL, "ray", "ray:local")
Pool = Callable[..., Iterator[Finished]]  # process_pool.run_all, or one of its signature


def check_place(where: str) -> None:
    """UserError for an --on that names no place, or one that wants what is not installed."""
    if where not in PLACES:
        raise UserError(f"--on {where}: {', '.join(PLACES)}{nearest(where, PLACES)}")
    if where != LOCAL and find_spec("ray") is None:
        raise UserError(f"--on {where} needs Ray: pip install 'stride-rl[cluster]'")


@contextmanager
def pool_on(where: str, threads: int, gpus: int = 0, program: Sequence[str] = ()) -> Iterator[tuple[Pool, int]]:
    """The pool, and how many commands it runs at a time, each of which takes so many threads and GPUs; `program` is
    what a nursery may fork."""
    if where == LOCAL:
        yield partial(run_all, program=program), max(1, cores() // threads)
        return
    with connected(where, threads, gpus) as pool:
        yield partial(pool.run_all, program=program), pool.workers
