"""A run's whole config as YAML, its network module by module, and its report, all as plain text."""

import yaml
from torch import nn

from agents.playing.loading import LoadedRun
from inspector.markup import Markup, card, join, table, tag
from inspector.runs import RunFacts
from utils import run_files
from utils.run_dir import RunDir
from utils.user_error import UserError

MOST_TEXT = 200_000  # characters of a report


def model(each: RunFacts, loaded: LoadedRun) -> Markup:
    """The whole room."""
    network = loaded.agent.policy
    total = sum(parameter.numel() for parameter in network.parameters())
    steps = loaded.progress.get("env_steps", 0)
    title = f"Network: {total:,} parameters, {loaded.checkpoint} at {steps:,} env steps"
    parts = [card(title, table(("module", "kind", "tensors", "count"), modules(network))), config(each)]
    report = report_text(each.run)
    if report:
        parts.append(card("Report", tag("pre", report)))
    return join(parts)


def config(each: RunFacts) -> Markup:
    return card("Config", tag("pre", config_yaml(each.facts.get("config"))))


def modules(network: nn.Module) -> list[tuple[Markup, str, str, str]]:
    """A row per module, indented by depth: its own tensors with their shapes, and how many numbers it holds."""
    rows = []
    for path, module in network.named_modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        shapes = ", ".join(f"{name} {'×'.join(map(str, tensor.shape)) or 'scalar'}" for name, tensor in own)
        count = sum(parameter.numel() for parameter in module.parameters())
        depth = path.count(".") + 1 if path else 0
        name = tag("span", path.rpartition(".")[2] or "policy", style=f"padding-left:{depth * 1.2:.1f}em")
        rows.append((name, type(module).__name__, shapes, f"{count:,}" if count else ""))
    return rows


def config_yaml(config: object) -> str:
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def report_text(run: RunDir) -> str:
    """report.md as it stands, "" where there is none; a link is not followed."""
    try:
        text = run_files.read_bytes(run.report) if run_files.exists(run.report) else b""
        return text.decode("utf-8", "replace")[:MOST_TEXT]
    except UserError:
        return ""
