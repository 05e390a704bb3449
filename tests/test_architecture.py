"""The house rules of docs/architecture.md, read off the source: who imports whom, what is never caught, never loaded.

Nothing is imported or run. A rule takes the parsed files and returns lines `file:line: what is wrong`.
"""

import ast
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path

import pytest

from lab import house_rules
from lab.house_rules import House, Source, at, dotted, read_house, storey

ROOT = Path(__file__).resolve().parent.parent


def names_of(table: str) -> tuple[str, ...]:
    """What stands in front of the colons, behind which is said why."""
    return tuple(name for line in table.strip().splitlines() for name in line.partition(": ")[0].split())


CUPY = "utils/cuda_kernels.py"  # who launches kernels; nobody else needs it
MAY_BE_HIDDEN = names_of("""
    IPython PIL ale_py av brax cupy cv2 dm_control gradio huggingface_hub hydra ipykernel jax matplotlib minigrid: heavy
    mujoco nbclient nbconvert nbformat onnx onnxruntime optuna pandas playwright pygame ray safetensors: heavy
    stable_baselines3 tensorboard trackio wandb wandb_workspaces: heavy
    difflib hashlib tomllib traceback: Python's own, milliseconds of each command
    inspector.played: brings torch, for those who look at a network, not for the tables
    envs_gym.check.examine: brings torch, for the process that checks, not for the one that waits
    agents.trained.tensors: brings torch, for who compares tensors
    envs_gym.task: brings torch, for a search in an environment that has no config of its own
    config.loader trainer_callbacks.watch: all schemas, for which a monitor's first screen does not wait
    runstore.run_state runstore.run_dir: 30 modules, which a list of ten thousand ended runs does not need
    stride.commands.train_several: brings numpy, for several runs, not for a word that is mistyped
    report.ledger.cleanup report.ledger.compare report.ledger.diff report.ledger.explain: one word of `stride runs` each
    report.ledger.export report.ledger.show report.ledger.written: likewise
    runstore.many.ray_pool utils.kernel_folder: on a node, before our modules are there; Numba alone
""")
TORCH = {"torch", "lightning", "pytorch_lightning"}  # lightning brings torch
LIGHT_FILES = {
    "utils": "user_error streams statistics provenance entry durable_file places",
    "trainer_callbacks": "sink watch memory_watch failed",
    "stride/commands": "train_opening train_several train_detached train_arguments train_values rank",
    "inspector": "charts compare guard markdown overview recorded reported runs scratch table videos",
}
LIGHT = ("config/", "report/", "runstore/")
LIGHT += tuple(f"{folder}/{name}.py" for folder, names in LIGHT_FILES.items() for name in names.split())
EMPTY_WORDS = {"util", "utils", "common", "helper", "helpers", "misc"}
DESERIALIZERS = ("agents/trained/loading.py", "lab/same_bits.py")  # the second reads runs of any checkout
# a file of a run is opened by runstore/run_files.py alone; these open something else
OPENERS = names_of("""
    runstore/run_files.py utils/durable_file.py: the door, and what it is made of
    runstore/run_dir.py runstore/run_index.py runstore/run_shelf.py: the folder of all runs, the index beside them
    runstore/many/ray_pool.py report/ledger/cleanup.py stride/commands/sweep.py: the folder of all runs
    report/ledger/show.py: what is in a run's folder is counted, and not opened
    runstore/run_lock.py report/monitor/machine.py utils/resources.py utils/devices.py envs_gym/doom.py: /proc and /sys
    agents/experience/storage.py: /proc, and the nameless file of a replay memory
    report/trackers/child.py utils/streams.py: its own stdin, /dev/null
    stride/commands/train_detached.py stride/commands/runs.py config/listing.py: where tmux is, how wide a terminal is
    utils/cuda_kernels.py utils/kernel_cache.py utils/kernel_folder.py: compiled kernels, and the project's own code
    agents/engines/fused_cpu/ envs_fast/numba_env.py: compiled kernels
    utils/provenance.py stride/commands/train_opening.py setup.py inspector/app.py: the project's own code
    config/bands.py config/metrics.py envs_gym/check/finding.py: the project's own data
    config/loader.py utils/user_error.py: YAML of the project or of the user
    config/scenarios.py config/general.py: what VizDoom, stable-retro and Gymnasium bring
    report/ledger/written.py stride/commands/new.py stride/commands/completion.py export/: files of the user's own
    stride/commands/run_publish.py envs_gym/own_code.py: the folder of a dry run, the user's state folder
    envs_gym/recorder.py: a recording, which lies where its caller says
    utils/video_file.py publishing/folder.py: the library that writes videos opens them; callers ask the door first
    inspector/scratch.py inspector/videos.py inspector/episode.py: the folder that is served
    lab/: evidence, and faults that are planted on purpose
""")
OPENED = "a run's file is opened by runstore/run_files.py"
OPENING = names_of("""
    FileHandler fdopen fromfile genfromtxt glob hardlink_to iterdir listdir loadtxt makedirs memmap mkdir open
    read_bytes read_text readlink rglob rmdir scandir symlink_to tofile touch unlink write_bytes write_text
""")
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
SAFE_LOADERS = {"SafeLoader", "CSafeLoader"}
FACES = ("envs_fast/__init__.py", "stride/__init__.py")  # packages that others use from outside
MOVER = "utils/own_modules.py"  # who puts the user's own folders on the path

