"""One C99 header of a policy: observation in, action out, no dependency but <math.h>, examples to check it by inside.

Only numbers and names made here are code; what a run says of itself stands in a comment that it cannot end.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from export.graph import Deployed
from export.layers import Layer, Numbers, Option, Stack, stack
from export.ports import ACTION, Acting, Face, Run
from export.verify import Sample
from utils.user_error import UserError

EXAMPLES = 8
ROW = 8  # numbers
COMPILE_S = 120
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
CTYPES: dict[str, Any] = {"int": ctypes.c_int, "float": ctypes.c_float, "double": ctypes.c_double}
PARTS = {
    "dense": """\
static inline void NAME_dense(const float *x, float *y, const float *weight, const float *bias, int in, int out)
{
    for (int o = 0; o < out; o++) y[o] = bias[o];
    for (int i = 0; i < in; i++)
        for (int o = 0; o < out; o++) y[o] += weight[i * out + o] * x[i];
}
""",
    "norm": """\
static inline void NAME_norm(float *x, const float *scale, const float *shift, float epsilon, int n)
{
    float mean = 0, var = 0;
    for (int i = 0; i < n; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++) x[i] = (x[i] - mean) / sqrtf(var + epsilon) * scale[i] + shift[i];
}
""",
    "tanh": """\
static inline void NAME_tanh(float *x, int n)
{
    for (int i = 0; i < n; i++) x[i] = tanhf(x[i]);
}
""",
    "relu": """\
static inline void NAME_relu(float *x, int n)
{
    for (int i = 0; i < n; i++) x[i] = x[i] > 0 ? x[i] : 0;
}
""",
    "best": """\
/* the first of the highest among what the mask, where there is one, allows */
static inline int NAME_best(const float *x, const float *mask, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if ((!mask || mask[i] != 0) && (best < 0 || x[i] > x[best])) best = i;
    return best < 0 ? 0 : best;
}
""",
    "chances": """\
static inline void NAME_chances(const float *x, const float *mask, float *p, int n)
{
    int any = 0;
    float highest = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) any += !mask || mask[i] != 0;
    for (int i = 0; i < n; i++)
        if ((!any || !mask || mask[i] != 0) && x[i] > highest) highest = x[i];
    for (int i = 0; i < n; i++) p[i] = !any ? 1 : !mask || mask[i] != 0 ? expf(x[i] - highest) : 0;
    for (int i = 0; i < n; i++) sum += p[i];
    for (int i = 0; i < n; i++) p[i] /= sum;
}
""",
}


def check(policy: Deployed) -> None:
    """UserError for what C is not written of, before anything is played; and without a compiler to verify it by."""
    acting, choices = policy.module.acting, stack(policy).choices
    largest = acting.start.abs().max() + max(choices) if choices else (acting.centre.abs() + acting.reach).max()
    if acting.integral and largest >= 1 << 31:
        raise UserError("--c: an int of C does not hold actions as large as these; --onnx and --torch take them")
    compiler()


def content(policy: Deployed, facts: Mapping[str, object], known: Sequence[Sample], name: str) -> bytes:
    """The header; `name` begins every name in it."""
    text = header(stack(policy), policy, facts, known[:: max(1, len(known) // EXAMPLES)][:EXAMPLES])
    return text.replace("NAME_", f"{name}_").encode("ascii")


def identifier(stem: str) -> str:
    """A file's name as names in C begin."""
    found = re.sub(r"[^A-Za-z0-9]+", "_", stem).strip("_").lower()
    return found if found[:1].isalpha() else f"policy_{found}".rstrip("_")


def header(net: Stack, policy: Deployed, facts: Mapping[str, object], golden: Sequence[Sample]) -> str:
    """All of it, with NAME where the name is to stand."""
    acting = policy.module.acting
    kind = action_kind(acting)
    numbers = int(np.prod(acting.shape))
    used = ["dense", *(layer.activation for layer in net.layers), *("norm" for layer in net.layers if layer.norm)]
    used += ["best"] if net.choices else []
    used += ["chances"] if net.scores == "probability" else []
    body = (*observing(net.parts), *thinking(net), *choosing(net, acting))
    scores = f", and {net.scores} of its {sum(net.choices)} choices where `scores` is not NULL" if net.scores else ""
    return "\n".join(
        [
            comment(facts),
            "#ifndef NAME_POLICY_H\n#define NAME_POLICY_H\n\n#include <math.h>\n#include <stddef.h>\n",
            f"enum {{ NAME_observed = {net.observed}, NAME_acts = {numbers}, NAME_scores = {sum(net.choices)} }};",
            f"typedef {kind} NAME_action;\n",
            *(text for part, text in PARTS.items() if part in used),
            *(weights(place, layer) for place, layer in enumerate(net.layers)),
            f"/* obs [{net.observed}] -> action [{numbers}], the greedy one{scores} */",
            "static inline void NAME_act(const float *obs, NAME_action *action, float *scores)\n{",
            *(f"    {line}" for part in body for line in part.splitlines()),
            "}\n",
            examples(net, policy, golden),
            "#endif\n",
        ]
    )


