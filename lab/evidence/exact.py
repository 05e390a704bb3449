"""Computes a policy's exact expected return in environments whose dynamics are known: Gymnasium's toy text.

Most of them publish a transition table. Blackjack-v1 does not: its table is computed here from the default rules, with
an infinite deck of thirteen ranks (Sutton and Barto, Example 5.1; `sab`: an ace and a ten as the first two cards win
unless the dealer has both, too).
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

TABLE_ENVS = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4")  # their table `P` is complete
STICK, HIT = 0, 1  # actions
MAX_TOTAL, DEALER_STANDS = 21, 17  # a higher total loses; the dealer takes cards below this total
CARDS = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}  # probability of each value; 10 has four ranks
MAX_HAND_STEPS = 21  # after so many steps every hand is over
# ends of the dealer's hand beside the totals 17 to 21: above 21, or an ace and a ten, which beat all other hands
BUST, NATURAL = 0, 22
Floats = NDArray[np.float64]


class TransitionTable(NamedTuple):
    """The dynamics of an environment with S states and A actions."""

    start: Floats  # [S] probability that an episode begins in this state
    follows: Floats
    """[S, A, S] probability of the next state; what is missing to 1 is the probability that the episode ends"""
    reward: Floats  # [S, A] expected reward, that of the ending transitions included


def read_table(env: gymnasium.Env) -> TransitionTable:
    """Read an environment's `P[state][action] = [(probability, next state, reward, terminated), ...]` and starts."""
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
    """Return the expected undiscounted return of an episode of at most `time_limit` steps.

    `policy` [S, A]: the probability of each action.

    v_0 = 0;   v_k+1(s) = sum_a pi(a|s) (r(s, a) + sum_s' p(s'|s, a) v_k(s'));   the answer is start . v_limit.
    """
    follows = np.einsum("sa,sat->st", policy, table.follows)
    reward = (policy * table.reward).sum(1)
    value = np.zeros(len(table.start))
    for _ in range(time_limit):
        value = reward + follows @ value
    return float(table.start @ value)


def exact(loaded: LoadedRun) -> dict[str, float]:
    """Return {"exact": expected return}, or {} if that cannot be computed."""
    value = exact_value(loaded.config, loaded.agent.policy)
    return {} if value is None else {"exact": value}


def exact_value(config: Config, policy: Policy) -> float | None:
    """Return the expected return of an episode, for the policy as it is evaluated (greedy or sampled).

    None if a table of states is not enough: other environments, no time limit, a policy with a memory.
    """
    if leaves(policy.initial(1)):
        return None
    if config.env_id == "Blackjack-v1":
        return blackjack_value(config, policy)
    if config.env_id not in TABLE_ENVS or config.env_kwargs.get("fickle_passenger"):
        return None
    worlds = make_envs(replace(config, env_backend="gym"), 1)
    if not isinstance(worlds, GymEnv) or worlds.time_limit is None:
        return None
    table = read_table(worlds.envs[0])
    return policy_value(table, action_probabilities(config, policy, worlds, len(table.start)), worlds.time_limit)


def blackjack_value(config: Config, policy: Policy) -> float | None:
    """Return the exact value in Blackjack-v1; None if the config changes its rules, observations or length."""
    if config.env_kwargs or wrappers_of(config) or config.max_episode_steps is not None:
        return None
    table, observations = blackjack()
    # a tuple observation is a dictionary here: {"0": sum, "1": dealer's open card, "2": usable ace}
    obs = {str(index): torch.from_numpy(column.copy()) for index, column in enumerate(observations.T)}
    return policy_value(table, probabilities_at(config, policy, obs, 2), MAX_HAND_STEPS)


def action_probabilities(config: Config, policy: Policy, worlds: GymEnv, states: int) -> Floats:
    """Return the probability of each action in each state, [S, A]; observations pass the wrappers of training."""
    world: Any = worlds.envs[0].unwrapped
    observations = []
    for state in range(states):
        world.initial_state_distrib = np.eye(states)[state]  # so the reset observation is that of this state
        observations.append(tree_map(torch.clone, worlds.reset(0)))
    return probabilities_at(config, policy, tree_map(lambda *parts: torch.cat(parts), *observations), len(world.P[0]))