Rule = Callable[[House], Iterator[str]]
Complaints = Iterator[tuple[int, str]]  # line of the file, what is wrong
RULES: list[Rule] = [
    house_rules.imports_run_downward,
    house_rules.core_imports_no_wing,
    house_rules.wings_import_no_wing,
    house_rules.no_circles,
]


def of_each_file(rule: Callable[[Source], Complaints]) -> None:
    @wraps(rule)
    def of_all(house: House) -> Iterator[str]:
        return (at(source, line, what) for source in house.values() for line, what in rule(source))

    RULES.append(of_all)


@of_each_file
def files_have_a_place_a_name_and_a_docstring(source: Source) -> Complaints:
    for word in source.name.removeprefix("utils").split("."):
        if word in EMPTY_WORDS:
            yield 1, f"a module called {word!r} says nothing"
    guard = f'if __name__ == "{source.name}":\n    raise ImportError("write stride.{source.name}")'  # no class twice
    if source.path.endswith("__init__.py"):
        if source.text.strip() not in ("", guard) and source.path not in FACES:
            yield 1, "an __init__.py is empty, but for the line that refuses its old name"
        return
    if storey(source.path) is None:
        yield 1, "belongs to no storey; STOREYS in lab/house_rules.py lists them"
    if not (ast.get_docstring(source.tree) or "").strip():
        yield 1, "no docstring on top"


@of_each_file
def imports_stand_on_top_and_run_nothing(source: Source) -> Complaints:
    """CuPy is only there where there is a GPU."""
    for target, line, hidden in source.imports:
        package = target.split(".")[0]
        if hidden and {target, package}.isdisjoint(MAY_BE_HIDDEN):
            yield line, f"imports {target} inside a function or class"
        if package == "cupy" and (source.path != CUPY or not hidden):
            yield line, f"CuPy is imported by {CUPY} alone, inside a function"
        if package in UNSAFE_MODULES:
            yield line, f"{target} runs what it loads"


@of_each_file
def nobody_moves_the_path(source: Source) -> Complaints:
    """What is run from the root by its dotted name finds its neighbours, and its imports can stand on top."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if source.path != MOVER and ("sys.path." in line or "noqa: E402" in line):
            yield number, "python -m needs no path of its own, nor imports below other lines"


@RULES.append
def light_modules_do_not_load_torch(house: House) -> Iterator[str]:
    for source in house.values():
        if source.path.startswith(LIGHT) and (way := way_to_torch(house, source.name)):
            line = next(line for target, line, _ in source.imports if target == way[1])
            yield at(source, line, f"loads torch: {' -> '.join(way)}")


def way_to_torch(house: House, start: str) -> tuple[str, ...]:
    """The shortest chain of imports from `start` to torch, () where there is none."""
    ways, seen = [(start,)], {start}
    for way in ways:  # grows while it is walked
        for target, _, _ in house[way[-1]].imports:
            if target.split(".")[0] in TORCH:
                return (*way, target)
            if target in house and target not in seen:
                seen.add(target)
                ways.append((*way, target))
    return ()


@of_each_file
def nothing_is_swallowed(source: Source) -> Complaints:
    """Broad handlers are only for those who pass the error on: they end with `raise`, or `raise ... from error`."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and is_broad(node.type):
            last = node.body[-1]
            if not isinstance(last, ast.Raise) or (last.exc is not None and last.cause is None):
                yield node.lineno, "catches everything"
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress") and any(map(is_broad, node.args)):
            yield node.lineno, "suppresses everything"


