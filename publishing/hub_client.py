"""Connects to the Hugging Face Hub, repeats failed calls, and turns each of its errors into one line.

hub.py sends files with it; hub_download.py uses its address and token.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from stride.publishing.weights_file import MISSING
from stride.utils.user_error import UserError

REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")
PUBLIC_HUB = "https://huggingface.co"
WAIT_SECONDS = (1.0, 3.0)  # before the second and the third attempt
T = TypeVar("T")


class Api(Protocol):
    """The methods of huggingface_hub.HfApi that are used; written down here because that package is optional."""

    def whoami(self) -> dict[str, Any]: ...
    def create_repo(self, repo_id: str, *, private: bool | None, exist_ok: bool) -> object: ...
    def repo_info(self, repo_id: str) -> Any: ...
    def list_repo_tree(self, repo_id: str, *, recursive: bool) -> Iterable[Any]: ...
    def create_commit(
        self, repo_id: str, operations: Sequence[object], *, commit_message: str, parent_commit: str
    ) -> Any: ...


class Listed(NamedTuple):
    """A file as the Hub lists it."""

    size: int  # bytes
    sha1: str  # git's hash of a blob
    sha256: str  # of a large file (LFS); "" for a small one

    def fits(self, data: bytes) -> bool:
        """Return whether the file has this content."""
        if self.sha256:
            return hashlib.sha256(data).hexdigest() == self.sha256
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == self.sha1


def check_repo(name: str) -> str:
    """Return the name if it is user/name; UserError if not."""
    if not REPO.fullmatch(name) or ".." in name or "--" in name:
        raise UserError(f"{name[:80]!r} is not the name of a repository: user/name, letters, digits, '.', '_', '-'")
    return name


def hub() -> Any:
    """Import and return the package huggingface_hub; UserError says how to install it."""
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        raise UserError(MISSING) from error
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    disable_progress_bars()
    return huggingface_hub


def endpoint() -> str:
    """Return the address of the Hub: $HF_ENDPOINT, read at every call, or the public one."""
    return (os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")


def find_token() -> str | None:
    """Return the token in HF_TOKEN, or the one that `hf auth login` stored; None if there is none."""
    token = os.environ.get("HF_TOKEN", "").strip() or hub().get_token()
    return token or None


def connect() -> Api:
    """Return an HfApi for the current endpoint and token; without a token it can read public repositories."""
    api: Api = hub().HfApi(endpoint=endpoint(), token=find_token() or False)
    return api


def retried(action: Callable[[], T]) -> T:
    """Call `action`, and up to twice again after an error of the server or network; it must be safe to repeat."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import httpx

    for wait_seconds in WAIT_SECONDS:
        try:
            return action()
        except HfHubHTTPError as error:
            if error.response.status_code < 500:
                raise
        except httpx.TransportError:
            pass
        time.sleep(wait_seconds)
    return action()


@contextmanager
def hub_errors(repo: str) -> Iterator[None]:
    """Turn every error of a call to the Hub inside this context into a UserError of one line about `repo`."""
    hub()
    from huggingface_hub import errors
    from huggingface_hub.utils import httpx

    try:
        yield
    except UserError:
        raise
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"{repo} is not on {endpoint()}, or is private and needs another HF_TOKEN") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{repo} has no such revision") from error
    except errors.EntryNotFoundError as error:
        raise UserError(f"{repo} lacks a file: {_line(error)}") from error
    except errors.HfHubHTTPError as error:
        raise UserError(_status(error.response.status_code, _line(error), repo)) from error
    except errors.HFValidationError as error:
        raise UserError(f"{repo}: {_line(error)}") from error
    except errors.OfflineModeIsEnabled as error:
        raise UserError("HF_HUB_OFFLINE is set, so the Hub is not contacted") from error
    except (ValueError, KeyError, TypeError, httpx.InvalidURL) as error:  # the library, if an answer is malformed
        raise UserError(f"{endpoint()} sent an unexpected answer: {_line(error)}") from error
    except (httpx.HTTPError, OSError) as error:
        raise UserError(f"cannot reach {endpoint()}: {_line(error)}; check the network") from error


def _status(code: int, line: str, repo: str) -> str:
    """Return the message for an HTTP status; `line`: the text of the error."""
    if code == 401:
        return f"{endpoint()} does not accept this token; set HF_TOKEN or run `hf auth login`"
    if code == 403:
        return f"{repo}: this token has no write permission"
    if code >= 500:
        return f"{endpoint()} has a server error ({code}); try again later"
    return f"{repo}: {line}"


def _line(error: BaseException) -> str:
    """Return an error's text on one line of at most 200 printable characters."""
    printable_text = "".join(c if c.isprintable() else " " for c in str(error))
    return " ".join(printable_text.split())[:200] or type(error).__name__


def list_files(api: Api, repo: str) -> dict[str, Listed | None]:
    """Return path -> file, None for a folder, of everything in a repository."""
    from huggingface_hub.hf_api import RepoFile

    tree = api.list_repo_tree(repo, recursive=True)
    files = {str(entry.path): entry if isinstance(entry, RepoFile) else None for entry in tree}
    return {
        file_path: Listed(entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs else "") if entry else None
        for file_path, entry in files.items()
    }
