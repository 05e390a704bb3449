"""A run's whole config, what differs first, and its network module by module."""

import yaml
from torch import nn

from stride.agents.trained.loading import LoadedRun
from stride.config.diff import IDENTITY, config_of, written
from stride.inspector.markup import Markup, card, join, note, table, tag
from stride.inspector.overview import configured
from stride.inspector.runs import RunFacts
from stride.utils.user_error import UserError


def model(run: RunFacts, loaded: LoadedRun) -> Markup:
    """The complete tab."""
    network = loaded.agent.policy
    steps = loaded.progress.get("env_steps", 0)
    total = sum(parameter.numel() for parameter in network.parameters())
    last_step = run.brief.tail.steps
    remark = f", the best evaluation; the run went on to {last_step:,}" if steps < last_step else ""
    about = note(f"{total:,} parameters; weights of {loaded.checkpoint} at {steps:,} env steps{remark}")
    rows = table(("module", "kind", "tensors", "parameters"), modules(network), "network")
    return join([config(run), card("Network", about, rows)])


def config(run: RunFacts) -> Markup:
    """The settings that are not defaults, every key, and the content of the file."""
    facts = run.facts.get("config")
    raw = tag("details", tag("summary", "as YAML"), tag("pre", config_yaml(facts)))
    try:
        settings = [
            (child_name, written(value))
            for child_name, value in config_of(run.facts).items()
            if child_name not in IDENTITY
        ]
        all_keys = tag("details", tag("summary", "every key"), table(("key", "value"), settings, "pairs"))
    except UserError:  # of another version: said by `configured`
        all_keys = Markup("")
    return join([configured(run), card("All of it", all_keys, raw)])


def modules(network: nn.Module) -> list[tuple[Markup, str, str, str]]:
    """A row per module that holds parameters, indented by depth; what only wraps another one is part of its name."""
    rows = []

    def add(name: str, module: nn.Module, depth: int) -> None:
        parameters = [*module.named_parameters(recurse=False)]
        children = [
            (child_name, child)
            for child_name, child in module.named_children()
            if any(True for _ in child.parameters())
        ]
        if not parameters and len(children) == 1 and depth:
            [(child_name, child)] = children
            return add(f"{name}.{child_name}", child, depth)
        shapes = ", ".join(
            f"{child_name} {'×'.join(map(str, tensor.shape)) or 'scalar'}" for child_name, tensor in parameters
        )
        count = sum(parameter.numel() for parameter in module.parameters())
        label = tag("span", name, style=f"padding-left:{depth * 1.2:.1f}em")
        rows.append((label, type(module).__name__, shapes, f"{count:,}"))
        for child_name, child in children:
            add(child_name, child, depth + 1)

    add("policy", network, 0)
    return rows


def config_yaml(config: object) -> str:
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
