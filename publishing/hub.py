"""Files onto the Hub as one commit that changes only what differs. What the files hold is decided elsewhere."""

from dataclasses import dataclass

from stride.publishing.card import REPLAY
from stride.publishing.hub_client import Api, connect, endpoint, find_token, hub, hub_errors, list_files, retried
from stride.publishing.hub_run import BESIDES, NEEDED, PUBLISHED
from stride.utils.user_error import UserError


@dataclass(frozen=True)
class Pushed:
    """The result of a push."""

    url: str
    commit: str
    added: tuple[str, ...]
    deleted: tuple[str, ...]


def who_am_i() -> str:
    """The name behind the token."""
    with hub_errors(endpoint()):
        if not find_token():
            raise UserError("publishing needs a token: set HF_TOKEN or run `hf auth login` (--dry-run needs none)")
        return str(retried(connect().whoami)["name"])


def push(repo: str, files: dict[str, bytes], private: bool, message: str) -> Pushed:
    """Make `repo` hold exactly `files`; nothing is sent where it does already.

    Every attempt looks at what is there first, so an answer that was lost on the way does not lead to two commits.
    """
    api = connect()
    with hub_errors(repo):
        retried(lambda: api.create_repo(repo, private=private or None, exist_ok=True))
        return retried(lambda: _push_once(api, repo, files, private, message))


def _push_once(api: Api, repo: str, files: dict[str, bytes], private: bool, message: str) -> Pushed:
    info = api.repo_info(repo)
    if private and not info.private:
        raise UserError(f"{repo} exists and is public: nothing was sent; make it private there or give another --repo")
    there = {name: item for name, item in list_files(api, repo).items() if item}
    foreign = sorted(there.keys() - PUBLISHED - BESIDES)
    if foreign and not NEEDED.keys() <= there.keys():
        raise UserError(
            f"{repo} holds something else ({', '.join(foreign[:3])}): nothing was sent; give another --repo"
        )
    added = tuple(name for name in sorted(files) if name not in there or not there[name].fits(files[name]))
    if REPLAY in there and not {*added} & NEEDED.keys():  # the same policy: encoders need not repeat every byte
        added = tuple(name for name in added if name != REPLAY)
    deleted = tuple(sorted(there.keys() - files.keys() - BESIDES))
    if not added and not deleted:
        return Pushed(f"{endpoint()}/{repo}", str(info.sha), (), ())
    add, delete = hub().CommitOperationAdd, hub().CommitOperationDelete
    operations = [add(name, files[name]) for name in added] + [delete(name) for name in deleted]
    done = api.create_commit(repo, operations, commit_message=message, parent_commit=info.sha)
    return Pushed(f"{endpoint()}/{repo}", str(done.oid), added, deleted)
