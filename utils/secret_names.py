"""Which names of the environment hold a secret, and the passwords of .netrc."""

import netrc
import re
from collections.abc import Iterable

NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
SECRET_PARTS = {
    "token", "tokens", "key", "keys", "secret", "secrets", "pass", "passwd", "password", "passwords", "passphrase",
    "passcode", "pw", "pwd", "pat", "jwt", "auth", "bearer", "cookie", "cookies", "cred", "creds", "credential",
    "credentials", "private", "webhook", "webhooks", "dsn", "salt", "otp", "totp", "pin", "sas", "signature", "apikey",
    "hook", "seedphrase", "mnemonic",
}  # fmt: skip
SECRET_ENDS = ("token", "key", "secret", "password", "passwd", "pass", "pwd", "webhook", "credentials")
SECRET_NAMES = re.compile(r"DATABASE_URL|_URI$|CONNECTION|CONN_STR", re.IGNORECASE)
PLAIN_NAMES = {"PWD", "OLDPWD"}  # the working folder
PLAIN_VALUES = {"true", "false", "yes", "none", "null", "auto", "default", "disabled", "enabled", "user", "test"}


def is_secret_name(name: str) -> bool:
    """By the words of a name: DB_PASS, openaiKey, GH_PAT; TOKENIZERS_PARALLELISM and COMPASS have none."""
    words = [word.lower() for word in NAME_WORDS.findall(name)]
    ends = any(word.endswith(SECRET_ENDS) and word != "monkey" for word in words)
    return name not in PLAIN_NAMES and (ends or bool(SECRET_PARTS & {*words}) or bool(SECRET_NAMES.search(name)))


def netrc_passwords() -> Iterable[str]:
    """None where there is no such file, or none that can be read."""
    try:
        return [entry[2] for entry in netrc.netrc().hosts.values() if entry[2]]
    except (OSError, netrc.NetrcParseError):
        return []
