"""Blackjack-v1: come closer to 21 than the dealer; rules of Gymnasium 1.4 (Sutton and Barto, Example 5.1).

The deck is infinite. A hand is its total, aces counted as 1, and whether it holds one: then 10 more if that fits.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Discrete

from envs_fast.arguments import flag
from envs_fast.ended import list_ended
from envs_fast.world import IN_EPISODE, KERNEL, TILE, Setting, World, draw
from utils.kernel_cache import njit

STICK, HIT = 0, 1
RANKS, TEN = 13, 10  # ten, jack, queen and king all count 10
BEST, DEALER_STANDS = 21, 17
TOTAL, ACE, CARDS, UP, HOLE = range(5)  # rows of the state


@njit(inline="always")
def card(word: np.uint32) -> int:
    """A card's value from 32 random bits; the bias is below 2**-32."""
    return min(int((np.uint64(word) * np.uint64(RANKS)) >> np.uint64(32)) + 1, TEN)


@njit(inline="always")
def usable(total: int, ace: int) -> int:
    """1 where an ace counts 11."""
    return 1 if ace == 1 and total + 10 <= BEST else 0


@njit(inline="always")
def worth(total: int, ace: int) -> int:
    """A hand's value, its ace counted as 11 where that helps."""
    return total + 10 * usable(total, ace)


@njit(inline="always")
def is_natural(total: int, ace: int, cards: int) -> bool:
    """An ace and a ten."""
    return cards == 2 and ace == 1 and total == 11


@njit(inline="always")
def reset(episode: int, world: int, seed_lo: int, seed_hi: int) -> tuple[int, int, int, int, int]:
    """Two cards each: the player's total, ace and number of cards, the dealer's open and hidden card."""
    a, b, c, d = draw(0, episode, world, seed_lo, seed_hi)
    first, second = card(a), card(b)
    return first + second, 1 if first == 1 or second == 1 else 0, 2, card(c), card(d)


@njit(inline="always")
def dealers_worth(up: int, hole: int, block: int, episode: int, world: int, seed_lo: int, seed_hi: int) -> int:
    """What the dealer's hand comes to, drawing from `block` on until 17 is reached; it never takes 16 blocks."""
    total, ace = up + hole, 1 if up == 1 or hole == 1 else 0
    while worth(total, ace) < DEALER_STANDS:
        for word in draw(block, episode, world, seed_lo, seed_hi):
            if worth(total, ace) < DEALER_STANDS:
                drawn = card(word)
                total += drawn
                ace |= 1 if drawn == 1 else 0
        block += 1
    return worth(total, ace)


@njit(inline="always")
def payoff(player: int, player_natural: bool, dealer: int, dealer_natural: bool, natural: bool, sab: bool) -> float:
    """The player's reward for sticking with `player` <= 21 against what the dealer drew."""
    if sab and player_natural and not dealer_natural:
        return 1.0
    if dealer > BEST or player > dealer:
        return 1.5 if natural and player_natural else 1.0
    return 0.0 if player == dealer else -1.0


@njit(inline="always")
def hit(
    total: int, ace: int, cards: int, block: int, episode: int, world: int, seed_lo: int, seed_hi: int
) -> tuple[int, int, int]:
    """The player's total, ace and number of cards after one more card."""
    drawn = card(draw(block, episode, world, seed_lo, seed_hi)[0])
    return total + drawn, 1 if ace == 1 or drawn == 1 else 0, cards + 1


@njit(inline="always")
def show(hand: np.ndarray, obs: np.ndarray) -> None:
    """Write what is seen of a hand, [3]."""
    obs[0], obs[1], obs[2] = worth(hand[TOTAL], hand[ACE]), hand[UP], usable(hand[TOTAL], hand[ACE])


@njit(inline="always")
def deal(hand: np.ndarray, obs: np.ndarray, episode: int, world: int, seed_lo: int, seed_hi: int) -> None:
    """Write a new hand [5] and what is seen of it [3]."""
    first = reset(episode, world, seed_lo, seed_hi)
    for j in range(5):
        hand[j] = first[j]
    show(hand, obs)


