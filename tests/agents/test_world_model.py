"""World models: numbers worked out by hand, a scan step by step, senses of every kind, and how large a model is."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from probe_envs import drawn
from worlds import generator

from stride.agents.networks.dreamer_policy import Actions
from stride.agents.networks.heads import BoundedGaussian
from stride.agents.networks.normed import BlockLinear, RMSNorm, initialize
from stride.agents.networks.senses import SensedObs, Senses, distance, halved
from stride.agents.networks.two_hot import TwoHot
from stride.agents.networks.world_model import SIZES, Guess, ModelSizes, State, WorldModel, balanced
from stride.utils.user_error import UserError

VECTOR = Box(-np.inf, np.inf, (4,), np.float32)
TINY = ModelSizes(deter=8, stoch=3, classes=4, width=6, depth=4, bins=21)
CELLS = {"dense": TINY, "blocks": TINY._replace(blocks=4, senses=2, prior=2)}


def guess(*rows):
    return Guess(torch.tensor(rows).log())


# --- numbers as classes


def test_two_hot_by_hand():
    """Bins at -(e - 1), 0 and e - 1: a quarter of e - 1 is a quarter of the last and three of the middle one."""
    head, top = TwoHot(3, 1.0), math.e - 1
    assert head.bins.tolist() == pytest.approx([-top, 0, top])
    logits = torch.tensor([0.0, math.log(2), math.log(5)])
    assert head.loss(logits, torch.tensor(top / 4)).item() == pytest.approx(
        math.log(8) - 0.75 * math.log(2) - 0.25 * math.log(5), rel=1e-5
    )
    assert head.mean(logits).item() == pytest.approx(top * (5 - 1) / 8, rel=1e-5)
    whole = [head.loss(logits, torch.tensor(x)).item() for x in (100.0, -100.0, 0.0)]  # beyond the bins, and at one
    assert whole == pytest.approx([math.log(8) - math.log(5), math.log(8), math.log(4)], rel=1e-5)


@pytest.mark.parametrize("size", [63, 255])
def test_equal_chances_are_exactly_zero(size):
    assert TwoHot(size).mean(torch.full((7, size), 3.0)).eq(0).all()
    assert TwoHot(size).bins[-1].item() == pytest.approx(math.expm1(20), rel=1e-5)


# --- guesses


@pytest.mark.parametrize("free_nats", [0.0, 0.1, 1.0])
def test_divergences_by_hand_pull_their_own_side_above_the_free_nats(free_nats):
    sides = posterior, prior = [Guess(guess(row).log_probs.requires_grad_()) for row in ([0.9, 0.1], [0.5, 0.5])]
    pulls = balanced(posterior, prior, free_nats)
    divergence = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)  # 0.37
    assert [pull.item() for pull in pulls] == pytest.approx([max(free_nats, divergence)] * 2)
    for pull, side, other in zip(pulls, sides[::-1], sides, strict=True):
        own, foreign = torch.autograd.grad(pull, [side.log_probs, other.log_probs], allow_unused=True)
        assert bool(own.any()) == (free_nats < divergence) and foreign is None


def test_samples_follow_their_chances_and_gradients_pass_through():
    p = torch.tensor([0.7, 0.2, 0.1]).log().requires_grad_()
    u = (torch.arange(1000) + 0.5)[:, None] / 1000
    hot = Guess(p.expand(1000, 1, 3)).sample(u, torch.eye(3))
    assert hot.detach().mean(0).tolist() == pytest.approx([0.7, 0.2, 0.1], abs=1e-3)
    (slope,) = torch.autograd.grad(hot[:, 0].sum(), p)
    assert slope.tolist() == pytest.approx([700, 0, 0], rel=1e-4)
    likeliest = Guess(p[None]).mode(torch.eye(3))
    assert likeliest.tolist() == [1, 0, 0]
    assert torch.autograd.grad(likeliest[1], p)[0].tolist() == pytest.approx([0, 0.2, 0])


# --- the cell


def model(sizes, space=VECTOR, seed=0):
    made = WorldModel(space, 2, sizes, 0.01)
    initialize(made, generator(seed))
    return made


SIZED = pytest.mark.parametrize("sizes", CELLS.values(), ids=CELLS)


@SIZED
def test_a_cell_keeps_what_it_knows_unless_its_gates_open(sizes):
    cell = model(sizes).rssm.cell
    for parameter in cell.parameters():
        torch.nn.init.zeros_(parameter)
    state = State(torch.rand(5, 8, generator=generator()), torch.zeros(5, 12))
    kept = 1 - 1 / (1 + math.e)  # of an update gate whose logit is 0 - 1
    torch.testing.assert_close(cell(state, cell.prepare(torch.ones(5, 2))), kept * state.deter)


def test_a_block_sees_its_own_part_and_nothing_of_the_others():
    layer = BlockLinear(8, 12, 4)
    initialize(layer, generator())
    x = torch.randn(5, 4, 2, generator=generator(1))
    moved = x.clone()
    moved[:, 1] += 1
    changed = (layer(x) != layer(moved)).any(0).any(-1)
    assert changed.tolist() == [False, True, False, False] and layer(x).shape == (5, 4, 3)


def test_norm_by_hand_and_first_weights():
    assert RMSNorm(2)(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([3 / 12.5**0.5, 4 / 12.5**0.5], rel=1e-4)
    large, silent = torch.nn.Linear(400, 300), torch.nn.Linear(3, 2)
    initialize(torch.nn.ModuleList([large, silent]), generator(), silent=(silent,))
    assert large.weight.std().item() == pytest.approx(400**-0.5, rel=0.02) and not large.bias.any()
    assert not silent.weight.any()


@pytest.mark.parametrize(("size", "millions"), [("small", 0.19), ("1m", 0.64), ("12m", 9.7)])
def test_sizes_are_what_they_are_called(size, millions):
    """Where no images are seen; DreamerV3's own size1m has 0.64 million weights there."""
    made = WorldModel(VECTOR, 2, SIZES[size], 0.01)
    behaviour = 2 * (made.features * SIZES[size].width + (SIZES[size].behaviour - 1) * SIZES[size].width ** 2)
    heads = SIZES[size].width * (SIZES[size].bins + 2)
    count = sum(p.numel() for p in made.parameters()) + behaviour + heads
    assert count / 1e6 == pytest.approx(millions, rel=0.05), count


