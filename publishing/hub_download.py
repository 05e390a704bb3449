"""Downloads from the Hub as bytes in memory: bounded, from its own hosts; nothing is written to the disk.

huggingface_hub's own download names files after headers of the answer and follows them to any host; here its session,
headers and errors are used, and what comes is compared with what was asked for.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from stride.publishing.hub_client import Listed, endpoint, find_token
from stride.utils.user_error import UserError

LISTING = 1 << 20  # bytes of an answer that is about files, and of one that is an error
HOSTS = ("huggingface.co", "hf.co")  # of the public Hub, and below them those that keep its large files
REDIRECTS, SECONDS = 5, 900
COMMIT = re.compile(r"[0-9a-f]{40}")


def find_commit(repo: str, revision: str) -> str:
    """The commit a revision stands for."""
    revision_info = _json(f"{endpoint()}/api/models/{repo}/revision/{quote(revision, safe='')}", repo)
    commit = revision_info.get("sha") if isinstance(revision_info, dict) else None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise UserError(f"{repo}: {str(commit)[:60]!r} is not a commit hash")
    return commit


def list_commit(repo: str, commit: str) -> dict[str, Listed | None]:
    """Path -> what is there; None is a folder."""
    entries = _json(f"{endpoint()}/api/models/{repo}/tree/{commit}?recursive=true", repo)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"{repo}: its list of files is not a list")
    return {str(entry.get("path")): _listed(entry, repo) for entry in entries}


def read_file(repo: str, commit: str, name: str, listed: Listed, most: int) -> bytes:
    """The file, as it was listed."""
    url = f"{endpoint()}/{repo}/resolve/{commit}/{quote(name)}"
    data, headers = _get(url, min(most, listed.size), f"{repo}/{name}")
    if headers.get("X-Repo-Commit", commit) != commit:
        raise UserError(f"{repo}/{name} is of another commit than requested: nothing was loaded")
    if not listed.fits(data):
        raise UserError(f"{repo}/{name} is not the listed file: nothing was loaded")
    return data


def _listed(entry: Mapping[str, object], repo: str) -> Listed | None:
    if entry.get("type") == "directory":
        return None
    lfs_entry = entry.get("lfs") or {}
    size, sha1, sha256 = (
        entry.get("size"),
        entry.get("oid"),
        lfs_entry.get("oid") if isinstance(lfs_entry, dict) else None,
    )
    if type(size) is not int or size < 0 or not isinstance(sha1, str) or not isinstance(sha256, str | None):
        raise UserError(f"{repo}: its list of files is not a list")
    return Listed(size, sha1, sha256 or "")


def _json(url: str, repo: str) -> Any:
    data, headers = _get(url, LISTING, f"the facts of {repo}")
    if 'rel="next"' in headers.get("Link", ""):
        raise UserError(f"{repo} has more files than a published run: nothing was loaded")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the facts of {repo} at {endpoint()} are not JSON") from error


def _get(url: str, most: int, what: str) -> tuple[bytes, Mapping[str, str]]:
    """The bytes at a URL, and the headers of the first answer; UserError for more than `most` of them."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status, httpx

    # identity: a compressed answer could unpack to more than `most` before anybody counts
    headers = {**build_hf_headers(token=find_token() or False), "Accept-Encoding": "identity"}
    first_headers: Mapping[str, str] | None = None
    deadline = time.monotonic() + SECONDS
    for _ in range(REDIRECTS):
        with get_session().stream("GET", url, headers=headers, follow_redirects=False, timeout=30) as response:
            first_headers = response.headers if first_headers is None else first_headers
            target = response.headers.get("Location") if 300 <= response.status_code < 400 else None
            if target is None:
                is_error = response.status_code >= 300
                data = _read(response.iter_bytes(1 << 20), LISTING if is_error else most, deadline, what)
                if is_error:  # the library's own error of an answer, given no more of it than was read
                    hub_headers = {
                        name: value for name, value in response.headers.items() if name.lower().startswith("x-")
                    }
                    request = response.request
                    hf_raise_for_status(
                        httpx.Response(response.status_code, headers=hub_headers, content=data, request=request)
                    )
                    raise UserError(f"{_host(str(response.url))} answers {response.status_code}")
                return data, first_headers
        target = urljoin(url, target)
        if not same_hub(url, target):
            raise UserError(
                f"{what}: {_host(url)} redirects to {_host(target)}, not a host of the Hub: nothing was loaded"
            )
        if urlsplit(target).netloc != urlsplit(url).netloc:  # the token is for the first server alone
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        url = target
    raise UserError(f"{what}: redirected more than {REDIRECTS} times")


def same_hub(url: str, target: str) -> bool:
    """Whether a redirect stays with the same server, below its name, or with the public Hub; never out of https."""
    source_url, target_url = urlsplit(url), urlsplit(target)
    if target_url.scheme not in ("http", "https") or (source_url.scheme, target_url.scheme) == ("https", "http"):
        return False
    host = target_url.hostname or ""
    is_public = target_url.scheme == "https" and any(host == name or host.endswith(f".{name}") for name in HOSTS)
    return source_url.netloc == target_url.netloc or host.endswith(f".{source_url.hostname}") or is_public


def _read(chunks: Iterable[bytes], most: int, deadline: float, what: str) -> bytes:
    data = bytearray()
    for chunk_bytes in chunks:
        data += chunk_bytes
        if len(data) > most:
            raise UserError(f"{what} is larger than the limit of {most:,} bytes: nothing was loaded")
        if time.monotonic() > deadline:
            raise UserError(f"{what} took longer than {SECONDS} seconds: nothing was loaded")
    return bytes(data)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2][:100]
