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
    repository_info = api.repo_info(repo)
    if private and not repository_info.private:
        raise UserError(f"{repo} exists and is public: nothing was sent; make it private there or give another --repo")
    remote_files = {name: listed_file for name, listed_file in list_files(api, repo).items() if listed_file}
    foreign_names = sorted(remote_files.keys() - PUBLISHED - BESIDES)
    if foreign_names and not NEEDED.keys() <= remote_files.keys():
        raise UserError(
            f"{repo} has other files ({', '.join(foreign_names[:3])}): nothing was sent; give another --repo"
        )
    added = tuple(
        name for name in sorted(files) if name not in remote_files or not remote_files[name].fits(files[name])
    )
    if REPLAY in remote_files and not {*added} & NEEDED.keys():  # the same policy: encoders need not repeat every byte
        added = tuple(name for name in added if name != REPLAY)
    deleted = tuple(sorted(remote_files.keys() - files.keys() - BESIDES))
    if not added and not deleted:
        return Pushed(f"{endpoint()}/{repo}", str(repository_info.sha), (), ())
    additions, deletions = hub().CommitOperationAdd, hub().CommitOperationDelete
    operations = [additions(name, files[name]) for name in added] + [deletions(name) for name in deleted]
    commit_info = api.create_commit(repo, operations, commit_message=message, parent_commit=repository_info.sha)
    return Pushed(f"{endpoint()}/{repo}", str(commit_info.oid), added, deleted)
