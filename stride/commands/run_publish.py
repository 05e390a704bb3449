"""Publish a trained agent on the Hugging Face Hub: python run_publish.py --dry-run (--help shows all flags)

Top to bottom: arguments -> loaded run -> 100 fresh episodes, a video, a model card -> one commit, or none.
"""

from stride.utils import quick_start  # isort: skip  # before all others

import json
import sys
import tempfile
from pathlib import Path

from stride.commands.run_arguments import TEMPORARY, look_for_run, parse_publish, plain_name
from stride.utils import entry

if __name__ == "__main__":
    entry.begin(look_for_run(parse_publish), "loading torch ...")  # here, as the imports below take seconds

import stride.utils.lean_lightning  # isort: skip  # noqa: F401  # before any import of Lightning

import torch

from stride.agents.trained.loading import load_run
from stride.envs_gym.gym_env import EnvError
from stride.publishing.facts import WrittenText, findings, public_facts, refuse, shown, written_texts
from stride.publishing.folder import build_files, check_nothing_left, refusal
from stride.publishing.hub import Pushed, push, who_am_i
from stride.publishing.hub_client import check_repo, find_token
from stride.publishing.hub_run import FACTS, WEIGHTS
from stride.publishing.own_secrets import Secret, find_own
from stride.utils.places import PLAY
from stride.utils.user_error import UserError

quick_start.loaded()

NOBODY = "user"  # owner of the repository in a dry run, which does not ask the Hub for the user's name


def main(argv: list[str]) -> int:
    arguments = parse_publish(argv)
    if arguments.repo:
        check_repo(arguments.repo)
    loaded = load_run(arguments.run_id, arguments.checkpoint, arguments.trust)
    torch.set_num_threads(loaded.config.torch_threads)
    for note in loaded.notes:
        say(note)
    public_info, secrets = public_facts(loaded), find_own(find_token())
    message = arguments.message or f"Publish {loaded.config.env_id}:{loaded.config.variant}"
    show_texts(
        [*written_texts(public_info), WrittenText("--message", arguments.message)], secrets, arguments.allow_text
    )
    is_dry_run = arguments.folder is not None
    owner = NOBODY if is_dry_run else who_am_i()  # a wrong token is refused before the episodes are played
    repo = arguments.repo or check_repo(f"{owner}/{plain_name(loaded.config.env_id, loaded.config.variant)}")
    say(f"publishing {loaded.run.id}, {loaded.checkpoint}, as {repo}")
    files = build_files(loaded, repo, public_info, say)
    check_nothing_left({**files, "--message": message.encode()}, secrets)
    if is_dry_run:
        write_folder(files, arguments.folder)
        return 0
    say(sentence(push(repo, files, arguments.private, message)))
    if not refusal(json.loads(files[FACTS]), len(files[WEIGHTS])):
        say(f"play it    {PLAY} --run-id hub:{repo}")
    return 0


def show_texts(texts: list[WrittenText], secrets: list[Secret], allowed: bool) -> None:
    """Print texts that a person wrote, before they are sent; UserError if one looks like a secret, unless `allowed`."""
    suspicious = findings(texts, secrets)
    if not allowed:
        refuse(suspicious)
    for finding in suspicious:
        say(f"allowed    {finding}")
    for line in shown(texts):
        say(f"to send    {line}")


def write_folder(files: dict[str, bytes], wanted: str) -> None:
    """Write the files that would be sent into a folder; other files in it stay."""
    folder = Path(tempfile.mkdtemp(prefix="stride-publish-") if wanted == TEMPORARY else wanted)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise UserError(f"--dry-run cannot write into {folder}: {error.strerror}") from error
    print(files["README.md"].decode())
    for name, data in files.items():
        say(f"{len(data):>12,} bytes  {folder / name}")
    say("nothing was sent")


def sentence(pushed: Pushed) -> str:
    if not pushed.added and not pushed.deleted:
        return f"nothing changed: {pushed.url} stays at commit {pushed.commit[:7]}"
    removed = f", removed {', '.join(pushed.deleted)}" if pushed.deleted else ""
    return f"published  {pushed.url} at commit {pushed.commit[:7]}: {', '.join(pushed.added)}{removed}"


def say(text: str) -> None:
    print(text, flush=True)


def command(argv: list[str]) -> int:
    """Run main and return the exit code; errors become one line. 1: the environment failed; 2: any other error."""
    return entry.ended(main, argv, EnvError)


if __name__ == "__main__":
    quick_start.leave(command(sys.argv[1:]))
