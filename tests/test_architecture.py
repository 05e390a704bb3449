"""The house rules of docs/architecture.md, read off the source: who imports whom, what is never caught, never loaded.

Nothing is imported or run; every rule takes the parsed files and returns lines `file:line: what is wrong`.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.house_rules import (
    House,
    Source,
    at,
    calls_by_address,
    core_imports_no_wing,
    dotted,
    imports_run_downward,
    no_circles,
    read_house,
    storey,
    wings_import_no_wing,
)

ROOT = Path(__file__).resolve().parent.parent
HEAVYWEIGHTS = {"cupy", "wandb", "gradio", "huggingface_hub", "safetensors", "stable_baselines3", "matplotlib", "av"}
HEAVYWEIGHTS |= {"pygame", "PIL", "hydra", "playwright", "onnx", "onnxruntime", "pandas", "IPython", "ipykernel"}
HEAVYWEIGHTS |= {"brax", "jax"}
HEAVYWEIGHTS |= {"nbclient", "nbconvert", "nbformat", "trackio", "wandb_workspaces", "dm_control", "mujoco", "minigrid"}
HEAVYWEIGHTS |= {"ale_py", "cv2", "ray", "optuna", "tensorboard"}
CUPY = "utils/cuda_kernels.py"  # who launches kernels; nobody else needs it
LAZY = {"inspector.played"}  # brings torch: for those who look at a network, not for the tables
LAZY |= {"envs_gym.check.examine"}  # likewise: for the process that checks, not for the one that waits
LAZY |= {"config.loader", "trainer_callbacks.watch"}  # all schemas: a monitor's first screen does not wait for them
WORDS = ("show", "compare", "export", "written", "cleanup", "explain", "diff")
LAZY |= {f"report.ledger.{word}" for word in WORDS}  # each of one word of `stride runs`
LAZY |= {"runstore.run_state", "runstore.run_dir"}  # 30 modules: a list of ten thousand ended runs needs neither
LAZY |= {"difflib", "hashlib", "tomllib", "traceback"}  # Python's own: milliseconds of each command
LAZY |= {"stride.commands.train_several"}  # likewise brings numpy: for several runs, not for a word that is mistyped
LAZY |= {"agents.trained.tensors"}  # brings torch: for who compares tensors
LAZY |= {"envs_gym.task"}  # likewise: for a search in an environment that has no config of its own
LAZY |= {
    "runstore.many.ray_pool",
    "utils.kernel_folder",
}  # on a node, before our modules are there; Numba alone
TORCH = {"torch", "lightning", "pytorch_lightning"}  # lightning brings torch
LIGHT_UTILS = ("user_error", "streams", "statistics", "provenance", "entry", "durable_file", "places")
LIGHT = ("config/", "report/", "runstore/", *(f"utils/{name}.py" for name in LIGHT_UTILS))
LIGHT += tuple(f"trainer_callbacks/{name}.py" for name in ("sink", "watch", "memory_watch", "failed"))
LIGHT += tuple(f"stride/commands/train_{name}.py" for name in ("opening", "several", "detached", "arguments", "values"))
LIGHT_ROOMS = (
    "charts",
    "compare",
    "guard",
    "markdown",
    "overview",
    "recorded",
    "reported",
)
LIGHT_ROOMS += ("runs", "scratch", "table", "videos")
LIGHT += tuple(f"inspector/{name}.py" for name in LIGHT_ROOMS)
EMPTY_WORDS = {"util", "utils", "common", "helper", "helpers", "misc"}
DESERIALIZERS = ("agents/trained/loading.py", "lab/same_bits.py")  # the second reads runs of any checkout
# a file of a run is opened by runstore/run_files.py alone; these open what is none
OPENERS = {
    "runstore/run_files.py": "the door",
    "utils/durable_file.py": "files of the project, and what the door is made of",
    "runstore/run_dir.py": "the folder of all runs, and a new run in it",
    "runstore/run_lock.py": "/proc",
    "config/scenarios.py": "the files of VizDoom's scenarios and of stable-retro's games",
    "envs_gym/check/finding.py": "the texts of findings",
    "envs_gym/doom.py": "/proc, and an empty folder that the game makes where one stands",
    "envs_gym/recorder.py": "a recording, which lies where its caller says",
    "stride/commands/train_detached.py": "where tmux is",
    "report/monitor/machine.py": "/proc",
    "report/trackers/child.py": "its own stdin",
    "utils/cuda_kernels.py": "compiled kernels, and the project's own code",
    "utils/kernel_cache.py": "compiled kernels, and the project's own code",
    "utils/kernel_folder.py": "compiled kernels, and the project's own code",
    "utils/resources.py": "/proc and /sys",
    "utils/devices.py": "/proc",
    "runstore/many/ray_pool.py": "a file in the folder of all runs, by which a node shows that it sees it",
    "envs_gym/own_code.py": "the user's state folder",
    "utils/provenance.py": "the project's own code",
    "utils/video_file.py": "the library that writes videos opens them itself; callers ask the door first",
    "config/general.py": "Gymnasium's own list of ids",
    "config/bands.py": "the project's own data",
    "config/listing.py": "how wide the terminal is",
    "config/metrics.py": "metrics.yaml",
    "config/loader.py": "YAML of the project or of the user",
    "stride/commands/train_opening.py": "the project's own code",
    "utils/user_error.py": "YAML of the project or of the user",
    "utils/streams.py": "/dev/null",
    "agents/experience/storage.py": "/proc, and the nameless file of a replay memory",
    "agents/engines/fused_cpu/": "compiled kernels",
    "envs_fast/numba_env.py": "compiled kernels",
    "stride/commands/run_publish.py": "the folder of a dry run",
    "export/": "the exported file, and what it is compiled with to be verified",
    "lab/": "evidence, and faults that are planted on purpose",
    "stride/commands/completion.py": "names of files that the user is typing",
    "stride/commands/new.py": "a new project of the user's own",
    "stride/commands/runs.py": "how wide the terminal is",
    "stride/commands/sweep.py": "the folder of a search",
    "setup.py": "the links of src/",
    "inspector/app.py": "the page's own scripts and styles",
    "runstore/run_index.py": "the folder of all runs",
    "runstore/run_shelf.py": "the index beside the runs, which is made anew",
    "report/ledger/written.py": "a file of the user's own",
    "report/ledger/show.py": "what lies in a run's folder is counted, and not opened",
    "report/ledger/cleanup.py": "the folder of all runs",
    "inspector/scratch.py": "the folder that is served",
    "inspector/videos.py": "the folder that is served; videos are read through the door",
    "inspector/episode.py": "the folder that is served",
    "publishing/folder.py": "the video it has just made",
}
OPENED = "a run's file is opened by runstore/run_files.py"
OPENING = {"open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "rglob",
           "scandir", "listdir", "readlink", "unlink", "rmdir", "mkdir", "makedirs", "symlink_to", "hardlink_to",
           "touch", "FileHandler", "memmap", "fromfile", "tofile", "loadtxt", "genfromtxt"}  # fmt: skip
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
SAFE_LOADERS = {"SafeLoader", "CSafeLoader"}
FACES = ("envs_fast/__init__.py", "stride/__init__.py")  # packages that others use from outside
MOVER = "utils/own_modules.py"  # who puts the user's own folders on the path


def everyone_has_a_storey(house: House) -> Iterator[str]:
    for source in house.values():
        if Path(source.path).name != "__init__.py" and storey(source.path) is None:
            yield at(source, 1, "belongs to no storey; STOREYS in lab/house_rules.py lists them")


def imports_stand_on_top(house: House) -> Iterator[str]:
    for source in house.values():
        for target, line, hidden in source.imports:
            if hidden and target.split(".")[0] not in HEAVYWEIGHTS and target not in LAZY:
                yield at(source, line, f"imports {target} inside a function or class")


def cupy_has_one_door(house: House) -> Iterator[str]:
    """It is only there where there is a GPU."""
    for source in house.values():
        for target, line, hidden in source.imports:
            if target.split(".")[0] == "cupy" and (source.path != CUPY or not hidden):
                yield at(source, line, f"CuPy is imported by {CUPY} alone, inside a function")


def nobody_moves_the_path(house: House) -> Iterator[str]:
    """What is run from the root by its dotted name finds its neighbours, and its imports can stand on top."""
    for source in (source for source in house.values() if source.path != MOVER):
        for number, line in enumerate(source.text.splitlines(), 1):
            if "sys.path." in line or "noqa: E402" in line:
                yield at(source, number, "python -m needs no path of its own, nor imports below other lines")


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


def nothing_is_swallowed(house: House) -> Iterator[str]:
    """Broad handlers are only for those who pass the error on: they end with `raise`, or `raise ... from error`."""
    broad = {"Exception", "BaseException"}
    for source in house.values():
        for node in source.nodes:
            if isinstance(node, ast.ExceptHandler):
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                last = node.body[-1]
                passed_on = isinstance(last, ast.Raise) and (last.exc is None or last.cause is not None)
                if any(kind is None or dotted(kind) in broad for kind in kinds) and not passed_on:
                    yield at(source, node.lineno, "catches everything")
            elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress"):
                yield from (at(source, x.lineno, "suppresses everything") for x in node.args if dotted(x) in broad)


def names_say_something(house: House) -> Iterator[str]:
    for source in house.values():
        for word in source.name.split(".")[source.name.startswith("utils") :]:
            if word in EMPTY_WORDS:
                yield at(source, 1, f"a module called {word!r} says nothing")


def modules_introduce_themselves(house: House) -> Iterator[str]:
    for source in house.values():
        if source.path.endswith("__init__.py"):
            if source.text.strip() not in ("", guard_of(source)) and source.path not in FACES:
                yield at(source, 1, "an __init__.py is empty, but for the line that refuses its old name")
        elif not (ast.get_docstring(source.tree) or "").strip():
            yield at(source, 1, "no docstring on top")


def guard_of(source: Source) -> str:
    """At the top of a package: one import root, and so no class twice."""
    return f'if __name__ == "{source.name}":\n    raise ImportError("write stride.{source.name}")'


def only_plain_data_is_loaded(house: House) -> Iterator[str]:
    for source in house.values():
        for target, line, _ in source.imports:
            if target.split(".")[0] in UNSAFE_MODULES:
                yield at(source, line, f"{target} runs what it loads")
        classes = [node for node in source.nodes if isinstance(node, ast.ClassDef)]
        own_loaders = {c.name for c in classes if any(dotted(b).split(".")[-1] in SAFE_LOADERS for b in c.bases)}
        for node in source.nodes:
            if isinstance(node, ast.Call) and (what := unsafe_call(node, source.path, own_loaders)):
                yield at(source, node.lineno, what)
            elif isinstance(node, ast.ImportFrom) and node.module in ("torch", "yaml"):
                loads = [alias.name for alias in node.names if "load" in alias.name.lower().split("_")]
                yield from (at(source, node.lineno, f"write {node.module}.{x}, so that it is found") for x in loads)


def unsafe_call(call: ast.Call, path: str, own_loaders: set[str]) -> str:
    """What is wrong with a call, or ""."""
    name = dotted(call.func)
    options = {option.arg: option.value for option in call.keywords}
    if name in ("eval", "exec", "builtins.eval", "builtins.exec"):
        return f"{name} runs text"
    if name == "torch.load":
        if path not in DESERIALIZERS:
            return f"torch.load belongs to {' and '.join(DESERIALIZERS)}"
        return "" if is_constant(options.get("weights_only"), True) else "torch.load without weights_only=True"
    if name in ("np.load", "numpy.load") and not is_constant(options.get("allow_pickle", ast.Constant(False)), False):
        return "allow_pickle runs what it loads"
    if name in ("yaml.load", "yaml.load_all"):
        loader = options.get("Loader") or (call.args[1] if len(call.args) > 1 else None)
        known = SAFE_LOADERS | own_loaders
        return "" if loader is not None and dotted(loader).split(".")[-1] in known else f"{name} without a safe loader"
    unsafe = name.startswith("yaml.") and ("unsafe" in name or "full_load" in name)
    return f"{name} runs what it loads" if unsafe else ""


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def runs_are_opened_by_one_door(house: House) -> Iterator[str]:
    for source in house.values():
        found: list[tuple[int, str]] = []
        for node in source.nodes:
            if isinstance(node, ast.Call):
                found.append((node.lineno, dotted(node.func)))
            elif isinstance(node, ast.ImportFrom) and node.module in ("stride.utils.durable_file", "shutil"):
                found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        if not source.path.startswith(tuple(OPENERS)):
            yield from (at(source, line, f"{name}: {OPENED}") for line, name in found if opens(name))


def opens(name: str) -> bool:
    """Whether a call or an import of this name could get at a run's file past the door."""
    module, _, last = name.rpartition(".")
    if module in ("shutil", "stride.utils.durable_file"):
        return last not in ("check_room", "OUT_OF_ROOM", "OUT_OF_HANDLES")
    return module != "run_files" and (last in OPENING or name in ("os.replace", "os.rename"))