# --- senses

SPACES = {
    "vector": VECTOR,
    "choice": Discrete(5),
    "choices": MultiDiscrete([2, 3]),
    "a plane": Box(0, 255, (8, 8), np.uint8),
    "smallest": Box(0, 255, (1, 5, 5), np.uint8),
    "odd": Box(0, 255, (2, 17, 10), np.uint8),
    "large": Box(0, 255, (3, 64, 64), np.uint8),
    "all": Dict({"at": VECTOR, "kind": Discrete(3), "view": Box(0, 255, (3, 9, 12), np.uint8),
                 "map": Box(0, 255, (6, 5), np.uint8)}),
}  # fmt: skip


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_whatever_is_seen_is_told_in_its_own_shape(space):
    senses = Senses(space, 7, 6, 2, 4)
    initialize(senses, generator())
    obs = senses.look(drawn(space, 3, 2))
    tokens, decoded = senses(obs), senses.decode(torch.randn(3, 2, 7, generator=generator()))
    assert tokens.shape == (3, 2, senses.size)
    assert decoded.vector.shape == obs.vector.shape
    assert [x.shape for x in decoded.images] == [x.shape for x in obs.images]
    assert all(x.min() >= 0 and x.max() <= 1 for x in obs.images)
    assert distance(decoded, obs).shape == (3, 2) and (distance(decoded, obs) > 0).all()
    torch.testing.assert_close(senses(senses.look(drawn(space, 6)))[2], tokens[1, 0])
    alike = distance(obs._replace(images=tuple(x.logit(1e-6) for x in obs.images)), obs)
    assert alike.numpy() == pytest.approx(0, abs=0.03)  # 64 x 64 x 3 bytes, those of 0 and 255 a millionth off