def is_broad(errors: ast.expr | None) -> bool:
    """Whether these are all errors: none named, or the class of all among them."""
    if isinstance(errors, ast.Tuple):
        return any(map(is_broad, errors.elts))
    return errors is None or dotted(errors) in ("Exception", "BaseException")


@of_each_file
def only_plain_data_is_loaded(source: Source) -> Complaints:
    classes = [node for node in source.nodes if isinstance(node, ast.ClassDef)]
    own_loaders = {c.name for c in classes if any(dotted(b).split(".")[-1] in SAFE_LOADERS for b in c.bases)}
    for node in source.nodes:
        if isinstance(node, ast.Call) and (what := unsafe_call(node, source.path, SAFE_LOADERS | own_loaders)):
            yield node.lineno, what
        elif isinstance(node, ast.ImportFrom) and node.module in ("torch", "yaml"):
            loads = [alias.name for alias in node.names if "load" in alias.name.lower().split("_")]
            yield from ((node.lineno, f"write {node.module}.{name}, so that it is found") for name in loads)


def unsafe_call(call: ast.Call, path: str, safe_loaders: set[str]) -> str:
    """What is wrong with a call, or ""."""
    name = dotted(call.func)
    options = {option.arg: option.value for option in call.keywords}
    if name in ("eval", "exec", "builtins.eval", "builtins.exec"):
        return f"{name} runs text"
    if name == "torch.load" and path not in DESERIALIZERS:
        return f"torch.load belongs to {' and '.join(DESERIALIZERS)}"
    if name == "torch.load":
        return "" if is_constant(options.get("weights_only"), True) else "torch.load without weights_only=True"
    if name in ("np.load", "numpy.load") and not is_constant(options.get("allow_pickle", ast.Constant(False)), False):
        return "allow_pickle runs what it loads"
    if name in ("yaml.load", "yaml.load_all"):
        loader = options.get("Loader") or (call.args[1] if len(call.args) > 1 else None)
        return "" if dotted(loader).split(".")[-1] in safe_loaders else f"{name} without a safe loader"
    unsafe = name.startswith("yaml.") and ("unsafe" in name or "full_load" in name)
    return f"{name} runs what it loads" if unsafe else ""


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


