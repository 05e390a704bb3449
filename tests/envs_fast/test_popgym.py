"""POPGym's worlds: the rules by what was seen, in plain Python; how cards are dealt; and POPGym itself, where it is."""

from itertools import product

import gymnasium
import numpy as np
import pytest
from goodness import ALPHA, chi_square
from playing import columns, random_actions, whole_episodes

from stride.config.schema import Config
from stride.envs_fast.registry import WORLDS, make
from stride.envs_fast.world import fast_id
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.make import import_module
from stride.utils.user_error import UserError

CARDS = 52
GAMES = ("RepeatPrevious", "RepeatFirst", "CountRecall", "Autoencode")
LEVELS = ("Easy", "Medium", "Hard")
DECKS = {  # of each level
    "RepeatPrevious": (1, 2, 3),
    "RepeatFirst": (1, 8, 16),
    "CountRecall": (1, 2, 4),
    "Autoencode": (1, 2, 3),
}
CASES = [(game, level, CARDS * decks) for game in GAMES for level, decks in zip(LEVELS, DECKS[game], strict=True)]
BACK = {"Easy": 4, "Medium": 32, "Hard": 64}
KINDS = {"Easy": 2, "Medium": 4, "Hard": 13}
LIMITS = [("Easy", 200, 200), ("Medium", 400, 150), ("Hard", 600, 100)]  # steps of a cart and of a pendulum


def right_answers(game, level, seen, cards):
    """What would have been right at each step of an episode, None where nothing is asked."""
    steps = range(len(seen) - 1)
    if game == "RepeatFirst":
        return [seen[0] for _ in steps]
    if game == "RepeatPrevious":
        k = BACK[level]
        return [seen[t + 1 - k] if t + 1 >= k else None for t in steps]
    if game == "CountRecall":
        return [int((seen[: t + 1, 0] == seen[t, 1]).sum()) for t in steps]
    return [None if t < cards - 1 else seen[2 * (cards - 1) - t, 1] for t in steps]


@pytest.mark.parametrize(("game", "level", "cards"), CASES)
def test_rules(game, level, cards):
    """Rewards, length and the cards of whole episodes."""
    env = make(f"popgym-{game}{level}-v0", 12, seed=4)
    length = 2 * cards - 1 if game == "Autoencode" else cards - 1
    answered = []
    for seen, acted, paid in whole_episodes(env, 2 * length):
        right = right_answers(game, level, seen, cards)
        asked = np.array([answer is not None for answer in right])
        scale = 1 / asked.sum()
        hits = np.array([answer == action for answer, action in zip(right, acted, strict=True)])
        expected = np.where(asked, np.where(hits, scale, -scale), 0.0)
        assert len(acted) == length and paid.tolist() == expected.astype(np.float32).tolist()
        check_cards(game, level, seen, cards)
        answered += [paid[asked] > 0]
    assert len(answered) == 24 and 0 < np.concatenate(answered).mean() < 0.7


