"""argparse for commands whose complaints are one line like all others. Loads in no time."""

import argparse
from typing import NoReturn

from utils.user_error import UserError


class OneLineParser(argparse.ArgumentParser):
    """What is wrong is a UserError."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help shows the flags")
