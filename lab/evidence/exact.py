"""What a policy is worth exactly, where a world's whole dynamics is known: Gymnasium's toy text, and Blackjack.

Blackjack-v1 publishes no transition table: it is worked out from the default rules, an infinite deck of thirteen ranks
(Sutton and Barto, Example 5.1; `sab`: an ace and a ten at once win unless the dealer has both too).
"""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import leaves, tree_map
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.trained.loading import LoadedRun
from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import make_envs
from stride.envs_gym.wrappers.registry import wrappers_of

PUBLISHED = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4")  # ids whose `P` is all there is to know
STICK, HIT = 0, 1
BEST, DEALER_STANDS = 21, 17
CARDS = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}  # probability of each value; 10 has four ranks
LONGEST = 21  # steps after which every hand is over
BUST, NATURAL = 0, 22  # how the dealer's hand may end beside 17 to 21; no hand of more cards beats an ace and a ten
Floats = NDArray[np.float64]


class TransitionTable(NamedTuple):
    start: Floats  # [S] probability that an episode begins there
    follows: Floats
    """[S, A, S] probability of going on there; what is missing to 1 is the probability that the episode ends"""
    reward: Floats  # [S, A] expected reward, that of the ending transitions included


def read_table(env: gymnasium.Env) -> TransitionTable:
    """From `P[state][action] = [(probability, next state, reward, terminated), ...]` and the start distribution."""
    world: Any = env.unwrapped
    states, actions = len(world.P), len(world.P[0])
    follows, reward = np.zeros((states, actions, states)), np.zeros((states, actions))
    for state, row in world.P.items():
        for action, outcomes in row.items():
            for probability, following, gain, terminated in outcomes:
                reward[state, action] += probability * gain
                follows[state, action, following] += probability * (not terminated)
    return TransitionTable(np.asarray(world.initial_state_distrib, np.float64), follows, reward)


def policy_value(table: TransitionTable, policy: Floats, time_limit: int) -> float:
    """Expected undiscounted return of an episode of at most `time_limit` steps; `policy` [S, A] are probabilities.

    v_0 = 0;   v_k+1(s) = sum_a pi(a|s) (r(s, a) + sum_s' p(s'|s, a) v_k(s'));   the answer is start . v_limit.
    """
    follows = np.einsum("sa,sat->st", policy, table.follows)
    reward = (policy * table.reward).sum(1)
    value = np.zeros(len(table.start))
    for _ in range(time_limit):
        value = reward + follows @ value
    return float(table.start @ value)


def exact(loaded: LoadedRun) -> dict[str, float]:
    """The policy's true value, where the environment publishes its dynamics; else nothing."""
    value = exact_value(loaded.config, loaded.agent.policy)
    return {} if value is None else {"exact": value}


def exact_value(config: Config, policy: Policy) -> float | None:
    """Expected return of an episode under the time limit, of the policy as it is evaluated (greedy or sampled).

    None where the table does not tell everything: other environments, no time limit, a policy that remembers.
    """
    if leaves(policy.initial(1)):
        return None
    if config.env_id == "Blackjack-v1":
        return blackjack_value(config, policy)
    if config.env_id not in PUBLISHED or config.env_kwargs.get("fickle_passenger"):
        return None
    worlds = make_envs(replace(config, env_backend="gym"), 1)
    if not isinstance(worlds, GymEnv) or worlds.time_limit is None:
        return None
    table = read_table(worlds.envs[0])
    return policy_value(table, answers(config, policy, worlds, len(table.start)), worlds.time_limit)


def blackjack_value(config: Config, policy: Policy) -> float | None:
    if config.env_kwargs or wrappers_of(config) or config.max_episode_steps is not None:
        return None
    table, seen = blackjack()
    obs = {str(place): torch.from_numpy(column.copy()) for place, column in enumerate(seen.T)}
    return policy_value(table, asked(config, policy, obs, 2), LONGEST)