@njit(**KERNEL)
def advance(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    actions: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """The batched kernel; world.py says what the arrays are. parameters: time limit, natural, sab."""
    limit, natural, sab = np.int32(parameters[0]), parameters[1] != 0.0, parameters[2] != 0.0
    ended = np.empty(TILE, np.int32)
    for start in range(lo, hi, TILE):
        stop = min(start + TILE, hi)
        hand, age, total, episode = state[:, start:stop], ages[start:stop], returns[start:stop], episodes[start:stop]
        for t in range(actions.shape[0]):
            action, out = actions[t, start:stop], obs[t, start:stop]
            r, done, cut = reward[t, start:stop], terminated[t, start:stop], truncated[t, start:stop]
            for i in range(stop - start):
                block, world = IN_EPISODE * (age[i] + 1), first_world + start + i
                mine, ace, cards = hand[TOTAL, i], hand[ACE, i], hand[CARDS, i]
                up, hole = hand[UP, i], hand[HOLE, i]
                if action[i] == HIT:
                    mine, ace, cards = hit(mine, ace, cards, block, episode[i], world, seed_lo, seed_hi)
                    hand[TOTAL, i], hand[ACE, i], hand[CARDS, i] = mine, ace, cards
                    over = mine > BEST
                    gain = -1.0 if over else 0.0
                else:
                    over = True
                    dealer = dealers_worth(up, hole, block, episode[i], world, seed_lo, seed_hi)
                    dealer_natural = is_natural(up + hole, 1 if up == 1 or hole == 1 else 0, 2)
                    gain = payoff(worth(mine, ace), is_natural(mine, ace, cards), dealer, dealer_natural, natural, sab)
                age[i] += np.int32(1)
                total[i] += gain
                r[i], done[i], cut[i] = gain, over, (age[i] >= limit) & (not over)
                out[i, 0], out[i, 1], out[i, 2] = worth(mine, ace), up, usable(mine, ace)
            for k in range(list_ended(done, cut, ended)):
                i = ended[k]
                world = start + i
                episode_return[t, world], episode_length[t, world] = total[i], age[i]
                for j in range(3):
                    final_obs[t, world, j] = out[i, j]
                age[i], total[i], episode[i] = 0, 0.0, episode[i] + 1
                deal(hand[:, i], out[i], episode[i], first_world + world, seed_lo, seed_hi)


@njit(**KERNEL)
def restart(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    mask: np.ndarray,
    obs: np.ndarray,
) -> None:
    """Begin the episode `episodes[i]` in every masked world; what is seen of all."""
    for i in range(lo, hi):
        if mask[i]:
            ages[i], returns[i] = 0, 0.0
            deal(state[:, i], obs[i], episodes[i], first_world + i, seed_lo, seed_hi)
        else:
            show(state[:, i], obs[i])


def setting(natural: bool = False, sab: bool = True) -> Setting:
    """`natural`: 1.5 for winning with an ace and a ten at once. `sab`: such a hand wins unless the dealer has one too.

    `natural` is ignored under `sab`, which Gymnasium registers as the default.
    """
    return Setting(
        observation_space=Dict({"0": Discrete(32), "1": Discrete(11), "2": Discrete(2)}),
        action_space=Discrete(2),
        parameters=(float(flag("natural", natural)), float(flag("sab", sab))),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """What to set on Gymnasium's environment so that it draws this state; it shows totals, and the dealer's spade."""
    total, ace, up, hole = int(column[TOTAL]), int(column[ACE]), int(column[UP]), int(column[HOLE])
    return {
        "player": [1, total - 1] if ace else [total],
        "dealer": [up, hole],
        "dealer_top_card_suit": "S",
        "dealer_top_card_value_str": {1: "A", TEN: "K"}.get(up, str(up)),
    }


def recall(obs: np.ndarray) -> np.ndarray:
    """A state that is seen so; what the dealer hides is not."""
    total, up, ace = obs.tolist()
    return np.array([total - 10 * ace, ace, 2, up, 0])


WORLD = World(
    recall=recall,
    env_id="Blackjack-v1",
    setting=setting,
    advance=advance,
    restart=restart,
    state_size=5,
    state_dtype=np.int32,
    gym_state=gym_state,
)
