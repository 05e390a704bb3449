"""Where several commands are run: on this machine, or on a cluster; whoever has commands asks here for the pool."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from stride.config.extras import LOCAL
from stride.runstore.many.process_pool import Finished, run_all
from stride.runstore.many.ray_pool import connected
from stride.utils.resources import cores

Pool = Callable[..., Iterator[Finished]]  # process_pool.run_all, or one of its signature


@contextmanager
def pool_on(where: str, threads: int, gpus: int = 0, program: Sequence[str] = ()) -> Iterator[tuple[Pool, int]]:
    """The pool, and how many commands it runs at a time, each of which takes so many threads and GPUs; `program` is
    what a nursery may fork."""
    if where == LOCAL:
        yield partial(run_all, program=program), max(1, cores() // threads)
        return
    with connected(where, threads, gpus) as pool:
        yield partial(pool.run_all, program=program), pool.workers
