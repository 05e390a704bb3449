"""Gymnasium's MuJoCo tasks as compiled worlds; the physics is the installed MuJoCo's, called by address."""