def comment(facts: Mapping[str, object]) -> str:
    """What the run says of itself: ASCII, no end of a comment, no line that goes on, no trigraph."""
    lines = [f"   {key}: {json.dumps(value)}" for key, value in facts.items()]
    text = "\n".join(lines).replace("*", "(star)").replace("\\", "(backslash)").replace("??", "(?)(?)")
    return (
        f"/* A trained policy by Stride: NAME_act is all one needs, NAME_check() compares it with examples.\n{text}\n*/"
    )


def weights(place: int, layer: Layer) -> str:
    """The arrays of a layer."""
    named = {"weight": layer.weight, "bias": layer.bias}
    if layer.norm:
        named |= {"scale": layer.norm[0], "shift": layer.norm[1]}
    return "\n".join(array("float", f"NAME_{what}{place}", numbers) for what, numbers in named.items()) + "\n"


def observing(parts: Sequence[Numbers | Option]) -> Iterable[str]:
    """x from obs."""
    sizes = [part.size if isinstance(part, Option) else len(part.shift) for part in parts]
    yield f"float x[{sum(sizes)}] = {{0}};"
    place = 0
    for part, size in zip(parts, sizes, strict=True):
        if isinstance(part, Option):  # an integer out of range is no option, and nothing is written beside x
            yield f"if (obs[{part.first}] >= {part.start} && obs[{part.first}] < {part.start + size})"
            yield f"    x[{place - part.start} + (int)obs[{part.first}]] = 1;"
        else:
            yield from normalizing(part, place, size)
        place += size


def normalizing(part: Numbers, place: int, size: int) -> Iterable[str]:
    """Numbers as they are, or shifted, scaled and cut."""
    value = f"obs[{part.first} + i]"
    if np.any(part.shift != 0) or np.any(part.scale != 1):
        yield array("float", f"shift{place}", part.shift)
        yield array("float", f"scale{place}", part.scale)
        value = f"({value} - shift{place}[i]) * scale{place}[i]"
    if np.isfinite(part.bound):
        value = f"fminf(fmaxf({value}, {number(-part.bound)}), {number(part.bound)})"
    yield f"for (int i = 0; i < {size}; i++) x[{place} + i] = {value};"


def thinking(net: Stack) -> Iterable[str]:
    """Layer by layer; `y<k>` is what the k-th makes."""
    before = "x"
    for place, layer in enumerate(net.layers):
        inputs, outputs = layer.weight.shape
        yield f"float y{place}[{outputs}];"
        yield f"NAME_dense({before}, y{place}, NAME_weight{place}, NAME_bias{place}, {inputs}, {outputs});"
        if layer.norm:
            scaled = f"NAME_scale{place}, NAME_shift{place}, {number(layer.norm[2])}"
            yield f"NAME_norm(y{place}, {scaled}, {outputs});"
        if layer.activation:
            yield f"NAME_{layer.activation}(y{place}, {outputs});"
        before = f"y{place}"


def choosing(net: Stack, acting: Acting) -> Iterable[str]:
    """The action, in the environment's units."""
    last, offset = f"y{len(net.layers) - 1}", 0
    starts = acting.start.flatten().tolist() if net.choices else []
    for place, options in enumerate(net.choices):
        mask = "NULL" if net.mask is None else f"obs + {net.mask + offset}"
        yield f"action[{place}] = {starts[place]} + NAME_best({last} + {offset}, {mask}, {options});"
        if net.scores == "probability":
            yield f"if (scores) NAME_chances({last} + {offset}, {mask}, scores + {offset}, {options});"
        elif net.scores:
            yield f"for (int i = 0; scores && i < {options}; i++) scores[i] = {last}[i];"
        offset += options
    if not net.choices:
        bounds = (("centre", acting.centre), ("reach", acting.reach), ("low", acting.low), ("high", acting.high))
        yield from (array("double", name, value.numpy()) for name, value in bounds)
        yield f"for (int i = 0; i < {int(np.prod(acting.shape))}; i++) {{"
        yield f"    double value = fmin(fmax(centre[i] + reach[i] * {last}[i], low[i]), high[i]);"
        yield f"    action[i] = (NAME_action){'rint(value)' if acting.integral else 'value'};"
        yield "}"
        yield "(void)scores;"