def answers(config: Config, policy: Policy, worlds: GymEnv, states: int) -> Floats:
    """[S, A] probability of each action in each state, asked through the same wrappers that training used."""
    world: Any = worlds.envs[0].unwrapped
    seen = []
    for state in range(states):
        world.initial_state_distrib = np.eye(states)[state]  # an episode that begins there shows what is seen there
        seen.append(tree_map(torch.clone, worlds.reset(0)))
    return asked(config, policy, tree_map(lambda *parts: torch.cat(parts), *seen), len(world.P[0]))


@torch.no_grad()
def asked(config: Config, policy: Policy, obs: Obs, actions: int) -> Floats:
    """[S, A] probability of each action where these are the observations."""
    states = len(leaves(obs)[0])
    first = torch.ones(states, dtype=torch.bool)
    if config.eval_deterministic:
        noise = torch.zeros(states, policy.draws)
        return np.eye(actions)[policy.act(obs, (), first, noise, True).action.numpy()]
    assert isinstance(policy, ActorCritic)
    judged = [policy.evaluate(obs, (), first, torch.full((states,), action)) for action in range(actions)]
    return torch.stack([each.log_prob.double().exp() for each in judged], -1).numpy()


class Hand(NamedTuple):
    """The player's cards; `soft` says that an ace counts 11."""

    total: int
    soft: bool
    natural: bool = False

    def take(self, card: int) -> "Hand":
        total, soft = self.total + card, self.soft
        if card == 1 and total + 10 <= BEST:
            total, soft = total + 10, True
        if total > BEST and soft:
            total, soft = total - 10, False
        return Hand(total, soft)


def blackjack() -> tuple[TransitionTable, NDArray[np.int64]]:
    """Every hand of the player that is not over, against each open card of the dealer.

    The table, and what the player sees in each of its states: [S, 3] sum, dealer's open card, usable ace.
    """
    hard, soft = ([Hand(total, soft) for total in range(low, BEST + 1)] for low, soft in ((4, False), (12, True)))
    hands = [*hard, *soft, dealt(1, 10)]
    states = {state: index for index, state in enumerate(product(hands, CARDS))}
    start = np.zeros(len(states))
    follows, reward = np.zeros((len(states), 2, len(states))), np.zeros((len(states), 2))
    for first, second, up in product(CARDS, CARDS, CARDS):
        start[states[dealt(first, second), up]] += CARDS[first] * CARDS[second] * CARDS[up]
    for (hand, up), index in states.items():
        reward[index, STICK] = sum(chance * payoff(hand, ending) for ending, chance in dealers_endings(up))
        for card, chance in CARDS.items():
            after = hand.take(card)
            if after.total > BEST:
                reward[index, HIT] -= chance
            else:
                follows[index, HIT, states[after, up]] += chance
    seen = [(hand.total, up, hand.soft) for hand, up in states]
    return TransitionTable(start, follows, reward), np.array(seen, np.int64)


def dealt(first: int, second: int) -> Hand:
    hand = Hand(0, False).take(first).take(second)
    return hand._replace(natural=hand.total == BEST)


def payoff(hand: Hand, ending: int) -> float:
    """The reward of sticking against what the dealer ends with."""
    mine = NATURAL if hand.natural else hand.total
    theirs = BEST if ending == NATURAL and not hand.natural else ending  # the dealer's natural only spoils the player's
    return float(np.sign(mine - theirs))


def dealers_endings(up: int) -> list[tuple[int, float]]:
    found = dict.fromkeys([BUST, *range(DEALER_STANDS, NATURAL + 1)], 0.0)
    for hole, chance in CARDS.items():
        hand = dealt(up, hole)
        for ending, share in [(NATURAL, 1.0)] if hand.natural else drawn(hand):
            found[ending] += chance * share
    return [*found.items()]


@cache
def drawn(hand: Hand) -> tuple[tuple[int, float], ...]:
    """How a dealer's hand ends who draws until 17."""
    if hand.total > BEST:
        return ((BUST, 1.0),)
    if hand.total >= DEALER_STANDS:
        return ((hand.total, 1.0),)
    found: dict[int, float] = {}
    for card, chance in CARDS.items():
        for ending, share in drawn(hand.take(card)):
            found[ending] = found.get(ending, 0.0) + chance * share
    return tuple(found.items())
