"""PPO once more, written as naively as possible: the oracle for engines. Loops over worlds and steps, no shared maths.

Takes the same draws and the same optimizer; acting, values, advantages, losses and clipping are its own.
"""

import torch
from torch.distributions import Categorical

from stride.agents.experience.nouns import Act
from stride.utils.counter_rng import SHUFFLE, permutation, uniforms


class PlainPPO:
    """Both sockets for discrete actions, a vector observation, tanh networks and default PPO settings."""

    name = "plain"

    def collect(self, agent, steps):
        collector, memory = agent.collector, agent.memory
        collector.calls += 1
        noise = uniforms(collector._key._replace(iteration=collector.calls), (steps, memory.num_envs, 1))
        policy, rows = agent.policy, []
        for t in range(steps):
            with torch.no_grad():
                probabilities = torch.softmax(policy.actor(collector.obs), -1)
            action = torch.tensor([_choice(*row) for row in zip(probabilities, noise[t, :, 0].tolist(), strict=True)])
            step = collector.envs.step(action)
            act = Act(action, (), ())
            memory.write(collector.obs, collector.is_first, act, step)
            collector._advance(act, step)
            rows.append((collector.is_first.clone(), step.episode_return.clone(), step.episode_length.clone()))
        collector.window.add(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def learn(self, agent, rollout):
        config, row = agent.config, rollout.row
        steps, worlds = row.reward.shape
        with torch.no_grad():
            after, cut = (agent.policy.critic(x.obs)[..., 0] for x in (rollout.next, rollout.final))
            value = torch.stack([agent.policy.critic(row.obs[t])[:, 0] for t in range(steps)])
            log_prob = torch.stack(
                [Categorical(logits=agent.policy.actor(row.obs[t])).log_prob(row.action[t]) for t in range(steps)]
            )
        advantage = torch.zeros(steps, worlds)
        for world in range(worlds):
            running = 0.0
            for t in reversed(range(steps)):
                if row.terminated[t, world]:
                    following, running = 0.0, 0.0
                elif row.truncated[t, world]:
                    following, running = cut[row.slot[t, world], world].item(), 0.0
                else:
                    following = after[world].item() if t == steps - 1 else value[t + 1, world].item()
                delta = row.reward[t, world].item() + config.gamma * following - value[t, world].item()
                running = delta + config.gamma * config.gae_lambda * running
                advantage[t, world] = running
        columns = [x.reshape(steps * worlds, *x.shape[2:]) for x in (row.obs, row.action, log_prob)]
        target = (advantage + value).reshape(-1)
        advantage = advantage.reshape(-1)
        for epoch in range(config.n_epochs):
            order = permutation(agent.key(SHUFFLE, agent.progress["iterations"] * config.n_epochs + epoch), len(target))
            for ids in order.split(config.minibatch_size):
                self.update(agent, *(x[ids] for x in (*columns, advantage, target)))

    def update(self, agent, obs, action, log_prob_old, advantage, target):
        config = agent.config
        advantage = (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)
        policy = Categorical(logits=agent.policy.actor(obs))
        ratio = torch.exp(policy.log_prob(action) - log_prob_old)
        bounded = torch.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
        surrogate = torch.stack([ratio * advantage, bounded * advantage]).amin(0).mean()
        value_loss = ((agent.policy.critic(obs)[:, 0] - target) ** 2).mean()
        loss = -surrogate + config.vf_coef * value_loss - config.ent_coef * policy.entropy().mean()
        agent.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(agent.policy.parameters(), config.max_grad_norm)
        agent.optimizer.step()
        agent.progress["updates"] += 1


def _choice(probabilities, u):
    """The first choice up to which the probabilities add up to more than u of their sum."""
    total, limit = 0.0, u * probabilities.sum().item()
    for choice, p in enumerate(probabilities.tolist()):
        total += p
        if limit < total:
            return choice
    return choice
