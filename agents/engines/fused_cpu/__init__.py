"""A whole PPO or REINFORCE iteration in compiled kernels: engine.py is the door, docs/architecture.md draws it."""