RULES: tuple[Callable[[House], Iterator[str]], ...] = (
    everyone_has_a_storey,
    imports_run_downward,
    core_imports_no_wing,
    wings_import_no_wing,
    no_circles,
    imports_stand_on_top,
    cupy_has_one_door,
    nobody_moves_the_path,
    light_modules_do_not_load_torch,
    nothing_is_swallowed,
    names_say_something,
    modules_introduce_themselves,
    only_plain_data_is_loaded,
    runs_are_opened_by_one_door,
)


@pytest.fixture(scope="module")
def house():
    found = read_house(ROOT)
    assert {"train", "agents.base", "utils.user_error"} <= found.keys()
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rules(house, rule):
    broken = list(rule(house))
    assert not broken, "\n" + "\n".join(broken)


GOOD = {
    "utils/__init__.py": "",
    "utils/user_error.py": '"""Errors."""\nimport torch_free\n',
    "utils/wings.py": '"""Wings."""\nWINGS = {"fast": "agents.engines.graphed"}\n',
    "config/loader.py": '"""Loads."""\nfrom utils import user_error\nfrom config.yaml_file import Loader\n',
    "config/yaml_file.py": '"""Reads."""\nclass Loader(yaml.SafeLoader): ...\nyaml.load("", Loader)\n',
    "agents/ppo.py": '"""PPO."""\nimport torch\nfrom agents.base import Agent\nnet.eval()\n',
    "agents/base.py": '"""Agent."""\nfrom config.loader import load\n',
    "agents/engines/graphed.py": '"""Fast."""\nfrom agents.ppo import PPO\ndef f():\n    import wandb\n',
    "agents/trained/loading.py": '"""Loads."""\nimport torch\ntorch.load(path, weights_only=True)\n',
    "train.py": '"""Trains."""\nimport agents.engines.graphed\ntry: ...\nexcept BaseException:\n    log()\n    raise\n',
}