@of_each_file
def runs_are_opened_by_one_door(source: Source) -> Complaints:
    for node in () if source.path.startswith(OPENERS) else source.nodes:
        names = []
        if isinstance(node, ast.Call):
            names = [dotted(node.func)]
        elif isinstance(node, ast.ImportFrom) and node.module in ("stride.utils.durable_file", "shutil"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from ((node.lineno, f"{name}: {OPENED}") for name in names if opens(name))


def opens(name: str) -> bool:
    """Whether a call or an import of this name could get at a run's file past the door."""
    module, _, last = name.rpartition(".")
    if module in ("shutil", "stride.utils.durable_file"):
        return last not in ("check_room", "OUT_OF_ROOM", "OUT_OF_HANDLES")
    return module != "run_files" and (last in OPENING or name in ("os.replace", "os.rename"))


GOOD = {  # a house that breaks no rule: file -> its text below a docstring
    "utils/user_error.py": "import torch_free",
    "utils/wings.py": 'WINGS = {"fast": "agents.engines.graphed"}',
    "config/loader.py": "from utils import user_error\nfrom config.yaml_file import Loader",
    "config/yaml_file.py": 'class Loader(yaml.SafeLoader): ...\nyaml.load("", Loader)',
    "agents/ppo.py": "import torch\nfrom agents.base import Agent\nnet.eval()",
    "agents/base.py": "from config.loader import load",
    "agents/engines/graphed.py": "from agents.ppo import PPO\ndef f():\n    import wandb",
    "agents/engines/fused_cpu/bind.py": "from agents.engines.fused_cpu.kernels import nets, returns\n"
    'ALL = {"forward": nets.forward, "judge": returns.judge, "size": 3}',
    "agents/engines/fused_cpu/kernels/nets.py": "def forward(f):\n    call(f.judge)",
    "agents/engines/fused_cpu/kernels/returns.py": "def judge(f):\n    return f.size",
    "agents/trained/loading.py": "import torch\ntorch.load(path, weights_only=True)",
    "train.py": "import agents.engines.graphed\ntry: ...\nexcept BaseException:\n    log()\n    raise",
}
BREACHES = r"""
lib/x.py                  | x                                                    | 1: belongs to no storey
utils/a.py                | import stride.config.loader                          | 2: imports config.loader
agents/base.py            | from stride.agents import ppo                        | 2: imports agents.ppo
agents/dqn.py             | from . import base                                   | 2: relative import
agents/dqn.py             | import stride.agents.engines.graphed                 | 2: the core takes agents.engines.gra
agents/dqn.py             | WHERE = 'agents.engines.graphed:graphed'             | 2: the core takes agents.engines.gra
report/x.py               | import stride.agents.engines.graphed                 | 2: the wing report takes agents.engi
report/x.py               | from stride.utils.wings import load_wing             | 2: the wing report asks for wings
agents/base.py            | import stride.agents.ppo                             | 2: circle agents.ppo -> agents.base
agents/engines/fused_cpu/kernels/returns.py | def judge(f):\n    call(f.forward) | 3: circle agents.engines.fused_cpu
train.py                  | def f():\n    import torch                           | 3: imports torch inside a function
envs_fast/buffers.py      | def f():\n    import cupy.cuda                       | 3: CuPy is imported by
utils/cuda_kernels.py     | from cupy import cuda                                | 2: CuPy is imported by
scripts/x.py              | sys.path.insert(0, ROOT)                             | 2: python -m needs no path
train.py                  | import stride.config.loader  # noqa: E402            | 2: python -m needs no path
config/yaml_file.py       | import lightning                                     | 2: loads torch: config.yaml_file ->
config/loader.py          | import json\nimport stride.agents.ppo                | 3: loads torch: config.loader -> age
train.py                  | try: ...\nexcept: ...                                | 3: catches everything
train.py                  | try: ...\nexcept Exception:\n    raise KeyError      | 3: catches everything
train.py                  | with contextlib.suppress(Exception): ...             | 2: suppresses everything
agents/common.py          | x                                                    | 1: a module called 'common'
agents/dqn.py             |                                                      | 1: no docstring on top
utils/__init__.py         | x                                                    | 1: an __init__.py is empty
train.py                  | import pickle                                        | 2: pickle runs what it loads
train.py                  | eval('1')                                            | 2: eval runs text
train.py                  | torch.load(x, weights_only=True)                     | 2: torch.load belongs to
train.py                  | from torch import load                               | 2: write torch.load
train.py                  | np.load(x, allow_pickle=True)                        | 2: allow_pickle runs
train.py                  | yaml.load(x, yaml.Loader)                            | 2: yaml.load without a safe loader
agents/trained/loading.py | torch.load(x)                                        | 2: torch.load without weights_only
agents/base.py            | (run.path / 'x').read_text()                         | 2: .read_text: a run's file
train.py                  | shutil.copyfile(run.metrics_csv, x)                  | 2: shutil.copyfile: a run's file
train.py                  | os.open(run.path / '.lock', 0)                       | 2: os.open: a run's file
runstore/run_log.py       | logging.FileHandler(path)                            | 2: logging.FileHandler: a run's file
"""  # file | its text below a docstring | line: how the complaint begins
CASES = [[cell.strip() for cell in line.split(" | ")] for line in BREACHES.strip().splitlines()]


@pytest.fixture(scope="module")
def house():
    sources = read_house(ROOT)
    assert {"train", "agents.base", "utils.user_error"} <= sources.keys()
    return sources


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rules(house, rule):
    broken = list(rule(house))
    assert not broken, "\n" + "\n".join(broken)


def test_the_table_of_kernels_is_read(house):
    imports = [target for calls in house_rules.calls_by_address(house).values() for target in calls]
    files = {target.rpartition(".")[2] for target, *_ in imports}
    assert {"nets", "layers", "heads", "policy_gradient", "returns", "shuffle"} <= files


def complaints(root, texts):
    """Of all rules, about a made-up checkout."""
    for path, text in (GOOD | texts).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f'"""."""\n{text}' if text else "")
    house = read_house(root)
    return [line for rule in RULES for line in rule(house)]


@pytest.mark.parametrize(("path", "text", "complaint"), CASES, ids=map(" ".join, CASES))
def test_a_broken_rule_is_named_with_its_place(tmp_path, path, text, complaint):
    assert complaints(tmp_path, {"utils/__init__.py": ""}) == [], "a good house passes"
    lines = complaints(tmp_path, {path: text.replace(r"\n", "\n")})
    assert any(line.startswith(f"{path}:{complaint}") for line in lines), lines
