"""Whether anybody else could write into a folder. What lies there is run: compiled kernels, modules of one's own."""

import os
import pwd
import stat

UNKNOWN = 65534  # whom a user namespace does not know, such as the owner of / in a container


def others_may_write(folder: os.stat_result) -> str:
    """Who can by its mode: everybody, or a group that is not the primary one of this user or of its owner; else ""."""
    if folder.st_mode & stat.S_IWOTH:
        return "everybody may write to it"
    if folder.st_mode & stat.S_IWGRP and folder.st_gid not in {0, os.getegid(), _primary_group(folder.st_uid)}:
        return f"the group {folder.st_gid} may write to it"
    return ""


def of_another(folder: os.stat_result, *trusted: int) -> str:
    """Whose it is, where that is neither root, this user, nor one of `trusted`; else ""."""
    return "" if folder.st_uid in {0, os.geteuid(), *trusted} else f"it belongs to the user {folder.st_uid}"


def _primary_group(user: int) -> int:
    """Of a user that this machine does not know, as in a container, the group of the same number."""
    if user == UNKNOWN:
        return 0  # may be anybody
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user