DOOR = "runs_are_opened_by_one_door"
LOAD = "only_plain_data_is_loaded"
CORE, WING = "core_imports_no_wing", "wings_import_no_wing"
FROM_CORE = "the core takes agents.engines.graphed from the wing engines"
FROM_REPORT = "the wing report takes agents.engines.graphed from the wing engines"
BAD = [  # (rule, file, what stands under its docstring, the complaint)
    ("everyone_has_a_storey", "lib/x.py", "", "lib/x.py:1: belongs to no storey"),
    ("everyone_has_a_storey", "agents/lib/x.py", "", "agents/lib/x.py:1: belongs to no storey"),
    ("imports_run_downward", "utils/a.py", "import stride.config.loader", "utils/a.py:2: imports config.loader"),
    ("imports_run_downward", "agents/base.py", "from stride.agents import ppo", "agents/base.py:2: imports agents.ppo"),
    (
        "imports_run_downward",
        "agents/dqn.py",
        "def f():\n    import train",
        "agents/dqn.py:3: imports train",
    ),
    ("imports_run_downward", "agents/dqn.py", "from . import base", "agents/dqn.py:2: relative import"),
    (CORE, "agents/dqn.py", "import stride.agents.engines.graphed", f"agents/dqn.py:2: {FROM_CORE}"),
    (CORE, "agents/dqn.py", "WHERE = 'agents.engines.graphed:graphed'", f"agents/dqn.py:2: {FROM_CORE}"),
    (CORE, "agents/dqn.py", "def f():\n    from stride.agents.engines import graphed", f"agents/dqn.py:3: {FROM_CORE}"),
    (WING, "report/x.py", "import stride.agents.engines.graphed", f"report/x.py:2: {FROM_REPORT}"),
    (WING, "report/x.py", "WHERE = 'stride.agents.engines.graphed'", f"report/x.py:2: {FROM_REPORT}"),
    (WING, "report/x.py", "from stride.utils.wings import load_wing", "report/x.py:2: the wing report asks for wings"),
    ("no_circles", "agents/base.py", "import stride.agents.ppo", "circle agents.ppo -> agents.base -> agents.ppo"),
    ("imports_stand_on_top", "train.py", "def f():\n    import torch", "train.py:3: imports torch inside"),
    (
        "cupy_has_one_door",
        "envs_fast/buffers.py",
        "def f():\n    import cupy.cuda",
        "buffers.py:3: CuPy is imported by",
    ),
    ("cupy_has_one_door", CUPY, "from cupy import cuda", f"{CUPY}:2: CuPy is imported by"),
    ("nobody_moves_the_path", "scripts/x.py", "sys.path.insert(0, ROOT)", "scripts/x.py:2: python -m needs no path"),
    ("nobody_moves_the_path", "train.py", "import stride.config.loader  # noqa: E402", "train.py:2: python -m needs"),
    ("light_modules_do_not_load_torch", "utils/user_error.py", "import lightning", "config/loader.py:2: loads torch"),
    ("nothing_is_swallowed", "train.py", "try: ...\nexcept (KeyError, Exception): ...", "train.py:3: catches"),
    ("nothing_is_swallowed", "train.py", "try: ...\nexcept: ...", "train.py:3: catches"),
    ("nothing_is_swallowed", "train.py", "with contextlib.suppress(Exception): ...", "train.py:2: suppresses"),
    ("names_say_something", "agents/common.py", "", "agents/common.py:1: a module called 'common'"),
    ("modules_introduce_themselves", "utils/__init__.py", "", "utils/__init__.py:1: an __init__.py is empty"),
    (LOAD, "train.py", "import pickle", "train.py:2: pickle runs"),
    (LOAD, "train.py", "eval('1')", "train.py:2: eval runs"),
    (LOAD, "train.py", "torch.load(x, weights_only=True)", "train.py:2: torch.load belongs"),
    (LOAD, "train.py", "from torch import load", "train.py:2: write torch.load"),
    (LOAD, "train.py", "yaml.load(x, yaml.Loader)", "train.py:2: yaml.load without"),
    (LOAD, "train.py", "yaml.unsafe_load(x)", "train.py:2: yaml.unsafe_load runs"),
    (DOOR, "agents/base.py", "(run.path / 'x').read_text()", f"agents/base.py:2: .read_text: {OPENED}"),
    (DOOR, "agents/base.py", "open(run.metrics_csv)", f"agents/base.py:2: open: {OPENED}"),
    (DOOR, "agents/trained/loading.py", "path.open('rb')", f"agents/trained/loading.py:2: path.open: {OPENED}"),
    (DOOR, "train.py", "shutil.copyfile(run.metrics_csv, x)", f"train.py:2: shutil.copyfile: {OPENED}"),
    (DOOR, "train.py", "from shutil import copyfile", f"train.py:2: shutil.copyfile: {OPENED}"),
    (DOOR, "train.py", "os.open(run.path / '.lock', 0)", f"train.py:2: os.open: {OPENED}"),
    (DOOR, "run_play.py", "from stride.utils.durable_file import read_json", f"utils.durable_file.read_json: {OPENED}"),
    (DOOR, "runstore/run_log.py", "logging.FileHandler(path)", f"runstore/run_log.py:2: logging.FileHandler: {OPENED}"),
    *((LOAD, path, "torch.load(x)", f"{path}:2: torch.load without") for path in DESERIALIZERS),
]