@torch.no_grad()
def probabilities_at(config: Config, policy: Policy, obs: Obs, actions: int) -> Floats:
    """Return the probability of each of `actions` actions for S observations, [S, A]."""
    states = len(leaves(obs)[0])
    is_first = torch.ones(states, dtype=torch.bool)
    if config.eval_deterministic:
        noise = torch.zeros(states, policy.draws)
        return np.eye(actions)[policy.act(obs, (), is_first, noise, True).action.numpy()]
    assert isinstance(policy, ActorCritic)
    judgements = [policy.evaluate(obs, (), is_first, torch.full((states,), action)) for action in range(actions)]
    return torch.stack([judgement.log_prob.double().exp() for judgement in judgements], -1).numpy()


class Hand(NamedTuple):
    """Somebody's cards in Blackjack."""

    total: int
    soft: bool  # an ace counts 11
    natural: bool = False  # these are the first two cards, an ace and a ten

    def take(self, card: int) -> "Hand":
        """Return the hand with one more card, 1 (ace) to 10; an ace counts 11 as long as the total is at most 21."""
        total, soft = self.total + card, self.soft
        if card == 1 and total + 10 <= MAX_TOTAL:
            total, soft = total + 10, True
        if total > MAX_TOTAL and soft:
            total, soft = total - 10, False
        return Hand(total, soft)


def blackjack() -> tuple[TransitionTable, NDArray[np.int64]]:
    """Return Blackjack's table, and the observations of its states, [S, 3]: sum, dealer's open card, usable ace.

    A state is a hand of the player that is not over, with an open card of the dealer.
    """
    hard, soft = ([Hand(total, soft) for total in range(low, MAX_TOTAL + 1)] for low, soft in ((4, False), (12, True)))
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
            if after.total > MAX_TOTAL:
                reward[index, HIT] -= chance
            else:
                follows[index, HIT, states[after, up]] += chance
    observations = [(hand.total, up, hand.soft) for hand, up in states]
    return TransitionTable(start, follows, reward), np.array(observations, np.int64)


def dealt(first: int, second: int) -> Hand:
    """Return the hand of the first two cards."""
    hand = Hand(0, False).take(first).take(second)
    return hand._replace(natural=hand.total == MAX_TOTAL)


def payoff(hand: Hand, ending: int) -> float:
    """Return the reward of sticking with a hand if the dealer's hand ends as `ending`."""
    mine = NATURAL if hand.natural else hand.total
    # the dealer's natural beats only a player's natural, which then draws; against other hands it counts as 21
    theirs = MAX_TOTAL if ending == NATURAL and not hand.natural else ending
    return float(np.sign(mine - theirs))


def dealers_endings(up: int) -> list[tuple[int, float]]:
    """Return (ending, probability) of the dealer's hand, from the open card `up`."""
    chances = dict.fromkeys([BUST, *range(DEALER_STANDS, NATURAL + 1)], 0.0)
    for hole, chance in CARDS.items():
        hand = dealt(up, hole)
        for ending, share in [(NATURAL, 1.0)] if hand.natural else drawn(hand):
            chances[ending] += chance * share
    return [*chances.items()]


@cache
def drawn(hand: Hand) -> tuple[tuple[int, float], ...]:
    """Return (ending, probability) of a dealer's hand, to which cards are added until its total is at least 17."""
    if hand.total > MAX_TOTAL:
        return ((BUST, 1.0),)
    if hand.total >= DEALER_STANDS:
        return ((hand.total, 1.0),)
    chances: dict[int, float] = {}
    for card, chance in CARDS.items():
        for ending, share in drawn(hand.take(card)):
            chances[ending] = chances.get(ending, 0.0) + chance * share
    return tuple(chances.items())
