"""Sends the files of a run to the Hugging Face Hub, as one commit that changes only files that differ.

folder.py decides what the files contain.
"""

from dataclasses import dataclass

from stride.publishing.card import REPLAY
from stride.publishing.hub_client import Api, connect, endpoint, find_token, hub, hub_errors, list_files, retried
from stride.publishing.hub_run import NEEDED_FILES, OTHER_FILES, PUBLISHED_FILES
from stride.utils.user_error import UserError


@dataclass(frozen=True)
class Pushed:
    """The result of a push; without added and deleted files, nothing was sent."""

    url: str  # of the repository
    commit: str  # hash
    added: tuple[str, ...]  # names of files that are new or changed
    deleted: tuple[str, ...]


def who_am_i() -> str:
    """Return the user name that the token belongs to; UserError without a token."""
    with hub_errors(endpoint()):
        if not find_token():
            raise UserError("publishing needs a token: set HF_TOKEN or run `hf auth login` (--dry-run needs none)")
        return str(retried(connect().whoami)["name"])


def push(repo: str, files: dict[str, bytes], private: bool, message: str) -> Pushed:
    """Make `repo` contain exactly `files`, and create it if needed; send nothing if it already does.

    Every attempt first looks at what is there. So if an answer is lost, the next attempt makes no second commit.
    """
    api = connect()
    with hub_errors(repo):
        retried(lambda: api.create_repo(repo, private=private or None, exist_ok=True))
        return retried(lambda: _push_once(api, repo, files, private, message))


def _push_once(api: Api, repo: str, files: dict[str, bytes], private: bool, message: str) -> Pushed:
    """Compare and send once; UserError if the repository is public but should not be, or is not one of ours."""
    repository_info = api.repo_info(repo)
    if private and not repository_info.private:
        raise UserError(f"{repo} exists and is public: nothing was sent; make it private there or give another --repo")
    remote_files = {name: listed_file for name, listed_file in list_files(api, repo).items() if listed_file}
    foreign_names = sorted(remote_files.keys() - PUBLISHED_FILES - OTHER_FILES)
    if foreign_names and not NEEDED_FILES.keys() <= remote_files.keys():
        raise UserError(
            f"{repo} has other files ({', '.join(foreign_names[:3])}): nothing was sent; give another --repo"
        )
    added = tuple(
        name for name in sorted(files) if name not in remote_files or not remote_files[name].fits(files[name])
    )
    # a new film of an unchanged policy is not sent: video encoders may give other bytes for the same frames
    if REPLAY in remote_files and not {*added} & NEEDED_FILES.keys():
        added = tuple(name for name in added if name != REPLAY)
    deleted = tuple(sorted(remote_files.keys() - files.keys() - OTHER_FILES))
    if not added and not deleted:
        return Pushed(f"{endpoint()}/{repo}", str(repository_info.sha), (), ())
    additions, deletions = hub().CommitOperationAdd, hub().CommitOperationDelete
    operations = [additions(name, files[name]) for name in added] + [deletions(name) for name in deleted]
    commit_info = api.create_commit(repo, operations, commit_message=message, parent_commit=repository_info.sha)
    return Pushed(f"{endpoint()}/{repo}", str(commit_info.oid), added, deleted)
