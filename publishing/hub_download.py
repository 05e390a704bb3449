"""Downloads files from the Hub into memory: with limits on size and time, and only from the Hub's own hosts.

huggingface_hub's own download is not used, because it writes files under names from the answer's headers and follows
redirects to any host. Here its session, headers and errors are used, nothing is written to disk, and what arrives is
compared with what was requested.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from stride.publishing.hub_client import Listed, endpoint, find_token
from stride.utils.user_error import UserError

MAX_LISTING_BYTES = 1 << 20  # of a list of files, and of an error
PUBLIC_HOSTS = ("huggingface.co", "hf.co")  # of the public Hub; their subdomains have its large files
MAX_REDIRECTS, MAX_SECONDS = 5, 900  # of one download
COMMIT = re.compile(r"[0-9a-f]{40}")


def find_commit(repo: str, revision: str) -> str:
    """Return the hash of the commit that a revision (branch, tag or commit) means now."""
    revision_info = _json(f"{endpoint()}/api/models/{repo}/revision/{quote(revision, safe='')}", repo)
    commit = revision_info.get("sha") if isinstance(revision_info, dict) else None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise UserError(f"{repo}: {str(commit)[:60]!r} is not a commit hash")
    return commit


def list_commit(repo: str, commit: str) -> dict[str, Listed | None]:
    """Return path -> file, None for a folder, of everything in a commit."""
    entries = _json(f"{endpoint()}/api/models/{repo}/tree/{commit}?recursive=true", repo)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"{repo}: its list of files is not a list")
    return {str(entry.get("path")): _listed(entry, repo) for entry in entries}


def read_file(repo: str, commit: str, name: str, listed: Listed, most: int) -> bytes:
    """Return the content of a file; UserError unless it is the listed file of this commit.

    `most`: the limit in bytes."""
    url = f"{endpoint()}/{repo}/resolve/{commit}/{quote(name)}"
    data, headers = _get(url, min(most, listed.size), f"{repo}/{name}")
    if headers.get("X-Repo-Commit", commit) != commit:
        raise UserError(f"{repo}/{name} is of another commit than requested: nothing was loaded")
    if not listed.fits(data):
        raise UserError(f"{repo}/{name} is not the listed file: nothing was loaded")
    return data


def _listed(entry: Mapping[str, object], repo: str) -> Listed | None:
    """Return one entry of the Hub's list of files, None for a folder; UserError if it is malformed."""
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
    """Return the JSON at a URL; UserError if it is none, or only the first of several pages."""
    data, headers = _get(url, MAX_LISTING_BYTES, f"the facts of {repo}")
    if 'rel="next"' in headers.get("Link", ""):
        raise UserError(f"{repo} has more files than a published run: nothing was loaded")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the facts of {repo} at {endpoint()} are not JSON") from error


def _get(url: str, most: int, what: str) -> tuple[bytes, Mapping[str, str]]:
    """Return the bytes at a URL, and the headers of the first answer; redirects are followed within the Hub only.

    UserError for more than `most` bytes, or for another host; `what`: the name of the data in messages."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status, httpx

    # "identity" asks for no compression: a small compressed answer could unpack to far more than `most` bytes
    headers = {**build_hf_headers(token=find_token() or False), "Accept-Encoding": "identity"}
    first_headers: Mapping[str, str] | None = None
    deadline = time.monotonic() + MAX_SECONDS
    for _ in range(MAX_REDIRECTS):
        with get_session().stream("GET", url, headers=headers, follow_redirects=False, timeout=30) as response:
            first_headers = response.headers if first_headers is None else first_headers
            target = response.headers.get("Location") if 300 <= response.status_code < 400 else None
            if target is None:
                is_error = response.status_code >= 300
                data = _read(response.iter_bytes(1 << 20), MAX_LISTING_BYTES if is_error else most, deadline, what)
                if is_error:  # let the library raise its own error, from an answer with only the bytes that were read
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
        if urlsplit(target).netloc != urlsplit(url).netloc:  # the token must not go to another server
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        url = target
    raise UserError(f"{what}: redirected more than {MAX_REDIRECTS} times")


def same_hub(url: str, target: str) -> bool:
    """Return whether a redirect from `url` to `target` stays on the same server, its subdomains or the public Hub.

    A redirect from https to http is not accepted."""
    source_url, target_url = urlsplit(url), urlsplit(target)
    if target_url.scheme not in ("http", "https") or (source_url.scheme, target_url.scheme) == ("https", "http"):
        return False
    host = target_url.hostname or ""
    is_public = target_url.scheme == "https" and any(host == name or host.endswith(f".{name}") for name in PUBLIC_HOSTS)
    return source_url.netloc == target_url.netloc or host.endswith(f".{source_url.hostname}") or is_public


def _read(chunks: Iterable[bytes], most: int, deadline: float, what: str) -> bytes:
    """Join chunks of bytes; UserError if there are more than `most` bytes, or the deadline (time.monotonic) passed."""
    data = bytearray()
    for chunk_bytes in chunks:
        data += chunk_bytes
        if len(data) > most:
            raise UserError(f"{what} is larger than the limit of {most:,} bytes: nothing was loaded")
        if time.monotonic() > deadline:
            raise UserError(f"{what} took longer than {MAX_SECONDS} seconds: nothing was loaded")
    return bytes(data)


def _host(url: str) -> str:
    """Return host and port of a URL without user and password, for messages."""
    return urlsplit(url).netloc.rpartition("@")[2][:100]