def build(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return read_house(root)


def test_a_good_house_passes(tmp_path):
    made_up = build(tmp_path, GOOD)
    assert [complaint for rule in RULES for complaint in rule(made_up)] == []


@pytest.mark.parametrize(("rule", "path", "text", "complaint"), BAD, ids=[complaint for *_, complaint in BAD])
def test_a_broken_rule_is_found(tmp_path, rule, path, text, complaint):
    assert any(complaint in line for line in complaints(tmp_path, rule, GOOD | {path: f'"""."""\n{text}'}))


KERNELS = {
    "agents/engines/fused_cpu/bind.py": '"""Binds."""\nfrom agents.engines.fused_cpu.kernels import nets, returns\n'
    'ALL = {"forward": nets.forward, "judge": returns.judge, "size": 3}\n',
    "agents/engines/fused_cpu/kernels/nets.py": '"""Nets."""\ndef forward(f):\n    return f.size\n',
    "agents/engines/fused_cpu/kernels/returns.py": '"""Returns."""\ndef judge(f):\n    call(f.forward)\n',
}


def test_a_circle_through_addresses_is_found(tmp_path):
    assert complaints(tmp_path / "good", "no_circles", GOOD | KERNELS) == []
    upward = '"""Nets."""\ndef forward(f):\n    call(f.judge)\n'
    files = GOOD | KERNELS | {"agents/engines/fused_cpu/kernels/nets.py": upward}
    (found,) = complaints(tmp_path / "bad", "no_circles", files)
    assert "kernels/" in found and "nets" in found and "returns" in found and "circle" in found


def test_the_table_of_kernels_is_read(house):
    reached = {target.rpartition(".")[2] for calls in calls_by_address(house).values() for target, *_ in calls}
    assert {"nets", "layers", "heads", "policy_gradient", "returns", "shuffle"} <= reached


def test_a_missing_docstring_is_found(tmp_path):
    found = complaints(tmp_path, "modules_introduce_themselves", GOOD | {"agents/dqn.py": "import torch"})
    assert found == ["agents/dqn.py:1: no docstring on top"]


def complaints(root, rule, files):
    made_up = build(root, files)
    return [line for each in RULES if each.__name__ == rule for line in each(made_up)]
