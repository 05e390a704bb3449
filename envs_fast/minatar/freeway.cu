// The GPU version of MinAtar/Freeway: exactly the results of freeway.py.
#include "envs_fast/grids.cuh"
#include "envs_fast/minatar/freeway.py"
#include "envs_fast/minatar/game.cuh"

// A column, where a car that leaves on one side comes in on the other.
DEVICE int around(int column) { return column < 0 ? EDGE : column > EDGE ? 0 : column; }

// Draws a car's rest (1 to LONGEST_REST steps between two moves) and its direction, the sign of REST.
DEVICE void change_speed(State state, int lane, u32 word) {
  int chosen = below(word, 2 * LONGEST_REST), car = CARS + NUMBERS * lane;
  state[car + REST] = chosen < LONGEST_REST ? chosen + 1 : LONGEST_REST - 1 - chosen;
  state[car + TIMER] = chosen < LONGEST_REST ? chosen + 1 : chosen + 1 - LONGEST_REST;
}

DEVICE void change_speeds(State state, u32 block, const Episode& episode) {
  for (int half = 0; half < 2; half++) {
    Words words = draw(block + half, episode);
    change_speed(state, 4 * half, words.a);
    change_speed(state, 4 * half + 1, words.b);
    change_speed(state, 4 * half + 2, words.c);
    change_speed(state, 4 * half + 3, words.d);
  }
}

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  u32 block = IN_EPISODE * ((u32)moment.age + 1);
  int carried = carried_out(state, action, draw(block, moment.episode).a, parameters, tables);
  int position = state[POSITION];
  reward = 0.0;
  if (state[MOVE_TIMER] == 0 && (carried == UP || carried == DOWN)) {
    position = clip(carried == UP ? position - 1 : position + 1, 0, EDGE);
    state[MOVE_TIMER] = WALKING;
  }
  if (position == 0) {
    position = EDGE;
    reward = 1.0;
    change_speeds(state, block + 1, moment.episode);
  }
  for (int lane = 1; lane <= LANES; lane++) {
    int car = CARS + NUMBERS * (lane - 1), rest = state[car + REST];
    if (state[car + COLUMN] == MIDDLE && position == lane) position = EDGE;
    if (state[car + TIMER] > 0) {
      state[car + TIMER] -= 1;
      continue;
    }
    state[car + COLUMN] = around(state[car + COLUMN] + (rest > 0 ? 1 : -1));
    state[car + TIMER] = rest > 0 ? rest : -rest;
    if (state[car + COLUMN] == MIDDLE && position == lane) position = EDGE;
  }
  state[POSITION] = position;
  if (state[MOVE_TIMER] > 0) state[MOVE_TIMER] -= 1;
  state[TIME_LEFT] -= 1;
  return state[TIME_LEFT] < 0;
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  state[BEFORE] = NOTHING;
  state[POSITION] = EDGE;
  state[MOVE_TIMER] = WALKING;
  state[TIME_LEFT] = TIME;
  for (int car = CARS; car < ROWS; car += NUMBERS) state[car + COLUMN] = 0;
  change_speeds(state, 0, episode);
}

DEVICE void observe(State state, Seen& seen, const Parameters& parameters) {
  clear(seen);
  light(seen, CHICKEN, state[POSITION], MIDDLE);
  for (int lane = 1; lane <= LANES; lane++) {
    int car = CARS + NUMBERS * (lane - 1), column = state[car + COLUMN], rest = state[car + REST];
    light(seen, CAR, lane, column);
    light(seen, CAR + (rest > 0 ? rest : -rest), lane, around(rest > 0 ? column - 1 : column + 1));
  }
}

GRID_KERNELS(freeway)
