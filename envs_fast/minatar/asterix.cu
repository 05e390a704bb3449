// The GPU version of MinAtar/Asterix: exactly the results of asterix.py.
#include "envs_fast/grids.cuh"
#include "envs_fast/minatar/asterix.py"
#include "envs_fast/minatar/game.cuh"

// Puts gold or an enemy into a random free lane; each lane is a slot of the state.
DEVICE void spawn(State state, u32 side, u32 kind, u32 place) {
  int free = 0;
  for (int slot = SLOTS; slot < SLOTS + LANES; slot++) free += state[slot] == EMPTY;
  int comes = between(side, 0.0, 1.0) < 0.5 ? RIGHTWARDS : EDGE;
  comes += between(kind, 0.0, 1.0) < GOLD_CHANCE ? IS_GOLD : 0;
  int chosen = below(place, free);
  for (int slot = SLOTS; slot < SLOTS + LANES; slot++) {
    if (state[slot] != EMPTY) continue;
    if (chosen == 0) state[slot] = comes;
    chosen -= 1;
  }
}

// Takes the gold of a slot, or ends the episode, if the player is in the cell of its thing.
DEVICE void meet(State state, int slot, double& reward, bool& over) {
  int comes = state[slot];
  if (comes == EMPTY || state[PLAYER_Y] != slot - SLOTS + 1 || state[PLAYER_X] != (comes & PLACE)) return;
  if (comes & IS_GOLD) {
    state[slot] = EMPTY;
    reward += 1.0;
  } else {
    over = true;
  }
}

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  Words words = draw_now(moment);
  int carried = carried_out(state, action, words.a, parameters, tables);
  if (state[SPAWN_TIMER] == 0) {
    spawn(state, words.b, words.c, words.d);
    state[SPAWN_TIMER] = state[SPAWN_SPEED];
  }
  state[PLAYER_X] = clip(state[PLAYER_X] + (carried == RIGHT) - (carried == LEFT), 0, EDGE);
  state[PLAYER_Y] = clip(state[PLAYER_Y] + (carried == DOWN) - (carried == UP), 1, LANES);
  bool over = false, moves = state[MOVE_TIMER] == 0;
  reward = 0.0;
  if (moves) state[MOVE_TIMER] = state[MOVE_SPEED];
  for (int slot = SLOTS; slot < SLOTS + LANES; slot++) {
    meet(state, slot, reward, over);
    int comes = state[slot];
    if (!moves || comes == EMPTY) continue;
    int x = (comes & PLACE) + (comes & RIGHTWARDS ? 1 : -1);
    state[slot] = 0 <= x && x <= EDGE ? (comes & ~PLACE) + x : EMPTY;
    meet(state, slot, reward, over);
  }
  state[SPAWN_TIMER] -= 1;
  state[MOVE_TIMER] -= 1;
  if (parameters.difficulty_ramping != 0.0 && (state[SPAWN_SPEED] > 1 || state[MOVE_SPEED] > 1)) {
    state[RAMP_TIMER] -= 1;
    if (state[RAMP_TIMER] < -1) {
      if (state[MOVE_SPEED] > 1 && state[RAMPS] & 1) state[MOVE_SPEED] -= 1;
      if (state[SPAWN_SPEED] > 1) state[SPAWN_SPEED] -= 1;
      state[RAMPS] += 1;
      state[RAMP_TIMER] = RAMP_INTERVAL;
    }
  }
  return over;
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  state[BEFORE] = NOTHING;
  state[PLAYER_X] = state[PLAYER_Y] = 5;
  state[SPAWN_SPEED] = state[SPAWN_TIMER] = FIRST_SPAWN_SPEED;
  state[MOVE_SPEED] = state[MOVE_TIMER] = FIRST_MOVE_SPEED;
  state[RAMP_TIMER] = RAMP_INTERVAL;
  state[RAMPS] = 0;
  for (int slot = SLOTS; slot < SLOTS + LANES; slot++) state[slot] = EMPTY;
}

DEVICE void observe(State state, Seen& seen, const Parameters& parameters) {
  clear(seen);
  light(seen, PLAYER, state[PLAYER_Y], state[PLAYER_X]);
  for (int slot = SLOTS; slot < SLOTS + LANES; slot++) {
    int comes = state[slot], x = comes & PLACE, behind = comes & RIGHTWARDS ? x - 1 : x + 1;
    if (comes == EMPTY) continue;
    light(seen, comes & IS_GOLD ? GOLD : ENEMY, slot - SLOTS + 1, x);
    if (0 <= behind && behind <= EDGE) light(seen, TRAIL, slot - SLOTS + 1, behind);
  }
}

GRID_KERNELS(asterix)
