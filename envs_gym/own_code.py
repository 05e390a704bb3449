"""The user's own modules around a training: imported for what is trained here, and for a run that was trained here."""

from collections.abc import Mapping
from pathlib import Path

from stride.config.plugins import named_modules
from stride.envs_gym.make import UnknownEnvError, find_spec, import_module
from stride.envs_gym.remembered import recall, remember
from stride.runstore.run_dir import RunDir
from stride.utils.own_modules import can_import, folders_of, import_refusal, snapshot, use_folders, warn_unused
from stride.utils.user_error import UserError

HOW = "; --project FOLDER says where the code of a run lies"


def import_own_modules(*folders: Path) -> None:
    """What lies in the project, in `folders` and where one stands can be imported; what the project lists is.

    For a config that the user wrote or trained, never for one that came from elsewhere.
    """
    own = use_folders(*folders)
    warn_unused(*folders)
    for module in own.imports:
        import_module(f"{module}:")


def import_code_of(run: RunDir) -> None:
    """The same for a run that was trained here, with the folders that it was trained with.

    UserError, which names --project, where it needs modules of which it is not known where they lie.
    """
    folders, plain = recall(run.path), run.facts().get("config")
    import_own_modules(*folders)
    if not isinstance(plain, Mapping):
        return
    gone = "".join(f"; it was trained with {each}: {why}" for each in folders if (why := import_refusal(each)))
    for module, key in named_modules(plain).items():
        if key != "env_kwargs" and not can_import(module.partition(".")[0]):
            raise UserError(f"{run.id}: {key} names a module, {module!r}, that is not found{gone}{HOW}")
    try:
        find_spec(str(plain.get("env_id")))
    except UnknownEnvError as error:
        raise UserError(f"{run.id}: {error}{gone}; where your project registers it{HOW}") from error


def remember_code_of(run: RunDir, plain: Mapping[str, object]) -> None:
    """Keep, for `import_code_of`, in which folders the modules of the user's own lie that this config needs."""
    if folders := folders_of([*named_modules(plain), *snapshot().imports]):
        remember(run.path, folders)
