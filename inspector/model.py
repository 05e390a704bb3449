"""A run's whole config, what differs first, and its network module by module."""

import yaml
from torch import nn

from stride.agents.trained.loading import LoadedRun
from stride.config.diff import IDENTITY, config_of, written
from stride.inspector.markup import Markup, card, join, note, table, tag
from stride.inspector.overview import configured
from stride.inspector.runs import RunFacts
from stride.utils.user_error import UserError


def model(each: RunFacts, loaded: LoadedRun) -> Markup:
    """The whole room."""
    network, steps = loaded.agent.policy, loaded.progress.get("env_steps", 0)
    total = sum(parameter.numel() for parameter in network.parameters())
    reached = each.brief.tail.steps
    why = f", the best evaluation; the run went on to {reached:,}" if steps < reached else ""
    about = note(f"{total:,} parameters; weights of {loaded.checkpoint} at {steps:,} env steps{why}")
    rows = table(("module", "kind", "tensors", "parameters"), modules(network), "network")
    return join([config(each), card("Network", about, rows)])


def config(each: RunFacts) -> Markup:
    """What somebody decided, every key, and the file's own words."""
    facts = each.facts.get("config")
    raw = tag("details", tag("summary", "as YAML"), tag("pre", config_yaml(facts)))
    try:
        tunable = [(key, written(value)) for key, value in config_of(each.facts).items() if key not in IDENTITY]
        whole = tag("details", tag("summary", "every key"), table(("key", "value"), tunable, "pairs"))
    except UserError:  # of another version: said by `configured`
        whole = Markup("")
    return join([configured(each), card("All of it", whole, raw)])


def modules(network: nn.Module) -> list[tuple[Markup, str, str, str]]:
    """A row per module that holds parameters, indented by depth; what only wraps another one is part of its name."""
    rows = []

    def add(name: str, module: nn.Module, depth: int) -> None:
        own = [*module.named_parameters(recurse=False)]
        inner = [(key, child) for key, child in module.named_children() if any(True for _ in child.parameters())]
        if not own and len(inner) == 1 and depth:
            return add(f"{name}.{inner[0][0]}", inner[0][1], depth)
        shapes = ", ".join(f"{key} {'×'.join(map(str, tensor.shape)) or 'scalar'}" for key, tensor in own)
        count = sum(parameter.numel() for parameter in module.parameters())
        label = tag("span", name, style=f"padding-left:{depth * 1.2:.1f}em")
        rows.append((label, type(module).__name__, shapes, f"{count:,}"))
        for key, child in inner:
            add(key, child, depth + 1)

    add("policy", network, 0)
    return rows


def config_yaml(config: object) -> str:
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
