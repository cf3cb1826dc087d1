"""A game of one corridor for each of two agents, known to planners: they are told to go left or right."""

from __future__ import annotations

from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.env_registry import registration

from rllib_llm_comm.sama.planning_game import PlanningGame, RulePlayer, register_planning_game

CORRIDOR = "toys/corridor-v0"


class Corridor(ParallelEnv):
    """Cells 0 to 4; who arrives at the right end is paid 1. Action 1 goes right, 0 left."""

    metadata = {"name": "corridor"}

    def __init__(self, length: int = 12) -> None:
        self.possible_agents, self.agents, self.length = ["ann", "ben"], [], length
        self.at, self.t = {}, 0

    def observation_space(self, agent):
        return spaces.Dict({"at": spaces.Discrete(5), "subgoal": spaces.Text(300, min_length=0)})

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t, self.at = list(self.possible_agents), 0, dict.fromkeys(self.possible_agents, 2)
        self.before = dict(self.at)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        names, self.before, self.t = self.agents, dict(self.at), self.t + 1
        for agent, action in actions.items():
            self.at[agent] = max(0, min(4, self.at[agent] + 2 * action - 1))
        paid = {agent: float(self.before[agent] < self.at[agent] == 4) for agent in names}
        over = dict.fromkeys(names, self.t >= self.length)
        if self.t >= self.length:
            self.agents = []
        metrics = {"right_ends": float(sum(paid.values()))}
        return self._seen(), paid, dict.fromkeys(names, False), over, {a: {"episode_metrics": metrics} for a in names}

    def _seen(self):
        return {agent: {"at": self.at[agent], "subgoal": ""} for agent in self.possible_agents}


class CorridorPlanning(PlanningGame):
    """Shows it to planners."""

    ENDS = {"go left": 0, "go right": 4}

    def state(self):
        return dict(self.env.unwrapped.at)

    def passed(self):
        return [self.env.unwrapped.before, self.state()]

    def manual(self):
        return "A corridor."

    def situation(self, state):
        return ""

    def situation_of(self, state, agent):
        return f"{agent} is at {state[agent]}."

    def plain(self, state):
        return state

    def library(self, agent):
        return list(self.ENDS)

    def parse(self, text):
        return text if text in self.ENDS else None

    def refusal(self, state, agent, subgoal):
        return f"{agent} is there" if state[agent] == self.ENDS[subgoal] else ""

    def done(self, before, after, agent, subgoal):
        return before[agent] != after[agent] == self.ENDS[subgoal]

    def scripted(self, state):
        return "run", {agent: "go left" if at == 4 else "go right" for agent, at in state.items()}

    def player(self):
        return Runner(self)


class Runner(RulePlayer):
    def action(self, agent, seen):
        return int(seen["subgoal"] == "go right")


def register():
    if CORRIDOR not in registration.parallel_registry:
        registration.register("parallel", CORRIDOR, Corridor)
    register_planning_game("corridor", CorridorPlanning)
