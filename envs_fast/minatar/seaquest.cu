// The GPU version of MinAtar/Seaquest: exactly the results of seaquest.py.
#include "envs_fast/grids.cuh"
#include "envs_fast/minatar/seaquest.py"
#include "envs_fast/minatar/swimmers.cuh"

// Lets the player shoot or move.
DEVICE void act(State state, int carried) {
  int x = state[HERE] & COLUMN, y = state[HERE] / ROW;
  if (carried == FIRE && state[SHOT_TIMER] == 0) {
    add(state, BULLETS, FEW, state[HERE] + state[FACING]);
    state[SHOT_TIMER] = COOL_DOWN;
  }
  if (carried == LEFT || carried == RIGHT) state[FACING] = carried == RIGHT ? GOING_RIGHT : 0;
  x = clip(x + (carried == RIGHT) - (carried == LEFT), 0, EDGE);
  y = clip(y + (carried == DOWN) - (carried == UP), 0, LANES);
  state[HERE] = x + ROW * y;
}

// Fills the oxygen and takes one diver, or all six for a reward, which is returned.
DEVICE int surface(State state, bool ramping) {
  int gain = 0;
  if (state[ABOARD] == MOST_ABOARD) {
    state[ABOARD] = 0;
    gain = state[OXYGEN] * BAR / FULL;
  }
  state[OXYGEN] = FULL;
  state[SURFACED] = 1;
  state[ABOARD] -= 1;
  if (ramping && (state[SPAWN_SPEED] > 1 || state[MOVE_SPEED] > FASTEST)) {
    if (state[MOVE_SPEED] > FASTEST && state[RAMPS] & 1) state[MOVE_SPEED] -= 1;
    if (state[SPAWN_SPEED] > 1) state[SPAWN_SPEED] -= 1;
    state[RAMPS] += 1;
  }
  return gain;
}

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  u32 block = IN_EPISODE * ((u32)moment.age + 1);
  Words words = draw(block, moment.episode);
  int carried = carried_out(state, action, words.a, parameters, tables);
  if (state[SPAWN_TIMER] == 0) {
    spawn(state, words.b, words.c, words.d);
    state[SPAWN_TIMER] = state[SPAWN_SPEED];
  }
  if (state[DIVER_TIMER] == 0) {
    Words diver = draw(block + 1, moment.episode);
    add(state, DIVERS, FEW, comes_in(diver.a, diver.b) + MOVE * DIVER_REST);
    state[DIVER_TIMER] = DIVER_SPAWN;
  }
  act(state, carried);
  int gain = move_bullets(state);
  move_divers(state);
  bool over = state[OXYGEN] <= 0;
  gain += move_enemies(state, SUBS, true, over);
  over |= move_torpedoes(state);
  gain += move_enemies(state, FISH, false, over);
  if (state[SPAWN_TIMER] > 0) state[SPAWN_TIMER] -= 1;
  if (state[DIVER_TIMER] > 0) state[DIVER_TIMER] -= 1;
  if (state[SHOT_TIMER] > 0) state[SHOT_TIMER] -= 1;
  if (state[HERE] >= ROW) {
    state[OXYGEN] -= 1;
    state[SURFACED] = 0;
  } else if (state[SURFACED] == 0) {
    over |= state[ABOARD] == 0;
    if (state[ABOARD] != 0) gain += surface(state, parameters.difficulty_ramping != 0.0);
  }
  reward = gain;
  return over;
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  for (int row = 0; row < ROWS; row++) state[row] = 0;
  state[BEFORE] = NOTHING;
  state[HERE] = 5;
  state[OXYGEN] = FULL;
  state[SURFACED] = 1;
  state[SPAWN_SPEED] = state[SPAWN_TIMER] = FIRST_SPAWN_SPEED;
  state[DIVER_TIMER] = DIVER_SPAWN;
  state[MOVE_SPEED] = FIRST_MOVE_SPEED;
}

DEVICE void observe(State state, Seen& seen, const Parameters& parameters) {
  clear(seen);
  int x = state[HERE] & COLUMN, y = state[HERE] / ROW;
  light(seen, FRONT, y, x);
  light(seen, BACK, y, state[FACING] ? x - 1 : x + 1);
  for (int k = 0; k < (state[OXYGEN] > 0 ? state[OXYGEN] : 0) * BAR / FULL; k++) light(seen, OXYGEN_BAR, EDGE, k);
  for (int k = 0; k < state[ABOARD]; k++) light(seen, DIVER_BAR, EDGE, EDGE - 1 - k);
  show(state, seen, BULLETS, BULLET, false);
  show(state, seen, TORPEDOES, TORPEDO, false);
  show(state, seen, FISH, ONE_FISH, true);
  show(state, seen, SUBS, ONE_SUB, true);
  show(state, seen, DIVERS, ONE_DIVER, true);
}

GRID_KERNELS(seaquest)
