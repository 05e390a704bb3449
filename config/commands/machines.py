"""Where several commands are run, as `--on` names it: on this machine, or on a cluster."""

from importlib.util import find_spec

from stride.utils.user_error import UserError, nearest

LOCAL = "local"
PLACES = (LOCAL, "ray", "ray:local")


def check_place(where: str) -> None:
    """UserError for an --on that names no place, or one that wants what is not installed."""
    if where not in PLACES:
        raise UserError(f"--on {where}: {', '.join(PLACES)}{nearest(where, PLACES)}")
    if where != LOCAL and find_spec("ray") is None:
        raise UserError(f"--on {where} needs Ray: pip install 'stride-rl[cluster]'")
