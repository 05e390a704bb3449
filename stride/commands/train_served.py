"""What the fork server of several trainings imports, once for all of them: see runstore/many/process_pool.py."""

from stride.commands.train import command, load_early
from stride.runstore.many.process_pool import check_server

load_early()
check_server()

__all__ = ["command"]
