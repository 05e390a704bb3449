// The GPU version of MinAtar/SpaceInvaders: exactly the results of space_invaders.py.
#include "envs_fast/grids.cuh"
#include "envs_fast/minatar/space_invaders.py"
#include "envs_fast/minatar/game.cuh"

// Moves all aliens sideways, or down at an edge; returns whether some passed the last row. Bit x of a row is column x.
DEVICE bool move_aliens(State state) {
  int number = 0, columns = 0;
  bool leftwards = state[DIRECTION] < 0;
  for (int y = 0; y < SIDE; y++) {
    number += count(state[ALIENS + y]);
    columns |= state[ALIENS + y];
  }
  state[MOVE_TIMER] = number < state[INTERVAL] ? number : state[INTERVAL];
  if (columns & (leftwards ? 1 : 1 << EDGE)) {
    int last = state[ALIENS + EDGE];
    for (int y = EDGE; y > 0; y--) state[ALIENS + y] = state[ALIENS + y - 1];
    state[ALIENS] = last;
    state[DIRECTION] = -state[DIRECTION];
    return last != 0;
  }
  for (int y = 0; y < SIDE; y++) {
    int row = state[ALIENS + y];
    state[ALIENS + y] = leftwards ? row >> 1 : row << 1;
  }
  return false;
}

// Lets the lowest alien of the column nearest to the cannon shoot.
DEVICE void shoot(State state) {
  int nearest = 0, distance = SIDE, lowest = 0;
  for (int x = 0; x < SIDE; x++) {
    int away = x > state[POSITION] ? x - state[POSITION] : state[POSITION] - x;
    for (int y = 0; y < SIDE; y++) {
      if (!(state[ALIENS + y] >> x & 1) || (away >= distance && x != nearest)) continue;
      nearest = x, distance = away, lowest = y;
    }
  }
  state[ALIEN_BULLETS + lowest] |= 1 << nearest;
  state[ALIEN_TIMER] = ALIEN_COOL_DOWN;
}

DEVICE void begin_wave(State state) {
  for (int y = 0; y < WAVE_ROWS; y++) state[ALIENS + y] = WAVE_COLUMNS;
}

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  int carried = carried_out(state, action, draw_now(moment).a, parameters, tables);
  if (carried == FIRE && state[SHOT_TIMER] == 0) {
    state[BULLETS + EDGE] |= 1 << state[POSITION];
    state[SHOT_TIMER] = COOL_DOWN;
  }
  if (carried == LEFT && state[POSITION] > 0) state[POSITION] -= 1;
  if (carried == RIGHT && state[POSITION] < EDGE) state[POSITION] += 1;
#pragma unroll 1  // unrolled, this loop and the one below would keep the address of each of ten rows in a register
  for (int y = 0; y < EDGE; y++) {
    state[BULLETS + y] = state[BULLETS + y + 1];
    state[ALIEN_BULLETS + EDGE - y] = state[ALIEN_BULLETS + EDGE - y - 1];
  }
  state[BULLETS + EDGE] = state[ALIEN_BULLETS] = 0;
  int cannon = 1 << state[POSITION], left = 0;
  bool over = (state[ALIEN_BULLETS + EDGE] | state[ALIENS + EDGE]) & cannon;
  if (state[MOVE_TIMER] == 0) over |= move_aliens(state);
  over |= (state[ALIENS + EDGE] & cannon) != 0;
  if (state[ALIEN_TIMER] == 0) shoot(state);
  reward = 0.0;
#pragma unroll 1
  for (int y = 0; y < SIDE; y++) {
    int hit = state[ALIENS + y] & state[BULLETS + y];
    reward += count(hit);
    state[ALIENS + y] ^= hit;
    state[BULLETS + y] ^= hit;
    left |= state[ALIENS + y];
  }
  if (state[SHOT_TIMER] > 0) state[SHOT_TIMER] -= 1;
  state[MOVE_TIMER] -= 1;
  state[ALIEN_TIMER] -= 1;
  if (left == 0) {
    if (parameters.difficulty_ramping != 0.0 && state[INTERVAL] > FASTEST) state[INTERVAL] -= 1;
    begin_wave(state);
  }
  return over;
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  for (int row = 0; row < ROWS; row++) state[row] = 0;
  state[BEFORE] = NOTHING;
  state[POSITION] = 5;
  state[DIRECTION] = -1;
  state[INTERVAL] = state[MOVE_TIMER] = SLOWEST;
  state[ALIEN_TIMER] = ALIEN_COOL_DOWN;
  begin_wave(state);
}

DEVICE void observe(State state, Seen& seen, const Parameters& parameters) {
  clear(seen);
  light(seen, CANNON, EDGE, state[POSITION]);
  for (int y = 0; y < SIDE; y++) {
    light_row(seen, ALIEN, y, state[ALIENS + y]);
    light_row(seen, state[DIRECTION] < 0 ? GOING_LEFT : GOING_RIGHT, y, state[ALIENS + y]);
    light_row(seen, BULLET, y, state[BULLETS + y]);
    light_row(seen, ALIEN_BULLET, y, state[ALIEN_BULLETS + y]);
  }
}

GRID_KERNELS(space_invaders)