def test_vectors_are_seen_by_their_logarithm_and_errors_are_summed():
    senses = Senses(Box(-9, 9, (2,), np.float32), 7, 6, 1, 4)
    obs = senses.look(torch.tensor([[math.e - 1, 1 - math.e]]))
    assert obs.vector[0].tolist() == pytest.approx([1, -1])
    assert distance(obs._replace(vector=torch.tensor([[4.0, 3.0]])), obs).item() == pytest.approx(9 + 16)


def test_images_differ_by_nats_that_have_a_slope_where_a_dark_pixel_is_sure():
    """Told with 1/2: of a bright pixel ln 2 too many, of one that is 1/4 its KL; sure of dark where it is bright 12."""
    at, obs = torch.zeros(1, 0), torch.tensor([[[[1.0, 0.25, 0.0]]]])
    logits = torch.tensor([[[[0.0, 0.0, -30.0]]]], requires_grad=True)
    kl = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert distance(SensedObs(at, (logits,)), SensedObs(at, (obs,))).item() == pytest.approx(math.log(2) + kl)
    sure = torch.full((1, 1, 1, 1), -12.0, requires_grad=True)
    wrong = distance(SensedObs(at, (sure,)), SensedObs(at, (torch.ones(1, 1, 1, 1),))).sum()
    wrong.backward()
    assert wrong.item() == pytest.approx(12, abs=1e-4) and sure.grad.item() == pytest.approx(-1, abs=1e-4)


def test_images_are_halved_until_a_side_is_small():
    assert [*halved(64, 64)] == [(64, 64), (32, 32), (16, 16), (8, 8), (4, 4)]
    assert [*halved(17, 10)] == [(17, 10), (8, 5)] and [*halved(5, 7)] == [(5, 7)]


def test_an_image_that_is_too_small_is_refused_in_a_line():
    with pytest.raises(UserError, match=r"at least 5 x 5 pixels, but view has \[4, 9\]"):
        Senses(Dict({"view": Box(0, 255, (4, 9), np.uint8)}), 7, 6, 1, 4)


# --- actions


@pytest.mark.parametrize(
    ("space", "action", "encoded"),
    [
        (Discrete(3), 2, [0, 0, 1]),
        (MultiDiscrete([2, 3]), [1, 0], [0, 1, 1, 0, 0]),
        (Box(-1, 1, (2,), np.float32), [0.5, -7.0], [0.5, -1]),
    ],
)
def test_actions_as_a_model_reads_them(space, action, encoded):
    actions = Actions(space)
    assert actions(torch.tensor(action)).tolist() == encoded and actions.size == len(encoded)
    u = torch.rand(6000, actions.draws, generator=generator())
    u[0], u[1] = 0, 1 - 2**-24
    many = actions.any(u)
    assert all(space.contains(action) for action in many[:100].numpy())
    expected = {3: 1 / 3, 5: [1 / 2] * 2 + [1 / 3] * 3, 2: 0.0}[len(encoded)]
    assert actions(many).mean(0).tolist() == pytest.approx(np.broadcast_to(expected, len(encoded)), abs=0.03)


def test_a_bounded_gaussian_keeps_its_bounds():
    """Otherwise it is the Gaussian of test_heads.py."""
    head = BoundedGaussian(1, 2)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]))
        head.linear.bias.zero_()
    p = head(torch.tensor([[0.0], [100.0]]))
    assert p.mean.tolist() == pytest.approx(np.array([[0, 0], [1, -1]]))
    middle = 0.1 + 0.9 / (1 + math.exp(-2))
    assert p.log_std.exp().tolist() == pytest.approx(np.array([[middle, middle], [1, 0.1]]), rel=1e-5)