def check_cards(game, level, seen, cards):
    """Every card of the decks was dealt once, and what is seen afterwards says nothing."""
    if game == "CountRecall":
        kinds = KINDS[level]
        assert [np.bincount(seen[:, k], minlength=kinds).tolist() for k in (0, 1)] == [[cards // kinds] * kinds] * 2
        return
    suits = seen
    if game == "Autoencode":
        assert seen[:, 0].tolist() == [1] * (cards - 1) + [0] * (len(seen) - cards + 1)
        assert not seen[cards:].any()
        suits = seen[:cards, 1]
    assert np.bincount(suits).tolist() == [cards // 4] * 4


def pairs(kinds, cards):
    """The probabilities of two cards' kinds, dealt one after the other."""
    each = cards // kinds
    return [each / cards * (each - (one == two)) / (cards - 1) for one, two in product(range(kinds), repeat=2)]


def test_any_two_cards_are_those_of_a_shuffled_deck():
    """The first and second, first and last, and the last two."""
    env = make("popgym-RepeatFirstEasy-v0", 40_000, seed=1)
    first = columns(env.obs)
    told = env.advance(random_actions(env, CARDS - 1))
    seen = np.concatenate([first[None], columns(told.obs)])
    seen[-1] = columns(told.final_obs)[-1]
    for one, two in ((0, 1), (0, -1), (-2, -1)):
        counts = np.bincount(4 * seen[one] + seen[two], minlength=16)
        assert chi_square(counts, pairs(4, CARDS)) > ALPHA / 3


@pytest.mark.parametrize("level", LEVELS)
def test_both_decks_of_count_recall_are_shuffled_by_themselves(level):
    kinds, cards = KINDS[level], CARDS * dict(zip(LEVELS, DECKS["CountRecall"], strict=True))[level]
    env = make(f"popgym-CountRecall{level}-v0", 100_000, seed=2)
    first = columns(env.obs)
    second = columns(env.step(random_actions(env, 1)[0]).obs)
    for deck in (0, 1):
        counts = np.bincount(kinds * first[:, deck] + second[:, deck], minlength=kinds**2)
        assert chi_square(counts, pairs(kinds, cards)) > ALPHA / 3
    both = np.bincount(kinds * second[:, 0] + second[:, 1], minlength=kinds**2)
    assert chi_square(both, [1 / kinds**2] * kinds**2) > ALPHA / 3


@pytest.mark.parametrize(("level", "cart_limit", "pendulum_limit"), LIMITS)
def test_position_only_worlds_are_the_whole_ones_half_seen(level, cart_limit, pendulum_limit):
    cart = make(f"popgym-PositionOnlyCartPole{level}-v0", 300, seed=3)
    whole = make("CartPole-v1", 300, seed=3, max_episode_steps=cart_limit)
    assert cart.time_limit == cart_limit
    tape = random_actions(cart, 90)
    mine, theirs = cart.advance(tape), whole.advance(tape)
    assert (mine.obs == theirs.obs[..., [0, 2]]).all() and (mine.reward == np.float32(1 / cart_limit)).all()
    assert (mine.terminated == theirs.terminated).all() and mine.terminated.any()

    pendulum = make(f"popgym-PositionOnlyPendulum{level}-v0", 300, seed=3)
    whole = make("Pendulum-v1", 300, seed=3, max_episode_steps=pendulum_limit)
    tape = random_actions(pendulum, 210)
    mine, theirs = pendulum.advance(tape), whole.advance(tape)
    assert (mine.obs == theirs.obs[..., :2]).all() and (mine.truncated == theirs.truncated).all()
    scaled = (theirs.reward.double().numpy() / 8.1368022 + 1) / pendulum_limit
    np.testing.assert_allclose(mine.reward, scaled, atol=1e-8)


WRONG = [
    ("RepeatPreviousEasy", {"num_decks": 0}, "num_decks must be a whole number from 1 to 16, got 0"),
    ("RepeatPreviousEasy", {"k": 65}, "k must be a whole number from 1 to 64, got 65"),
    ("RepeatPreviousEasy", {"k": 52}, "k must be less than the 52 cards of num_decks=1, got 52"),
    ("RepeatFirstHard", {"num_decks": 17}, "num_decks must be a whole number from 1 to 16, got 17"),
    ("CountRecallHard", {"deck_type": "rank"}, "must be one of colors, suits, ranks, got 'rank'; did you mean ranks"),
    ("CountRecallEasy", {"num_decks": 5}, "num_decks must be a whole number from 1 to 4, got 5"),
    ("AutoencodeEasy", {"num_decks": 4}, "num_decks must be a whole number from 1 to 3, got 4"),
    ("PositionOnlyCartPoleEasy", {"max_episode_length": 9}, "has no argument 'max_episode_length'; accepted: none"),
    ("PositionOnlyPendulumHard", {"g": "heavy"}, "g must be a finite number, got 'heavy'"),
    ("RepeatFirstHarder", {}, "no fast environment 'popgym-RepeatFirstHarder-v0'; did you mean popgym-RepeatFirst"),
]


@pytest.mark.parametrize(("name", "kwargs", "line"), WRONG)
def test_bad_input_is_one_line(name, kwargs, line):
    with pytest.raises(UserError) as caught:
        make(f"popgym-{name}-v0", 2, **kwargs)
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [*GAMES, "PositionOnlyCartPole", "PositionOnlyPendulum"])
def test_pictures(name):
    """Every world is drawn, and otherwise where something else is seen."""
    env = gymnasium.make_vec(fast_id(f"popgym-{name}Easy-v0"), num_envs=20, render_mode="rgb_array")
    env.reset(seed=0)
    frames = env.render()
    assert {(frame.dtype, frame.ndim, frame.shape[2]) for frame in frames} == {(np.dtype(np.uint8), 3, 3)}
    assert len({frame.tobytes() for frame in frames}) > 1
    env.close()


def test_a_run_of_the_package_goes_on_with_it(monkeypatch):
    """A config.json that names the backend gym keeps it, and modules that a project lists are asked for the id."""
    env_id = "popgym-RepeatFirstEasy-v0"
    assert choose_backend(Config(env_id=env_id)).name == "fast"
    assert choose_backend(Config(env_id=env_id, env_backend="gym")).name == "gym"
    asked = []
    monkeypatch.setattr("stride.envs_gym.make.imports_left", lambda: asked.append(env_id) or [])
    import_module(env_id)
    assert asked == [env_id]


# ---- POPGym itself plays our cards: 100,000 steps of each level


class Dealer:
    """Stands in for the generator of an environment, and shuffles a deck into the order that it is given."""

    def __init__(self, *orders):
        self.orders = [*orders]

    def shuffle(self, cards):
        cards[:] = self.orders.pop(0)


def order_of(kinds, of_card):
    """Cards of a deck, dealt from its end, so that their kinds come in this order."""
    piles = {kind: np.flatnonzero(of_card == kind).tolist() for kind in np.unique(of_card)}
    return [piles[kind].pop() for kind in kinds][::-1]


@pytest.mark.slow
@pytest.mark.parametrize(("game", "level", "cards"), CASES)
def test_popgym_plays_the_same(game, level, cards):
    theirs = popgym_env(f"popgym-{game}{level}-v0")
    env = make(f"popgym-{game}{level}-v0", 100, seed=6)
    steps = 0
    for seen, acted, paid in whole_episodes(env, max(1300, 2 * cards)):
        deal(theirs, game, seen, cards)
        obs, _ = theirs.reset()
        assert np.array_equal(obs, seen[0])
        for t, action in enumerate(acted):
            obs, reward, terminated, truncated, _ = theirs.step(action)
            assert np.array_equal(obs, seen[t + 1]) and np.float32(reward) == paid[t], t
            assert terminated == (t == len(acted) - 1) and not truncated
        steps += len(acted)
        if steps >= 100_000:
            break
    assert steps >= 100_000


def popgym_env(env_id):
    """POPGym's own environment; its package has ids that ours has registered before."""
    envs = pytest.importorskip("popgym.envs", reason="pip install popgym")
    return getattr(envs, env_id.removeprefix("popgym-").removesuffix("-v0"))()


def deal(theirs, game, seen, cards):
    """Let the next episode have the cards that were seen in ours."""
    if game == "CountRecall":
        kinds = theirs.deck_idx_type
        theirs._np_random = Dealer(order_of(seen[:, 0], kinds), order_of(seen[:, 1], kinds))
        return
    suits = seen[:cards, 1] if game == "Autoencode" else seen
    theirs._np_random = Dealer(order_of(suits, theirs.deck.suits_idx))


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["PositionOnlyCartPole", "PositionOnlyPendulum"])
def test_popgym_moves_the_same(name, level):
    """100,000 steps, each from a state of ours: what is seen within the last bit of a float32."""
    env_id = f"popgym-{name}{level}-v0"
    theirs = popgym_env(env_id)
    theirs.reset()
    env = make(env_id, 1000, seed=7)
    for tape in random_actions(env, 100):
        before = env.state.T.copy()
        step = env.step(tape)
        over = (step.terminated | step.truncated).numpy()
        shown = np.where(over[:, None], step.final_obs, step.obs)
        for world in range(1000):
            theirs.state, theirs.steps_beyond_terminated, theirs.num_steps = before[world], None, 0
            action = int(tape[world]) if "Cart" in name else 2 * tape[world].numpy()
            obs, reward, terminated, _, _ = theirs.step(action)
            assert np.abs(obs - shown[world]).max() <= 1.2e-7 * max(1.0, np.abs(obs).max())
            assert terminated == bool(step.terminated[world]) and abs(reward - step.reward[world].item()) <= 1e-9
    assert WORLDS[env_id].time_limit == theirs.max_episode_length
