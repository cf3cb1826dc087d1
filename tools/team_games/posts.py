"""The posts: four equal agents, four posts, ten steps, and a reward of 1 in each step in which no two share a post.

An agent sees its own last post and how many stood at each. Without ids agents that see the same act the same for ever,
unless something is drawn.
"""

from __future__ import annotations

import torch

POSTS = 4


class Posts:
    """The game, as a `TeamGame`."""

    agents = actions = POSTS
    steps = 10
    size = 2 * POSTS
    state_size = size * POSTS

    def begin(self, games: int) -> None:
        """Begins episodes: nobody stands anywhere."""
        self._seen = torch.zeros(games, POSTS, self.size)

    def see(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Views, the state, which is all views, and open actions, which are all."""
        return self._seen, self._seen.flatten(1), torch.ones(len(self._seen), POSTS, POSTS)

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pays where all stand apart; nothing ends but by the time."""
        stood = torch.nn.functional.one_hot(actions, POSTS).float()
        counts = stood.sum(1, keepdim=True)
        self._seen = torch.cat([stood, counts.expand_as(stood) / POSTS], -1)
        return (counts[:, 0] == 1).all(-1).float(), torch.zeros(len(actions), dtype=torch.bool)