def examples(net: Stack, policy: Deployed, golden: Sequence[Sample]) -> str:
    """Observations of real episodes with the answers of the policy itself, and a function that compares."""
    kind, many = action_kind(policy.module.acting), len(golden)
    seen = [flat(policy.face.fed(sample.obs, {}, False), policy.face) for sample in golden]
    actions = [np.ravel(sample.answer[ACTION]) for sample in golden]
    compared = [("action", int(np.prod(policy.module.acting.shape)))]
    lines = [array("float", "NAME_example_obs", np.stack(seen)), array(kind, "NAME_example_action", np.stack(actions))]
    if net.scores:
        lines.append(array("float", "NAME_example_scores", np.stack([each.answer[net.scores] for each in golden])))
        compared.append(("scores", sum(net.choices)))
    lines += [
        f"/* how far NAME_act is from the policy it was written of, on {many} examples: about 1e-6 */",
        "static inline double NAME_check(void)\n{",
        f"    double worst = 0;\n    NAME_action action[{compared[0][1]}];",
        f"    float scores[{max(1, sum(net.choices))}];",
        f"    for (int k = 0; k < {many}; k++) {{",
        "        NAME_act(NAME_example_obs + k * NAME_observed, action, scores);",
    ]
    for what, size in compared:
        wanted = f"(double)NAME_example_{what}[k * {size} + i]"
        lines += [
            f"        for (int i = 0; i < {size}; i++)",
            f"            worst = fmax(worst, fabs({what}[i] - {wanted}) / fmax(1, fabs({wanted})));",
        ]
    return "\n".join([*lines, "    }\n    return worst;\n}\n"])


def action_kind(acting: Acting) -> str:
    """The C type of an action's numbers."""
    return "int" if acting.integral else "double" if str(acting.dtype) == "torch.float64" else "float"


def array(kind: str, name: str, numbers: np.ndarray) -> str:
    """A constant."""
    texts = [number(x, kind) for x in np.ravel(numbers).tolist()]
    rows = [", ".join(texts[first : first + ROW]) for first in range(0, len(texts), ROW)]
    inside = rows[0] if len(rows) == 1 else "\n" + ",\n".join(f"    {row}" for row in rows) + "\n"
    return f"static const {kind} {name}[{len(texts)}] = {{{inside}}};"


def number(x: float, kind: str = "float") -> str:
    """So many digits that reading it gives the same bits."""
    if kind == "int":
        return str(int(x))
    if not np.isfinite(x):
        return "NAN" if np.isnan(x) else "INFINITY" if x > 0 else "-INFINITY"
    text = f"{x:.9g}" if kind == "float" else repr(float(x))
    text = text if "." in text or "e" in text else f"{text}.0"
    return f"{text}f" if kind == "float" else text


def flat(inputs: Mapping[str, np.ndarray], face: Face) -> np.ndarray:
    """An observation as C takes it: its leaves one after the other."""
    return np.concatenate([inputs[leaf.port].astype(np.float32).ravel() for leaf in face.leaves])


def compiler() -> str:
    """$CC, or the first there is."""
    found = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))), None)
    if found is None:
        raise UserError("--c is verified by a C compiler, and there is neither cc nor gcc nor clang; $CC may name one")
    return found


def runner(data: bytes, policy: Deployed, name: str) -> Run:
    """The header, compiled and called."""
    face, kind = policy.face, CTYPES[action_kind(policy.module.acting)]
    action, *scores = face.outputs
    call = compiled(data, name)

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        seen = flat(inputs, face)
        acted = (kind * int(np.prod(action.shape)))()
        told = np.zeros(scores[0].shape if scores else 1, np.float32)
        call(seen.ctypes.data_as(ctypes.c_void_p), acted, told.ctypes.data_as(ctypes.c_void_p))
        answer = {ACTION: np.array(acted).reshape(1, *action.shape).astype(action.dtype)}
        return {**answer, **{port.name: told[None] for port in scores}}

    return run


def compiled(data: bytes, name: str) -> Callable[..., object]:
    """NAME_act of a header, in this process."""
    call = f"void call(const float *obs, {name}_action *action, float *scores)"
    checks = f"double check(void);\ndouble check(void) {{ return {name}_check(); }}\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "policy.h").write_bytes(data)
        source, library = Path(folder, "policy.c"), Path(folder, "policy.so")
        uses = f"{call};\n{call} {{ {name}_act(obs, action, scores); }}\n"
        source.write_text(f'#include "policy.h"\n{checks}{uses}', encoding="ascii")
        words = [compiler(), *FLAGS, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_S)
        if done.returncode:
            raise RuntimeError(f"the compiler refuses what was written: {done.stderr}")
        loaded = ctypes.CDLL(str(library))
    call_it: Callable[..., object] = loaded.call
    return call_it
