"""Where several commands are run: on this machine, or on a cluster; whoever has commands asks here for the pool."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stride.config.commands.machines import LOCAL
from stride.runstore.many.process_pool import Finished, run_all
from stride.runstore.many.ray_pool import connected
from stride.utils.cores import cores

Pool = Callable[..., Iterator[Finished]]  # process_pool.run_all, or one of its signature


@contextmanager
def pool_on(where: str, threads: int, gpus: int = 0) -> Iterator[tuple[Pool, int]]:
    """The pool, and how many commands it runs at a time, each of which takes so many threads and GPUs."""
    if where == LOCAL:
        yield run_all, max(1, cores() // threads)
        return
    with connected(where, threads, gpus) as pool:
        yield pool.run_all, pool.workers
